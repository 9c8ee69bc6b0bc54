// Package postgres feeds the row changes of one Postgres database (15 or newer) from its log: logical replication, plugin
// pgoutput, by a publication and a replication slot.
//
// # What it guarantees
//
// Changes come in commit order, only those of committed transactions, each transaction whole and followed by its position:
// the end of its commit record, with the server's system id and timeline. A Run that begins at a saved position brings
// everything committed after it, and nothing of what was handed over before it; after a cut connection the transaction that
// was cut comes again from its beginning. The server spools what does not fit its memory, and so holds a transaction of any
// size; what we have received and not yet handed over is bounded in bytes.
//
// The server is told that it may forget something (the slot's confirmed_flush_lsn) only after Confirm said so. Until then
// the slot's own start is repeated. Status messages go on while the Handler blocks. A server that is shut down would wait for
// the Handler: it is left.
//
// Where commits may wait for synchronous standbys, which they do behind the log, a transaction is handed over when a reader that
// begins then sees it. It holds up what was committed behind it. From a standby that cannot be told.
//
// Where only other tables or other databases are written, the position moves on with the server's keepalives, so that an
// idle source does not make the server keep its log. Committed then carries the server's time. A logical message outside of
// any transaction (pg_logical_emit_message with false) has no Committed of its own: the next one lies behind it. Status tells
// lag and retained log.
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
// comment. At each start and every minute, tables that match by then are added to a publication of ours. Another's publication
// is never altered. From Postgres 18 on ours sends stored generated columns too; before, no publication does. A table whose
// updates and deletes would fail once it is published (no primary key and no other replica identity, or on 18 a FULL one with
// a generated column that is not sent) is left out by name, and so, until the next look, is one that stays locked while it is
// added. One that inherits from an included table (INHERITS) is another table: it has to be included itself. Then the slot, in
// this order, because a slot that is older than its publication can never be read: from 17 on as a failover slot. Where the role
// may not, the error holds the statements.
//
// A partitioned table's changes carry the names of its partitions (publish_via_partition_root is off, its default): Include
// and mappings have to choose those. Check says where they do not.
//
// # What the log does not tell
//
// DROP TABLE, RENAME, ATTACH and DETACH are in no logical stream. So every look compares the tables with those of the look
// before, which the comment of a publication of ours keeps, by slot: its own second line, as JSON. What has changed is written
// into the log, in the transaction that renews the comment and adds tables, as a logical message of ours (prefix
// "invalidator"): the stream brings it at its place, after a crash too, and it becomes a Truncate change of a name behind which
// another relation stands by then, or none, and Joined for a table that is fed from there on. A table is locked against
// writers while it is added, so that nothing of it can be seen by half; one that was never written to joins without a word.
// Of another's publication the same is handed over beside the stream, as Lost and Joined, and is not known across a restart,
// but for tables that were added meanwhile.
//
// A relation that came and went under its name between two looks leaves no trace. Not seen at all are unlogged and foreign
// tables, and what an ALTER TABLE that rewrites rows makes of their values.
//
// # What it refuses
//
// To begin where changes would be missing: a slot that is gone, was given up by the server, or has moved beyond the saved
// position; another server; a server promoted from a point before what was handed over, or set back; a publication that was
// dropped. Each is a *cdc.SourceError that wraps a *cdc.GapError, and nothing is made anew until Restart is called. After a
// promotion it says which changes never happened. Restart drops our slot and makes it anew behind the publication. It may be
// called again, and a crash within it leaves a gap as before.
//
// A slot that a process of ours still reads (same role, same application name "invalidator/<source>") is freed: whoever runs
// a Feeder leads the source. One that somebody else reads is no gap: the error says who, and may pass.
//
// # Who calls it
//
// internal/feed runs it; cmd check asks it. A Feeder has one Run at a time, and Restart between Runs. Confirm and Status may
// be called from any goroutine.
package postgres
