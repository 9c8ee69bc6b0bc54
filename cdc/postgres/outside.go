package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// outside is what is known of the tables of a publication that we do not alter, or cannot. It lives as long as the Feeder.
type outside struct {
	seen    *memory
	joining []joining
	told    map[uint32]bool // tables of which Joined was told: a later start cannot see whether it was
}

// joining is a table that is fed whole when these transactions have ended: they may have written to it before it was
// published.
type joining struct {
	table   cdc.TableID
	oid     uint32
	writers []string
}

// sighting is what a look found out about such tables: it cannot stand in the log.
type sighting struct {
	joined, gone []cdc.TableID
	since, at    lsn           // it happened between these places of the log
	then         outside       // what is known when it has been handed over
	done         chan struct{} // closed when it has
}

// first looks before the stream begins. It finds the tables too that somebody may have added to the publication since the
// log was read last: the transaction that did it may lie behind the slot's beginning.
func (w *watcher) first(ctx context.Context, from cdc.Position) (seen *sighting, err error) {
	err = w.s.looks.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if seen, err = w.look(ctx, conn); err != nil || seen == nil || from.IsZero() || !w.s.found {
			return err
		}
		young, err := youngTables(ctx, conn, w.f.cfg.Publication, w.f.cfg.Slot)
		if err != nil {
			return err
		}
		for _, name := range seen.then.seen.names() {
			k, _ := seen.then.seen.get(name)
			waits := slices.ContainsFunc(seen.then.joining, func(j joining) bool { return j.oid == k.OID })
			if !slices.Contains(young, k.OID) || seen.then.told[k.OID] || waits {
				continue
			}
			j, err := w.join(ctx, conn, cdc.TableID{Database: w.f.cfg.Database, Schema: name[0], Table: name[1]}, k.OID)
			if err != nil {
				return err
			}
			seen.then.joining = append(seen.then.joining, j) // a later look tells
		}
		return nil
	})
	return seen, err
}

// sight finds what happened to the tables since they were seen last. The first look tells nothing.
//
// A table may have been added while transactions were open that had written to it. The server brings a part of their changes
// at most: only when all of them have ended is the table fed whole, and then it is told.
func (w *watcher) sight(ctx context.Context, conn *pgx.Conn, pub *publicationInfo, tables []tableInfo) (*sighting, error) {
	was := w.f.outside
	s := &sighting{since: w.good, done: make(chan struct{}), then: outside{seen: was.seen.clone(), told: maps.Clone(was.told)}}
	d := s.then.seen.compare(tables, w.f.matches)
	s.gone = included(w.f.cfg.Include, w.f.cfg.Database, d.gone)
	waiting := slices.Clone(was.joining)
	for _, t := range d.joined {
		if pub.AllTables { // it was published since it was made
			continue
		}
		written, err := everWritten(ctx, conn, t.OID)
		if err != nil {
			return nil, err
		}
		if !written {
			continue
		}
		j, err := w.join(ctx, conn, t.id(w.f.cfg.Database), t.OID)
		if err != nil {
			return nil, err
		}
		// It may wait already: a list that is made while the table is added may have it published and not yet as a member.
		waiting = append(slices.DeleteFunc(waiting, func(was joining) bool { return was.oid == j.oid }), j)
	}
	for _, j := range waiting {
		now, err := w.writers(ctx, conn, j.oid)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(j.writers, func(writer string) bool { return slices.Contains(now, writer) }) {
			s.then.joining = append(s.then.joining, j)
			continue
		}
		s.joined = append(s.joined, j.table)
		s.then.told[j.oid] = true
	}
	var err error
	s.at, err = serverEnd(ctx, conn)
	return s, err
}

// join begins to wait for the transactions that may have written to a table before it was published.
func (w *watcher) join(ctx context.Context, conn *pgx.Conn, table cdc.TableID, oid uint32) (joining, error) {
	writers, err := w.writers(ctx, conn, oid)
	return joining{table, oid, writers}, err
}

// writers are the open transactions that have written to a table: they hold its lock. On a standby every transaction that is
// open on the primary may be one.
func (w *watcher) writers(ctx context.Context, conn *pgx.Conn, oid uint32) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, `
SELECT virtualtransaction FROM pg_locks
WHERE NOT pg_is_in_recovery() AND locktype = 'relation' AND relation = $1 AND granted AND mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
UNION SELECT pg_snapshot_xip(pg_current_snapshot())::text WHERE pg_is_in_recovery()`, oid)
	writers, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return writers, during("asking who has written to a table", err)
}

// telling is a sighting on its way to Run's goroutine, which may be busy for long.
type telling struct {
	seen  *sighting
	given bool
}

// begin takes a sighting, where there is something to hand over, and reports whether there is not.
func (t *telling) begin(s *sighting) (nothing bool) {
	if s == nil || len(s.joined)+len(s.gone) == 0 {
		return true
	}
	*t = telling{seen: s}
	return false
}

// out is where the sighting goes, and nil while there is none to give.
func (t *telling) out(told chan<- *sighting) chan<- *sighting {
	if t.seen == nil || t.given {
		return nil
	}
	return told
}

// done is closed when it has been handed over, and nil before it was given.
func (t *telling) done() <-chan struct{} {
	if !t.given {
		return nil
	}
	return t.seen.done
}

// see hands a sighting over.
func (d *decoder) see(ctx context.Context, s *sighting) error {
	if len(s.gone) > 0 {
		err := d.out.Lost(ctx, cdc.Loss{
			Tables: s.gone, At: d.origin.position(s.since), Why: "the table was dropped, renamed, attached or detached",
			Hint: "let the feeder make its own publication: the log then tells",
		})
		if err != nil {
			return handlerFailed(err)
		}
	}
	if len(s.joined) > 0 {
		if err := d.out.Joined(ctx, s.joined, d.origin.position(s.at)); err != nil {
			return handlerFailed(err)
		}
	}
	close(s.done)
	return nil
}

// youngTables are the tables that were added to the publication by transactions which the slot may not have passed yet.
func youngTables(ctx context.Context, conn *pgx.Conn, publication, slot string) ([]uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, `
SELECT r.prrelid FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid, pg_replication_slots s
WHERE p.pubname = $1 AND s.slot_name = $2 AND age(r.xmin) BETWEEN 0 AND age(s.catalog_xmin)`, publication, slot)
	oids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	return oids, during("looking for tables that joined the publication", err)
}
