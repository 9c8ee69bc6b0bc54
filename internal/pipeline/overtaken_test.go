package pipeline

import (
	"runtime"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A record of the ring comes while a pass takes in what was acknowledged, of rounds that were issued so long ago that the epoch's debt does not look back so far: each of
// them was noted before the partition looked, or is followed by a round under the new record.
func TestRecordThatComesWhileAPassCountsItsRounds(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		for o := range int64(3) {
			r.row(o, "s0")
		}
		r.pass(2 * time.Minute)
		r.ordered(r.replayOf("again"), [2]int64{0, 3})
		r.pass(gather)
		r.nodes.hold("n2", true)
		r.pass(settle) // the last round is under way
		r.pass(time.Minute)
		v := *r.views.View()
		v.Confirmed = time.Now() // the manager has not written yet
		r.views.Store(&v)
		synctest.Wait()
		defer r.holdLog()() // what the epoch's debt has is looked at, and not done
		p, calls, all := r.w.partition(users), 0, make(chan struct{})
		r.w.opts.Observer = func(Round) {
			switch calls++; calls {
			case 1:
				<-all // the others come together
			case 2:
				r.views.Store(viewOf(t, time.Now(), record(7, twoShards), record(8, "s0=n5,n2 s1=n3,n4")))
				for epochs, _ := p.acted.get(); !slices.Contains(epochs, 8); epochs, _ = p.acted.get() {
					runtime.Gosched()
				}
			}
		}
		r.nodes.hold("n2", false)
		close(all)
		r.pass(2 * settle)
		d, _ := p.ledger.of(debtID{KindEpoch, "7-8"})
		for o := range int64(3) {
			if r.nodes.count("n5 "+r.key(o, "s0")) == 0 && !d.has(o) {
				t.Errorf("the change at %d has passed by the new owner", o)
			}
		}
	})
}
