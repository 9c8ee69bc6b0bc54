package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// publicationComment marks a publication of our own making. Only such a one is ever altered.
const publicationComment = "made by invalidator, which adds tables of its include list to it"

// lockTimeout is how long a table that is being added is waited for: VACUUM, DDL and the building of an index hold a lock
// that its publication takes too.
const lockTimeout = 2 * time.Second

// ensurePublication makes the publication if it is not there, and adds to one of our own what Include chooses by now.
func (f *Feeder) ensurePublication(ctx context.Context, conn *pgx.Conn) error {
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
	if pub == nil {
		if len(missing) == 0 {
			return f.problem(fmt.Errorf("no table of database %s that can be fed matches the include list", f.cfg.Database),
				"check include: patterns are schema.table; invalidator check names the tables that cannot be fed")
		}
		return f.createPublication(ctx, conn, missing)
	}
	if len(missing) == 0 {
		return nil
	}
	if !pub.ours() {
		f.log.Error("tables are missing from a publication that we did not make, and are not fed",
			"publication", f.cfg.Publication, "tables", names(missing), "hint", f.addStatement(missing))
		return nil
	}
	for _, t := range missing { // each alone, so that none waits for another's owner
		if err := f.addTable(ctx, conn, t); err != nil {
			return err
		}
	}
	return nil
}

// warnOfIdentity names the tables whose old rows the log holds only in part.
func (f *Feeder) warnOfIdentity(tables []tableInfo) {
	partly := slices.DeleteFunc(slices.Clone(tables), func(t tableInfo) bool { return !t.oldRowInPart() || f.unfit(t) != nil })
	if len(partly) > 0 {
		f.log.Warn("the old values of columns outside of the replica identity can never be known, nor large values that an update left alone",
			"tables", names(partly), "hint", "ALTER TABLE … REPLICA IDENTITY FULL, where a mapping reads such columns")
	}
}

func (f *Feeder) addTable(ctx context.Context, conn *pgx.Conn, t tableInfo) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	add := f.addStatement([]tableInfo{t})
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockTimeout.Milliseconds())); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, add)
		return err
	})
	switch {
	case isTaken(err): // another feeder was faster
	case isState(err, stateNoPrivilege):
		f.log.Error("a table may not be added to the publication, and is not fed", "table", t.String(), "error", err, "hint", "as the table's owner run: "+add)
	case isState(err, stateLockTimeout): // the others go on: of this one nothing is fed either way
		f.log.Error("a table is locked and could not be added to the publication: it is not fed", "table", t.String(), "error", err, "hint", "when it is free run: "+add)
	case err != nil:
		return during("adding table "+t.String()+" to publication "+f.cfg.Publication, err)
	default:
		f.log.Info("table added to the publication: its earlier changes were not fed", "publication", f.cfg.Publication, "table", t.String())
	}
	return nil
}

func (f *Feeder) createPublication(ctx context.Context, conn *pgx.Conn, tables []tableInfo) error {
	limited, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	err := pgx.BeginFunc(limited, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(limited, f.createStatement(tables)); err != nil {
			return err
		}
		_, err := tx.Exec(limited, fmt.Sprintf("COMMENT ON PUBLICATION %s IS '%s'", quote(f.cfg.Publication), publicationComment))
		return err
	})
	switch {
	case isTaken(err): // another feeder of the same database made it meanwhile
		return f.ensurePublication(ctx, conn)
	case isState(err, stateNoPrivilege):
		return &cdc.SourceError{
			Source: f.cfg.Name, Err: &serverError{doing: "creating publication " + f.cfg.Publication, pg: pgError(err)},
			Hint: fmt.Sprintf("as the tables' owner with CREATE on the database run: %s", f.createStatement(tables)),
		}
	case err != nil:
		return during("creating publication "+f.cfg.Publication, err)
	}
	f.log.Info("publication made", "publication", f.cfg.Publication, "tables", names(tables))
	return nil
}

func (f *Feeder) createStatement(tables []tableInfo) string {
	s := fmt.Sprintf("CREATE PUBLICATION %s FOR TABLE %s", quote(f.cfg.Publication), quoted(tables))
	if slices.ContainsFunc(tables, func(t tableInfo) bool { return t.From18 }) {
		s += " WITH (publish_generated_columns = stored)"
	}
	return s
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
		case t.Unlogged || !t.HasIdentity || t.stopped() != "":
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
	switch {
	case t.Unlogged:
		e.Err = errors.New("it is unlogged: its changes are in no log")
		e.Hint = fmt.Sprintf("ALTER TABLE %s SET LOGGED", quote(t.Schema, t.Table))
	case t.stopped() != "":
		e.Err = fmt.Errorf("its replica identity is FULL and generated column %s is not published: once published, its updates and deletes would fail", t.stopped())
		e.Hint = fmt.Sprintf("ALTER PUBLICATION %s SET (publish_generated_columns = stored) where the column is stored, or take another replica identity",
			quote(f.cfg.Publication))
	case t.HasIdentity:
		return nil
	case t.Partitioned:
		e.Err = errors.New("it, or a partition of it, has no primary key: once published, updates and deletes there would fail")
		e.Hint = "add a primary key, or include the partitions that have a replica identity"
	case t.Identity == "n":
		e.Err = errors.New("its replica identity is NOTHING: once published, its updates and deletes would fail")
		e.Hint = fmt.Sprintf("ALTER TABLE %s REPLICA IDENTITY FULL", quote(t.Schema, t.Table))
	case t.Identity == "i":
		e.Err = errors.New("the index of its replica identity is gone: once published, its updates and deletes would fail")
		e.Hint = fmt.Sprintf("ALTER TABLE %s REPLICA IDENTITY FULL", quote(t.Schema, t.Table))
	default:
		e.Err = errors.New("it has no primary key that is checked at once, and no replica identity: once published, its updates and deletes would fail")
		e.Hint = fmt.Sprintf("add a primary key, or ALTER TABLE %s REPLICA IDENTITY FULL", quote(t.Schema, t.Table))
	}
	return e
}

func quoted(tables []tableInfo) string {
	var s []string
	for _, t := range tables {
		s = append(s, quote(t.Schema, t.Table))
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
