package pipeline

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// state is what a commit would write now.
func (r *rig) state(t *testing.T) State {
	t.Helper()
	return stateIn(t, r.w.Finished([]changelog.Partition{users})[0].Keep())
}

func stateIn(t *testing.T, k changelog.Kept) State {
	t.Helper()
	s, err := parseState(k.State)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantDebts wants these debts, written "node n1 3-7", or "node n1 3-" where it is open.
func (r *rig) wantDebts(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	got := []string{}
	for _, d := range r.state(t).Debts {
		to := ""
		if d.To != nil {
			to = fmt.Sprint(*d.To)
		}
		got = append(got, fmt.Sprintf("%s %s %d-%s", d.Kind, strings.TrimSuffix(d.Name, ":1"), d.From, to))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("debts %q, want %q", got, want)
	}
}

// change sends an update of one row whose keys are user:id and user:by-email:a@x.test.
func (r *rig) change(offsets ...int64) {
	for _, o := range offsets {
		r.send(o, update(fmt.Sprint(o), "a@x.test", "a@x.test"))
	}
}

func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// deliver runs a test with a worker that has the partition from offset 0.
func deliver(t *testing.T, test func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.Assign(users, 0, changelog.Restored{})
		synctest.Wait()
		test(t, r)
	})
}

// DELIVERY 4, row 1: what a node that is off is not sent is in its debt before the watermark passes it.
func TestRefusedDeleteIsOwed(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		r.change(0, 1)
		r.wantDebts(t, "node n1 0-")
		r.pass(settle)
		r.wantMark(t, 2)
		if got := r.nodes.take(); slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "n1") }) || len(got) == 0 {
			t.Errorf("deleted %q", got)
		}
	})
}

// DELIVERY 4, row 1: a delete that is lost when its node goes off is owed before it counts as done, in the first round and in the second.
func TestLostDeleteIsOwed(t *testing.T) {
	for _, round := range []int{1, 2} {
		t.Run(fmt.Sprint("round ", round), func(t *testing.T) {
			deliver(t, func(t *testing.T, r *rig) {
				if round == 1 {
					r.nodes.hold("n1", true)
				}
				r.change(0)
				synctest.Wait()
				if round == 2 {
					r.nodes.hold("n1", true)
					r.pass(settle)
				}
				r.wantMark(t, 0)
				r.nodes.turn("n1", false)
				r.wantDebts(t, "node n1 0-")
				r.pass(settle)
				r.wantMark(t, 1)
			})
		})
	}
}

// DELIVERY 4, row 2: a replica that goes off owes what was issued in the last replay.window, though it lost nothing, and again when it is
// back. A primary has no copier.
func TestReplicaOwesWhatMayHaveBeenOvertaken(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0)
		r.pass(20 * time.Second)
		r.change(1)
		r.pass(20 * time.Second)
		r.nodes.turn("n1", false)
		r.wantDebts(t)
		r.nodes.turn("n1", true)
		r.nodes.turn("n2", false)
		r.wantDebts(t, "node n2 1-")
		r.pass(15 * time.Second) // it is nothing that anybody issued
		r.change(2)
		r.pass(10 * time.Second)
		r.wantDebts(t, "node n2 1-")
		r.nodes.turn("n2", true)
		r.pass(gather + 2*settle)
		r.wantDebts(t)
		r.pass(time.Minute)
		r.change(3)
		r.pass(time.Second)
		r.nodes.turn("n2", false)
		r.wantDebts(t, "node n2 3-")
		r.pass(time.Minute)
		r.change(4)
		r.pass(10 * settle)
		r.nodes.take()
		r.nodes.turn("n2", true)
		r.pass(gather)
		if got := r.nodes.take(); !slices.Contains(got, "n1 user:3") || !slices.Contains(got, "n2 user:3") || !slices.Contains(got, "n2 user:4") {
			t.Errorf("the pass deleted %q", got)
		}
	})
}

// DELIVERY 4, row 2: a node that is off before the partition is ours counts from when it went off.
func TestReplicaThatIsOffWhenThePartitionComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.Assign(users, 0, changelog.Restored{})
		r.change(0)
		r.pass(2 * settle)
		r.change(1)
		r.pass(2 * settle)
		k := r.w.Revoke([]changelog.Partition{users})[0].Keep()
		r.pass(20 * time.Second)
		r.nodes.turn("n2", false)
		r.pass(time.Hour)
		r.w.Assign(users, 2, changelog.Restored{State: k.State, Journal: k.Journal})
		r.wantDebts(t, "node n2 0-")
		r.nodes.turn("n2", true)
		r.wantDebts(t, "node n2 0-2")
		r.pass(gather + 2*settle)
		r.wantDebts(t)
	})
}

// DELIVERY 4, row 3: a later round is withheld from a node whose debt is open, which then begins at its offset.
func TestWithheldRoundIsOwed(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0)
		synctest.Wait()
		r.nodes.turn("n1", false)
		r.change(1)
		r.wantDebts(t, "node n1 1-")
		r.nodes.take()
		r.pass(settle)
		r.wantDebts(t, "node n1 0-")
		r.wantMark(t, 2)
	})
}

// DELIVERY 4, row 4: an answer closes the debt at the offset taken next; what is issued from then on goes to the node, and a pass pays.
func TestAnswerClosesTheDebt(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		r.change(0, 1)
		r.pass(3 * settle)
		r.past.hold = make(chan struct{})
		r.nodes.turn("n1", true)
		r.wantDebts(t, "node n1 0-2")
		r.nodes.take()
		r.change(2)
		synctest.Wait()
		if got := r.nodes.take(); !slices.Contains(got, "n1 user:2") {
			t.Errorf("deleted %q", got)
		}
		close(r.past.hold)
		r.pass(gather)
		if got := r.nodes.take(); !slices.Contains(got, "n1 user:0") || !slices.Contains(got, "n1 user:1") {
			t.Errorf("the pass deleted %q", got)
		}
		r.pass(3 * settle)
		r.wantDebts(t)
		r.wantMark(t, 3)
	})
}

// DELIVERY 4, row 5: a pass does not pay a debt that was opened again after it took it, though all that it issues is acknowledged.
func TestPassDoesNotPayWhatWasOpenedAgain(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		r.change(0)
		r.pass(3 * settle)
		r.nodes.turn("n1", true)
		r.pass(gather) // the first round of the pass
		r.nodes.turn("n1", false)
		r.change(1)
		r.wantDebts(t, "node n1 0-")
		r.pass(10 * settle)
		r.wantDebts(t, "node n1 0-")
		r.nodes.turn("n1", true)
		r.wantDebts(t, "node n1 0-2")
		r.pass(gather + settle)
		r.wantDebts(t)
	})
}

// DELIVERY 4, row 6: a node that no record names any more owes nothing.
func TestNodeThatLeftLongAgoOwesNothing(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		r.change(0)
		r.wantDebts(t, "node n1 0-")
		r.views.store(view(t, strings.ReplaceAll(strings.Replace(plainRing, `"epoch":7`, `"epoch":8`, 1), "n1:1", "n3:1"), nil))
		r.change(1)
		r.wantDebts(t)
	})
}

// DELIVERY 4: the state may be taken at any time, the watermark first. One that is taken after the commit's watermark covers it.
func TestStateThatIsLaterThanItsWatermark(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.hold("n1", true)
		r.change(0)
		synctest.Wait()
		before := r.w.Finished([]changelog.Partition{users})[0]
		r.nodes.turn("n1", false)
		r.pass(settle)
		r.wantMark(t, 1)
		after := r.w.Finished([]changelog.Partition{users})[0]
		if before.Version == after.Version {
			t.Error("the version is the same, and the debts are not")
		}
		s := stateIn(t, before.Keep())
		if before.Offset != 0 || len(s.Debts) != 1 || s.Debts[0].From != 0 {
			t.Errorf("offset %d with debts %+v", before.Offset, s.Debts)
		}
		if s := stateIn(t, after.Keep()); after.Offset != 1 || s.Offset != 1 || len(s.Debts) != 1 {
			t.Errorf("offset %d with state %+v", after.Offset, s)
		}
	})
}

// H5: a node that is off holds up nobody: the watermark passes at once, and the deletes of others are as quick as before.
func TestH5_DeadNodeHoldsUpNobody(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		for i := range int64(1000) {
			r.change(i)
			r.pass(time.Millisecond)
			if i > 1500 {
				r.wantMark(t, i-1500)
			}
			if r.nodes.laneOf(fmt.Sprintf("n2 user:%d", i)) != "live" {
				t.Fatalf("change %d is not deleted at once", i)
			}
		}
		r.pass(settle)
		r.wantMark(t, 1000)
		r.wantDebts(t, "node n1 0-")
		r.wantCount(t, 1000, "owed_records", "node", "n1:1")
	})
}

// H6, G9: what a node missed is paid when it is back: by the next owner too, from the state alone.
func TestH6G9_NodeThatComesBackIsPaidByTheNextOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.Assign(users, 0, changelog.Restored{})
		r.nodes.turn("n1", false)
		r.change(0, 1, 2, 3)
		r.pass(3 * settle)
		k := r.w.Revoke([]changelog.Partition{users})[0]
		if k.Offset != 4 {
			t.Fatalf("committed %d", k.Offset)
		}
		kept := k.Keep()
		next := newRig(t)
		next.past = r.past
		next.w.opts.Past = r.past
		next.nodes.turn("n1", false)
		next.w.Assign(users, 4, changelog.Restored{State: kept.State, Journal: kept.Journal})
		next.pass(time.Minute)
		next.wantDebts(t, "node n1 0-")
		next.nodes.turn("n1", true)
		next.pass(gather + 2*settle)
		for i := range 4 {
			for _, node := range []string{"n1", "n2"} {
				if n := next.nodes.count(fmt.Sprintf("%s user:%d", node, i)); n != 2 {
					t.Errorf("user:%d was deleted %d times on %s", i, n, node)
				}
			}
		}
		next.wantDebts(t)
	})
}

// H13: nine copies, each on two nodes, one of them slow: done is done when all have answered, twice.
func TestH13_DoneWhenEveryCopyAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.views.store(view(t, plainRing, map[string]int{"user:1": 8}))
		r.w.Assign(users, 0, changelog.Restored{})
		synctest.Wait()
		r.nodes.hold("n2", true)
		r.send(0, update("1", "a@x.test", "a@x.test"))
		r.pass(10 * settle)
		r.wantMark(t, 0)
		r.nodes.hold("n2", false)
		r.pass(settle)
		r.wantMark(t, 1)
		for _, node := range []string{"n1", "n2"} {
			for _, copied := range []string{"", "#1", "#2", "#3", "#4", "#5", "#6", "#7", "#8"} {
				if n := r.nodes.count(node + " user:1" + copied); n != 2 {
					t.Errorf("user:1%s was deleted %d times on %s", copied, n, node)
				}
			}
		}
	})
}

// H14: a reader that fills with the old row after the first delete is cleared settle after that was acknowledged, in a pass too.
func TestH14_LateFillIsClearedBySettle(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0)
		synctest.Wait()
		r.nodes.take()
		r.pass(settle)
		if n := r.nodes.count("n1 user:0"); n != 1 {
			t.Errorf("%d second deletes", n)
		}
		r.nodes.turn("n1", false)
		r.change(1)
		r.pass(2 * settle)
		r.nodes.turn("n1", true)
		r.pass(gather)
		r.nodes.take()
		r.pass(settle)
		if n := r.nodes.count("n1 user:1"); n != 1 {
			t.Errorf("%d second deletes in the pass", n)
		}
	})
}

// G8: what a zombie finishes after it lost the partition is not committed by it, and what it had not is issued again by the next owner.
func TestG8_ZombieAndItsSuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zombie, next := newRig(t), newRig(t)
		zombie.w.Assign(users, 0, changelog.Restored{})
		zombie.nodes.turn("n1", false)
		zombie.change(0)
		zombie.pass(2 * settle)
		committed := zombie.w.Finished([]changelog.Partition{users})[0]
		kept := committed.Keep()
		zombie.change(1) // it does not know yet that the partition is another's
		next.past, next.w.opts.Past = zombie.past, zombie.past
		next.w.Assign(users, committed.Offset, changelog.Restored{State: kept.State, Journal: kept.Journal})
		next.change(1)
		zombie.pass(2 * settle)
		if late := zombie.w.Finished([]changelog.Partition{users})[0]; late.Offset != 2 {
			t.Fatalf("the zombie is at %d", late.Offset)
		}
		next.pass(gather + 2*settle)
		for _, key := range []string{"n1 user:0", "n1 user:1", "n2 user:1"} {
			if n := next.nodes.count(key); n < 2 {
				t.Errorf("%s: %d times", key, n)
			}
		}
		next.wantDebts(t)
		next.wantMark(t, 2)
	})
}

// DELIVERY 8: nothing is issued, and no pass begins, under a ring record or hot keys that are older than those the last owner had.
func TestOwnerWaitsForTheSightOfTheLast(t *testing.T) {
	for name, seen := range map[string]Sight{"ring": {Epoch: 9}, "hot keys": {Epoch: 7, HotRevision: 51}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.change(0, 1)
				to := int64(1)
				s := State{V: 2, Offset: 1, Issued: seen, Acted: seen, Debts: []Debt{{Kind: KindNode, Name: "n1:1", From: 0, To: &to}}}
				r.w.Assign(users, 1, changelog.Restored{State: s.encode()})
				r.change(1)
				r.pass(time.Minute)
				if got := r.nodes.take(); len(got) > 0 {
					t.Fatalf("deleted %q", got)
				}
				if got := r.state(t); got.Issued != seen || len(got.Debts) != 1 {
					t.Errorf("the state meanwhile is %+v", got)
				}
				v := view(t, strings.Replace(plainRing, `"epoch":7`, `"epoch":9`, 1), nil)
				v.Hot = sink.NewHotKeys(51, nil)
				r.views.store(v)
				r.pass(gather + 2*settle)
				if got := r.nodes.take(); !slices.Contains(got, "n1 user:0") || !slices.Contains(got, "n1 user:1") {
					t.Errorf("deleted %q", got)
				}
				r.wantDebts(t)
			})
		})
	}
}

// DELIVERY 8: a registry that was restored to what it was before the last owner, and says that it holds nothing newer, holds a partition up for
// half a minute and no longer. No node's debt is forgotten before it holds as much again. One that cannot be asked is waited for (the test above).
func TestRegistryThatWentBack(t *testing.T) {
	for name, seen := range map[string]Sight{"ring": {Epoch: 9}, "hot keys": {Epoch: 7, HotRevision: 51}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				confirm := func() {
					v := *r.views.View()
					v.Confirmed = time.Now()
					r.views.store(&v)
				}
				confirm() // before the partition came: it says nothing
				time.Sleep(time.Second)
				s := State{V: 2, Offset: 1, Issued: seen, Acted: seen, Debts: []Debt{{Kind: KindNode, Name: "n9:1", From: 0}}}
				r.nodes.turn("n9", false) // it is of the ring that is lost, and may be of the next
				r.w.Assign(users, 1, changelog.Restored{State: s.encode()})
				r.change(1)
				r.pass(sightWait + time.Second)
				if got := r.nodes.take(); len(got) > 0 {
					t.Fatalf("deleted %q, and nobody knows what the registry holds", got)
				}
				if n := r.count(t, "partitions_blind"); n != 1 {
					t.Errorf("%v partitions wait", n)
				}
				confirm()
				r.pass(sightWait - 2*time.Second)
				if got := r.nodes.take(); len(got) > 0 {
					t.Fatalf("deleted %q at once", got)
				}
				r.pass(2*time.Second + 2*settle)
				if got := r.nodes.take(); !slices.Contains(got, "n1 user:1") {
					t.Errorf("deleted %q", got)
				}
				r.wantMark(t, 2)
				if n := r.count(t, "registry_went_back_total"); n != 1 || r.count(t, "partitions_blind") != 0 || !strings.Contains(r.log.String(), "the registry went back") {
					t.Errorf("%v told; log %s", n, r.log.String())
				}
				r.wantDebts(t, "node n9 0-")
				k := r.w.Revoke([]changelog.Partition{users})[0].Keep()
				if got := stateIn(t, k).Issued; got.Epoch != seen.Epoch || got.HotRevision < seen.HotRevision {
					t.Errorf("the next owner is told %v", got)
				}
				r.w.Assign(users, 2, changelog.Restored{State: k.State, Journal: k.Journal})
				r.pass(time.Second)
				v := view(t, strings.Replace(plainRing, `"epoch":7`, `"epoch":9`, 1), nil)
				v.Hot = sink.NewHotKeys(51, nil)
				r.views.store(v)
				r.wantDebts(t) // a ring that is no less does not name it
				if n := len(r.nodes.probes["n9"]); n != 1 {
					t.Errorf("the node that left was asked %d times", n)
				}
			})
		})
	}
}

// DELIVERY 8: a state that cannot be read holds its partition; one that an older version wrote is gone on from.
func TestStateOfOtherVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for _, bad := range []string{`{"v":3}`, `{`, `{"v":1,"debts":[{}]}`, `{"v":2,"debts":[{"kind":"zone","name":"b","from":1}]}`} {
			if Readable(changelog.Restored{State: []byte(bad)}) == nil {
				t.Errorf("%s is readable", bad)
			}
		}
		r.w.Assign(users, 5, changelog.Restored{State: []byte(`{"v":3}`)})
		r.change(5)
		r.pass(time.Minute)
		if got := r.w.Finished([]changelog.Partition{users}); len(got) > 0 || len(r.nodes.take()) > 0 {
			t.Errorf("went on from a state that it cannot read: %+v", got)
		}
		old := changelog.Restored{State: []byte(`{"v":1,"offset":5,"debts":[],"journal":[],"acted":{"epoch":7,"hot_revision":1}}`)}
		if err := Readable(old); err != nil {
			t.Fatal(err)
		}
		r.w.Assign(users, 5, old)
		r.change(5)
		r.pass(2 * settle)
		r.wantMark(t, 6)
	})
}

// DELIVERY 5: one round is enough for what is old on the live path, unless somebody carries values from copy to copy.
func TestLateChangeGetsOneRound(t *testing.T) {
	stands := func(r *rig, t *testing.T) {
		r.views.store(view(t, strings.Replace(plainRing, `"shards":[{"id":"s0"`, `"previous":{"epoch":6,"shards":[{"id":"s9","weight":1,"primary":{"addr":"n1:1"},"replicas":[]}]},"shards":[{"id":"s0"`, 1), nil))
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
			r.views.store(view(t, strings.Replace(plainRing, `"zone":"b"`, `"zone":"b","seeding":true`, 1), nil))
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
	r.views.store(&registry.View{Topology: v.Topology, Hot: v.Hot, Carried: v.Carried})
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

// The state record is JSON that says what docs/TOPICS.md shows.
func TestStateRecord(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		r.change(0)
		r.pass(3 * settle)
		k := r.w.Finished([]changelog.Partition{users})[0].Keep()
		var got map[string]any
		if err := json.Unmarshal(k.State, &got); err != nil {
			t.Fatal(err)
		}
		fp := r.w.opts.Snapshots.Current().Mapper.Fingerprint()
		want := `{"v":2,"offset":1,"debts":[{"kind":"node","name":"n1:1","from":0,"to":null,"since":"2000-01-01T00:00:00Z","epoch":7,"hot_revision":1}],` +
			`"journal":[[946684800,7,1,0,"` + fp + `",["live",0,0]],[946684801,7,1,0,"` + fp + `",["live",0,0]]],"issued":{"epoch":7,"hot_revision":1},"acted":{"epoch":7,"hot_revision":1}}`
		if string(k.State) != want {
			t.Errorf("got\n%s\nwant\n%s", k.State, want)
		}
	})
}
