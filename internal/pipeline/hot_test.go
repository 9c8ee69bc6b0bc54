package pipeline

import (
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

// hotter has the registry say that these keys are hot, at a revision.
func (r *rig) hotter(t *testing.T, revision int64, entries map[string]sink.HotEntry) {
	t.Helper()
	v := *r.views.View()
	v.Hot = sink.NewHotKeysOf(revision, revision, entries)
	r.views.Store(&v)
}

func hotEntry(copies int, revision int64) sink.HotEntry {
	return sink.HotEntry{Copies: copies, Revision: revision, Most: copies}
}

func (r *rig) wantActed(t *testing.T, want int64) {
	t.Helper()
	if got := r.state(t).Acted.HotRevision; got != want {
		t.Fatalf("acted on revision %d, want %d", got, want)
	}
}

// wantTimes wants so many deletes since the last take.
func (r *rig) wantTimes(t *testing.T, times int, what ...string) {
	t.Helper()
	for _, w := range what {
		if n := r.nodes.count(w); n != times {
			t.Errorf("%s: %d deletes, want %d", w, n, times)
		}
	}
}

// DESIGN 4.3: a key that becomes hot, changes or leaves has all its copies deleted, in two rounds; until that is done the state says that
// it was not acted on. One run serves all partitions.
func TestNewHotKeyHasAllCopiesDeleted(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.w.Assign(changelog.Partition{Topic: users.Topic, Number: 1}, 0, changelog.Restored{})
		r.wantActed(t, 1)
		r.hotter(t, 2, map[string]sink.HotEntry{"user:1": hotEntry(2, 2)})
		r.pass(gather)
		r.wantTimes(t, 1, "n1 user:1", "n2 user:1", "n1 user:1#1", "n2 user:1#2")
		r.wantActed(t, 1)
		r.pass(settle)
		r.wantTimes(t, 2, "n1 user:1", "n2 user:1", "n1 user:1#1", "n2 user:1#2")
		r.wantActed(t, 2)
		r.nodes.take()
		r.hotter(t, 3, map[string]sink.HotEntry{"user:1": {Revision: 3, Most: 2}, "user:2": hotEntry(1, 3)})
		r.pass(gather + settle)
		r.wantTimes(t, 2, "n1 user:1#2", "n1 user:2#1")
		r.wantActed(t, 3)
		r.nodes.take()
		r.hotter(t, 3, map[string]sink.HotEntry{"user:2": hotEntry(1, 3)}) // what left has expired
		r.pass(gather + settle)
		if got := r.nodes.take(); len(got) > 0 {
			t.Errorf("deleted %q", got)
		}
	})
}

// DESIGN 4.3: a node that does not answer holds back that key alone; when it is back, all rounds are done again.
func TestNodeThatIsOffHoldsBackItsHotKey(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		two := `{"epoch":8,"kind":"points160","shards":[{"id":"s0","weight":1,"primary":{"addr":"n1:1"},"replicas":[]},{"id":"s1","weight":1,"primary":{"addr":"n3:1"},"replicas":[]}]}`
		r.views.Store(view(t, two, nil))
		var first, third string // keys whose only copies, plain and #1, are on n1, and on n3
		for i := 1; first == "" || third == ""; i++ {
			key := fmt.Sprintf("user:%d", i)
			switch on := r.views.View().Topology.AppendCopies(nil, key, 1); {
			case on[0].Node != on[1].Node:
			case on[0].Node == "n1:1":
				first = key
			default:
				third = key
			}
		}
		r.pass(time.Second)
		r.nodes.turn("n1", false)
		r.hotter(t, 2, map[string]sink.HotEntry{third: hotEntry(1, 2)})
		r.pass(time.Millisecond)
		r.hotter(t, 3, map[string]sink.HotEntry{first: hotEntry(1, 3), third: hotEntry(1, 2)})
		r.pass(time.Minute)
		r.wantTimes(t, 2, "n3 "+third, "n3 "+third+"#1")
		r.wantActed(t, 2)
		r.change(0) // and the partition goes on
		r.pass(3 * settle)
		r.wantMark(t, 1)
		r.nodes.turn("n1", true)
		r.pass(settle / 2)
		r.wantTimes(t, 1, "n1 "+first)
		r.nodes.turn("n1", false)
		r.pass(time.Minute)
		r.wantActed(t, 2)
		r.nodes.turn("n1", true)
		r.pass(settle)
		r.wantTimes(t, 3, "n1 "+first, "n1 "+first+"#1")
		r.wantActed(t, 3)
	})
}

// DESIGN 4.3: the next owner deletes what its predecessor had not acted on, whatever it has seen itself before.
func TestNextOwnerActsOnHotKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.hotter(t, 9, map[string]sink.HotEntry{"user:1": hotEntry(1, 5), "user:2": hotEntry(1, 8)})
		s := State{V: stateVersion, Issued: Sight{7, 6}, Acted: actedOn(Sight{7, 6})}
		r.w.Assign(users, 0, changelog.Restored{State: s.encode()})
		r.pass(gather + settle)
		r.wantTimes(t, 2, "n1 user:2#1")
		r.wantTimes(t, 0, "n1 user:1#1")
		r.wantActed(t, 9)
	})
}

// A node that left the ring is not waited for.
func TestHotKeyDoesNotWaitForANodeThatLeft(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n1", false)
		r.hotter(t, 2, map[string]sink.HotEntry{"user:1": hotEntry(1, 2)})
		r.pass(time.Minute)
		r.wantActed(t, 1)
		hot := r.views.View().Hot
		v := view(t, strings.ReplaceAll(strings.Replace(plainRing, `"epoch":7`, `"epoch":8`, 1), "n1:1", "n3:1"), nil)
		r.views.Store(&registry.View{Topology: v.Topology, Hot: hot})
		r.pass(2 * settle)
		r.wantActed(t, 2)
		if got := r.nodes.take(); !slices.Contains(got, "n3 user:1#1") {
			t.Errorf("deleted %q", got)
		}
	})
}

// What a node refuses for good is told, and holds nothing back.
func TestRefusedHotKeyIsTold(t *testing.T) {
	deliver(t, func(t *testing.T, r *rig) {
		r.nodes.refuse.Store(true)
		r.hotter(t, 2, map[string]sink.HotEntry{"user:1": hotEntry(1, 2)})
		r.pass(gather + settle)
		r.wantActed(t, 2)
		if !strings.Contains(r.log.String(), "a node refuses a copy of a hot key") {
			t.Error(r.log.String())
		}
	})
}
