package envelope

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"invalidator/cdc"
)

// Options are how Encode writes a change. The zero Options write whole rows of any size.
type Options struct {
	MaxBytes int       // limit for key and value together, in bytes; 0: none
	Keep     []string  // columns that a slim record keeps beside the key's
	At       time.Time // when the feeder handled the change; zero: its commit time
}

// ErrTooLarge says that not even the key columns of a change fit the size limit.
var ErrTooLarge = errors.New("record too large even with its key columns alone")

// EncodeError is a change that cannot be written: a value that breaks cdc's contract, or ErrTooLarge.
type EncodeError struct {
	Source string
	Table  cdc.TableID
	Column string // empty where it is not about one column
	Err    error
}

func (e *EncodeError) Error() string {
	s := "encoding a change of source " + e.Source + ", table " + e.Table.String()
	if e.Column != "" {
		s += ", column " + e.Column
	}
	return s + ": " + e.Err.Error()
}

func (e *EncodeError) Unwrap() error { return e.Err }

// How much of a row is written. Of a logical message it is all or the prefix.
const (
	whole    = iota
	kept     // the key columns and Options.Keep
	keyAlone // the key columns
)

// Encode writes a change as the key and value of a Kafka record. Both lie in buf's memory, grown where it is too small, so
// that a caller may reuse it once the record is on its way; a nil buf allocates. A nil key is Kafka's null. A change whose
// key columns differ between its images must be Split first. Every error is an *EncodeError.
func Encode(c *cdc.RowChange, o Options, buf []byte) (key, value []byte, err error) {
	w := writer{c: c, o: o}
	b, err := w.key(buf[:0])
	if err != nil {
		return nil, nil, err
	}
	n := len(b)
	for w.part = whole; w.part <= keyAlone; w.part++ {
		if b, err = w.value(b[:n]); err != nil {
			return nil, nil, err
		}
		if o.MaxBytes == 0 || len(b) <= o.MaxBytes {
			if n > 0 {
				key = b[:n:n]
			}
			return key, b[n:], nil
		}
		if c.Op == cdc.Truncate {
			break
		}
	}
	return nil, nil, w.error("", fmt.Errorf("%d bytes with a limit of %d: %w", len(b), o.MaxBytes, ErrTooLarge))
}

// Split gives the records that a change is written as. It is the change itself (and nil), but for an update that changes
// the key: a delete under the old key and a create under the new, so that both keys' partitions see it.
func Split(c *cdc.RowChange) (first, second *cdc.RowChange) {
	if c.Op != cdc.Update || c.Before == nil || c.After == nil || !keyChanged(c) {
		return c, nil
	}
	del, ins := *c, *c
	del.Op, del.After = cdc.Delete, nil
	ins.Op, ins.Before, ins.After = cdc.Insert, nil, slices.Clone(c.After)
	for _, i := range keyColumns(nil, c) { // a minimal after image lacks the parts of the key that stayed
		if ins.After[i].Kind == cdc.Absent {
			ins.After[i] = c.Before[i]
		}
	}
	return &del, &ins
}

func keyChanged(c *cdc.RowChange) bool {
	var buf [8]int
	for _, i := range keyColumns(buf[:0], c) {
		was, is := c.Before[i], c.After[i]
		if was.Kind != cdc.Absent && is.Kind != cdc.Absent && (was.Kind != is.Kind || was.S != is.S) {
			return true
		}
	}
	return false
}

// writer writes one change.
type writer struct {
	c    *cdc.RowChange
	o    Options
	part int
}

func (w *writer) error(column string, err error) error {
	return &EncodeError{Source: w.c.Source, Table: w.c.TableID, Column: column, Err: err}
}

// key appends the record's key: nothing where the table has none, or where an image lacks a part of it.
func (w *writer) key(b []byte) ([]byte, error) {
	c := w.c
	if c.Op == cdc.Message {
		b, err := appendString(append(b, `{"prefix":`...), c.Prefix)
		if err != nil {
			return b, w.error("", fmt.Errorf("writing the prefix: %w", err))
		}
		return append(b, '}'), nil
	}
	if c.Op == cdc.Truncate || c.Columns == nil {
		return b, nil
	}
	start := len(b)
	var buf [8]int
	for _, i := range keyColumns(buf[:0], c) {
		v := imageValue(c.After, i)
		if v.Kind == cdc.Absent {
			v = imageValue(c.Before, i)
		}
		if v.Kind == cdc.Absent {
			return b[:start], nil
		}
		if len(b) == start {
			b = append(b, '{')
		}
		var err error
		if b, err = w.column(b, c.Columns.List[i].Name, v); err != nil {
			return b, err
		}
	}
	if len(b) > start {
		b[len(b)-1] = '}'
	}
	return b, nil
}

// keyColumns appends the places of the key's columns: in the key's order where the feeder knows it.
func keyColumns(at []int, c *cdc.RowChange) []int {
	if c.KeyColumns == nil {
		for i, col := range c.Columns.List {
			if col.Key {
				at = append(at, i)
			}
		}
		return at
	}
	for _, name := range c.KeyColumns {
		if i := c.Columns.Index(name); i >= 0 {
			at = append(at, i)
		}
	}
	return at
}

func imageValue(r cdc.Row, i int) cdc.Value {
	if r == nil {
		return cdc.Value{}
	}
	return r[i]
}

func (w *writer) value(b []byte) ([]byte, error) {
	c := w.c
	var err error
	switch c.Op {
	case cdc.Insert, cdc.Update, cdc.Delete, cdc.Read:
		if b, err = w.image(append(b, `{"before":`...), c.Before); err != nil {
			return b, err
		}
		if b, err = w.image(append(b, `,"after":`...), c.After); err != nil {
			return b, err
		}
	case cdc.Truncate:
		b = append(b, `{"before":null,"after":null`...)
	case cdc.Message:
		if b, err = appendString(append(b, `{"message":{"prefix":`...), c.Prefix); err != nil {
			return b, w.error("", fmt.Errorf("writing the prefix: %w", err))
		}
		content := ""
		if w.part == whole {
			content = string(c.Content)
		}
		b = append(appendBase64(append(b, `,"content":`...), content), '}')
	default:
		return b, w.error("", fmt.Errorf("op %q has no record of its own", c.Op))
	}
	if b, err = w.source(append(b, `,"source":`...)); err != nil {
		return b, err
	}
	if b, err = w.transaction(append(b, `,"transaction":`...)); err != nil {
		return b, err
	}
	b = append(append(append(b, `,"op":"`...), byte(c.Op)), '"')
	at := w.o.At
	if at.IsZero() {
		at = c.CommitTime
	}
	return append(appendTimes(b, at), '}'), nil
}

// appendTimes appends ,"ts_ms":…,"ts_us":…; nothing for an unknown time.
func appendTimes(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return b
	}
	return appendIntField(appendIntField(b, `,"ts_ms"`, t.UnixMilli()), `,"ts_us"`, t.UnixMicro())
}

// image appends one image, without its Absent columns and those that a slim record leaves out.
func (w *writer) image(b []byte, r cdc.Row) ([]byte, error) {
	if r == nil {
		return append(b, `null`...), nil
	}
	start := len(b)
	b = append(b, '{')
	for i, col := range w.c.Columns.List {
		if r[i].Kind == cdc.Absent || !w.writes(col) {
			continue
		}
		var err error
		if b, err = w.column(b, col.Name, r[i]); err != nil {
			return b, err
		}
	}
	if len(b) > start+1 {
		b = b[:len(b)-1]
	}
	return append(b, '}'), nil
}

func (w *writer) writes(col cdc.Column) bool {
	return w.part == whole || col.Key || w.part == kept && slices.Contains(w.o.Keep, col.Name)
}

// column appends "name":value and a comma.
func (w *writer) column(b []byte, name string, v cdc.Value) ([]byte, error) {
	b, err := appendString(b, name)
	if err == nil {
		b, err = appendValue(append(b, ':'), v)
	}
	if err != nil {
		return b, w.error(name, err)
	}
	return append(b, ','), nil
}

func appendValue(b []byte, v cdc.Value) ([]byte, error) {
	switch v.Kind {
	case cdc.Null:
		return append(b, `null`...), nil
	case cdc.Integer:
		if isJSONInt(v.S) {
			return append(b, v.S...), nil
		}
	case cdc.Bool:
		switch v.S {
		case "t":
			return append(b, `true`...), nil
		case "f":
			return append(b, `false`...), nil
		}
	case cdc.Float:
		if isJSONNumber(v.S) {
			return append(b, v.S...), nil
		}
	case cdc.Bytes, cdc.Bytea, cdc.Unclear:
		return appendBase64(b, v.S), nil
	}
	return appendString(b, v.S)
}

// source appends Debezium's source block with our marker.
func (w *writer) source(b []byte) ([]byte, error) {
	c := w.c
	b = append(b, `{"version":"invalidator-1"`...)
	snapshot := "false"
	if c.Op == cdc.Read {
		snapshot = "true"
	}
	db, schema := c.Schema, ""
	if !mysqlLike(c.Connector) {
		db, schema = c.Database, c.Schema
	}
	fields := [...]struct{ name, text string }{
		{`,"connector":`, string(c.Connector)}, {`,"name":`, c.Source}, {`,"snapshot":`, snapshot},
		{`,"db":`, db}, {`,"schema":`, schema}, {`,"table":`, c.Table},
	}
	for _, f := range fields {
		if f.name == `,"schema":` && mysqlLike(c.Connector) {
			continue
		}
		var err error
		if b, err = appendString(append(b, f.name...), f.text); err != nil {
			return b, w.error("", fmt.Errorf("writing source.%s: %w", strings.Trim(f.name, `,":`), err))
		}
	}
	b, err := w.position(appendTimes(b, c.CommitTime))
	if err != nil {
		return b, err
	}
	if b, err = w.marker(append(b, `,"invalidator":`...)); err != nil {
		return b, err
	}
	return append(b, '}'), nil
}

func mysqlLike(c cdc.Connector) bool { return c == cdc.MySQL || c == cdc.MariaDB }

// position appends where the change stands in its log, in Debezium's fields.
func (w *writer) position(b []byte) ([]byte, error) {
	c, err := w.c, error(nil)
	if mysqlLike(c.Connector) {
		if b, err = appendOptional(append(b, `,"gtid":`...), c.Tx); err == nil {
			b, err = appendOptional(append(b, `,"file":`...), c.Position.File)
		}
		if err != nil {
			return b, w.error("", fmt.Errorf("writing the position: %w", err))
		}
		return strconv.AppendUint(append(b, `,"pos":`...), c.Position.Pos, 10), nil
	}
	b = append(b, `,"txId":`...)
	if isJSONInt(c.Tx) {
		b = append(b, c.Tx...)
	} else if b, err = appendOptional(b, c.Tx); err != nil {
		return b, w.error("", fmt.Errorf("writing the transaction: %w", err))
	}
	b = append(b, `,"lsn":`...)
	hi, lo, _ := strings.Cut(c.Position.LSN, "/")
	h, herr := strconv.ParseUint(hi, 16, 32)
	l, lerr := strconv.ParseUint(lo, 16, 32)
	if herr != nil || lerr != nil {
		return append(b, `null`...), nil
	}
	return strconv.AppendUint(b, h<<32|l, 10), nil
}

func appendOptional(b []byte, s string) ([]byte, error) {
	if s == "" {
		return append(b, `null`...), nil
	}
	return appendString(b, s)
}

func (w *writer) transaction(b []byte) ([]byte, error) {
	if w.c.Tx == "" {
		return append(b, `null`...), nil
	}
	b, err := appendString(append(b, `{"id":`...), w.c.Tx)
	if err != nil {
		return b, w.error("", fmt.Errorf("writing the transaction: %w", err))
	}
	return append(appendIntField(b, `,"total_order"`, w.c.Ordinal+1), '}'), nil
}
