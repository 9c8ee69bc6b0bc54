//go:build integration

package postgres

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"invalidator/cdc"
)

// cache is a cache that readers fill and the feeder deletes from. A key is table:id.
type cache struct {
	mu   sync.Mutex
	copy map[string]string
}

func (c *cache) fill(rows map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, v := range rows {
		if _, ok := c.copy[key]; !ok {
			c.copy[key] = v
		}
	}
}

func (c *cache) clear(table string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.copy, func(key, _ string) bool { return strings.HasPrefix(key, table+":") })
}

func (c *cache) Change(_ context.Context, ch *cdc.RowChange) error {
	if ch.Op == cdc.Truncate {
		c.clear(ch.Table)
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, row := range []cdc.Row{ch.Before, ch.After} {
		if row != nil {
			delete(c.copy, ch.Table+":"+row[ch.Columns.Index("id")].Text())
		}
	}
	return nil
}

func (c *cache) Lost(_ context.Context, l cdc.Loss) error {
	for _, t := range l.Tables {
		c.clear(t.Table)
	}
	return nil
}

func (c *cache) Joined(_ context.Context, tables []cdc.TableID, _ cdc.Position) error {
	for _, t := range tables {
		c.clear(t.Table)
	}
	return nil
}

// world is a database that is written, altered and read at random.
type world struct {
	*db
	rand  *rand.Rand
	cache *cache
	pub   string
	slot  string
}

var plain = []string{"a", "b", "c", "d"}

func (w *world) exists(table string) bool {
	return w.text("SELECT (to_regclass($1) IS NOT NULL)::text", table) == "true"
}

func (w *world) attached(part string) bool {
	return w.text("SELECT coalesce(bool_or(relispartition), false)::text FROM pg_class WHERE relname = $1 AND relkind = 'r'", part) == "true"
}

// seen reports whether a look has seen the relation behind a name. One that comes and goes between two looks leaves no trace
// (doc.go): nothing here drops or renames it before.
func (w *world) seen(table string) bool {
	if !w.exists(table) {
		return false
	}
	k, ok := parseMemories(w.text("SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = $1", w.pub)).of(w.slot).get(tableName{"public", table})
	return ok && fmt.Sprint(k.OID) == w.text("SELECT $1::text::regclass::oid::text", table)
}

// settled reports whether a look would find nothing new.
func (w *world) settled(f *Feeder) bool {
	tables, err := listIncluded(context.Background(), w.conn, w.pub, f.cfg.Include)
	if err != nil {
		w.t.Fatal(err)
	}
	pub, err := findPublication(context.Background(), w.conn, w.pub)
	if err != nil {
		w.t.Fatal(err)
	}
	m := parseMemories(pub.Comment).of(w.slot)
	was := memories{"": m.clone()}.comment()
	m.compare(tables, f.matches)
	return memories{"": m}.comment() == was && len(unpublished(tables, pub)) == 0
}

// rows is what readers see now.
func (w *world) rows() map[string]string {
	all := map[string]string{}
	for _, table := range append(slices.Clone(plain), "p_0", "p_1") {
		if !w.exists(table) || strings.HasPrefix(table, "p_") && !w.attached(table) {
			continue
		}
		for _, row := range strings.Fields(w.text("SELECT coalesce(string_agg(id || '=' || v, ' '), '') FROM " + table)) {
			id, v, _ := strings.Cut(row, "=")
			all[table+":"+id] = v
		}
	}
	return all
}

// write is a statement that writes rows of a table.
func (w *world) write(table string, low int) string {
	id := low + w.rand.IntN(5)
	switch w.rand.IntN(6) {
	case 0:
		return fmt.Sprintf("DELETE FROM %s WHERE id = %d", table, id)
	case 1:
		return fmt.Sprintf("UPDATE %s SET v = v + 1", table)
	}
	return fmt.Sprintf("INSERT INTO %s VALUES (%d, %d) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v", table, id, w.rand.IntN(1000))
}

// step does one thing.
func (w *world) step() string {
	table := plain[w.rand.IntN(len(plain))]
	other := plain[w.rand.IntN(len(plain))]
	part := w.rand.IntN(2)
	name := fmt.Sprintf("p_%d", part)
	bounds := fmt.Sprintf("FOR VALUES FROM (%d) TO (%d)", part*10, part*10+10)
	var do []string
	switch n := w.rand.IntN(20); {
	case n < 9 && w.exists(table):
		do = []string{"BEGIN", w.write(table, 0), w.write(table, 0), []string{"COMMIT", "COMMIT", "ROLLBACK"}[w.rand.IntN(3)]}
	case n < 12 && w.attached(name):
		do = []string{w.write(name, part*10)}
	case n == 12 && w.seen(table):
		do = []string{"DROP TABLE " + table}
	case n == 13 && w.exists(table):
		do = []string{"TRUNCATE " + table}
	case n == 14 && w.seen(table) && w.seen(other) && table != other:
		do = []string{"BEGIN", "ALTER TABLE " + table + " RENAME TO x", "ALTER TABLE " + other + " RENAME TO " + table, "ALTER TABLE x RENAME TO " + other, "COMMIT"}
	case n == 14 && w.seen(table) && !w.exists(other):
		do = []string{"ALTER TABLE " + table + " RENAME TO " + other}
	case n == 15 && w.attached(name) && w.seen(name):
		do = []string{"ALTER TABLE p DETACH PARTITION " + name}
	case n == 15 && w.exists(name) && !w.attached(name):
		do = []string{"BEGIN", w.write(name, part*10), "ALTER TABLE p ATTACH PARTITION " + name + " " + bounds, "COMMIT"}
	case n == 16 && w.seen(name):
		do = []string{"DROP TABLE " + name}
	case n == 17 && w.exists(table):
		if w.text("SELECT count(*)::text FROM pg_publication_rel WHERE prrelid = $1::text::regclass", table) != "0" {
			do = []string{"ALTER PUBLICATION " + w.pub + " DROP TABLE " + table}
		}
	case !w.exists(table):
		do = []string{"BEGIN", "CREATE TABLE " + table + " (id int PRIMARY KEY, v int)", w.write(table, 0), "COMMIT"}
		if w.rand.IntN(2) == 0 {
			do = slices.Delete(do, 2, 3)
		}
	case !w.exists(name):
		do = []string{"BEGIN", "CREATE TABLE " + name + " PARTITION OF p " + bounds, w.write(name, part*10), "COMMIT"}
	}
	w.exec(do...)
	return strings.Join(do, "; ")
}

// Whatever is written, made, dropped, swapped, attached and taken out of the publication, and whenever the feeder is stopped
// or starts again from an older position: no copy that a reader took stays when its row is another.
func TestNoCopyStaysStaleUnderDDL(t *testing.T) {
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{db: newDB(t), rand: rand.New(rand.NewPCG(seed, 1)), cache: &cache{copy: map[string]string{}}}
			w.exec("CREATE TABLE a (id int PRIMARY KEY, v int)", "CREATE TABLE p (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)")
			f := lookOften(w.feeder("public.*"))
			w.pub, w.slot = f.cfg.Publication, f.cfg.Slot
			start := func(from cdc.Position) *run {
				w.slotIsFree(f.cfg.Slot)
				return w.start(f, from, unconfirmed, func(r *run) { r.also = w.cache })
			}
			r := start(cdc.Position{})
			var steps []string
			for range 120 {
				if w.rand.IntN(15) == 0 {
					from := r.stop()
					if w.rand.IntN(3) == 0 {
						from = r.started // nothing was saved
					}
					for range w.rand.IntN(4) {
						steps = append(steps, "while down: "+w.step())
						w.cache.fill(w.rows())
					}
					r = start(from)
				}
				steps = append(steps, w.step())
				w.cache.fill(w.rows())
				if w.rand.IntN(4) == 0 {
					r.caughtUp()
				}
			}
			from := r.stop()
			r = start(from)
			w.eventually("a look has seen everything", func() bool { return w.settled(f) })
			r.caughtUp()
			r.stop()
			now := w.rows()
			for key, v := range w.cache.copy {
				if now[key] != v {
					t.Errorf("%s is cached as %q and is %q", key, v, now[key])
				}
			}
			if t.Failed() {
				t.Log(strings.Join(steps, "\n"))
			}
		})
	}
}
