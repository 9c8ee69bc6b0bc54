package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// Check implements cdc.Feeder. It makes neither publication nor slot: what Run would make is no finding.
func (f *Feeder) Check(ctx context.Context) ([]cdc.Finding, error) {
	host, conn, err := f.connect(ctx)
	if err != nil {
		return nil, f.explain(err)
	}
	defer closeConn(conn.PgConn())
	c := &checker{f: f}
	if err := c.all(ctx, host, conn); err != nil {
		return nil, f.explain(err)
	}
	slices.SortStableFunc(c.found, func(a, b cdc.Finding) int { return rank(a.Severity) - rank(b.Severity) })
	return c.found, nil
}

func rank(s cdc.Severity) int {
	if s == cdc.SeverityError {
		return 0
	}
	return 1
}

type checker struct {
	f     *Feeder
	found []cdc.Finding
}

func (c *checker) add(s cdc.Severity, table, column, hint, format string, args ...any) {
	c.found = append(c.found, cdc.Finding{
		Severity: s, Source: c.f.cfg.Name, Table: table, Column: column, What: fmt.Sprintf(format, args...), Hint: hint,
	})
}

// refused makes a finding of an error that Run would end with.
func (c *checker) refused(err error) {
	e := c.f.explain(err)
	c.add(cdc.SeverityError, "", "", e.Hint, "%v", e.Err)
}

func (c *checker) all(ctx context.Context, host string, conn *pgx.Conn) error {
	server, err := askServer(ctx, conn)
	if err != nil {
		return err
	}
	if err := c.f.fit(server); err != nil {
		c.refused(err)
	}
	if server.Version < minVersion {
		return nil // what follows is asked in words that the server does not know
	}
	if server.SlotKeepWAL == "-1" {
		c.add(cdc.SeverityWarning, "", "", "set max_slot_wal_keep_size to what the disk can spare, for instance '50GB'",
			"max_slot_wal_keep_size is -1: while nobody reads the slot, the server keeps its log until the disk is full")
	}
	slot, err := findSlot(ctx, conn, c.f.cfg.Slot)
	if err != nil {
		return err
	}
	if err := c.f.fitSlot(slot, cdc.Position{}); err != nil {
		c.refused(err)
	}
	if slot != nil && slot.WALStatus == "unreserved" {
		c.add(cdc.SeverityWarning, "", "", "let the feeder catch up now, or raise max_slot_wal_keep_size", "the server is about to give up slot %s", c.f.cfg.Slot)
	}
	pub, err := findPublication(ctx, conn, c.f.cfg.Publication)
	if err != nil {
		return err
	}
	if slot != nil && pub == nil {
		c.refused(c.f.noPublication(cdc.Position{}))
	}
	if server.WALLevel == "logical" {
		c.replication(ctx, host)
	}
	tables, err := listIncluded(ctx, conn, c.f.cfg.Publication, c.f.cfg.Include)
	if err != nil {
		return err
	}
	if len(tables) == 0 {
		c.add(cdc.SeverityError, "", "", "check include: patterns are schema.table", "no table of database %s matches the include list", c.f.cfg.Database)
	}
	c.publication(pub, server, tables)
	for _, t := range tables {
		c.table(t, pub)
	}
	return nil
}

// replication tries whether our role may stream.
func (c *checker) replication(ctx context.Context, host string) {
	repl, err := c.f.connectReplication(ctx, host)
	if err != nil {
		c.refused(err)
		return
	}
	defer closeConn(repl)
	if _, err := pglogrepl.IdentifySystem(ctx, repl); err != nil {
		c.refused(during("asking the server who it is", err))
	}
}

func (c *checker) publication(pub *publicationInfo, server serverInfo, tables []tableInfo) {
	name := c.f.cfg.Publication
	missing := unpublished(tables, pub)
	if pub == nil {
		if foreign := notOwned(missing); len(missing) > 0 && (len(foreign) > 0 || !server.MayCreate) {
			c.add(cdc.SeverityError, "", "", "as the tables' owner with CREATE on the database run: "+c.f.createStatement(missing),
				"publication %s does not exist, and our role may not make it", name)
		}
		return
	}
	for _, t := range missing {
		switch {
		case !pub.ours():
			c.add(cdc.SeverityError, t.String(), "", c.f.addStatement([]tableInfo{t}),
				"it is not in publication %s, which we did not make and do not alter", name)
		case !t.Owned:
			c.add(cdc.SeverityError, t.String(), "", "as the table's owner run: "+c.f.addStatement([]tableInfo{t}),
				"it is not in publication %s, and our role may not add it", name)
		}
	}
	for _, op := range []struct {
		word string
		sent bool
	}{{"insert", pub.Insert}, {"update", pub.Update}, {"delete", pub.Delete}} {
		if !op.sent {
			c.add(cdc.SeverityError, "", "", c.publishAll(), "publication %s does not send %ss", name, op.word)
		}
	}
	if !pub.Truncate {
		c.add(cdc.SeverityWarning, "", "", c.publishAll(), "publication %s does not send truncates: an emptied table goes unseen", name)
	}
}

func (c *checker) publishAll() string {
	return fmt.Sprintf("ALTER PUBLICATION %s SET (publish = 'insert, update, delete, truncate')", quote(c.f.cfg.Publication))
}

func notOwned(tables []tableInfo) []tableInfo {
	return slices.DeleteFunc(slices.Clone(tables), func(t tableInfo) bool { return t.Owned })
}

func (c *checker) table(t tableInfo, pub *publicationInfo) {
	if t.Partitioned && (pub == nil || !pub.ViaRoot) {
		c.partitions(t)
	}
	if t.Partition && pub != nil && pub.ViaRoot {
		c.add(cdc.SeverityWarning, t.String(), "", "include the partitioned table", "publication %s sends its changes under the name of the table that it is a partition of", c.f.cfg.Publication)
		return
	}
	if e := c.f.unfit(t); e != nil {
		what := e.Err.Error()
		if t.Published && !t.Unlogged {
			what += "; it is published: its updates and deletes fail now"
		}
		c.add(cdc.SeverityError, t.String(), "", e.Hint, "%s", what)
		return
	}
	if t.oldRowInPart() {
		c.add(cdc.SeverityWarning, t.String(), "", fmt.Sprintf("ALTER TABLE %s REPLICA IDENTITY FULL", quote(t.Schema, t.Table)),
			"its replica identity is its key: the old values of other columns can never be known, nor a large value that an update left alone")
	}
	c.generated(t)
	if !t.Published {
		return
	}
	if t.Filtered {
		c.add(cdc.SeverityWarning, t.String(), "", "publish the table without WHERE", "publication %s sends only the rows that its filter lets through", c.f.cfg.Publication)
	}
	for _, column := range t.Columns {
		if !slices.Contains(t.Sent, column) && !slices.Contains(t.Unsendable, column) {
			c.add(cdc.SeverityWarning, t.String(), column, "publish the table without a column list, or name it there", "publication %s does not send it", c.f.cfg.Publication)
		}
	}
}

// generated looks at generated columns.
func (c *checker) generated(t tableInfo) {
	for _, column := range t.Unsendable {
		c.add(cdc.SeverityWarning, t.String(), column, "name the columns that it is made of instead", "it is generated, and generated columns are not published")
	}
}

// partitions looks at the names under which a partitioned table's changes come.
func (c *checker) partitions(t tableInfo) {
	var lost []string
	for _, p := range t.Partitions {
		schema, table, _ := strings.Cut(p, ".")
		if !c.f.cfg.Include.Match(schema, table) {
			lost = append(lost, p)
		}
	}
	if len(lost) > 0 {
		c.add(cdc.SeverityError, t.String(), "", "include the partitions too, for instance "+t.String()+"_*",
			"its changes carry the names of its partitions, which the include list does not choose: %s", strings.Join(lost, ", "))
	}
}
