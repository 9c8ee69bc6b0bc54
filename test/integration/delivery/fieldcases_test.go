//go:build integration

package delivery

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"invalidator/test/integration/harness"
)

// story is a world with a feeder and one worker process, in which one thing happens.
type story struct {
	*world
	file   string // the worker's configuration
	worker *harness.Process
	rows   int // that are there
}

// tell makes rows that every owner has a copy of. extra are lines of the configuration's cache section.
func tell(t *testing.T, rows int, extra string) *story {
	s := &story{world: newWorld(t, options{pairs: 2, rows: rows, settle: time.Second}), rows: rows}
	s.file = s.p.Variant("worker", "  settle:", extra+"  settle:")
	s.p.Feed()
	s.p.AwaitFeeding(s.db)
	var values []string
	for id := 1; id <= rows; id++ {
		values = append(values, fmt.Sprintf("(%d, %d, 1)", id, groupOf(id)))
	}
	s.db.Do(t, "INSERT INTO items VALUES "+strings.Join(values, ", "))
	s.p.AwaitFed(s.db)
	s.work()
	s.p.AwaitDelivered()
	for _, k := range s.keys {
		value, err := s.render(t.Context(), k)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range k.names(0) {
			for _, n := range s.owners(name) {
				if err := n.Set(name, value); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return s
}

func (s *story) work() { s.worker = harness.Start(s.t, "run", "run", "--config", s.file) }

// change commits a change of every row.
func (s *story) change() { s.db.Do(s.t, `UPDATE items SET ver = ver + 1`) }

// stale is how many of a node's copies differ from their rows; nil stands for all nodes but one.
func (s *story) stale(on func(*node) bool) (stale int) {
	s.t.Helper()
	_, _, found := s.check()
	for _, f := range found {
		if on(f.node) {
			stale++
		}
	}
	return stale
}

// A node that packets do not reach holds nobody up: every copy on the others is deleted, and the offsets move, while it is away. When it
// is back, all that it missed is deleted there: also where the worker was killed meanwhile, and where it was more than a queue holds.
func TestH5_H6_NodeIsCutOff(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, cache string
		rows        int
		restarted   bool
	}{
		{name: "and_comes_back", rows: 60},
		{name: "and_the_worker_is_killed", rows: 60, restarted: true},
		{name: "and_misses_more_than_its_queue_holds", rows: 3000, cache: "  node: {queue: 64KiB}\n", restarted: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := tell(t, test.rows, test.cache)
			lost := s.nodes[0]
			cut(t, lost.proxy)
			s.change()
			s.p.AwaitFed(s.db)
			if test.restarted {
				harness.Await(t, "the others to be told", func() (bool, string) {
					n := s.stale(func(n *node) bool { return n != lost })
					return n == 0, fmt.Sprint(n, " stale copies")
				})
				s.worker.Kill()
				s.work()
			}
			s.p.AwaitDelivered()
			if n := s.stale(func(n *node) bool { return n != lost }); n > 0 {
				t.Errorf("%d stale copies on other nodes", n)
			}
			if s.stale(func(n *node) bool { return n == lost }) == 0 {
				t.Error("the node was not cut off")
			}
			if owed, err := s.p.Owed(t.Context()); err != nil || !strings.Contains(strings.Join(owed, "\n"), lost.proxy.Listen) {
				t.Errorf("owed are %q (%v), and nothing to %s", owed, err, lost.proxy.Listen)
			}
			mend(t, lost.proxy)
			s.p.AwaitPaid()
			_, _, found := s.check()
			s.report(found)
			s.worker.Terminate()
		})
	}
}

// A node is stopped, records alternate between its keys and others', the worker is killed when the others' are done: the node's are
// deleted when both are back.
func TestG9_NodeIsStoppedAndTheWorkerKilled(t *testing.T) {
	t.Parallel()
	s := tell(t, 60, "")
	stopped := s.nodes[2]
	stopped.Freeze()
	s.change()
	others := func() (bool, string) { // the stopped one cannot be read
		n := 0
		for _, k := range s.keys {
			for _, name := range k.names(0) {
				for _, at := range s.owners(name) {
					if at == stopped {
						continue
					}
					if hit, err := at.Get(name); err != nil || hit.Found {
						n++
					}
				}
			}
		}
		return n == 0, fmt.Sprint(n, " copies are there")
	}
	harness.Await(t, "the others' copies to be deleted", others)
	s.worker.Kill()
	stopped.Thaw()
	if s.stale(func(n *node) bool { return n == stopped }) == 0 {
		t.Log("the stopped node carried out what lay in its socket") // which is one of the ways that it may go
	}
	s.work()
	s.p.AwaitFed(s.db)
	s.p.AwaitDelivered()
	s.p.AwaitPaid()
	_, _, found := s.check()
	s.report(found)
	s.worker.Terminate()
}

// Every place of a hot key is empty after a change, the plain one and eight copies on each one's primary and replica, though one replica is
// slow, and though somebody copies from replicas to primaries every 100 ms.
func TestH13_EveryCopyIsDeleted(t *testing.T) {
	t.Parallel()
	s := tell(t, 2*hotStep, "")
	hot := s.keys[itemKey(hotStep)]
	s.hot.set(hot.text, hotMost)
	s.p.Hot(hot.text, hotMost)
	harness.Await(t, "the worker to have acted on the hot key", func() (bool, string) {
		hit, err := s.owners(hot.text)[0].Get(hot.text)
		return err == nil && !hit.Found, fmt.Sprint(hit, err)
	})
	slow(t, s.nodes[1].proxy)
	places := func(each func(n *node, replica bool, name string)) {
		for _, name := range hot.names(hotMost) {
			at := s.owners(name)
			each(at[0], false, name)
			each(at[1], true, name)
		}
	}
	copying := func(ctx context.Context) {
		for ctx.Err() == nil {
			places(func(n *node, replica bool, name string) {
				if !replica {
					return
				}
				if hit, err := n.Get(name); err == nil && hit.Found {
					s.owners(name)[0].Set(name, hit.Value)
				}
			})
			pause(ctx, 100*time.Millisecond)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); copying(ctx) }()
	defer func() { cancel(); <-ended }()
	pause(ctx, 2*s.settle) // both rounds of the entry itself
	places(func(n *node, _ bool, name string) {
		if err := n.Set(name, "old"); err != nil {
			t.Error(err)
		}
	})
	s.db.Do(t, fmt.Sprintf(`UPDATE items SET ver = 9 WHERE id = %d`, hotStep))
	s.p.AwaitFed(s.db)
	s.p.AwaitDelivered()
	places(func(n *node, replica bool, name string) {
		if hit, err := n.Get(name); err != nil || hit.Found {
			t.Errorf("%s has %s: %+v (%v)", n.name, name, hit, err)
		}
	})
	s.worker.Terminate()
}

// A reader that read the old row stores it after the delete: plainly within settle, which the second round clears, and under a lease at any
// time, which is refused.
func TestH14_OldValueIsSetAfterTheDelete(t *testing.T) {
	t.Parallel()
	s := tell(t, 2*inGroup, "")
	k, other := s.keys[itemKey(3)], s.keys[itemKey(4)]
	plain, leased := s.owners(k.text)[0], s.owners(other.text)[0]
	if err := leased.Delete(other.text); err != nil {
		t.Fatal(err)
	}
	lease, err := leased.LeaseFor(other.text, leaseTime)
	if err != nil || !lease.Won {
		t.Fatalf("%+v, %v", lease, err)
	}
	old, err := s.render(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	s.change()
	harness.Await(t, "the first delete", func() (bool, string) {
		hit, err := plain.Get(k.text)
		return err == nil && !hit.Found, fmt.Sprint(hit, err)
	})
	deleted := time.Now()
	if err := plain.Set(k.text, old); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(deleted); took > s.settle/2 {
		t.Fatalf("the machine is too busy: %s", took)
	}
	harness.Await(t, "the second round", func() (bool, string) {
		hit, err := plain.Get(k.text)
		return err == nil && !hit.Found, fmt.Sprint(hit, err)
	})
	if stale := time.Since(deleted); stale > 5*s.settle {
		t.Errorf("the old value was there for %s, with settle %s", stale, s.settle)
	}
	s.p.AwaitFed(s.db)
	s.p.AwaitDelivered()
	if held, err := leased.Fill(other.text, "old", lease.CAS); err != nil || held {
		t.Errorf("a lease of before the delete holds (%v)", err)
	}
	_, _, found := s.check()
	s.report(found)
	s.worker.Terminate()
}
