package pipeline

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
)

// A primary dies with the partition's last owner, and is replaced minutes later, before the next owner has found out that it is off: what the last owner sent
// last is done again on the new primary all the same.
func TestFormerPrimaryThatNobodyHasMissedYet(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		old := r.row(0, "s0")
		r.pass(2 * time.Minute)
		acknowledged := r.row(1, "s0")
		r.pass(3 * settle)
		o, was, offset := r.next(t)
		time.Sleep(5 * time.Minute) // all workers are down
		o.nodes.mu.Lock()
		o.nodes.off["n1"] = true // it answers nobody, and is off when it has not for node.max_lag
		o.nodes.mu.Unlock()
		o.see(t, record(7, twoShards)) // the manager is slow: etcd holds the old record yet
		o.w.Assign(users, offset, was)
		o.pass(time.Second)
		o.see(t, record(7, twoShards), record(8, "s0=n2 s1=n3,n4"))
		o.wantDebts(t, "epoch 7-8 1-2")
		o.pass(gather + 2*settle)
		o.wantTimes(t, 2, "n2 "+acknowledged)
		o.wantTimes(t, 0, "n2 "+old)
		o.wantDebts(t, "node n1 1-")
	})
}

// A primary that dies owes from the lowest offset that was sent in the last replay.window, and be it a storm's of hours ago; a promotion reads none of the hours between.
func TestPromotionDoesNotReadHoursOfAFormerPrimarysDebt(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		for o := range int64(40) {
			r.row(o, "s0")
		}
		r.pass(2 * time.Minute)
		p := r.w.partition(users)
		p.journal.note(time.Now(), r.w.opts.Snapshots.Current(), sink.Storm, 3)
		p.journal.note(time.Now(), r.w.opts.Snapshots.Current(), sink.Storm, 5)
		r.row(40, "s0")
		r.pass(3 * settle)
		r.nodes.turn("n1", false)
		r.wantDebts(t, "node n1 3-")
		for range 5 {
			r.pass(time.Minute)
			r.see(t, record(7, twoShards))
		}
		r.row(41, "s0")
		r.pass(2 * time.Minute)
		r.see(t, record(7, twoShards))
		r.nodes.take()
		r.see(t, record(7, twoShards), record(8, "s0=n2 s1=n3,n4"))
		r.pass(gather + 2*settle)
		if got := r.past.ranges(); !slices.Equal(got, []string{"3-6", "40-42"}) {
			t.Errorf("read %q", got)
		}
		r.wantTimes(t, 2, "n2 "+r.key(3, "s0"), "n2 "+r.key(5, "s0"), "n2 "+r.key(40, "s0"), "n2 "+r.key(41, "s0"))
		r.wantDebts(t, "node n1 3-")
	})
}

// A primary that came back is paid, and dies for good before all of it is: since when it was off counts from the first time, also where the partition came later.
func TestFormerPrimaryThatWasBackForAWhile(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.row(0, "s0")
		r.pass(2 * time.Minute)
		r.row(1, "s0")
		r.pass(20 * time.Second)
		o, was, offset := r.next(t)
		o.nodes.told = o.w.NodeTurned
		o.nodes.turn("n1", false)
		o.pass(time.Minute)
		o.see(t, record(7, twoShards))
		o.w.Assign(users, offset, was) // it went off before the partition came
		release := o.holdLog()
		o.wantDebts(t, "node n1 1-")
		o.nodes.turn("n1", true)
		o.pass(2 * time.Minute)
		o.wantDebts(t, "node n1 1-2") // its pass cannot read
		o.see(t, record(7, twoShards))
		o.see(t, record(7, twoShards), record(8, "s0=n2,n1 s1=n3,n4"))
		o.wantDebts(t, "epoch 7-8 1-2", "node n1 1-2")
		release()
		synctest.Wait()
	})
}
