//go:build integration

package postgres

import (
	"testing"

	"invalidator/cdc"
)

// A slot that the server gave up is a gap after one look, however it was lost, and nothing is made anew before that is
// accepted.
func TestF2SlotLost(t *testing.T) {
	s := newServer(t, 17, "max_slot_wal_keep_size = '1MB'", "wal_keep_size = 0", "checkpoint_timeout = '1h'")
	d := s.db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE other (x text)")
	f := d.feeder("public.u")
	lose := func() {
		t.Helper()
		d.eventually("the slot is lost", func() bool {
			d.exec("INSERT INTO other SELECT repeat('x', 1000) FROM generate_series(1, 20000)", "SELECT pg_switch_wal()", "CHECKPOINT", "TRUNCATE other")
			return d.text("SELECT wal_status FROM pg_replication_slots WHERE slot_name = $1", f.cfg.Slot) == "lost"
		})
	}
	saved := d.start(f, cdc.Position{}).stop()
	d.slotIsFree(f.cfg.Slot)
	lose()
	for range 2 { // it stays what it is
		wantGap(t, d.fails(f, saved), saved, "is lost", "wal_removed")
	}
	same(t, d.text("SELECT wal_status FROM pg_replication_slots"), "lost")
	found := d.check(f)
	wantFinding(t, found, cdc.SeverityError, "", "is lost")

	// While it is read, by a feeder that cannot go on.
	r := d.restarted(f)
	r.streaming()
	r.stop()
	d.slotIsFree(f.cfg.Slot)
	r = d.start(f, r.position(), unconfirmed)
	r.streaming()
	lose()
	wantError(t, <-r.ended, false, true)
	wantGap(t, d.fails(f, r.started), r.started, "is lost")

	r = d.restarted(f)
	d.exec("INSERT INTO u VALUES (1)")
	same(t, shown(r.caughtUp()), "c u - {id=1}")
	r.stop()
}

// From 18 on a slot can be lost because nobody has read it for long.
func TestF2SlotLostByIdleTimeout(t *testing.T) {
	d := newServer(t, 18, "idle_replication_slot_timeout = '1s'").db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.u")
	saved := d.start(f, cdc.Position{}).stop()
	d.slotIsFree(f.cfg.Slot)
	d.eventually("the slot is lost", func() bool {
		d.exec("INSERT INTO u SELECT coalesce(max(id), 0) + 1 FROM u", "CHECKPOINT")
		return d.text("SELECT coalesce(invalidation_reason, '') FROM pg_replication_slots") == "idle_timeout"
	})
	wantGap(t, d.fails(f, saved), saved, "is lost", "idle_timeout")
	r := d.restarted(f)
	d.exec("INSERT INTO u VALUES (1000)")
	same(t, shown(r.caughtUp()), "c u - {id=1000}")
	r.stop()
}
