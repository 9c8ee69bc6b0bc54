//go:build integration

package debezium

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// What empties a table here: on MySQL and on Postgres.
var emptying = map[harness.Kind][]string{
	harness.MySQL: {
		"TRUNCATE TABLE `emptied`", "DROP TABLE /* both */ dropped, dropped2", "RENAME TABLE renamed TO other, child TO renamed", "ALTER TABLE emptied ADD c int",
		"ALTER TABLE parts TRUNCATE PARTITION p0", "ALTER TABLE parts DROP PARTITION p0",
	},
	harness.Postgres: {"TRUNCATE emptied, child", "DROP TABLE dropped, dropped2", "ALTER TABLE renamed RENAME TO other"},
}

// TestC6I6TruncatesOfDebezium: what real Debezium tells of tables that lose their rows, with skipped.operations as it is by default and with
// none, on the tables' topics and on that of schema changes; and that the DROPs before a snapshot are none.
func TestC6I6TruncatesOfDebezium(t *testing.T) {
	my, pg := harness.NewDatabase(t, harness.MySQL), harness.NewDatabase(t, harness.Postgres)
	for _, d := range []*harness.Database{my, pg} {
		for _, name := range []string{ready, done, "emptied", "dropped", "dropped2", "renamed", "child"} {
			d.Do(t, "CREATE TABLE "+name+" (id int PRIMARY KEY)", "INSERT INTO "+name+" VALUES (7)")
		}
	}
	my.Do(t, "CREATE TABLE parts (id int PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))")
	p := harness.New(t, harness.Options{
		Record: sink.Record{Shards: []sink.Shard{{ID: "s0", Weight: 1, Primary: sink.Node{Addr: "127.0.0.1:1"}}}}, Settle: time.Second, // nobody asks it
		Sources: "  - {name: unused, topics: {pattern: unused}, first_start: latest}\n",
	})
	const byDefault, none = "default", "none"
	schemaChanges := []string{"child renamed", "dropped", "dropped2", "parts", "renamed other"}
	routes := []struct {
		db      *harness.Database
		skipped string
		want    []string // what one record empties
	}{
		{my, byDefault, schemaChanges},
		{my, none, slices.Sorted(slices.Values(append([]string{"emptied"}, schemaChanges...)))},
		{pg, byDefault, nil},
		{pg, none, []string{"child", "emptied"}},
	}
	// Schema changes are on a topic that is named like the prefix: what stands before the dot is the test's own.
	prefix := func(i int) string { return fmt.Sprintf("%s-%d.dbz", p.ID, i) }
	var connectors []harness.Properties
	for i, r := range routes {
		c := harness.Connector(r.db, prefix(i), i%2 == 1)
		if r.skipped == none {
			c["skipped.operations"] = none
		}
		if r.db == my {
			c["include.schema.changes"], c["snapshot.mode"] = "true", "initial"
		} else {
			slot := strings.NewReplacer("-", "_", ".", "_").Replace(prefix(i))
			c["slot.name"], c["publication.name"] = slot, slot
		}
		connectors = append(connectors, c)
	}
	k := openKafka(t)
	connect := harness.StartConnect(t, t.TempDir(), harness.QuickJava, connectors)
	connect.AwaitRunning(t)
	for i, r := range routes {
		awaitReading(t, k, r.db, prefix(i))
	}
	for _, d := range []*harness.Database{my, pg} {
		d.Do(t, emptying[d.Kind]...)
		d.Do(t, "INSERT INTO "+done+" VALUES (1)")
	}
	for i, r := range routes {
		topic := prefix(i) + "." + r.db.Schema + "." + done
		harness.Await(t, "a row on "+topic, func() (bool, string) { return k.holds(t, topic), "none came" })
	}
	connect.Stop(t)
	for i, r := range routes {
		t.Run(string(r.db.Kind)+"/"+r.skipped, func(t *testing.T) {
			got, ddl := truncates(t, k, prefix(i), r.db)
			if !slices.Equal(got, r.want) {
				t.Errorf("truncates of %q, want %q", got, r.want)
			}
			if snapshot := 9; r.db == my && ddl < snapshot { // a DROP of each table, and of the database
				t.Errorf("%d schema changes are ignored, want those of the snapshot", ddl)
			}
		})
	}
}

// truncates are the distinct sets of tables that a record on a connector's topics empties, and how many schema changes empty none.
func truncates(t *testing.T, k kafka, prefix string, db *harness.Database) (all []string, ddl int) {
	t.Helper()
	none := cdc.NewColumns(nil)
	decoder, err := envelope.NewDecoder(envelope.Config{Select: func(string, cdc.TableID) *cdc.Columns { return none }})
	if err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(prefix, ".")
	for _, records := range k.read(t, head) {
		for _, r := range records {
			c, ignored, err := decoder.Decode(envelope.Record{Topic: r.Topic, Key: r.Key, Value: r.Value})
			if err != nil {
				t.Errorf("%v\n%s", err, r.Value)
				continue
			}
			if ignored == envelope.IgnoredDDL {
				ddl++
			}
			if c == nil || c.Op != cdc.Truncate {
				continue
			}
			all = append(all, strings.ReplaceAll(strings.Join(c.Emptied(), " "), db.Schema+".", ""))
		}
	}
	slices.Sort(all)
	return slices.Compact(all), ddl
}
