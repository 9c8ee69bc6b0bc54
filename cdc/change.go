package cdc

import (
	"slices"
	"time"
)

// Op is the kind of a change, in Debezium's letters.
type Op byte

const (
	Insert   Op = 'c'
	Update   Op = 'u'
	Delete   Op = 'd'
	Truncate Op = 't' // any row of the table may be gone, or another; no images
	Message  Op = 'm' // a logical message of the writer; no table, no images
	Read     Op = 'r' // a row of a snapshot: not a change
	Tomb     Op = 'x' // a tombstone: a null value, of which only Key is known
	Keys     Op = 'k' // cache keys that somebody sent, and no row
)

func (o Op) String() string { return string(byte(o)) }

// Connector names the kind of server a change came from, in Debezium's words. It decides how some values are shown:
// TYPES.md.
type Connector string

const (
	MySQL    Connector = "mysql"
	MariaDB  Connector = "mariadb"
	Postgres Connector = "postgresql"
)

// TableID names a table. MySQL and MariaDB have no schemas: Schema is the database there, and Database is empty.
type TableID struct {
	Database, Schema, Table string
}

func (t TableID) String() string { return t.Schema + "." + t.Table }

// Column is one column as the log, or else the database's catalogue, describes it.
type Column struct {
	Name string
	Type string // as the database writes it, lower case: "bigint unsigned", "numeric(12,4)"; empty where unknown
	Key  bool   // part of the primary key, or of the replica identity
}

// Columns is an immutable, shared list of columns. A Row is parallel to it. The list is one version of one table: a DDL
// makes a new one, so that pointer equality means "the same layout".
type Columns struct {
	List  []Column
	index map[string]int
}

// NewColumns indexes list, which the caller must not change afterwards.
func NewColumns(list []Column) *Columns {
	c := &Columns{List: list, index: make(map[string]int, len(list))}
	for i := range list {
		c.index[list[i].Name] = i
	}
	return c
}

// Index returns the place of a column, or -1. Names are compared exactly.
func (c *Columns) Index(name string) int {
	if i, ok := c.index[name]; ok {
		return i
	}
	return -1
}

// Row is one image of a row, parallel to Columns.List. A nil Row means that the log gave no image at all.
type Row []Value

// RowChange is one row change of a committed transaction, or one record that stands for something else (Op).
//
// A decoder for a worker fills only the columns it was asked for; a feeder fills all. A feeder, and whoever decodes into memory
// of the caller's (envelope.Decoder.DecodeInto), uses a change and its rows again; Columns is shared and must not be written.
type RowChange struct {
	Source    string    // the configured source's name (Debezium: source.name)
	Connector Connector // empty where the envelope does not say
	TableID
	Op            Op
	Columns       *Columns
	KeyColumns    []string // names of the record key's columns; nil where unknown
	Before, After Row
	Slim          bool      // the row was over the size limit: only key and mapped columns were written
	CommitTime    time.Time // UTC, microseconds where the source has them; zero where unknown
	Position      Position  // the start of the transaction for a feeder's change; informative after decoding
	Tx            string    // transaction id: GTID, or xid; empty where unknown
	Ordinal       int64     // place in its transaction, from 0
	Prefix        string    // Op Message: the message's prefix
	Content       []byte    // Op Message: the message's bytes

	// Op Keys: what is to be deleted, as clients name it. Ordinal is the last one's place among all that was sent at once.
	Keys []string

	// Op Truncate: what the same statement emptied besides, where one record tells of several tables. Here and in TableID an
	// empty Table is every table of Schema.
	Also []TableID
}

// Clone is a change with rows of its own, for who keeps it. What its texts are views of is not copied.
func (c *RowChange) Clone() *RowChange {
	own := *c
	own.Before, own.After = slices.Clone(c.Before), slices.Clone(c.After)
	return &own
}

// Emptied are the tables of a Truncate as people read them: shop.users, and shop.* for every table of shop.
func (c *RowChange) Emptied() (names []string) {
	for _, id := range append([]TableID{c.TableID}, c.Also...) {
		if id.Table == "" {
			id.Table = "*"
		}
		names = append(names, id.String())
	}
	return names
}
