package demo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"invalidator/cdc"
)

// write is one statement: what a person sees as SQL, and what the generator does to its rows.
type write struct {
	op       cdc.Op // Insert, Update or Delete
	table    *table
	rows     []row    // Insert
	from, to uint64   // Update, Delete: the rows with these ids, both included
	set      []assign // Update
}

type assign struct{ column, value string }

func insert(t *table, rows ...row) write { return write{op: cdc.Insert, table: t, rows: rows} }

func update(t *table, from, to uint64, column, value string) write {
	return write{op: cdc.Update, table: t, from: from, to: to, set: []assign{{column, value}}}
}

func remove(t *table, from, to uint64) write {
	return write{op: cdc.Delete, table: t, from: from, to: to}
}

// sql is the statement's text, the same for all databases.
func (w write) sql() string {
	switch w.op {
	case cdc.Insert:
		names := make([]string, len(w.table.columns))
		for i, c := range w.table.columns {
			names[i] = c.name
		}
		rows := make([]string, len(w.rows))
		for i, r := range w.rows {
			values := make([]string, len(r))
			for j, v := range r {
				values[j] = w.table.columns[j].literal(v)
			}
			rows[i] = "(" + strings.Join(values, ", ") + ")"
		}
		return fmt.Sprintf("INSERT INTO %s (%s) VALUES %s", w.table.name, strings.Join(names, ", "), strings.Join(rows, ", "))
	case cdc.Update:
		sets := make([]string, len(w.set))
		for i, a := range w.set {
			sets[i] = a.column + " = " + w.table.columns[w.table.column(a.column)].literal(a.value)
		}
		return fmt.Sprintf("UPDATE %s SET %s WHERE %s", w.table.name, strings.Join(sets, ", "), w.where())
	}
	return fmt.Sprintf("DELETE FROM %s WHERE %s", w.table.name, w.where())
}

func (w write) where() string {
	if w.from == w.to {
		return fmt.Sprintf("id = %d", w.from)
	}
	return fmt.Sprintf("id BETWEEN %d AND %d", w.from, w.to)
}

func (c column) literal(v string) string {
	if c.kind != cdc.Text {
		return v
	}
	return "'" + strings.ReplaceAll(v, "'", "''") + "'"
}

// change is a row before and after a write; nil where there is none.
type change struct {
	table         *table
	before, after row
}

// changes is what the write does to a table that holds rows.
func (w write) changes(rows []row) []change {
	var out []change
	if w.op == cdc.Insert {
		for _, r := range w.rows {
			out = append(out, change{w.table, nil, r})
		}
		return out
	}
	for _, r := range rows {
		if id := r.id(); id < w.from || id > w.to {
			continue
		}
		c := change{w.table, r, nil}
		if w.op == cdc.Update {
			c.after = slices.Clone(r)
			for _, a := range w.set {
				c.after[w.table.column(a.column)] = a.value
			}
		}
		out = append(out, c)
	}
	return out
}

// records is how many records the change topics get: a changed primary key gives two.
func (c change) records() int {
	if c.before != nil && c.after != nil && c.before[0] != c.after[0] {
		return 2
	}
	return 1
}

// keys are those that readers may hold of either image.
func (c change) keys() []string {
	var out []string
	for _, r := range []row{c.before, c.after} {
		if r == nil {
			continue
		}
		for _, k := range c.table.keys {
			if key := k.of(r); !slices.Contains(out, key) {
				out = append(out, key)
			}
		}
	}
	return out
}

// number writes an id as a column's text.
func number(id uint64) string { return strconv.FormatUint(id, 10) }
