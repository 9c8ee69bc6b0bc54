package changelog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// eachSecond does something until ctx ends, and tells of each failure.
func (g *Group) eachSecond(ctx context.Context, what string, do func(context.Context) error) {
	t := time.NewTicker(commitEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		if err := do(ctx); err != nil && ctx.Err() == nil {
			g.log.Warn(what+"; tried again in a second", "error", err)
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
	return g.commitInTurn(ctx, g.c.Finished(ps))
}

// recordAll makes the losses of all partitions durable. It is beside the commits, since it may take long, for many losses or a busy broker,
// and other partitions' offsets do not wait for it.
func (g *Group) recordAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lossTimeout)
	defer cancel()
	return g.recordLosses(ctx, g.ours(func(Partition) bool { return true }))
}

// commitInTurn writes journals, then the state records, then the offsets that point to them, and
// removes last what counts for nothing any more. What lies behind a loss that is not durable is left out: see recordAll. The order is the proof: an offset never stands for a state, nor passes a loss, that is
// not yet durable; nothing is removed that the commit of any owner still points to; and the turn, which the caller has,
// keeps the partition ours meanwhile, as far as this process knows. What it does not know (it was stopped for a while) the
// broker does: it refuses the old generation.
func (g *Group) commitInTurn(ctx context.Context, all []Progress) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	_, generation := g.cl.GroupMetadata()
	due := g.due(all, generation)
	if len(due) == 0 {
		return nil
	}
	due, failed := g.putJournals(ctx, due)
	due, err := g.putStates(ctx, due, generation)
	failed = errors.Join(failed, err)
	if len(due) == 0 {
		return failed
	}
	offsets := map[string]map[int32]kgo.EpochOffset{}
	places := map[Partition]string{}
	for _, pr := range due {
		if offsets[pr.Topic] == nil {
			offsets[pr.Topic] = map[int32]kgo.EpochOffset{}
		}
		offsets[pr.Topic][pr.Number] = kgo.EpochOffset{Epoch: pr.epoch, Offset: pr.Offset}
		places[pr.Partition] = pr.place.encode()
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
		taken   []*dueProgress
	)
	g.cl.CommitOffsetsSync(withPlaces, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if err != nil {
			refused = fmt.Errorf("committing offsets: %w", err)
			return
		}
		taken, refused = g.committed(due, resp)
	})
	g.tidy(ctx, taken)
	return errors.Join(failed, refused)
}

// tidy takes off the state topic what counts for nothing any more: states to which no commit points, and records of journals that were
// folded into others. It goes on for a moment after ctx has ended: who leaves just then is the last to know of them.
func (g *Group) tidy(ctx context.Context, taken []*dueProgress) {
	var old []Write
	var of []*papers
	for _, pr := range taken {
		for _, key := range pr.of.papers.committed(pr.place.key(g.opts.Group, pr.Partition)) {
			old, of = append(old, Write{Key: key}), append(of, pr.of.papers)
		}
	}
	if len(old) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
	defer cancel()
	_, errs := g.opts.State.putEach(ctx, old)
	for i, err := range errs {
		if err != nil {
			of[i].old = append(of[i].old, old[i].Key)
		}
	}
	if err := errors.Join(errs...); err != nil {
		g.log.Warn("removing old states and journals; they count for nothing, and are tried again", "error", err)
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
			g.recorded(l)
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

// recorded notes that a loss is durable.
func (g *Group) recorded(l Loss) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o := g.mu.owned[l.Partition]; o != nil && len(o.losses) > 0 && o.losses[0] == l { // else a revoke was quicker
		o.losses = o.losses[1:]
	}
}

// due leaves out what is committed already, and what lies behind a loss that is not durable. A loss comes before its records, so
// that none is missed here of what lies below an offset. The first commit of an owner, or under a generation, is always due: what its
// predecessor wrote is of another key.
func (g *Group) due(all []Progress, generation int32) []*dueProgress {
	g.mu.Lock()
	defer g.mu.Unlock()
	var due []*dueProgress
	for _, pr := range all {
		o := g.mu.owned[pr.Partition]
		if o == nil || pr.Offset < o.committed || len(o.losses) > 0 ||
			pr.Offset == o.committed && o.mine && pr.Version == o.version && generation == o.generation {
			continue
		}
		epoch := o.epochBelow(pr.Offset)
		if epoch < 0 && pr.Offset == o.committed {
			epoch = o.commitAt
		}
		due = append(due, &dueProgress{Progress: pr, of: o, epoch: epoch})
	}
	return due
}

// dueProgress is what is committed, and the ownership under which it was made: a partition may be assigned anew meanwhile.
type dueProgress struct {
	Progress
	of    *ownership
	epoch int32 // of the last record below its offset
	state []byte
	place place
}

// committed notes what the broker took, and returns it, and what was refused.
func (g *Group) committed(due []*dueProgress, resp *kmsg.OffsetCommitResponse) (taken []*dueProgress, refused error) {
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
		taken = append(taken, pr)
		o := pr.of
		o.committed, o.commitAt, o.mine, o.version, o.generation = pr.Offset, pr.epoch, true, pr.Version, pr.place.Generation
	}
	return taken, refused
}

// putJournals takes what the partitions that are due keep, and writes their journals' records. It returns those of which nothing is left
// to write.
func (g *Group) putJournals(ctx context.Context, due []*dueProgress) (whole []*dueProgress, failed error) {
	type record struct {
		*papers
		name string
	}
	var writes []Write
	var records []record
	for _, pr := range due {
		kept := pr.Keep()
		pr.state = kept.State
		pr.of.take(kept)
		for _, name := range pr.of.names() {
			writes = append(writes, Write{journalKey(g.opts.Group, pr.Partition, pr.of.topicID, pr.of.writer, name), pr.of.unwritten[name]})
			records = append(records, record{pr.of.papers, name})
		}
	}
	_, errs := g.opts.State.putEach(ctx, writes)
	for i, err := range errs {
		if err == nil {
			records[i].wrote(records[i].name, writes[i].Key)
		}
	}
	for _, pr := range due {
		if len(pr.of.unwritten) == 0 {
			whole = append(whole, pr)
		}
	}
	if err := errors.Join(errs...); err != nil {
		failed = fmt.Errorf("writing journals; nothing of their partitions is committed before: %w", err)
	}
	return whole, failed
}

// putStates writes the state records of the partitions that are due, all at once, and returns those that are written, with their places.
func (g *Group) putStates(ctx context.Context, due []*dueProgress, generation int32) (whole []*dueProgress, failed error) {
	var writes []Write
	var of []*dueProgress
	for _, pr := range due {
		if len(pr.state) == 0 { // it would be taken off the topic, and the commit point to nothing
			failed = errors.Join(failed, fmt.Errorf("%s has no state", pr.Partition))
			continue
		}
		pr.place = place{V: 1, Generation: generation, Writer: pr.of.writer, TopicID: pr.of.topicID}
		writes, of = append(writes, Write{pr.place.key(g.opts.Group, pr.Partition), pr.state}), append(of, pr)
	}
	locations, errs := g.opts.State.putEach(ctx, writes)
	for i, pr := range of {
		if errs[i] != nil {
			continue
		}
		pr.place.Partition, pr.place.Offset = locations[i].Partition, locations[i].Offset
		whole = append(whole, pr)
	}
	if err := errors.Join(errs...); err != nil {
		failed = errors.Join(failed, fmt.Errorf("writing states; nothing of their partitions is committed before: %w", err))
	}
	return whole, failed
}
