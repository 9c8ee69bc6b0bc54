package postgres

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// heldPoll is after how long it is asked again whether readers see a transaction; each time twice as long.
	heldPoll, heldPollMax = time.Millisecond, 50 * time.Millisecond

	// heldTooLong is after how long a wait is warned of.
	heldTooLong = 30 * time.Second
)

// snapshot is what a reader sees that begins now: of transactions, those that ended below max and are not open.
type snapshot struct {
	min, max uint64   // 64 bits: with the epoch
	open     []uint64 // from min on, in order
}

// parseSnapshot reads min:max:open,open as pg_snapshot is written.
func parseSnapshot(text string) (s snapshot, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return s, fmt.Errorf("%q is no snapshot", text)
	}
	var ids []uint64
	for _, part := range append(parts[:2], strings.FieldsFunc(parts[2], func(r rune) bool { return r == ',' })...) {
		id, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return s, fmt.Errorf("%q is no snapshot: %w", text, err)
		}
		ids = append(ids, id)
	}
	s = snapshot{min: ids[0], max: ids[1], open: ids[2:]}
	slices.Sort(s.open)
	return s, nil
}

// shows reports whether a transaction that is in the log can be seen. Its number there has no epoch: it is the one that is nearest to
// max, since a server stops before two of one number are less than 2^31 apart. The zero snapshot shows nothing.
func (s snapshot) shows(xid uint32) bool {
	if s.max == 0 {
		return false
	}
	full := s.max + uint64(int64(int32(xid-uint32(s.max))))
	_, open := slices.BinarySearch(s.open, full)
	return full < s.max && !open
}

// holder holds back transactions that the log shows and readers do not see yet: a commit is in the log before it waits for a
// synchronous standby, and shows when that wait is over. A delete before that would be undone by the next reader. It belongs to
// Run's goroutine.
type holder struct {
	needed func() bool // whether commits may wait
	ask    func(context.Context) (snapshot, error)
	log    *slog.Logger
	long   time.Duration // heldTooLong
	seen   snapshot      // the last: it shows most of a backlog
}

func (f *Feeder) newHolder(s *session) *holder {
	return &holder{
		needed: s.holds.Load, log: f.log, long: heldTooLong,
		ask: func(ctx context.Context) (seen snapshot, err error) {
			err = s.catalog.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
				seen, err = askSnapshot(ctx, conn)
				return err
			})
			return seen, err
		},
	}
}

// wait returns when readers see the transaction, or ctx ends, or the server cannot be asked.
func (h *holder) wait(ctx context.Context, xid uint32) error {
	if !h.needed() || h.seen.shows(xid) {
		return nil
	}
	began, warned := time.Now(), false
	for pause := heldPoll; ; pause = min(2*pause, heldPollMax) {
		var err error
		if h.seen, err = h.ask(ctx); err != nil {
			return err
		}
		held := time.Since(began)
		if h.seen.shows(xid) {
			if warned {
				h.log.Info("readers see the transaction: the log is read on", "xid", xid, "held", held)
			}
			return nil
		}
		if held > h.long && !warned {
			warned = true
			h.log.Warn("a transaction is committed and readers do not see it yet, because its commit waits for a synchronous standby:"+
				" it is held back, with all that was committed behind it", "xid", xid, "held", held,
				"hint", "bring the standby back, or take it out of synchronous_standby_names")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return during("waiting for readers to see a transaction", ctx.Err())
		}
	}
}

func askSnapshot(ctx context.Context, conn *pgx.Conn) (snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var text string
	if err := conn.QueryRow(ctx, "SELECT pg_current_snapshot()::text").Scan(&text); err != nil {
		return snapshot{}, during("asking which transactions readers see", err)
	}
	s, err := parseSnapshot(text)
	return s, during("asking which transactions readers see", err)
}

// commitsWait asks whether commits may wait for standbys. Each session decides for itself (synchronous_commit). A standby cannot
// tell for what its primary waits, and its own readers see what it sends.
const commitsWait = "current_setting('synchronous_standby_names') <> '' AND NOT pg_is_in_recovery()"

// askWaits looks again whether commits may wait.
func (w *watcher) askWaits(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var wait bool
	if err := conn.QueryRow(ctx, "SELECT "+commitsWait).Scan(&wait); err != nil {
		return during("asking whether commits wait for standbys", err)
	}
	if w.s.holds.Swap(wait) != wait {
		w.f.log.Info("synchronous_standby_names has changed", "commits_may_wait", wait)
	}
	return nil
}
