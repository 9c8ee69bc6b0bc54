// Package mysql feeds row changes from the binary log of MySQL 8.0 and MariaDB 10.5, and later. Which of the two a server is,
// it is asked; nobody configures it.
//
// # Positions
//
// A cdc.Position holds the GTIDs of every transaction that was handed over to its end: MySQL's executed set, and for MariaDB
// the latest GTID of each domain. A GTID enters it when its transaction ends (the XID event, the COMMIT or DDL statement),
// never at the GTID event that starts it, so that a crash in between sends the transaction again. File and offset stand
// beside it for people. A server without GTIDs (gtid_mode other than ON) has file and offset alone, which are good for that
// one server.
//
// A new source starts at @@gtid_executed, and on MariaDB at @@gtid_binlog_pos: what the server has logged itself, and
// therefore finds again in its log. @@gtid_current_pos would add what it has applied without logging, at which nobody can
// resume.
//
// # Hosts, failovers and gaps
//
// Of several hosts the first is read whose log holds everything behind the position, and whose data everything before it.
// Hosts that are down, and replicas that have not come as far, are waited for. It is a gap when
//
//   - a server that may be written, and replicates from nobody, lacks what we have read: those transactions never happened.
//     The gap tells which of the changes that were handed over they are, by GTID, since readers may have cached them;
//   - what was not read has been purged, and no other host comes back with it (hostPatience);
//   - the log of the same server was begun anew (RESET MASTER). It uses file names and GTIDs again; the place that was read last
//     then lies behind its end, or within an event or a transaction;
//   - the server wrote an incident event.
//
// Without GTIDs a log that was begun anew and has, by chance, a transaction that begins at the old offset is not told from
// the old one.
//
// # XA
//
// Rows of an XA transaction stand in the log at XA PREPARE, and are handed over at its XA COMMIT, under that one's GTID and
// time; see xa.go. Meanwhile a position of MySQL lacks its GTID alone, so that a restart reads just it again; one of MariaDB,
// or of files, stays before the oldest prepared transaction, and a restart reads everything since again. A transaction that
// was prepared before a new source began is a Loss when it is committed.
//
// # Commits that wait
//
// Under semi-synchronous replication (AFTER_SYNC), or where the log is synced with a delay and read before, a commit stands in the log for as
// long as it waits, and no reader sees it. Nothing of it is handed over before its GTID is in @@gtid_executed, which it enters when it
// shows. MariaDB has no such set, nor a server without GTIDs: there Check names a wait that is longer than Settle.
//
// # Rows that the log does not show
//
// TRUNCATE, DROP TABLE, DROP DATABASE, RENAME and a swap of tables are Truncate changes of the tables concerned. Statements that
// were logged as text (an old session under binlog_format=STATEMENT, LOAD DATA), and partitions and tablespaces that go or come, are
// told as Lost, of the tables that the text names: triggers and functions it does not. What a foreign key's action changes in
// a child table is in no log; Check names each. sql_log_bin=0 is seen by nobody.
//
// A table whose rows cannot be decoded is Lost too, once a second at most, and the source goes on; no position is told before
// the loss is. Only an event that may hold rows and that is not known stops the source.
//
// # Values
//
// Rows are decoded here and not by the driver, straight into canonical texts: a column outside the row image is Absent and
// a NULL is Null, BINARY(n) has its zero bytes again, DECIMAL all its digits, TIMESTAMP is UTC whatever zone either host is
// in. A value whose bytes mean nothing in their charset, or whose label nobody knows, is Unclear with the reason, and the
// rest of its row goes on.
//
// Names, signedness, charsets and labels come from the log where binlog_row_metadata is FULL. Else they come from the
// catalogue, which knows no past: a schema is used only for rows of which a look ahead in the log proves that no DDL has touched
// their table since but to rename it (catalogue.go, follow.go). What is found is kept in a cdc.History (Remember), with what each DDL made
// of it, so that rows that were logged before a DDL are read by the layout from before, whenever that is (history.go). Rows
// between two DDL statements that the reader was behind of are Lost: that a row's types fit a layout that is known does not prove
// that its columns are those, since a column may have been renamed, or have changed places with one of its type. FULL has none of
// this, and costs no look ahead.
//
// # Goroutines and memory
//
// A goroutine reads the socket and hands over through a queue that is bounded in bytes; decoding and all calls of the Handler
// happen in Run's. What is handed over lies in its event's memory, which is taken once. Rows of tables outside Include are
// never decoded. A transaction of any size streams through, but for those that the server compressed
// (binlog_transaction_compression), which the driver unpacks whole. Rows of prepared transactions take 16 MiB at most. Run waits for
// everything it started.
//
// Callers: internal/feed, cmd check.
package mysql
