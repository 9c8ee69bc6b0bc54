package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// postgresDB is a database of the demo's own on a Postgres server. The publication and the slot, which the feeder makes,
// have its name.
type postgresDB struct {
	addr, database string
	admin          *pgx.Conn // in database shop; nil until open
	conn           *pgx.Conn // in the demo's own
}

func newPostgres(addr, database string) *postgresDB {
	return &postgresDB{addr: addr, database: database}
}

func (d *postgresDB) name() string { return "postgres" }
func (d *postgresDB) about() string {
	return fmt.Sprintf("postgres at %s, database, publication and slot %s", d.addr, d.database)
}
func (d *postgresDB) sourceName() string {
	return strings.ReplaceAll(d.database, "_", "-") + "-postgres"
}

func (d *postgresDB) source() string {
	return fmt.Sprintf("{name: %s, type: postgres, hosts: [%q], database: %s, user: cdc, password: cdc-password, "+
		"include: [public.*], publication: %[3]s, slot: %[3]s}", d.sourceName(), d.addr, d.database)
}

// open makes the database and its tables.
func (d *postgresDB) open(ctx context.Context) error {
	var err error
	if d.admin, err = d.connect(ctx, "app", "shop"); err != nil {
		return err
	}
	// The feeder makes its publication itself, which takes CREATE on the database.
	if err := d.run(ctx, d.admin, "CREATE DATABASE "+d.database, "GRANT CREATE ON DATABASE "+d.database+" TO cdc"); err != nil {
		return err
	}
	if d.conn, err = d.connect(ctx, "app", d.database); err != nil {
		return err
	}
	for _, t := range tables {
		create := t.create(func(c column) string { return c.postgres })
		if err := d.run(ctx, d.conn, create, "ALTER TABLE "+t.name+" REPLICA IDENTITY FULL"); err != nil {
			return err
		}
	}
	return nil
}

func (d *postgresDB) connect(ctx context.Context, user, database string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://%s:%s-password@%s/%s?sslmode=disable", user, user, d.addr, database))
	if err != nil {
		return nil, fmt.Errorf("connecting to postgres at %s: %w%s", d.addr, err, devUp)
	}
	return conn, nil
}

func (d *postgresDB) run(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, s := range statements {
		if _, err := conn.Exec(ctx, s); err != nil {
			return d.failed(ctx, s, err)
		}
	}
	return nil
}

func (d *postgresDB) exec(ctx context.Context, writes ...write) (sent time.Time, err error) {
	tx, err := d.conn.Begin(ctx)
	if err != nil {
		return sent, d.failed(ctx, "BEGIN", err)
	}
	for _, w := range writes {
		if err := d.run(ctx, d.conn, w.sql()); err != nil {
			return sent, errors.Join(err, tx.Rollback(ctx))
		}
	}
	sent = time.Now()
	if err := tx.Commit(ctx); err != nil {
		return sent, d.failed(ctx, "COMMIT", err)
	}
	return sent, nil
}

func (d *postgresDB) rows(ctx context.Context, t *table, from, to uint64) ([]row, error) {
	query := selectRows(t, from, to)
	// In the simple protocol every value comes as its text.
	rows, err := d.conn.Query(ctx, query, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		return nil, d.failed(ctx, query, err)
	}
	defer rows.Close()
	var out []row
	for rows.Next() {
		r := make(row, 0, len(t.columns))
		for _, v := range rows.RawValues() {
			r = append(r, string(v))
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, d.failed(ctx, query, err)
	}
	return out, nil
}

func (d *postgresDB) failed(ctx context.Context, statement string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("postgres: %s: %w", short(statement), err)
}

func (d *postgresDB) remove(ctx context.Context) error {
	if d.admin == nil {
		return nil
	}
	if d.conn != nil {
		_ = d.conn.Close(ctx)
	}
	_ = d.admin.Close(ctx)
	// Slots may be dropped by roles that replicate, databases by their owners. A slot keeps its database from being dropped.
	errSlot := d.as(ctx, "cdc", "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '"+d.database+"'")
	return errors.Join(errSlot, d.as(ctx, "app", "DROP DATABASE IF EXISTS "+d.database+" WITH (FORCE)"))
}

func (d *postgresDB) as(ctx context.Context, user, statement string) error {
	conn, err := d.connect(ctx, user, "shop")
	if err != nil {
		return err
	}
	return errors.Join(d.run(ctx, conn, statement), conn.Close(ctx))
}
