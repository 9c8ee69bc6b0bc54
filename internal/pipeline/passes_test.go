package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/internal/changelog"
)

func (s *slots) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

func (b *budget) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

// DELIVERY 6.8: so many passes read at once, a primary's first; those that wait out their rounds hold nobody up.
func TestPassesShareSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.w.slots = newSlots(1)
		id := func(n int32) changelog.Partition { return changelog.Partition{Topic: users.Topic, Number: n} }
		r.change(0)
		to := int64(1)
		state := func(node string) changelog.Restored {
			return changelog.Restored{State: State{V: stateVersion, Offset: 1, Debts: []Debt{{Kind: KindNode, Name: node, From: 0, To: &to}}}.encode()}
		}
		hold := make(chan struct{})
		r.past.hold = hold
		r.w.Assign(id(1), 1, state("n2:1"))
		r.pass(gather)
		for n := int32(2); n < 6; n++ {
			r.w.Assign(id(n), 1, state([]string{"n2:1", "n1:1"}[n/5]))
		}
		r.pass(time.Minute)
		if got := r.past.ranges(); len(got) != 1 {
			t.Fatalf("%d passes read", len(got))
		}
		r.w.slots.mu.Lock()
		urgent, others := len(r.w.slots.waiting[0]), len(r.w.slots.waiting[1])
		r.w.slots.mu.Unlock()
		if urgent != 1 || others != 3 {
			t.Fatalf("%d and %d wait", urgent, others)
		}
		close(hold)
		r.pass(time.Millisecond) // nobody waits for another's rounds
		if got := r.past.ranges(); len(got) != 5 {
			t.Errorf("%d passes have read", len(got))
		}
		r.pass(2 * settle)
		if r.w.slots.left() != 1 {
			t.Error("a slot is lost")
		}
	})
}

// DELIVERY 6.8: slots go to those in a hurry first.
func TestSlotsGoToTheHurriedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(1)
		if err := s.take(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		order := make(chan string, 2)
		for _, name := range []string{"other", "urgent"} {
			go func() {
				if s.take(t.Context(), name == "urgent") == nil {
					order <- name
				}
			}()
			synctest.Wait()
		}
		if !s.hurried() {
			t.Error("nobody seems in a hurry")
		}
		s.give()
		if got := <-order; got != "urgent" {
			t.Errorf("%s came first", got)
		}
		s.give()
		<-order
		s.give()
		if s.left() != 1 {
			t.Errorf("%d are free", s.left())
		}
	})
}

// DELIVERY 6.8: a pass holds so many changes, and all passes of a worker; what is finished makes room.
func TestPassesAreBounded(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.w.passing = newBudget(10)
		var all []int64
		for i := range int64(50) {
			all = append(all, i)
		}
		release := r.owing(t, all...)
		release()
		r.pass(time.Second / 2)
		n := 0
		for i := range all {
			n += r.nodes.count(fmt.Sprintf("n1 user:%d", i))
		}
		if n != 10 {
			t.Errorf("%d changes are in flight", n)
		}
		r.pass(20 * settle)
		r.wantDebts(t)
		for i := range all {
			r.wantTimes(t, 2, fmt.Sprintf("n1 user:%d", i))
		}
		if free := r.w.passing.left(); free != 10 {
			t.Errorf("%d free of 10", free)
		}
	})
}

// DELIVERY 6.9: a debt of a higher lane that is closed meanwhile makes a pass begin anew, at its mark; one of the same lane waits.
func TestPassBeginsAnewForAHigherLane(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.change(0, 1)
		r.pass(3 * settle)
		r.nodes.turn("n2", false)
		hold := make(chan struct{})
		r.past.hold = hold
		r.nodes.turn("n2", true)
		r.pass(gather)
		r.nodes.turn("n1", false)
		r.change(2)
		r.pass(3 * settle)
		r.nodes.turn("n1", true)
		r.pass(gather)
		if got := r.past.ranges(); !slices.Equal(got, []string{"0-2", "0-3"}) {
			t.Fatalf("read %q", got)
		}
		r.nodes.turn("n2", false) // of no higher lane than what runs
		r.nodes.turn("n2", true)
		r.pass(time.Second)
		if got := r.past.ranges(); len(got) != 2 {
			t.Fatalf("read %q", got)
		}
		close(hold)
		r.pass(time.Minute)
		r.wantDebts(t)
		if got := r.past.ranges(); len(got) != 3 {
			t.Errorf("read %q", got)
		}
	})
}

// DELIVERY 6.10: a pass ends with the revoke, and the next owner goes on at its mark.
func TestRevokedPassIsGoneOnWith(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		release := r.owing(t, 0, 1)
		release()
		r.pass(settle / 2)
		k := r.w.Revoke([]changelog.Partition{users})[0].Keep()
		r.nodes.take()
		r.pass(time.Minute)
		if got := r.nodes.take(); len(got) > 0 {
			t.Errorf("issued after the revoke: %q", got)
		}
		if s := stateIn(t, k); len(s.Debts) != 1 || s.Debts[0].From != 0 || *s.Debts[0].To != 2 {
			t.Errorf("debts %+v", s.Debts)
		}
		r.w.Assign(users, 2, changelog.Restored{State: k.State, Journal: k.Journal})
		r.pass(gather + 2*settle)
		r.wantTimes(t, 2, "n1 user:0", "n1 user:1")
		r.wantDebts(t)
	})
}

// A drain does not wait for passes.
func TestDrainLeavesPasses(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.owing(t, 0)
		began := time.Now()
		r.w.Drain(t.Context())
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %s", took)
		}
		r.wantDebts(t, "node n1 0-1")
	})
}

// A client that is closed ends a pass's try and pays nothing.
func TestClosedClientPaysNothing(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		release := r.owing(t, 0)
		nodes := &closingNodes{Deleter: r.nodes}
		nodes.closed.Store(true)
		r.w.opts.Deleter = nodes
		release()
		r.pass(time.Minute)
		r.wantDebts(t, "node n1 0-1")
	})
}
