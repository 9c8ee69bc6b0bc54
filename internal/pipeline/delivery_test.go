package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
)

// state is what a commit would write now.
func (r *rig) state(t *testing.T) State {
	t.Helper()
	return stateIn(t, r.keeps(r.w.Finished([]changelog.Partition{users})[0]))
}

// keeps writes what a commit would, and gives all that lies there then: Keep gives a page of the journal once.
func (r *rig) keeps(p changelog.Progress) changelog.Kept {
	k := p.Keep()
	if r.pages == nil {
		r.pages = pageBook{}
	}
	for _, name := range k.Drop {
		delete(r.pages, name)
	}
	for _, j := range k.Journal {
		r.pages[j.Name] = j.Value
	}
	k.Journal = r.pages.records()
	return k
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

// DELIVERY 4, row 2: a node that goes off owes what was issued in the last replay.window, though it lost nothing; a replica again when it is back. A
// primary has no copier.
func TestNodeOwesWhatMayHaveBeenOvertaken(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0)
		r.pass(20 * time.Second)
		r.change(1)
		r.pass(20 * time.Second)
		r.nodes.turn("n1", false)
		r.wantDebts(t, "node n1 1-")
		r.w.NodeTurned("n1:1", true)
		r.wantDebts(t, "node n1 1-")
		r.nodes.turn("n1", true)
		r.pass(gather + 2*settle)
		r.w.NodeTurned("n1:1", true)
		r.wantDebts(t)
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
		r.w.opts.Settle, r.w.opts.Window = 5*time.Second, time.Millisecond // so that the first round lies before the window
		r.change(0)
		r.pass(3 * time.Second)
		r.nodes.turn("n1", false)
		r.change(1)
		r.wantDebts(t, "node n1 1-")
		r.nodes.take()
		r.pass(2 * time.Second)
		r.wantDebts(t, "node n1 0-")
		r.pass(4 * time.Second)
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
		r.views.Store(view(t, strings.ReplaceAll(strings.Replace(plainRing, `"epoch":7`, `"epoch":8`, 1), "n1:1", "n3:1"), nil))
		r.change(1)
		r.pass(time.Minute)
		r.wantDebts(t)
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
		r.views.Store(view(t, plainRing, map[string]int{"user:1": 8}))
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
