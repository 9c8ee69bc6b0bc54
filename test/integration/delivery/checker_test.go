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

	"github.com/Shopify/toxiproxy/v2"

	"invalidator/internal/app"
	"invalidator/internal/config"
	"invalidator/internal/obs"
	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// TestCheckerCatches tests the test: a fleet that leaves one thing out must leave stale copies, of that kind alone, and the checker must
// find them. A fleet that leaves nothing out must leave none, under the same writes, the same late reader, the same lost node and the same
// changes of the ring.
func TestCheckerCatches(t *testing.T) {
	t.Parallel()
	lost, turned, carried := newCatch(t), newCatch(t), newCatch(t) // plays of each take turns
	tests := []struct {
		name   string
		catch  *catch
		play   func(*catch)
		left   func(l sink.Lane, cp sink.Copy, round int) bool // what is left out; nil: nothing
		caught func(stale) bool                                // whether a copy is what was left out
	}{
		{name: "nothing_left_out", catch: lost, play: (*catch).lose},
		{
			name: "copy", catch: lost, play: (*catch).lose,
			left:   func(_ sink.Lane, cp sink.Copy, _ int) bool { return lost.one(cp.Node, cp.Key) },
			caught: func(s stale) bool { return lost.one(s.node.addr(), s.name) },
		},
		{
			name: "debts", catch: lost, play: (*catch).lose,
			left:   func(l sink.Lane, _ sink.Copy, _ int) bool { return l == sink.Urgent || l == sink.Debts },
			caught: lost.onLost,
		},
		{
			name: "second_round", catch: lost, play: (*catch).lose,
			left:   func(_ sink.Lane, _ sink.Copy, round int) bool { return round > 1 },
			caught: func(s stale) bool { return s.node == lost.late.node && s.name == lost.late.name },
		},
		{name: "generation", catch: lost, play: (*catch).loseToZombie, caught: lost.onLost},
		{name: "nothing_left_out_of_turns", catch: turned, play: (*catch).turn},
		{ // what moves, but for promotions, is not deleted again
			name: "moves", catch: turned, play: (*catch).turn,
			left: func(l sink.Lane, cp sink.Copy, _ int) bool {
				return l == sink.Urgent && turned.first.shardOf(cp.Key) != turnedShard
			},
			caught: func(s stale) bool { return s.node == turned.joined },
		},
		{ // what was issued before the record was written is not deleted again
			name: "window", catch: turned, play: (*catch).turn,
			left:   turned.beforeRecord,
			caught: func(s stale) bool { return s.node == turned.nodes[1] && turned.again[s.name] },
		},
		{name: "nothing_left_out_of_carrying", catch: carried, play: (*catch).carry},
		{ // what a node missed is deleted on it alone
			name: "every_copy", catch: carried, play: (*catch).carry,
			left: func(l sink.Lane, cp sink.Copy, _ int) bool {
				return (l == sink.Urgent || l == sink.Debts) && cp.Node != carried.lost.addr()
			},
			caught: func(s stale) bool { return s.node == carried.joined && carried.again[s.name] },
		},
	}
	var all sync.WaitGroup
	for _, c := range []*catch{lost, turned, carried} {
		all.Go(func() {
			for _, test := range tests {
				if test.catch != c {
					continue
				}
				t.Run(test.name, func(t *testing.T) {
					c.t, c.left = t, test.left
					test.play(c)
					c.judge(test.caught)
				})
			}
		})
	}
	all.Wait()
}

// judge compares what the checker finds with what was left out; nil: nothing was.
func (c *catch) judge(caught func(stale) bool) {
	c.t.Helper()
	_, _, found := c.check()
	want := 0
	if caught == nil {
		c.report(found)
	} else {
		for _, s := range c.filled {
			if caught(s) {
				want++
			}
		}
		if want == 0 {
			c.t.Error("nothing was filled of what is left out")
		}
		for _, s := range found {
			if !caught(s) {
				c.t.Errorf("a stale copy that was not left out: %s", s)
			}
		}
	}
	if len(found) != want {
		c.t.Errorf("the checker found %d stale copies, want %d", len(found), want)
	}
	for _, s := range found { // so that the next play begins without
		if err := s.node.Delete(s.name); err != nil {
			c.t.Error(err)
		}
	}
}

const (
	catchRows  = 40 // of one play, at most
	catchPlays = 5  // of one catch, at most
)

// catch is a world in which fleets play that leave something out, each on rows of its own.
type catch struct {
	*world
	t     testing.TB
	file  string // a worker's configuration
	watch *toxiproxy.Proxy
	first *ring // the record with which plays begin
	lost  *node // a primary that workers do not reach for a while; to a replica more would be owed
	plays int   // that have begun

	// Of a play:
	left   func(l sink.Lane, cp sink.Copy, round int) bool
	row    int     // its first
	filled []stale // every copy that was filled, as if it were stale
	late   fill
	joined *node           // that a record added
	again  map[string]bool // names that a node has again, after they were deleted there
	issued issuedLive
}

func newCatch(t *testing.T) *catch {
	t.Helper()
	w := newWorld(t, options{pairs: 2, spare: 4, rows: catchRows * catchPlays, settle: 2 * time.Second})
	w.p.Feed()
	w.p.AwaitFeeding(w.db)
	c := &catch{world: w, lost: w.nodes[2], first: w.rings.newest(), watch: w.proxies.add(t, services.Addr("ETCD"))}
	c.file = w.p.Variant("worker", services.Addr("ETCD"), c.watch.Listen,
		"  settle:", "  node: {max_lag: 5s}\n  settle:") // no other node may be lost, however busy the machine
	return c
}

// open begins a play: it makes its rows and starts a worker, under a record of these shards.
func (c *catch) open(shards []sink.Shard, previous *sink.Previous) (ids []int, stop func()) {
	c.row, c.filled, c.again = 1+c.plays*catchRows, nil, map[string]bool{}
	c.plays++
	c.issued.record(time.Time{})
	var inserts []string
	for id := c.row + inGroup; id < c.row+catchRows-inGroup; id++ {
		inserts, ids = append(inserts, fmt.Sprintf(`INSERT INTO items VALUES (%d, %d, 1)`, id, groupOf(id))), append(ids, id)
	}
	c.db.Do(c.t, inserts...)
	c.p.AwaitFed(c.db)
	stop = c.work()
	c.ready() // after a record that nobody saw, what is gained later would be flushed
	if now := c.rings.newest(); previous != nil || now.Epoch > c.first.Epoch {
		c.publishNext(shards, previous)
		c.ready()
	}
	return ids, stop
}

// publishNext has a record of these shards in force.
func (c *catch) publishNext(shards []sink.Shard, previous *sink.Previous) {
	r := sink.Record{Epoch: c.rings.newest().Epoch + 1, Kind: sink.KindPoints160, At: time.Now(), Shards: shards, Previous: previous}
	c.publish(r, "the play's")
}

// keysOf are those of rows.
func (c *catch) keysOf(ids []int) (keys []*key) {
	for i, id := range ids {
		keys = append(keys, c.keys[itemKey(id)])
		if i == 0 || groupOf(ids[i-1]) != groupOf(id) {
			keys = append(keys, c.keys[groupKey(groupOf(id))])
		}
	}
	return keys
}

// change commits a change of each row.
func (c *catch) change(ids []int) {
	for _, id := range ids {
		c.db.Do(c.t, fmt.Sprintf(`UPDATE items SET ver = 2 WHERE id = %d`, id))
	}
}

// ready waits until the worker is done with all that came before, and has acted on the ring record.
func (c *catch) ready() {
	c.p.AwaitDelivered()
	c.p.AwaitActed(c.rings.newest().Epoch)
	c.p.AwaitPaid()
}

// one is one copy of the play's first group.
func (c *catch) one(addr, name string) bool {
	group := groupKey(groupOf(c.row) + 2)
	return name == group+"#1" && addr == c.owners(name)[0].addr()
}

func (c *catch) onLost(s stale) bool { return s.node == c.lost }

// lose fills every copy of some rows' keys, loses a node, commits a change of each row, lets one reader fill what it read before that, and gives the
// node back. When it returns nothing is owed any more.
func (c *catch) lose() { c.loseTo(false) }

// loseToZombie is lose, where a worker that was stopped before the node was lost writes its state over the new owner's.
func (c *catch) loseToZombie() { c.loseTo(true) }

func (c *catch) loseTo(zombie bool) {
	ids, stop := c.open(c.first.Shards, nil)
	for _, k := range c.keysOf(ids) {
		c.fillAll(k)
	}
	before := c.commits()

	cut(c.t, c.lost.proxy)
	c.change(ids)
	c.fillLate()
	c.owedToLost()
	if zombie {
		stop()
		c.putBack(before)
		stop = c.work()
	}
	mend(c.t, c.lost.proxy)
	c.p.AwaitPaid()
	stop()
}

// owedToLost waits until all copies are deleted but those on the node that is lost.
func (c *catch) owedToLost() {
	c.t.Helper()
	c.p.AwaitFed(c.db)
	c.p.AwaitDelivered()
	harness.Await(c.t, "the lost node to be owed to", func() (bool, string) {
		owed, err := c.p.Owed(c.t.Context())
		return strings.Contains(strings.Join(owed, ";"), c.lost.addr()), fmt.Sprint(owed, err)
	})
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
	for _, name := range k.names(0) {
		now, old := c.ownersUnder(c.rings.newest(), name)
		for _, n := range now {
			f := c.fillOne(k, name, n)
			if k.copies == 0 && !slices.Contains(now, c.lost) {
				c.late = f
			}
		}
		for _, n := range old {
			if !slices.Contains(now, n) {
				c.fillOne(k, name, n)
			}
		}
	}
}

// fillOne puts what the row renders into one copy.
func (c *catch) fillOne(k *key, name string, n *node) fill {
	c.t.Helper()
	value, err := c.render(c.t.Context(), k)
	if err != nil {
		c.t.Fatal(err)
	}
	f := fill{reader: "the warmer", key: k, name: name, node: n, from: time.Now(), value: value}
	c.put(f)
	return f
}

// put fills a copy.
func (c *catch) put(f fill) {
	c.t.Helper()
	if !c.fill(f) {
		c.t.Fatalf("%s on %s could not be filled", f.name, f.node.name)
	}
	if !slices.ContainsFunc(c.filled, func(s stale) bool { return s.node == f.node && s.name == f.name }) {
		c.filled = append(c.filled, stale{key: f.key, node: f.node, name: f.name, has: f.value})
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

// work runs a worker in this process, which leaves out what the play does. stop ends it.
func (c *catch) work() (stop func()) {
	conf, err := config.Load(c.file)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	a := &app.Worker{
		Config: conf, Registry: obs.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	if c.left != nil {
		a.Wrap = harness.LeaveOut(c.left)
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
