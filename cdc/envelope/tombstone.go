package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"invalidator/cdc"
)

const noTable = "topic does not name a table as <prefix>.<schema>.<table> (say it with topics.table, or with named groups in topics.pattern)"

// tombstone reads a record without a value: the row that its key names is gone.
func (r *reading) tombstone() (*cdc.RowChange, string, error) {
	d, rec := r.d, &r.rec
	if rec.Key == nil || string(rec.Key) == "null" {
		return nil, IgnoredEmpty, nil
	}
	id, ok := d.conf.Table(rec.Topic)
	if !ok {
		return nil, "", errors.New("a tombstone, whose " + noTable)
	}
	r.at.table = id
	source := ""
	if d.conf.Format == Unwrapped {
		source = d.conf.Source
	}
	if r.cols = d.conf.Select(source, id); r.cols == nil {
		return nil, IgnoredUnmapped, nil
	}
	row, err := r.keyRow(d.conf.Connector)
	if err != nil {
		return nil, "", err
	}
	r.s.names = fieldNames(d, rec, r.s.names, &r.s.hints.table(r.cols).names)
	r.s.change = cdc.RowChange{
		Source: source, Connector: d.conf.Connector, TableID: id, Op: cdc.Tomb, Columns: r.cols, KeyColumns: r.s.names, Before: row,
	}
	return &r.s.change, "", nil
}

// keyNames are the names of the record key's fields, kept from record to record.
func (r *reading) keyNames() []string {
	var last []string
	if p := r.table.key.Load(); p != nil {
		last = *p
	}
	names := fieldNames(r.d, &r.rec, last, &r.s.hints.table(r.cols).names)
	if len(names) > 0 && (len(last) == 0 || &names[0] != &last[0]) {
		kept := names
		r.table.key.Store(&kept)
	}
	return names
}

// fieldNames reads the names of a key's fields: last itself where they are those; nil where the key is none of fields.
func fieldNames(d *Decoder, rec *Record, last []string, h *hints) []string {
	if isNull(rec.Key) {
		return nil
	}
	if s := rec.schemas[inKey]; s != nil && s.names != nil && d.conf.Format != Maxwell {
		return s.names
	}
	payload, _, err := d.unwrap(rec, inKey)
	if err != nil {
		return nil
	}
	var names []string
	n, same := 0, true
	m := members{s: scanner{b: payload}}
	for {
		name, place, ok, err := m.hinted(h)
		if ok && place == unseen {
			m.learn(h, name, nowhere)
		}
		if ok {
			_, err = m.s.raw()
		}
		if ok && err == nil && d.conf.Format == Maxwell {
			if name, ok = bytes.CutPrefix(name, maxwellKey); !ok {
				continue
			}
		}
		switch {
		case err != nil:
			return nil
		case !ok && same && n == len(last):
			return last
		case !ok && same:
			return last[:n:n]
		case !ok:
			return names
		}
		if same && (n == len(last) || last[n] != string(name)) {
			names, same = append(names, last[:n]...), false
		}
		if n++; !same {
			names = append(names, string(name))
		}
	}
}

// tableOfTopic takes a topic's last two parts; the prefix may hold dots itself.
func tableOfTopic(topic string) (cdc.TableID, bool) {
	rest, table, ok := cutLast(topic)
	if !ok {
		return cdc.TableID{}, false
	}
	_, schema, ok := cutLast(rest)
	return cdc.TableID{Schema: schema, Table: table}, ok && schema != "" && table != ""
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+1:], true
}

// keyRow is the row as far as the record's key knows it.
func (r *reading) keyRow(conn cdc.Connector) (cdc.Row, error) {
	cols := r.cols
	payload, schema, err := r.d.unwrap(&r.rec, inKey)
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	plan := &r.d.keyPlan
	if schema != nil {
		plan = &schema.plan
	}
	forms := r.d.formsOf(plan, cols, conn, schema)
	row := r.s.row(rowBefore, len(cols.List))
	m := members{s: scanner{b: payload}}
	for {
		name, value, ok, err := m.next()
		if err != nil {
			return nil, fmt.Errorf("reading the key: %w", err)
		}
		if !ok {
			return row, nil
		}
		i := cols.Index(string(name))
		if i < 0 {
			continue
		}
		if row[i].Kind != cdc.Absent {
			r.at.column = cols.List[i].Name
			return nil, errors.New("reading the key: the field stands twice")
		}
		row[i] = forms[i].value(&r.s.texts, value)
	}
}
