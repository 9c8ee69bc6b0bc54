package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

var _ cdc.Describer = (*Feeder)(nil)

// Describe implements cdc.Describer.
func (f *Feeder) Describe(ctx context.Context, include *cdc.Include) ([]cdc.TableInfo, error) {
	_, conn, err := f.connect(ctx)
	if err != nil {
		return nil, f.explain(err)
	}
	defer closeConn(conn.PgConn())
	tables, err := f.describeTables(ctx, conn, include)
	if err != nil {
		return nil, f.explain(err)
	}
	return tables, nil
}

func (f *Feeder) describeTables(ctx context.Context, conn *pgx.Conn, include *cdc.Include) ([]cdc.TableInfo, error) {
	server, err := askServer(ctx, conn)
	if err != nil {
		return nil, err
	}
	if server.Version < minVersion {
		return nil, f.fit(server) // what follows is asked in words that the server does not know
	}
	pub, err := findPublication(ctx, conn, f.cfg.Publication)
	if err != nil {
		return nil, err
	}
	infos, err := listIncluded(ctx, conn, f.cfg.Publication, include)
	if err != nil {
		return nil, err
	}
	columns, err := listColumns(ctx, conn)
	if err != nil {
		return nil, err
	}
	var tables []cdc.TableInfo
	for _, t := range infos {
		d := cdc.TableInfo{TableID: t.id(f.cfg.Database), Unsent: f.unsent(t, pub)}
		if t.Filtered {
			d.Partial = append(d.Partial, cdc.Lack{
				What: fmt.Sprintf("publication %s sends only the rows that its filter lets through", f.cfg.Publication), Hint: "publish the table without WHERE"})
		}
		for _, c := range columns {
			if c.Schema == t.Schema && c.Table == t.Table {
				d.Columns = append(d.Columns, f.describeColumn(t, c))
			}
		}
		tables = append(tables, d)
	}
	return tables, nil
}

// unsent says why nothing of a table comes under its own name.
func (f *Feeder) unsent(t tableInfo, pub *publicationInfo) cdc.Lack {
	switch e := f.unfit(t); {
	case e != nil:
		return cdc.Lack{What: e.Err.Error(), Hint: e.Hint}
	case t.Partitioned && (pub == nil || !pub.ViaRoot):
		return cdc.Lack{What: "its changes carry the names of its partitions: " + joinNames(t.leaves()),
			Hint: "map the partitions, for instance " + t.String() + "_*"}
	case t.Partition && pub != nil && pub.ViaRoot:
		return cdc.Lack{What: fmt.Sprintf("publication %s sends its changes under the name of the table that it is a partition of", f.cfg.Publication),
			Hint: "map that table"}
	case pub != nil && len(unpublished([]tableInfo{t}, pub)) > 0 && (!pub.ours() || !t.Owned):
		return cdc.Lack{What: "it is not in publication " + f.cfg.Publication + ", and we may not add it", Hint: f.addStatement([]tableInfo{t})}
	}
	return cdc.Lack{}
}

// columnInfo is what the catalogue says about a column.
type columnInfo struct {
	Schema, Table, Name, Type string
	Key                       bool // of the primary key
	Identity                  bool // of the replica identity, where that is an index
}

// A domain is as its base type to whoever renders it.
const listColumnTypes = `
SELECT n.nspname::text, c.relname::text, a.attname::text,
       CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) ELSE format_type(a.atttypid, a.atttypmod) END,
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey)),
       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey)
               AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped JOIN pg_type t ON t.oid = a.atttypid
WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't' AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY 1, 2, a.attnum`

func listColumns(ctx context.Context, conn *pgx.Conn) ([]columnInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, listColumnTypes)
	columns, err := pgx.CollectRows(rows, pgx.RowToStructByPos[columnInfo])
	return columns, during("listing columns", err)
}

func (f *Feeder) describeColumn(t tableInfo, c columnInfo) cdc.ColumnInfo {
	d := cdc.ColumnInfo{Column: cdc.Column{Name: c.Name, Type: c.Type, Key: c.Key}}
	sent := t.Published && slices.Contains(t.Sent, c.Name)
	switch {
	case slices.Contains(t.Unsendable, c.Name):
		d.Unsent = cdc.Lack{What: "it is generated, and generated columns are not published", Hint: "name the columns that it is made of instead"}
	case t.Published && !sent:
		d.Unsent = cdc.Lack{What: fmt.Sprintf("publication %s does not send it", f.cfg.Publication), Hint: "publish the table without a column list, or name it there"}
	case t.Identity != "f" && !c.Identity:
		d.OldUnsent = cdc.Lack{What: "its table's replica identity leaves it out", Hint: fmt.Sprintf("ALTER TABLE %s REPLICA IDENTITY FULL", quote(t.Schema, t.Table))}
	}
	return d
}
