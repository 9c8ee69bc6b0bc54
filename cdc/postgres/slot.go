package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"invalidator/cdc"
)

const (
	// releaseLimit is how long a process that was told to leave our slot is waited for.
	releaseLimit = 10 * time.Second

	// releasePoll is how often it is looked whether it has left.
	releasePoll = 50 * time.Millisecond
)

// slotInfo is a replication slot as it stands.
type slotInfo struct {
	Plugin    string
	Database  string
	Reader    int    // the process that reads it; 0: none
	WALStatus string // reserved, extended, unreserved or lost
	Invalid   string // why the server gave it up, where it says so (16 on); empty: it did not
	Failover  bool   // a standby keeps a copy of it (17 on)
	Flushed   lsn    // confirmed_flush_lsn: the stream begins there at the earliest
	End       lsn    // of the server's log
	Retained  int64  // bytes of log that are kept for it
	Safe      int64  // bytes that may still be written before it is lost; -1: no limit
}

// dead says why the slot can never be read again; empty: it can.
func (s *slotInfo) dead() string {
	switch {
	case s.Invalid != "":
		return "the server gave it up: " + s.Invalid
	case s.WALStatus == "lost":
		return "the server gave it up and removed its log (wal_status lost)"
	}
	return ""
}

// The view has other columns in each version: what 15 lacks is asked for by name.
const selectSlot = `
SELECT coalesce(s.plugin, ''), coalesce(s.database::text, ''), coalesce(s.active_pid, 0), coalesce(s.wal_status, ''),
       coalesce(to_jsonb(s) ->> 'invalidation_reason', CASE WHEN to_jsonb(s) ->> 'conflicting' = 'true' THEN 'conflict with recovery' END, ''),
       coalesce((to_jsonb(s) ->> 'failover')::bool, false),
       coalesce(s.confirmed_flush_lsn, '0/0')::text, (` + currentLSN + `)::text,
       coalesce(greatest(pg_wal_lsn_diff(` + currentLSN + `, s.restart_lsn), 0), 0)::bigint,
       coalesce(s.safe_wal_size, -1)
FROM pg_replication_slots s WHERE s.slot_name = $1`

// currentLSN is the end of the server's log, on a standby of what it has replayed.
const currentLSN = `CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END`

// findSlot returns nil where there is none.
func findSlot(ctx context.Context, conn *pgx.Conn, name string) (*slotInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var s slotInfo
	var flushed, end string
	rows, _ := conn.Query(ctx, selectSlot, name)
	n, err := pgx.ForEachRow(rows, []any{
		&s.Plugin, &s.Database, &s.Reader, &s.WALStatus, &s.Invalid, &s.Failover, &flushed, &end, &s.Retained, &s.Safe,
	}, func() (err error) {
		if s.Flushed, err = parseLSN(flushed); err == nil {
			s.End, err = parseLSN(end)
		}
		return err
	})
	if err != nil {
		return nil, during("looking for slot "+name, err)
	}
	if n.RowsAffected() == 0 {
		return nil, nil
	}
	return &s, nil
}

// fitSlot refuses a slot that is not ours to read, whatever was saved. slot may be nil.
func (f *Feeder) fitSlot(slot *slotInfo) error {
	switch {
	case slot == nil:
		return nil
	case slot.Plugin != "pgoutput":
		return f.problem(fmt.Errorf("slot %s is of plugin %q, not pgoutput", f.cfg.Slot, slot.Plugin), "give the source another slot")
	case slot.Database != f.cfg.Database:
		return f.problem(fmt.Errorf("slot %s belongs to database %s", f.cfg.Slot, slot.Database), "give the source another slot: they are the cluster's, not the database's")
	}
	return nil
}

// claim finds our slot, and frees it where a process of ours still reads it: the server notices late that one was killed or
// cut off, and one that was stopped is not noticed at all. Whoever runs a Feeder leads the source, so the older one has to
// go. A slot that somebody else reads is an error that may pass.
func (f *Feeder) claim(ctx context.Context, conn *pgx.Conn) (*slotInfo, error) {
	end := time.Now().Add(releaseLimit)
	for {
		slot, err := findSlot(ctx, conn, f.cfg.Slot)
		if err == nil {
			err = f.fitSlot(slot)
		}
		if err != nil || slot == nil || slot.Reader == 0 {
			return slot, err
		}
		r, err := findReader(ctx, conn, slot.Reader)
		switch {
		case err != nil:
			return nil, err
		case r == nil: // it has just left
		case !r.Ours || time.Now().After(end):
			return nil, &pgconn.PgError{Code: stateInUse, Message: fmt.Sprintf("slot %s is active for PID %d%s", f.cfg.Slot, slot.Reader, r)}
		default:
			f.log.Warn("a process of ours still reads the slot: ending it", "slot", f.cfg.Slot, "pid", slot.Reader, "since", r.Since, "address", r.Address)
			if err := endBackend(ctx, conn, slot.Reader); err != nil {
				return nil, err
			}
		}
		if err := pause(ctx, releasePoll); err != nil {
			return nil, err
		}
	}
}

// reader is a process of the server that reads a slot.
type reader struct {
	Role, Application, Address string
	Since                      time.Time
	Ours                       bool // it is a Feeder of this source
}

func (r *reader) String() string {
	return fmt.Sprintf(": role %s, application %q, from %s", r.Role, r.Application, r.Address)
}

// findReader returns nil where no such process is left. Both of a Feeder's connections carry the same application name.
func findReader(ctx context.Context, conn *pgx.Conn, pid int) (*reader, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, `
SELECT coalesce(usename::text, ''), coalesce(application_name, ''), coalesce(host(client_addr), 'an address that our role may not see'),
       coalesce(backend_start, now()), coalesce(usename = current_user AND application_name = current_setting('application_name'), false)
FROM pg_stat_activity WHERE pid = $1`, pid)
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[reader])
	if err != nil || len(found) == 0 {
		return nil, during("asking who reads the slot", err)
	}
	return found[0], nil
}

func endBackend(ctx context.Context, conn *pgx.Conn, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT pg_terminate_backend($1)", pid)
	return during("ending our older process that reads the slot", err)
}

// pause waits, and ends early with ctx's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// createSlot makes the slot, and gives the place from which it brings everything. From 17 on the standbys of a primary
// that are told to keep copies of slots keep one of it, so that it is there after a promotion.
func (f *Feeder) createSlot(ctx context.Context, s *session) (lsn, error) {
	f.log.Info("making the replication slot, which waits for transactions that are open", "slot", f.cfg.Slot)
	command := fmt.Sprintf("CREATE_REPLICATION_SLOT %s LOGICAL pgoutput (SNAPSHOT 'nothing'", f.cfg.Slot)
	if s.server.Version >= 170000 && !s.server.Standby {
		command += ", FAILOVER"
	}
	made, err := pglogrepl.ParseCreateReplicationSlot(s.repl.Exec(ctx, command+")"))
	if isState(err, stateNoPrivilege) {
		return 0, &cdc.SourceError{
			Source: f.cfg.Name, Err: &serverError{doing: "making slot " + f.cfg.Slot, pg: pgError(err)},
			Hint: fmt.Sprintf("ALTER ROLE %s REPLICATION, or as somebody who may: SELECT pg_create_logical_replication_slot('%s', 'pgoutput')", quote(f.cfg.User), f.cfg.Slot),
		}
	}
	if err != nil {
		return 0, during("making slot "+f.cfg.Slot, err)
	}
	return parseLSN(made.ConsistentPoint)
}

func (f *Feeder) dropSlot(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT pg_drop_replication_slot($1)", f.cfg.Slot)
	if isState(err, stateUndefinedObject) { // it is gone already
		return nil
	}
	if err == nil {
		f.log.Warn("the replication slot was dropped, to be made anew after a gap", "slot", f.cfg.Slot)
	}
	return during("dropping slot "+f.cfg.Slot, err)
}
