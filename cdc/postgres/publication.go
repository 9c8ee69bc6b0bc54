package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

const (
	// waitTimeout is how long a table that is being added is waited for while nobody waits behind us: long enough for the
	// server to call off an automatic VACUUM of it (deadlock_timeout).
	waitTimeout = 2 * time.Second

	// lockTimeout is how long its writers may then wait behind us. It is shorter than deadlock_timeout, so that in a deadlock we
	// are who gives up.
	lockTimeout = 500 * time.Millisecond
)

// ensurePublication makes the publication if it is not there, and tends one of our own.
func (f *Feeder) ensurePublication(ctx context.Context, s *session) error {
	conn := s.conn
	tables, err := listIncluded(ctx, conn, f.cfg.Publication, f.cfg.Include)
	if err != nil {
		return err
	}
	pub, err := findPublication(ctx, conn, f.cfg.Publication)
	if err != nil {
		return err
	}
	for _, t := range tables {
		if e := f.unfit(t); e != nil {
			f.log.Error("a table cannot be fed", "table", t.String(), "error", e.Err, "hint", e.Hint)
		}
	}
	f.warnOfIdentity(tables)
	missing := unpublished(tables, pub)
	if pub != nil {
		for _, t := range missing {
			if !f.alters(pub, s.server) || !t.Owned {
				f.log.Error("a table is missing from the publication, and we may not add it: it is not fed",
					"publication", f.cfg.Publication, "table", t.String(), "hint", f.addStatement([]tableInfo{t}))
			}
		}
		return f.tend(ctx, conn, pub, tables, s.server)
	}
	switch {
	case len(missing) == 0:
		return f.problem(fmt.Errorf("no table of database %s that can be fed matches the include list", f.cfg.Database),
			"check include: patterns are schema.table; invalidator check names the tables that cannot be fed")
	case s.server.Standby:
		return f.problem(fmt.Errorf("publication %s does not exist, and none can be made on a standby", f.cfg.Publication),
			"on the primary run: "+f.createStatement(missing, s.server))
	}
	return f.createPublication(ctx, s, missing)
}

// alters reports whether a publication is ours to add tables to.
func (f *Feeder) alters(pub *publicationInfo, server serverInfo) bool {
	return pub.ours() && !server.Standby
}

// tend adds to a publication of our own what Include chooses by now, and writes into the log what happened to its tables
// since the last time. Another's is left alone.
func (f *Feeder) tend(ctx context.Context, conn *pgx.Conn, pub *publicationInfo, tables []tableInfo, server serverInfo) error {
	missing := unpublished(tables, pub)
	if !f.alters(pub, server) {
		return nil
	}
	if err := f.renew(ctx, conn, pub, tables); err != nil {
		return err
	}
	for _, t := range missing { // each alone, so that none waits for another's owner
		if !t.Owned {
			continue
		}
		if err := f.addTable(ctx, conn, t); err != nil {
			return err
		}
	}
	return nil
}

// renew brings the memory up to date, in as many transactions as that takes: until it is, or does not get any further.
func (f *Feeder) renew(ctx context.Context, conn *pgx.Conn, pub *publicationInfo, tables []tableInfo) error {
	for {
		all := parseMemories(pub.Comment)
		was := all.comment()
		if all.of(f.cfg.Slot).compare(tables, f.matches); all.comment() == was {
			return nil
		}
		err := f.alter(ctx, conn, nil)
		if pgError(err) != nil { // the tables that are fed go on
			f.log.Error("what happened to the tables of the publication could not be written down, and is tried again", "publication", f.cfg.Publication, "error", err)
			return nil
		}
		if err != nil {
			return during("looking after publication "+f.cfg.Publication, err)
		}
		now, err := findPublication(ctx, conn, f.cfg.Publication)
		if err != nil || now == nil || now.Comment == pub.Comment {
			return err
		}
		pub = now
	}
}

func (f *Feeder) matches(t tableName) bool { return f.cfg.Include.Match(t[0], t[1]) }

// warnOfIdentity names the tables whose old rows the log holds only in part.
func (f *Feeder) warnOfIdentity(tables []tableInfo) {
	partly := slices.DeleteFunc(slices.Clone(tables), func(t tableInfo) bool { return !t.oldRowInPart() || f.unfit(t) != nil })
	if len(partly) > 0 {
		f.log.Warn("the old values of columns outside of the replica identity can never be known, nor large values that an update left alone",
			"tables", names(partly), "hint", "ALTER TABLE … REPLICA IDENTITY FULL, where a mapping reads such columns")
	}
}

func (f *Feeder) addTable(ctx context.Context, conn *pgx.Conn, t tableInfo) error {
	add := f.addStatement([]tableInfo{t})
	err := f.alter(ctx, conn, &t)
	switch {
	case isTaken(err): // another feeder was faster
	case errors.Is(err, errAltered):
		f.log.Error("a table could not be added to the publication: it is not fed, and looked at again", "table", t.String(), "error", err)
	case isState(err, stateNoPrivilege):
		f.log.Error("a table may not be added to the publication, and is not fed", "table", t.String(), "error", err, "hint", "as the table's owner run: "+add)
	case isLocked(err): // the others go on: of this one nothing is fed either way
		f.log.Error("a table is locked and could not be added to the publication: it is not fed, and tried again", "table", t.String(), "error", err)
	case isState(err, stateUndefinedTable): // dropped meanwhile
	case pgError(err) != nil: // the others go on
		f.log.Error("a table could not be added to the publication: it is not fed, and tried again", "table", t.String(), "error", err)
	case err != nil:
		return during("adding table "+t.String()+" to publication "+f.cfg.Publication, err)
	default:
		f.log.Info("table added to the publication", "publication", f.cfg.Publication, "table", t.String())
	}
	return nil
}

// alter adds a table, or none, to a publication of our own and renews its memory. What follows from that is written into the
// log by the same transaction: at its end the table is fed.
//
// The table is locked against writers first. The server decodes a change by the publication of its time: a transaction that
// had written to the table before it was added and ends later would bring a part of its changes and hide that others are
// missing. The lock is held until the transaction has ended, so there is none. An empty table that was never written to
// joins without a word.
func (f *Feeder) alter(ctx context.Context, conn *pgx.Conn, add *tableInfo) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := limit(ctx, tx, "lock_timeout", waitTimeout); err != nil {
			return err
		}
		// One at a time, of all feeders that share the publication.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "invalidator publication "+f.cfg.Publication); err != nil {
			return err
		}
		if add != nil {
			if err := lockTable(ctx, tx, *add); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, f.addStatement([]tableInfo{*add})); err != nil {
				return err
			}
			if err := f.stillFit(ctx, tx, add.OID, []tableInfo{*add}); err != nil {
				return err
			}
		}
		return f.remember(ctx, tx, add)
	})
}

// stillFit looks once more at tables that the transaction has just published, and so has locked: since they were listed one may
// have lost its identity, or another may have taken its name. It is then errAltered, or why the table is unfit. only is the oid
// of the one table that is looked at; 0: all.
func (f *Feeder) stillFit(ctx context.Context, tx pgx.Tx, only uint32, added []tableInfo) error {
	tables, err := listOneIncluded(ctx, tx, f.cfg.Publication, f.cfg.Include, only)
	if err != nil {
		return err
	}
	for _, t := range added {
		i := slices.IndexFunc(tables, func(now tableInfo) bool { return now.OID == t.OID && now.name() == t.name() })
		if i < 0 {
			return errAltered
		}
		if e := f.unfit(tables[i]); e != nil {
			return fmt.Errorf("%w: %w", errAltered, e)
		}
	}
	return nil
}

var errAltered = errors.New("the table was altered meanwhile")

// remember renews the memory, of all tables or of one that was added and its partitions, and writes the notice.
func (f *Feeder) remember(ctx context.Context, tx pgx.Tx, one *tableInfo) error {
	pub, err := findPublication(ctx, tx, f.cfg.Publication)
	if err != nil || pub == nil || !pub.ours() {
		return err
	}
	only := uint32(0)
	if one != nil {
		only = one.OID
	}
	tables, err := listOneIncluded(ctx, tx, f.cfg.Publication, f.cfg.Include, only)
	if err != nil {
		return err
	}
	all := parseMemories(pub.Comment)
	was := all.comment()
	m := all.of(f.cfg.Slot)
	before := m.clone()
	var d differences
	if one == nil || m.Tables == nil {
		d = m.compare(tables, f.matches)
	} else {
		d = m.take(tables, before, false)
	}
	n := notice{Slot: f.cfg.Slot, Gone: d.gone}
	rand.Shuffle(len(d.joined), func(i, j int) { d.joined[i], d.joined[j] = d.joined[j], d.joined[i] })
	for i, t := range d.joined {
		if one == nil { // another's hand added it, without the lock: only one is locked in a transaction, the others' turn comes
			locked := i == 0
			if locked {
				if locked, err = tryLock(ctx, tx, t); err != nil {
					return err
				}
			}
			if !locked {
				m.restore(t.name(), before)
				continue
			}
		}
		written, err := everWritten(ctx, tx, t.OID)
		if err != nil {
			return err
		}
		if written {
			n.Joined = append(n.Joined, t.name())
		}
	}
	if !n.empty() {
		f.log.Warn("tables of the publication have changed", "publication", f.cfg.Publication, "fed_from_now", n.Joined, "rows_gone", n.Gone)
		if err := n.emit(ctx, tx); err != nil {
			return err
		}
	}
	if now := all.comment(); now != was {
		_, err = tx.Exec(ctx, f.commentStatement(now))
	}
	return err
}

// lockTable keeps writers from a table, and from its partitions, until the transaction ends. It is the transaction's first
// lock of a table. First it waits for whatever else works on the table, and no writer waits behind it then. Partitions are
// not waited for: who waits while it holds another lock may be in a deadlock, of which the application could be the victim.
func lockTable(ctx context.Context, tx pgx.Tx, t tableInfo) error {
	name := quote(t.Schema, t.Table)
	type step struct {
		wait time.Duration
		lock string
	}
	steps := []step{
		{waitTimeout, "ONLY " + name + " IN SHARE UPDATE EXCLUSIVE MODE"},
		{lockTimeout, "ONLY " + name + " IN SHARE ROW EXCLUSIVE MODE"},
	}
	if t.Partitioned {
		steps = append(steps, step{lockTimeout, name + " IN SHARE ROW EXCLUSIVE MODE NOWAIT"})
	}
	for _, step := range steps {
		if err := limit(ctx, tx, "lock_timeout", step.wait); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "LOCK TABLE "+step.lock); err != nil {
			return err
		}
	}
	return nil
}

// tryLock is lockTable for a transaction that goes on where the table cannot be had.
func tryLock(ctx context.Context, tx pgx.Tx, t tableInfo) (bool, error) {
	err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error { return lockTable(ctx, inner, t) })
	if isLocked(err) {
		return false, nil
	}
	return err == nil, err
}

func limit(ctx context.Context, tx pgx.Tx, setting string, d time.Duration) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL %s = %d", setting, d.Milliseconds()))
	return err
}

// isLocked reports whether a table could not be had in time.
func isLocked(err error) bool { return isState(err, stateLockTimeout) || isState(err, stateCanceled) }

func (f *Feeder) createPublication(ctx context.Context, s *session, tables []tableInfo) error {
	limited, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	create := f.createStatement(tables, s.server)
	err := pgx.BeginFunc(limited, s.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(limited, create); err != nil {
			return err
		}
		if err := f.stillFit(limited, tx, 0, tables); err != nil {
			return err
		}
		if _, err := tx.Exec(limited, f.commentStatement(publicationComment)); err != nil {
			return err
		}
		return f.remember(limited, tx, nil)
	})
	switch {
	case isTaken(err), errors.Is(err, errAltered): // another feeder of the same database made it meanwhile, or a table is not what it was
		return f.ensurePublication(ctx, s)
	case isState(err, stateNoPrivilege):
		return &cdc.SourceError{
			Source: f.cfg.Name, Err: &serverError{doing: "creating publication " + f.cfg.Publication, pg: pgError(err)},
			Hint: fmt.Sprintf("as the tables' owner with CREATE on the database run: %s", create),
		}
	case err != nil:
		return during("creating publication "+f.cfg.Publication, err)
	}
	f.log.Info("publication made", "publication", f.cfg.Publication, "tables", names(tables))
	return nil
}

// createStatement also publishes generated columns where the server can.
func (f *Feeder) createStatement(tables []tableInfo, server serverInfo) string {
	s := fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s", quote(f.cfg.Publication), quoted(tables))
	if server.Version >= 180000 {
		s += " WITH (publish_generated_columns = stored)"
	}
	return s
}

func (f *Feeder) commentStatement(text string) string {
	return fmt.Sprintf("COMMENT ON PUBLICATION %s IS '%s'", quote(f.cfg.Publication), strings.ReplaceAll(text, "'", "''"))
}

func (f *Feeder) addStatement(tables []tableInfo) string {
	return fmt.Sprintf("ALTER PUBLICATION %s ADD TABLE %s", quote(f.cfg.Publication), quoted(tables))
}

// unpublished are the tables that can be fed and are not in the publication, which may be nil. A partitioned table is
// published so that partitions to come are.
func unpublished(tables []tableInfo, pub *publicationInfo) []tableInfo {
	var missing []tableInfo
	for _, t := range tables {
		switch {
		case t.Foreign || t.Unlogged || !t.HasIdentity || t.stopped() != "":
		case pub != nil && pub.ViaRoot && t.Partition: // its changes come as the partitioned table's
		case pub != nil && (t.Listed || t.Published || pub.AllTables):
		default:
			missing = append(missing, t)
		}
	}
	return missing
}

// unfit says why a table cannot be published, or nil. A table without an identity is not, nor one whose identity holds what is
// not published: its own application could then no longer update or delete its rows.
func (f *Feeder) unfit(t tableInfo) *cdc.SourceError {
	e := &cdc.SourceError{Source: f.cfg.Name, Table: t.id(f.cfg.Database)}
	full := fmt.Sprintf("ALTER TABLE %s REPLICA IDENTITY FULL", quote(t.Schema, t.Table))
	switch {
	case t.Foreign:
		e.Err = errors.New("it is a foreign table: its changes are in another server's log")
		e.Hint = "feed it from that server"
	case t.Unlogged:
		e.Err = errors.New("it is unlogged: its changes are in no log")
		e.Hint = fmt.Sprintf("ALTER TABLE %s SET LOGGED", quote(t.Schema, t.Table))
	case t.stopped() != "":
		whose := "its"
		if t.Partitioned {
			whose = "a partition's"
		}
		e.Err = fmt.Errorf("%s replica identity is FULL and generated column %s is not published: once published, updates and deletes there would fail (SQLSTATE 42P10)", whose, t.stopped())
		e.Hint = fmt.Sprintf("ALTER PUBLICATION %s SET (publish_generated_columns = stored) where the column is stored, or take another replica identity",
			quote(f.cfg.Publication))
	case t.HasIdentity:
		return nil
	case t.Partitioned:
		e.Err = errors.New("it, or a partition of it, has no primary key: once published, updates and deletes there would fail (SQLSTATE 55000)")
		e.Hint = "add a primary key, or include the partitions that have a replica identity"
	case t.Identity == "n":
		e.Err = errors.New("its replica identity is NOTHING: once published, its updates and deletes would fail (SQLSTATE 55000)")
		e.Hint = full
	case t.Identity == "i":
		e.Err = errors.New("the index of its replica identity is gone: once published, its updates and deletes would fail (SQLSTATE 55000)")
		e.Hint = full
	default:
		e.Err = errors.New("it has no primary key that is checked at once, and no replica identity: once published, its updates and deletes would fail (SQLSTATE 55000)")
		e.Hint = "add a primary key, or " + full
	}
	return e
}

// unmatched are the include patterns that choose none of tables.
func (f *Feeder) unmatched(tables []tableInfo) []string {
	var ids []cdc.TableID
	for _, t := range tables {
		ids = append(ids, t.id(f.cfg.Database))
	}
	return f.cfg.Include.Unmatched(ids)
}

// quoted lists tables for a publication. ONLY, or the server adds those that inherit from them (INHERITS) too, whether they are
// included and whether they have an identity. The partitions of a partitioned table are published with it either way.
func quoted(tables []tableInfo) string {
	var s []string
	for _, t := range tables {
		s = append(s, "ONLY "+quote(t.Schema, t.Table))
	}
	return strings.Join(s, ", ")
}

func names(tables []tableInfo) string {
	var s []string
	for _, t := range tables {
		s = append(s, t.String())
	}
	return strings.Join(s, ", ")
}
