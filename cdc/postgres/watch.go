package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// watcher looks at the catalogue while a Run streams, for what the log does not tell. It belongs to its own goroutine.
type watcher struct {
	f       *Feeder
	s       *session
	pub     uint32         // the publication's oid
	told    chan *sighting // what Run's goroutine has to hand over
	good    lsn            // where the log stood before the last look that found the publication
	missing map[string]bool
}

func (f *Feeder) newWatcher(s *session) *watcher {
	return &watcher{f: f, s: s, told: make(chan *sighting), good: s.start, missing: map[string]bool{}}
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
	var t telling
	for {
		var err error
		select {
		case <-ctx.Done():
			return nil
		case t.out(w.told) <- t.seen:
			t.given = true
		case <-t.done():
			w.f.outside, t = t.seen.then, telling{}
		case <-gauge.C:
			err = w.s.looks.use(ctx, w.gauge)
		case <-heart:
			err = w.s.looks.use(ctx, beat)
		case <-look.C:
			if t.seen != nil { // what the last one saw is not handed over yet
				continue
			}
			var seen *sighting
			err = w.s.looks.use(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
				seen, err = w.look(ctx, conn)
				return err
			})
			if err == nil && t.begin(seen) && seen != nil {
				w.f.outside = seen.then
			}
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

// gauge looks what the slot costs, and whether commits may wait.
func (w *watcher) gauge(ctx context.Context, conn *pgx.Conn) error {
	if err := w.askWaits(ctx, conn); err != nil {
		return err
	}
	return w.f.measure(ctx, conn)
}

// look compares the catalogue with what was seen last. A sighting is what has to be handed over, or nil.
func (w *watcher) look(ctx context.Context, conn *pgx.Conn) (seen *sighting, err error) {
	at, err := serverEnd(ctx, conn)
	if err != nil {
		return nil, err
	}
	pub, err := findPublication(ctx, conn, w.f.cfg.Publication)
	if err != nil {
		return nil, err
	}
	if err := w.samePublication(pub); err != nil {
		return nil, err
	}
	tables, err := listIncluded(ctx, conn, w.f.cfg.Publication, w.f.cfg.Include)
	if err != nil {
		return nil, err
	}
	w.warn(tables, pub)
	if w.f.alters(pub, w.s.server) {
		err = w.f.tend(ctx, conn, pub, tables, w.s.server)
	} else {
		seen, err = w.sight(ctx, conn, pub, tables)
	}
	if err != nil {
		return nil, err
	}
	w.good = at
	return seen, nil
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
