//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

const stormMapping = `version: 1
team: items
pools: [item, note]
storm:
  item: {rows: 1000, pace: 20000}
mappings:
  - {name: item, table: "%[1]s.items", keys: ["item:{id}"]}
  - {name: note, table: "%[1]s.notes", keys: ["note:{id}"]}
`

// stormRows is what one statement updates; edits are made of rows beyond.
const stormRows = 60_000

// TestMassUpdate: a statement updates 60,000 rows. While its keys are deleted at their pool's pace, single rows of the same pool and of another one are
// edited: their keys go without waiting for it. In the end no key of any changed row is left on any node.
func TestMassUpdate(t *testing.T) {
	db := harness.NewDatabase(t, harness.MySQL)
	db.Do(t, "CREATE TABLE items (id INT PRIMARY KEY, ver INT NOT NULL)", "CREATE TABLE notes (id INT PRIMARY KEY, ver INT NOT NULL)",
		"SET SESSION cte_max_recursion_depth = 1000000")
	const fill = "INSERT INTO %s WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT /*+ SET_VAR(cte_max_recursion_depth = 1000000) */ i, 1 FROM n"
	const edits = 2000
	db.Do(t, fmt.Sprintf(fill, "items", stormRows+edits), fmt.Sprintf(fill, "notes", edits))
	nodes := harness.StartNodes(t, 2, "-m", "256")
	p := harness.New(t, harness.Options{
		Databases: []*harness.Database{db}, Mappings: map[string]string{"items.yaml": fmt.Sprintf(stormMapping, db.Schema)}, Settle: time.Second,
		Record: sink.Record{Shards: []sink.Shard{{ID: "s0", Weight: 1, Primary: sink.Node{Addr: nodes[0].Addr, Zone: "a"}, Replicas: []sink.Replica{{Addr: nodes[1].Addr, Zone: "b"}}}}},
	})
	p.Feed()
	p.Work()
	p.AwaitFeeding(db)
	db.Do(t, "UPDATE items SET ver = 2 WHERE id = 1", "UPDATE notes SET ver = 2 WHERE id = 1") // makes the topics, which the worker then has to find
	p.AwaitFed(db)
	p.AwaitDelivered()

	keys, sample := make([]string, stormRows), []string(nil)
	for i := range keys {
		if keys[i] = fmt.Sprint("item:", i+1); i%200 == 0 {
			sample = append(sample, keys[i])
		}
	}
	for _, n := range nodes {
		for some := range slices.Chunk(keys, 10_000) {
			if err := n.SetAll(some, "v"); err != nil {
				t.Fatal(err)
			}
		}
	}
	began := time.Now()
	db.Do(t, fmt.Sprintf("UPDATE items SET ver = ver + 1 WHERE id <= %d", stormRows))
	committed := time.Now()
	harness.AwaitQuick(t, "the storm to be owed", func() (bool, string) {
		owed, err := p.Owed(t.Context())
		return err == nil && strings.Contains(strings.Join(owed, " "), "storm"), fmt.Sprint(owed, err)
	})
	first := time.Since(committed)
	p.AwaitFed(db) // an edit comes behind the statement in the database's log, whatever becomes of its rows then
	fed := time.Since(committed)

	latency := map[string][]time.Duration{}
	n := 0
	for ; n < edits-1 && left(t, nodes, sample) > 0; n++ {
		for pool, row := range map[string]int{"item": stormRows + n + 1, "note": n + 2} {
			latency[pool] = append(latency[pool], edit(t, db, nodes, pool, row))
		}
	}
	for pool, all := range latency {
		slices.Sort(all)
		t.Logf("%s: %d edits in the storm, p50 %v, p99 %v, longest %v", pool, len(all), all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
		if half := all[len(all)/2]; half > 2*time.Second {
			t.Errorf("an edit of pool %s took %v to be deleted", pool, half)
		}
	}
	if n < 3 {
		t.Errorf("only %d edits fell into the storm", n)
	}
	t.Logf("the statement took %v; after it, the first rows were owed by %v, all were fed by %v, and all were gone by %v", committed.Sub(began), first, fed, time.Since(committed))
	p.AwaitPaid()
	if n := left(t, nodes, keys); n > 0 {
		t.Errorf("%d copies are left", n)
	}
}

// left is how many copies of some keys there are.
func left(t *testing.T, nodes []*harness.Node, keys []string) (n int) {
	t.Helper()
	for _, node := range nodes {
		for some := range slices.Chunk(keys, 10_000) {
			there, err := node.Present(some)
			if err != nil {
				t.Fatal(err)
			}
			n += len(there)
		}
	}
	return n
}

// edit changes one row, and waits until its key is on no node. It returns how long that took from the commit.
func edit(t *testing.T, db *harness.Database, nodes []*harness.Node, pool string, row int) time.Duration {
	t.Helper()
	key := []string{fmt.Sprintf("%s:%d", pool, row)}
	for _, n := range nodes {
		if err := n.SetAll(key, "v"); err != nil {
			t.Fatal(err)
		}
	}
	db.Do(t, fmt.Sprintf("UPDATE %ss SET ver = ver + 1 WHERE id = %d", pool, row))
	at := time.Now()
	harness.AwaitQuick(t, key[0]+" to be deleted", func() (bool, string) {
		n := left(t, nodes, key)
		return n == 0, fmt.Sprint(n, " copies")
	})
	return time.Since(at)
}
