package pipeline

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"invalidator/internal/changelog"
	"invalidator/replay"
)

// fakeControl is the control topic as a worker follows it.
type fakeControl struct {
	mu        sync.Mutex
	orders    []Order
	cancelled []string
	changed   chan struct{}
	asked     int
}

func newFakeControl() *fakeControl { return &fakeControl{changed: make(chan struct{})} }

func (c *fakeControl) After(_ changelog.Partition, mark ControlMark) (behind []Order) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	for _, o := range c.orders {
		if o.Mark.Topic != mark.Topic || o.Mark.Offset > mark.Offset {
			behind = append(behind, o)
		}
	}
	return behind
}

func (c *fakeControl) Cancelled(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.cancelled, id)
}

func (c *fakeControl) Changed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

func (c *fakeControl) change(how func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how()
	close(c.changed)
	c.changed = make(chan struct{})
}

// plan has a plan for keys of pool user appear, of a window that ends now. since is the first offset that may have been committed in it; -1: the window is by what
// was sent.
func (c *fakeControl) plan(id string, from time.Time, to, since int64) {
	c.change(func() {
		o := Order{ID: id, Target: replay.Target{Pool: "user"}, Issued: since < 0, From: from, To: time.Now(), Mark: ControlMark{"c", int64(len(c.orders) + 1)},
			Range: replay.PlanRange{Topic: users.Topic, To: to}}
		if since >= 0 {
			o.Range.Since = &since
		}
		c.orders = append(c.orders, o)
	})
}

func (c *fakeControl) cancel(id string) {
	c.change(func() { c.cancelled = append(c.cancelled, id) })
}

// ordering is deliver with a control topic.
func ordering(t *testing.T, test func(t *testing.T, r *rig, c *fakeControl)) {
	t.Helper()
	deliver(t, func(t *testing.T, r *rig) {
		r.w.Revoke([]changelog.Partition{users})
		c := newFakeControl()
		r.w.opts.Orders = c
		r.w.Assign(users, 0, changelog.Restored{})
		test(t, r, c)
	})
}

// again are the offsets whose keys were deleted since they were last taken.
func (r *rig) again() (offsets []string) {
	for _, what := range r.nodes.take() {
		if id, is := strings.CutPrefix(what, "n1 user:"); is && !strings.Contains(id, "email") && !slices.Contains(offsets, id) {
			offsets = append(offsets, id)
		}
	}
	slices.Sort(offsets)
	return offsets
}

func (r *rig) wantAgain(t *testing.T, want ...string) {
	t.Helper()
	r.pass(gather + 3*settle)
	if got := r.again(); !slices.Equal(got, want) {
		t.Errorf("deleted again are %q, want %q", got, want)
	}
	r.wantDebts(t)
}

// REPLAY 4: a window by what was sent takes in what had a round in it, up to where the log ended when the plan was made.
func TestPlanOfWhatWasSent(t *testing.T) {
	ordering(t, func(t *testing.T, r *rig, c *fakeControl) {
		r.change(0, 1)
		r.pass(10 * time.Minute)
		r.change(2, 3, 4)
		r.pass(3 * settle)
		r.nodes.take()
		c.plan("a", time.Now().Add(-time.Minute), 4, -1)
		r.wantAgain(t, "2", "3")
		if got := r.state(t).Acted.Control; got != (ControlMark{"c", 1}) {
			t.Errorf("acted on %+v", got)
		}
		c.plan("b", time.Now().Add(-time.Hour), 5, -1)
		r.wantAgain(t, "0", "1", "2", "3", "4")
	})
}

// REPLAY 4: a line of the journal that was folded has its minute's last second; clocks differ. What may have had a round in the window is in it, and no more.
func TestPlanByLinesThatWereFolded(t *testing.T) {
	ordering(t, func(t *testing.T, r *rig, c *fakeControl) {
		begin := time.Now()
		for i := range int64(5) {
			r.pass(time.Until(begin.Add(time.Duration(i)*2*time.Minute + 5*time.Second)))
			r.change(i)
		}
		r.pass(2 * time.Hour)
		r.w.Finished([]changelog.Partition{users}) // tidies
		r.keeps(r.w.Finished([]changelog.Partition{users})[0])
		if n := len(r.w.partition(users).journal.mu.minutes); n > 1 {
			t.Fatalf("%d minutes are not folded", n)
		}
		r.nodes.take()
		c.change(func() {
			at := begin.Add(4*time.Minute + 5*time.Second) // of offset 2
			c.orders = append(c.orders, Order{ID: "a", Target: replay.Target{Pool: "user"}, Issued: true, From: at, To: at, Mark: ControlMark{"c", 1},
				Range: replay.PlanRange{Topic: users.Topic, To: 5}})
		})
		r.wantAgain(t, "2")
	})
}

// REPLAY 4: a window of commits takes in what was committed in it, though it was sent later, what was sent in it, though it was committed before, and what does not
// say when it was committed.
func TestPlanOfWhatWasCommitted(t *testing.T) {
	ordering(t, func(t *testing.T, r *rig, c *fakeControl) {
		send := func(offset int64, committed time.Time) {
			u := update(fmt.Sprint(offset), "a@x.test", "a@x.test")
			u.CommitTime = committed
			r.send(offset, u)
		}
		send(0, time.Now()) // before the window, and sent before it
		r.pass(10 * time.Minute)
		from := time.Now()
		send(1, from.Add(-time.Hour)) // sent in it
		r.pass(time.Minute)
		c.change(func() {}) // nothing is new
		to := time.Now()
		r.pass(10 * time.Minute)
		send(2, from.Add(30*time.Second)) // committed in it, sent after it
		send(3, time.Now())               // after it
		send(4, time.Time{})
		send(5, to.Add(time.Microsecond))
		send(6, to)
		send(7, from.Add(-time.Second)) // a source that tells whole seconds
		send(8, from.Add(-time.Second-time.Microsecond))
		r.pass(3 * settle)
		r.nodes.take()
		c.plan("a", from, 9, 2)
		c.change(func() { c.orders[0].To = to })
		r.wantAgain(t, "1", "2", "4", "6", "7")
	})
}

// REPLAY 4: what was sent in the window and has left the log is told to be lost; nothing was sent: that is told at once.
func TestPlanTellsItsEnd(t *testing.T) {
	ordering(t, func(t *testing.T, r *rig, c *fakeControl) {
		told := r.told()
		c.plan("nothing", time.Now().Add(-time.Hour), 0, -1)
		r.pass(time.Second)
		if want := (ProgressReport{ID: "nothing", Partition: users, Done: true}); len(*told) != 1 || fmt.Sprint((*told)[0]) != fmt.Sprint(want) {
			t.Fatalf("told %+v", *told)
		}
		r.change(0, 1, 2, 3)
		r.pass(3 * settle)
		r.nodes.take()
		r.past.start = 3
		c.plan("some", time.Now().Add(-time.Minute), 4, -1)
		r.wantAgain(t, "3")
		if last := (*told)[len(*told)-1]; !last.Done || last.ID != "some" || last.Lost != 3 {
			t.Errorf("told %+v", last)
		}
	})
}

// REPLAY 4, 7.6: whoever takes over goes on where the state says: with the plan, if that was acted on; if not, from the plan. Acting on it twice does no more than
// delete twice.
func TestPlanMovesWithThePartition(t *testing.T) {
	ordering(t, func(t *testing.T, r *rig, c *fakeControl) {
		r.change(0, 1, 2)
		r.pass(3 * settle)
		before := r.keeps(r.w.Finished([]changelog.Partition{users})[0])
		hold := make(chan struct{})
		r.past.hold = hold
		c.plan("a", time.Now().Add(-time.Minute), 3, -1)
		r.pass(gather)
		r.wantDebts(t, "replay a 0-3")
		after := r.keeps(r.w.Revoke([]changelog.Partition{users})[0])
		close(hold)
		r.nodes.take()

		r.w.Assign(users, 3, changelog.Restored{State: before.State, Journal: r.pages.records()}) // the commit of after was lost
		r.wantAgain(t, "0", "1", "2")
		r.w.Revoke([]changelog.Partition{users})

		r.w.Assign(users, 3, changelog.Restored{State: after.State, Journal: r.pages.records()})
		r.wantAgain(t, "0", "1", "2")
		done := r.keeps(r.w.Revoke([]changelog.Partition{users})[0])

		r.w.Assign(users, 3, changelog.Restored{State: done.State, Journal: r.pages.records()})
		r.wantAgain(t)
		c.plan("b", time.Now().Add(-time.Hour), 1, -1)
		r.wantAgain(t, "0")
	})
}

// REPLAY 4: what was cancelled is owed no more, whoever owns the partition then, and other replays go on.
func TestPlanIsCancelledWhileThePartitionMoves(t *testing.T) {
	ordering(t, func(t *testing.T, r *rig, c *fakeControl) {
		r.change(0, 1, 2)
		r.pass(3 * settle)
		hold := make(chan struct{})
		r.past.hold = hold
		c.plan("a", time.Now().Add(-time.Minute), 2, -1)
		c.plan("b", time.Now().Add(-time.Minute), 1, -1)
		r.pass(gather)
		r.wantDebts(t, "replay a 0-2", "replay b 0-1")
		k := r.keeps(r.w.Revoke([]changelog.Partition{users})[0])
		close(hold)
		r.nodes.take()
		c.cancel("a")
		r.w.Assign(users, 3, changelog.Restored{State: k.State, Journal: r.pages.records()})
		r.wantAgain(t, "0")
	})
}

// Plans are looked for when there are others, and not with each record.
func TestPlansAreAskedForWhenTheyChange(t *testing.T) {
	ordering(t, func(t *testing.T, r *rig, c *fakeControl) {
		for i := range int64(100) {
			r.change(i)
			r.pass(time.Millisecond)
		}
		c.change(func() {})
		r.pass(time.Minute)
		if c.asked != 2 {
			t.Errorf("asked %d times", c.asked)
		}
	})
}

func TestActedOf(t *testing.T) {
	to := int64(3)
	s := State{V: stateVersion, Acted: Acted{Control: ControlMark{"c", 7}}, Debts: []Debt{
		{Kind: KindReplay, Name: "a", To: &to, Order: &Order{ID: "a"}}, {Kind: KindNode, Name: "n1:1"}, {Kind: KindReplay, Name: "b", To: &to, Order: &Order{ID: "b"}},
	}}
	mark, replays, err := ActedOf(s.encode())
	if err != nil || mark != s.Acted.Control || !slices.Equal(replays, []string{"a", "b"}) {
		t.Errorf("%+v, %q, %v", mark, replays, err)
	}
	if mark, replays, err := ActedOf([]byte(`{"v":2,"offset":3,"debts":[],"journal":[]}`)); err != nil || mark != (ControlMark{}) || replays != nil {
		t.Errorf("of version 2: %+v, %q, %v", mark, replays, err)
	}
	for _, bad := range []string{`{"v":99}`, `{`, `{"v":3,"debts":[{"kind":"zone","name":"b","from":1,"to":null}]}`} {
		if _, _, err := ActedOf([]byte(bad)); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}
