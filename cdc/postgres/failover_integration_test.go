//go:build integration

package postgres

import (
	"context"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
)

// pair is a primary of Postgres 17 and a standby that keeps copies of failover slots.
func pair(t *testing.T) (primary *server, d *db, standby *server) {
	t.Helper()
	primary = newServer(t, 17)
	d = primary.db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "SELECT pg_create_physical_replication_slot('standby')")
	standby = primary.standby(d, "primary_slot_name = 'standby'", "sync_replication_slots = on")
	return primary, d, standby
}

func (d *db) replicated(standby *server) {
	d.t.Helper()
	end := d.text("SELECT pg_current_wal_lsn()::text")
	s := standby.db("postgres")
	defer s.conn.Close(context.Background())
	s.eventually("the standby has replayed "+end, func() bool {
		return s.text("SELECT (pg_last_wal_replay_lsn() >= $1::pg_lsn)::text", end) == "true"
	})
}

// synced waits until the standby's copy of the slot can be used.
func (d *db) synced(standby *server, slot string) {
	d.t.Helper()
	s := standby.db("postgres")
	defer s.conn.Close(context.Background())
	s.eventually("the slot is synced", func() bool {
		d.exec("SELECT pg_log_standby_snapshot()")
		return s.text("SELECT coalesce(bool_or(synced AND NOT temporary), false)::text FROM pg_replication_slots WHERE slot_name = $1", slot) == "true"
	})
}

func (d *db) pairConfig(servers ...*server) Config {
	cfg := d.config("public.u")
	cfg.Slot, cfg.Publication, cfg.Hosts = "invalidator_t", "invalidator", nil
	for _, s := range servers {
		cfg.Hosts = append(cfg.Hosts, s.addr)
	}
	return cfg
}

// A slot of 17 is made as a failover slot: with a synced copy the feeder goes on at the promoted standby without loss, by
// itself, from the same list of hosts.
func TestF5FailoverWithSyncedSlot(t *testing.T) {
	primary, d, standby := pair(t)
	f := newFeeder(t, d.pairConfig(primary, standby))
	d.exec("ALTER SYSTEM SET synchronized_standby_slots = 'standby'", "SELECT pg_reload_conf()")
	r := d.start(f, cdc.Position{})
	d.exec("INSERT INTO u VALUES (1)")
	same(t, shown(r.caughtUp()), "c u - {id=1}")
	same(t, d.text("SELECT failover::text FROM pg_replication_slots WHERE slot_name = 'invalidator_t'"), "true")
	d.synced(standby, "invalidator_t")
	d.exec("INSERT INTO u VALUES (2)")
	same(t, shown(r.caughtUp()), "c u - {id=2}")
	saved := r.position()
	d.exec("BEGIN", "INSERT INTO u VALUES (3)", "COMMIT")
	d.replicated(standby)
	primary.crash()
	wantError(t, <-r.ended, false, true)

	standby.promote()
	now := standby.db("postgres")
	now.exec("INSERT INTO u VALUES (4)")
	r = now.start(f, saved)
	want := "c u - {id=3}\nc u - {id=4}"
	if got := shown(r.caughtUp()); !strings.HasSuffix(got, want) {
		t.Errorf("got %q", got)
	}
	if p := r.position(); p.Timeline != 2 || p.SystemID != saved.SystemID {
		t.Errorf("after the promotion at %+v", p)
	}
	r.stop()
}

// Without a copy of the slot a promotion is a gap, and so says the error; nothing is made anew before it is accepted.
func TestF5FailoverWithoutSlot(t *testing.T) {
	primary := newServer(t, 17)
	d := primary.db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	standby := primary.standby(d)
	f := newFeeder(t, d.pairConfig(primary, standby))
	r := d.start(f, cdc.Position{})
	d.exec("INSERT INTO u VALUES (1)")
	r.caughtUp()
	d.replicated(standby)
	saved := r.stop()
	primary.crash()
	standby.promote()
	now := standby.db("postgres")
	now.exec("INSERT INTO u VALUES (2)")
	if g := wantGap(t, now.fails(f, saved), saved, "was promoted (timeline 2)", "slot invalidator_t is not there"); g.Undone != nil {
		t.Error("nothing was undone")
	}
	same(t, now.slots("invalidator_t"), "0")
	r = now.restarted(f)
	now.exec("INSERT INTO u VALUES (3)")
	same(t, shown(r.caughtUp()), "c u - {id=3}")
	r.stop()
}

// A standby that lacks our last transactions is a gap that says which changes never happened, also where the newest of them
// was handed over and its position not yet saved.
func TestF5FailoverLosesTransactions(t *testing.T) {
	primary, d, standby := pair(t)
	f := newFeeder(t, d.pairConfig(primary, standby))
	r := d.start(f, cdc.Position{})
	d.exec("INSERT INTO u VALUES (1)")
	kept := r.caughtUp()
	d.synced(standby, "invalidator_t")
	d.exec("INSERT INTO u VALUES (2)")
	kept = append(kept, r.caughtUp()...)
	d.replicated(standby)
	safe := r.position()

	s := standby.db("postgres")
	s.exec("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
	d.eventually("the standby is cut off", func() bool {
		return d.text("SELECT count(*)::text FROM pg_stat_replication WHERE application_name = 'standby'") == "0"
	})
	d.exec("INSERT INTO u VALUES (3)")
	lost := r.caughtUp()
	same(t, shown(lost), "c u - {id=3}")
	saved := r.position()
	primary.crash()
	<-r.ended
	standby.promote()
	now := standby.db("postgres")
	now.exec("INSERT INTO u SELECT generate_series(10, 2000)") // its log is longer than the old one by now

	for what, c := range map[string]struct {
		f    *Feeder
		from cdc.Position
	}{
		"another process, which saved it": {newFeeder(t, f.cfg), saved},
		"ours, which had saved less":      {f, safe},
	} {
		g := wantGap(t, now.fails(c.f, c.from), c.from, "was promoted (timeline 2)", "from a point before what timeline 1 has told us")
		if g.Undone == nil || !strings.Contains(g.UndoneText, "of timeline 1") {
			t.Fatalf("%s: undone %q", what, g.UndoneText)
		}
		for _, ch := range kept {
			if g.Undone(&cdc.RowChange{Position: cdc.Position{LSN: ch.Position.LSN}}) {
				t.Errorf("%s: %s is undone", what, show(ch))
			}
		}
		for _, ch := range lost {
			if !g.Undone(&cdc.RowChange{Position: cdc.Position{LSN: ch.Position.LSN}}) {
				t.Errorf("%s: %s is not undone", what, show(ch))
			}
		}
	}

	// A process that died before it saved them left a position that the server has: that is no gap, and they are undone all the same.
	fresh := newFeeder(t, f.cfg)
	r = now.start(fresh, safe)
	r.caughtUp()
	r.stop()
	tell, err := fresh.Undone(t.Context())
	if err != nil || tell == nil {
		t.Fatal(err)
	}
	for _, ch := range kept {
		if tell(&cdc.RowChange{Position: cdc.Position{LSN: ch.Position.LSN}}) {
			t.Errorf("%s is undone", show(ch))
		}
	}
	for _, ch := range lost {
		if !tell(&cdc.RowChange{Position: cdc.Position{LSN: ch.Position.LSN}}) {
			t.Errorf("%s is not undone", show(ch))
		}
	}
	now.slotIsFree("invalidator_t")

	r = now.restarted(f)
	now.exec("INSERT INTO u VALUES (4)")
	same(t, shown(r.caughtUp()), "c u - {id=4}")
	r.stop()
	now.slotIsFree("invalidator_t")
	now.start(f, r.position()).stop()
}

// Of two primaries in the list the newer one is read, though the one that it replaced has come back and stands first.
func TestF5OldPrimaryComesBack(t *testing.T) {
	primary, d, standby := pair(t)
	f := newFeeder(t, d.pairConfig(primary, standby))
	r := d.start(f, cdc.Position{})
	d.exec("INSERT INTO u VALUES (1)")
	r.caughtUp()
	d.synced(standby, "invalidator_t")
	d.replicated(standby)
	saved := r.stop()
	standby.promote()
	d.exec("INSERT INTO u VALUES (2)") // on the old one, which nobody stopped
	now := standby.db("postgres")
	now.exec("INSERT INTO u VALUES (3)")
	r = now.start(f, saved)
	same(t, shown(r.caughtUp()), "c u - {id=3}")
	r.stop()

	// A host that does not answer holds up nothing.
	p := newProxy(t, standby.addr)
	p.freeze()
	cfg := f.cfg
	cfg.Hosts = []string{p.addr(), standby.addr}
	now.slotIsFree(cfg.Slot)
	begin := time.Now()
	r = now.start(newFeeder(t, cfg), r.position())
	if took := time.Since(begin); took > connectTimeout/2 {
		t.Errorf("it took %v", took)
	}
	r.stop()
}

// A standby can be read itself. Its slot is lost by a conflict with what the primary cleans up, which is a gap.
func TestSlotOnAStandby(t *testing.T) {
	primary, d, standby := pair(t)
	_ = primary
	d.exec("CREATE PUBLICATION invalidator FOR TABLE u")
	d.replicated(standby)
	cfg := d.pairConfig(primary, standby)
	cfg.Standby = true
	cfg.Slot = "on_standby"
	f := newFeeder(t, cfg)
	s := standby.db("postgres")

	ended := make(chan struct{})
	d.t.Cleanup(func() { <-ended })
	snapshots, stop := context.WithCancel(context.Background())
	conn := d.connect("postgres")
	go func() { // the slot's making waits for the primary to tell what runs there
		defer close(ended)
		defer conn.Close(context.Background())
		for snapshots.Err() == nil {
			_, _ = conn.Exec(snapshots, "SELECT pg_log_standby_snapshot(), pg_sleep(0.1)")
		}
	}()
	r := s.start(f, cdc.Position{})
	d.exec("INSERT INTO u VALUES (1)")
	r.becomes("c u - {id=1}")
	same(t, s.slots("on_standby"), "1")
	d.exec("INSERT INTO u VALUES (2)")
	r.becomes("c u - {id=2}")
	saved := r.stop()
	stop()
	s.slotIsFree("on_standby")

	s.exec("ALTER SYSTEM SET hot_standby_feedback = off", "SELECT pg_reload_conf()")
	d.eventually("the slot is lost by a conflict", func() bool {
		d.exec("CREATE TABLE x (id int)", "DROP TABLE x", "VACUUM pg_class, pg_attribute, pg_type, pg_depend")
		return s.text("SELECT coalesce(invalidation_reason, '') FROM pg_replication_slots WHERE slot_name = 'on_standby'") == "rows_removed"
	})
	wantGap(t, s.fails(f, saved), saved, "slot on_standby is lost", "rows_removed")
}
