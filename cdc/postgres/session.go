package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"invalidator/cdc"
)

// minVersion is the oldest server that is read: 15 tells of column lists and row filters, and sends no empty transactions.
const minVersion = 150000

// standbyVersion is from which on a standby can have a logical slot of its own.
const standbyVersion = 160000

// session is a Run's connections to one host, and where its stream begins.
type session struct {
	conn    *pgx.Conn      // catalog's, until that is used
	catalog *catalog       // of Run's goroutine
	looks   *catalog       // of the watcher
	repl    *pgconn.PgConn // nil once it streams
	server  serverInfo
	origin  origin
	end     lsn // of the server's log, when it was asked
	start   lsn
	found   bool // the slot was there already

	holds atomic.Bool // commits may wait in the log until readers see them
}

func (s *session) close() {
	s.catalog.close()
	s.looks.close()
	if s.repl != nil {
		closeConn(s.repl)
	}
}

// open connects, makes publication and slot where they are missing and may be made, and finds where to begin.
func (f *Feeder) open(ctx context.Context, from cdc.Position) (*session, error) {
	s, err := f.dial(ctx)
	if err != nil {
		return nil, err
	}
	if err := f.begin(ctx, s, from); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// dial opens both connections to a server that can be read.
func (f *Feeder) dial(ctx context.Context) (*session, error) {
	host, conn, err := f.connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, catalog: &catalog{host: host, dial: f.connectTo, conn: conn}, looks: &catalog{host: host, dial: f.connectTo}}
	if err := f.greet(ctx, host, s); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// greet asks the server whether it can be read, and who it is.
func (f *Feeder) greet(ctx context.Context, host string, s *session) (err error) {
	if s.server, err = askServer(ctx, s.conn); err != nil {
		return err
	}
	s.holds.Store(s.server.Waits)
	if err := f.fit(s.server); err != nil {
		return err
	}
	if s.repl, err = f.connectReplication(ctx, host); err != nil {
		return err
	}
	id, err := pglogrepl.IdentifySystem(ctx, s.repl)
	if err != nil {
		return during("asking the server who it is", err)
	}
	s.origin, s.end = origin{systemID: id.SystemID, timeline: id.Timeline}, id.XLogPos
	return nil
}

// fit refuses a server that cannot be read.
func (f *Feeder) fit(server serverInfo) error {
	if server.Version < minVersion {
		return f.problem(fmt.Errorf("the server is Postgres %d", server.Version/10000), "Postgres 15 or newer is needed")
	}
	if server.Standby && server.Version < standbyVersion {
		return f.problem(fmt.Errorf("the server is a standby of Postgres %d, which cannot decode its log", server.Version/10000), "read from the primary, or upgrade to 16")
	}
	if server.WALLevel != "logical" {
		return f.problem(fmt.Errorf("the server's wal_level is %s: its log does not hold rows", server.WALLevel),
			"ALTER SYSTEM SET wal_level = logical, then restart the server")
	}
	return nil
}

// begin fills in s.origin and s.start. The publication comes first: the server looks it up as of the place in the log that
// it decodes, so that a slot older than its publication never gets past its beginning.
func (f *Feeder) begin(ctx context.Context, s *session, from cdc.Position) error {
	slot, err := f.claim(ctx, s.conn)
	if err != nil {
		return err
	}
	switch {
	case !from.IsZero():
		err = f.resumable(ctx, s, slot, from)
	case slot != nil && slot.dead() != "":
		err = f.gap(s.origin.position(slot.Flushed), fmt.Errorf("slot %s is lost: %s", f.cfg.Slot, slot.dead()))
	}
	if err != nil {
		return err
	}
	if slot != nil {
		if err := f.publicationOf(ctx, s.conn, s.server, slot, from); err != nil {
			return err
		}
	}
	if err := f.ensurePublication(ctx, s); err != nil {
		return err
	}
	if from.IsZero() {
		if err := f.whole(ctx, s.conn); err != nil {
			return err
		}
	}
	s.found = slot != nil
	switch {
	case !from.IsZero():
		s.start, err = parseLSN(from.LSN)
	case slot != nil:
		s.start = slot.Flushed
	default:
		s.start, err = f.createSlot(ctx, s)
	}
	return err
}

// stream starts the replication and takes the connection away. flushed says what the server may forget; it is never zero.
//
// Protocol version 1 is asked for: it sends a transaction after its commit and whole. Later versions can also send
// transactions that are still open (2) or only prepared (3), and nothing of those may be acted on.
func (s *session) stream(ctx context.Context, cfg Config, timing timing, flushed func() lsn) (*stream, error) {
	publication := strings.ReplaceAll(quote(cfg.Publication), "'", "''")
	err := pglogrepl.StartReplication(ctx, s.repl, cfg.Slot, s.start, pglogrepl.StartReplicationOptions{
		Mode:       pglogrepl.LogicalReplication,
		PluginArgs: []string{"proto_version '1'", "publication_names '" + publication + "'", "messages 'true'"},
	})
	if err != nil {
		return nil, during("starting to read slot "+cfg.Slot, err)
	}
	taken, err := s.repl.Hijack()
	if err != nil {
		return nil, during("taking the connection over", err)
	}
	st := &stream{conn: taken, status: s.repl, timing: timing, flushed: flushed, received: s.start}
	s.repl = nil
	return st, nil
}
