package app

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/owed"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/sink"
)

const (
	// traceJoin is how long a journal may be silent about an offset between two rounds of it, and it is one issue all the same.
	traceJoin = 10 * time.Second
	// traceSlow is from when on a delete is late: the service promises less than that from the commit on.
	traceSlow = time.Second
	// traceTurned is how long before a debt was opened deletes may have been lost already: cache.node.max_lag and a second.
	traceTurned = 3 * time.Second
)

// tracePlaces are the copies of the key, for whoever asks whether something concerns it.
type tracePlaces struct {
	nodes map[string]bool
	wires map[string]bool // the key's texts on the wire
	texts []string        // the key and its hot copies, as clients name them
}

// locate finds the copies under every ring record that is known, the newest first.
func (t *tracer) locate() {
	t.places = tracePlaces{nodes: map[string]bool{}, wires: map[string]bool{}, texts: []string{t.base}}
	for n := 1; n <= max(t.most, t.state.hot); n++ {
		t.places.texts = append(t.places.texts, t.base+"#"+strconv.Itoa(n))
	}
	if t.base != t.q.Key && !slices.Contains(t.places.texts, t.q.Key) {
		t.places.texts = append(t.places.texts, t.q.Key)
	}
	rings := t.state.rings
	if len(rings) == 0 {
		t.unknown("the key's copies: no worker of group %s has written a ring record to the state topic", t.config.Kafka.Group)
		return
	}
	at := map[sink.Copy]int{}
	for i := len(rings) - 1; i >= 0; i-- {
		for _, text := range t.places.texts {
			for _, c := range rings[i].copies(text) {
				copied := sink.Copy{Node: c.Node, Key: c.Key}
				n, met := at[copied]
				if !met {
					n = len(t.out.Copies)
					at[copied] = n
					c.Today = i == len(rings)-1
					c.Key, c.KeyBase64 = strings.ToValidUTF8(c.Key, "\uFFFD"), sink.Base64(c.Key)
					t.out.Copies = append(t.out.Copies, c)
					t.places.nodes[c.Node], t.places.wires[copied.Key] = true, true
				}
				t.out.Copies[n].Epochs = append(t.out.Copies[n].Epochs, rings[i].Epoch)
			}
		}
	}
	newest := rings[len(rings)-1]
	hash, shard := newest.topology.Locate(t.base)
	t.out.Ring = &TraceRing{Epoch: newest.Epoch, Shard: shard, Hash: hash}
}

// copies are those of one text under this record alone, with the raw key.
func (r *traceRing) copies(text string) (all []TraceCopy) {
	_, id := r.topology.Locate(text)
	i := slices.IndexFunc(r.record.Shards, func(s sink.Shard) bool { return s.ID == id })
	shard := &r.record.Shards[i]
	for _, c := range r.topology.AppendCopies(nil, text, 0) {
		role := "previous"
		switch {
		case shard.Primary.Addr == c.Node:
			role = "primary"
		case slices.ContainsFunc(shard.Replicas, func(n sink.Replica) bool { return n.Addr == c.Node }):
			role = "replica"
		}
		all = append(all, TraceCopy{Node: c.Node, Key: c.Key, Role: role})
	}
	return all
}

// judge says of each change what became of it.
func (t *tracer) judge() {
	t.trim()
	t.out.Changes, t.out.Earlier = t.seen, t.left
	debts := map[changelog.Partition]map[owed.Owner]pipeline.Debt{}
	for _, p := range t.parts {
		of, err := t.state.sum.Debts(p.Partition)
		t.state.fails(err)
		debts[p.Partition] = of
		t.stopped(p, of)
		t.older(p)
	}
	if t.out.Changes == nil {
		t.out.Changes = []*TraceChange{}
	}
	bare := map[changelog.Partition]bool{}
	for _, c := range t.out.Changes {
		id := changelog.Partition{Topic: c.Topic, Number: c.Partition}
		p := t.part(id)
		lines := t.state.of(id, p.topicID)
		c.Issued = issuesOf(lines, c.Offset)
		c.Finished = p.known && c.Offset < p.committed
		if !p.known {
			bare[id] = true
		}
		if p.known && !c.Finished {
			c.Behind = c.Offset + 1 - p.committed
		}
		c.Owed = t.owedOf(c, debts[id])
		t.late(c)
		t.replays(c, p.topicID)
		c.State = t.stateOf(c, lines)
	}
	for p := range bare {
		t.unknown("how far the workers are with %s: the group %s has committed nothing there", p, t.out.Group)
	}
}

// issuesOf are the times at which deletes of offsets around one were issued. Of the live path, which takes offsets in their order, the first line
// that has it is the one in which its first round was issued, or owed.
func issuesOf(lines []traceLine, offset int64) []TraceIssue {
	all := []TraceIssue{}
	for i := range lines {
		l := &lines[i]
		for _, s := range l.Lanes {
			if offset < s.Lowest || offset > s.Highest {
				continue
			}
			n := TraceIssue{Lane: s.Lane.String(), From: l.from, To: l.to, Until: l.to, Epoch: l.Epoch, Mappings: l.Mappings, Maybe: !onLivePath(s.Lane)}
			at := slices.IndexFunc(all, func(o TraceIssue) bool {
				return o.Lane == n.Lane && o.Epoch == n.Epoch && o.Mappings == n.Mappings && n.From.Sub(o.Until) <= traceJoin
			})
			if at < 0 {
				all = append(all, n)
			} else if n.Until.After(all[at].Until) {
				all[at].Until = n.Until
			}
		}
	}
	return all
}

func onLivePath(l sink.Lane) bool { return l == sink.Live || l == sink.Backlog }

// first is the first issue on the live path; nil: no line has it.
func (c *TraceChange) first() *TraceIssue {
	for i := range c.Issued {
		if !c.Issued[i].Maybe {
			return &c.Issued[i]
		}
	}
	return nil
}

// when is the commit, or where that is not known the time at which it was written.
func (c *TraceChange) when() time.Time {
	if c.Committed.IsZero() {
		return c.Written
	}
	return c.Committed
}

func byTime(a, b *TraceChange) int {
	return cmp.Or(a.when().Compare(b.when()), a.Written.Compare(b.Written), cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
}

// owedOf are the debts of a partition that cover the change and a copy of the key.
func (t *tracer) owedOf(c *TraceChange, debts map[owed.Owner]pipeline.Debt) (all []TraceOwed) {
	for who, d := range debts {
		if c.Offset < d.From || d.To != nil && c.Offset >= *d.To || !t.owes(who, &d, c) {
			continue
		}
		all = append(all, TraceOwed{Kind: who.Kind, Name: who.Name, Since: d.Since.UTC(), Open: d.To == nil})
	}
	slices.SortFunc(all, func(a, b TraceOwed) int { return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name)) })
	return all
}

// owes reports whether a debt, which has the change's offset between its ends, is about copies of the key.
func (t *tracer) owes(who owed.Owner, d *pipeline.Debt, c *TraceChange) bool {
	in := func(spans [][2]int64) bool {
		return slices.ContainsFunc(spans, func(s [2]int64) bool { return s[0] <= c.Offset && c.Offset < s[1] })
	}
	switch who.Kind {
	case pipeline.KindNode:
		return t.places.nodes[who.Name]
	case pipeline.KindPool, pipeline.KindStorm:
		return who.Name == t.pool || !t.claims && who.Name == mapping.UnclaimedPool
	case pipeline.KindTemplate:
		return slices.ContainsFunc(c.By, func(b TraceTemplate) bool { return b.Team+"/"+b.Mapping == who.Name })
	case pipeline.KindEpoch:
		return in(d.Spans) && t.moved(who.Name)
	case pipeline.KindReplay:
		o := d.Order
		return in(d.Spans) && !o.DryRun && t.meant(o.Target) && (o.Issued || c.Committed.IsZero() || !c.Committed.Before(o.From) && !c.Committed.After(o.To) || in(o.Sent))
	}
	return false
}

// moved reports whether the key has moved between two ring records, named as an epoch's debt is: 7-8.
func (t *tracer) moved(name string) bool {
	var a, b int64
	if _, err := fmt.Sscanf(name, "%d-%d", &a, &b); err != nil {
		return true
	}
	var records []*sink.Record
	for _, r := range t.state.rings {
		if a <= r.Epoch && r.Epoch <= b {
			records = append(records, r.record)
		}
	}
	if len(records) == 0 || records[0].Epoch != a || records[len(records)-1].Epoch != b {
		return true // what was between is not known
	}
	return sink.NewMoves(records).Moved(t.base, len(t.places.texts)-1)
}

// stopped tells of mappings of the pool that cannot render their rows: what they owe gave no key here either.
func (t *tracer) stopped(p *tracePart, debts map[owed.Owner]pipeline.Debt) {
	for _, who := range slices.SortedFunc(maps.Keys(debts), func(a, b owed.Owner) int { return cmp.Compare(a.Name, b.Name) }) {
		if who.Kind != pipeline.KindTemplate || !t.ofPool(who.Name) {
			continue
		}
		t.unknown("which keys mapping %s owes of %s since %s: it cannot render its table as that is now (invalidator mappings check)",
			who.Name, p.Partition, debts[who].Since.UTC().Format(time.DateTime))
	}
}

// ofPool reports whether a mapping gives keys of the pool.
func (t *tracer) ofPool(owner string) bool {
	for _, set := range t.sets.all() {
		for _, m := range set.Templates() {
			if m.Owner() == owner && (m.Pool == t.pool || m.Raw) {
				return true
			}
		}
	}
	return false
}

// older tells where changes from before what was read were issued in the window.
func (t *tracer) older(p *tracePart) {
	for _, l := range t.state.of(p.Partition, p.topicID) {
		if l.to.Before(t.q.Since) || l.from.After(t.until) {
			continue
		}
		for _, s := range l.Lanes {
			if s.Lowest < p.from && s.Lowest >= p.start {
				c := t.before[p.Topic]
				if c == nil {
					c = &tally{first: fmt.Sprintf("%s from offset %d on, in lane %s", p.Partition, s.Lowest, s.Lane)}
					t.before[p.Topic] = c
				}
				c.n++
				return
			}
		}
	}
}

// late notes nodes that were off when the change was issued.
func (t *tracer) late(c *TraceChange) {
	first := c.first()
	if first == nil {
		return
	}
	for _, d := range t.downs {
		still := slices.ContainsFunc(c.Owed, func(o TraceOwed) bool { return o.Kind == pipeline.KindNode && o.Name == d.Node })
		if still || !first.To.After(d.Since.Add(-traceTurned)) || !d.Back.IsZero() && first.From.After(d.Back) {
			continue
		}
		c.Late = append(c.Late, d)
	}
}

// stateOf is what became of a change whose other fields are known, but for Redone, which it fills in.
func (t *tracer) stateOf(c *TraceChange, lines []traceLine) TraceState {
	first := c.first()
	switch {
	case c.State == TraceFlush:
		return TraceFlush
	case !slices.ContainsFunc(c.By, func(b TraceTemplate) bool { return !b.Shadow }):
		return TraceShadow
	case t.parks(c):
		return TraceParks
	case t.missed(c, lines):
		if c.Redone = t.doneAgain(c).UTC(); c.Redone.IsZero() {
			return TraceMissed
		}
		return TraceLater
	case !c.Finished:
		return TraceWaits
	case len(c.Owed) > 0:
		return TraceOwes
	case len(c.Late) > 0, first != nil && first.From.Sub(c.when()) > traceSlow:
		return TraceLater
	}
	return TraceDeleted
}

// doneAgain is when the first replay was done that went over the change under mappings which give the key; zero: none has.
func (t *tracer) doneAgain(c *TraceChange) (first time.Time) {
	for _, id := range c.Replays {
		at, done := t.redone[id]
		gave := slices.ContainsFunc(c.Issued, func(x TraceIssue) bool {
			return x.Maybe && !x.From.After(at) && slices.ContainsFunc(c.By, func(b TraceTemplate) bool { return !b.Shadow && slices.Contains(b.Mappings, x.Mappings) })
		})
		if done && gave && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// missed reports whether the mappings in force when the change was taken gave no such key. Where one of those is not to be had, nobody knows.
func (t *tracer) missed(c *TraceChange, lines []traceLine) bool {
	first := c.first()
	if first == nil {
		return false
	}
	for i := range lines {
		l := &lines[i]
		if !l.from.Equal(first.From) || !slices.ContainsFunc(l.Lanes, func(s pipeline.LaneSpan) bool {
			return onLivePath(s.Lane) && s.Lowest <= c.Offset && c.Offset <= s.Highest
		}) {
			continue
		}
		gave := func(b TraceTemplate) bool { return !b.Shadow && slices.Contains(b.Mappings, l.Mappings) }
		if t.sets.by[l.Mappings] == nil || slices.ContainsFunc(c.By, gave) {
			return false
		}
	}
	return true
}
