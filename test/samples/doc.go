// Package samples says which keys the records in testdata/debezium-samples feed: every record that real Debezium wrote for the
// statements in the .sql files there, of both formats. What is expected was worked out from those statements by hand.
package samples
