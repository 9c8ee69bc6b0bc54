package pipeline

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
	"invalidator/sink/registry"
)

// hangingFlusher says nothing until ctx ends, as where the broker is away.
type hangingFlusher struct{ asked, gone atomic.Int64 }

func (f *hangingFlusher) Flush(ctx context.Context, _ []int64, _ *registry.View) error {
	f.asked.Add(1)
	<-ctx.Done()
	f.gone.Add(1)
	return ctx.Err()
}

// While nobody takes requests for flushes, changes are deleted as they come, a further record of the ring is acted on, and the partition is let go at once.
func TestFlusherThatHangs(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		f := &hangingFlusher{}
		r.w.opts.RingFlusher = f
		seven, eight, nine := record(7, twoShards), record(8, "s0=n2,n1 s1=n3,n4"), record(9, "s0=n2,n1 s1=n4,n3")
		r.see(t, seven, eight)
		a := r.row(0, "s0")
		r.pass(2 * settle)
		r.wantTimes(t, 2, "n2 "+a)
		r.wantMark(t, 1)
		r.see(t, seven, eight, nine)
		b := r.row(1, "s1")
		r.pass(gather + 2*settle)
		r.wantTimes(t, 2, "n4 "+b)
		r.wantDebts(t)
		if asked, gone := f.asked.Load(), f.gone.Load(); asked != 2 || gone != 1 {
			t.Errorf("asked %d times, %d of them were given up", asked, gone)
		}
		began := time.Now()
		k := r.keeps(r.w.Revoke([]changelog.Partition{users})[0])
		if took := time.Since(began); took > 0 {
			t.Errorf("the revoke took %s", took)
		}
		synctest.Wait()
		if f.gone.Load() != 2 {
			t.Error("it is asked for still")
		}
		if s := stateIn(t, k); len(s.Acted.Epochs) != 1 || s.Issued.Epoch != 9 {
			t.Errorf("acted on %v, issued under %d", s.Acted.Epochs, s.Issued.Epoch)
		}
	})
}
