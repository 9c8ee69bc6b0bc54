package pipeline

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
)

// DELIVERY 5: one round is enough for what is old on the live path, unless somebody carries values from copy to copy.
func TestLateChangeGetsOneRound(t *testing.T) {
	stands := func(r *rig, t *testing.T) {
		r.views.Store(view(t, strings.Replace(plainRing, `"shards":[{"id":"s0"`, `"previous":{"epoch":6,"shards":[{"id":"s9","weight":1,"primary":{"addr":"n1:1"},"replicas":[]}]},"shards":[{"id":"s0"`, 1), nil))
	}
	long := settle + lateBy + time.Second
	for name, c := range map[string]struct {
		committed, appended time.Duration // ago
		carry               func(*rig, *testing.T)
		rounds              int
	}{
		"old":                   {long, long, nil, 1},
		"its commit is young":   {settle, long, nil, 2},
		"its record is young":   {long, settle, nil, 2},
		"clocks may differ":     {long - 2*time.Second, long, nil, 2},
		"previous stands":       {long, long, stands, 3},
		"previous stood lately": {long, long, func(r *rig, t *testing.T) { carried(r, t, time.Second) }, 3},
		"a replica is seeding": {long, long, func(r *rig, t *testing.T) {
			r.views.Store(view(t, strings.Replace(plainRing, `"zone":"b"`, `"zone":"b","seeding":true`, 1), nil))
		}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			deliver(t, func(t *testing.T, r *rig) {
				if c.carry != nil {
					c.carry(r, t)
				}
				u := update("1", "a@x.test", "a@x.test")
				u.CommitTime = time.Now().Add(-c.committed)
				r.sendAt(0, u, time.Now().Add(-c.appended))
				r.pass(4 * settle)
				r.wantMark(t, 1)
				if n := r.nodes.count("n1 user:1"); n != c.rounds {
					t.Errorf("%d rounds, want %d", n, c.rounds)
				}
				want := float64(0)
				if c.rounds == 1 {
					want = 1
				}
				r.wantCount(t, want, "late_rounds_total")
			})
		})
	}
}

// DELIVERY 5: who carried values when the round was issued may do so for the time that clients take; that it is over when the last copy
// answers is not enough.
func TestLateChangeWhileCarryingEnds(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		carried(r, t, settle/2)
		r.nodes.hold("n2", true)
		u := update("1", "a@x.test", "a@x.test")
		u.CommitTime = time.Now().Add(-time.Hour)
		r.sendAt(0, u, u.CommitTime)
		r.pass(2 * settle)
		r.nodes.hold("n2", false)
		r.pass(4 * settle)
		if n := r.nodes.count("n1 user:1"); n != 3 {
			t.Errorf("%d rounds, want 3", n)
		}
	})
}

// carried has clients carry values until ago before settle is over.
func carried(r *rig, t *testing.T, ago time.Duration) {
	v := view(t, plainRing, nil)
	v.Carried = time.Now().Add(ago - settle)
	r.views.Store(v)
}

// A record that is old when it is taken may wait for room at its nodes: a backlog is read faster than they delete.
func TestBacklogHasItsLane(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.sendAt(0, update("0", "a@x.test", "a@x.test"), time.Now().Add(-defaultMaxLag-time.Millisecond))
		r.sendAt(1, update("1", "a@x.test", "a@x.test"), time.Now().Add(-defaultMaxLag))
		synctest.Wait()
		if a, b := r.nodes.laneOf("n1 user:0"), r.nodes.laneOf("n1 user:1"); a != "backlog" || b != "live" {
			t.Errorf("lanes %q and %q", a, b)
		}
	})
}

// A worker's partitions share the room for changes in flight. Who finds none goes on when there is some again.
func TestWorkersChangesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.flight = newBudget(10)
		other := changelog.Partition{Topic: users.Topic, Number: 1}
		r.w.Assign(users, 0, changelog.Restored{})
		r.w.Assign(other, 0, changelog.Restored{})
		r.nodes.hold("n1", true)
		for i := range int64(8) {
			r.change(i)
		}
		synctest.Wait()
		var rs []changelog.Record
		for i := range int64(8) {
			r := r.past.records[i]
			r.Offset = i
			rs = append(rs, r)
		}
		r.w.Records(other, rs)
		r.pass(time.Second)
		if free := r.w.flight.left(); free != 0 {
			t.Errorf("%d free, want none", free)
		}
		r.nodes.hold("n1", false)
		r.pass(10 * settle)
		for _, p := range []changelog.Partition{users, other} {
			if got := r.w.Finished([]changelog.Partition{p})[0].Offset; got != 8 {
				t.Errorf("%s is at %d", p, got)
			}
		}
		if free := r.w.flight.left(); free != 10 {
			t.Errorf("%d free, want all", free)
		}
	})
}
