// Package envelope writes a row change as the record that goes to Kafka, and reads back every kind of record that a
// change topic may carry: our own envelope, Debezium's JSON with and without schema and its Avro with
// a registry's schemas, the flat rows of its ExtractNewRecordState, and Maxwell's JSON.
//
// # Our envelope
//
// Debezium's, JSON without schema: before, after, source, op, ts_ms, ts_us. `source` carries Debezium's own fields
// (version, connector, name, ts_ms, ts_us, db, schema, table, snapshot "false", gtid/file/pos or txId/lsn) and a marker
// of ours, "invalidator": {"v": 1, "ordinal": n, "slim": true?, "types": {"column": "bytes"|"bytea"|"float"|"json"|…},
// "before_types": {…}?}, which tells workers how values stand: integers are JSON numbers with all digits
// (18446744073709551615), decimals are strings with their scale ("500.00"), times are text as SELECT shows them in UTC,
// binary is base64 and named in types. before_types names the columns whose kind is another in the before image. An Absent
// column is left out of its image. The record key is the primary key as a JSON object in key order; null where the table
// has none. A change of the key is two records (Split). A row above the size limit is written slim: its key and the
// columns that mappings name, then its key alone. A logical message above it keeps its prefix.
//
// # Reading
//
// A Decoder is told which columns of which table are wanted and decodes only those; a record of a table that nobody
// wants costs no decode of its rows. It detects per record, and for key and value apart, whether a schema wraps it; the
// last schema of a topic is kept and compared as bytes. It never guesses: the rules for values whose type is not known
// stand in cdc/TYPES.md. What it cannot tell of one value is that value's Kind, Unclear or Ambiguous, and never an error of
// the record: the other columns still give their keys.
//
// A key or value that names a schema (Confluent's four bytes, Apicurio's eight, a header of either; a header wins) is Avro. An
// envelope is walked as it stands: the values that are wanted are written as the JSON that Debezium would have written, and read like
// that with the schema's types, so that one set of rules serves both; all else is passed over and checked. What is no envelope (a key,
// an unwrapped row) is written as JSON whole. Schemas come from a SchemaSource; the package knows no network. What a registry that does not answer leaves
// undecoded is Retryable, the one error that is not the record's own fault.
//
// Maxwell's old row is its data overlaid with old, which names only what changed. Where nothing shows that nulls are written, an
// old value that is not named may have been NULL: it is Doubtful, rendered as it stands and never equal to the new one.
//
// An unwrapped row must be declared (Config.Format), since nothing in it says what it is. It is a delete where __deleted or
// __op says so, and otherwise an insert or an update without a before image: whoever maps it cannot know the old value of a
// column outside the key. A row that does not say its __op is taken for an update, which hides nothing. Fields that Debezium
// leaves beside the row are read under their default prefix, "__".
//
// Keys that somebody sent are a format of their own: {"v":1,"keys":["user:1"],"keys_base64":["YQD/"],"ordinal":500,"by":"…","reason":"…"}. Each list may be
// left out, not both. What is no text, or no list of texts, spoils its record: a key that is read as another one would be deleted in its place. A field that is
// not known does not: who sends keys wants them deleted. keys_base64 is for bytes that are no UTF-8; ordinal is the place of the first of these keys among all
// that was sent at once, from 0, so that a great many are the storm that they are.
//
// DecodeInto reads into the caller's Scratch, which is used again for the next record: a change of any format then allocates
// nothing, but for what is rare (a value that leaves several texts open, an array, a number of over 64 bits, an escaped name, an
// error). Its texts are views, good until the next record. Decode is the same with a copy of its own, for who keeps what it reads.
//
// A Scratch also remembers what the members of the last record were called, so that the next one's are found by comparison.
//
// Memory is bounded by the record's size: nesting by maxDepth, a number's digits by maxNumber, what an array of Avro may claim by
// maxGrowth, the caches by maxCached.
//
// A schema change is ignored, unless it takes rows away that no record tells of one by one: TRUNCATE, DROP TABLE and DATABASE, RENAME,
// and what moves partitions, of which Debezium and Maxwell tell as text alone. Such a record is a Truncate of the tables that its
// statement and its tableChanges name, as far as somebody maps them. The statement is read word by word, past comments and quotes; what is
// not understood takes nothing away. A snapshot's schema changes, which begin with a DROP of every table, are no changes.
//
// What is no row change is not an error: the result says by a word what was ignored (Ignored*). What cannot be decoded is
// a *DecodeError: the caller parks that record and goes on, unless it is Retryable.
package envelope
