//go:build integration

package postgres

import (
	"context"
	"testing"

	"invalidator/cdc"
)

// A commit that waits for a synchronous standby is in the log, and no reader sees it: it is not handed over before one does,
// whether the standby comes, is given up, or the wait is canceled. What waits is the transaction, not the connection.
func TestHeldBackUntilReadersSeeIt(t *testing.T) {
	s := newServer(t, 17, "max_prepared_transactions = 2")
	d := s.db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "SET synchronous_commit = local")
	kept := &logs{}
	f := lookOften(newLoggedFeeder(t, d.config("public.u"), kept))
	r := d.start(f, cdc.Position{})
	backend := r.streaming()

	d.exec("ALTER SYSTEM SET synchronous_standby_names = 'away'", "SELECT pg_reload_conf()")
	d.eventually("the setting is seen", func() bool { return kept.hold("synchronous_standby_names has changed", "commits_may_wait=true") })
	d.exec("INSERT INTO u VALUES (1)")
	same(t, shown(r.caughtUp()), "c u - {id=1}") // its session does not wait

	pid := d.commits("INSERT INTO u VALUES (2)")
	r.staysBehind(backend)
	same(t, d.text("SELECT count(*)::text FROM u"), "1")
	d.exec("SELECT pg_cancel_backend(" + pid + ")")
	same(t, shown(r.caughtUp()), "c u - {id=2}")

	d.exec("BEGIN", "INSERT INTO u VALUES (0)", "PREPARE TRANSACTION 'p'")
	pid = d.commits("COMMIT PREPARED 'p'")
	r.staysBehind(backend)
	d.exec("SELECT pg_cancel_backend(" + pid + ")")
	same(t, shown(r.caughtUp()), "c u - {id=0}")

	pid = d.commits("BEGIN; INSERT INTO u VALUES (3); SAVEPOINT s; INSERT INTO u VALUES (4); COMMIT")
	d.exec("INSERT INTO u VALUES (5)") // visible, and behind it
	r.staysBehind(backend)
	d.exec("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
	same(t, shown(r.caughtUp()), "c u - {id=3}\nc u - {id=4}\nc u - {id=5}")
	d.eventually("the setting is seen", func() bool { return kept.hold("synchronous_standby_names has changed", "commits_may_wait=false") })
	same(t, d.text("SELECT count(*)::text FROM pg_stat_activity WHERE pid = "+pid+" AND wait_event = 'SyncRep'"), "0")
	r.stop()
}

// A Run that begins while a commit waits knows that from its start. It ends at once when it is asked to, and hands the transaction over
// the next time.
func TestHeldBackFromTheStart(t *testing.T) {
	s := newServer(t, 17)
	d := s.db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "SET synchronous_commit = local")
	from := d.start(d.feeder("public.u"), cdc.Position{}).stop()
	d.exec("ALTER SYSTEM SET synchronous_standby_names = 'away'", "SELECT pg_reload_conf()")
	d.eventually("the setting is in force", func() bool { return d.text("SHOW synchronous_standby_names") == "away" })
	before := d.text("SELECT pg_current_wal_insert_lsn()::text")
	d.commits("INSERT INTO u VALUES (1)")
	d.eventually("the slot is free", func() bool { return d.text("SELECT count(*)::text FROM pg_replication_slots WHERE active") == "0" })

	r := d.start(d.feeder("public.u"), from)
	r.staysBehind(r.streaming())
	if from = r.stop(); !atMost(t, from, before) { // the server logs things of its own before the row
		t.Errorf("the position moved to %v; the row lies behind %s", from, before)
	}
	d.eventually("the slot is free", func() bool { return d.reader(r.feeder.cfg.Slot) == "" })
	r = d.start(d.feeder("public.u"), from)
	backend := r.streaming()
	r.staysBehind(backend)
	d.exec("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'invalidator/t' AND backend_type = 'client backend'")
	r.staysBehind(backend) // asked over another connection
	d.exec("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
	same(t, shown(r.caughtUp()), "c u - {id=1}")
	r.stop()
}

// atMost reports whether a position is no later than an LSN.
func atMost(t *testing.T, at cdc.Position, limit string) bool {
	t.Helper()
	a, err := parseLSN(at.LSN)
	b, err2 := parseLSN(limit)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return a <= b
}

// commits runs statements whose commit waits for a standby, and gives the process that waits.
func (d *db) commits(statements string) (pid string) {
	d.t.Helper()
	const waiting = "SELECT coalesce(max(pid), 0)::text FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
	conn := d.connect(d.name)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = conn.Exec(context.Background(), statements)
	}()
	d.t.Cleanup(func() {
		d.exec("ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")
		<-done
		_ = conn.Close(context.Background())
	})
	d.eventually("the commit waits", func() bool {
		pid = d.text(waiting)
		return pid != "0"
	})
	return pid
}

// staysBehind expects that nothing is handed over while the server has sent what it has, and hears of us.
func (r *run) staysBehind(backend string) {
	r.t.Helper()
	const sent = `SELECT bool_and(sent_lsn >= pg_current_wal_flush_lsn())::text FROM pg_stat_replication WHERE pid = `
	r.db.eventually("the server has sent all", func() bool { return r.db.text(sent+backend) == "true" })
	heard := r.db.text("SELECT reply_time::text FROM pg_stat_replication WHERE pid = " + backend)
	for range 3 { // status messages go on
		r.db.eventually("the server hears of us", func() bool {
			now := r.db.text("SELECT reply_time::text FROM pg_stat_replication WHERE pid = " + backend)
			defer func() { heard = now }()
			return now != heard
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.changes) > 0 {
		r.t.Errorf("handed over before readers see it:\n%s", shown(r.changes))
	}
}
