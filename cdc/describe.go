package cdc

import "context"

// Describer tells, from the catalogue as it is now, what a source's log will say of its tables. Every Feeder of this
// module is one.
type Describer interface {
	// Describe lists the tables that include chooses, whether the source includes them or not. It changes nothing there. The
	// error is for a source that could not be asked.
	Describe(ctx context.Context, include *Include) ([]TableInfo, error)
}

// Lack is something that the log will not say, and the statement or setting that mends it. The zero Lack lacks nothing.
type Lack struct{ What, Hint string }

// TableInfo is a table and what the log lacks of it.
type TableInfo struct {
	TableID
	Columns []ColumnInfo
	Unsent  Lack   // why no change of the table is seen under its name
	Partial []Lack // changes of some rows that are not seen
}

// ColumnInfo is a column and what the log lacks of it.
type ColumnInfo struct {
	Column
	Unsent    Lack // why its value is never known
	OldUnsent Lack // why the value before an update is not known
}

// Column finds a column by name; nil where there is none.
func (t *TableInfo) Column(name string) *ColumnInfo {
	for i := range t.Columns {
		if t.Columns[i].Name == name {
			return &t.Columns[i]
		}
	}
	return nil
}
