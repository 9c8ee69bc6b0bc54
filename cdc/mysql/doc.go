// Package mysql feeds row changes from the binary log of MySQL 8.0 and MariaDB 10.11. Which of the two a server is, it is
// asked; nobody configures it.
//
// # Positions
//
// A cdc.Position holds the GTIDs of every transaction that was handed over to its end: MySQL's executed set, and for MariaDB
// the latest GTID of each domain. A GTID enters it when its transaction ends (the XID event, the COMMIT or DDL statement, the
// end of an XA PREPARE), never at the GTID event that starts it, so that a crash in between sends the transaction again.
// File and offset stand beside it for people. A server without GTIDs (gtid_mode other than ON) has file and offset alone.
//
// A new source starts at @@gtid_executed, and on MariaDB at @@gtid_binlog_pos: what the server has logged itself, and
// therefore finds again in its log. @@gtid_current_pos would add what it has applied without logging, at which nobody can
// resume.
//
// Before a MySQL position is resumed the server is asked whether it has executed all of it and has purged nothing beyond it;
// MariaDB makes the same check when the dump begins. Where that fails the error wraps cdc.ErrGap.
//
// # Values
//
// Rows are decoded here and not by the driver, straight into canonical texts: a column outside the row image is Absent and
// a NULL is Null, BINARY(n) has its zero bytes again, DECIMAL all its digits, TIMESTAMP is UTC whatever zone either host is
// in. Names, signedness, charsets and labels come from the log where binlog_row_metadata is FULL, else from
// information_schema, in which case every column's type and length must fit what the log says or the source stops: a
// shifted value is never handed over. A value whose bytes mean nothing in their charset, or whose label nobody knows, is
// Unclear with the reason, and the rest of its row goes on.
//
// # What it refuses
//
// An event that may hold rows and that it does not know stops the source. A statement logged as text (an old session under
// binlog_format=STATEMENT) cannot be turned into rows: it is logged as an error. The rows of an XA transaction stand in the log at
// its XA PREPARE: they are handed over then, with a warning, and not again at its XA COMMIT.
//
// # Goroutines and memory
//
// The driver reads the socket in a goroutine of its own and hands over through a queue that is bounded in bytes; decoding
// and all calls of the Handler happen in Run's. Rows of tables outside Include are never decoded. Run waits for everything
// it started.
//
// Callers: internal/feed, cmd check.
package mysql
