package pipeline

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
	"invalidator/sink"
)

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
				s := State{V: stateVersion, Offset: 1, Issued: seen, Acted: actedOn(seen), Debts: []Debt{{Kind: KindNode, Name: "n1:1", From: 0, To: &to}}}
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
				r.views.Store(v)
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
					r.views.Store(&v)
				}
				confirm() // before the partition came: it says nothing
				time.Sleep(time.Second)
				s := State{V: stateVersion, Offset: 1, Issued: seen, Acted: actedOn(seen), Debts: []Debt{{Kind: KindNode, Name: "n9:1", From: 0}}}
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
				r.views.Store(v)
				r.pass(time.Minute)
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
		for _, bad := range []string{`{"v":4}`, `{`, `{"v":1,"debts":[{}]}`, `{"v":2,"debts":[{"kind":"zone","name":"b","from":1}]}`, `{"v":3,"debts":[{"kind":"replay","name":"b","from":1,"to":2}]}`} {
			if Readable(changelog.Restored{State: []byte(bad)}) == nil {
				t.Errorf("%s is readable", bad)
			}
		}
		r.w.Assign(users, 5, changelog.Restored{State: []byte(`{"v":4}`)})
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
		want := `{"v":3,"offset":1,"debts":[{"kind":"node","name":"n1:1","from":0,"to":null,"since":"2000-01-01T00:00:00Z","epoch":7,"hot_revision":1}],` +
			`"journal":[[946684800,7,1,0,"` + fp + `",["live",0,0]],[946684801,7,1,0,"` + fp + `",["live",0,0]]],"issued":{"epoch":7,"hot_revision":1},"acted":{"epochs":[7],"hot_revision":1}}`
		if string(k.State) != want {
			t.Errorf("got\n%s\nwant\n%s", k.State, want)
		}
	})
}

// actedOn is what an owner had acted on that issued under this sight.
func actedOn(s Sight) Acted { return Acted{Epochs: []int64{s.Epoch}, HotRevision: s.HotRevision} }
