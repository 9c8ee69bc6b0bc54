// Package cdc is the model of a committed row change and the contract of whoever reads one from a database's log.
//
// A Feeder (cdc/mysql, cdc/postgres) hands over row changes in commit order with the position that follows each
// transaction; cdc/envelope writes a change as a Debezium envelope and reads every envelope that Kafka may carry back
// into a RowChange. A Describer says beforehand what the log will lack of a table. The package knows no Kafka, no mapping
// and no cache.
//
// It guarantees that a Value has one canonical text, the same whichever log or envelope carried it (TYPES.md is the
// table, and the tests walk it), and that a value which was not sent (an unchanged TOAST column, a column outside a
// minimal row image) is Absent: never NULL, never empty, never a placeholder.
//
// It refuses to guess: a value whose meaning a format cannot tell is handed over as it stands with a Kind that says so,
// or as an error that names source, table and column.
//
// Callers: internal/feed (feeders, encoding), internal/pipeline and cmd explain (decoding), mapping (reads RowChange).
package cdc
