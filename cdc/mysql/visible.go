package mysql

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

const (
	// heldPoll is after how long it is asked again whether readers see a transaction; each time twice as long.
	heldPoll, heldPollMax = time.Millisecond, 50 * time.Millisecond

	// heldTooLong is after how long a wait is warned of.
	heldTooLong = 30 * time.Second
)

// waits reports whether the server may let a commit wait between the log and its readers: for a replica's acknowledgement, or for a
// group of commits that is to be synced together, where the log is read before it is synced. After that the GTID is in
// gtid_executed. MariaDB cannot tell, whose gtid_binlog_pos moves with the log, nor can a server without GTIDs: checkTimes warns.
func (s *server) waits() bool {
	if s.maria || !s.gtid {
		return false
	}
	for _, name := range []string{"master", "source"} {
		if p := "rpl_semi_sync_" + name + "_"; isOn(s.vars[p+"enabled"]) && s.vars[p+"wait_point"] == "AFTER_SYNC" {
			return true
		}
	}
	delay := s.vars["binlog_group_commit_sync_delay"]
	return s.vars["sync_binlog"] != "1" && delay != "0" && delay != ""
}

// current is the server that a Run reads, and whether its commits may wait: as of the last time that anybody connected there, which
// Check and Lag do again and again.
type current struct {
	addr  string
	waits atomic.Bool
}

// begins notes which server is read from now on.
func (f *Feeder) begins(s *server) *current {
	now := &current{addr: s.addr}
	now.waits.Store(s.waits())
	f.current.Store(now)
	return now
}

// heard takes note of what the server that is read has said.
func (f *Feeder) heard(s *server) {
	now := f.current.Load()
	if now == nil || now.addr != s.addr {
		return
	}
	if waits := s.waits(); now.waits.Swap(waits) != waits {
		f.log.Info("the server's settings have changed", "commits_may_wait", waits)
	}
}

// holder is a Handler that hands over what a transaction changed only when readers see it: before that the next of them would put
// the old row back into the cache. It belongs to Run's goroutine.
type holder struct {
	cdc.Handler
	needed func() bool
	ask    func(context.Context) (executed string, err error)
	log    *slog.Logger
	long   time.Duration // heldTooLong

	shown string        // the transaction that was last found to show
	seen  mysql.GTIDSet // the last answer: it shows most of a backlog. At first where the Run began
}

// newHolder is for a Run that begins at a place.
func (f *Feeder) newHolder(s *server, at *tracker, out cdc.Handler) *holder {
	q := &questions{f: f, addr: s.addr}
	h := &holder{Handler: out, needed: f.begins(s).waits.Load, ask: q.executed, log: f.log, long: heldTooLong, seen: &mysql.MysqlGTIDSet{}}
	if at.executed != nil {
		h.seen = at.executed.Clone()
	}
	return h
}

// Change implements cdc.Handler.
func (h *holder) Change(ctx context.Context, c *cdc.RowChange) error {
	if err := h.wait(ctx, c.Tx); err != nil {
		return err
	}
	return h.Handler.Change(ctx, c)
}

// Lost implements cdc.Handler.
func (h *holder) Lost(ctx context.Context, l cdc.Loss) error {
	if err := h.wait(ctx, l.Tx); err != nil {
		return err
	}
	return h.Handler.Lost(ctx, l)
}

// wait returns when readers see the transaction with this GTID, or ctx ends, or the server cannot be asked.
func (h *holder) wait(ctx context.Context, tx string) error {
	if tx == "" || tx == h.shown || !h.needed() {
		return nil
	}
	one, err := mysql.ParseMysqlGTIDSet(tx)
	if err != nil {
		return fmt.Errorf("reading the GTID %q: %w", tx, plain(err))
	}
	began, warned := time.Now(), false
	for pause := heldPoll; !h.seen.Contain(one); pause = min(2*pause, heldPollMax) {
		if held := time.Since(began); held > h.long && !warned {
			warned = true
			h.log.Warn("a transaction is in the log and readers do not see it yet, because its commit waits for a replica, or to be synced:"+
				" it is held back, with all that was committed behind it", "gtid", tx, "held", held,
				"hint", "bring the replica back, or set rpl_semi_sync_master_timeout (rpl_semi_sync_source_timeout) lower")
		}
		before := h.seen
		if err := h.look(ctx); err != nil {
			return err
		}
		if h.seen.Contain(one) || !h.seen.Contain(before) { // RESET MASTER: it never will, and the stream ends, with a gap
			break
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if warned {
		h.log.Info("readers see the transaction: the log is read on", "gtid", tx, "held", time.Since(began))
	}
	h.shown = tx
	return nil
}

func (h *holder) look(ctx context.Context) error {
	text, err := h.ask(ctx)
	if err != nil {
		return err
	}
	if h.seen, err = mysql.ParseMysqlGTIDSet(strings.ReplaceAll(text, "\n", "")); err != nil {
		return fmt.Errorf("reading gtid_executed: %w", plain(err))
	}
	return nil
}

// questions is a connection that is opened when it is first used, and again where it was cut meanwhile. It dies with the context.
type questions struct {
	f    *Feeder
	addr string
	conn *conn
}

func (q *questions) executed(ctx context.Context) (text string, err error) {
	for range 2 {
		if q.conn == nil {
			if q.conn, err = q.f.dialServer(ctx, q.addr); err != nil {
				return "", q.f.classify(fmt.Errorf("connecting to %s: %w", q.addr, err), cdc.Position{})
			}
		}
		var rows [][]string
		if rows, err = q.conn.rows("SELECT @@GLOBAL.gtid_executed"); err == nil {
			return rows[0][0], nil
		}
		q.conn.close()
		if q.conn = nil; ctx.Err() != nil {
			break
		}
	}
	return "", q.f.classify(fmt.Errorf("asking which transactions readers see: %w", errors.Join(ctx.Err(), err)), cdc.Position{})
}
