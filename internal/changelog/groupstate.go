package changelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (g *Group) commitLoop(ctx context.Context) {
	t := time.NewTicker(commitEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := g.commit(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn("committing offsets; tried again in a second", "error", err)
		}
	}
}

func (g *Group) commit(ctx context.Context) error {
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.turn }()
	ps := g.ours(func(Partition) bool { return true })
	return g.commitInTurn(ctx, ps, g.c.Finished(ps))
}

// commitInTurn makes the losses of ps durable, then writes the state records, then the offsets that point to them. The order is
// the proof: an offset never stands for a state, nor passes a loss, that is not yet durable; and the turn, which the caller has,
// keeps the partition ours meanwhile, as far as this process knows. What it does not know (it was stopped for a while) the
// broker does: it refuses the old generation.
func (g *Group) commitInTurn(ctx context.Context, ps []Partition, all []Progress) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	lost := g.recordLosses(ctx, ps)
	due := g.due(all)
	if len(due) == 0 {
		return lost
	}
	_, generation := g.cl.GroupMetadata()
	places, err := g.putStates(ctx, due, generation)
	if err != nil {
		return errors.Join(lost, err)
	}
	offsets := map[string]map[int32]kgo.EpochOffset{}
	for _, pr := range due {
		if offsets[pr.Topic] == nil {
			offsets[pr.Topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[pr.Topic][pr.Number] = kgo.EpochOffset{Epoch: pr.epoch, Offset: pr.Offset}
	}
	withPlaces := kgo.PreCommitFnContext(ctx, func(req *kmsg.OffsetCommitRequest) error {
		for i := range req.Topics {
			t := &req.Topics[i]
			for j := range t.Partitions {
				place := places[Partition{t.Topic, t.Partitions[j].Partition}]
				t.Partitions[j].Metadata = &place
			}
		}
		return nil
	})
	var (
		refused error
		old     []string
	)
	g.cl.CommitOffsetsSync(withPlaces, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			refused = fmt.Errorf("committing offsets: %w", err)
			return
		}
		old, refused = g.committed(due, generation, resp)
	})
	g.removeStates(ctx, old)
	return errors.Join(lost, refused)
}

// removeStates takes states off the topic to which no commit points any more. It goes on for a moment after ctx has ended: who leaves
// just then is the last to know of them.
func (g *Group) removeStates(ctx context.Context, old []string) {
	if len(old) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	if err := g.opts.State.Remove(ctx, old...); err != nil {
		g.log.Warn("removing states of older generations; they stay, and count for nothing", "error", err)
	}
}

// recordLosses makes losses durable, and keeps those that it could not.
func (g *Group) recordLosses(ctx context.Context, ps []Partition) error {
	var failed error
	for _, p := range ps {
		for _, l := range g.lossesOf(p) {
			if err := g.c.Lost(ctx, l); err != nil {
				failed = errors.Join(failed, fmt.Errorf("recording a loss; nothing of %s is committed before: %w", p, err))
				break
			}
			g.recorded(p)
		}
	}
	return failed
}

func (g *Group) lossesOf(p Partition) []Loss {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.mu.owned[p]; o != nil {
		return o.losses[:len(o.losses):len(o.losses)]
	}
	return nil
}

// recorded notes that a partition's first loss is durable.
func (g *Group) recorded(p Partition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.mu.owned[p]; o != nil {
		o.losses = o.losses[1:]
	}
}

// due leaves out what is committed already, and what lies behind a loss that is not durable. A loss comes before its records, so
// that none is missed here of what lies below an offset.
func (g *Group) due(all []Progress) []dueProgress {
	g.mu.Lock()
	defer g.mu.Unlock()
	var due []dueProgress
	for _, pr := range all {
		if o := g.mu.owned[pr.Partition]; o != nil && pr.Offset > o.committed && len(o.losses) == 0 {
			due = append(due, dueProgress{pr, o, o.epochBelow(pr.Offset)})
		}
	}
	return due
}

// dueProgress is what is committed, and the ownership under which it was made: a partition may be assigned anew meanwhile.
type dueProgress struct {
	Progress
	of    *ownership
	epoch int32 // of the last record below its offset
}

// committed notes what the broker took. It returns the keys of the states to which no commit points any more, and what was refused.
func (g *Group) committed(due []dueProgress, generation int32, resp *kmsg.OffsetCommitResponse) (old []string, refused error) {
	bad := map[Partition]bool{}
	for _, t := range resp.Topics {
		for _, rp := range t.Partitions {
			if err := kerr.ErrorForCode(rp.ErrorCode); err != nil {
				p := Partition{t.Topic, rp.Partition}
				bad[p] = true
				refused = errors.Join(refused, fmt.Errorf("committing the offset of %s: %w", p, err))
			}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, pr := range due {
		if bad[pr.Partition] {
			continue
		}
		if was := pr.of.generation; was != noGeneration && was != generation {
			old = append(old, partitionKey(g.opts.Group, pr.Partition, was))
		}
		pr.of.committed, pr.of.generation = pr.Offset, generation
	}
	return old, refused
}

// partitionKey is the state topic's key of a partition's state. It carries the writer's generation: a compacted topic keeps
// the last write, and a paused old owner writes late.
func partitionKey(group string, p Partition, generation int32) string {
	return StateKey("partition", group, p.Topic, strconv.Itoa(int(p.Number)), strconv.Itoa(int(generation)))
}

// place is the metadata of an offset commit: where on the state topic the partition's state lies, who wrote it, and of which
// topic the commit speaks.
type place struct {
	V          int    `json:"v"` // 1
	Partition  int32  `json:"partition"`
	Offset     int64  `json:"offset"`
	Generation int32  `json:"generation"`         // in the state's key
	TopicID    string `json:"topic_id,omitempty"` // a topic that is made again has another
}

// noGeneration is where no state was written, or it is not known under which generation.
const noGeneration = -1

func (p place) encode() string {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of numbers and a text
	}
	return string(b)
}

// parsePlace reads a commit's metadata. What is not ours says nothing.
func parsePlace(metadata string) place {
	p := place{Generation: noGeneration}
	if json.Unmarshal([]byte(metadata), &p) != nil || p.V != 1 {
		return place{Generation: noGeneration}
	}
	return p
}

// putStates writes the state records of the partitions that are due, all at once, and returns their places as metadata.
func (g *Group) putStates(ctx context.Context, due []dueProgress, generation int32) (map[Partition]string, error) {
	writes := make([]Write, len(due))
	for i, pr := range due {
		writes[i] = Write{partitionKey(g.opts.Group, pr.Partition, generation), pr.Keep().State}
	}
	locations, err := g.opts.State.PutAll(ctx, writes)
	if err != nil {
		return nil, fmt.Errorf("writing the state of %d partitions: %w", len(due), err)
	}
	places := make(map[Partition]string, len(due))
	for i, l := range locations {
		p := due[i].Partition
		places[p] = place{1, l.Partition, l.Offset, generation, due[i].of.topicID}.encode()
	}
	return places, nil
}
