//go:build integration

package debezium

import (
	"maps"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"invalidator/mapping"
	"invalidator/sink"
	"invalidator/test/integration/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(exit{m}) }

type exit struct{ m *testing.M }

func (e exit) Run() int {
	code := e.m.Run()
	harness.RemoveBinary()
	return code
}

var kinds = []harness.Kind{harness.MySQL, harness.Postgres}

// What a connector writes.
const (
	schema = "schema" // JSON with a schema
	plain  = "plain"  // without one
)

var formats = []string{schema, plain}

// TestKeys feeds the same statements through real Debezium and through our own feeder, and compares the keys.
func TestKeys(t *testing.T) {
	var dbs []*harness.Database
	for _, kind := range kinds {
		d, s := harness.NewDatabase(t, kind), shops[kind]
		s.create(t, d)
		dbs = append(dbs, d)
	}
	p := harness.New(t, harness.Options{
		Databases: dbs,
		Record:    sink.Record{Shards: []sink.Shard{{ID: "s0", Weight: 1, Primary: sink.Node{Addr: "127.0.0.1:1"}}}}, // nobody asks it
		Settle:    time.Second,
	})
	prefix := func(d *harness.Database, format string) string { return p.ID + "-" + format + "-" + string(d.Kind) }
	var connectors []harness.Properties
	for _, d := range dbs {
		for _, format := range formats {
			connectors = append(connectors, harness.Connector(d, prefix(d, format), format == schema))
		}
	}
	k, began := openKafka(t), time.Now()
	connect := harness.StartConnect(t, t.TempDir(), harness.QuickJava, connectors)
	feeder := p.Feed()
	p.AwaitFeeding(dbs...)
	connect.AwaitRunning(t)
	t.Logf("the connectors run after %s", time.Since(began).Round(100*time.Millisecond))
	for _, d := range dbs {
		for _, format := range formats {
			awaitReading(t, k, d, prefix(d, format))
		}
	}
	t.Logf("the connectors read after %s", time.Since(began).Round(100*time.Millisecond))

	for _, d := range dbs {
		d.Do(t, shops[d.Kind].statements...)
		d.Do(t, "INSERT INTO "+done+" VALUES (1)")
	}
	p.AwaitFed(dbs...)
	feeder.Terminate()
	for _, d := range dbs {
		for _, format := range formats {
			topic := prefix(d, format) + "." + d.Schema + "." + done
			harness.Await(t, "a row on "+topic, func() (bool, string) { return k.holds(t, topic), "none came" })
		}
	}
	connect.Stop(t)
	for _, d := range dbs {
		t.Run(string(d.Kind), func(t *testing.T) {
			s := shops[d.Kind]
			bare, declared := s.set(t, d, false), s.set(t, d, true)
			records := k.read(t, p.Source(d.Kind))
			own := render(t, bare, records)
			compare(t, d.Kind, ownDeclared, own, render(t, declared, records))
			records = k.read(t, prefix(d, schema))
			compare(t, d.Kind, schemaBare, own, render(t, bare, records))
			compare(t, d.Kind, schemaDeclared, own, render(t, declared, records))
			records = k.read(t, prefix(d, plain))
			compare(t, d.Kind, plainDeclared, own, render(t, declared, records))
		})
	}
}

// awaitReading writes rows until one of them arrives: a connector that runs may not yet have chosen where it begins.
func awaitReading(t *testing.T, k kafka, d *harness.Database, prefix string) {
	t.Helper()
	topic := prefix + "." + d.Schema + "." + ready
	harness.Await(t, "a row on "+topic, func() (bool, string) {
		d.Do(t, "DELETE FROM "+ready, "INSERT INTO "+ready+" VALUES (1)")
		return k.holds(t, topic), "none came"
	})
}

func (s *shop) set(t *testing.T, d *harness.Database, declared bool) *mapping.Set {
	t.Helper()
	file, problems := mapping.Parse("all.yaml", []byte(s.mappings(d, declared)))
	if mapping.HasErrors(problems) {
		t.Fatal(problems)
	}
	set, problems := mapping.NewSet([]*mapping.File{file})
	if mapping.HasErrors(problems) {
		t.Fatal(problems)
	}
	return set
}

// compare wants the same keys of every transaction by another route, except what is named in exceptions.
func compare(t *testing.T, kind harness.Kind, route string, own, other keys) {
	t.Helper()
	s := shops[kind]
	changes, txs := s.changes(), own.inOrder(t)
	if len(txs) != len(changes) {
		t.Fatalf("our feeder read %d transactions of %d", len(txs), len(changes))
	}
	if theirs := other.inOrder(t); !slices.Equal(theirs, txs) {
		t.Fatalf("%s: transactions %v; ours %v", route, theirs, txs)
	}
	met := map[*exception]bool{}
	for i, tx := range txs {
		if len(own[tx]) == 0 {
			t.Errorf("%s gives no key", changes[i])
		}
		for _, key := range without(own[tx], other[tx]) {
			e := find(kind, route, key)
			if met[e] = true; e == nil || !e.lacks {
				t.Errorf("%s: %.80s: lacks key %.200s", route, changes[i], key)
			}
		}
		for _, key := range without(other[tx], own[tx]) {
			e := find(kind, route, key)
			if met[e] = true; e == nil || !e.more {
				t.Errorf("%s: %.80s: has key %.200s more", route, changes[i], key)
			}
		}
	}
	for i := range exceptions {
		if e := &exceptions[i]; e.kind == kind && slices.Contains(e.routes, route) && !met[e] {
			t.Errorf("%s: %s… differ no more, although %s: take it out of the exceptions, and out of cdc/TYPES.md", route, e.keys, e.why)
		}
	}
}

// without are the keys of a that b has not.
func without(a, b map[string]bool) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if !b[key] {
			keys = append(keys, key)
		}
	}
	return keys
}
