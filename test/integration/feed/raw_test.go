//go:build integration

package feed

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/test/integration/harness"
)

// oddDatabase is a database whose tables lie in a schema with a name that needs quotes.
func oddDatabase(t *testing.T, kind harness.Kind) *harness.Database {
	d := harness.NewDatabase(t, kind)
	d.Schema = "My-Schema Ü " + d.Name[len(d.Name)-4:]
	d.Do(t, "CREATE SCHEMA "+quote(d, d.Schema))
	if kind != harness.Postgres {
		t.Cleanup(func() {
			if _, err := d.Exec("DROP SCHEMA " + quote(d, d.Schema)); err != nil {
				t.Error(err)
			}
		})
	}
	return d
}

func quote(d *harness.Database, name string) string {
	if d.Kind == harness.Postgres {
		return `"` + name + `"`
	}
	return "`" + name + "`"
}

// What lies on the topics, in the words of a tool that knows nothing of us: each table's rows on its own topic whatever its
// name is, the last digit of every value, a changed key under both keys, a row that is too large in part.
func TestRecordsOnTheTopics(t *testing.T) {
	var dbs []*harness.Database
	for _, kind := range harness.Kinds {
		dbs = append(dbs, oddDatabase(t, kind))
	}
	p := pipeline(t, dbs...)
	for _, d := range dbs {
		table := func(name string) string { return quote(d, d.Schema) + "." + quote(d, name) }
		id, text := "bigint unsigned", "longtext"
		if d.Kind == harness.Postgres {
			id, text = "numeric(20)", "text"
		}
		d.Do(t,
			fmt.Sprintf("CREATE TABLE %s (id %s PRIMARY KEY, amount decimal(20,2), at timestamp(6) NULL, note %s, body %s)", table("items"), id, text, text),
			fmt.Sprintf("CREATE TABLE %s (a int, b varchar(20), note varchar(20), PRIMARY KEY (b, a))", table("User Table")),
			fmt.Sprintf("CREATE TABLE %s (a int)", table("ORDERS")),
			fmt.Sprintf("CREATE TABLE %s (a int PRIMARY KEY)", table("übersicht.2")))
		if d.Kind == harness.Postgres {
			d.Do(t, fmt.Sprintf("ALTER TABLE %s REPLICA IDENTITY FULL", table("ORDERS")))
		}
	}
	feeder := p.Feed()
	p.AwaitFeeding(dbs...)
	for _, d := range dbs {
		table := func(name string) string { return quote(d, d.Schema) + "." + quote(d, name) }
		d.Do(t,
			fmt.Sprintf("INSERT INTO %s VALUES (18446744073709551615, 500.00, '2026-11-30 01:02:03.123456', 'n', 'b')", table("items")),
			fmt.Sprintf("UPDATE %s SET body = '%s'", table("items"), strings.Repeat("x", 2<<20)),
			fmt.Sprintf("INSERT INTO %s VALUES (1, 'x', 'first')", table("User Table")),
			fmt.Sprintf("UPDATE %s SET b = 'ÿ \"', note = 'moved'", table("User Table")),
			fmt.Sprintf("INSERT INTO %s VALUES (7)", table("ORDERS")),
			fmt.Sprintf("DELETE FROM %s", table("ORDERS")),
			fmt.Sprintf("INSERT INTO %s VALUES (3)", table("übersicht.2")))
		if d.Kind == harness.Postgres {
			d.Do(t, "SELECT pg_logical_emit_message(true, 'cache', repeat('x', 2000000))", "SELECT pg_logical_emit_message(false, 'cache', 'feed:42')")
		}
	}
	p.AwaitFed(dbs...)
	feeder.Terminate()
	topics := readTopics(t, p)
	harness.Await(t, "the topics", func() (bool, string) {
		n := len(topics.cl.GetConsumeTopics())
		return n >= 4*len(dbs)+1, fmt.Sprintf("%d of them", n)
	})
	all := topics.all(t)
	for _, d := range dbs {
		t.Run(string(d.Kind), func(t *testing.T) { checkRecords(t, p, d, all) })
	}
}

func checkRecords(t *testing.T, p *harness.Pipeline, d *harness.Database, all []*kgo.Record) {
	of := func(table string) (rs []*kgo.Record) {
		for _, r := range all {
			if c := parse(t, r); c.Source.Name == p.Source(d.Kind) && c.Source.Table == table {
				schema := c.Source.Schema
				if d.Kind != harness.Postgres {
					schema = c.Source.DB
				}
				if table != "" && schema != d.Schema {
					t.Errorf("%s: schema %q", table, schema)
				}
				rs = append(rs, r)
			}
		}
		return rs
	}

	items := of("items")
	if len(items) != 2 {
		t.Fatalf("%d records of items", len(items))
	}
	id := `18446744073709551615`
	if d.Kind == harness.Postgres {
		id = `"` + id + `"` // numeric is text, as Debezium's decimal.handling.mode=string has it
	}
	for i, want := range []string{
		fmt.Sprintf(`"after":{"id":%s,"amount":"500.00","at":"2026-11-30 01:02:03.123456","note":"n","body":"b"}`, id),
		fmt.Sprintf(`"after":{"id":%s,"note":"n"}`, id), // slim: its key, and the column that a mapping names
	} {
		if v := string(items[i].Value); string(items[i].Key) != fmt.Sprintf(`{"id":%s}`, id) || !strings.Contains(v, want) {
			t.Errorf("key %s, value %.600s\nwant %s", items[i].Key, v, want)
		}
	}
	if v := string(items[1].Value); !strings.Contains(v, `"slim":true`) || len(v) > 2000 {
		t.Errorf("%d bytes: %.600s", len(v), v)
	}

	var moves []string
	for _, r := range of("User Table") {
		c := parse(t, r)
		moves = append(moves, fmt.Sprintf("%s %s %v", c.Op, r.Key, c.After["note"]))
	}
	slices.Sort(moves) // they lie in two partitions
	key := `{"b":%s,"a":1}`
	if d.Kind == harness.Postgres { // its log does not tell the key's order: the columns stand as in the table
		key = `{"a":1,"b":%s}`
	}
	was, is := fmt.Sprintf(key, `"x"`), fmt.Sprintf(key, `"ÿ \""`)
	if want := []string{"c " + was + " first", "c " + is + " moved", "d " + was + " <nil>"}; !slices.Equal(moves, want) {
		t.Errorf("a changed key:\n%s\nwant\n%s", strings.Join(moves, "\n"), strings.Join(want, "\n"))
	}

	orders := of("ORDERS")
	if len(orders) != 2 || orders[0].Key != nil || orders[1].Key != nil {
		t.Errorf("a table without a key: %d records", len(orders))
	}
	if n := len(of("übersicht.2")); n != 1 {
		t.Errorf("%d records of übersicht.2", n)
	}
	if d.Kind == harness.Postgres {
		if n := len(of("")); n != 2 {
			t.Errorf("%d messages", n)
		}
	}
	likeDebezium(t, d.Kind, items[0].Value)
}

// likeDebezium compares our record's fields, but for the row's own, with those of Debezium's records of the same server.
func likeDebezium(t *testing.T, kind harness.Kind, value []byte) {
	sample := map[harness.Kind]string{harness.MySQL: "mysql", harness.MariaDB: "mysql", harness.Postgres: "postgres"}[kind]
	file, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "debezium-samples", "plain."+sample+".shop.users.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string]map[string]bool{}
	for line := range strings.Lines(string(file)) {
		var r struct{ Payload string }
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Payload != "" {
			collect(t, theirs, "", []byte(r.Payload))
		}
	}
	ours := map[string]map[string]bool{}
	collect(t, ours, "", value)
	row := regexp.MustCompile(`^(before|after|source\.invalidator)\.|^source\.invalidator$`)
	for name, types := range ours {
		for typ := range types {
			if !row.MatchString(name) && typ != "null" && !theirs[name][typ] {
				t.Errorf("%s is of type %s, Debezium's of %v", name, typ, theirs[name])
			}
		}
	}
	for _, name := range []string{"before", "after", "op", "ts_ms", "source.connector", "source.name", "source.db", "source.table", "source.ts_ms", "source.snapshot", "source.version"} {
		if ours[name] == nil {
			t.Errorf("there is no %s", name)
		}
	}
}

// collect notes the JSON types of every field.
func collect(t *testing.T, types map[string]map[string]bool, name string, data []byte) {
	typ := map[byte]string{'{': "object", '[': "array", '"': "string", 't': "boolean", 'f': "boolean", 'n': "null"}[data[0]]
	if typ == "" {
		typ = "number"
	}
	if types[name] == nil {
		types[name] = map[string]bool{}
	}
	types[name][typ] = true
	if typ != "object" {
		return
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	for field, value := range fields {
		collect(t, types, strings.TrimPrefix(name+"."+field, "."), value)
	}
}
