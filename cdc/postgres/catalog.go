package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"invalidator/cdc"
)

// catalog asks the database about itself over an ordinary connection, which is opened again where it was lost. It belongs
// to Run's goroutine.
type catalog struct {
	host string
	conn *pgx.Conn
	dial func(ctx context.Context, host string) (*pgx.Conn, error)
}

func (c *catalog) close() { closeConn(c.conn.PgConn()) }

// describe is a describer: the log tells a column's type by its number alone.
func (c *catalog) describe(ctx context.Context, m relationMessage) (d description, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	for range 2 { // a connection that was cut while it was idle shows that only when it is used
		if c.conn.IsClosed() {
			conn, err := c.dial(ctx, c.host)
			if err != nil {
				return d, during("connecting to "+c.host, err)
			}
			c.close()
			c.conn = conn
		}
		if d, err = c.ask(ctx, m); err == nil || !c.conn.IsClosed() {
			break
		}
	}
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

func (c *catalog) ask(ctx context.Context, m relationMessage) (d description, err error) {
	oids, modifiers := make([]uint32, len(m.columns)), make([]int32, len(m.columns))
	for i, col := range m.columns {
		oids[i], modifiers[i] = col.oid, col.modifier
	}
	rows, _ := c.conn.Query(ctx, describeColumns, oids, modifiers)
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
	rows, _ = c.conn.Query(ctx, describeKey, m.id)
	d.keys, err = pgx.CollectRows(rows, pgx.RowTo[string])
	return d, during("asking for a primary key", err)
}

// tableInfo is what the catalogue says about a table that Include chooses.
type tableInfo struct {
	Schema, Table string
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
	Partitions    []string // leaf partitions, as schema.table
}

func (t tableInfo) String() string { return t.Schema + "." + t.Table }

// oldRowInPart reports whether the log holds only some columns of the rows that updates and deletes meet.
func (t tableInfo) oldRowInPart() bool { return t.Identity != "f" && !t.Partitioned }

// stopped names a column for want of which the server refuses updates and deletes of the table once it is published: Postgres 18
// does so under FULL identity, which takes in every generated column. Empty for none.
func (t tableInfo) stopped() string {
	if t.From18 && t.Identity == "f" && len(t.Unsendable) > 0 {
		return t.Unsendable[0]
	}
	return ""
}

func (t tableInfo) id(database string) cdc.TableID {
	return cdc.TableID{Database: database, Schema: t.Schema, Table: t.Table}
}

// $1 is the publication. Before 18 no server publishes generated columns, whatever pg_publication_tables says; a publication that
// is still to be made will send the stored ones. An index serves as identity only where it is valid and checked at once. A partitioned table is
// published for its partitions, those to come too: they inherit its primary key, but no other identity.
const listTables = `
WITH identity AS (
    SELECT c.oid, c.relreplident = 'f' AND c.relkind = 'r' OR EXISTS (
        SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
        AND CASE WHEN c.relkind = 'p' OR c.relreplident = 'd' THEN i.indisprimary WHEN c.relreplident = 'i' THEN i.indisreplident END) AS ok
    FROM pg_class c WHERE c.relkind IN ('r', 'p')),
leaf AS (
    SELECT r.oid AS root, pn.nspname || '.' || pc.relname AS name, identity.ok
    FROM pg_class r, pg_partition_tree(r.oid) l
    JOIN pg_class pc ON pc.oid = l.relid JOIN pg_namespace pn ON pn.oid = pc.relnamespace JOIN identity ON identity.oid = pc.oid
    WHERE r.relkind = 'p' AND l.isleaf)
SELECT n.nspname::text, c.relname::text, c.relkind = 'p', c.relispartition, c.relpersistence = 'u', c.relreplident::text,
       identity.ok AND NOT EXISTS (SELECT FROM leaf WHERE leaf.root = c.oid AND NOT leaf.ok),
       pg_has_role(c.relowner, 'USAGE'),
       server.from18,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> ''
             AND NOT (server.from18 AND CASE WHEN t.tablename IS NOT NULL THEN a.attname = ANY (t.attnames)
                      ELSE a.attgenerated = 's' AND NOT EXISTS (SELECT FROM pg_publication p WHERE p.pubname = $1 AND to_jsonb(p) ->> 'pubgencols' <> 's') END)
             ORDER BY a.attnum),
       EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
               WHERE r.prrelid = c.oid AND p.pubname = $1),
       t.tablename IS NOT NULL,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
             WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
       coalesce(t.attnames, '{}')::text[],
       t.rowfilter IS NOT NULL,
       ARRAY(SELECT leaf.name FROM leaf WHERE leaf.root = c.oid ORDER BY 1)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN identity ON identity.oid = c.oid
CROSS JOIN (SELECT current_setting('server_version_num')::int >= 180000 AS from18) server
LEFT JOIN pg_publication_tables t ON t.pubname = $1 AND t.schemaname = n.nspname AND t.tablename = c.relname
WHERE c.relpersistence <> 't' AND n.nspname <> 'information_schema' AND n.nspname !~ '^pg_'
ORDER BY 1, 2`

// listIncluded lists the tables that include chooses.
func listIncluded(ctx context.Context, conn *pgx.Conn, publication string, include *cdc.Include) ([]tableInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, listTables, publication)
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[tableInfo])
	if err != nil {
		return nil, during("listing tables", err)
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
	AllTables                        bool
	Insert, Update, Delete, Truncate bool
	ViaRoot                          bool
	Comment                          string
}

// ours reports whether the feeder made the publication, and so may add tables to it.
func (p *publicationInfo) ours() bool { return p.Comment == publicationComment }

// findPublication returns nil where there is none.
func findPublication(ctx context.Context, conn *pgx.Conn, name string) (*publicationInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, `
SELECT puballtables, pubinsert, pubupdate, pubdelete, pubtruncate, pubviaroot, coalesce(obj_description(oid, 'pg_publication'), '')
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

// slotInfo is a replication slot as it stands.
type slotInfo struct {
	Plugin    string
	Database  string
	Reader    int    // the process that reads it; 0: none
	WALStatus string // reserved, extended, unreserved or lost
	Flushed   lsn    // confirmed_flush_lsn: the stream begins there at the earliest
}

// findSlot returns nil where there is none.
func findSlot(ctx context.Context, conn *pgx.Conn, name string) (*slotInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var s slotInfo
	var flushed string
	rows, _ := conn.Query(ctx, `
SELECT coalesce(plugin, ''), coalesce(database::text, ''), coalesce(active_pid, 0), coalesce(wal_status, ''), coalesce(confirmed_flush_lsn, '0/0')::text
FROM pg_replication_slots WHERE slot_name = $1`, name)
	n, err := pgx.ForEachRow(rows, []any{&s.Plugin, &s.Database, &s.Reader, &s.WALStatus, &flushed}, func() (err error) {
		s.Flushed, err = parseLSN(flushed)
		return err
	})
	if err != nil {
		return nil, during("looking for slot "+name, err)
	}
	if n.RowsAffected() == 0 {
		return nil, nil
	}
	return &s, nil
}

// serverInfo is what the feeder needs to know of the server itself.
type serverInfo struct {
	Version     int // server_version_num
	WALLevel    string
	SlotKeepWAL string // max_slot_wal_keep_size
	MayCreate   bool   // CREATE on the database: a publication takes it
}

func askServer(ctx context.Context, conn *pgx.Conn) (serverInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	rows, _ := conn.Query(ctx, `
SELECT current_setting('server_version_num')::int, current_setting('wal_level'), current_setting('max_slot_wal_keep_size'),
       has_database_privilege(current_database(), 'CREATE')`)
	s, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[serverInfo])
	return s, during("asking the server for its settings", err)
}
