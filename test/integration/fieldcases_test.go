//go:build integration

package integration

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// fieldCase is a fault that people met with such pipelines, restated: rows as they are before, statements, and the keys whose
// copies must be deleted by each. The names begin with the numbers under which such faults are collected.
type fieldCase struct {
	name  string
	kinds []harness.Kind
	setup []string // tables and rows; $t is the case's own table
	keys  []string // templates, without the pool, which is the case's own
	steps []step
	stays []string // keys that nothing may delete
	says  []string // what one line of the worker's log holds of it, if any; $t as above
}

// step is statements of one session and the keys that they must delete.
type step struct {
	sql  []string
	keys []string
}

var (
	mysqls   = []harness.Kind{harness.MySQL, harness.MariaDB}
	postgres = []harness.Kind{harness.Postgres}
)

// TestFieldCases runs SQL through the whole pipeline: every key that it must delete is filled on every copy before, and is gone
// after; a key beside it stays.
func TestFieldCases(t *testing.T) {
	for _, kind := range harness.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r := newCaseRun(t, kind)
			// All at once first: workers look for new topics every few seconds only.
			for i, c := range r.cases {
				r.begin(t, i, c, c.steps[0])
			}
			for i, c := range r.cases {
				t.Run(c.name, func(t *testing.T) {
					r.await(t, i, c, c.steps[0])
					for _, s := range c.steps[1:] {
						r.begin(t, i, c, s)
						r.await(t, i, c, s)
					}
					r.heard(t, i, c)
				})
			}
		})
	}
}

// caseRun is the pipeline of all cases of one kind of database.
type caseRun struct {
	*harness.Pipeline
	db    *harness.Database
	cases []fieldCase
	ring  *ring
	nodes map[string]*harness.Node

	worker *harness.Process
}

func newCaseRun(t *testing.T, kind harness.Kind) *caseRun {
	t.Helper()
	r := &caseRun{db: harness.NewDatabase(t, kind), nodes: map[string]*harness.Node{}}
	mappings := map[string]string{}
	for _, c := range fieldCases() {
		if slices.Contains(c.kinds, kind) {
			i := len(r.cases)
			r.cases = append(r.cases, c)
			for _, s := range c.setup {
				r.db.Do(t, strings.ReplaceAll(s, "$t", caseTable(i)))
			}
			mappings[caseTable(i)+".yaml"] = r.mapping(i, c)
		}
	}
	nodes := harness.StartNodes(t, 4)
	for _, n := range nodes {
		r.nodes[n.Addr] = n
	}
	record := sink.Record{Shards: shards(nodes)}
	r.ring = newRing(record)
	r.Pipeline = harness.New(t, harness.Options{Databases: []*harness.Database{r.db}, Mappings: mappings, Record: record, Settle: 50 * time.Millisecond})
	r.Feed()
	r.worker = r.Work()
	r.AwaitFeeding(r.db)
	return r
}

func caseTable(i int) string { return fmt.Sprintf("case%d", i) }

// mapping is a file for one case: its pool is named like its table.
func (r *caseRun) mapping(i int, c fieldCase) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nteam: %s\npools: [%[1]s]\nmappings:\n  - name: rows\n    table: %s.%[1]s\n    keys:\n", caseTable(i), r.db.Schema)
	for _, k := range c.keys {
		fmt.Fprintf(&b, "      - %q\n", caseTable(i)+":"+k)
	}
	return b.String()
}

func caseKey(i int, k string) string { return caseTable(i) + ":" + k }

// stay are the keys of a case that nothing deletes.
func (c fieldCase) stay() []string { return append([]string{"beside"}, c.stays...) }

// begin fills what a step deletes, and what it does not, and executes it.
func (r *caseRun) begin(t *testing.T, i int, c fieldCase, s step) {
	t.Helper()
	for _, k := range append(slices.Clone(s.keys), c.stay()...) {
		for _, addr := range r.ring.owners(caseKey(i, k)) {
			if err := r.nodes[addr].Set(caseKey(i, k), "before"); err != nil {
				t.Fatal(err)
			}
		}
	}
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// What a case sets in its session must not come back with the connection.
	defer conn.Raw(func(any) error { return driver.ErrBadConn })
	for _, q := range s.sql {
		if _, err := conn.ExecContext(t.Context(), strings.ReplaceAll(q, "$t", caseTable(i))); err != nil {
			t.Fatalf("%s: %s: %v", c.name, q, err)
		}
	}
}

// await waits until a step's keys are gone from every owner, and looks for what must have stayed.
func (r *caseRun) await(t *testing.T, i int, c fieldCase, s step) {
	t.Helper()
	for _, k := range s.keys {
		for _, addr := range r.ring.owners(caseKey(i, k)) {
			harness.AwaitQuick(t, fmt.Sprintf("%q to be deleted on %s", caseKey(i, k), addr), func() (bool, string) {
				hit, err := r.nodes[addr].Get(caseKey(i, k))
				return err == nil && !hit.Found, fmt.Sprint(hit, err)
			})
		}
	}
	for _, k := range c.stay() {
		for _, addr := range r.ring.owners(caseKey(i, k)) {
			if hit, err := r.nodes[addr].Get(caseKey(i, k)); err != nil || !hit.Found {
				t.Errorf("%q is gone from %s: %v %v", caseKey(i, k), addr, hit, err)
			}
		}
	}
}

// heard waits for the line of the worker's log that a case asks for.
func (r *caseRun) heard(t *testing.T, i int, c fieldCase) {
	t.Helper()
	if c.says == nil {
		return
	}
	harness.Await(t, fmt.Sprintf("a line with %q in the worker's log", c.says), func() (bool, string) {
		for line := range strings.Lines(r.worker.Log()) {
			if !slices.ContainsFunc(c.says, func(part string) bool { return !strings.Contains(line, strings.ReplaceAll(part, "$t", caseTable(i))) }) {
				return true, ""
			}
		}
		return false, ""
	})
}

func fieldCases() []fieldCase {
	return slices.Concat(valueCases(), labelCases(), documentCases(), textCases(), postgresCases(), imageCases(), schemaCases())
}
