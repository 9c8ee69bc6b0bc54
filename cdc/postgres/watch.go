package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// watcher looks at the catalogue while a Run streams, for what the log does not tell. It belongs to its own goroutine.
type watcher struct {
	f       *Feeder
	s       *session
	pub     uint32 // the publication's oid
	told    chan sighting
	seen    *memory // of a publication that cannot keep its own
	joining []joining
	good    lsn // where the log stood before the last look that found the publication
	missing map[string]bool
}

// sighting is what a look found out about the tables of a publication that we do not alter: it cannot stand in the log.
type sighting struct {
	joined, gone []cdc.TableID
	oids         []uint32 // of joined
	since, at    lsn      // it happened between these places of the log
}

// joining is a table of another's publication that is fed whole when every transaction before one has ended.
type joining struct {
	table  cdc.TableID
	oid    uint32
	behind int64
}

func (f *Feeder) newWatcher(s *session) *watcher {
	return &watcher{f: f, s: s, told: make(chan sighting), seen: &memory{}, good: s.start, missing: map[string]bool{}}
}

// first looks before the stream begins. Of a publication that we do not alter it finds the tables that somebody may have
// added to it since the log was read last: later looks tell of them.
func (w *watcher) first(ctx context.Context, from cdc.Position) error {
	return w.s.catalog.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := w.look(ctx, conn); err != nil {
			return err
		}
		if from.IsZero() || !w.s.found || w.seen.Tables == nil {
			return nil
		}
		oids, err := youngTables(ctx, conn, w.f.cfg.Publication, w.f.cfg.Slot)
		if err != nil {
			return err
		}
		_, next, err := openTransactions(ctx, conn)
		for _, name := range w.seen.names() {
			if k, _ := w.seen.get(name); oids[k.OID] && !w.f.joined[k.OID] {
				w.joining = append(w.joining, joining{cdc.TableID{Database: w.f.cfg.Database, Schema: name[0], Table: name[1]}, k.OID, next})
			}
		}
		return err
	})
}

// run looks again and again until ctx ends (nil), or the log cannot be read on, or not now.
func (w *watcher) run(ctx context.Context) error {
	gauge, look := time.NewTicker(w.f.timing.gauge), time.NewTicker(w.f.timing.look)
	defer gauge.Stop()
	defer look.Stop()
	var heart <-chan time.Time
	if w.f.cfg.Heartbeat > 0 && !w.s.server.Standby {
		t := time.NewTicker(w.f.cfg.Heartbeat)
		defer t.Stop()
		heart = t.C
	}
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case <-gauge.C:
			err = w.s.catalog.use(ctx, w.f.measure)
		case <-heart:
			err = w.s.catalog.use(ctx, beat)
		case <-look.C:
			err = w.s.catalog.use(ctx, w.look)
		}
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, cdc.ErrGap) {
			return err
		}
		if isState(err, stateCannotConnect) {
			// The server is being shut down, or was. It waits until all that it has sent is confirmed, which may take as long as Kafka
			// is away: so we leave.
			return during("looking at the server", err)
		}
		if err != nil { // the stream tells what must end the Run
			w.f.log.Warn("a look at the server failed, and is tried again", "error", w.f.explain(err))
		}
	}
}

// look compares the catalogue with what was seen last.
func (w *watcher) look(ctx context.Context, conn *pgx.Conn) error {
	at, err := serverEnd(ctx, conn)
	if err != nil {
		return err
	}
	pub, err := findPublication(ctx, conn, w.f.cfg.Publication)
	if err != nil {
		return err
	}
	if err := w.samePublication(pub); err != nil {
		return err
	}
	tables, err := listIncluded(ctx, conn, w.f.cfg.Publication, w.f.cfg.Include)
	if err != nil {
		return err
	}
	w.warn(tables, pub)
	if w.f.alters(pub, w.s.server) {
		if err := w.f.tend(ctx, conn, pub, tables, w.s.server); err != nil {
			return err
		}
	} else if err := w.sight(ctx, conn, pub, tables); err != nil {
		return err
	}
	w.good = at
	return nil
}

// samePublication finds out that the publication was dropped: before 18 the stream ends at the next change of any table,
// from 18 on the server passes over what follows without a word.
func (w *watcher) samePublication(pub *publicationInfo) error {
	if pub != nil && (w.pub == 0 || w.pub == pub.OID) {
		w.pub = pub.OID
		return nil
	}
	at := min(w.good, w.f.done().at)
	what := "was dropped"
	if pub != nil {
		what = "was dropped and made anew"
	}
	return w.f.gap(w.s.origin.position(at), fmt.Errorf("publication %s %s while it was read: changes since are not seen", w.f.cfg.Publication, what))
}

// sight finds what happened to the tables of a publication that we do not alter. The first look tells nothing.
//
// Such a table may have been added while transactions were open that had written to it. The server brings a part of their
// changes at most: only when all of them have ended is the table fed whole, and then it is told.
func (w *watcher) sight(ctx context.Context, conn *pgx.Conn, pub *publicationInfo, tables []tableInfo) error {
	d := w.seen.compare(tables, w.f.matches)
	s := sighting{gone: included(w.f.cfg.Include, w.f.cfg.Database, d.gone), since: w.good}
	oldest, next, err := openTransactions(ctx, conn)
	if err != nil {
		return err
	}
	for _, t := range d.joined {
		if pub.AllTables { // it was published since it was made
			continue
		}
		written, err := everWritten(ctx, conn, t.OID)
		if err != nil {
			return err
		}
		if written {
			w.joining = append(w.joining, joining{t.id(w.f.cfg.Database), t.OID, next})
		}
	}
	w.joining = slices.DeleteFunc(w.joining, func(j joining) bool {
		if oldest < j.behind {
			return false
		}
		s.joined, s.oids = append(s.joined, j.table), append(s.oids, j.oid)
		return true
	})
	if s.at, err = serverEnd(ctx, conn); err != nil {
		return err
	}
	return w.tell(ctx, s)
}

// openTransactions gives the oldest transaction that is open, and the next that will be.
func openTransactions(ctx context.Context, conn *pgx.Conn) (oldest, next int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err = conn.QueryRow(ctx, `
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint FROM pg_current_snapshot() s`).Scan(&oldest, &next)
	return oldest, next, during("asking which transactions are open", err)
}

func (w *watcher) tell(ctx context.Context, s sighting) error {
	if len(s.joined)+len(s.gone) == 0 {
		return nil
	}
	w.f.log.Warn("tables of the publication have changed", "publication", w.f.cfg.Publication, "fed_from_now", s.joined, "rows_gone", s.gone)
	select {
	case w.told <- s:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// warn says once what an include pattern or a table lacks since the last look.
func (w *watcher) warn(tables []tableInfo, pub *publicationInfo) {
	now := map[string]bool{}
	for _, p := range w.f.unmatched(tables) {
		now["no table matches include pattern "+p] = true
	}
	for _, t := range tables {
		if e := w.f.unfit(t); e != nil {
			now["table "+t.String()+" cannot be fed: "+e.Err.Error()] = true
		}
	}
	for _, t := range unpublished(tables, pub) {
		now["table "+t.String()+" is not in publication "+w.f.cfg.Publication] = true
	}
	for what := range now {
		if !w.missing[what] {
			w.f.log.Warn(what)
		}
	}
	w.missing = now
}

// see hands a sighting over.
func (d *decoder) see(ctx context.Context, s sighting) error {
	if len(s.gone) > 0 {
		err := d.out.Lost(ctx, cdc.Loss{
			Tables: s.gone, At: d.origin.position(s.since), Why: "the table was dropped, renamed, attached or detached",
			Hint: "let the feeder make its own publication: the log then tells",
		})
		if err != nil {
			return handlerFailed(err)
		}
	}
	if len(s.joined) == 0 {
		return nil
	}
	if err := d.out.Joined(ctx, s.joined, d.origin.position(s.at)); err != nil {
		return handlerFailed(err)
	}
	for _, oid := range s.oids {
		d.joined[oid] = true
	}
	return nil
}

// serverEnd asks for the end of the server's log.
func serverEnd(ctx context.Context, conn *pgx.Conn) (lsn, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var at string
	if err := conn.QueryRow(ctx, "SELECT ("+currentLSN+")::text").Scan(&at); err != nil {
		return 0, during("asking for the end of the server's log", err)
	}
	return parseLSN(at)
}

// youngTables are the tables that somebody may have added to the publication since the log was read last: the transaction
// that did it may lie behind the slot's beginning.
func youngTables(ctx context.Context, conn *pgx.Conn, publication, slot string) (map[uint32]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, `
SELECT r.prrelid FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid, pg_replication_slots s
WHERE p.pubname = $1 AND s.slot_name = $2 AND age(r.xmin) BETWEEN 0 AND age(s.catalog_xmin)`, publication, slot)
	oids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	young := map[uint32]bool{}
	for _, oid := range oids {
		young[oid] = true
	}
	return young, during("looking for tables that joined the publication", err)
}
