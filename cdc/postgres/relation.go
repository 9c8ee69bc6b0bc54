package postgres

import (
	"context"
	"log/slog"
	"slices"

	"invalidator/cdc"
)

// relation is one layout of a table, as a relation message and the catalogue describe it.
type relation struct {
	table    cdc.TableID
	included bool // the rest is empty where not

	columns  *cdc.Columns
	keyNames []string
	kinds    []cdc.Kind
	identity []bool // columns of the replica identity; Column.Key differs under FULL
}

// description is what a relation message leaves out.
type description struct {
	types []string // as format_type writes them
	bases []uint32 // for a domain the type beneath it
	keys  []string // names of the primary key's columns
}

// describer asks the catalogue about a relation.
type describer func(ctx context.Context, m relationMessage) (description, error)

// relations holds what the stream has said about tables so far.
type relations struct {
	database string
	include  *cdc.Include
	describe describer
	log      *slog.Logger
	byID     map[uint32]*relation
	byName   map[cdc.TableID]uint32 // of included tables
}

func newRelations(database string, include *cdc.Include, describe describer, log *slog.Logger) relations {
	return relations{database, include, describe, log, map[uint32]*relation{}, map[cdc.TableID]uint32{}}
}

// put takes a relation message in. cdc.Columns stay the same pointer while the layout stays the same: the server repeats
// the message after every change of its cache.
//
// It returns the names behind which another relation stands by now, or none: a table was renamed, or dropped and made anew. Its
// error is a catalogue that cannot be asked: without the primary key a row's changes would lie in any partition, and a change of
// the key would not be seen as one.
func (r *relations) put(ctx context.Context, m relationMessage) (gone []cdc.TableID, err error) {
	rel := &relation{table: cdc.TableID{Database: r.database, Schema: m.schema, Table: m.table}}
	before := r.byID[m.id]
	r.byID[m.id] = rel
	if before != nil && before.included && before.table != rel.table {
		gone = append(gone, before.table)
		if r.byName[before.table] == m.id {
			delete(r.byName, before.table)
		}
	}
	if rel.included = r.include.Match(m.schema, m.table); !rel.included {
		return gone, nil
	}
	if id, ok := r.byName[rel.table]; ok && id != m.id {
		gone = append(gone, rel.table)
	}
	r.byName[rel.table] = m.id
	return gone, r.describeInto(ctx, rel, before, m)
}

// describeInto fills in the layout of an included table.
func (r *relations) describeInto(ctx context.Context, rel, before *relation, m relationMessage) error {
	d, err := r.describe(ctx, m)
	if err != nil {
		return during("describing table "+rel.table.String(), err)
	}
	if len(d.types) != len(m.columns) || len(d.bases) != len(m.columns) {
		r.log.Warn("the catalogue does not describe a table: its column types are left open", "table", rel.table.String())
		d.types, d.bases = make([]string, len(m.columns)), make([]uint32, len(m.columns))
	}
	list := make([]cdc.Column, len(m.columns))
	for i, c := range m.columns {
		key := c.identity
		if m.identity == 'f' { // flags every column; a record key of the whole row would tear a row's changes apart
			key = slices.Contains(d.keys, c.name)
		}
		list[i] = cdc.Column{Name: c.name, Type: d.types[i], Key: key}
		oid := c.oid
		if d.bases[i] != 0 {
			oid = d.bases[i]
		}
		rel.kinds = append(rel.kinds, kindOf(oid))
		rel.identity = append(rel.identity, c.identity)
		if key {
			rel.keyNames = append(rel.keyNames, c.name)
		}
	}
	rel.columns = cdc.NewColumns(list)
	if before == nil || !before.included || before.table != rel.table {
		return nil
	}
	if slices.Equal(before.columns.List, list) {
		rel.columns = before.columns
		return nil
	}
	for _, c := range before.columns.List {
		if rel.columns.Index(c.Name) < 0 {
			r.log.Warn("a column is gone: templates that name it find nothing", "table", rel.table.String(), "column", c.Name)
		}
	}
	return nil
}
