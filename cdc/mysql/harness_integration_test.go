//go:build integration

package mysql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"go.uber.org/goleak"

	"invalidator/cdc"
	"invalidator/test/integration/services"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(withServers{m}, goleak.Cleanup(func(code int) { removeFolders(); os.Exit(code) }))
}

// withServers ends the servers that tests share when all have run.
type withServers struct{ *testing.M }

func (m withServers) Run() int {
	code := m.M.Run()
	endServers()
	return code
}

// patienceOfTests is how long a test waits for what must happen.
const patienceOfTests = 20 * time.Second

// bed is a database of a test's own on one of the two servers.
type bed struct {
	*testing.T
	service string // "MYSQL" or "MARIADB"
	addr    string
	db      string
	sql     *client.Conn
	admin   *client.Conn // root
}

// onBoth runs a test on MySQL and on MariaDB.
func onBoth(t *testing.T, test func(b *bed)) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(strings.ToLower(service), func(t *testing.T) { test(newBed(t, service)) })
	}
}

func newBed(t *testing.T, service string) *bed { return bedAt(t, service, services.Addr(service)) }

// bedUnder is on a server whose log describes its tables (FULL) or does not (MINIMAL; NO_LOG, MariaDB's default). No session has a
// setting of its own for that, so the latter are other servers, which the tests of this package share.
func bedUnder(t *testing.T, service, metadata string) *bed {
	if metadata == "FULL" {
		return newBed(t, service)
	}
	return bedAt(t, service, sharedServer(t, service, metadata).addr)
}

func bedAt(t *testing.T, service, addr string) *bed {
	b := &bed{T: t, service: service, addr: addr}
	b.db = fmt.Sprintf("feed_%d_%d", os.Getpid(), time.Now().UnixNano()%1e9)
	b.admin = b.connect("root", "", "")
	b.exec(b.admin, "CREATE DATABASE "+b.db)
	b.Cleanup(func() { b.exec(b.admin, "DROP DATABASE "+b.db) })
	b.sql = b.connect("app", "app-password", b.db)
	return b
}

func (b *bed) connect(user, password, db string) *client.Conn {
	b.Helper()
	c, err := client.Connect(b.addr, user, password, db, func(c *client.Conn) error { return c.SetCollation(collation) })
	if err != nil {
		b.Fatalf("connecting to %s: %v", b.service, err)
	}
	b.Cleanup(func() { c.Close() })
	return c
}

func (b *bed) exec(c *client.Conn, statements ...string) {
	b.Helper()
	for _, s := range statements {
		r, err := c.Execute(s)
		if err != nil {
			b.Fatalf("%s: %.200s: %v", b.service, s, err)
		}
		r.Close()
	}
}

func (b *bed) do(statements ...string) { b.Helper(); b.exec(b.sql, statements...) }

// ask gives the rows of a query, in the server's own text; NULL is "NULL".
func (b *bed) ask(query string) [][]string {
	b.Helper()
	r, err := b.sql.Execute(query)
	if err != nil {
		b.Fatalf("%s: %.200s: %v", b.service, query, err)
	}
	defer r.Close()
	out := make([][]string, r.RowNumber())
	for i := range out {
		for j := range r.ColumnNumber() {
			s, err := r.GetString(i, j)
			if err != nil {
				b.Fatal(err)
			}
			if null, _ := r.IsNull(i, j); null {
				s = "NULL"
			}
			out[i] = append(out[i], strings.Clone(s))
		}
	}
	return out
}

// feeder is one that includes the bed's own database.
func (b *bed) feeder(change ...func(*Config)) *Feeder {
	b.Helper()
	inc, err := cdc.NewInclude([]string{b.db + ".*"})
	if err != nil {
		b.Fatal(err)
	}
	cfg := Config{Name: b.db, Hosts: []string{b.addr}, User: "cdc", Password: saying("cdc-password"), Include: inc}
	for _, f := range change {
		f(&cfg)
	}
	f, err := New(cfg, slog.New(slog.NewTextHandler(b.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// including is for a feeder of some tables of the bed's database.
func (b *bed) including(tables ...string) func(*Config) {
	b.Helper()
	for i, t := range tables {
		tables[i] = b.db + "." + t
	}
	inc, err := cdc.NewInclude(tables)
	if err != nil {
		b.Fatal(err)
	}
	return func(c *Config) { c.Include = inc }
}

// tape records what a feeder hands over.
type tape struct {
	b *bed

	mu      sync.Mutex
	started cdc.Position
	ready   bool
	changes []*cdc.RowChange
	count   int // of changes, recorded or not
	commits []commit
	losses  []cdc.Loss
	joined  []cdc.TableID

	beforeLoss cdc.Position               // the last that was told before the last loss
	hold       func(*cdc.RowChange) error // asked before a change is recorded
	atStart    func()                     // done within Started
	light      bool                       // changes are not recorded
	news       chan struct{}              // closed and renewed at each call

	cancel context.CancelFunc
	ended  chan struct{}
	err    error
}

type commit struct {
	at      cdc.Position
	time    time.Time
	changes int // so many changes had been handed over
}

// run starts a feeder and waits until it is ready, or has ended.
func (b *bed) run(f *Feeder, from cdc.Position, options ...func(*tape)) *tape {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	tp := &tape{b: b, news: make(chan struct{}), cancel: cancel, ended: make(chan struct{})}
	for _, o := range options {
		o(tp)
	}
	go func() {
		defer close(tp.ended)
		tp.err = f.Run(ctx, from, tp)
	}()
	b.Cleanup(func() { tp.stop() })
	tp.until("the start", func() bool { return tp.ready })
	return tp
}

func (tp *tape) tell(f func()) {
	tp.mu.Lock()
	f()
	close(tp.news)
	tp.news = make(chan struct{})
	tp.mu.Unlock()
}

func (tp *tape) Started(_ context.Context, p cdc.Position) error {
	if tp.atStart != nil {
		tp.atStart()
	}
	tp.tell(func() { tp.started, tp.ready = p, true })
	return nil
}

func (tp *tape) Change(_ context.Context, c *cdc.RowChange) error {
	if tp.hold != nil {
		if err := tp.hold(c); err != nil {
			return err
		}
	}
	tp.tell(func() {
		tp.count++
		if !tp.light {
			tp.changes = append(tp.changes, c.Clone())
		}
	})
	return nil
}

func (tp *tape) Lost(_ context.Context, l cdc.Loss) error {
	at := tp.last()
	tp.tell(func() { tp.losses, tp.beforeLoss = append(tp.losses, l), at })
	return nil
}

func (tp *tape) Joined(_ context.Context, tables []cdc.TableID, _ cdc.Position) error {
	tp.tell(func() { tp.joined = append(tp.joined, tables...) })
	return nil
}

func (tp *tape) Committed(_ context.Context, p cdc.Position, at time.Time) error {
	tp.tell(func() { tp.commits = append(tp.commits, commit{p, at, tp.count}) })
	return nil
}

// until waits for a condition, which is asked under the lock, or for the feeder's end.
func (tp *tape) until(what string, cond func() bool) {
	tp.b.Helper()
	deadline := time.After(patienceOfTests)
	for {
		tp.mu.Lock()
		ok, news := cond(), tp.news
		tp.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-news:
		case <-tp.ended:
			if cond() {
				return
			}
			tp.b.Fatalf("waiting for %s: the feeder has ended: %v", what, tp.err)
		case <-deadline:
			tp.b.Fatalf("waiting for %s: not within %v; there are %q, lost %q", what, patienceOfTests, texts(tp.changes), lossTexts(tp.losses))
		}
	}
}

// take waits for n changes, that their transaction is complete, and gives all changes.
func (tp *tape) take(n int) []*cdc.RowChange {
	tp.b.Helper()
	tp.until(fmt.Sprintf("%d changes", n), func() bool {
		return len(tp.commits) > 0 && tp.commits[len(tp.commits)-1].changes >= n
	})
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return slices.Clone(tp.changes)
}

// last is the position of the newest commit.
func (tp *tape) last() cdc.Position {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	if len(tp.commits) == 0 {
		return tp.started
	}
	return tp.commits[len(tp.commits)-1].at
}

// after is the position behind the transaction of the nth change.
func (tp *tape) after(n int) cdc.Position {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return tp.commits[slices.IndexFunc(tp.commits, func(c commit) bool { return c.changes >= n })].at
}

// stop ends the feeder and gives what Run returned.
func (tp *tape) stop() error {
	tp.cancel()
	select {
	case <-tp.ended:
	case <-time.After(patienceOfTests):
		tp.b.Fatalf("the feeder did not end within %v", patienceOfTests)
	}
	return tp.err
}

// fails runs a feeder that must not come far, and gives its error.
func (b *bed) fails(f *Feeder, from cdc.Position) *cdc.SourceError {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patienceOfTests)
	defer cancel()
	err := f.Run(ctx, from, &tape{b: b, news: make(chan struct{})})
	se := (*cdc.SourceError)(nil)
	if !errors.As(err, &se) {
		b.Fatalf("Run gave %v, want a *cdc.SourceError", err)
	}
	return se
}

// text shows a change as one line: table op {before} {after}, absent columns left out.
func text(c *cdc.RowChange) string {
	s := c.Table + " " + c.Op.String()
	for _, row := range []cdc.Row{c.Before, c.After} {
		if row == nil {
			s += " -"
			continue
		}
		var parts []string
		for i, v := range row {
			if v.Kind != cdc.Absent {
				parts = append(parts, c.Columns.List[i].Name+"="+show(v))
			}
		}
		s += " {" + strings.Join(parts, " ") + "}"
	}
	return s
}

func show(v cdc.Value) string {
	switch v.Kind {
	case cdc.Absent:
		return "absent"
	case cdc.Null:
		return "NULL"
	case cdc.Unclear:
		return "unclear: " + v.Why
	}
	return v.Text()
}

func texts(changes []*cdc.RowChange) []string {
	out := make([]string, len(changes))
	for i, c := range changes {
		out[i] = text(c)
	}
	return out
}

// lossTexts shows losses as one line each: tables, and why.
func lossTexts(losses []cdc.Loss) []string {
	out := make([]string, len(losses))
	for i, l := range losses {
		var names []string
		for _, id := range l.Tables {
			names = append(names, id.Table)
		}
		out[i] = strings.Join(names, ",") + ": " + l.Why
	}
	return out
}

// loses waits for so many losses as are wanted and compares them. Each must say all that a person needs.
func (tp *tape) loses(want ...string) {
	tp.b.Helper()
	tp.until(fmt.Sprintf("%d losses", len(want)), func() bool { return len(tp.losses) >= len(want) })
	tp.mu.Lock()
	defer tp.mu.Unlock()
	if got := lossTexts(tp.losses); !slices.Equal(got, want) {
		tp.b.Errorf("%s: lost\n  %s\nwant\n  %s", tp.b.service, strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	for _, l := range tp.losses {
		if l.At.IsZero() || l.Tx == "" || l.Time.IsZero() || l.Hint == "" || l.Tables[0].Schema != tp.b.db {
			tp.b.Errorf("%s: the loss does not say all: %+v", tp.b.service, l)
		}
	}
}

// wants compares changes with their texts.
func (b *bed) wants(got []*cdc.RowChange, want ...string) {
	b.Helper()
	if g := texts(got); !slices.Equal(g, want) {
		b.Errorf("%s: got\n  %s\nwant\n  %s", b.service, strings.Join(g, "\n  "), strings.Join(want, "\n  "))
	}
}

// killDump cuts the dumps of this test's reader, known by its own account.
func (b *bed) killDump() {
	b.Helper()
	for _, r := range b.ask("SELECT ID FROM information_schema.PROCESSLIST WHERE USER='" + b.ownUser() + "'") {
		b.exec(b.admin, "KILL "+r[0])
	}
}

// ownUser is an account of this test alone, for what concerns connections.
func (b *bed) ownUser() string { return "u" + b.db[5:] }

func (b *bed) asOwnUser() func(*Config) {
	b.Helper()
	user := b.ownUser()
	b.exec(b.admin, "CREATE USER '"+user+"'@'%' IDENTIFIED BY 'own-password'",
		"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT /*M!100509 , REPLICA MONITOR */ ON *.* TO '"+user+"'@'%'")
	b.Cleanup(func() { b.exec(b.admin, "DROP USER '"+user+"'@'%'") })
	return func(c *Config) { c.User, c.Password = user, saying("own-password") }
}

// heap is what the process holds, in bytes.
func heap() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}

// saying is a password that stays.
func saying(password string) func() string { return func() string { return password } }
