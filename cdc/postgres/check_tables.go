package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// tables looks at the publication, and at every table that it holds or that is included.
func (c *checker) tables(ctx context.Context, conn *pgx.Conn, server serverInfo, pub *publicationInfo) error {
	all, err := listTablesOf(ctx, conn, c.f.cfg.Publication, 0)
	if err != nil {
		return err
	}
	var tables []tableInfo
	for _, t := range all {
		if c.f.matches(t.name()) {
			tables = append(tables, t)
		} else if e := c.f.unfit(t); e != nil && t.Published {
			c.add(cdc.SeverityError, t.String(), "", e.Hint, "%v; publication %s holds it, though we do not feed it: its updates and deletes fail now", e.Err, c.f.cfg.Publication)
		}
	}
	if len(tables) == 0 {
		c.add(cdc.SeverityError, "", "", "check include: patterns are schema.table", "no table of database %s matches the include list", c.f.cfg.Database)
	}
	for _, p := range c.f.unmatched(tables) {
		c.add(cdc.SeverityWarning, "", "", "names are compared exactly: case, quotes and schema matter", "include pattern %q chooses no table", p)
	}
	c.publication(pub, server, tables)
	for _, t := range tables {
		c.table(t, pub)
	}
	return nil
}

func (c *checker) publication(pub *publicationInfo, server serverInfo, tables []tableInfo) {
	name := c.f.cfg.Publication
	missing := unpublished(tables, pub)
	if pub == nil {
		if foreign := notOwned(missing); len(missing) > 0 && (len(foreign) > 0 || !server.MayCreate) {
			c.add(cdc.SeverityError, "", "", "as the tables' owner with CREATE on the database run: "+c.f.createStatement(missing, server),
				"publication %s does not exist, and our role may not make it", name)
		}
		return
	}
	if pub.ours() && !pub.Owned {
		c.add(cdc.SeverityWarning, "", "", fmt.Sprintf("ALTER PUBLICATION %s OWNER TO %s", quote(name), quote(c.f.cfg.User)),
			"publication %s was made by a feeder, but our role does not own it: it is read as it is", name)
	}
	for _, t := range missing {
		switch {
		case !c.f.alters(pub, server):
			c.add(cdc.SeverityError, t.String(), "", c.f.addStatement([]tableInfo{t}),
				"it is not in publication %s, which we may not alter", name)
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
	partial := cdc.SeverityError
	if c.f.cfg.AllowPartial {
		partial = cdc.SeverityWarning
	}
	if t.Filtered {
		c.add(partial, t.String(), "", "publish the table without WHERE, or accept it with allow_partial", "publication %s sends only the rows that its filter lets through: %s", c.f.cfg.Publication, t.Filter)
	}
	for _, column := range t.withheld() {
		c.add(partial, t.String(), column, "publish the table without a column list, or name it there, or accept it with allow_partial", "publication %s does not send it", c.f.cfg.Publication)
	}
}

// withheld are the columns that the publication could send and does not.
func (t tableInfo) withheld() []string {
	return slices.DeleteFunc(slices.Clone(t.Columns), func(column string) bool {
		return slices.Contains(t.Sent, column) || slices.Contains(t.Unsendable, column)
	})
}

// whole refuses to begin a source of whose tables the publication sends only a part, unless that was accepted. Of one that is fed
// already, where the publication was narrowed since, Check tells: to stand there would bring nothing back, and hold up the others.
func (f *Feeder) whole(ctx context.Context, conn *pgx.Conn) error {
	if f.cfg.AllowPartial {
		return nil
	}
	tables, err := listIncluded(ctx, conn, f.cfg.Publication, f.cfg.Include)
	if err != nil {
		return err
	}
	var parts []string
	for _, t := range tables {
		if !t.Published || f.unfit(t) != nil {
			continue
		}
		if t.Filtered {
			parts = append(parts, fmt.Sprintf("of %s only the rows that its filter lets through, %s", t, t.Filter))
		}
		if columns := t.withheld(); len(columns) > 0 {
			parts = append(parts, fmt.Sprintf("of %s no column %s", t, strings.Join(columns, ", ")))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return f.problem(fmt.Errorf("publication %s sends %s: other changes would never be seen", f.cfg.Publication, strings.Join(parts, "; ")),
		"publish the tables without WHERE and without a column list, or leave them out of include, or accept it with allow_partial: true")
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
	for _, p := range t.leaves() {
		if !c.f.matches(p) {
			lost = append(lost, p.String())
		}
	}
	if len(lost) > 0 {
		c.add(cdc.SeverityError, t.String(), "", "include the partitions too, for instance "+t.String()+"_*",
			"its changes carry the names of its partitions, which the include list does not choose: %s", strings.Join(lost, ", "))
	}
}
