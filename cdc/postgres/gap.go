package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// resumable compares a saved position with the server and its slot, which may be nil and is read by nobody. The server itself
// would begin without a word where the slot stands, however much later that is.
func (f *Feeder) resumable(ctx context.Context, s *session, slot *slotInfo, from cdc.Position) error {
	at, err := parseLSN(from.LSN)
	if err != nil {
		return f.problem(err, "the saved position is not one of Postgres: was the source's type changed?")
	}
	if from.SystemID != s.origin.systemID {
		return f.gap(from, fmt.Errorf("the server is another one (system id %s, saved was %s)", s.origin.systemID, from.SystemID))
	}
	promoted, err := f.sameHistory(ctx, s, slot, from, at)
	switch {
	case err != nil:
		return err
	case slot == nil && promoted:
		return f.gap(from, fmt.Errorf("the server was promoted (timeline %d), and slot %s is not there", s.origin.timeline, f.cfg.Slot))
	case slot == nil:
		return f.gap(from, fmt.Errorf("slot %s is gone", f.cfg.Slot))
	case slot.dead() != "":
		return f.gap(from, fmt.Errorf("slot %s is lost: %s", f.cfg.Slot, slot.dead()))
	case slot.Flushed > at:
		return f.gap(from, fmt.Errorf("slot %s has moved on to %s without us, or was made anew: what lies between cannot be read", f.cfg.Slot, slot.Flushed))
	case promoted:
		f.log.Warn("the server was promoted: reading on, nothing is missing", "timeline", s.origin.timeline)
	}
	return nil
}

// sameHistory asks whether the server's log holds everything that it, or the one that it stands in for, has told us, up to
// at and beyond: what was handed over last may not be saved yet. It reports whether there was a promotion since.
func (f *Feeder) sameHistory(ctx context.Context, s *session, slot *slotInfo, from cdc.Position, at lsn) (promoted bool, err error) {
	at = max(at, f.handedOver(from))
	f.fork = 0
	switch {
	case from.Timeline == s.origin.timeline && s.end >= at:
		return false, nil
	case s.server.Standby && from.Timeline >= s.origin.timeline: // it has not replayed that much yet
		return false, &cdc.SourceError{Source: f.cfg.Name, At: from, Retry: true,
			Err: fmt.Errorf("the standby's log ends at %s of timeline %d: it is behind what we were told", s.end, s.origin.timeline), Hint: "it is waited for"}
	case from.Timeline > s.origin.timeline:
		return true, f.undone(from, 0, fmt.Errorf("the server is on timeline %d, saved was %d: it was set back, or is an old primary", s.origin.timeline, from.Timeline))
	case from.Timeline == s.origin.timeline:
		// It was set back to some place before its end by now, at which the slot had not been confirmed further than it is.
		fork := lsn(0)
		if slot != nil {
			fork = min(slot.Flushed, s.end)
		}
		return false, f.undone(from, fork, fmt.Errorf("the server's log ends at %s: it is older than what it has told us", s.end))
	}
	history, err := pglogrepl.TimelineHistory(ctx, s.repl, s.origin.timeline)
	if err != nil {
		return true, during("asking for the history of the timeline", err)
	}
	left, ok := leftAt(string(history.Content), from.Timeline)
	switch {
	case !ok:
		return true, f.undone(from, 0, fmt.Errorf("the server was promoted (timeline %d) and never was on timeline %d, which has told us what we know", s.origin.timeline, from.Timeline))
	case left < at:
		return true, f.undone(from, left, fmt.Errorf("the server was promoted (timeline %d) at %s, from a point before what timeline %d has told us (up to %s)",
			s.origin.timeline, left, from.Timeline, at))
	}
	f.fork = left
	return true, nil
}

// Undone implements cdc.Witness: of the timeline that was left, what lies at and above the fork.
func (f *Feeder) Undone(context.Context) (func(*cdc.RowChange) bool, error) {
	if f.fork == 0 {
		return nil, nil
	}
	return undoneFrom(f.fork), nil
}

// handedOver is how far changes of from's timeline were handed over by this process: as far as from, or beyond.
func (f *Feeder) handedOver(from cdc.Position) lsn {
	if p := f.handed.Load(); p != nil && p.SystemID == from.SystemID && p.Timeline == from.Timeline {
		at, _ := parseLSN(p.LSN) // we wrote it
		return at
	}
	return 0
}

// undone is the gap of a server that never had what lies at and above fork of the timeline that from is on; with 0 nobody
// can tell what it has. A change's position is where its commit record begins, so at the fork it is gone.
func (f *Feeder) undone(from cdc.Position, fork lsn, err error) error {
	g := &cdc.GapError{Err: err}
	if fork != 0 {
		g.Undone = undoneFrom(fork)
		g.UndoneText = fmt.Sprintf("everything from %s on of timeline %d", fork, from.Timeline)
	}
	return f.gapError(from, g)
}

func undoneFrom(fork lsn) func(*cdc.RowChange) bool {
	return func(c *cdc.RowChange) bool {
		at, err := parseLSN(c.Position.LSN)
		return err != nil || at >= fork // what cannot be told apart is undone: one delete too many does no harm
	}
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

// publicationOf refuses a slot that stands before its publication, where that can be told at once. From 18 on the server
// passes over the changes before it without a word; older ones end the stream.
func (f *Feeder) publicationOf(ctx context.Context, conn *pgx.Conn, server serverInfo, slot *slotInfo, from cdc.Position) error {
	pub, err := findPublication(ctx, conn, f.cfg.Publication)
	switch {
	case err != nil:
		return err
	case pub == nil:
		return f.noPublication(from)
	case server.Version < 180000:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, `
SELECT coalesce(age(p.xmin) BETWEEN 0 AND age(s.catalog_xmin), false) FROM pg_publication p, pg_replication_slots s WHERE p.oid = $1 AND s.slot_name = $2`, pub.OID, f.cfg.Slot)
	young, err := pgx.CollectRows(rows, pgx.RowTo[bool])
	if err != nil {
		return during("comparing the ages of publication and slot", err)
	}
	if len(young) == 0 || !young[0] {
		return nil
	}
	if from.IsZero() {
		from = cdc.Position{LSN: slot.Flushed.String()}
	}
	return f.gap(from, fmt.Errorf("publication %s was made or altered after the place at which slot %s stands: the log between them is not read", f.cfg.Publication, f.cfg.Slot))
}

// noPublication is what a slot without its publication means: from then on the server can decode no change.
func (f *Feeder) noPublication(from cdc.Position) error {
	err := fmt.Errorf("publication %s does not exist, but slot %s does: the log between them cannot be read", f.cfg.Publication, f.cfg.Slot)
	if from.IsZero() {
		return f.problem(err, fmt.Sprintf("drop the slot: SELECT pg_drop_replication_slot('%s'). The publication is then made first, and the slot after it", f.cfg.Slot))
	}
	return f.gap(from, err)
}

// lostWhileReading makes a gap of how a stream ended, where the log cannot be read on.
func (f *Feeder) lostWhileReading(at cdc.Position, cut error) error {
	switch {
	case isState(cut, stateUndefinedObject):
		return f.gap(at, fmt.Errorf("the log goes on from a time when the publication did not exist: %w", cut))
	case isState(cut, stateUndefinedFile):
		return f.gap(at, fmt.Errorf("the server has removed log that the slot needs: %w", cut))
	}
	return cut
}

// gap is an error that only a person can end: changes are lost to us from a position on.
func (f *Feeder) gap(from cdc.Position, err error) error {
	return f.gapError(from, &cdc.GapError{Err: oneLine{err}})
}

func (f *Feeder) gapError(from cdc.Position, g *cdc.GapError) error {
	return &cdc.SourceError{
		Source: f.cfg.Name, At: from, Err: g,
		Hint: fmt.Sprintf("flush what the source feeds and accept the gap (invalidator gap accept): only then is slot %s made anew, after its publication", f.cfg.Slot),
	}
}
