// Package envelope writes a row change as the record that goes to Kafka, and reads back every kind of record that a
// change topic may carry: our own envelope, Debezium's JSON with and without schema. Later formats (Avro with Confluent
// framing, unwrapped rows, Maxwell) join here, behind the same Decoder.
//
// # Our envelope
//
// Debezium's, JSON without schema: before, after, source, op, ts_ms, ts_us. `source` carries Debezium's own fields
// (version, connector, name, ts_ms, ts_us, db, schema, table, snapshot "false", gtid/file/pos or lsn/txId) and a marker
// of ours, "invalidator": {"v": 1, "ordinal": n, "slim": true?, "types": {"column": "bytes"|"bytea"|"float"|"json"|…}},
// which tells workers how values stand: integers are JSON numbers with all digits (18446744073709551615), decimals are
// strings with their scale ("500.00"), times are text as SELECT shows them in UTC, binary is base64 and named in types.
// An Absent column is left out of its image. The record key is the primary key as a JSON object in key order; null where
// the table has none.
//
// # Reading
//
// A Decoder is told which columns of which table are wanted and decodes only those; a record of a table that nobody
// wants costs no decode of its rows. It detects per record whether a schema wraps the value. It never guesses: the rules
// for values whose type is not known stand in cdc/TYPES.md.
//
// What is no row change is not an error: the result says by a word what was ignored (Ignored*). What cannot be decoded is
// a *DecodeError: the caller parks that record and goes on.
package envelope
