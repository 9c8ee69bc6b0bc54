//go:build integration

package integration

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
	"github.com/jackc/pgx/v5/pgconn"

	"invalidator/test/integration/harness"
)

// writer commits random transactions on one shop.
type writer struct {
	w    *world
	s    *shop
	rng  *rand.Rand
	conn *sql.Conn
}

// run writes until ctx ends.
func (x *writer) run(ctx context.Context) error {
	var err error
	if x.conn, err = x.s.Conn(ctx); err != nil {
		return err
	}
	defer x.conn.Close()
	if x.s.Kind != harness.Postgres {
		// An ALTER that waits and two rows locked across are a deadlock that the server does not see.
		if _, err := x.conn.ExecContext(ctx, `SET SESSION innodb_lock_wait_timeout = 1`); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		if err := x.transaction(); err != nil {
			return fmt.Errorf("%s: %w", x.s.Kind, err)
		}
		pause(ctx, time.Duration(x.rng.IntN(30))*time.Millisecond)
	}
	return nil
}

// transaction commits one to five statements over several tables, or rolls them back.
func (x *writer) transaction() error {
	ctx := context.Background()
	from := time.Now()
	tx, err := x.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	var keys, said []string
	for range 1 + x.rng.IntN(5) {
		touched, statement, err := x.step(ctx, tx)
		if err != nil {
			tx.Rollback()
			x.w.stats.refusedByDB.Add(1)
			return harmless(err)
		}
		keys, said = append(keys, touched...), append(said, statement)
	}
	end, count := tx.Commit, &x.s.committed
	what := "commit: "
	if x.rng.IntN(7) == 0 {
		end, count, what = tx.Rollback, &x.w.stats.rolledBack, "roll back: "
	}
	raced := func() {}
	if x.rng.IntN(2) == 0 {
		if raced, err = x.race(keys[x.rng.IntN(len(keys))]); err != nil {
			return err
		}
	}
	if err := end(); err != nil {
		return harmless(err)
	}
	count.Add(1)
	raced()
	slices.Sort(keys)
	x.w.trail.add(event{from: from, to: time.Now(), what: what + strings.Join(said, "; ")}, slices.Compact(keys)...)
	return nil
}

// race lets a reader read the row of a key that is about to change. raced has it fill, at any time within its contract.
func (x *writer) race(text string) (raced func(), err error) {
	k := x.s.byText[text]
	names := k.names()
	r := &reader{w: x.w, name: "a reader in a race", rng: newRand(x.rng.Uint64())}
	f := fill{reader: r.name, key: k, name: names[x.rng.IntN(len(names))]}
	owners := x.w.ring.Load().owners(f.name)
	f.node = x.w.nodes[owners[x.rng.IntN(len(owners))]]
	if err := f.node.Delete(f.name); err != nil { // so that it misses
		return nil, err
	}
	f.from = time.Now()
	if f.value, err = k.render(context.Background()); err != nil {
		return nil, err
	}
	return func() {
		x.w.racers.Go(func() error {
			pause(context.Background(), time.Duration(r.rng.Int64N(int64(x.w.settle*6/10))))
			x.w.stats.raced.Add(1)
			return x.w.fill(f)
		})
	}, nil
}

// harmless lets pass what a database says to a transaction that met another one.
func harmless(err error) error {
	var my *mysql.MyError
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &my) && slices.Contains([]uint16{mysql.ER_DUP_ENTRY, mysql.ER_LOCK_DEADLOCK, mysql.ER_LOCK_WAIT_TIMEOUT, mysql.ER_TABLE_DEF_CHANGED}, my.Code):
		return nil
	case errors.As(err, &pg) && slices.Contains([]string{"23505", "40P01", "55P03"}, pg.Code):
		return nil
	}
	return err
}

// step executes one statement, and returns the keys of the rows that it touched, before and after.
func (x *writer) step(ctx context.Context, tx *sql.Tx) (keys []string, statement string, err error) {
	name, where, edit := x.plan()
	t := x.s.table(name)
	look := func(where string) (int, error) {
		rows, err := texts(ctx, tx, fmt.Sprintf("SELECT %s FROM %s WHERE %s", t.columns, t.name, where))
		for _, r := range rows {
			keys = append(keys, t.keys(r)...)
		}
		return len(rows), err
	}
	n, err := look(where)
	if err != nil {
		return nil, "", err
	}
	statement, also := edit(n)
	if _, err := tx.ExecContext(ctx, statement); err != nil {
		return nil, statement, fmt.Errorf("%s: %w", statement, err)
	}
	for _, where := range append(also, where) {
		if _, err := look(where); err != nil {
			return nil, statement, err
		}
	}
	return keys, statement, nil
}

// plan chooses a table and rows of it. edit gives the statement, by how many rows there are, and where else rows may be afterwards.
func (x *writer) plan() (table, where string, edit func(rows int) (statement string, also []string)) {
	switch n := x.rng.IntN(10); {
	case n < 6:
		id := x.w.id(x.rng, users)
		return "users", fmt.Sprintf("id = %d", id), func(rows int) (string, []string) { return x.editUser(id, rows) }
	case n < 9:
		org, id := orgs[x.rng.IntN(len(orgs))], x.w.id(x.rng, items)
		return "items", fmt.Sprintf("org = '%s' AND id = %d", org, id), func(rows int) (string, []string) { return x.editItem(org, id, rows) }
	}
	id := x.w.id(x.rng, banners)
	return "banners", fmt.Sprintf("id = %d", id), func(rows int) (string, []string) { return x.editBanner(id, rows) }
}

func (x *writer) editUser(id, rows int) (string, []string) {
	v := x.s.version.Add(1)
	mail := spell(x.rng, email(x.w.id(x.rng, users)))
	if rows == 0 {
		return fmt.Sprintf(`INSERT INTO users (id, email, name, ver) VALUES (%d, '%s', 'n%d', %d)`, id, mail, v, v), nil
	}
	set := fmt.Sprintf("ver = %d", v)
	if x.s.altered.Load() {
		set += fmt.Sprintf(", extra = %d", v)
	}
	switch x.rng.IntN(8) {
	case 0, 1:
		return fmt.Sprintf(`DELETE FROM users WHERE id = %d`, id), nil
	case 2, 3:
		return fmt.Sprintf(`UPDATE users SET %s, email = '%s' WHERE id = %d`, set, mail, id), nil
	case 4:
		to := x.w.id(x.rng, users)
		return fmt.Sprintf(`UPDATE users SET %s, id = %d WHERE id = %d`, set, to, id), []string{fmt.Sprintf("id = %d", to)}
	case 5:
		several := fmt.Sprintf("id BETWEEN %d AND %d", id, id+3)
		return fmt.Sprintf(`UPDATE users SET %s, name = 'm%d' WHERE %s`, set, v, several), []string{several}
	}
	return fmt.Sprintf(`UPDATE users SET %s, name = 'n%d' WHERE id = %d`, set, v, id), nil
}

func (x *writer) editItem(org string, id, rows int) (string, []string) {
	v := x.s.version.Add(1)
	if rows == 0 {
		return fmt.Sprintf(`INSERT INTO items (org, id, label, ver) VALUES ('%s', %d, 'l%d', %d)`, org, id, v, v), nil
	}
	where := fmt.Sprintf("org = '%s' AND id = %d", org, id)
	switch x.rng.IntN(5) {
	case 0:
		return fmt.Sprintf(`DELETE FROM items WHERE %s`, where), nil
	case 1, 2:
		to := orgs[x.rng.IntN(len(orgs))]
		return fmt.Sprintf(`UPDATE items SET org = '%s', ver = %d WHERE %s`, to, v, where), []string{fmt.Sprintf("org = '%s' AND id = %d", to, id)}
	}
	return fmt.Sprintf(`UPDATE items SET label = 'l%d', ver = %d WHERE %s`, v, v, where), nil
}

func (x *writer) editBanner(id, rows int) (string, []string) {
	v := x.s.version.Add(1)
	switch {
	case rows == 0:
		return fmt.Sprintf(`INSERT INTO banners (id, text, ver) VALUES (%d, 't%d', %d)`, id, v, v), nil
	case x.rng.IntN(5) == 0:
		return fmt.Sprintf(`DELETE FROM banners WHERE id = %d`, id), nil
	}
	return fmt.Sprintf(`UPDATE banners SET text = 't%d', ver = %d WHERE id = %d`, v, v, id), nil
}

// alter adds a column to users, where it can before all others. It gives way to a transaction that waits for a reader who
// would wait behind it, and tries again.
func (s *shop) alter(ctx context.Context) error {
	conn, err := s.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	give, add := `SET SESSION lock_wait_timeout = 1`, `ALTER TABLE users ADD COLUMN extra BIGINT NOT NULL DEFAULT 0 FIRST`
	if s.Kind == harness.Postgres {
		give, add = `SET lock_timeout = '300ms'`, strings.TrimSuffix(add, " FIRST")
	}
	if _, err := conn.ExecContext(ctx, give); err != nil {
		return fmt.Errorf("%s: %w", give, err)
	}
	for {
		_, err := conn.ExecContext(ctx, add)
		if err == nil {
			s.altered.Store(true)
			return nil
		}
		if err := harmless(err); err != nil {
			return fmt.Errorf("%s: %w", add, err)
		}
		pause(ctx, 50*time.Millisecond)
	}
}
