//go:build integration

package delivery

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// writer commits random small transactions.
type writer struct {
	w   *world
	rng *rand.Rand
}

// run writes until ctx ends.
func (x *writer) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := x.transaction(); err != nil {
			return fmt.Errorf("writing: %w", err)
		}
		pause(ctx, time.Duration(20+x.rng.IntN(100))*time.Millisecond)
	}
	return nil
}

// transaction commits one to three statements. A transaction that the database refuses, since it locked across another, is none.
func (x *writer) transaction() error {
	ctx := context.Background()
	from := time.Now()
	tx, err := x.w.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	var keys, said []string
	for range 1 + x.rng.IntN(3) {
		touched, statement, err := x.step(ctx, tx)
		if err != nil {
			tx.Rollback()
			x.w.stats.refusedByDB.Add(1)
			return harmless(err)
		}
		keys, said = append(keys, touched...), append(said, statement)
	}
	if err := tx.Commit(); err != nil {
		return harmless(err)
	}
	x.w.stats.committed.Add(1)
	slices.Sort(keys)
	x.w.trail.add(event{from: from, to: time.Now(), what: "commit: " + strings.Join(said, "; ")}, slices.Compact(keys)...)
	return nil
}

// step changes one row of the window, and says which keys that touched.
func (x *writer) step(ctx context.Context, tx *sql.Tx) (keys []string, statement string, err error) {
	id, version := x.w.id(x.rng), x.w.version.Add(1)
	group := min(x.w.groups()-1, max(0, groupOf(id)+x.rng.IntN(3)-1))
	var was int
	switch err := tx.QueryRowContext(ctx, fmt.Sprintf(`SELECT grp FROM items WHERE id = %d FOR UPDATE`, id)).Scan(&was); {
	case errors.Is(err, sql.ErrNoRows):
		keys = []string{itemKey(id), groupKey(group)}
		statement = fmt.Sprintf(`INSERT INTO items VALUES (%d, %d, %d)`, id, group, version)
	case err != nil:
		return nil, "", err
	default:
		keys = []string{itemKey(id), groupKey(was)}
		switch n := x.rng.IntN(10); {
		case n < 5:
			statement = fmt.Sprintf(`UPDATE items SET ver = %d WHERE id = %d`, version, id)
		case n < 8:
			keys = append(keys, groupKey(group))
			statement = fmt.Sprintf(`UPDATE items SET grp = %d, ver = %d WHERE id = %d`, group, version, id)
		case n < 9:
			other := x.w.id(x.rng)
			keys = append(keys, itemKey(other))
			statement = fmt.Sprintf(`UPDATE items SET id = %d, ver = %d WHERE id = %d`, other, version, id)
		default:
			statement = fmt.Sprintf(`DELETE FROM items WHERE id = %d`, id)
		}
	}
	_, err = tx.ExecContext(ctx, statement)
	return keys, statement, err
}

// harmless takes what a database refuses of concurrent transactions for no error: deadlocks, waits for locks, doubled keys.
func harmless(err error) error {
	var e *mysql.MyError
	if errors.As(err, &e) && slices.Contains([]uint16{mysql.ER_LOCK_DEADLOCK, mysql.ER_LOCK_WAIT_TIMEOUT, mysql.ER_DUP_ENTRY}, e.Code) {
		return nil
	}
	return err
}
