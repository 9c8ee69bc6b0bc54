//go:build integration

package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"invalidator/cdc"
	"invalidator/test/integration/services"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		removeTemplates()
		os.Exit(code)
	}))
}

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

// db is a database of a test's own, on a real server.
type db struct {
	t          *testing.T
	addr, name string
	conn       *pgx.Conn // of the superuser
}

func newDB(t *testing.T) *db { return newDBOn(t, "POSTGRES") }

// newDBOf makes a database of a server of that version: the shared 15, or one of the test's own.
func newDBOf(t *testing.T, version int) *db {
	if version == 15 {
		return newDB(t)
	}
	return newServer(t, version).db("postgres")
}

func newDBOn(t *testing.T, server string) *db {
	t.Helper()
	d := &db{t: t, addr: services.Addr(server), name: "cdc_" + strings.ToLower(rand.Text()[:10])}
	admin := d.connect("postgres")
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(context.Background(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	exec("CREATE DATABASE " + d.name)
	d.conn = d.connect(d.name)
	t.Cleanup(func() {
		_ = d.conn.Close(context.Background())
		d.eventually("the slots are free", func() bool {
			_, err := admin.Exec(context.Background(), `SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = $1`, d.name)
			return err == nil
		})
		exec("DROP DATABASE " + d.name + " WITH (FORCE)")
		_ = admin.Close(context.Background())
	})
	return d
}

func (d *db) connect(database string) *pgx.Conn {
	d.t.Helper()
	conn, err := pgx.Connect(context.Background(), fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", d.addr, database))
	if err != nil {
		d.t.Fatal(err)
	}
	return conn
}

func (d *db) exec(statements ...string) {
	d.t.Helper()
	for _, s := range statements {
		if _, err := d.conn.Exec(context.Background(), s); err != nil {
			d.t.Fatalf("%s: %v", s, err)
		}
	}
}

// text asks for one value.
func (d *db) text(sql string, args ...any) string {
	d.t.Helper()
	var v *string
	if err := d.conn.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	if v == nil {
		return "NULL"
	}
	return *v
}

func (d *db) eventually(what string, ok func() bool) {
	d.t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			d.t.Fatalf("still not after %v: %s", patience, what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (d *db) config(include ...string) Config {
	inc, err := cdc.NewInclude(include)
	if err != nil {
		d.t.Fatal(err)
	}
	return Config{
		Name: "t", Hosts: []string{d.addr}, Database: d.name, User: "postgres",
		Publication: "pub_" + d.name, Slot: "slot_" + d.name, Include: inc,
	}
}

func (d *db) feeder(include ...string) *Feeder { return newFeeder(d.t, d.config(include...)) }

func newFeeder(t *testing.T, cfg Config) *Feeder { return newLoggedFeeder(t, cfg, &logs{}) }

// newLoggedFeeder makes a feeder whose log lines are kept.
func newLoggedFeeder(t *testing.T, cfg Config, kept *logs) *Feeder {
	t.Helper()
	f, err := New(cfg, slog.New(slog.NewTextHandler(testWriter{t, kept}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	f.timing.status = 100 * time.Millisecond
	return f
}

type testWriter struct {
	t    *testing.T
	kept *logs
}

// logs keeps log lines.
type logs struct {
	mu    sync.Mutex
	lines []string
}

// hold reports whether a line holds all of texts.
func (l *logs) hold(texts ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.lines, func(line string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}

func (w testWriter) Write(b []byte) (int, error) {
	line := strings.TrimSpace(string(b))
	w.t.Log(line)
	w.kept.mu.Lock()
	defer w.kept.mu.Unlock()
	w.kept.lines = append(w.kept.lines, line)
	return len(b), nil
}

func (d *db) flushed(slot string) lsn {
	d.t.Helper()
	at, err := parseLSN(d.text("SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1", slot))
	if err != nil {
		d.t.Fatal(err)
	}
	return at
}

// run is a Run of a feeder, and the Handler that remembers what it was given.
type run struct {
	t      *testing.T
	db     *db
	feeder *Feeder
	cancel context.CancelFunc
	ended  chan error

	confirm bool          // whether each position is confirmed at once
	gate    chan struct{} // where not nil, each Change waits for it
	also    *cache        // where not nil, it is given everything too

	mu        sync.Mutex
	started   cdc.Position
	committed cdc.Position
	changes   []*cdc.RowChange // of the open transaction too
	joined    []joined
	lost      []string
}

func (d *db) start(f *Feeder, from cdc.Position, opts ...func(*run)) *run {
	d.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r := &run{t: d.t, db: d, feeder: f, cancel: cancel, ended: make(chan error, 1), confirm: true}
	for _, o := range opts {
		o(r)
	}
	go func() { r.ended <- f.Run(ctx, from, r) }()
	d.t.Cleanup(cancel)
	d.eventually("the feeder has started", func() bool {
		select {
		case err := <-r.ended:
			d.t.Fatalf("Run ended: %v", err)
		default:
		}
		return !r.position().IsZero()
	})
	return r
}

func unconfirmed(r *run) { r.confirm = false }

func (r *run) Lost(ctx context.Context, l cdc.Loss) error {
	if r.also != nil {
		_ = r.also.Lost(ctx, l)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range l.Tables {
		r.lost = append(r.lost, t.String())
	}
	return nil
}

func (r *run) Joined(ctx context.Context, tables []cdc.TableID, p cdc.Position) error {
	if r.also != nil {
		_ = r.also.Joined(ctx, tables, p)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range tables {
		r.joined = append(r.joined, joined{t.String(), p})
	}
	return nil
}

// joined is a table that Joined was called for.
type joined struct {
	table string
	at    cdc.Position
}

// joins takes what Joined was called for so far.
func (r *run) joins() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for _, j := range r.joined {
		names = append(names, j.table)
	}
	r.joined = nil
	slices.Sort(names)
	return strings.Join(names, ",")
}

// losses takes what Lost was called for so far.
func (r *run) losses() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lost := strings.Join(r.lost, ",")
	r.lost = nil
	return lost
}

func (r *run) Started(_ context.Context, p cdc.Position) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.started, r.committed = p, p
	return nil
}

func (r *run) Change(ctx context.Context, c *cdc.RowChange) error {
	if r.gate != nil {
		select {
		case <-r.gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if r.also != nil {
		_ = r.also.Change(ctx, c)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changes = append(r.changes, c.Clone())
	return nil
}

func (r *run) Committed(_ context.Context, p cdc.Position, _ time.Time) error {
	r.mu.Lock()
	r.committed = p
	r.mu.Unlock()
	if r.confirm {
		r.feeder.Confirm(p)
	}
	return nil
}

func (r *run) position() cdc.Position {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.committed
}

// streaming waits until the server has begun to stream, which is after Started, and gives the process that does.
func (r *run) streaming() (backend string) {
	r.t.Helper()
	r.db.eventually("the slot has a reader", func() bool {
		backend = r.db.reader(r.feeder.cfg.Slot)
		return backend != ""
	})
	return backend
}

// reader is the process that reads a slot; empty: none.
func (d *db) reader(slot string) string {
	d.t.Helper()
	return d.text("SELECT coalesce(max(active_pid)::text, '') FROM pg_replication_slots WHERE slot_name = $1", slot)
}

// stop ends Run, which must be prompt and without an error, and gives the position to go on from.
func (r *run) stop() cdc.Position {
	r.t.Helper()
	r.cancel()
	select {
	case err := <-r.ended:
		if err != nil {
			r.t.Fatalf("Run ended with: %v", err)
		}
	case <-time.After(3 * time.Second):
		r.t.Fatal("Run did not end")
	}
	return r.position()
}

// caughtUp waits until everything committed so far has been handed over, and takes the changes.
func (r *run) caughtUp() []*cdc.RowChange {
	r.t.Helper()
	end, err := parseLSN(r.db.text("SELECT pg_current_wal_insert_lsn()::text"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.db.eventually("the feeder has caught up with "+end.String(), func() bool {
		select {
		case err := <-r.ended:
			r.t.Fatalf("Run ended: %v", err)
		default:
		}
		at, err := parseLSN(r.position().LSN)
		return err == nil && at >= end
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	changes := r.changes
	r.changes = nil
	return changes
}

// fails runs a feeder that must not go on, and gives its error.
func (d *db) fails(f *Feeder, from cdc.Position) error {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := f.Run(ctx, from, &run{t: d.t, db: d, feeder: f})
	if err == nil {
		d.t.Fatal("Run went on")
	}
	if s := err.Error(); strings.Contains(s, "\n") {
		d.t.Errorf("more than one line: %q", s)
	}
	d.t.Log(err)
	return err
}

// show writes a change in one line: op table {before} {after}, absent columns left out.
func show(c *cdc.RowChange) string {
	s := c.Op.String() + " " + c.Table
	for _, row := range []cdc.Row{c.Before, c.After} {
		if row == nil {
			s += " -"
			continue
		}
		var parts []string
		for i, v := range row {
			switch v.Kind {
			case cdc.Absent:
			case cdc.Null:
				parts = append(parts, c.Columns.List[i].Name+"=NULL")
			default:
				parts = append(parts, c.Columns.List[i].Name+"="+v.Text())
			}
		}
		s += " {" + strings.Join(parts, " ") + "}"
	}
	return s
}

func shown(changes []*cdc.RowChange) string {
	var lines []string
	for _, c := range changes {
		lines = append(lines, show(c))
	}
	return strings.Join(lines, "\n")
}

func same(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// saying is a password that stays.
func saying(password string) func() string { return func() string { return password } }
