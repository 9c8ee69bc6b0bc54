package envelope

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"invalidator/cdc"
)

// Config says what a Decoder reads.
type Config struct {
	Format    Format // what the topics carry; empty: Auto
	Select    Select // nil: no table is wanted
	Snapshots bool   // decode rows of a snapshot as Op Read; false: ignore them
	Binary    Binary // how Debezium writes bytes as text; empty: Base64

	// What the records themselves may not say: the source's name (Maxwell, unwrapped rows), its kind of server (unwrapped rows,
	// tombstones; empty: not known), and the table of a topic (unwrapped rows, tombstones; nil: <prefix>.<schema>.<table>).
	Source    string
	Connector cdc.Connector
	Table     func(topic string) (cdc.TableID, bool)

	// Schemas knows the schemas of Avro records; nil: none is read. With it, each key and value that names a schema is Avro and
	// each other is JSON.
	Schemas SchemaSource

	// Unavailable is what Debezium writes for an unchanged TOAST value (its unavailable.value.placeholder); empty: Debezium's
	// own default.
	Unavailable string
}

// Decoder reads records back into changes. It is safe for concurrent use.
type Decoder struct {
	conf        Config
	placeholder placeholder
	tables      cache[*table]
	schemas     cache[*lastSchema] // by topic, and whether of the key
	avro        cache[*avroSchema] // by schema id
	keyPlan     lastPlan           // for keys without a schema
}

// NewDecoder checks the configuration.
func NewDecoder(c Config) (*Decoder, error) {
	switch c.Format {
	case "", Auto, Maxwell, Unwrapped, Keys:
	case Avro:
		if c.Schemas == nil {
			return nil, errors.New("format avro needs a schema registry")
		}
	default:
		return nil, fmt.Errorf("format %q is not known (use %s, %s, %s or %s)", c.Format, Auto, Avro, Maxwell, Unwrapped)
	}
	switch c.Binary {
	case "", Base64, Base64URL, Hex:
	default:
		return nil, fmt.Errorf("binary %q is not known (use %s, %s or %s)", c.Binary, Base64, Base64URL, Hex)
	}
	if c.Select == nil {
		c.Select = func(string, cdc.TableID) *cdc.Columns { return nil }
	}
	if c.Table == nil {
		c.Table = tableOfTopic
	}
	return &Decoder{conf: c, placeholder: newPlaceholder(c.Unavailable)}, nil
}

// Decode reads one record. Exactly one of its results is set: the change, the word for why it is none (Ignored*), or a
// *DecodeError. It keeps no part of the record.
func (d *Decoder) Decode(rec Record) (c *cdc.RowChange, ignored string, err error) {
	return d.DecodeContext(context.Background(), rec)
}

// DecodeContext is Decode with a context for the schema source, the one thing that it may wait for. A DecodeError that is
// Retryable is not the record's fault: it must be tried again, never parked.
func (d *Decoder) DecodeContext(ctx context.Context, rec Record) (c *cdc.RowChange, ignored string, err error) {
	if c, ignored, err = d.DecodeInto(ctx, rec, new(Scratch)); c != nil {
		c = own(c)
	}
	return c, ignored, err
}

// DecodeInto is DecodeContext without a copy: the change lies in s, and its texts in s or in the record itself. It is good until
// s is used again or Reset, and while the record's bytes stay what they are; who keeps any of it must clone it, or use Decode.
// Source, Connector, TableID, Columns and KeyColumns are shared and may be kept.
func (d *Decoder) DecodeInto(ctx context.Context, rec Record, s *Scratch) (c *cdc.RowChange, ignored string, err error) {
	s.Reset()
	r := &s.reading
	r.d, r.s, r.rec = d, s, rec
	if err = r.translate(ctx); err == nil {
		c, ignored, err = r.decode()
	}
	if err != nil {
		return nil, "", &DecodeError{Topic: rec.Topic, Table: r.at.table, Column: r.at.column, Err: err}
	}
	return c, ignored, nil
}

// spot is how far a record was read, for an error.
type spot struct {
	table  cdc.TableID
	column string
}

func (r *reading) decode() (*cdc.RowChange, string, error) {
	switch r.d.conf.Format {
	case Maxwell:
		return r.maxwell()
	case Keys:
		return r.sentKeys()
	}
	if r.rec.Value == nil {
		return r.tombstone()
	}
	if r.direct {
		r.schema = r.rec.schemas[inValue]
		return r.envelope()
	}
	payload, schema, err := r.d.unwrap(&r.rec, inValue)
	if err != nil {
		return nil, "", err
	}
	if string(payload) == "null" {
		return r.tombstone()
	}
	r.schema = schema
	if r.d.conf.Format == Unwrapped {
		return r.flat(payload)
	}
	if err := r.env.parse(payload, &r.src, &r.s.hints); err != nil {
		return nil, "", err
	}
	return r.envelope()
}

// envelope is what an envelope says whose parts have been found.
func (r *reading) envelope() (*cdc.RowChange, string, error) {
	switch word := r.env.noChange(); word {
	case "":
		return r.change()
	case IgnoredDDL:
		return r.schemaChange()
	default:
		return nil, word, nil
	}
}

// reading is one record being decoded.
type reading struct {
	d      *Decoder
	s      *Scratch
	rec    Record
	at     spot
	schema *schema // nil where none wraps the value
	isFlat bool    // the row stands without an envelope
	direct bool    // the envelope is Avro, and its images stand in the Scratch
	env    envelope
	src    source
	table  *table
	cols   *cdc.Columns
	key    []string // names of the record key's fields; nil where it has none that can be read
	also   []cdc.TableID
}

func (r *reading) change() (*cdc.RowChange, string, error) {
	op, err := operationOf(r.env.at[envOp])
	if err != nil {
		return nil, "", err
	}
	if len(r.env.at[envSource]) == 0 || r.env.at[envSource][0] != '{' {
		return nil, "", errors.New("no change record: it has an op and no source")
	}
	r.table = r.d.tableOf(&r.src)
	r.at.table = r.table.id
	if op == cdc.Message {
		c, err := r.message()
		return c, "", err
	}
	op, ignored := r.wanted(op)
	if ignored != "" {
		return nil, ignored, nil
	}
	c := r.newChange(op)
	if err := r.src.marker.parse(r.src.at[srcOurs], c, &r.s.hints.marker); err != nil {
		return nil, "", err
	}
	if op != cdc.Truncate {
		err = r.images(c)
	}
	if err != nil {
		return nil, "", err
	}
	return c, "", nil
}

// wanted says why a row is passed over, if it is: one of a snapshot, or of a table that nobody maps. op becomes Read for a
// snapshot's row. It sets what the row's images need.
func (r *reading) wanted(op cdc.Op) (_ cdc.Op, ignored string) {
	if op == cdc.Read || op == cdc.Insert && r.src.isSnapshot() {
		if op = cdc.Read; !r.d.conf.Snapshots {
			return op, IgnoredSnapshot
		}
	}
	if r.cols = r.d.conf.Select(r.table.source, r.table.id); r.cols == nil {
		return op, IgnoredUnmapped
	}
	r.key = r.keyNames()
	return op, ""
}

// newChange fills what source and transaction say.
func (r *reading) newChange(op cdc.Op) *cdc.RowChange {
	c := &r.s.change
	*c = cdc.RowChange{
		Source: r.table.source, Connector: r.table.connector, TableID: r.table.id, Op: op, Columns: r.cols, KeyColumns: r.key,
		CommitTime: r.src.time(), Position: r.src.position(&r.s.texts), Tx: r.src.tx(&r.s.texts),
	}
	if r.src.at[srcOurs] != nil && c.Tx != "" { // the marker has the ordinal
		return c
	}
	id, order := r.env.transactionIn()
	if c.Tx == "" {
		c.Tx = r.s.texts.of(id)
	}
	if order > 0 {
		c.Ordinal = order - 1
	}
	return c
}

func (r *reading) message() (*cdc.RowChange, error) {
	c := r.newChange(cdc.Message)
	c.Columns = nil
	if err := r.src.marker.parse(r.src.at[srcOurs], c, &r.s.hints.marker); err != nil {
		return nil, err
	}
	m := members{s: scanner{b: r.env.at[envMessage]}}
	for {
		name, value, ok, err := m.next()
		if err != nil {
			return nil, fmt.Errorf("reading message: %w", err)
		}
		if !ok {
			return c, nil
		}
		switch string(name) {
		case "prefix":
			c.Prefix = r.s.texts.of(value)
		case "content":
			if c.Content, err = r.s.texts.base64(value); err != nil {
				return nil, fmt.Errorf("reading message.content: %w", err)
			}
		}
	}
}

// images decodes before and after, and checks that the op's own image is there.
func (r *reading) images(c *cdc.RowChange) error {
	var err error
	if c.Before, err = r.image(rowBefore, r.env.at[envBefore]); err != nil {
		return err
	}
	if c.After, err = r.image(rowAfter, r.env.at[envAfter]); err != nil {
		return err
	}
	if c.Op != cdc.Delete {
		if c.After == nil {
			return fmt.Errorf("op %s without an after image", c.Op)
		}
		return nil
	}
	if c.Before == nil && len(r.rec.Key) > 0 && string(r.rec.Key) != "null" {
		c.Before, err = r.keyRow(r.table.connector)
	}
	if err == nil && c.Before == nil {
		return errors.New("a delete without a before image or key: nothing says which row (a table without replica identity?)")
	}
	return err
}

// image decodes the wanted columns of one image; nil for null.
func (r *reading) image(which int, raw []byte) (cdc.Row, error) {
	if isNull(raw) {
		return nil, nil
	}
	if r.direct {
		return r.avroRow(which)
	}
	if r.src.at[srcOurs] != nil {
		return r.ownImage(which, raw)
	}
	row := r.s.row(which, len(r.cols.List))
	forms := r.forms()
	in := r.readImage(which, raw)
	sent := r.sentCheck(which)
	for {
		name, i, value, ok, err := in.next()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", rowNames[which], err)
		}
		if !ok {
			break
		}
		sent.see(r, name, value)
		if i < 0 {
			continue
		}
		if row[i].Kind != cdc.Absent {
			r.at.column = r.cols.List[i].Name
			return nil, fmt.Errorf("reading %s: the field stands twice", rowNames[which])
		}
		if !r.d.placeholder.is(value) {
			row[i] = forms[i].value(&r.s.texts, value)
		}
	}
	sent.apply(row)
	return row, nil
}

// ownImage decodes an image that our own feeder wrote.
func (r *reading) ownImage(which int, raw []byte) (cdc.Row, error) {
	row := r.s.row(which, len(r.cols.List))
	kinds, err := r.src.marker.kinds(r.s.kinds, r.cols, which == rowBefore)
	if r.s.kinds = kinds; err != nil {
		return nil, err
	}
	in := r.readImage(which, raw)
	for {
		_, i, value, ok, err := in.next()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", rowNames[which], err)
		}
		if !ok {
			return row, nil
		}
		if i < 0 {
			continue
		}
		if row[i].Kind != cdc.Absent {
			err = errors.New("the field stands twice")
		} else {
			row[i], err = kinds[i].value(&r.s.texts, value, r.table.connector)
		}
		if err != nil {
			r.at.column = r.cols.List[i].Name
			return nil, fmt.Errorf("reading %s: %w", rowNames[which], err)
		}
	}
}

// few is up to how many columns are found faster one by one than in a map.
const few = 8

// column is the place of a wanted column, or -1.
func (r *reading) column(name []byte) int {
	if len(r.cols.List) > few {
		return r.cols.Index(string(name))
	}
	for i := range r.cols.List {
		if r.cols.List[i].Name == string(name) {
			return i
		}
	}
	return -1
}

func isNull(raw []byte) bool { return raw == nil || string(raw) == "null" }

func checkText(b []byte) error {
	if !utf8.Valid(b) {
		return errNotUTF8
	}
	return nil
}
