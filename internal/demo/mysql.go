package demo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
)

// mysqlDB is a database of the demo's own on a MySQL or MariaDB server.
type mysqlDB struct {
	kind, addr, database string
	conn                 *client.Conn // nil until open
}

func newMySQL(kind, addr, database string) *mysqlDB {
	return &mysqlDB{kind: kind, addr: addr, database: database}
}

func (d *mysqlDB) name() string { return d.kind }
func (d *mysqlDB) about() string {
	return fmt.Sprintf("%s at %s, database %s", d.kind, d.addr, d.database)
}
func (d *mysqlDB) sourceName() string { return strings.ReplaceAll(d.database, "_", "-") + "-" + d.kind }

func (d *mysqlDB) source() string {
	return fmt.Sprintf("{name: %s, type: mysql, hosts: [%q], user: cdc, password: cdc-password, include: [%s.*]}",
		d.sourceName(), d.addr, d.database)
}

// open makes the database and its tables.
func (d *mysqlDB) open(ctx context.Context) error {
	conn, err := d.connect(ctx, "")
	if err != nil {
		return err
	}
	d.conn = conn
	statements := []string{"CREATE DATABASE " + d.database + " CHARACTER SET utf8mb4", "USE " + d.database}
	for _, t := range tables {
		statements = append(statements, t.create(func(c column) string { return c.mysql }))
	}
	return d.run(ctx, conn, statements...)
}

func (d *mysqlDB) connect(ctx context.Context, database string) (*client.Conn, error) {
	conn, err := client.ConnectWithContext(ctx, d.addr, "app", "app-password", database, connectTimeout)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s at %s: %w%s", d.kind, d.addr, err, devUp)
	}
	return conn, nil
}

func (d *mysqlDB) exec(ctx context.Context, writes ...write) (sent time.Time, err error) {
	statements := make([]string, 0, len(writes)+2)
	for _, w := range writes {
		statements = append(statements, w.sql())
	}
	if len(statements) > 1 {
		statements = slices.Concat([]string{"BEGIN"}, statements, []string{"COMMIT"})
	}
	last := len(statements) - 1
	if err := d.run(ctx, d.conn, statements[:last]...); err != nil {
		return sent, err
	}
	sent = time.Now()
	return sent, d.run(ctx, d.conn, statements[last])
}

func (d *mysqlDB) run(ctx context.Context, conn *client.Conn, statements ...string) error {
	// The client knows no context: a connection whose deadline is past ends every wait.
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	for _, s := range statements {
		r, err := conn.Execute(s)
		if err != nil {
			return d.failed(ctx, s, err)
		}
		r.Close()
	}
	return nil
}

func (d *mysqlDB) rows(ctx context.Context, t *table, from, to uint64) ([]row, error) {
	defer context.AfterFunc(ctx, func() { d.conn.SetDeadline(time.Unix(1, 0)) })()
	query := selectRows(t, from, to)
	r, err := d.conn.Execute(query)
	if err != nil {
		return nil, d.failed(ctx, query, err)
	}
	defer r.Close()
	out := make([]row, r.RowNumber())
	for i := range out {
		out[i] = make(row, r.ColumnNumber())
		for j := range out[i] {
			if out[i][j], err = r.GetString(i, j); err != nil {
				return nil, d.failed(ctx, query, err)
			}
		}
	}
	return out, nil
}

func (d *mysqlDB) failed(ctx context.Context, statement string, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%s: %s: %w", d.kind, short(statement), err)
}

func (d *mysqlDB) remove(ctx context.Context) error {
	if d.conn == nil {
		return nil
	}
	d.conn.Close()
	conn, err := d.connect(ctx, "")
	if err != nil {
		return err
	}
	return errors.Join(d.run(ctx, conn, "DROP DATABASE IF EXISTS "+d.database), conn.Close())
}
