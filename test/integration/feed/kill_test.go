//go:build integration

package feed

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/test/integration/harness"
)

// each is the transactions that each database sees between two faults.
const each = 25

// many is how many faults a test makes: what the environment says, or a few.
func many(t *testing.T, variable string, few int) int {
	s := os.Getenv(variable)
	if s == "" {
		return few
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		t.Fatalf("%s=%q is not a number from 1 on", variable, s)
	}
	return n
}

// A feeder that is killed again and again while random transactions run loses no committed row version, writes none that
// was rolled back, and leaves each row's last version last.
func TestKilledFeederLosesNothing(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var writers []*writer
	var dbs []*harness.Database
	for i, kind := range harness.Kinds {
		w := newWriter(t, kind, seed+uint64(i))
		writers, dbs = append(writers, w), append(dbs, w.Database)
	}
	p := pipeline(t, dbs...)
	first := p.Feed()
	p.AwaitFeeding(dbs...)
	topics := readTopics(t, p)

	feeder := first
	for i := range many(t, "KILLS", 12) {
		var writing errgroup.Group
		for _, w := range writers {
			writing.Go(func() error { return w.run(each) })
		}
		from, more := topics.count(), rng.IntN(len(writers)*large)
		if i%4 == 3 {
			more = 0 // while it starts
		}
		harness.Await(t, fmt.Sprintf("%d more records before kill %d", more, i+1), func() (bool, string) {
			n := topics.count() - from
			return n >= more, fmt.Sprintf("%d of them", n)
		})
		feeder.Kill()
		if err := writing.Wait(); err != nil {
			t.Fatal(err)
		}
		feeder = p.Feed()
	}
	p.AwaitFed(dbs...)
	feeder.Terminate()

	read := books(t, topics)
	for _, w := range writers {
		t.Run(string(w.Kind), func(t *testing.T) { w.compare(t, read[p.Source(w.Kind)]) })
	}
}

// Of two feeders of the same sources one leads. Neither takes the other's progress for a gap, and when one dies the other goes on.
func TestTwoFeedersOfTheSameSources(t *testing.T) {
	var writers []*writer
	var dbs []*harness.Database
	for i, kind := range harness.Kinds {
		w := newWriter(t, kind, uint64(i))
		writers, dbs = append(writers, w), append(dbs, w.Database)
	}
	p := pipeline(t, dbs...)
	one := p.Feed()
	p.AwaitFeeding(dbs...)
	two := p.Feed()
	topics := readTopics(t, p)
	write := func() {
		for _, w := range writers {
			if err := w.run(each); err != nil {
				t.Fatal(err)
			}
		}
	}
	write()
	p.AwaitFed(dbs...)
	one.Kill()
	write()
	p.AwaitFed(dbs...)
	two.Terminate()
	for _, log := range []string{one.Log(), two.Log()} {
		if strings.Contains(log, "level=ERROR") || strings.Contains(log, "gap accept") {
			t.Errorf("a feeder says:\n%s", log)
		}
	}
	read := books(t, topics)
	for _, w := range writers {
		t.Run(string(w.Kind), func(t *testing.T) { w.compare(t, read[p.Source(w.Kind)]) })
	}
}

// book is what the topics of one source hold.
type book struct {
	records int
	events  map[event]int
	last    map[string]event // table/key -> the last event on its partition
}

func books(t *testing.T, topics *topics) map[string]*book {
	all := map[string]*book{}
	partitions := map[string]int32{}
	for _, r := range topics.all(t) {
		c := parse(t, r)
		b := all[c.Source.Name]
		if b == nil {
			b = &book{events: map[event]int{}, last: map[string]event{}}
			all[c.Source.Name] = b
		}
		row := c.After
		if row == nil {
			row = c.Before
		}
		e := event{table: c.Source.Table, op: c.Op, key: number(row["id"])}
		if e.table == "pairs" {
			e.key = number(row["b"])
		}
		fmt.Sscan(number(row["version"]), &e.version)
		b.records++
		b.events[e]++
		row1 := e.table + "/" + e.key
		b.last[row1] = e
		at := c.Source.Name + "/" + row1
		if p, ok := partitions[at]; ok && p != r.Partition {
			t.Errorf("%s lies in partitions %d and %d", at, p, r.Partition)
		}
		partitions[at] = r.Partition
	}
	return all
}

func number(v any) string {
	n, _ := v.(json.Number)
	return string(n)
}

func (w *writer) compare(t *testing.T, b *book) {
	if b == nil {
		t.Fatal("its topics are empty")
	}
	t.Logf("%d transactions, %d events committed, %d rolled back, %d records", w.transactions, len(w.committed), len(w.rolledBack), b.records)
	if len(w.committed) == 0 || len(w.rolledBack) == 0 {
		t.Error("nothing was tested")
	}
	for e := range w.committed {
		if b.events[e] == 0 {
			t.Errorf("lost: %+v", e)
		}
	}
	for e := range b.events {
		if !w.committed[e] {
			t.Errorf("never committed: %+v (rolled back: %t)", e, w.rolledBack[e])
		}
	}
	if w.late {
		return
	}
	for row, e := range b.last {
		version, there := w.rows[e.table][e.key]
		if there && e.version != version || there == (e.op == "d") {
			t.Errorf("the last record of %s is %+v; the row is there: %t, version %d", row, e, there, version)
		}
	}
}
