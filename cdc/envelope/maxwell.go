package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"invalidator/cdc"
)

// maxwellKey stands before the name of each key column in Maxwell's record key: {"database":"shop","table":"users","pk.id":1}.
// The names are in lower case there, whatever the column is called.
var maxwellKey = []byte("pk.")

// whyMaybeNull is the doubt about an old value that a record does not name: Maxwell told to leave out nulls
// (output_nulls=false) names neither what did not change nor what was NULL.
const whyMaybeNull = "it did not change, or it was NULL before"

// maxwellRecord are the members of a record of Maxwell's that are read.
type maxwellRecord struct{ at [mxMembers][]byte }

const (
	mxDatabase = iota
	mxTable
	mxType
	mxTS
	mxXID
	mxXOffset
	mxPosition
	mxGTID
	mxData
	mxOld
	mxEncrypted
	mxSQL
	mxMembers
)

func maxwellPlace(name []byte) int {
	switch string(name) {
	case "database":
		return mxDatabase
	case "table":
		return mxTable
	case "type":
		return mxType
	case "ts":
		return mxTS
	case "xid":
		return mxXID
	case "xoffset":
		return mxXOffset
	case "position":
		return mxPosition
	case "gtid":
		return mxGTID
	case "data":
		return mxData
	case "old":
		return mxOld
	case "encrypted":
		return mxEncrypted
	case "sql":
		return mxSQL
	}
	return nowhere
}

func (m *maxwellRecord) parse(raw []byte, h *hints) error {
	in := members{s: scanner{b: raw}}
	for {
		name, place, ok, err := in.hinted(h)
		if err != nil || !ok {
			return err
		}
		if place == unseen {
			place = maxwellPlace(name)
			in.learn(h, name, place)
		}
		value, err := in.s.raw()
		if err == nil && place >= 0 {
			err = put(&m.at[place], name, value)
		}
		if err != nil {
			return err
		}
	}
}

// operation is the op, or the word for why the record is no row change.
func (m *maxwellRecord) operation(t *texts) (op cdc.Op, ignored string, err error) {
	switch typ := t.of(m.at[mxType]); typ {
	case "insert":
		return cdc.Insert, "", nil
	case "update":
		return cdc.Update, "", nil
	case "delete":
		return cdc.Delete, "", nil
	case "bootstrap-insert":
		return cdc.Read, "", nil
	case "bootstrap-start", "bootstrap-complete":
		return 0, IgnoredSnapshot, nil
	case "table-create", "table-alter", "table-drop", "table-truncate", "database-create", "database-alter", "database-drop":
		return 0, IgnoredDDL, nil
	default:
		return 0, "", fmt.Errorf("type %.40q is not known to come from Maxwell", typ)
	}
}

// maxwell reads one record of Maxwell's.
func (r *reading) maxwell() (*cdc.RowChange, string, error) {
	rec := &r.rec
	if rec.Value == nil || string(rec.Value) == "null" {
		return r.maxwellTombstone()
	}
	if err := checkText(rec.Value); err != nil {
		return nil, "", err
	}
	var m maxwellRecord
	if err := m.parse(rec.Value, &r.s.hints.maxwell); err != nil {
		return nil, "", err
	}
	op, ignored, err := m.operation(&r.s.texts)
	if ignored == IgnoredDDL {
		return r.maxwellSchemaChange(&m)
	}
	if ignored != "" || err != nil {
		return nil, ignored, err
	}
	r.table = r.d.maxwellTable(m.at[mxDatabase], m.at[mxTable])
	r.at.table = r.table.id
	if op, ignored = r.wanted(op); ignored != "" {
		return nil, ignored, nil
	}
	if m.at[mxEncrypted] != nil || isNull(m.at[mxData]) {
		return nil, "", errors.New("no data (an encrypted record cannot be read: turn off Maxwell's encrypt)")
	}
	c := r.newMaxwellChange(op, &m)
	if ts := intOf(m.at[mxTS]); ts > 0 {
		c.CommitTime = time.Unix(ts, 0).UTC()
	}
	if err := r.maxwellImages(c, &m); err != nil {
		return nil, "", err
	}
	return c, "", nil
}

func (r *reading) newMaxwellChange(op cdc.Op, m *maxwellRecord) *cdc.RowChange {
	c := &r.s.change
	*c = cdc.RowChange{
		Source: r.table.source, Connector: cdc.MySQL, TableID: r.table.id, Op: op, Columns: r.cols, KeyColumns: r.key,
		Tx: r.s.texts.of(m.at[mxXID]), Ordinal: intOf(m.at[mxXOffset]), Position: m.cursor(&r.s.texts),
	}
	return c
}

// cursor is the position, which Maxwell writes where it is told to.
func (m *maxwellRecord) cursor(t *texts) cdc.Position {
	p := cdc.Position{GTIDSet: t.of(m.at[mxGTID])}
	if file, pos, ok := strings.Cut(t.of(m.at[mxPosition]), ":"); ok {
		if n, err := strconv.ParseUint(pos, 10, 64); err == nil {
			p.File, p.Pos = file, n
		}
	}
	return p
}

func (d *Decoder) maxwellTable(database, name []byte) *table {
	var buf [160]byte
	key := append(append(append(buf[:0], database...), ','), name...)
	if t, ok := d.tables.get(key); ok {
		return t
	}
	t := &table{source: d.conf.Source, connector: cdc.MySQL, id: cdc.TableID{Schema: textOf(database), Table: textOf(name)}}
	return d.tables.put(bytes.Clone(key), t)
}

// maxwellImages decodes data and old. A column that is in neither is NULL, unless the record shows a null: then Maxwell writes
// them, and the column was not sent. The old row is data overlaid with old, which has the changed columns alone.
func (r *reading) maxwellImages(c *cdc.RowChange, m *maxwellRecord) error {
	row := r.s.row(rowAfter, len(r.cols.List))
	nulls, err := r.overlay(rowAfter, row, m.at[mxData])
	if err != nil || c.Op != cdc.Update {
		fillNulls(row, nulls)
		if c.After = row; c.Op == cdc.Delete {
			c.Before, c.After = row, nil
		}
		return err
	}
	old := r.s.row(rowOld, len(row))
	if !isNull(m.at[mxOld]) {
		oldNulls, err := r.overlay(rowBefore, old, m.at[mxOld])
		if err != nil {
			return err
		}
		nulls = nulls || oldNulls
	}
	c.After, c.Before = row, r.s.row(rowBefore, len(row))
	copy(c.Before, row)
	for i, v := range old {
		switch {
		case v.Kind != cdc.Absent:
			c.Before[i] = v
		case !nulls && row[i].Known():
			c.Before[i].Why = whyMaybeNull
		}
	}
	fillNulls(c.Before, nulls)
	fillNulls(c.After, nulls)
	return nil
}

func fillNulls(row cdc.Row, written bool) {
	for i := range row {
		if !written && row[i].Kind == cdc.Absent {
			row[i].Kind = cdc.Null
		}
	}
}

var maxwellRows = [...]string{rowBefore: "old", rowAfter: "data"}

// overlay puts the wanted columns of an object into row, and reports whether any column, wanted or not, is null.
func (r *reading) overlay(which int, row cdc.Row, raw []byte) (nulls bool, err error) {
	forms := r.forms()
	in := r.readImage(which, raw)
	for {
		_, i, value, ok, err := in.next()
		if err != nil {
			return nulls, fmt.Errorf("reading %s: %w", maxwellRows[which], err)
		}
		if !ok {
			return nulls, nil
		}
		nulls = nulls || value[0] == 'n'
		if i < 0 {
			continue
		}
		if row[i].Kind != cdc.Absent {
			r.at.column = r.cols.List[i].Name
			return nulls, fmt.Errorf("reading %s: the field stands twice", maxwellRows[which])
		}
		row[i] = forms[i].value(&r.s.texts, value)
	}
}

// maxwellTombstone reads a record without a value, whose key names table and row.
func (r *reading) maxwellTombstone() (*cdc.RowChange, string, error) {
	rec := &r.rec
	if rec.Key == nil || string(rec.Key) == "null" {
		return nil, IgnoredEmpty, nil
	}
	if err := checkText(rec.Key); err != nil {
		return nil, "", err
	}
	var m maxwellRecord
	if err := m.parse(rec.Key, &r.s.hints.key); err != nil {
		return nil, "", fmt.Errorf("reading the key: %w", err)
	}
	if isNull(m.at[mxDatabase]) || isNull(m.at[mxTable]) {
		return nil, "", errors.New("a tombstone, whose key does not name database and table (set Maxwell's kafka_key_format to hash)")
	}
	r.table = r.d.maxwellTable(m.at[mxDatabase], m.at[mxTable])
	r.at.table = r.table.id
	if _, ignored := r.wanted(cdc.Tomb); ignored != "" {
		return nil, ignored, nil
	}
	row := r.s.row(rowBefore, len(r.cols.List))
	forms := r.forms()
	in := members{s: scanner{b: rec.Key}}
	for {
		name, value, ok, err := in.next()
		if err != nil {
			return nil, "", fmt.Errorf("reading the key: %w", err)
		}
		if !ok {
			break
		}
		if name, ok = bytes.CutPrefix(name, maxwellKey); !ok {
			continue
		}
		for i, col := range r.cols.List {
			if strings.EqualFold(col.Name, string(name)) {
				row[i] = forms[i].value(&r.s.texts, value)
			}
		}
	}
	r.s.change = cdc.RowChange{
		Source: r.table.source, Connector: cdc.MySQL, TableID: r.table.id, Op: cdc.Tomb, Columns: r.cols, KeyColumns: r.key, Before: row,
	}
	return &r.s.change, "", nil
}
