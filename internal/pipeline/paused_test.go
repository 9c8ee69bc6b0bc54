package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
)

// DELIVERY 9: keys of a paused pool are owed from the first one on, and the watermark passes them; those of other pools are deleted in the moment
// in which they come. When it is resumed a pass deletes them on every copy.
func TestPausedPool(t *testing.T) {
	stormy(t, "{}", func(t *testing.T, r *rig) {
		r.sendRow(0, "", 0)
		r.pass(2 * settle)
		r.w.Hold([]string{"user"})
		r.wantDebts(t) // nothing has come yet
		r.nodes.take()
		for o := int64(1); o < 5; o++ {
			r.sendRow(o, "", 0)
		}
		synctest.Wait()
		if lane := r.nodes.laneOf("n2 mail:3"); lane != "live" {
			t.Errorf("another pool's key is in lane %q", lane)
		}
		r.pass(2 * settle)
		r.wantMark(t, 5)
		if n := r.deleted("n1", 0, 5, 0); n != 5 {
			t.Errorf("%d of 5 were left alone", n)
		}
		r.wantDebts(t, "pool user 1-")
		r.wantCount(t, 4, "deferred_keys_total", "pool", "user")
		r.w.Hold(nil)
		r.pass(gather)
		if lane := r.nodes.laneOf("n2 user:3"); lane != "debts" {
			t.Errorf("lane %q", lane)
		}
		r.sendRow(5, "", 0)
		synctest.Wait()
		if lane := r.nodes.laneOf("n1 user:5"); lane != "live" {
			t.Errorf("lane %q", lane)
		}
		r.pass(2 * settle)
		if a, b := r.deleted("n1", 1, 5, 2), r.deleted("n2", 1, 5, 2); a != 4 || b != 4 {
			t.Errorf("%d and %d of 4 were deleted twice", a, b)
		}
		r.wantDebts(t)
	})
}

// A pause that stood before a restart holds from the first record on; one that ended meanwhile is paid.
func TestPauseSurvivesARestart(t *testing.T) {
	for _, paused := range []bool{true, false} {
		t.Run(fmt.Sprint("still paused: ", paused), func(t *testing.T) {
			stormy(t, "{}", func(t *testing.T, r *rig) {
				r.w.Hold([]string{"user"})
				r.mass(0, 3)
				r.pass(2 * settle)
				k := r.w.Revoke([]changelog.Partition{users})[0]
				kept := k.Keep()
				next := newRigOf(t, stormFile("{}"))
				next.past, next.w.opts.Past = r.past, r.past
				next.keepSet()
				if paused {
					next.w.Hold([]string{"user"})
				}
				next.w.Assign(users, k.Offset, changelog.Restored{State: kept.State, Journal: kept.Journal})
				next.sendRow(3, "", 0)
				next.pass(gather + 2*settle)
				if paused {
					next.wantDebts(t, "pool user 0-")
					if n := next.deleted("n1", 0, 4, 0); n != 4 {
						t.Errorf("%d of 4 were left alone", n)
					}
					next.w.Hold(nil)
					next.pass(gather + 2*settle)
				}
				next.wantDebts(t)
				if n := next.deleted("n1", 0, 4, 2); n != 4 {
					t.Errorf("%d of 4 were deleted twice", n)
				}
			})
		})
	}
}

// A pass that runs when a pool is paused issues no more of its keys; the node is paid with all others, and the pool has the rest.
func TestPauseWhileAPassRuns(t *testing.T) {
	stormy(t, "{}", func(t *testing.T, r *rig) {
		r.past.batch = 1
		r.nodes.turn("n1", false)
		r.mass(0, 100)
		r.pass(3 * settle)
		hold := make(chan struct{})
		r.past.mu.Lock()
		r.past.hold = hold
		r.past.mu.Unlock()
		r.nodes.turn("n1", true)
		r.pass(gather)
		r.w.Hold([]string{"user"})
		r.nodes.take()
		close(hold)
		r.pass(3 * settle)
		r.wantDebts(t, "pool user 0-")
		if n := r.deleted("n1", 0, 100, 0); n != 100 || r.nodes.count("n1 mail:50") != 2 {
			t.Errorf("%d of 100 were left alone", n)
		}
		r.w.Hold(nil)
		r.pass(gather + 2*settle)
		r.wantDebts(t)
		if n := r.deleted("n1", 0, 100, 2); n != 100 {
			t.Errorf("%d of 100 were deleted twice", n)
		}
	})
}

// A pool that is paused again while its pass runs owes the rest, and no less than before.
func TestPauseWhileItsOwnPassRuns(t *testing.T) {
	stormy(t, "{}", func(t *testing.T, r *rig) {
		r.w.Hold([]string{"user"})
		r.mass(0, 10)
		r.past.hold = make(chan struct{})
		r.w.Hold(nil)
		r.pass(gather)
		r.wantDebts(t, "pool user 0-10")
		r.w.Hold([]string{"user"})
		close(r.past.hold)
		r.pass(3 * settle)
		r.wantDebts(t, "pool user 0-")
		if n := r.deleted("n1", 0, 10, 0); n != 10 {
			t.Errorf("%d of 10 were left alone", n)
		}
		r.w.Hold(nil)
		r.pass(gather + 2*settle)
		r.wantDebts(t)
		if n := r.deleted("n1", 0, 10, 2); n != 10 {
			t.Errorf("%d of 10 were deleted twice", n)
		}
	})
}

// A storm of a paused pool waits for it, and so does one that runs when it is paused; resumed, it is paid at its pace, not with the pool's debt.
func TestPauseAndStorm(t *testing.T) {
	for _, first := range []string{"pause", "storm"} {
		t.Run(first+" first", func(t *testing.T) {
			stormy(t, "{rows: 10, pace: 100}", func(t *testing.T, r *rig) {
				r.past.batch = 20
				if first == "pause" {
					r.w.Hold([]string{"user"})
					r.mass(0, 500)
					r.wantDebts(t, "pool user 0-", "storm user 10-500")
				} else {
					r.mass(0, 500)
					r.pass(gather + settle/2)
					r.w.Hold([]string{"user"})
				}
				r.pass(2 * settle)
				r.nodes.take()
				r.pass(time.Minute)
				if got := r.nodes.take(); len(got) > 0 {
					t.Fatalf("deleted %d keys while it is paused", len(got))
				}
				r.w.Hold(nil)
				r.pass(2 * time.Second)
				if n := r.deleted("n1", 10, 500, 0); n < 100 {
					t.Errorf("%d of 490 are left after two seconds at 100 a second", n)
				}
				r.pass(10 * time.Second)
				r.wantDebts(t)
				if n := r.deleted("n1", 10, 500, 0); first == "pause" && n > 0 {
					t.Errorf("%d of 490 are left", n)
				}
			})
		})
	}
}

// A mapping that changes while its pool is paused: what was owed is deleted as the mapping had it then, and as it has it now.
func TestPauseAcrossAReload(t *testing.T) {
	stormy(t, "{}", func(t *testing.T, r *rig) {
		r.w.Hold([]string{"user"})
		r.mass(0, 3)
		r.reload(t, "version: 1\nteam: profiles\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: ['user:v2:{id}']}\n")
		r.sendRow(3, "", 0)
		r.pass(2 * settle)
		r.nodes.take()
		r.w.Hold(nil)
		r.pass(gather + 2*settle)
		got := r.nodes.take()
		for _, key := range []string{"n1 user:0", "n1 user:2", "n1 user:v2:0", "n2 user:v2:3"} {
			if !slices.Contains(got, key) {
				t.Errorf("no %s in %q", key, got)
			}
		}
		r.wantDebts(t)
	})
}

// Retention that overtakes a paused pool is a gap when it is resumed.
func TestRetentionOvertakesAPause(t *testing.T) {
	stormy(t, "{}", func(t *testing.T, r *rig) {
		r.w.Hold([]string{"user"})
		r.mass(0, 10)
		r.past.mu.Lock()
		r.past.start = 6
		r.past.mu.Unlock()
		r.w.Hold(nil)
		r.pass(gather + 2*settle)
		if len(r.gaps.losses) != 1 || r.gaps.losses[0].From != 0 || r.gaps.losses[0].To != 6 {
			t.Errorf("gaps %+v", r.gaps.losses)
		}
		r.wantDebts(t)
	})
}
