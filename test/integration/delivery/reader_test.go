//go:build integration

package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"invalidator/test/integration/harness"
)

// reader fills the cache as applications do: it reads one copy of a key, and on a miss the row, stalls, and stores what the row
// rendered. Where it takes a lease it may stall as long as it likes; else it must store within settle of before it read the row. While previous
// stands in the ring record that it has, it asks an old owner before it reads the row, and carries over what that has.
type reader struct {
	w      *world
	name   string
	rng    *rand.Rand
	client client
}

const (
	// leaseTime is longer than any of them stalls: a lease is void by a delete alone.
	leaseTime = time.Hour
	// Of the fills under leases, one of holdEvery is held back for long: until one of mostHeld is let go at random, or the end.
	holdEvery = 15
	mostHeld  = 200
)

// run reads until ctx ends. Its error is a database that cannot be read.
func (r *reader) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.read(r.pick(), r.rng.IntN(2) == 0); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		pause(ctx, time.Duration(r.rng.IntN(15))*time.Millisecond)
	}
	return nil
}

// pick chooses a copy to read, more often one on a node that workers do not reach, and the old owner whom to ask then, if there is one.
func (r *reader) pick() (f fill) {
	f = fill{reader: r.name, ring: r.w.rings.seenBy(&r.client, r.rng)}
	for range 3 {
		f.key = r.w.pick(r.rng)
		names := f.key.names(r.w.hot.copies(f.key.text, r.rng.IntN(4) == 0))
		f.name = names[r.rng.IntN(len(names))]
		now, old := r.w.ownersUnder(f.ring, f.name)
		f.node, f.source = now[r.rng.IntN(len(now))], nil
		if len(old) > 0 {
			if n := old[r.rng.IntN(len(old))]; n != f.node {
				f.source = n
			}
		}
		if f.node.lost.Load() {
			break
		}
	}
	return f
}

// read reads one copy and fills it on a miss.
func (r *reader) read(f fill, leased bool) error {
	f.life = f.node.Life()
	c, err := f.node.take()
	if err != nil {
		r.w.stats.away.Add(1)
		return nil
	}
	hit, err := c.Get(f.name)
	if err == nil && !hit.Found && leased {
		hit, err = c.LeaseFor(f.name, leaseTime)
	}
	f.node.give(c, err)
	switch {
	case err != nil:
		r.w.stats.away.Add(1)
		return nil
	case hit.Found:
		r.w.stats.hits.Add(1)
		return nil
	case leased && !hit.Won:
		r.w.stats.behind.Add(1)
		return nil
	case leased:
		f.lease = hit.CAS
	}
	if err := r.value(&f); err != nil {
		return err
	}
	if leased && r.rng.IntN(holdEvery) == 0 {
		r.w.held.add(f)
		return nil
	}
	if leased {
		stall(r.rng, 3*r.w.settle)
	} else {
		stall(r.rng, r.w.settle*6/10)
	}
	if r.w.fill(f) && f.source != nil {
		r.w.stats.carried.Add(1)
	}
	return nil
}

// value is what the old owner has or, where that has nothing or may not be asked any more, what the row renders.
func (r *reader) value(f *fill) (err error) {
	f.from = time.Now()
	if f.source != nil {
		hit, err := r.w.get(f.source, f.name)
		if err == nil && hit.Found && !r.w.rings.outdated(f.ring) {
			f.value = hit.Value
			return nil
		}
		f.source, f.from = nil, time.Now()
	}
	f.value, err = r.w.render(context.Background(), f.key)
	return err
}

// get reads a copy.
func (w *world) get(n *node, name string) (harness.Hit, error) {
	c, err := n.take()
	if err != nil {
		return harness.Hit{}, err
	}
	hit, err := c.Get(name)
	n.give(c, err)
	return hit, err
}

// stall takes mostly no time, and now and then nearly most.
func stall(rng *rand.Rand, most time.Duration) {
	if rng.IntN(3) > 0 {
		most /= 20
	}
	pause(context.Background(), time.Duration(rng.Int64N(int64(most))))
}

// fill is a value on its way into a copy.
type fill struct {
	reader string
	key    *key
	name   string
	node   *node
	ring   *ring     // by which it was chosen
	source *node     // that had the value; nil: the row
	life   int64     // of the node, when the lease was taken
	from   time.Time // before the value was read
	value  string
	lease  uint64 // 0: plainly
}

// tooLate says whether a plain fill has taken what a reader may, less what a busy machine adds.
func (w *world) tooLate(f fill) bool { return f.lease == 0 && time.Since(f.from) >= w.settle*9/10 }

// fill stores the value. A plain fill that took too long, since it had to wait for the machine or for a node that was frozen, broke the
// contract, not the pipeline: it is noted.
func (w *world) fill(f fill) (stored bool) {
	c, err := f.node.take()
	if err != nil {
		w.stats.away.Add(1)
		return false
	}
	e := event{from: f.from, node: f.node, name: f.name, value: f.value}
	did := "filled"
	if f.source != nil {
		did = "filled with what " + f.source.name + " had"
	}
	switch {
	case w.tooLate(f):
		w.stats.late.Add(1)
		f.node.give(c, nil)
		return false
	case f.lease != 0 && f.node.Life() != f.life:
		w.stats.void.Add(1)
		f.node.give(c, nil)
		return false
	case f.lease != 0:
		stored, err = c.Fill(f.name, f.value, f.lease)
		e.what = f.reader + " " + did + " under a lease"
		if stored {
			w.stats.leased.Add(1)
		} else if err == nil {
			w.stats.void.Add(1)
			e.what = f.reader + " was refused, its lease is void:"
		}
	default:
		err = c.Set(f.name, f.value)
		stored = err == nil
		e.what = f.reader + " " + did
		w.stats.plain.Add(1)
		if w.tooLate(f) {
			w.stats.late.Add(1)
			w.trail.excuse(f)
			e.what += " too late"
		}
	}
	f.node.give(c, err)
	if f.source != nil && w.trail.excused(stale{node: f.source, name: f.name, has: f.value}) {
		w.trail.excuse(f)
	}
	if stored || err != nil {
		w.recent.add(f)
	}
	if err != nil {
		w.stats.unknown.Add(1)
		e.what += fmt.Sprintf(" (no answer: %v)", err)
	}
	e.to = time.Now()
	w.trail.add(e, f.key.text)
	return stored
}

// held are fills under leases that stall for long.
type held struct {
	mu    sync.Mutex // guards fills
	fills []fill
}

// add holds one more, unless there are enough.
func (h *held) add(f fill) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.fills) < mostHeld {
		h.fills = append(h.fills, f)
	}
}

// one takes one out, at random.
func (h *held) one(rng *rand.Rand) (fill, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := len(h.fills)
	if n == 0 {
		return fill{}, false
	}
	i := rng.IntN(n)
	f := h.fills[i]
	h.fills[i] = h.fills[n-1]
	h.fills = h.fills[:n-1]
	return f, true
}

// letGo lets them go one by one, at random, until ctx ends, so that many are held for a minute.
func (w *world) letGo(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(rng.IntN(700))*time.Millisecond)
		w.letOneGo(rng)
	}
}

// letOneGo says whether there was one.
func (w *world) letOneGo(rng *rand.Rand) bool {
	f, ok := w.held.one(rng)
	if !ok {
		return false
	}
	f.reader += ", after long,"
	if w.fill(f) {
		w.stats.heldFills.Add(1)
	} else {
		w.stats.heldVoid.Add(1)
	}
	return true
}
