// Package postgres feeds the row changes of one Postgres database (15 or newer) from its log: logical replication, plugin
// pgoutput, by a publication and a replication slot.
//
// # What it guarantees
//
// Changes come in commit order, only those of committed transactions, each transaction whole and followed by its position:
// the end of its commit record, with the server's system id and timeline. A Run that begins at a saved position brings
// everything committed after it, and nothing of what was handed over before it; after a cut connection the transaction that
// was cut comes again from its beginning.
//
// The server is told that it may forget something (the slot's confirmed_flush_lsn) only after Confirm said so. Until then
// the slot's own start is repeated. Status messages go on while the Handler blocks; what has been received meanwhile is
// bounded in bytes.
//
// Where only other tables or other databases are written, the position moves on with the server's keepalives, so that an
// idle source does not make the server keep its log. Committed then carries the server's time. A logical message outside of
// any transaction (pg_logical_emit_message with false) has no Committed of its own: the next one lies behind it.
//
// Values are the text that a plain SELECT shows in a session with the server's default settings and TimeZone UTC, whatever
// the role or the database sets for its sessions. The exception is lc_monetary, which stays the database's.
//
// An unchanged TOAST value that the log does not hold is Absent; under REPLICA IDENTITY FULL it is taken from the old row.
// An update has a Before only where the log has an old row: always under FULL, otherwise where the identity changed, and
// then of the identity's columns alone. Key columns are the replica identity's, under FULL the primary key's.
//
// # What it makes in the database
//
// The publication, if it is missing, of the tables that Include chooses: never FOR ALL TABLES, and marked as ours by its
// comment. At each start, tables that match by then are added to a publication of ours; what was committed in them before
// is not fed. Another's publication is never altered. From Postgres 18 on ours sends stored generated columns too; before, no
// publication does. A table whose updates and deletes would fail once it is published (no primary key and no other replica
// identity, or on 18 a FULL one with a generated column that is not sent) is left out by name, and so is one that stays locked
// while it is added. Then the slot, in this order, because a slot that is older than its publication can never be read. Where
// the role may not, the error holds the statements.
//
// A partitioned table's changes carry the names of its partitions (publish_via_partition_root is off, its default): Include
// and mappings have to choose those. Check says where they do not.
//
// # What it refuses
//
// To begin where changes would be missing: a slot that is gone, was given up by the server, or has moved beyond the saved
// position; another server; a server promoted from a point before the saved position. Each is a *cdc.SourceError that wraps
// cdc.ErrGap, and nothing is made anew. Not seen by logical replication at all are DETACH or DROP of a partition or table,
// and unlogged tables.
//
// # Who calls it
//
// internal/feed runs it; cmd check asks it. A Feeder has one Run at a time. Confirm may be called from any goroutine.
package postgres
