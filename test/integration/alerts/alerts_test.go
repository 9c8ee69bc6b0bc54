//go:build integration

package alerts

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

const mappingFile = `version: 1
team: items
contact: "#items"
pools: [item]
mappings:
  - {name: item, table: %s.items, keys: ["item:{id}"]}
`

// fleet is a feeder and two workers, which delete on a primary and its replica.
type fleet struct {
	*harness.Pipeline
	t       *testing.T
	db      *harness.Database
	nodes   []*harness.Node
	admins  []string // of the feeder, and of each worker
	feeder  *harness.Process
	workers []*harness.Process
	mapping string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, db: harness.NewDatabase(t, harness.MySQL), nodes: harness.StartNodes(t, 2)}
	if _, err := f.db.Exec("CREATE TABLE items (id INT PRIMARY KEY, note INT NOT NULL)"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.db.Exec("INSERT INTO items VALUES (1, 0), (2, 0), (3, 0), (4, 0)"); err != nil {
		t.Fatal(err)
	}
	f.mapping = fmt.Sprintf(mappingFile, f.db.Schema)
	f.Pipeline = harness.New(t, harness.Options{
		Databases: []*harness.Database{f.db}, Settle: 50 * time.Millisecond, Mappings: map[string]string{"items.yaml": f.mapping},
		Record: sink.Record{Shards: []sink.Shard{{ID: "s0", Weight: 1, Primary: sink.Node{Addr: f.nodes[0].Addr, Zone: "a"},
			Replicas: []sink.Replica{{Addr: f.nodes[1].Addr, Zone: "b"}}}}},
	})
	for range 3 {
		f.admins = append(f.admins, harness.FreeAddr(t))
	}
	f.feed()
	f.work()
	f.AwaitFeeding(f.db)
	f.change()
	f.AwaitDelivered()
	return f
}

func (f *fleet) start(command string, number int) *harness.Process {
	name := fmt.Sprint(command, number)
	file := f.Variant(name, "mappings: {dir: mappings.d}", "mappings: {dir: mappings.d}\nadmin: {listen: '"+f.admins[number]+"'}")
	return harness.Start(f.t, name, command, "--config", file)
}

func (f *fleet) feed() { f.feeder = f.start("feed", 0) }

func (f *fleet) work() { f.workers = []*harness.Process{f.start("run", 1), f.start("run", 2)} }

// change changes every row.
func (f *fleet) change() {
	f.t.Helper()
	if _, err := f.db.Exec("UPDATE items SET note = note + 1"); err != nil {
		f.t.Fatal(err)
	}
}

// write puts a text in place of the mapping file.
func (f *fleet) write(text string) {
	f.t.Helper()
	if err := os.WriteFile(filepath.Join(f.Dir, "mappings.d", "items.yaml"), []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

// What is harmed has its alerts, those alone, and until it is mended.
func TestAlerts(t *testing.T) {
	f := newFleet(t)
	p := startPrometheus(t, f.admins...)
	p.await("all processes to be scraped", `count(up == 1) == 3`)
	p.await("the source to be led", `invalidator_feed_leader == 1`)
	p.await("the workers to have partitions", `sum(invalidator_worker_partitions) > 0`)

	t.Log("a node is stopped")
	p.story(f.nodes[1].Kill, f.change, f.nodes[1].Start, alerts{"InvalidatorNodeOffForLong": "ticket"})

	t.Log("a feeder is cut off: it is frozen, as a host whose network is gone")
	p.story(f.feeder.Pause, f.change, f.feeder.Continue, alerts{"InvalidatorSourceHasNoLeader": "page", "InvalidatorProcessDown": "ticket"})

	t.Log("a mapping is broken")
	p.story(func() { f.write("version: 1\nteam: items\nmappings: [") }, nil, func() { f.write(f.mapping) }, alerts{"InvalidatorMappingFileInError": "ticket"})

	t.Log("all workers are stopped")
	p.story(func() {
		for _, w := range f.workers {
			w.Leave()
		}
		for _, w := range f.workers {
			w.Left()
		}
	}, nil, f.work, alerts{"InvalidatorLag": "page", "InvalidatorProcessDown": "ticket"})

	f.change()
	f.AwaitFed(f.db)
	f.AwaitDelivered()
	p.answersPanels()
}
