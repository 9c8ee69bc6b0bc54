//go:build integration

package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

const (
	rows   = 200
	copies = 4                    // of the one hot key, item:0
	pace   = 5 * time.Millisecond // between two changes
)

// A fleet goes from an earlier version to today's, and back, member by member. All the while rows change, and a node is away each time, so
// that what it is owed changes hands.
func TestUpgradeAndBack(t *testing.T) {
	earlier, today := earlierBinary(t), harness.Binary(t)
	f := newFleet(t)
	f.feeder = f.start(earlier, "feed")
	f.workers = []*harness.Process{f.start(earlier, "run"), f.start(earlier, "run")}
	f.deleted("the earlier version's fleet")

	stop := f.changing()
	f.rolled("to today's", today, earlier)
	f.rolled("back to the earlier one", earlier, today)
	stop()

	f.AwaitDelivered()
	f.AwaitPaid()
	for _, n := range f.nodes {
		f.gone(n, "when all is over", f.keys)
	}
	if n := f.Parked(); n > 0 {
		t.Errorf("%d records were parked", n)
	}
	for _, p := range f.all {
		for _, bad := range []string{"a gap: records of the log were lost", "cannot be used", "cannot be read"} {
			if log := p.Log(); strings.Contains(log, bad) {
				t.Errorf("somebody says %q", bad)
			}
		}
	}
	for _, w := range f.workers {
		w.Terminate()
	}
	f.feeder.Terminate()
}

// fleet is a pipeline over one table, whose keys are all at both of two nodes.
type fleet struct {
	*harness.Pipeline
	t    *testing.T
	db   *harness.Database
	keys []string

	nodes   []*harness.Node // the first always answers
	feeder  *harness.Process
	workers []*harness.Process // two
	all     []*harness.Process // that ever ran

	changes atomic.Int64
}

const mappings = `version: 1
team: items
pools: [item]
mappings:
  - {name: item, table: items, keys: ["item:{id}"]}
`

func newFleet(t *testing.T) *fleet {
	f := &fleet{t: t, db: harness.NewDatabase(t, harness.MySQL), nodes: harness.StartNodes(t, 2)}
	f.db.Do(t, "CREATE TABLE items (id INT PRIMARY KEY, ver INT NOT NULL)")
	for i := range rows {
		f.db.Do(t, fmt.Sprintf("INSERT INTO items VALUES (%d, 0)", i))
		f.keys = append(f.keys, fmt.Sprint("item:", i))
	}
	for i := range copies {
		f.keys = append(f.keys, fmt.Sprint("item:0#", i+1))
	}
	f.Pipeline = harness.New(t, harness.Options{
		Databases: []*harness.Database{f.db}, Settle: 100 * time.Millisecond,
		Mappings: map[string]string{"items.yaml": strings.Replace(mappings, "items,", f.db.Schema+".items,", 1)},
		Record: sink.Record{Shards: []sink.Shard{{
			ID: "s0", Weight: 1, Primary: sink.Node{Addr: f.nodes[0].Addr, Zone: "a"}, Replicas: []sink.Replica{{Addr: f.nodes[1].Addr, Zone: "b"}},
		}}},
	})
	f.Hot("item:0", copies)
	return f
}

// start starts a process of one of the versions, and waits until it has begun.
func (f *fleet) start(binary, command string) *harness.Process {
	f.t.Helper()
	p := harness.StartBinary(f.t, binary, command, command, "--config", f.File)
	f.all = append(f.all, p)
	if command == "run" {
		harness.Await(f.t, "the worker to start", func() (bool, string) { return strings.Contains(p.Log(), "worker started"), p.Log() })
	}
	return p
}

// change commits one change of a row, whose copies at a node are stale from then on.
func (f *fleet) change(at *harness.Node, id int) error {
	keys := f.keys[id : id+1]
	if id == 0 {
		keys = append([]string{"item:0"}, f.keys[rows:]...)
	}
	if err := at.SetAll(keys, "stale"); err != nil {
		return err
	}
	_, err := f.db.Exec("UPDATE items SET ver = ver + 1 WHERE id = ?", id)
	f.changes.Add(1)
	return err
}

// changing changes one row after the other until it is stopped. Stale copies come to the first node, which always answers.
func (f *fleet) changing() (stop func()) {
	ctx, cancel := context.WithCancel(f.t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for i := 0; ; i = (i + 1) % rows {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := f.change(f.nodes[0], i); err != nil {
				f.t.Errorf("changing a row: %v", err)
				return
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

// changed waits until every row has changed once more.
func (f *fleet) changed() {
	f.t.Helper()
	until := f.changes.Load() + rows
	harness.Await(f.t, "the rows to change", func() (bool, string) { n := f.changes.Load(); return n >= until, fmt.Sprint(n, " of ", until) })
}

// deleted changes some rows of every partition itself, and waits until nothing of them is left at the first node.
func (f *fleet) deleted(who string) {
	f.t.Helper()
	for id := range 20 {
		if err := f.change(f.nodes[0], id); err != nil {
			f.t.Fatal(err)
		}
	}
	f.gone(f.nodes[0], who, f.keys[:20])
}

// gone waits until none of the keys was ever looked for in vain: each has been away at least once.
func (f *fleet) gone(n *harness.Node, who string, keys []string) {
	f.t.Helper()
	left := map[string]bool{}
	for _, k := range keys {
		left[k] = true
	}
	harness.Await(f.t, who+" to delete what is stale at "+n.Addr, func() (bool, string) {
		there, err := n.Present(keys)
		if err != nil {
			return false, err.Error()
		}
		still := map[string]bool{}
		for _, k := range there {
			still[k] = left[k]
		}
		for k := range left {
			if !still[k] {
				delete(left, k)
			}
		}
		return len(left) == 0, fmt.Sprint(len(left), " keys are left")
	})
}

// rolled replaces the members of one version by those of another, while the second node is away for what both do.
func (f *fleet) rolled(which, to, from string) {
	f.t.Helper()
	away := f.nodes[1]
	if err := away.SetAll(f.keys, "stale"); err != nil {
		f.t.Fatal(err)
	}
	away.Freeze()
	f.changed()
	harness.Await(f.t, "the node that is away to be owed", func() (bool, string) { return f.owes(away.Addr) })

	first := f.start(to, "run") // three of two versions
	f.sees(to, from)
	f.deleted(which + ": both versions")
	f.workers[0].Terminate()
	f.deleted(which + ": one of each")
	feeder := f.start(to, "feed") // it stands by
	f.feeder.Terminate()
	f.feeder = feeder
	f.deleted(which + ": the other feeder")
	second := f.start(to, "run")
	f.workers[1].Kill() // what it had begun is done again
	f.workers = []*harness.Process{first, second}
	f.deleted(which + ": the other version alone")
	if owed, said := f.owes(away.Addr); !owed {
		f.t.Errorf("%s: nothing of what the node is owed was taken over: %s", which, said)
	}
	away.Thaw()
	f.gone(away, which+": who took over the debts", f.keys)
}

// owes says whether the workers' states say that a node is owed.
func (f *fleet) owes(node string) (bool, string) {
	owed, err := f.Owed(f.t.Context())
	said := strings.Join(owed, "; ")
	return err == nil && strings.Contains(said, "node "+node), fmt.Sprint(said, err)
}

// sees waits until either version's status knows all processes: three workers and a feeder.
func (f *fleet) sees(binaries ...string) {
	f.t.Helper()
	for _, b := range binaries {
		harness.Await(f.t, "the status to know all processes", func() (bool, string) {
			out, err := in(f.Dir, b, "status", "--json", "--config", f.File).Output() // what it finds wrong is an exit code
			processes := 0
			for line := range strings.Lines(string(out)) {
				var said struct {
					Process string
					Lost    bool // killed
				}
				if jerr := json.Unmarshal([]byte(line), &said); jerr != nil {
					return false, fmt.Sprint(jerr, err)
				}
				if said.Process != "" && !said.Lost {
					processes++
				}
			}
			return processes == 4, string(out)
		})
	}
}
