package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
)

// previous begins, and ends: all keys are done again, in three rounds.
func TestResizeIsReplayed(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		a, b := r.row(0, "s0"), r.row(1, "s1")
		r.pass(3 * settle)
		r.nodes.take()
		grown := resizing(record(8, twoShards+" s2=n5"), 7, twoShards)
		r.see(t, record(7, twoShards), grown)
		r.pass(gather + 3*settle)
		for _, copied := range []string{"n1 " + a, "n2 " + a, "n3 " + b, "n4 " + b} {
			r.wantTimes(t, 3, copied)
		}
		r.wantDebts(t)
		r.nodes.take()
		r.see(t, record(7, twoShards), grown, record(9, twoShards+" s2=n5"))
		r.pass(gather + 3*settle)
		if n := r.nodes.count("n1 " + a); n < 2 {
			t.Errorf("%d deletes when previous ended", n)
		}
		r.wantDebts(t)
	})
}

// What was issued lately of hours ago, by a storm's pass say, is done again, and nothing of what lies between is read.
func TestWindowDoesNotReadHoursOfAStorm(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		for o := range int64(40) {
			r.row(o, "s0")
		}
		r.pass(2 * time.Minute)
		r.see(t, record(7, twoShards))
		p := r.w.partition(users)
		p.journal.note(time.Now(), r.w.opts.Snapshots.Current(), sink.Storm, 3)
		p.journal.note(time.Now(), r.w.opts.Snapshots.Current(), sink.Storm, 5)
		r.row(40, "s0")
		r.pass(3 * settle)
		r.nodes.take()
		r.see(t, record(7, twoShards), record(8, "s0=n2,n1 s1=n3,n4"))
		r.pass(gather + 2*settle)
		if got := r.past.ranges(); !slices.Equal(got, []string{"3-6", "40-41"}) {
			t.Errorf("read %q", got)
		}
		r.wantTimes(t, 2, "n2 "+r.key(4, "s0"), "n2 "+r.key(40, "s0"))
		r.wantTimes(t, 0, "n2 "+r.key(2, "s0"), "n2 "+r.key(6, "s0"))
	})
}

// A promotion waits for no other debt: neither for a node's of hours, nor for what an earlier record of the ring made necessary.
func TestPromotionWaitsForNobody(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		for i := range maxReading { // debts that hold all slots of theirs
			if err := r.w.slots.take(t.Context(), i > 0); err != nil {
				t.Fatal(err)
			}
		}
		for range 6 {
			r.row(r.w.partition(users).taken.Load(), "s0")
			synctest.Wait()
		}
		r.pass(3 * settle)
		r.nodes.take()
		p := r.w.partition(users)
		release := r.holdLog()
		p.ledger.openAgain(debtID{KindEpoch, "5-6"}, spans{{0, 1}, {2, 3}}, nil, r.w.opts.Snapshots.Current()) // it reads, and cannot
		rouse(p.wake)
		r.pass(gather)
		if got := r.past.ranges(); !slices.Equal(got, []string{"0-1"}) {
			t.Fatalf("read %q", got)
		}
		far := int64(10 * nearby)
		p.ledger.openAgain(debtID{KindEpoch, "7-8"}, spans{{far, far + 2}}, nil, r.w.opts.Snapshots.Current())
		rouse(p.wake)
		r.pass(gather)
		if got := r.past.ranges(); !slices.Equal(got, []string{"0-1", fmt.Sprintf("%d-%d", far, far+2)}) {
			t.Fatalf("read %q", got)
		}
		release()
		r.pass(2 * settle)
		r.wantDebts(t)
	})
}

// latest takes debts together that begin near to each other.
func TestEpochsThatBeginNearEachOther(t *testing.T) {
	ds := func(froms ...int64) (ds []debt) {
		for _, from := range froms {
			ds = append(ds, debt{from: from})
		}
		return ds
	}
	for _, c := range []struct{ of, want []debt }{
		{nil, nil},
		{ds(5), ds(5)},
		{ds(0, nearby), ds(0, nearby)},
		{ds(0, nearby+1, 7), ds(nearby+1, 7)},
	} {
		if got := latest(c.of); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("got %v", got)
		}
	}
}

// The same in a pass, whose offsets the epoch's debt may not have: it notes them just as it issues them.
func TestRoundOfAPassThatIsUnderWay(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		key := r.row(0, "s0")
		r.pass(2 * time.Minute)
		r.ordered(r.replayOf("again"), [2]int64{0, 1})
		r.pass(gather)
		r.nodes.hold("n2", true)
		r.pass(settle)
		r.nodes.take()
		defer r.holdLog()()
		r.see(t, record(7, twoShards), record(8, "s0=n5,n2 s1=n3,n4"))
		r.nodes.hold("n2", false)
		r.pass(2 * settle)
		r.wantTimes(t, 1, "n5 "+key)
		for _, d := range r.state(t).Debts {
			if d.Kind == KindReplay {
				t.Errorf("it is not paid: %+v", d)
			}
		}
	})
}

// A pool that is paused owes its keys also across a change of the ring: they are left to it, and go to the new owners when it is resumed.
func TestPausedPoolAcrossAnEpoch(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		before := r.row(0, "s0")
		r.pass(3 * settle)
		r.w.Hold([]string{"user"})
		during := r.row(1, "s0")
		r.pass(settle)
		r.nodes.take()
		r.see(t, record(7, twoShards), record(8, "s0=n5,n2 s1=n3,n4"))
		r.pass(time.Minute)
		r.wantTimes(t, 0, "n5 "+before, "n5 "+during)
		r.wantDebts(t, "pool user 0-")
		r.wantEpochs(t, 7, 8)
		r.w.Hold(nil)
		r.pass(gather + 2*settle)
		r.wantTimes(t, 2, "n5 "+before, "n5 "+during, "n2 "+before)
		r.wantDebts(t)
	})
}

// What an epoch moved and the log no longer holds is a gap, one for all of its spans.
func TestEpochOlderThanTheLog(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		for o := range int64(6) {
			r.row(o, "s0")
		}
		r.pass(3 * settle)
		p := r.w.partition(users)
		r.past.start = 5
		p.ledger.openAgain(debtID{KindEpoch, "6-7"}, spans{{0, 1}, {3, 4}, {5, 6}}, nil, r.w.opts.Snapshots.Current())
		rouse(p.wake)
		r.pass(gather + 2*settle)
		r.wantDebts(t)
		if len(r.gaps.losses) != 1 || r.gaps.losses[0].From != 0 || r.gaps.losses[0].To != 5 {
			t.Errorf("gaps %+v", r.gaps.losses)
		}
	})
}

// REPLAY 7.5: what was issued under another set of mappings is done again under that one too.
func TestEpochUnderTheSetsOfItsTime(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		key := r.row(0, "s0")
		r.pass(3 * settle)
		r.reload(t, "version: 1\nteam: profiles\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: [\"user:{id}:v2\"]}\n")
		r.nodes.take()
		r.see(t, record(7, twoShards), record(8, "s0=n5,n2 s1=n6,n4"))
		r.pass(gather + 2*settle)
		r.wantTimes(t, 2, "n5 "+key)
		if a, b := r.nodes.count("n5 "+key+":v2"), r.nodes.count("n6 "+key+":v2"); a+b != 2 {
			t.Errorf("%d deletes under the set of today", a+b)
		}
	})
}
