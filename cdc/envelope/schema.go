package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	"invalidator/cdc"
)

// schema is what a record says about its columns. Kafka Connect's JsonConverter wraps each record in it: {"schema": …,
// "payload": …}; it is several times the payload's size and the same from record to record, so the last one of a topic is
// kept and compared as bytes. That of an Avro record comes from its registry.
type schema struct {
	raw  []byte
	row  map[string]*field // the columns of before and after, or of a key
	plan lastPlan

	names []string // of an Avro record's fields; nil of anything else
}

type lastSchema struct{ atomic.Pointer[schema] }

// field is one field of a schema: what the envelope says about a column.
type field struct {
	wire     string // int8 … int64, float, double, boolean, string, bytes, struct, array, map
	semantic string // io.debezium.time.Date and the like; empty for a plain type
	scale    int    // of a Decimal; unknown where not given
	length   int    // of Bits; unknown where not given
	colType  string // __debezium.source.column.type, with its length and scale: "DECIMAL(10,2)"
	fallback []byte // what stands for a value that was not sent: the default of a column that may not be null
	items    *field // of an array
	fields   map[string]*field
}

// unknown stands for a length, scale or count of digits that nothing says.
const unknown = -1

var (
	schemaOpen  = []byte(`{"schema":`)
	payloadOpen = []byte(`,"payload":`)
)

// unwrap returns the payload of a record's key or value, and the schema that wraps it; nil where none does.
func (d *Decoder) unwrap(rec *Record, p part) (payload []byte, _ *schema, err error) {
	raw := *rec.of(p)
	if s := rec.schemas[p]; s != nil {
		return raw, s, nil
	}
	if !mayBeWrapped(raw) {
		return raw, nil, checkText(raw)
	}
	var buf [160]byte
	key := append(append(append(buf[:0], p.String()...), ' '), rec.Topic...)
	last, seen := d.schemas.get(key)
	if rest, ok := bytes.CutPrefix(raw, schemaOpen); ok && seen {
		s := last.Load()
		if rest, ok = bytes.CutPrefix(rest, s.raw); ok {
			if payload, ok = payloadOf(rest); ok {
				return payload, s, nil
			}
		}
	}
	if err := checkText(raw); err != nil {
		return nil, nil, err
	}
	var w wrapper
	if err := parseMembers(raw, w.place); err != nil {
		return nil, nil, err
	}
	if w.schema == nil || w.payload == nil || w.op != nil {
		return raw, nil, nil
	}
	if string(w.schema) == "null" {
		return w.payload, nil, nil
	}
	s, err := parseSchema(bytes.Clone(w.schema))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the schema: %w", err)
	}
	if !seen {
		last = d.schemas.put(bytes.Clone(key), new(lastSchema))
	}
	last.Store(s)
	return w.payload, s, nil
}

// mayBeWrapped looks at the first member's name alone.
func mayBeWrapped(raw []byte) bool {
	s := scanner{b: raw}
	if !s.take('{') {
		return false
	}
	s.space()
	return bytes.HasPrefix(raw[s.i:], []byte(`"schema"`)) || bytes.HasPrefix(raw[s.i:], []byte(`"payload"`))
}

// payloadOf reads the rest of a record behind a schema that is known. ok is false where it is not what JsonConverter writes.
func payloadOf(rest []byte) (payload []byte, ok bool) {
	rest, ok = bytes.CutPrefix(rest, payloadOpen)
	if !ok || checkText(rest) != nil {
		return nil, false
	}
	sc := scanner{b: rest}
	payload, err := sc.raw()
	return payload, err == nil && sc.take('}') && sc.end() == nil
}

// wrapper is the outermost object of a record.
type wrapper struct{ schema, payload, op []byte }

func (w *wrapper) place(name []byte) *[]byte {
	switch string(name) {
	case "schema":
		return &w.schema
	case "payload":
		return &w.payload
	case "op":
		return &w.op
	}
	return nil
}

func parseSchema(raw []byte) (*schema, error) {
	top, err := parseField(raw)
	if err != nil {
		return nil, err
	}
	s := newSchema(top)
	s.raw = raw
	return s, nil
}

// newSchema finds the columns: those of an image, or of a key or flat row itself.
func newSchema(top *field) *schema {
	s := &schema{row: top.fields}
	for _, image := range [...]string{"after", "before"} {
		if f := top.fields[image]; f != nil && f.fields != nil {
			s.row = f.fields
			break
		}
	}
	return s
}

// schemaField are a field's members as they stand.
type schemaField struct {
	typ, fields, name, params, def, items, optional, field []byte
}

func (f *schemaField) place(name []byte) *[]byte {
	switch string(name) {
	case "type":
		return &f.typ
	case "fields":
		return &f.fields
	case "name":
		return &f.name
	case "parameters":
		return &f.params
	case "default":
		return &f.def
	case "items":
		return &f.items
	case "optional":
		return &f.optional
	case "field":
		return &f.field
	}
	return nil
}

func parseField(raw []byte) (*field, error) {
	f, _, err := parseNamedField(raw)
	return f, err
}

func parseNamedField(raw []byte) (_ *field, name string, err error) {
	var at schemaField
	if err := parseMembers(raw, at.place); err != nil {
		return nil, "", err
	}
	f := &field{wire: textOf(at.typ), semantic: textOf(at.name), scale: unknown, length: unknown}
	if string(at.optional) != "true" {
		f.fallback = at.def
	}
	if err := f.parameters(at.params); err != nil {
		return nil, "", err
	}
	if at.items != nil {
		if f.items, err = parseField(at.items); err != nil {
			return nil, "", err
		}
	}
	if at.fields != nil {
		f.fields = map[string]*field{}
		err = elements(at.fields, func(raw []byte) error {
			sub, name, err := parseNamedField(raw)
			f.fields[name] = sub
			return err
		})
	}
	return f, textOf(at.field), err
}

func (f *field) parameters(raw []byte) error {
	if isNull(raw) {
		return nil
	}
	texts := map[string]string{}
	m := members{s: scanner{b: raw}}
	for {
		name, value, ok, err := m.next()
		if err != nil {
			return err
		}
		if !ok {
			f.setParameters(func(name string) string { return texts[name] })
			return nil
		}
		texts[string(name)] = textOf(value)
	}
}

// setParameters takes a field's parameters, among them those that Debezium adds when told to
// (column.propagate.source.type). of gives one by its name, empty where it is not there.
func (f *field) setParameters(of func(name string) string) {
	if scale := of("scale"); scale != "" {
		f.scale = smallInt(scale)
	}
	if length := of("length"); length != "" {
		f.length = smallInt(length)
	}
	f.colType = of("__debezium.source.column.type")
	length, scale := of("__debezium.source.column.length"), of("__debezium.source.column.scale")
	if f.colType != "" && length != "" {
		if scale != "" {
			length += "," + scale
		}
		f.colType += "(" + length + ")"
	}
}

// smallInt is a count as a parameter writes it; unknown for anything that is none.
func smallInt(s string) int {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return unknown
	}
	return int(n)
}

// elements calls do with each element of an array.
func elements(raw []byte, do func(raw []byte) error) error {
	s := scanner{b: raw}
	if !s.take('[') {
		return errors.New("not a JSON array")
	}
	if s.take(']') {
		return nil
	}
	for {
		el, err := s.raw()
		if err == nil {
			err = do(el)
		}
		if err != nil {
			return err
		}
		if !s.take(',') {
			return nil
		}
	}
}

// plan says how the wanted columns of a record are read: compiled once for a table's columns and a schema.
type plan struct {
	cols  *cdc.Columns
	conn  cdc.Connector
	forms []form
}

type lastPlan struct{ atomic.Pointer[plan] }

// forms returns how each wanted column is written in this record.
func (r *reading) forms() []form {
	if r.schema == nil {
		return r.d.formsOf(&r.table.plan, r.cols, r.table.connector, nil)
	}
	return r.d.formsOf(&r.schema.plan, r.cols, r.table.connector, r.schema)
}

// formsOf is the compiled plan, made anew where columns or connector are others. last belongs to one schema, or to none.
func (d *Decoder) formsOf(last *lastPlan, cols *cdc.Columns, conn cdc.Connector, s *schema) []form {
	if p := last.Load(); p != nil && p.cols == cols && p.conn == conn {
		return p.forms
	}
	p := &plan{cols: cols, conn: conn, forms: make([]form, len(cols.List))}
	speech := dialect{maxwell: d.conf.Format == Maxwell, hex: d.conf.Binary == Hex}
	for i, col := range cols.List {
		var f *field
		if s != nil {
			f = s.row[col.Name]
		}
		p.forms[i] = speech.compile(conn, col.Type, f)
	}
	last.Store(p)
	return p.forms
}
