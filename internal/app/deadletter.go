package app

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/gap"
	"invalidator/internal/pipeline"
)

// raiseEvery is how often a topic whose records are parked is looked at for its gap: that reads the state topic.
const raiseEvery = time.Minute

// parker parks records, and raises a possible gap of the table of each: what the record would have deleted stays until somebody decides.
// It stops nothing, and asks for no flush by itself, whatever on_gap says: one bad record is no reason to empty a pool.
type parker struct {
	dead    *changelog.DeadLetter
	gaps    gapRecorder
	sources []*pipeline.Source

	mu     sync.Mutex
	raised map[string]time.Time // by topic
}

// ParkFrom implements pipeline.Parker. Done again it is harmless.
func (p *parker) ParkFrom(ctx context.Context, from changelog.Partition, r changelog.Record, reason string) error {
	if err := p.dead.ParkFrom(ctx, from, r, reason); err != nil {
		return err
	}
	p.mu.Lock()
	at, ok := p.raised[from.Topic]
	p.mu.Unlock()
	if ok && time.Since(at) < raiseEvery {
		return nil
	}
	source := ""
	if s := pipeline.SourceOf(p.sources, from.Topic); s != nil {
		source = s.Name
	}
	if err := p.gaps.parked(ctx, source, from.Topic); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.raised[from.Topic] = time.Now()
	return nil
}

// parkedGap is the id of a topic's gap of parked records; of later ones, where it was closed, it is the beginning.
func parkedGap(topic string) string { return topic + "/parked" }

// parked records that records of a topic were parked. While its gap is open, all are one.
func (g gapRecorder) parked(ctx context.Context, source, topic string) error {
	record := gap.Gap{
		ID: parkedGap(topic), Source: source,
		Why:  "records of topic " + topic + " could not be handled and were parked: what they would have deleted may be stale",
		Hint: "invalidator deadletter list --topic " + topic,
	}
	g.concern(&record, topic)
	_, err := g.book.Record(ctx, record, false)
	return err
}

// DeadLetters opens the dead-letter topic for a person. It needs Kafka alone.
func DeadLetters(ctx context.Context, c *config.Config, log *slog.Logger) (*changelog.DeadLetters, error) {
	ctx, cancel := context.WithTimeout(ctx, gapsTimeout)
	defer cancel()
	kafka, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return nil, err
	}
	cl, err := kafka.Connect(ctx)
	if err != nil {
		return nil, err
	}
	cl.Close()
	return changelog.OpenDeadLetters(kafka, changelog.NamesFor(c.Kafka.TopicPrefix))
}

// CloseParkedGap closes the gap of a topic's parked records where a decision was made about each of them, without a flush. It returns the ids that it closed.
func CloseParkedGap(ctx context.Context, book *gap.Book, all []*gap.Case, topic, by string) (closed []string, err error) {
	for _, c := range all {
		if c.State() == gap.Open && (c.ID == parkedGap(topic) || strings.HasPrefix(c.ID, parkedGap(topic)+"-")) {
			if err := book.Settle(ctx, c, by, false); err != nil {
				return closed, err
			}
			closed = append(closed, c.ID)
		}
	}
	return closed, nil
}
