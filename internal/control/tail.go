package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/internal/changelog"
)

// errMadeAgain is a topic that was removed and made again while it was read.
var errMadeAgain = errors.New("the topic was made again while it was read")

// tail reads a topic of one partition, and then what comes. It is for one goroutine.
type tail struct {
	topic string
	since time.Time // it begins with what was appended then; zero: at the topic's start
	log   *changelog.Log
	adm   *kadm.Client

	id    string // the topic's; "" where the broker knows none
	next  int64  // the offset behind what was read
	start int64  // where the log began
	good  bool   // what was handed over is what the topic of this id has below next
}

// look hands over what came since the last one, up to the end that the topic has now. again is told first, where what was handed over before counts for nothing: the
// topic is another, or has lost its end, or the last look failed in the middle. What a look hands over that fails counts for nothing.
func (t *tail) look(ctx context.Context, again func(), each func([]changelog.Record) error) error {
	if err := t.step(ctx, again, each); err != nil {
		return fmt.Errorf("reading topic %s: %w", t.topic, err)
	}
	return nil
}

func (t *tail) step(ctx context.Context, again func(), each func([]changelog.Record) error) error {
	id, err := topicID(ctx, t.adm, t.topic)
	if err != nil {
		return err
	}
	start, end, err := t.bounds(ctx)
	if err != nil {
		return err
	}
	switch {
	case !t.good || t.id != id || t.next > end:
		from, err := t.begin(ctx)
		if err != nil {
			return err
		}
		again()
		t.id, t.next = id, from
	case t.next == end:
		t.start = start
		return nil
	}
	t.good = false
	if err := t.readTo(ctx, max(t.next, start), end, each); err != nil {
		return err
	}
	// By its name another topic may have been read than the one whose id was asked for.
	switch later, err := topicID(ctx, t.adm, t.topic); {
	case err != nil:
		return err
	case later != id:
		return errMadeAgain
	}
	t.next, t.start, t.good = end, start, true
	return nil
}

func (t *tail) readTo(ctx context.Context, from, end int64, each func([]changelog.Record) error) error {
	for from < end {
		err := t.log.Read(ctx, changelog.Partition{Topic: t.topic}, from, end, each)
		var behind *changelog.LogStartError
		if !errors.As(err, &behind) || behind.Start <= from {
			return err
		}
		from = behind.Start // what retention has taken is of no interest any more
	}
	return nil
}

// begin is the offset with which it begins.
func (t *tail) begin(ctx context.Context) (int64, error) {
	if t.since.IsZero() {
		return 0, nil
	}
	at, err := t.adm.ListOffsetsAfterMilli(ctx, max(0, t.since.UnixMilli()), t.topic)
	if err = cmp.Or(err, at.Error()); err != nil {
		return 0, fmt.Errorf("asking where it stood at %s: %w", t.since.Format(time.RFC3339), err)
	}
	return at[t.topic][0].Offset, nil
}

func (t *tail) bounds(ctx context.Context) (start, end int64, err error) {
	ends, err := t.adm.ListEndOffsets(ctx, t.topic)
	if err = cmp.Or(err, ends.Error()); err != nil {
		return 0, 0, fmt.Errorf("asking for its end: %w", err)
	}
	starts, err := t.adm.ListStartOffsets(ctx, t.topic)
	if err = cmp.Or(err, starts.Error()); err != nil {
		return 0, 0, fmt.Errorf("asking for its start: %w", err)
	}
	return starts[t.topic][0].Offset, ends[t.topic][0].Offset, nil
}

// topicID asks a broker for the topic's id; "" where it knows none.
func topicID(ctx context.Context, adm *kadm.Client, topic string) (string, error) {
	ids, err := topicIDs(ctx, adm, topic)
	if err != nil {
		return "", err
	}
	id, there := ids[topic]
	if !there {
		return "", fmt.Errorf("it does not exist (run makes it when it starts): %w", kerr.UnknownTopicOrPartition)
	}
	return id, nil
}

// topicIDs are the ids of those of the topics that exist.
func topicIDs(ctx context.Context, adm *kadm.Client, topics ...string) (map[string]string, error) {
	ids := map[string]string{}
	if len(topics) == 0 { // it would be all
		return ids, nil
	}
	m, err := adm.Metadata(uncached(ctx), topics...)
	if err != nil {
		return nil, fmt.Errorf("asking for topics: %w", err)
	}
	for _, t := range m.Topics {
		switch {
		case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		case t.Err != nil:
			return nil, fmt.Errorf("asking for topic %s: %w", t.Topic, t.Err)
		default:
			ids[t.Topic] = idText(t.ID)
		}
	}
	return ids, nil
}

func idText(id kadm.TopicID) string {
	if id == (kadm.TopicID{}) {
		return ""
	}
	return id.String()
}

// uncached has the admin client ask a broker, rather than answer from what it heard some seconds ago.
func uncached(ctx context.Context) context.Context { return kadm.WithAuthorizedOps(ctx) }
