//go:build integration

package delivery

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"invalidator/internal/app"
	"invalidator/internal/config"
	"invalidator/internal/obs"
	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// TestCheckerCatches tests the test: a fleet that leaves one thing out must leave stale copies, of that kind alone, and the checker must
// find them. A fleet that leaves nothing out must leave none, under the same writes, the same late reader and the same lost node.
func TestCheckerCatches(t *testing.T) {
	t.Parallel()
	w := newWorld(t, options{pairs: 2, rows: catchRows * 5, settle: 2 * time.Second})
	w.p.Feed()
	w.p.AwaitFeeding(w.db)
	c := &catch{world: w, lost: w.nodes[2]}
	c.file = w.p.Variant("worker", "  settle:", "  node: {max_lag: 5s}\n  settle:") // no other node may be lost, however busy the machine
	for i, test := range []struct {
		name   string
		worker func(*app.Worker)
		zombie bool             // a worker that was stopped before the node was lost writes its state over the new owner's
		caught func(stale) bool // whether a copy is what was left out
	}{
		{name: "nothing_left_out"},
		{
			name: "copy",
			worker: func(a *app.Worker) {
				a.Wrap = harness.LeaveOut(func(_ sink.Lane, cp sink.Copy, _ int) bool { return c.one(cp.Node, cp.Key) })
			},
			caught: func(s stale) bool { return c.one(s.node.proxy.Listen, s.name) },
		},
		{
			name: "debts",
			worker: func(a *app.Worker) {
				a.Wrap = harness.LeaveOut(func(l sink.Lane, _ sink.Copy, _ int) bool { return l == sink.Urgent || l == sink.Debts })
			},
			caught: c.onLost,
		},
		{
			name: "second_round",
			worker: func(a *app.Worker) {
				a.Wrap = harness.LeaveOut(func(_ sink.Lane, _ sink.Copy, round int) bool { return round > 1 })
			},
			caught: func(s stale) bool { return s.node == c.late.node && s.name == c.late.name },
		},
		{name: "generation", zombie: true, caught: c.onLost},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.t, c.first, c.filled = t, 1+i*catchRows, nil
			c.play(test.worker, test.zombie)
			_, _, found := c.check()
			want := 0
			if test.caught == nil {
				c.report(found)
			} else {
				for _, s := range c.filled {
					if test.caught(s) {
						want++
					}
				}
				if want == 0 {
					t.Error("nothing was filled of what is left out")
				}
				for _, s := range found {
					if !test.caught(s) {
						t.Errorf("a stale copy that was not left out: %s", s)
					}
				}
			}
			if len(found) != want {
				t.Errorf("the checker found %d stale copies, want %d", len(found), want)
			}
			for _, s := range found { // so that the next play begins without
				if err := s.node.Delete(s.name); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

const catchRows = 40 // of one play, at most

// catch is a play of TestCheckerCatches, on rows of its own.
type catch struct {
	*world
	t     *testing.T
	file  string // a worker's configuration
	lost  *node  // a primary that workers do not reach for a while; to a replica more would be owed
	first int    // row

	filled []stale // every copy that was filled, as if it were stale
	late   fill
}

// one is one copy of the play's first group.
func (c *catch) one(addr, name string) bool {
	group := groupKey(groupOf(c.first) + 2)
	return name == group+"#1" && addr == c.owners(name)[0].proxy.Listen
}

func (c *catch) onLost(s stale) bool { return s.node == c.lost }

// play fills every copy of some rows' keys, loses a node, commits a change of each row, lets one reader fill what it read before that,
// and gives the node back. When it returns nothing is owed any more.
func (c *catch) play(worker func(*app.Worker), zombie bool) {
	var inserts, updates []string
	var keys []*key
	for id := c.first + inGroup; id < c.first+catchRows-inGroup; id++ {
		inserts = append(inserts, fmt.Sprintf(`INSERT INTO items VALUES (%d, %d, 1)`, id, groupOf(id)))
		updates = append(updates, fmt.Sprintf(`UPDATE items SET ver = 2 WHERE id = %d`, id))
		keys = append(keys, c.keys[itemKey(id)])
		if id%inGroup == 0 {
			keys = append(keys, c.keys[groupKey(groupOf(id))])
		}
	}
	c.db.Do(c.t, inserts...)
	c.p.AwaitFed(c.db)
	stop := c.work(worker)
	c.p.AwaitDelivered()
	for _, k := range keys {
		c.fillAll(k)
	}
	before := c.commits()

	cut(c.t, c.lost.proxy)
	c.db.Do(c.t, updates...)
	c.fillLate()
	c.p.AwaitFed(c.db)
	c.p.AwaitDelivered()
	harness.Await(c.t, "the lost node to be owed to", func() (bool, string) {
		owed, err := c.p.Owed(c.t.Context())
		return strings.Contains(strings.Join(owed, ";"), c.lost.proxy.Listen), fmt.Sprint(owed, err)
	})
	if zombie {
		stop()
		c.putBack(before)
		stop = c.work(worker)
	}
	mend(c.t, c.lost.proxy)
	c.p.AwaitPaid()
	stop()
}

// commits are the states that stand now, as a worker that is stopped now remembers them.
func (c *catch) commits() []harness.Committed {
	c.t.Helper()
	out, err := c.p.Commits(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// putBack writes old states over those of now, as if a state's key did not say who wrote it.
func (c *catch) putBack(before []harness.Committed) {
	c.t.Helper()
	for _, now := range c.commits() {
		for _, b := range before {
			if b.Topic != now.Topic || b.Partition != now.Partition {
				continue
			}
			if err := c.p.PutState(c.t.Context(), now.Key, b.State); err != nil {
				c.t.Fatal(err)
			}
		}
	}
}

// fillAll puts what the row renders into every copy. The last key that has no copy on the lost node is the late reader's: nobody owes it
// a delete that would stand in for its second round.
func (c *catch) fillAll(k *key) {
	c.t.Helper()
	value, err := c.render(c.t.Context(), k)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, name := range k.names(0) {
		for _, n := range c.owners(name) {
			f := fill{reader: "the warmer", key: k, name: name, node: n, from: time.Now(), value: value}
			if !c.fill(f) {
				c.t.Fatalf("%s on %s could not be filled", name, n.name)
			}
			c.filled = append(c.filled, stale{key: k, node: n, name: name})
			if k.copies == 0 && !slices.Contains(c.owners(name), c.lost) {
				c.late = f
			}
		}
	}
}

// fillLate is a reader that read the row before it changed. It fills as soon as the first delete was seen, which is within settle on any
// machine that can run this test.
func (c *catch) fillLate() {
	c.t.Helper()
	f := c.late
	f.reader, f.from = "the late reader", time.Now()
	harness.Await(c.t, "the first delete of "+f.name, func() (bool, string) {
		hit, err := f.node.Get(f.name)
		return err == nil && !hit.Found, fmt.Sprint(hit, err)
	})
	seen := time.Now()
	if !c.fill(fill{reader: f.reader, key: f.key, name: f.name, node: f.node, from: seen, value: f.value}) || time.Since(seen) > c.settle/2 {
		c.t.Fatal("the machine is too busy for a reader that keeps to settle")
	}
}

// work runs a worker in this process. stop ends it.
func (c *catch) work(change func(*app.Worker)) (stop func()) {
	conf, err := config.Load(c.file)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	a := &app.Worker{
		Config: conf, Registry: obs.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if change != nil {
		change(a)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(stop)
	return stop
}
