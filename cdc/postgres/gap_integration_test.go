//go:build integration

package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"invalidator/cdc"
)

// wantGap wants a gap that begins at from, and gives it.
func wantGap(t *testing.T, err error, from cdc.Position, texts ...string) *cdc.GapError {
	t.Helper()
	wantError(t, err, true, false, append(texts, "flush", "invalidator gap accept")...)
	var s *cdc.SourceError
	var g *cdc.GapError
	if !errors.As(err, &s) || !errors.As(err, &g) {
		t.Fatalf("no gap: %v", err)
	}
	if s.At != from || g.Tables != nil {
		t.Errorf("the gap of tables %v begins at %+v, want all from %+v", g.Tables, s.At, from)
	}
	return g
}

func (d *db) slotIsFree(slot string) {
	d.t.Helper()
	d.eventually("the slot is free", func() bool { return d.reader(slot) == "" })
}

func (d *db) slots(slot string) string {
	d.t.Helper()
	return d.text("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1", slot)
}

// restarted goes on after a gap: what is committed from now on is fed.
func (d *db) restarted(f *Feeder) *run {
	d.t.Helper()
	p, err := f.Restart(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	r := d.start(f, p)
	if r.started != p {
		d.t.Errorf("started at %+v, Restart said %+v", r.started, p)
	}
	return r
}

// A slot that has moved on, or was dropped and made anew, is a gap from the saved position on, before anything is read;
// nothing is made anew until Restart is called.
func TestF4SlotAheadOfPosition(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.u")
	saved := d.start(f, cdc.Position{}).stop()
	d.slotIsFree(f.cfg.Slot)

	d.exec("INSERT INTO u VALUES (1)", "SELECT pg_replication_slot_advance('"+f.cfg.Slot+"', pg_current_wal_lsn())")
	ahead := d.flushed(f.cfg.Slot)
	wantGap(t, d.fails(f, saved), saved, "has moved on to "+ahead.String())
	if at := d.flushed(f.cfg.Slot); at != ahead {
		t.Errorf("the slot was touched: %s", at)
	}

	d.exec("SELECT pg_drop_replication_slot('" + f.cfg.Slot + "')")
	wantGap(t, d.fails(f, saved), saved, "is gone")
	same(t, d.slots(f.cfg.Slot), "0")

	d.exec("INSERT INTO u VALUES (2)", "SELECT pg_create_logical_replication_slot('"+f.cfg.Slot+"', 'pgoutput')")
	wantGap(t, d.fails(f, saved), saved, "has moved on")

	r := d.restarted(f)
	d.exec("INSERT INTO u VALUES (3)")
	same(t, shown(r.caughtUp()), "c u - {id=3}")
	r.stop()
}

// Another server, one that was set back, and one whose log ends before what it has told us are gaps; the latter two say
// what never happened.
func TestOtherHistoriesAreGaps(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.u")
	saved := d.start(f, cdc.Position{}).stop()
	other := saved
	other.SystemID = "1"
	if g := wantGap(t, d.fails(d.feeder("public.u"), other), other, "another one"); g.Undone != nil {
		t.Error("of another server nobody can tell")
	}
	other = saved
	other.Timeline = 7
	if g := wantGap(t, d.fails(d.feeder("public.u"), other), other, "timeline"); g.Undone != nil {
		t.Error("without the history of timeline 7 nobody can tell")
	}
	other = saved
	other.LSN = "FFFF/0"
	g := wantGap(t, d.fails(d.feeder("public.u"), other), other, "log ends at")
	for at, want := range map[string]bool{"FFFE/0": true, "0/1": false, "": true} {
		if got := g.Undone(&cdc.RowChange{Position: cdc.Position{LSN: at}}); got != want {
			t.Errorf("a change at %q is undone: %v", at, got)
		}
	}
	if !strings.Contains(g.UndoneText, "timeline 1") {
		t.Errorf("undone: %q", g.UndoneText)
	}
}

// A slot that is older than its publication cannot be read past that point; the error says so, and the remedy. Our own setup
// makes the publication first.
func TestF8PublicationYoungerThanSlot(t *testing.T) {
	for _, version := range []int{15, 18} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			d := newDBOf(t, version)
			d.exec("CREATE TABLE u (id int PRIMARY KEY)")
			f := d.feeder("public.u")
			d.exec("SELECT pg_create_logical_replication_slot('"+f.cfg.Slot+"', 'pgoutput')", "INSERT INTO u VALUES (1)")
			wantError(t, d.fails(f, cdc.Position{}), false, false, "publication "+f.cfg.Publication+" does not exist, but slot", "pg_drop_replication_slot", "publication is then made first")

			d.exec("CREATE PUBLICATION " + f.cfg.Publication + " FOR TABLE u")
			wantError(t, d.fails(f, cdc.Position{}), true, false, "publication", "gap accept", "after its publication")
			d.exec("DROP PUBLICATION " + f.cfg.Publication)
			r := d.restarted(f)
			d.exec("INSERT INTO u VALUES (2)")
			same(t, shown(r.caughtUp()), "c u - {id=2}")
			r.stop()
		})
	}
}

// Restart may be called again, at any time: the slot is made anew, and what is not ours is not touched.
func TestRestart(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.u")
	first, err := f.Restart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.exec("INSERT INTO u VALUES (1)")
	second, err := f.Restart(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if a, _ := parseLSN(first.LSN); second.LSN == first.LSN || a > d.flushed(f.cfg.Slot) || second.SystemID == "" || second.Timeline != 1 {
		t.Errorf("from %+v to %+v", first, second)
	}
	same(t, d.published(f.cfg.Publication), "u")

	for _, plugin := range []string{"test_decoding", "pgoutput"} {
		cfg := d.config("public.u")
		cfg.Slot += "_x"
		d.exec("SELECT pg_create_logical_replication_slot('" + cfg.Slot + "', '" + plugin + "')")
		if plugin == "pgoutput" {
			cfg.Database = "postgres"
		}
		_, err = newFeeder(t, cfg).Restart(t.Context())
		wantError(t, err, false, false, "give the source another slot")
		same(t, d.slots(cfg.Slot), "1")
		d.exec("SELECT pg_drop_replication_slot('" + cfg.Slot + "')")
	}
}

// A slot that somebody else reads is no gap, wherever it stands: the error says who reads it, and trying again may help.
// Restart does not take it from them.
func TestSlotThatSomebodyElseReads(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.u")
	saved := d.start(f, cdc.Position{}).stop()
	d.slotIsFree(f.cfg.Slot)
	d.exec("INSERT INTO u VALUES (1)", "SELECT pg_replication_slot_advance('"+f.cfg.Slot+"', pg_current_wal_lsn())")
	other := d.readSlot(f, "somebody")

	wantError(t, d.fails(f, saved), false, true, "is active for PID", "role postgres", `application "somebody"`, "from 127.0.0.1", "another process reads slot")
	_, err := f.Restart(t.Context())
	wantError(t, err, false, true, "is active for PID")
	_ = other.Close(context.Background())
	d.slotIsFree(f.cfg.Slot)
	wantGap(t, d.fails(f, saved), saved, "has moved on")
}

// readSlot reads a feeder's slot as another program does.
func (d *db) readSlot(f *Feeder, application string) *pgconn.PgConn {
	d.t.Helper()
	conn, err := pgconn.Connect(context.Background(), "postgres://postgres@"+d.addr+"/"+d.name+"?sslmode=disable&replication=database&application_name="+application)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	err = pglogrepl.StartReplication(context.Background(), conn, f.cfg.Slot, 0, pglogrepl.StartReplicationOptions{
		PluginArgs: []string{"proto_version '1'", "publication_names '" + f.cfg.Publication + "'"},
	})
	if err != nil {
		d.t.Fatal(err)
	}
	d.eventually("the slot is read", func() bool { return d.reader(f.cfg.Slot) != "" })
	return conn
}

// The successor of a feeder that is stopped or cut off ends its process on the server and goes on at once.
func TestSuccessorEndsOlderReader(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY, body text)")
	p := newProxy(t, d.addr)
	cfg := d.config("public.u")
	cfg.Hosts = []string{p.addr()}
	old := d.start(newFeeder(t, cfg), cdc.Position{})
	backend := old.streaming()
	p.freeze()
	d.exec("INSERT INTO u SELECT 1, repeat('x', 50000000)") // the old process waits to send it

	begin := time.Now()
	r := d.start(d.feeder("public.u"), old.position())
	if n := len(r.caughtUp()); n != 1 {
		t.Errorf("%d changes", n)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if now := d.reader(cfg.Slot); now == backend {
		t.Error("the old process still reads")
	}
	r.stop()
}
