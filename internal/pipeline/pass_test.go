package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/avro"

	"invalidator/internal/changelog"
	"invalidator/mapping"
)

// owing has n1 miss these changes, and gives a pass a hold on the log. n1 is back, and its debt closed, when it returns.
func (r *rig) owing(t *testing.T, changes ...int64) (release func()) {
	t.Helper()
	r.nodes.turn("n1", false)
	r.change(changes...)
	r.pass(3 * settle)
	hold := make(chan struct{})
	r.past.mu.Lock()
	r.past.hold = hold
	r.past.mu.Unlock()
	r.nodes.turn("n1", true)
	r.pass(gather)
	r.nodes.take()
	return func() { close(hold); synctest.Wait() }
}

func (l *fakeLog) ranges() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.reads)
}

// DELIVERY 6.1: a pass reads from the least from to the greatest to, also above the watermark; what is closed later is another's.
func TestPassReadsWhatIsOwed(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0, 1, 2)
		r.pass(3 * settle)
		r.nodes.hold("n1", true)
		r.change(3) // the watermark stays here
		synctest.Wait()
		r.nodes.turn("n2", false)
		r.change(4)
		synctest.Wait()
		r.nodes.turn("n2", true)
		synctest.Wait()
		r.wantMark(t, 3)
		r.pass(gather)
		if got := r.past.ranges(); !slices.Equal(got, []string{"0-5"}) { // a replica: all that is in the window
			t.Errorf("read %q", got)
		}
		r.nodes.hold("n1", false)
		r.pass(3 * settle)
		r.wantDebts(t)
		r.wantMark(t, 5)
	})
}

// DELIVERY 6.2: a pass issues the keys under today's mappings and under those that were in force when an offset was issued, by the journal:
// also by the next owner's, which has the old set from the archive. While that is away the pass waits; a set that nobody has is a gap.
func TestPassMapsUnderTheSetsOfItsTime(t *testing.T) {
	for _, next := range []string{"same owner", "next owner", "the set is gone"} {
		t.Run(next, func(t *testing.T) {
			deliver(t, func(t *testing.T, r *rig) {
				old := r.w.opts.Snapshots.Current().Mapper
				r.nodes.turn("n1", false)
				r.change(0)
				r.pass(3 * settle)
				k := r.w.Revoke([]changelog.Partition{users})[0].Keep()
				o := r
				if next != "same owner" {
					o = newRig(t)
					o.past, o.w.opts.Past = r.past, r.past
					o.nodes.turn("n1", false)
				}
				o.archive.fail = 3
				if next != "the set is gone" {
					o.archive.sets[old.Fingerprint()] = old
				}
				o.w.opts.Snapshots.SetMapper(setOf(t, "version: 1\nteam: profiles\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: [\"user:{id}:v2\"]}\n"))
				o.w.Assign(users, 1, changelog.Restored{State: k.State, Journal: k.Journal})
				o.change(1)
				synctest.Wait()
				o.nodes.turn("n1", true)
				o.pass(time.Minute)
				want := 2
				if next == "the set is gone" {
					want = 0
				}
				o.wantTimes(t, 2, "n1 user:0:v2", "n2 user:0:v2")
				o.wantTimes(t, want, "n1 user:0", "n1 user:by-email:a@x.test")
				if gaps := len(o.gaps.losses); (gaps == 1) != (want == 0) {
					t.Errorf("gaps %+v", o.gaps.losses)
				}
				o.wantTimes(t, 0, "n1 user:1") // it was never issued under the old set
				o.wantDebts(t)
			})
		})
	}
}

// A set that nobody has is one gap, however often a pass is tried again and whoever owes: each may be a flush of its pools.
func TestASetThatIsGoneIsOneGap(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		r.change(0, 1)
		r.pass(3 * settle)
		r.w.opts.Snapshots.SetMapper(setOf(t, "version: 1\nteam: profiles\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: [\"user:{id}:v2\"]}\n"))
		r.past.fail = 5
		for range 3 {
			r.nodes.turn("n1", true)
			r.pass(time.Minute)
			r.nodes.turn("n1", false)
			r.change(0, 1) // the offset went back: it is owed again
			r.pass(time.Second)
		}
		r.nodes.turn("n1", true)
		r.pass(time.Minute)
		r.wantDebts(t)
		if len(r.gaps.losses) != 1 || r.gaps.losses[0].From != 0 || r.gaps.losses[0].To != 2 {
			t.Errorf("gaps %+v", r.gaps.losses)
		}
	})
}

func setOf(t *testing.T, file string) *mapping.Set {
	t.Helper()
	f, problems := mapping.Parse("users.yaml", []byte(file))
	if mapping.HasErrors(problems) {
		t.Fatal(problems)
	}
	set, problems := mapping.NewSet([]*mapping.File{f})
	if mapping.HasErrors(problems) {
		t.Fatal(problems)
	}
	return set
}

// DELIVERY 6.3: what a node missed is deleted on every copy, and nothing else: a reader may have carried the stale value on.
func TestPassDeletesOnEveryCopy(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		release := r.owing(t, 0)
		release()
		r.wantTimes(t, 1, "n1 user:0", "n2 user:0", "n1 user:by-email:a@x.test", "n2 user:by-email:a@x.test")
		r.pass(settle)
		r.wantTimes(t, 2, "n1 user:0", "n2 user:0", "n1 user:by-email:a@x.test", "n2 user:by-email:a@x.test")
		r.wantDebts(t)
	})
}

// DELIVERY 6.3: keys that have no copy on an owing node are left alone.
func TestPassLeavesOtherNodesKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.views.Store(view(t, `{"epoch":7,"kind":"points160","shards":[{"id":"s0","weight":1,"primary":{"addr":"n1:1"},"replicas":[]},{"id":"s1","weight":1,"primary":{"addr":"n3:1"},"replicas":[]}]}`, nil))
		r.w.Assign(users, 0, changelog.Restored{})
		release := r.owing(t, 0, 1, 2, 3, 4, 5, 6, 7)
		release()
		n := 0
		for _, s := range r.nodes.take() {
			if !strings.HasPrefix(s, "n1 ") {
				t.Errorf("%s: it owes nothing", s)
			}
			n++
		}
		if n < 2 {
			t.Errorf("%d deletes", n)
		}
	})
}

// DELIVERY 6.3: the lanes of what a pass issues.
func TestPassLanes(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0)
		r.pass(3 * settle)
		r.nodes.turn("n2", false)
		r.nodes.turn("n2", true)
		r.nodes.take()
		r.pass(gather)
		if lane := r.nodes.laneOf("n1 user:0"); lane != "debts" {
			t.Errorf("a replica's: %s", lane)
		}
		r.pass(time.Minute)
		r.owing(t, 1)()
		if lane := r.nodes.laneOf("n2 user:1"); lane != "urgent" {
			t.Errorf("a primary's: %s", lane)
		}
		r.pass(time.Minute)
		r.storm(0, 1)
		r.pass(gather)
		if lane := r.nodes.laneOf("n2 user:0"); lane != "storm" {
			t.Errorf("a storm's: %s", lane)
		}
	})
}

// storm has the pool owe [from, to) as a storm.
func (r *rig) storm(from, to int64) { r.wide(KindStorm, from, to) }

// wide has the pool owe [from, to).
func (r *rig) wide(kind string, from, to int64) {
	p := r.w.partition(users)
	if kind == KindPool && to < 0 {
		r.w.Hold([]string{"user"})
	}
	p.ledger.openAt(debtID{kind, "user"}, from, time.Now(), "", r.w.opts.Snapshots.Current())
	if to >= 0 {
		r.w.Hold(nil)
		p.ledger.closeAt(kind, "user", to)
	}
	rouse(p.wake)
}

// DELIVERY 6.3, 9: a pass issues no key of a paused pool: that one's debt has it, from the pass's offset on, and its pass reaches all copies.
func TestPassLeavesWhatAPausedPoolOwes(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		release := r.owing(t, 0, 1)
		r.wide(KindPool, 1, -1)
		release()
		r.pass(2 * settle)
		r.wantTimes(t, 0, "n1 user:0", "n2 user:0", "n1 user:1", "n2 user:1")
		r.wantDebts(t, "pool user 0-")
		r.wide(KindPool, 1, 2)
		r.pass(gather + 2*settle)
		r.wantTimes(t, 2, "n1 user:0", "n2 user:0", "n1 user:1", "n2 user:1")
		r.wantDebts(t)
	})
}

// DELIVERY 6.3: of a key that two passes owe, a storm's and that of another debt, one at least issues it.
func TestTwoPassesDoNotLeaveAKeyToEachOther(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0)
		r.pass(3 * settle)
		r.nodes.take()
		r.storm(0, 1)
		r.wide(KindPool, 0, 1)
		r.pass(gather + 2*settle)
		if n := r.nodes.count("n1 user:0"); n < 2 {
			t.Errorf("%d deletes", n)
		}
		r.wantDebts(t)
	})
}

// DELIVERY 6.3: a node that was off when a storm's pass came by is paid what that one could not send it, also while that one still has it.
func TestWhatAStormsPassMissedIsNotLeftToIt(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0)
		r.pass(3 * settle)
		r.nodes.hold("n2", true) // the storm's pass stays in its first round
		r.nodes.turn("n1", false)
		r.storm(0, 1)
		r.pass(gather)
		r.wantDebts(t, "node n1 0-", "storm user 0-1")
		r.nodes.take()
		r.nodes.turn("n1", true)
		r.pass(gather)
		if n := r.nodes.count("n1 user:0"); n != 1 {
			t.Errorf("%d deletes of the debt's pass in its first round", n)
		}
		r.nodes.hold("n2", false)
		r.pass(3 * settle)
		r.wantDebts(t)
	})
}

// DELIVERY 6.4: a pass that meets another node off owes that one its offset, and goes on.
func TestPassGoesOnOverANodeThatIsOff(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		release := r.owing(t, 0, 1, 2)
		r.nodes.turn("n2", false)
		r.pass(time.Minute) // out of the window of a replica
		r.change(3)
		synctest.Wait()
		release()
		r.pass(2 * settle)
		r.wantTimes(t, 2, "n1 user:0", "n1 user:1", "n1 user:2")
		r.wantDebts(t, "node n2 0-")
		r.nodes.turn("n2", true)
		r.pass(time.Minute)
		r.wantTimes(t, 2, "n2 user:0", "n2 user:2")
		r.wantDebts(t)
	})
}

// DELIVERY 6.4: the same where the node goes off with the pass's deletes in it, in either round.
func TestPassLosesDeletesOfAnotherNode(t *testing.T) {
	for _, round := range []int{1, 2} {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			deliver(t, func(t *testing.T, r *rig) {
				release := r.owing(t, 0, 1)
				r.pass(time.Minute)
				if round == 1 {
					r.nodes.hold("n2", true)
				}
				release()
				if round == 2 {
					r.nodes.hold("n2", true)
					r.pass(settle)
				}
				r.nodes.turn("n2", false)
				r.pass(2 * settle)
				r.wantDebts(t, "node n2 0-")
			})
		})
	}
}

// DELIVERY 6.5: `from` follows the last round, not the first.
func TestDebtFollowsTheLastRound(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.owing(t, 0, 1)()
		r.wantTimes(t, 1, "n1 user:1")
		r.wantDebts(t, "node n1 0-2")
		r.pass(settle - time.Millisecond)
		r.wantTimes(t, 1, "n1 user:1")
		r.wantDebts(t, "node n1 0-2")
		r.pass(time.Millisecond)
		r.wantTimes(t, 2, "n1 user:1")
		r.wantDebts(t)
	})
}

// DELIVERY 6.5: `from` follows while the pass goes on, so that a crash does not do all of it again.
func TestDebtIsPaidAsItGoes(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		release := r.owing(t, 0, 1, 2, 3)
		r.nodes.hold("n2", true)
		release()
		r.nodes.mu.Lock()
		waits := r.nodes.waits // two keys a change, in order
		r.nodes.waits = nil
		r.nodes.held["n2"] = false
		r.nodes.mu.Unlock()
		for _, w := range waits[:4] {
			w.end(nil)
		}
		r.pass(2 * settle)
		r.wantDebts(t, "node n1 2-4")
		for _, w := range waits[4:] {
			w.end(nil)
		}
		r.pass(2 * settle)
		r.wantDebts(t)
	})
}

// DELIVERY 6.5: refresh requests of what a pass deletes are written after its last round.
func TestRefreshAfterAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, actions("meta", `{key: "page:{id}", action: refresh}`))
		r.w.Assign(users, 0, changelog.Restored{})
		release := r.owing(t, 0)
		r.refresher.take()
		release()
		r.refresher.fail.Store(2)
		if got := r.refresher.take(); len(got) > 0 {
			t.Errorf("asked before the last round: %+v", got)
		}
		r.pass(settle)
		r.wantDebts(t, "node n1 0-1") // it could not be written
		r.pass(settle)
		if got := r.refresher.take(); len(got) != 1 || got[0].Key != "page:0" {
			t.Errorf("asked for %+v", got)
		}
		r.wantDebts(t)
	})
}

// DELIVERY 6.6: what the log no longer holds is a gap, recorded before the debt's from passes it; the rest is paid.
func TestDebtOlderThanTheLogIsAGap(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		release := r.owing(t, 0, 1, 2, 3)
		r.past.start = 2
		r.gaps.fail = 3
		release()
		r.wantDebts(t, "node n1 0-4")
		r.pass(time.Minute)
		r.wantDebts(t)
		if len(r.gaps.losses) != 1 || r.gaps.losses[0].From != 0 || r.gaps.losses[0].To != 2 || r.gaps.losses[0].Partition != users {
			t.Errorf("gaps %+v", r.gaps.losses)
		}
		r.wantTimes(t, 2, "n1 user:2", "n1 user:3")
		r.wantTimes(t, 0, "n1 user:0")
	})
}

// DELIVERY 6.6: all of it may be gone.
func TestDebtWhollyOlderThanTheLog(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		release := r.owing(t, 0, 1)
		r.past.start = 7
		release()
		r.pass(time.Second)
		if len(r.gaps.losses) != 1 || r.gaps.losses[0].From != 0 || r.gaps.losses[0].To != 2 {
			t.Errorf("gaps %+v", r.gaps.losses)
		}
		r.wantDebts(t)
	})
}

// DELIVERY 6: a log that cannot be read is tried again, from the mark.
func TestPassIsTriedAgain(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		release := r.owing(t, 0)
		r.past.fail = 5
		release()
		r.pass(time.Minute)
		r.wantDebts(t)
		if got := r.past.ranges(); len(got) < 5 || len(got) > 7 {
			t.Errorf("read %q", got)
		}
	})
}

// DELIVERY 6.7: what cannot be decoded was parked when it was met first.
func TestPassCountsWhatItCannotDecode(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		r.change(0)
		r.sendRaw(changelog.Record{Offset: 1, Value: []byte("{")})
		r.sendRaw(changelog.Record{Offset: 2, Value: []byte(`{"ts_ms":1}`)}) // a heartbeat
		r.change(3)
		r.pass(3 * settle)
		r.nodes.turn("n1", true)
		r.pass(gather + 2*settle)
		r.wantDebts(t)
		r.wantTimes(t, 2, "n1 user:0", "n1 user:3")
		r.wantCount(t, 1, "pass_undecodable_total")
		if got := r.parker.offsets(); !slices.Equal(got, []int64{1}) {
			t.Errorf("parked %v", got)
		}
	})
}

// DELIVERY 6.7: a key that a node refuses is parked, and the debt is paid; not before it is parked.
func TestPassParksWhatIsRefused(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		release := r.owing(t, 0)
		r.nodes.refuse.Store(true)
		r.parker.fail.Store(true)
		release()
		r.pass(time.Minute)
		r.wantDebts(t, "node n1 0-1")
		r.nodes.refuse.Store(false)
		r.parker.fail.Store(false)
		r.pass(time.Minute)
		if n := len(r.parker.offsets()); n != 4 {
			t.Errorf("parked %d times", n)
		}
		r.wantDebts(t)
	})
}

// DELIVERY 6.7: a schema registry that is away is waited for, without a slot; what was issued gets its rounds meanwhile.
func TestPassWaitsForTheSchemaRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		s := &away{}
		r.w.opts.Sources[0].Decode.Schemas = s
		value, err := avro.MustParse(usersAvro).AppendEncode([]byte{0, 0, 0, 0, 9}, map[string]any{
			"after": map[string]any{"id": int64(1), "email": "c@x.test"}, "source": map[string]any{"connector": "mysql", "db": "shop", "table": "users"}, "op": "c",
		})
		if err != nil {
			t.Fatal(err)
		}
		r.w.Assign(users, 0, changelog.Restored{})
		r.nodes.turn("n1", false)
		r.change(0)
		r.sendRaw(changelog.Record{Offset: 1, Value: value})
		r.change(2)
		r.pass(3 * settle)
		s.set(unavailable{"away"})
		r.w.opts.Snapshots.SetMapper(setOf(t, usersFile+"      - user:more:{id}\n")) // so that nothing is known of the schema
		r.nodes.turn("n1", true)
		r.pass(time.Minute)
		r.wantDebts(t, "node n1 1-3")
		r.wantTimes(t, 2, "n1 user:0")
		r.wantTimes(t, 0, "n1 user:1", "n1 user:2")
		if r.w.slots.left() != maxReading {
			t.Error("it holds a slot")
		}
		s.set(nil)
		r.pass(retryMax + 2*settle)
		r.wantTimes(t, 2, "n1 user:1", "n1 user:2")
		r.wantDebts(t)
	})
}
