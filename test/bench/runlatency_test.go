//go:build bench

package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

const (
	changesAtOnce = 50                     // of a transaction
	everySoOften  = 10 * time.Millisecond  // one is committed: 5,000 changes a second
	badPhase      = 20 * time.Second       // how long a node is bad
	keepsUp       = 100 * time.Millisecond // the worker has joined its group and caught up when a commit takes less, so many times in a row
	keptUp        = 20
	awayFor       = 60 * time.Second
	slowAnswer    = 100 * time.Millisecond
	flapEvery     = 2 * time.Second
	freshGoal     = 50 // ms, the 99th percentile
	catchUpGoal   = 7  // s: a tenth of the time away, and settle between its two rounds
	bad           = 0  // the node that is bad, a primary
)

// load is many small transactions through the whole path, and taps that note when each copy was deleted.
type load struct {
	db   *harness.Database
	p    *harness.Pipeline
	taps []*tap
	ring *sink.Ring

	mu        sync.Mutex // guards committed
	committed []commit
	failed    error // of who writes; to be read when that has ended
}

type commit struct {
	at    time.Time
	first int // id, of changesAtOnce
}

// latency is the time from a commit in the database to the acknowledgement of the last copy of its keys, at 5,000 changes a second: steady,
// and on the other nodes while one of eight is dead, slow, flaps, and catches up.
func latency(t *testing.T) {
	l := newLoad(t)
	feeder, worker := l.p.Feed(), l.p.Work()
	l.p.AwaitFeeding(l.db)
	writing := background(l.write)
	stop := sync.OnceFunc(writing)
	t.Cleanup(stop)
	l.awaitFresh(t)

	node := l.taps[bad]
	l.phase(t, "steady", nil, func() (end func()) { return func() {} })
	l.phase(t, "one_dead", node, func() (end func()) { node.lose(); return node.back })
	l.phase(t, "one_slow", node, func() (end func()) {
		node.slow.Store(int64(slowAnswer))
		return func() { node.slow.Store(0) }
	})
	l.phase(t, "one_flapping", node, func() (end func()) { return background(node.flap) })
	l.catchUp(t, node)
	stop()
	if l.failed != nil {
		t.Fatal(l.failed)
	}
	l.p.AwaitFed(l.db)
	l.p.AwaitDelivered()
	worker.Terminate()
	feeder.Terminate()
}

func newLoad(t *testing.T) *load {
	l := &load{db: harness.NewDatabase(t, harness.MySQL)}
	l.db.Do(t, "CREATE TABLE users (id BIGINT PRIMARY KEY, email VARCHAR(80), name VARCHAR(80), note VARCHAR(200))")
	for _, n := range harness.StartNodes(t, runNodes, "-t", "1") {
		l.taps = append(l.taps, newTap(t, n))
	}
	addrs := make([]string, len(l.taps))
	for i, p := range l.taps {
		addrs[i] = p.addr
	}
	record := pairsOf(addrs)
	l.ring = sink.NewRing(record.Shards)
	l.p = harness.New(t, harness.Options{
		Databases: []*harness.Database{l.db}, Record: record, Settle: time.Second,
		Mappings: map[string]string{"users.yaml": fmt.Sprintf(users, l.db.Schema+".users")},
	})
	return l
}

// write commits a transaction everySoOften until ctx ends. Where the database is slower than that, the load is less.
func (l *load) write(ctx context.Context) {
	tick := time.NewTicker(everySoOften)
	defer tick.Stop()
	for first := 0; ; first += changesAtOnce {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var rows strings.Builder
		for id := first; id < first+changesAtOnce; id++ {
			fmt.Fprintf(&rows, ", (%d, 'Somebody.%d@example.test', 'Some Body, of Somewhere', '%0100d')", id, id, 0)
		}
		if _, err := l.db.ExecContext(context.Background(), "INSERT INTO users VALUES "+rows.String()[2:]); err != nil {
			l.failed = err
			return
		}
		l.mu.Lock()
		l.committed = append(l.committed, commit{time.Now(), first})
		l.mu.Unlock()
	}
}

// awaitFresh waits until the worker keeps up with the load.
func (l *load) awaitFresh(t *testing.T) {
	t.Helper()
	fresh := 0
	harness.Await(t, "the worker to keep up", func() (bool, string) {
		last := l.since(time.Now().Add(-time.Second))
		if len(last) == 0 {
			return false, "nothing is committed"
		}
		took := l.took(t, last[len(last)-1:], nil)
		if fresh++; took[len(took)-1] > keepsUp {
			fresh = 0
		}
		return fresh >= keptUp, fmt.Sprintf("the last of a transaction took %s", took[len(took)-1])
	})
}

// since are the commits from a time on, so far.
func (l *load) since(from time.Time) []commit {
	l.mu.Lock()
	defer l.mu.Unlock()
	i, _ := slices.BinarySearchFunc(l.committed, from, func(c commit, at time.Time) int { return c.at.Compare(at) })
	return slices.Clone(l.committed[i:])
}

// phase reports how fresh the copies are on all nodes but one, while that one is bad.
func (l *load) phase(t *testing.T, name string, node *tap, begin func() (end func())) {
	t.Helper()
	from := time.Now()
	end := begin()
	<-time.After(badPhase / time.Duration(shrink(t)))
	commits := l.since(from)
	l.report(t, name, l.took(t, commits, node))
	end()
	if node != nil {
		l.awaitPaid(t, node, commits)
	}
}

// took waits until every copy of these commits is deleted on all nodes but one, and says how long after its commit the last of each row was.
func (l *load) took(t *testing.T, commits []commit, but *tap) []time.Duration {
	t.Helper()
	var out []time.Duration
	for _, c := range commits {
		for id := c.first; id < c.first+changesAtOnce; id++ {
			last := time.Duration(0)
			for _, k := range keysOf(id) {
				for _, p := range l.owners(k) {
					if p == but {
						continue
					}
					var s stamp
					harness.AwaitQuick(t, k+" to be deleted", func() (bool, string) { s = p.of(k); return s.count > 0, "" })
					last = max(last, time.Duration(s.first-c.at.UnixNano()))
				}
			}
			out = append(out, last)
		}
	}
	slices.Sort(out)
	return out
}

func keysOf(id int) []string {
	one, other := userKeys(id)
	return []string{one, other}
}

func (l *load) owners(key string) []*tap {
	i := 2 * l.ring.Owner(sink.Hash(key))
	return l.taps[i : i+2]
}

func (l *load) report(t *testing.T, name string, took []time.Duration) {
	t.Helper()
	if len(took) == 0 {
		t.Fatalf("%s: nothing was committed", name)
	}
	ms := func(share float64) float64 {
		return float64(took[int(share*float64(len(took)-1))].Microseconds()) / 1000
	}
	late, _ := slices.BinarySearch(took, time.Second)
	report(t, plain("run.p50_ms."+name, ms(0.5), "ms"))
	report(t, atMost("run.p99_ms."+name, ms(0.99), "ms", freshGoal))
	report(t, plain("run.p999_ms."+name, ms(0.999), "ms"))
	report(t, atLeast("run.within_1s."+name, 100*float64(late)/float64(len(took)), "%", 99.99))
}

// awaitPaid waits until a node has had every delete of these commits twice: those that it missed, in both rounds of a pass.
func (l *load) awaitPaid(t *testing.T, node *tap, commits []commit) {
	t.Helper()
	for _, c := range commits {
		for id := c.first; id < c.first+changesAtOnce; id++ {
			for _, k := range keysOf(id) {
				if slices.Contains(l.owners(k), node) {
					harness.AwaitQuick(t, k+" to be deleted twice", func() (bool, string) { return node.of(k).count > 1, "" })
				}
			}
		}
	}
}

// catchUp reports how long a node that was away takes to have had all that it missed, and how fresh the others are meanwhile.
func (l *load) catchUp(t *testing.T, node *tap) {
	t.Helper()
	node.lose()
	from := time.Now()
	<-time.After(awayFor / time.Duration(shrink(t)))
	missed := l.since(from)
	node.back()
	back := time.Now()
	l.awaitPaid(t, node, missed)
	report(t, atMost("run.catchup_s", time.Since(back).Seconds(), "s", catchUpGoal))
	l.report(t, "catching_up", l.took(t, l.since(back), node))
}

// flap makes the node one that is gone every other time, until ctx ends.
func (p *tap) flap(ctx context.Context) {
	defer p.back()
	tick := time.NewTicker(flapEvery)
	defer tick.Stop()
	for gone := true; ; gone = !gone {
		if gone {
			p.lose()
		} else {
			p.back()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
