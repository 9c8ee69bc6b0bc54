//go:build integration

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"invalidator/test/integration/harness"
)

// reader fills the cache as applications do: it reads one copy of a key, and on a miss the row, stalls, and stores what the row
// rendered. Where it takes a lease it may stall as long as it likes; else it must store within settle of before it read.
type reader struct {
	w    *world
	name string
	rng  *rand.Rand
}

// run reads until ctx ends.
func (r *reader) run(ctx context.Context) error {
	for ctx.Err() == nil {
		k := r.w.pick(r.rng)
		names := k.names()
		if err := r.read(k, names[r.rng.IntN(len(names))], r.rng.IntN(2) == 0); err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		pause(ctx, time.Duration(r.rng.IntN(4))*time.Millisecond)
	}
	return nil
}

// read reads one copy and fills it on a miss.
func (r *reader) read(k *key, name string, leased bool) error {
	ring := r.w.ring.Load()
	owners := ring.owners(name)
	node := r.w.nodes[owners[r.rng.IntN(len(owners))]]
	get := node.Get
	if leased {
		get = node.Lease
	}
	hit, err := get(name)
	switch {
	case err != nil:
		return err
	case hit.Found:
		r.w.stats.hits.Add(1)
		return nil
	case leased && !hit.Won:
		r.w.stats.behind.Add(1)
		return nil
	}
	f := fill{reader: r.name, key: k, name: name, node: node, from: time.Now()}
	if leased {
		f.lease = hit.CAS
	}
	if err := r.value(ring, &f); err != nil {
		return err
	}
	r.stall(leased)
	return r.w.fill(f)
}

// value takes the value from the old owner while the ring is resized, or else from the database.
func (r *reader) value(ring *ring, f *fill) (err error) {
	if old := ring.oldOwners(f.name); len(old) > 0 {
		addr := old[r.rng.IntN(len(old))]
		hit, err := r.w.nodes[addr].Get(f.name)
		if err != nil {
			return err
		}
		if hit.Found && ring.carry && addr != f.node.Addr {
			f.value, f.carried = hit.Value, addr
			return nil
		}
	}
	f.value, err = f.key.render(context.Background())
	return err
}

// stall takes mostly no time, and now and then nearly all that the contract allows; under a lease much more.
func (r *reader) stall(leased bool) {
	most := r.w.settle * 6 / 10
	if leased {
		most = 5 * r.w.settle / 2
	}
	if r.rng.IntN(3) > 0 {
		most /= 20
	}
	pause(context.Background(), time.Duration(r.rng.Int64N(int64(most))))
}

// fill is a value on its way into a copy.
type fill struct {
	reader  string
	key     *key
	name    string
	node    *harness.Node
	from    time.Time // before the row, or the old copy, was read
	value   string
	lease   uint64 // 0: plainly
	carried string // the node that the value comes from
}

// margin is what a plain reader keeps of settle: a commit may show a little after its delete.
func (w *world) margin() time.Duration { return w.settle / 10 }

// fill stores the value. A plain fill that took too long, since this process had to wait for the machine, is taken back: it broke the
// contract, not the pipeline.
func (w *world) fill(f fill) error {
	e := event{from: f.from, node: f.node.Addr, name: f.name, value: f.value, carried: f.carried}
	var err error
	switch {
	case f.lease != 0:
		var held bool
		held, err = f.node.Fill(f.name, f.value, f.lease)
		e.what = f.reader + " filled under a lease"
		if held {
			w.stats.leased.Add(1)
		} else {
			w.stats.refused.Add(1)
			e.what = f.reader + " was refused, its lease is void:"
		}
	case time.Since(f.from) >= w.settle-w.margin():
		w.stats.late.Add(1)
		return nil
	default:
		stored := time.Now()
		err = f.node.Set(f.name, f.value)
		e.what = f.reader + " filled"
		if err == nil && time.Since(f.from) >= w.settle-w.margin() {
			err = f.node.Delete(f.name)
			e.what, e.from, e.late = f.reader+" filled too late and took back", stored, true
			w.stats.late.Add(1)
		} else {
			w.stats.plain.Add(1)
		}
	}
	if f.carried != "" {
		w.stats.carried.Add(1)
		e.what += " what it found on " + f.carried
	}
	e.to = time.Now()
	w.trail.add(e, f.key.text)
	return err
}
