package postgres

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

const (
	// maxSkew is how far the server's clock may be from ours: deletes are timed by the server's commit times.
	maxSkew = 500 * time.Millisecond

	// longOpen is from when on an open or prepared transaction is told of: the server keeps its log for the slot from there on.
	longOpen = 5 * time.Minute

	// steadyWindow is over how long the rate of the log must have been measured to say something.
	steadyWindow = 10 * time.Minute

	// muchRetained is how much log a slot without a limit may keep, in bytes.
	muchRetained = 1 << 30
)

// transport looks at how the server is reached.
func (c *checker) transport(host string) {
	name, _, _ := net.SplitHostPort(host)
	ip := net.ParseIP(name)
	local := name == "localhost" || ip != nil && ip.IsLoopback()
	switch t := c.f.cfg.TLS; {
	case t == nil && !local:
		c.add(cdc.SeverityWarning, "", "", "set tls for the source", "host %s is reached without TLS: rows and the password's proof cross the network in the clear", host)
	case t != nil && t.InsecureSkipVerify:
		c.add(cdc.SeverityWarning, "", "", "give the source the server's CA", "host %s is reached by TLS that does not verify who answers", host)
	}
}

// settings are the server's, in their base units: megabytes, seconds.
type settings map[string]string

func (s settings) int(name string) int64 {
	n, _ := strconv.ParseInt(s[name], 10, 64) // a setting that the server does not know is 0
	return n
}

func askSettings(ctx context.Context, conn *pgx.Conn, names ...string) (settings, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	s := settings{}
	var name, value string
	rows, _ := conn.Query(ctx, "SELECT name, coalesce(setting, '') FROM pg_settings WHERE name = ANY ($1)", names)
	_, err := pgx.ForEachRow(rows, []any{&name, &value}, func() error {
		s[name] = value
		return nil
	})
	return s, during("asking the server for its settings", err)
}

// load is what else runs on the server.
type load struct {
	Now              time.Time
	Slots, Senders   int     // that are in use
	Standbys         int     // that stream from here
	WALBytes         float64 // written within WALSeconds
	WALSeconds       float64
	OpenSince        time.Time // of the oldest transaction that writes; zero: none
	OpenBy           int       // its process
	PreparedNames    []string  // of transactions that were prepared long ago
	PreparedSince    time.Time
	PublicationUsers []string // slots that read our publication too
}

// server looks at settings, and at what else runs there.
func (c *checker) server(ctx context.Context, conn *pgx.Conn, server serverInfo, slot *slotInfo) error {
	s, err := askSettings(ctx, conn, "max_slot_wal_keep_size", "wal_keep_size", "idle_replication_slot_timeout", "max_replication_slots", "max_wal_senders",
		"synchronous_standby_names", "synchronous_commit", "synchronized_standby_slots", "hot_standby_feedback")
	if err != nil {
		return err
	}
	l, skew, err := c.askLoad(ctx, conn, longOpen)
	if err != nil {
		return err
	}
	if skew.Abs() > maxSkew {
		c.add(cdc.SeverityWarning, "", "", "let both machines follow a time server", "the server's clock is %v from ours: deletes are repeated by commit time", skew.Round(time.Millisecond))
	}
	c.retention(s, l, slot)
	c.room(s, l, slot)
	c.standbys(s, l, server, slot)
	c.waits(s)
	c.transactions(l)
	c.minor(server.Version)
	for _, user := range l.PublicationUsers {
		c.add(cdc.SeverityWarning, "", "", "give each program a publication of its own", "slot %s reads publication %s too: whoever changes it changes it for both", user, c.f.cfg.Publication)
	}
	return nil
}

// askLoad also compares the clocks. A prepared transaction is told of when it is older than open.
func (c *checker) askLoad(ctx context.Context, conn *pgx.Conn, open time.Duration) (l load, skew time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	begin := time.Now()
	rows, _ := conn.Query(ctx, `
SELECT clock_timestamp(),
       (SELECT count(*) FROM pg_replication_slots)::int, (SELECT count(*) FROM pg_stat_replication)::int,
       (SELECT count(*) FROM pg_stat_replication r WHERE NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical'))::int,
       (SELECT wal_bytes FROM pg_stat_wal)::float8, (SELECT coalesce(extract(epoch FROM now() - stats_reset), 0) FROM pg_stat_wal)::float8,
       coalesce((SELECT min(xact_start) FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL), 'epoch'),
       coalesce((SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_xid IS NOT NULL ORDER BY xact_start LIMIT 1), 0),
       ARRAY(SELECT quote_literal(gid) FROM pg_prepared_xacts WHERE database = current_database() AND prepared < now() - $1 * interval '1 second' ORDER BY prepared),
       coalesce((SELECT min(prepared) FROM pg_prepared_xacts WHERE database = current_database()), 'epoch'),
       ARRAY(SELECT format('%s (pid %s, role %s, application %s)', s.slot_name, a.pid, a.usename, a.application_name)
             FROM pg_replication_slots s JOIN pg_stat_activity a ON a.pid = s.active_pid
             WHERE s.database = current_database() AND s.slot_name <> $2
             AND a.query ~ 'publication_names' AND (position($3 IN a.query) > 0 OR position($4 IN a.query) > 0) ORDER BY 1)`,
		open.Seconds(), c.f.cfg.Slot, quote(c.f.cfg.Publication), "'"+c.f.cfg.Publication+"'")
	l, err = pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[load])
	if err != nil {
		return l, 0, during("asking what runs on the server", err)
	}
	return l, skewOf(begin, l.Now, time.Now()), nil
}

// skewOf is how far the server's clock is from ours at least, where now was answered between begin and end.
func skewOf(begin, now, end time.Time) time.Duration {
	switch {
	case now.Before(begin):
		return now.Sub(begin)
	case now.After(end):
		return now.Sub(end)
	}
	return 0
}

// retention looks for how long the slot outlives a feeder that stands still.
func (c *checker) retention(s settings, l load, slot *slotInfo) {
	limit := s.int("max_slot_wal_keep_size")
	if limit >= 0 {
		limit = max(limit, s.int("wal_keep_size")) // which is kept whoever needs it
	}
	switch outlives, ok := slotOutlives(limit<<20, l); {
	case limit < 0:
		c.add(cdc.SeverityWarning, "", "", "set max_slot_wal_keep_size to what the disk can spare, for instance '50GB'",
			"max_slot_wal_keep_size is -1: while nobody reads the slot, the server keeps its log until the disk is full")
	case ok && c.f.cfg.MaxTTL > 0 && outlives < c.f.cfg.MaxTTL:
		c.add(cdc.SeverityWarning, "", "", fmt.Sprintf("raise max_slot_wal_keep_size to %dGB", 1+int64(c.f.cfg.MaxTTL.Seconds()*l.WALBytes/l.WALSeconds)>>30),
			"the slot is kept for %d MB of log: at the average rate of the server, it is lost when the feeder stands still for %v, which is less than cache.max_ttl (%v)",
			limit, outlives.Round(time.Minute), c.f.cfg.MaxTTL)
	}
	if idle := s.int("idle_replication_slot_timeout"); idle > 0 {
		c.add(cdc.SeverityWarning, "", "", "ALTER SYSTEM SET idle_replication_slot_timeout = 0, and max_slot_wal_keep_size as the limit",
			"idle_replication_slot_timeout is %v: a feeder that stands still for longer loses its slot", time.Duration(idle)*time.Second)
	}
	if slot == nil || slot.dead() != "" {
		return
	}
	if slot.WALStatus == "unreserved" || slot.Safe >= 0 && slot.Retained > slot.Safe {
		c.add(cdc.SeverityWarning, "", "", "let the feeder catch up now, or raise max_slot_wal_keep_size",
			"the server is about to give up slot %s: it keeps %d MB of log for it, and %d MB more may be written", c.f.cfg.Slot, slot.Retained>>20, max(slot.Safe, 0)>>20)
	} else if slot.Safe < 0 && slot.Retained > muchRetained {
		c.add(cdc.SeverityWarning, "", "", "let the feeder catch up, or end the transaction that holds the slot back", "the server keeps %d MB of log for slot %s", slot.Retained>>20, c.f.cfg.Slot)
	}
}

// slotOutlives says for how long limit bytes of log last at the server's average rate. It is not ok where that is unknown.
func slotOutlives(limit int64, l load) (d time.Duration, ok bool) {
	if limit < 0 || l.WALSeconds < steadyWindow.Seconds() || l.WALBytes <= 0 {
		return 0, false
	}
	seconds := float64(limit) / l.WALBytes * l.WALSeconds
	return time.Duration(min(seconds, 1e9) * float64(time.Second)), true
}

// room looks whether a slot can be made, and a connection for it.
func (c *checker) room(s settings, l load, slot *slotInfo) {
	if n := s.int("max_replication_slots"); slot == nil && int64(l.Slots) >= n {
		c.add(cdc.SeverityError, "", "", "raise max_replication_slots and restart the server, or drop a slot that nobody reads: SELECT slot_name, active FROM pg_replication_slots",
			"all %d replication slots are taken: ours cannot be made", n)
	}
	if n := s.int("max_wal_senders"); (slot == nil || slot.Reader == 0) && int64(l.Senders) >= n {
		c.add(cdc.SeverityError, "", "", "raise max_wal_senders and restart the server", "all %d processes that send the log are taken", n)
	}
}

// standbys looks at what a promotion would mean.
func (c *checker) standbys(s settings, l load, server serverInfo, slot *slotInfo) {
	switch {
	case server.Standby:
		if s["hot_standby_feedback"] != "on" {
			c.add(cdc.SeverityWarning, "", "", "ALTER SYSTEM SET hot_standby_feedback = on", "the standby does not tell the primary what it needs: a clean-up there takes the slot away, which is a gap")
		}
	case l.Standbys == 0:
	case server.Version < 170000:
		c.add(cdc.SeverityWarning, "", "", "upgrade to 17, where standbys keep copies of slots", "there are standbys, and before 17 none has our slot: a promotion is a gap")
	case slot != nil && !slot.Failover:
		c.add(cdc.SeverityWarning, "", "", fmt.Sprintf("over a replication connection (psql 'replication=database'), while the feeder stands: ALTER_REPLICATION_SLOT %s (FAILOVER true)", c.f.cfg.Slot),
			"slot %s is no failover slot: no standby keeps a copy of it, and a promotion is a gap", c.f.cfg.Slot)
	case s["synchronized_standby_slots"] == "":
		c.add(cdc.SeverityWarning, "", "", "set synchronized_standby_slots to the physical slots of the standbys that may be promoted",
			"synchronized_standby_slots is empty: we may be sent changes that no standby has yet, and a promotion is a gap then")
	}
}

// waits looks at what can keep a commit from its readers while the log shows it already. From a primary such commits are held back; a
// standby cannot tell them, and is asked for the setting that it would have as a primary.
func (c *checker) waits(s settings) {
	names, mode := s["synchronous_standby_names"], s["synchronous_commit"]
	if names == "" || mode == "off" || mode == "local" {
		return
	}
	if !c.f.cfg.Standby {
		c.add(cdc.SeverityWarning, "", "", "name more standbys than have to answer, as in synchronous_standby_names = 'ANY 1 (a, b)'",
			"commits wait for synchronous standbys (%s, synchronous_commit = %s): each is held back until readers see it, and what other sessions commit behind it too: while a standby is away no delete comes", names, mode)
		return
	}
	hint := "set settle above the longest wait for a standby"
	if c.f.cfg.Settle > 0 {
		hint = fmt.Sprintf("set settle (%v) above the longest wait for a standby", c.f.cfg.Settle)
	}
	c.add(cdc.SeverityWarning, "", "", hint, "commits wait for synchronous standbys (%s, synchronous_commit = %s), and the log shows them before readers see them: a late standby can make a delete come too early", names, mode)
}

// transactions looks at those that hold the slot back.
func (c *checker) transactions(l load) {
	for _, gid := range l.PreparedNames {
		c.add(cdc.SeverityWarning, "", "", fmt.Sprintf("COMMIT PREPARED %s, or ROLLBACK PREPARED %[1]s", gid),
			"transaction %s was prepared and left (the oldest at %s): the server keeps its log from there on, and no slot can be made", gid, l.PreparedSince.UTC().Format(time.RFC3339))
	}
	if l.OpenBy != 0 && l.Now.Sub(l.OpenSince) > longOpen {
		c.add(cdc.SeverityWarning, "", "", fmt.Sprintf("end it: SELECT pg_terminate_backend(%d)", l.OpenBy),
			"a transaction that writes is open since %s: the server keeps its log from there on, and no slot can be made", l.OpenSince.UTC().Format(time.RFC3339))
	}
}

// minor looks for releases that lose changes by themselves.
func (c *checker) minor(version int) {
	if fixed, ok := map[int]int{15: 13, 16: 9, 17: 5}[version/10000]; ok && version%10000 < fixed {
		c.add(cdc.SeverityWarning, "", "", fmt.Sprintf("upgrade to %d.%d", version/10000, fixed),
			"this release can pass over changes of a table that somebody adds to a publication while a transaction is open")
	}
}
