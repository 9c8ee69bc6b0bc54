package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
	"invalidator/replay"
)

// ordered has the partition act on a plan for keys of pool user, of these ranges.
func (r *rig) ordered(o Order, ranges ...[2]int64) {
	p := r.w.partition(users)
	if o.Target == (replay.Target{}) {
		o.Target = replay.Target{Pool: "user"}
	}
	p.takeOrder(o, ranges)
	rouse(p.wake)
}

// told keeps what is reported of what is done again.
func (r *rig) told() *[]ProgressReport {
	var all []ProgressReport
	r.w.opts.Progress = func(now ProgressReport) { all = append(all, now) }
	return &all
}

func (r *rig) replayOf(id string) Order {
	return Order{ID: id, Issued: true, Mark: ControlMark{"c", 1}}
}

// REPLAY 1: a replay deletes the keys of its spans again, in all rounds, on every copy, in its own lane, and nothing between its spans, which is not even read.
func TestReplayOfSpans(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		told := r.told()
		r.change(0, 1, 2, 3, 4, 5)
		r.pass(3 * settle)
		r.nodes.take()
		r.ordered(r.replayOf("again"), [2]int64{0, 2}, [2]int64{4, 5})
		r.wantDebts(t, "replay again 0-5")
		r.pass(gather)
		if lane := r.nodes.laneOf("n1 user:0"); lane != "replay" {
			t.Errorf("lane %q", lane)
		}
		r.pass(settle)
		r.wantTimes(t, 2, "n1 user:0", "n2 user:0", "n1 user:1", "n2 user:4")
		r.wantTimes(t, 0, "n1 user:2", "n1 user:3", "n1 user:5")
		r.wantDebts(t)
		if got := r.past.ranges(); !slices.Equal(got, []string{"0-2", "4-5"}) {
			t.Errorf("read %q", got)
		}
		last := (*told)[len(*told)-1]
		if len(*told) < 2 || !last.Done || last.ID != "again" || last.From != 0 || last.To != 5 || last.Offset != 5 || last.Keys != 6 || last.Copies != 12 || (*told)[0].Done {
			t.Errorf("told %+v", *told)
		}
		r.wantCount(t, 6, "replay_keys_total", "replay")
	})
}

// REPLAY 1: what it meets off the live path is that node's debt, and the replay goes on.
func TestReplayOverANodeThatIsOff(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0, 1)
		r.pass(time.Minute)
		r.nodes.turn("n2", false)
		r.ordered(r.replayOf("again"), [2]int64{1, 2})
		r.pass(gather + 2*settle)
		r.wantDebts(t, "node n2 1-")
	})
}

// REPLAY 1: the debt alone is enough: the next owner goes on at its mark, with its target, its window and what was counted.
func TestReplayIsGoneOnWithByTheNextOwner(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		old := update("0", "a@x.test", "a@x.test")
		old.CommitTime = time.Now().Add(-time.Hour)
		r.send(0, old)
		sent := update("1", "a@x.test", "a@x.test")
		sent.CommitTime = old.CommitTime
		r.send(1, sent)
		r.change(2)
		unknown := update("3", "a@x.test", "a@x.test")
		unknown.CommitTime = time.Time{}
		r.send(3, unknown)
		r.pass(3 * settle)
		hold := make(chan struct{})
		r.past.hold = hold
		o := Order{ID: "again", Target: replay.Target{Pool: "user"}, From: time.Now().Add(-time.Minute), To: time.Now(), Sent: [][2]int64{{1, 2}}, Mark: ControlMark{"c", 17}}
		r.ordered(o, [2]int64{0, 4})
		r.pass(gather)
		k := r.w.Revoke([]changelog.Partition{users})[0].Keep()
		s := stateIn(t, k)
		if len(s.Debts) != 1 || s.Acted.Control != o.Mark || fmt.Sprint(*s.Debts[0].Order) != fmt.Sprint(o) || fmt.Sprint(s.Debts[0].Spans) != "[[0 4]]" {
			t.Fatalf("the state is %s", k.State)
		}
		close(hold)
		r.nodes.take()
		r.w.Assign(users, 4, changelog.Restored{State: k.State, Journal: k.Journal})
		r.pass(gather + 2*settle)
		r.wantTimes(t, 0, "n1 user:0") // committed before the window, and not issued in it
		r.wantTimes(t, 2, "n1 user:1", "n1 user:2", "n1 user:3")
		r.wantDebts(t)
	})
}

// REPLAY 4: a cancel removes the debt and stops its pass.
func TestReplayThatIsCancelled(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		told := r.told()
		orders := &fakeOrders{}
		r.change(0)
		r.pass(3 * settle)
		r.nodes.take()
		r.w.opts.Orders = orders
		hold := make(chan struct{})
		defer close(hold)
		r.past.hold = hold
		r.ordered(r.replayOf("again"), [2]int64{0, 1})
		r.pass(gather)
		orders.cancel("again")
		rouse(r.w.partition(users).wake)
		r.pass(time.Minute)
		r.wantDebts(t)
		if got := r.nodes.take(); len(got) > 0 || len(r.w.Paying()) > 0 {
			t.Errorf("deleted %q, %v", got, r.w.Paying())
		}
		for _, now := range *told {
			if now.Done {
				t.Errorf("told %+v", now)
			}
		}
	})
}

// REPLAY 4: a dry run reads, maps and counts, and does nothing else: no delete, no journal, no debt of a paused pool, no gap, no request.
func TestReplayThatOnlyCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, actions("meta", `{key: "page:{id}", action: refresh}`))
		told := r.told()
		r.w.Assign(users, 0, changelog.Restored{})
		r.change(0, 1, 2, 3)
		r.pass(3 * settle)
		r.nodes.take()
		r.refresher.take()
		r.past.start = 1
		o := r.replayOf("count")
		o.DryRun, o.Target = true, replay.Target{Pool: "page"}
		before := r.state(t)
		r.ordered(o, [2]int64{0, 3})
		r.pass(time.Minute)
		if got := r.nodes.take(); len(got) > 0 || len(r.refresher.take()) > 0 || len(r.gaps.losses) > 0 {
			t.Errorf("deleted %q, gaps %v", got, r.gaps.losses)
		}
		after := r.state(t)
		if fmt.Sprint(after.Issued) != fmt.Sprint(before.Issued) || len(after.Debts) > 0 {
			t.Errorf("%+v became %+v", before, after)
		}
		if lines := r.w.partition(users).journal.lanes(); slices.Contains(lines, "replay") {
			t.Errorf("noted %q", lines)
		}
		last := (*told)[len(*told)-1]
		if !last.Done || last.Keys != 2 || last.Copies != 4 || last.Lost != 1 || !last.DryRun {
			t.Errorf("told %+v", last)
		}
		r.w.Hold([]string{"page"})
		r.ordered(o, [2]int64{1, 3})
		r.pass(time.Minute)
		if last := (*told)[len(*told)-1]; !last.Done || last.Keys != 0 || last.Owed != 2 {
			t.Errorf("told %+v", last)
		}
		r.wantDebts(t)
	})
}

// lanes are those that the journal has.
func (j *journal) lanes() (names []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for l := range j.all() {
		for _, s := range l.Lanes {
			names = append(names, s.Lane.String())
		}
	}
	return names
}

// REPLAY 4: a replay that meets the log's start, or a set of mappings that nobody has, tells how much it lost, and raises no gap.
func TestReplayTellsWhatIsLost(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		told := r.told()
		r.change(0, 1, 2, 3, 4, 5)
		r.pass(3 * settle)
		r.past.start = 5
		r.ordered(r.replayOf("again"), [2]int64{0, 1}, [2]int64{2, 4}, [2]int64{5, 6})
		r.pass(gather + 2*settle)
		if last := (*told)[len(*told)-1]; !last.Done || last.Lost != 3 || last.Keys != 2 {
			t.Errorf("told %+v", last)
		}
		r.w.opts.Snapshots.SetMapper(setOf(t, "version: 1\nteam: profiles\npools: [user]\nmappings:\n  - {name: user, table: shop.users, keys: [\"user:{id}:v2\"]}\n"))
		r.ordered(r.replayOf("more"), [2]int64{5, 6})
		r.pass(gather + 2*settle)
		if last := (*told)[len(*told)-1]; !last.Done || last.Lost != 1 || last.Keys != 1 {
			t.Errorf("told %+v", last)
		}
		if len(r.gaps.losses) > 0 {
			t.Errorf("gaps %+v", r.gaps.losses)
		}
	})
}

// REPLAY 1: a key that a pool's debt owes at this offset is left to its pass, and counted.
func TestReplayLeavesWhatAPoolOwes(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		told := r.told()
		r.change(0, 1)
		r.pass(3 * settle)
		r.nodes.take()
		r.wide(KindPool, 1, -1)
		r.ordered(r.replayOf("again"), [2]int64{0, 2})
		r.pass(gather + 2*settle)
		r.wantTimes(t, 0, "n1 user:0", "n1 user:1")
		r.wantDebts(t, "pool user 0-")
		if last := (*told)[len(*told)-1]; !last.Done || last.Owed != 4 || last.Keys != 0 {
			t.Errorf("told %+v", last)
		}
	})
}

// REPLAY 1: replays have one slot, which they give back after each fetch, and those of one worker go on side by side; node debts have theirs.
func TestReplaysShareTheirSlot(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0, 1, 2, 3, 4, 5)
		r.pass(3 * settle)
		r.nodes.take()
		r.past.batch = 1
		if err := r.w.replaySlots.take(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"a", "b"} {
			r.ordered(r.replayOf(id), [2]int64{0, 6})
		}
		for i := range maxReading {
			if err := r.w.slots.take(t.Context(), i > 0); err != nil { // debts have all of theirs
				t.Fatal(err)
			}
		}
		r.pass(gather)
		r.w.replaySlots.give() // both wait for it
		synctest.Wait()
		r.nodes.mu.Lock()
		seen := slices.DeleteFunc(slices.Clone(r.nodes.seen), func(s string) bool { return !strings.HasPrefix(s, "n1 user:") || strings.Contains(s, "email") })
		r.nodes.mu.Unlock()
		if len(seen) != 12 || seen[0] != seen[1] { // one after the other, when both wait
			t.Fatalf("in the order %q", seen)
		}
		r.pass(2 * settle)
		r.wantDebts(t)
		if r.w.replaySlots.left() != maxReplayReading {
			t.Error("a slot is lost")
		}
	})
}

// fakeOrders are the plans and cancels of replays.
type fakeOrders struct {
	orders    []Order
	cancelled []string
	changed   chan struct{}
}

func (o *fakeOrders) After(_ changelog.Partition, mark ControlMark) (behind []Order) {
	for _, is := range o.orders {
		if is.Mark.Topic != mark.Topic || is.Mark.Offset > mark.Offset {
			behind = append(behind, is)
		}
	}
	return behind
}

func (o *fakeOrders) Cancelled(id string) bool { return slices.Contains(o.cancelled, id) }

func (o *fakeOrders) Changed() <-chan struct{} { return o.changed }

func (o *fakeOrders) cancel(id string) { o.cancelled = append(o.cancelled, id) }
