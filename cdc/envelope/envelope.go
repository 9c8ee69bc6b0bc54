package envelope

import (
	"errors"
	"fmt"

	"invalidator/cdc"
)

// Format names what a topic carries.
type Format string

const (
	// Auto reads our own envelope and Debezium's JSON, with and without schema, told apart record by record.
	Auto Format = "debezium"
	// Avro reads what Auto does, and Debezium's Avro with the id of a registry's schema.
	Avro Format = "avro"
	// Maxwell reads the JSON of Maxwell's daemon.
	Maxwell Format = "maxwell"
	// Unwrapped reads the flat rows that Debezium's ExtractNewRecordState makes, as JSON with and without schema, and as Avro.
	Unwrapped Format = "unwrapped"
	// Keys reads the records of the service's own topic of keys: cache keys, and no row. No source can ask for it.
	Keys Format = "keys"
)

// Binary is how Debezium writes bytes as text: its binary.handling.mode.
type Binary string

const (
	Base64    Binary = "base64" // modes bytes, base64 and base64-url-safe, which do not read alike by mistake
	Base64URL Binary = "base64url"
	Hex       Binary = "hex"
)

// Why a record is no row change. The words are stable: they are labels of a metric and stand in explain's JSON.
const (
	IgnoredSnapshot    = "snapshot"    // op r, or an op c marked as of a snapshot
	IgnoredHeartbeat   = "heartbeat"   //
	IgnoredDDL         = "ddl"         // a schema change that takes no rows away, or none that somebody maps
	IgnoredTransaction = "transaction" // a BEGIN or END record
	IgnoredUnmapped    = "unmapped"    // no mapping wants this table
	IgnoredEmpty       = "empty"       // null key and null value; of keys: none
)

// Select says which columns of a table are wanted, with the types that a mapping declares for them (Column.Type, empty
// where it does not); nil for a table that nobody maps. source is the envelope's source.name, empty for a tombstone.
// It is called for every record and must be fast and safe for concurrent use.
type Select func(source string, t cdc.TableID) *cdc.Columns

// Record is one Kafka record as a decoder needs it.
type Record struct {
	Topic string // <prefix>.<schema>.<table>: names the table of a tombstone, and of an unwrapped row
	Key   []byte // nil for null
	Value []byte // nil for null: a tombstone

	Headers []Header // may name the schemas of key and value; nil where the source has no schemas

	schemas [2]*schema // of the parts that were Avro and stand as JSON now
}

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// part is the key or the value of a record.
type part uint8

const (
	inKey part = iota
	inValue
)

func (p part) String() string { return [...]string{"key", "value"}[p] }

func (r *Record) of(p part) *[]byte {
	if p == inKey {
		return &r.Key
	}
	return &r.Value
}

// DecodeError is a record that cannot be decoded: the record's own fault.
type DecodeError struct {
	Topic  string
	Table  cdc.TableID // as far as it was read
	Column string
	Err    error
}

func (e *DecodeError) Error() string {
	s := "decoding a record"
	if e.Topic != "" {
		s += " of topic " + e.Topic
	}
	if e.Table.Table != "" {
		s += ", table " + e.Table.String()
	}
	if e.Column != "" {
		s += ", column " + e.Column
	}
	return fmt.Sprintf("%s: %v", s, e.Err)
}

func (e *DecodeError) Unwrap() error { return e.Err }

// Retryable reports whether the same record may be decoded later: its schema could not be fetched.
func (e *DecodeError) Retryable() bool {
	var r interface{ Retryable() bool }
	return errors.As(e.Err, &r) && r.Retryable()
}
