//go:build integration

package delivery

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"invalidator/sink"
)

const (
	// ringLag is how long a client may take to see a ring record: cache.ring.lag.
	ringLag = 6 * time.Second
	// mostBehind is how long clients here take at most, so that a busy machine has time of its own.
	mostBehind = ringLag * 3 / 4
	// replayWindow is what a promotion replays: replay.window.
	replayWindow = 15 * time.Second
	// mostLag is by how much a replica lags at most: by less than the window, in which a node that dies has to be missed, too.
	mostLag = replayWindow / 2
)

// ring is a ring record as clients have it.
type ring struct {
	sink.Record
	at       time.Time  // when it was published
	now, old *sink.Ring // old is that of previous; nil where that does not stand
}

func newRing(r sink.Record, at time.Time) *ring {
	out := &ring{Record: r, at: at, now: sink.NewRing(r.Shards)}
	if r.Previous != nil {
		out.old = sink.NewRing(r.Previous.Shards)
	}
	return out
}

// ownersUnder are the nodes where copies of a name lie under a record, primary first, and those under its previous.
func (w *world) ownersUnder(r *ring, name string) (now, old []*node) {
	hash := sink.Hash(name)
	now = w.nodesOf(&r.Shards[r.now.Owner(hash)])
	if r.old != nil {
		old = w.nodesOf(&r.Previous.Shards[r.old.Owner(hash)])
	}
	return now, old
}

// owners are the nodes where copies of a name lie today: primary first.
func (w *world) owners(name string) []*node {
	now, _ := w.ownersUnder(w.rings.newest(), name)
	return now
}

// nodesOf are a shard's: primary first.
func (w *world) nodesOf(s *sink.Shard) []*node {
	nodes := []*node{w.byAddr[s.Primary.Addr]}
	for _, r := range s.Replicas {
		nodes = append(nodes, w.byAddr[r.Addr])
	}
	return nodes
}

// has says whether a record names a node.
func (w *world) has(r *sink.Record, n *node) bool {
	return slices.ContainsFunc(lists(r), func(shards []sink.Shard) bool {
		return slices.ContainsFunc(shards, func(s sink.Shard) bool { return slices.Contains(w.nodesOf(&s), n) })
	})
}

// lists are the record's shards, and those of its previous.
func lists(r *sink.Record) [][]sink.Shard {
	if r.Previous == nil {
		return [][]sink.Shard{r.Shards}
	}
	return [][]sink.Shard{r.Shards, r.Previous.Shards}
}

// shardOf is the id of the shard that has a name.
func (r *ring) shardOf(name string) string { return r.Shards[r.now.Owner(sink.Hash(name))].ID }

// rings are the records that were published.
type rings struct {
	mu   sync.Mutex // guards list
	list []*ring
}

func (r *rings) add(next *ring) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, next)
}

func (r *rings) all() []*ring {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

func (r *rings) newest() *ring {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.list[len(r.list)-1]
}

// client is what an application knows of the ring. It sees each record some time after it was published.
type client struct {
	has   int           // of rings
	delay time.Duration // with which it sees the next
}

// seenBy is the record that a client has.
func (r *rings) seenBy(c *client, rng *rand.Rand) *ring {
	r.mu.Lock()
	defer r.mu.Unlock()
	for next := c.has + 1; next < len(r.list) && time.Since(r.list[next].at) >= c.delay; next++ {
		c.has, c.delay = next, time.Duration(rng.Int64N(int64(mostBehind)))
	}
	return r.list[c.has]
}

// outdated says whether no client may have a record any more: the next one has been there for ringLag.
func (r *rings) outdated(has *ring) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := slices.Index(r.list, has) + 1
	return next < len(r.list) && time.Since(r.list[next].at) >= ringLag
}

// publish has the manager write a record.
func (w *world) publish(r sink.Record, why string) {
	w.t.Helper()
	before, at := w.rings.newest(), time.Now()
	w.p.PublishAs(r)
	w.rings.add(newRing(r, at))
	w.trail.noted(fmt.Sprintf("epoch %d: %s: %s", r.Epoch, why, w.changes(&before.Record, &r)))
}

// changes says in words what a record changes.
func (w *world) changes(was, is *sink.Record) string {
	var said []string
	of := func(shards []sink.Shard, id string) string {
		i := slices.IndexFunc(shards, func(s sink.Shard) bool { return s.ID == id })
		if i < 0 {
			return "nowhere"
		}
		return w.named(&shards[i])
	}
	compare := func(was, is []sink.Shard, where string) {
		for _, s := range is {
			if before, now := of(was, s.ID), w.named(&s); before != now {
				said = append(said, fmt.Sprintf("%s%s from %s to %s", where, s.ID, before, now))
			}
		}
		for _, s := range was {
			if of(is, s.ID) == "nowhere" {
				said = append(said, fmt.Sprintf("%s%s goes", where, s.ID))
			}
		}
	}
	compare(was.Shards, is.Shards, "")
	switch {
	case was.Previous == nil && is.Previous != nil:
		said = append(said, "previous begins")
	case was.Previous != nil && is.Previous == nil:
		said = append(said, "previous ends")
	case is.Previous != nil:
		compare(was.Previous.Shards, is.Previous.Shards, "previously ")
	}
	if len(said) == 0 {
		return "the same"
	}
	return strings.Join(said, "; ")
}

// named are a shard's nodes in words.
func (w *world) named(s *sink.Shard) string {
	var names []string
	for i, n := range w.nodesOf(s) {
		name := strings.TrimPrefix(n.name, "node ")
		if i > 0 && s.Replicas[i-1].Seeding {
			name += " (seeding)"
		}
		names = append(names, name)
	}
	return strings.Join(names, "+")
}

// unseen says whether a node had a name only under records that no worker saw: nothing could be deleted there, and no client has read there since.
func (w *world) unseen(n *node, name string) bool {
	return w.seen != nil && !slices.ContainsFunc(w.seen, func(r *ring) bool {
		now, old := w.ownersUnder(r, name)
		return slices.Contains(now, n) || slices.Contains(old, n)
	})
}

// places says under which epochs a name had which nodes.
func (w *world) places(name string) string {
	var b strings.Builder
	last := ""
	for _, r := range w.rings.all() {
		shard := &r.Shards[r.now.Owner(sink.Hash(name))]
		at := fmt.Sprintf("%s, nodes %s", shard.ID, w.named(shard))
		if r.old != nil {
			shard := &r.Previous.Shards[r.old.Owner(sink.Hash(name))]
			at += fmt.Sprintf("; previously %s, nodes %s", shard.ID, w.named(shard))
		}
		if at != last {
			fmt.Fprintf(&b, "    from epoch %d (%.3f s) on: %s\n", r.Epoch, r.at.Sub(w.trail.began).Seconds(), at)
			last = at
		}
	}
	return b.String()
}
