package flush

import (
	"context"
	"iter"
	"time"
)

// delete deletes what the dump has shown, part by part.
func (v *visit) delete(ctx context.Context) error {
	found := v.term.found
	for part := range found.numbers() {
		if err := v.deletePart(ctx, part); err != nil {
			return err
		}
	}
	v.p.next, v.p.pause, v.p.why = found.upto+1, 0, ""
	v.p.done = v.p.next.part() >= v.j.Parts
	return nil
}

// deletePart deletes a part, or the beginning of one of which the rest found no room, once the load allows it. Parts are done in order, so that one in which nothing is need not be
// told, but for a node's last one.
func (v *visit) deletePart(ctx context.Context, part int) error {
	r, found, last := v.j.run, v.term.found, part == v.j.Parts-1
	whole := found.whole(part)
	var done tally
	if !v.sure {
		found.keep(part, func(wire []byte) bool { return v.s.has(v.node, wire) })
	}
	n := found.count(part)
	if n > 0 {
		if err := v.awaitLoad(ctx, n); err != nil {
			return err
		}
		var err error
		if done, err = v.deleteFound(ctx, part); err != nil {
			return err
		}
		r.parts++
		v.parts++
		r.ended = time.Now()
	}
	if whole && last { // the node's last dump
		done.kept += v.kept
	}
	v.metrics.keys.WithLabelValues(keysKept).Add(float64(done.kept))
	r.add(done)
	if !whole || n == 0 && !last {
		return nil
	}
	v.p.next = firstOf(part + 1)
	return v.tellPart(ctx, part, done, true)
}

// deleteFound deletes what was found of a part. A key that has another CAS value then was filled since; where the node has moved items since its mark, it may just have been
// moved, as a node does whose pages the deletes themselves have emptied. Of none of these it is known, so that all of them are deleted, whatever they have.
func (v *visit) deleteFound(ctx context.Context, part int) (done tally, err error) {
	found := v.term.found
	done, changed, err := v.send(ctx, part, found.count(part), found.each(part))
	if err != nil {
		return tally{}, err
	}
	switch moved, err := v.same(ctx); {
	case err != nil:
		return tally{}, err
	case !moved || done.kept == 0:
		return done, nil
	case done.kept > int64(len(changed)): // they were too many to be remembered
		return tally{}, errMoved
	}
	again, _, err := v.send(ctx, part, len(changed), plain(changed))
	if err == nil {
		_, err = v.same(ctx)
	}
	if err != nil {
		return tally{}, err
	}
	done.kept = 0
	return done.plus(again), nil
}

// plain are keys that are deleted whatever their CAS value is.
func plain(keys []string) iter.Seq[candidate] {
	return func(yield func(candidate) bool) {
		for _, key := range keys {
			if !yield(candidate{wire: []byte(key)}) {
				return
			}
		}
	}
}
