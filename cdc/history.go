package cdc

import "context"

// Layout is a table as it is from a place in a source's log on, up to the next Layout of that table. It is JSON on the state topic.
type Layout struct {
	From Position `json:"from"`
	// Columns in their order, without hidden ones. None: from there on it is not known, and nothing older holds.
	Columns []LayoutColumn `json:"columns,omitempty"`
	Key     []string       `json:"key,omitempty"` // the primary key's columns, in its order
}

// LayoutColumn is a column as a catalogue describes it.
type LayoutColumn struct {
	Name      string `json:"name"`
	Type      string `json:"type"`              // the data type's word: varchar
	Full      string `json:"full"`              // as the database writes it: varchar(20), with signs and labels
	Charset   string `json:"charset,omitempty"` // empty for none and for bytes
	Octets    int    `json:"octets"`            // longest value in bytes, of types that have one; -1: none
	Precision int    `json:"precision"`         // of decimals; -1: none
	Scale     int    `json:"scale"`
}

// Historian is a Feeder whose log may speak of tables without describing them. What it learns of layouts it keeps in a History, so
// that rows are read by the layout that they were logged under, also by a later process.
type Historian interface {
	// Remember is called before each Run. known are the layouts of each table in the order of the log, as they were kept up to
	// the position that Run gets: every change of a table before that is in them. h takes what follows, until the next call.
	Remember(known map[TableID][]Layout, h History)
}

// History keeps layouts durably. Its calls come from Run's goroutine, or Restart's, and may block. What is kept belongs to the position that is
// saved later: a change of a table is kept before a position behind it is told.
type History interface {
	// Replace makes these all that is kept. A Run calls it before it tells a position, and Restart with none, since nobody saw what
	// happened to tables in a gap.
	Replace(ctx context.Context, all map[TableID][]Layout) error
	// Put replaces what is kept of some tables.
	Put(ctx context.Context, some map[TableID][]Layout) error
}
