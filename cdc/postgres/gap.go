package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"invalidator/cdc"
)

// fitSlot refuses a slot that cannot be read at all, whatever was saved. slot may be nil.
func (f *Feeder) fitSlot(slot *slotInfo, from cdc.Position) error {
	switch {
	case slot == nil:
		return nil
	case slot.Plugin != "pgoutput":
		return f.problem(fmt.Errorf("slot %s is of plugin %q, not pgoutput", f.cfg.Slot, slot.Plugin), "give the source another slot")
	case slot.Database != f.cfg.Database:
		return f.problem(fmt.Errorf("slot %s belongs to database %s", f.cfg.Slot, slot.Database), "give the source another slot: they are the cluster's, not the database's")
	case slot.WALStatus == "lost":
		return f.gap(from, fmt.Errorf("%w: the server gave up slot %s and removed its log (wal_status lost)", cdc.ErrGap, f.cfg.Slot))
	}
	return nil
}

// resumable compares a saved position with the server and its slot. The server itself would begin without a word where the
// slot stands, however much later that is.
func (f *Feeder) resumable(ctx context.Context, s *session, id pglogrepl.IdentifySystemResult, slot *slotInfo, from cdc.Position) error {
	at, err := parseLSN(from.LSN)
	if err != nil {
		return f.problem(err, "the saved position is not one of Postgres: was the source's type changed?")
	}
	switch {
	case from.SystemID != id.SystemID:
		return f.gap(from, fmt.Errorf("%w: the server is another one (system id %s, saved was %s)", cdc.ErrGap, id.SystemID, from.SystemID))
	case slot == nil:
		return f.gap(from, fmt.Errorf("%w: slot %s is gone", cdc.ErrGap, f.cfg.Slot))
	case slot.Reader != 0: // and it moves on with that reader; this is what the server would answer to us
		return &pgconn.PgError{Code: stateInUse, Message: fmt.Sprintf("slot %s is active for PID %d", f.cfg.Slot, slot.Reader)}
	case slot.Flushed > at:
		return f.gap(from, fmt.Errorf("%w: slot %s has moved on to %s without us", cdc.ErrGap, f.cfg.Slot, slot.Flushed))
	case id.XLogPos < at:
		return f.gap(from, fmt.Errorf("%w: the server's log ends at %s: it is older than what it has told us", cdc.ErrGap, id.XLogPos))
	case from.Timeline > id.Timeline:
		return f.gap(from, fmt.Errorf("%w: the server is on timeline %d, saved was %d: it was set back", cdc.ErrGap, id.Timeline, from.Timeline))
	case from.Timeline < id.Timeline:
		return f.sameHistory(ctx, s, id.Timeline, from, at)
	}
	return nil
}

// sameHistory asks, after a promotion, whether the new timeline left the saved one behind the saved position.
func (f *Feeder) sameHistory(ctx context.Context, s *session, timeline int32, from cdc.Position, at lsn) error {
	history, err := pglogrepl.TimelineHistory(ctx, s.repl, timeline)
	if err != nil {
		return during("asking for the history of the timeline", err)
	}
	left, ok := leftAt(string(history.Content), from.Timeline)
	if !ok || left < at {
		return f.gap(from, fmt.Errorf("%w: the server was promoted (timeline %d) from a point before what timeline %d has told us", cdc.ErrGap, timeline, from.Timeline))
	}
	f.log.Warn("the server was promoted: reading on, nothing is missing", "timeline", timeline, "left_at", left.String())
	return nil
}

// leftAt finds where a timeline's history left another: lines of "timeline <tab> position <tab> reason".
func leftAt(history string, timeline int32) (lsn, bool) {
	for line := range strings.Lines(history) {
		fields := strings.Fields(line)
		if len(fields) >= 2 && fields[0] == fmt.Sprint(timeline) {
			at, err := parseLSN(fields[1])
			return at, err == nil
		}
	}
	return 0, false
}

// noPublication is what a slot without its publication means: from then on the server can decode no change.
func (f *Feeder) noPublication(from cdc.Position) error {
	err := fmt.Errorf("publication %s does not exist, but slot %s does: the log between them cannot be read", f.cfg.Publication, f.cfg.Slot)
	if !from.IsZero() {
		err = fmt.Errorf("%w: %w", cdc.ErrGap, err)
	}
	return f.gap(from, err)
}

// gap is an error that only a person can end: changes are lost to us from a position on, or would be.
func (f *Feeder) gap(from cdc.Position, err error) error {
	return &cdc.SourceError{
		Source: f.cfg.Name, At: from, Err: err,
		Hint: fmt.Sprintf("flush what the source feeds; then, to begin anew, drop the slot if it is there: SELECT pg_drop_replication_slot('%s'), "+
			"and accept the gap: the publication is made first, then the slot", f.cfg.Slot),
	}
}
