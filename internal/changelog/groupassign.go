package changelog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetched is called with the group's commits before adjust: it keeps what their metadata say.
func (g *Group) fetched(_ context.Context, _ *kgo.Client, resp *kmsg.OffsetFetchResponse) error {
	g.places = map[Partition]place{}
	for _, group := range resp.Groups {
		for _, t := range group.Topics {
			name := t.Topic
			if name == "" { // the broker was asked by the topic's id
				name = kadm.TopicID(t.TopicID).String()
			}
			for _, p := range t.Partitions {
				if p.Metadata != nil {
					g.places[Partition{name, p.Partition}] = parsePlace(*p.Metadata)
				}
			}
		}
	}
	return nil
}

// placeOf is what the metadata of a partition's commit say.
func (g *Group) placeOf(p Partition, topicID string) place {
	if pl, ok := g.places[p]; ok {
		return pl
	}
	if pl, ok := g.places[Partition{topicID, p.Number}]; ok {
		return pl
	}
	return place{Generation: noGeneration}
}

// adjust is called with every newly assigned partition and its committed offset (none: a relative start). It decides where
// each starts, and holds it back until what its last owner left has been read. After an error, or where the group was rebalanced
// meanwhile, it is called again for the same partitions.
func (g *Group) adjust(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
	<-g.ready
	var work []int32
	for n := range offsets[g.opts.Names.Work] {
		offsets[g.opts.Names.Work][n] = kgo.NewOffset().At(0) // it is paused
		work = append(work, n)
	}
	changes := maps.Clone(offsets)
	delete(changes, g.opts.Names.Work)
	logs, err := g.askLogs(ctx, changes)
	if err != nil {
		return nil, err
	}
	came := map[Partition]*waiting{}
	for t, ps := range changes {
		for n, off := range ps {
			p, id := Partition{t, n}, logs.ids[t]
			was, commit := g.placeOf(p, id), off.EpochOffset()
			w := &waiting{start: -1, bare: commit.Offset < 0, own: &ownership{committed: commit.Offset, commitAt: commit.Epoch, topicID: id}}
			came[p] = w
			remade := was.TopicID != "" && id != "" && was.TopicID != id
			if !remade {
				w.state = was.key(g.opts.Group, p)
				w.unsaid = w.state == "" && !w.bare
			}
			s, ok1 := logs.starts.Lookup(t, n)
			e, ok2 := logs.ends.Lookup(t, n)
			if !ok1 || !ok2 || s.Err != nil || e.Err != nil {
				// It is alone with its trouble. The commit stands, and the first records tell whether it was right.
				g.log.Warn("asking where a log starts and ends; its first records will tell", "partition", p.String(), "error", errors.Join(s.Err, e.Err))
				w.at = max(commit.Offset, 0)
				continue
			}
			w.start = s.Offset
			at, loss := startOf(p, commit.Offset, s.Offset, e.Offset, remade)
			if w.at = at; loss != nil {
				w.own.losses = []Loss{*loss}
			}
			if at != commit.Offset || loss != nil {
				ps[n], w.own.committed, w.own.commitAt = kgo.NewOffset().At(at), nothingCommitted, -1
			} // else it keeps the commit's epoch, and the client asks the leader whether it has what was committed
		}
	}
	select {
	case g.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	g.claim(work, true)
	<-g.turn
	g.holdBack(came)
	g.restore(ctx, came)
	return offsets, ctx.Err()
}

// logs is what brokers say of some topics.
type logs struct {
	starts, ends kadm.ListedOffsets
	ids          map[string]string
}

// askLogs asks for the topics of offsets. A broker that does not answer leaves its partitions out.
func (g *Group) askLogs(ctx context.Context, offsets map[string]map[int32]kgo.Offset) (logs, error) {
	topics := make([]string, 0, len(offsets))
	for t := range offsets {
		topics = append(topics, t)
	}
	l := logs{ids: map[string]string{}}
	if len(topics) == 0 { // it would be all
		return l, nil
	}
	var some *kadm.ShardErrors
	var err error
	if l.starts, err = g.adm.ListStartOffsets(ctx, topics...); err != nil && !errors.As(err, &some) {
		return l, fmt.Errorf("asking where the log starts: %w", err)
	}
	if l.ends, err = g.adm.ListEndOffsets(ctx, topics...); err != nil && !errors.As(err, &some) {
		return l, fmt.Errorf("asking where the log ends: %w", err)
	}
	m, err := g.adm.Metadata(uncached(ctx), topics...)
	if err != nil {
		return l, fmt.Errorf("asking for topics: %w", err)
	}
	for _, t := range m.Topics {
		if t.ID != (kadm.TopicID{}) {
			l.ids[t.Topic] = t.ID.String()
		}
	}
	return l, ctx.Err()
}

// startOf is where a partition starts, and what is lost before it. Never the end: a group that comes back too late goes on at
// the earliest record that is left.
func startOf(p Partition, committed, start, end int64, remade bool) (int64, *Loss) {
	switch {
	case committed >= 0 && remade:
		return start, &Loss{p, -1, start, fmt.Sprintf("the group had committed offset %d of a topic that was removed and made again", committed)}
	case committed >= 0 && committed < start:
		return start, &Loss{p, committed, start, "the group was away for longer than the topic keeps records"}
	case committed > end:
		return start, &Loss{p, -1, start, fmt.Sprintf("the group had committed offset %d, and the log ends at %d: the topic was made again, or lost its end", committed, end)}
	case committed >= 0:
		return committed, nil
	}
	return start, nil // appeared while the fleet ran: from its beginning; or it is known, which is found later
}

// assign makes a partition ours from an offset on, whatever it was before.
func (g *Group) assign(p Partition, at int64, o *ownership, was Restored) {
	o.next = at
	g.mu.Lock()
	if old := g.mu.owned[p]; old != nil {
		o.losses = append(old.losses, o.losses...)
	}
	g.mu.owned[p] = o
	g.mu.Unlock()
	g.c.Assign(p, at, was)
	g.Resume(p) // not before: records would come to nobody. The client keeps a pause for ever, also beyond a revoke
}

// revoke gives partitions up. Without commit, somebody else owns them already.
func (g *Group) revoke(ctx context.Context, m map[string][]int32, commit bool) {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	g.claim(m[g.opts.Names.Work], false)
	moved := func(p Partition) bool { return slices.Contains(m[p.Topic], p.Number) }
	g.letGo(moved)
	ps := g.ours(moved)
	if len(ps) == 0 {
		return
	}
	progress := g.c.Revoke(ps)
	if !commit {
		progress = nil
	}
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	lost := g.recordLosses(ctx, ps)
	if err := errors.Join(lost, g.commitInTurn(ctx, progress)); err != nil {
		g.log.Warn("committing before a partition moves; its new owner repeats a little", "error", err)
	}
	g.giveUp(ps)
}

// meetAgain lets go of topics and so makes the client meet them as new ones: it would not read a topic that was made again, nor
// a partition whose commit could not be fetched. Nothing is committed: an offset of an old log would pass records of the new.
func (g *Group) meetAgain(topics []string) {
	if len(topics) == 0 {
		return
	}
	slices.Sort(topics)
	topics = slices.Compact(topics)
	g.turn <- struct{}{}
	those := func(p Partition) bool { return slices.Contains(topics, p.Topic) }
	g.letGo(those)
	ps := g.ours(those)
	g.c.Revoke(ps)
	g.giveUp(ps)
	<-g.turn
	g.log.Warn("topics are met anew", "topics", topics)
	g.cl.PurgeTopicsFromConsuming(topics...)
}

// isOurs also says so of a partition that has not begun.
func (g *Group) isOurs(p Partition) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.owned[p] != nil || g.mu.waiting[p] != nil
}

func (g *Group) ours(which func(Partition) bool) []Partition {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ps []Partition
	for p := range g.mu.owned {
		if which(p) {
			ps = append(ps, p)
		}
	}
	return ps
}

func (g *Group) giveUp(ps []Partition) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range ps {
		delete(g.mu.owned, p)
	}
}
