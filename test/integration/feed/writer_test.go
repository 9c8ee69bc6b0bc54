//go:build integration

package feed

import (
	"database/sql"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"invalidator/test/integration/harness"
)

// A row version as an operation on it: the delete of version 7 of items' row 3 is {"items", "d", "3", 7}.
type event struct {
	table, op, key string
	version        int64
}

// writer commits and rolls back random transactions on one database and keeps its own books. Every write gives a row a
// version that no other row ever has, so that each event is one of a kind.
type writer struct {
	*harness.Database
	rng          *rand.Rand
	version      int64
	rows         map[string]map[string]int64 // table -> key -> version, as committed
	committed    map[event]bool
	rolledBack   map[event]bool
	transactions int

	// late: a leader that was stopped and woke up may write older versions of a row behind newer ones. That costs a delete each; the
	// versions are all there.
	late bool

	// outlives is asked, where it is set, what to do when the database goes away: it returns once it is back.
	outlives func(error)
}

var tables = []string{"items", "pairs"}

func newWriter(t *testing.T, kind harness.Kind, seed uint64) *writer {
	w := &writer{
		Database: harness.NewDatabase(t, kind), rng: rand.New(rand.NewPCG(seed, 1)),
		rows: map[string]map[string]int64{}, committed: map[event]bool{}, rolledBack: map[event]bool{},
	}
	w.Do(t,
		`CREATE TABLE transactions (id bigint PRIMARY KEY)`,
		`CREATE TABLE items (id bigint PRIMARY KEY, version bigint NOT NULL, note varchar(2000))`,
		`CREATE TABLE pairs (a bigint, b bigint, version bigint NOT NULL, note varchar(2000), PRIMARY KEY (b, a))`)
	w.rows["transactions"] = map[string]int64{}
	for _, table := range tables {
		w.rows[table] = map[string]int64{}
		if kind == harness.Postgres { // so that a delete says which version it deletes
			w.Do(t, "ALTER TABLE "+table+" REPLICA IDENTITY FULL")
		}
	}
	return w
}

// large is the statements of the transaction that begins each run.
const large = 300

// run makes n transactions.
func (w *writer) run(n int) error {
	for i := range n {
		statements, rollBack := 1+w.rng.IntN(4), w.rng.IntN(4) == 0
		if i == 0 {
			statements, rollBack = large, false
		}
		if err := w.transaction(statements, rollBack); err != nil {
			return fmt.Errorf("%s: %w", w.Kind, err)
		}
		w.transactions++
	}
	return nil
}

// runUntil makes transactions, some a second, until end is closed.
func (w *writer) runUntil(end <-chan struct{}) error {
	for {
		if err := w.run(2); err != nil {
			return err
		}
		select {
		case <-end:
			return nil
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// transaction makes one, and where the database goes away meanwhile asks it afterwards what became of it.
func (w *writer) transaction(n int, rollBack bool) error {
	w.version++
	id, after := w.version, clone(w.rows)
	done, err := w.attempt(id, after, n, rollBack)
	committed := err == nil && !rollBack
	if err != nil {
		if w.outlives == nil {
			return err
		}
		w.outlives(err)
		var rows int
		if err := w.QueryRow(fmt.Sprintf("SELECT count(*) FROM transactions WHERE id = %d", id)).Scan(&rows); err != nil {
			return err
		}
		committed = rows == 1
	}
	if !committed {
		w.note(w.rolledBack, done)
		return nil
	}
	w.note(w.committed, done)
	w.rows = after
	return nil
}

// attempt runs n statements and perhaps some that a savepoint undoes, and commits or rolls back. It returns what it did even
// where it does not know what became of it.
func (w *writer) attempt(id int64, after map[string]map[string]int64, n int, rollBack bool) (done []event, err error) {
	tx, err := w.Begin()
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	if _, err := tx.Exec(fmt.Sprintf("INSERT INTO transactions VALUES (%d)", id)); err != nil {
		return nil, err
	}
	after["transactions"][strconv.FormatInt(id, 10)] = 0
	done, err = w.write(tx, after, n)
	done = append(done, event{"transactions", "c", strconv.FormatInt(id, 10), 0})
	if err != nil {
		return done, err
	}
	if w.rng.IntN(4) == 0 { // what follows a savepoint is undone
		if _, err := tx.Exec("SAVEPOINT s"); err != nil {
			return done, err
		}
		events, err := w.write(tx, clone(after), 1+w.rng.IntN(3))
		if err != nil {
			return done, err
		}
		if _, err := tx.Exec("ROLLBACK TO SAVEPOINT s"); err != nil {
			return done, err
		}
		w.note(w.rolledBack, events)
	}
	if rollBack {
		return done, tx.Rollback()
	}
	return done, tx.Commit()
}

func clone(rows map[string]map[string]int64) map[string]map[string]int64 {
	c := map[string]map[string]int64{}
	for table := range rows {
		c[table] = maps.Clone(rows[table])
	}
	return c
}

func (w *writer) note(books map[event]bool, events []event) {
	for _, e := range events {
		books[e] = true
	}
}

// write runs n statements and says what they did, in rows and as events.
func (w *writer) write(tx *sql.Tx, rows map[string]map[string]int64, n int) (done []event, err error) {
	for range n {
		table := tables[w.rng.IntN(len(tables))]
		w.version++
		key, now := strconv.Itoa(w.rng.IntN(300)), w.version
		was, there := rows[table][key]
		moved := strconv.Itoa(w.rng.IntN(300))
		_, taken := rows[table][moved]
		switch {
		case !there:
			err = w.insert(tx, table, key, now)
			done = append(done, event{table, "c", key, now})
			rows[table][key] = now
		case w.rng.IntN(4) == 0:
			_, err = tx.Exec(fmt.Sprintf("DELETE FROM %s WHERE %s", table, where(table, key)))
			done = append(done, event{table, "d", key, was})
			delete(rows[table], key)
		case w.rng.IntN(4) == 0 && !taken: // the key changes: a delete under the old and a create under the new
			_, err = tx.Exec(fmt.Sprintf("UPDATE %s SET %s, version = %d WHERE %s", table, keySet(table, moved), now, where(table, key)))
			done = append(done, event{table, "d", key, was}, event{table, "c", moved, now})
			delete(rows[table], key)
			rows[table][moved] = now
		default:
			_, err = tx.Exec(fmt.Sprintf("UPDATE %s SET version = %d WHERE %s", table, now, where(table, key)))
			done = append(done, event{table, "u", key, now})
			rows[table][key] = now
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (w *writer) insert(tx *sql.Tx, table, key string, version int64) error {
	columns, values := "id", key
	if table == "pairs" {
		columns, values = "a, b", "7, "+key
	}
	_, err := tx.Exec(fmt.Sprintf("INSERT INTO %s (%s, version, note) VALUES (%s, %d, '%0*d')", table, columns, values, version, 20+w.rng.IntN(1000), 0))
	return err
}

func where(table, key string) string {
	if table == "pairs" {
		return "a = 7 AND b = " + key
	}
	return "id = " + key
}

func keySet(table, key string) string {
	if table == "pairs" {
		return "b = " + key
	}
	return "id = " + key
}
