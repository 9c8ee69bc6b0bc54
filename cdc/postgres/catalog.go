package postgres

import (
	"context"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// catalog asks the database about itself over an ordinary connection, which is opened when it is first used, and again where
// it was lost. It belongs to one goroutine: a look, which may wait for locks, holds up no change.
type catalog struct {
	host string
	dial func(ctx context.Context, host string) (*pgx.Conn, error)
	conn *pgx.Conn // nil: not opened yet
}

func (c *catalog) close() {
	if c.conn != nil {
		closeConn(c.conn.PgConn())
	}
}

// use calls do with the connection, and once more with another where it was cut while it was idle.
func (c *catalog) use(ctx context.Context, do func(context.Context, *pgx.Conn) error) (err error) {
	for range 2 {
		if c.conn == nil || c.conn.IsClosed() {
			conn, err := c.dial(ctx, c.host)
			if err != nil {
				return during("connecting to "+c.host, err)
			}
			c.close()
			c.conn = conn
		}
		if err = do(ctx, c.conn); err == nil || !c.conn.IsClosed() {
			break
		}
	}
	return err
}

// describe is a describer: the log tells a column's type by its number alone.
func (c *catalog) describe(ctx context.Context, m relationMessage) (d description, err error) {
	err = c.use(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, queryTimeout)
		defer cancel()
		d, err = askRelation(ctx, conn, m)
		return err
	})
	return d, err
}

const describeColumns = `
SELECT format_type(c.oid, c.modifier),
       coalesce((WITH RECURSIVE d(oid, base) AS (
                    SELECT t.oid, t.typbasetype FROM pg_type t WHERE t.oid = c.oid
                    UNION ALL
                    SELECT t.oid, t.typbasetype FROM d JOIN pg_type t ON t.oid = d.base)
                 SELECT d.oid FROM d WHERE d.base = 0), 0)::oid
FROM unnest($1::oid[], $2::int4[]) WITH ORDINALITY AS c(oid, modifier, n) ORDER BY c.n`

const describeKey = `
SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = $1 AND i.indisprimary`

func askRelation(ctx context.Context, conn *pgx.Conn, m relationMessage) (d description, err error) {
	oids, modifiers := make([]uint32, len(m.columns)), make([]int32, len(m.columns))
	for i, col := range m.columns {
		oids[i], modifiers[i] = col.oid, col.modifier
	}
	rows, _ := conn.Query(ctx, describeColumns, oids, modifiers)
	var name string
	var base uint32
	_, err = pgx.ForEachRow(rows, []any{&name, &base}, func() error {
		if name == "???" { // a type that is gone by now
			name = ""
		}
		d.types, d.bases = append(d.types, name), append(d.bases, base)
		return nil
	})
	if err != nil {
		return d, during("asking for column types", err)
	}
	rows, _ = conn.Query(ctx, describeKey, m.id)
	d.keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return d, during("asking for a primary key", err)
}

// tableInfo is what the catalogue says about a table that Include chooses.
type tableInfo struct {
	Schema, Table string
	OID           uint32
	Root          uint32   // the partitioned table at the top, of a partition; else 0
	Member        uint32   // its row in pg_publication_rel; 0 where the publication does not list it by name
	Links         string   // the transactions that attached it, and what it is in, to Root
	Born          bool     // a partition that was made as one, and so was all that it is in
	Foreign       bool     // its rows are on another server
	Partitioned   bool     // the table itself holds no rows
	Partition     bool     // of another table
	Unlogged      bool     // its changes are in no log
	Identity      string   // pg_class.relreplident: d default, n nothing, f full, i index
	HasIdentity   bool     // updates and deletes can be logged: C4 where not
	Owned         bool     // we may add it to a publication
	From18        bool     // the server can publish stored generated columns: Postgres 18 and newer
	Unsendable    []string // generated columns that are not sent, or would not be if the table were published now
	Listed        bool     // a member of the publication by its own name
	Published     bool     // the publication sends its changes under its own name
	Columns       []string // every column
	Sent          []string // those that the publication sends, where Published
	Filtered      bool     // the publication sends only some rows
	Filter        string   // which, as SQL
	LeafSchemas   []string // of the leaf partitions
	LeafTables    []string // of the leaf partitions
	LeafOIDs      []uint32 // of the leaf partitions
	LeafBorn      []bool   // of the leaf partitions: as Born
	leafStopped   string   // a leaf partition's column, as schema.table.column, that is as stopped says; not in the catalogue itself
}

func (t tableInfo) String() string  { return t.Schema + "." + t.Table }
func (t tableInfo) name() tableName { return tableName{t.Schema, t.Table} }

func (t tableInfo) known() known {
	k := known{OID: t.OID, Root: t.Root, Member: t.Member, Links: t.Links}
	if t.Partitioned && t.Published {
		var oids []string
		for _, oid := range t.LeafOIDs {
			oids = append(oids, strconv.FormatUint(uint64(oid), 10))
		}
		k.Leaves = strings.Join(oids, ",")
	}
	return k
}

// leaves are the partitions that hold the rows.
func (t tableInfo) leaves() []tableName {
	var all []tableName
	for i := range t.LeafTables {
		all = append(all, tableName{t.LeafSchemas[i], t.LeafTables[i]})
	}
	return all
}

// oldRowInPart reports whether the log holds only some columns of the rows that updates and deletes meet.
func (t tableInfo) oldRowInPart() bool { return t.Identity != "f" && !t.Partitioned }

// stopped names a column for want of which the server refuses updates and deletes of the table once it is published: Postgres 18
// does so under FULL identity, which takes in every generated column. Of a partitioned table its partitions' identities count,
// which are published with it. Empty for none.
func (t tableInfo) stopped() string {
	switch {
	case t.Partitioned:
		return t.leafStopped
	case t.From18 && t.Identity == "f" && len(t.Unsendable) > 0:
		return t.Unsendable[0]
	}
	return ""
}

// stopAbove fills in leafStopped. all holds every partition of a table that it holds.
func stopAbove(all []tableInfo) {
	stopped := map[uint32]string{}
	for _, t := range all {
		if column := t.stopped(); column != "" {
			stopped[t.OID] = t.String() + "." + column
		}
	}
	for i := range all {
		for _, leaf := range all[i].LeafOIDs {
			if all[i].leafStopped == "" {
				all[i].leafStopped = stopped[leaf]
			}
		}
	}
}

func (t tableInfo) id(database string) cdc.TableID {
	return cdc.TableID{Database: database, Schema: t.Schema, Table: t.Table}
}

// $1 is the publication, $2 a table that is asked for alone, with its partitions; 0 asks for all. Before 18 no server publishes
// generated columns, whatever pg_publication_tables says; a publication that is still to be made will send the stored ones. An
// index serves as identity only where it is valid and checked at once. A partitioned table is published for its partitions, those
// to come too: they inherit its primary key, but no other identity. A partition was made as one where the same transaction made
// its row type and attached it.
const listTables = `
WITH identity AS (
    SELECT c.oid, c.relreplident = 'f' AND c.relkind = 'r' OR EXISTS (
        SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
        AND CASE WHEN c.relkind = 'p' OR c.relreplident = 'd' THEN i.indisprimary WHEN c.relreplident = 'i' THEN i.indisreplident END) AS ok
    FROM pg_class c WHERE c.relkind IN ('r', 'p', 'f')),
link AS (
    SELECT c.oid, string_agg(i.xmin::text, ',' ORDER BY i.inhrelid) AS xids, bool_and(y.xmin = i.xmin) AS born
    FROM pg_class c, pg_partition_ancestors(c.oid) a
    JOIN pg_inherits i ON i.inhrelid = a.relid JOIN pg_class ac ON ac.oid = a.relid JOIN pg_type y ON y.oid = ac.reltype
    WHERE c.relispartition GROUP BY c.oid),
leaves AS (
    SELECT r.oid, bool_and(identity.ok) AS ok, array_agg(pn.nspname::text ORDER BY pc.oid) AS schemas, array_agg(pc.relname::text ORDER BY pc.oid) AS names,
           array_agg(pc.oid ORDER BY pc.oid) AS oids, array_agg(coalesce(link.born, false) ORDER BY pc.oid) AS born
    FROM (SELECT oid FROM pg_class WHERE relkind = 'p') r, pg_partition_tree(r.oid) l
    JOIN pg_class pc ON pc.oid = l.relid JOIN pg_namespace pn ON pn.oid = pc.relnamespace JOIN identity ON identity.oid = pc.oid
    LEFT JOIN link ON link.oid = pc.oid
    WHERE l.isleaf GROUP BY r.oid)
SELECT n.nspname::text, c.relname::text, c.oid, CASE WHEN c.relispartition THEN pg_partition_root(c.oid)::oid ELSE 0 END, coalesce(r.oid, 0),
       coalesce(link.xids, ''), coalesce(link.born, false),
       c.relkind = 'f', c.relkind = 'p', c.relispartition, c.relpersistence = 'u', c.relreplident::text,
       identity.ok AND coalesce(leaves.ok, true),
       pg_has_role(c.relowner, 'USAGE'),
       server.from18,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> ''
             AND NOT (server.from18 AND CASE WHEN t.tablename IS NOT NULL THEN a.attname = ANY (t.attnames)
                      ELSE a.attgenerated = 's' AND NOT EXISTS (SELECT FROM pg_publication p WHERE p.pubname = $1 AND to_jsonb(p) ->> 'pubgencols' <> 's') END)
             ORDER BY a.attnum),
       r.oid IS NOT NULL,
       t.tablename IS NOT NULL,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
       coalesce(t.attnames, '{}')::text[],
       t.rowfilter IS NOT NULL, coalesce(t.rowfilter, ''),
       coalesce(leaves.schemas, '{}'), coalesce(leaves.names, '{}'), coalesce(leaves.oids, '{}'), coalesce(leaves.born, '{}')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN identity ON identity.oid = c.oid
CROSS JOIN (SELECT current_setting('server_version_num')::int >= 180000 AS from18) server
LEFT JOIN link ON link.oid = c.oid LEFT JOIN leaves ON leaves.oid = c.oid
LEFT JOIN pg_publication_rel r ON r.prrelid = c.oid AND r.prpubid = (SELECT oid FROM pg_publication WHERE pubname = $1)
LEFT JOIN pg_publication_tables t ON t.pubname = $1 AND t.schemaname = n.nspname AND t.tablename = c.relname
WHERE c.relpersistence <> 't' AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
  AND ($2::oid = 0 OR c.oid = $2 OR c.oid IN (SELECT relid FROM pg_partition_tree($2::oid::regclass)))
ORDER BY 1, 2`

// everWritten reports whether a table, or a partition of it, may ever have had a row: a table that was filled has pages, but
// for one that was truncated, which has another file then, or vacuumed to nothing, whose rows were counted then. Nobody may
// write to it meanwhile.
func everWritten(ctx context.Context, q querier, oid uint32) (written bool, err error) {
	rows, _ := q.Query(ctx, `
SELECT coalesce(bool_or(pg_relation_size(c.oid) > 0 OR c.relfilenode <> c.oid OR c.reltuples >= 0), false)
FROM pg_class c WHERE c.relkind = 'r' AND (c.oid = $1 OR c.oid IN (SELECT relid FROM pg_partition_tree($1::oid::regclass) WHERE isleaf))`, oid)
	written, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[bool])
	return written, during("looking whether a table was ever written to", err)
}

// querier is a connection, or a transaction on one.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// listTablesOf lists every table of the database, or one and its partitions, as publication sends it.
func listTablesOf(ctx context.Context, conn querier, publication string, one uint32) ([]tableInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, listTables, publication, one)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tableInfo])
	stopAbove(all)
	return all, during("listing tables", err)
}

// listIncluded lists the tables that include chooses.
func listIncluded(ctx context.Context, conn querier, publication string, include *cdc.Include) ([]tableInfo, error) {
	return listOneIncluded(ctx, conn, publication, include, 0)
}

func listOneIncluded(ctx context.Context, conn querier, publication string, include *cdc.Include, one uint32) ([]tableInfo, error) {
	all, err := listTablesOf(ctx, conn, publication, one)
	if err != nil {
		return nil, err
	}
	var included []tableInfo
	for _, t := range all {
		if include.Match(t.Schema, t.Table) {
			included = append(included, t)
		}
	}
	return included, nil
}

// publicationInfo is a publication as it stands.
type publicationInfo struct {
	OID                              uint32
	AllTables                        bool
	Insert, Update, Delete, Truncate bool
	ViaRoot                          bool
	Owned                            bool // our role may alter it
	Comment                          string
}

// ours reports whether the feeder made the publication, and so may add tables to it.
func (p *publicationInfo) ours() bool { return strings.HasPrefix(p.Comment, publicationComment) }

// findPublication returns nil where there is none.
func findPublication(ctx context.Context, conn querier, name string) (*publicationInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, `
SELECT oid, puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, pg_has_role(pubowner, 'USAGE'), coalesce(obj_description(oid, 'pg_publication'), '')
FROM pg_publication WHERE pubname = $1`, name)
	found, err := pgx.CollectRows(rows, pgx.RowToAddrOfStructByPos[publicationInfo])
	if err != nil {
		return nil, during("looking for publication "+name, err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	return found[0], nil
}

// serverInfo is what the feeder needs to know of the server itself.
type serverInfo struct {
	Version   int // server_version_num
	Standby   bool
	WALLevel  string
	MayCreate bool // CREATE on the database: a publication takes it
	Waits     bool // commits may wait for standbys after the log has them
}

func askServer(ctx context.Context, conn *pgx.Conn) (serverInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, `
SELECT current_setting('server_version_num')::int, pg_is_in_recovery(), current_setting('wal_level'),
       has_database_privilege(current_database(), 'CREATE'), `+commitsWait)
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[serverInfo])
	return s, during("asking the server for its settings", err)
}
