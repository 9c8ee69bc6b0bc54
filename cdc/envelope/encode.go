package envelope

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"invalidator/cdc"
)

// Options are how Encode writes a change. The zero Options write whole rows of any size.
type Options struct {
	MaxBytes int                        // limit for key and value together, in bytes; 0: none
	Keep     func(cdc.TableID) []string // columns that a slim record keeps beside the key's; nil: none. Asked for such a record alone
	At       time.Time                  // when the feeder handled the change; zero: its commit time
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

// Encode is Encoder.Encode for a single change.
func Encode(c *cdc.RowChange, o Options, buf []byte) (key, value []byte, err error) {
	var e Encoder
	return e.Encode(c, o, buf)
}

// Encoder writes changes, and remembers the texts that one has in common with the next: the changes of a transaction in one
// table differ in their rows and their ordinal alone. What it writes does not depend on what it wrote before. The zero
// Encoder is ready; it belongs to one goroutine.
type Encoder struct {
	origin originText
	at     timeText
}

// Encode writes a change as the key and value of a Kafka record. Both lie in buf's memory, grown where it is too small, so
// that a caller may reuse it once the record is on its way; a nil buf allocates. A nil key is Kafka's null. A change whose
// key columns differ between its images must be Split first. Every error is an *EncodeError.
func (e *Encoder) Encode(c *cdc.RowChange, o Options, buf []byte) (key, value []byte, err error) {
	w := writer{Encoder: e, c: c, o: o}
	b, err := w.key(buf[:0])
	if err != nil {
		return nil, nil, err
	}
	n := len(b)
	for w.part = whole; w.part <= keyAlone; w.part++ {
		if w.part == kept && o.Keep != nil {
			w.keep = o.Keep(c.TableID)
		}
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
	*Encoder
	c    *cdc.RowChange
	o    Options
	part int
	keep []string // o.Keep's answer, once it was asked
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
	origin, err := w.origin.of(c)
	if err != nil {
		return b, w.error("", err)
	}
	if b, err = w.marker(strconv.AppendInt(append(b, origin.source...), c.Ordinal, 10)); err != nil {
		return b, err
	}
	b = append(append(b, '}'), origin.transaction...)
	if c.Tx != "" {
		b = append(strconv.AppendInt(b, c.Ordinal+1, 10), '}')
	}
	b = append(append(append(b, `,"op":"`...), byte(c.Op)), '"')
	at := w.o.At
	if at.IsZero() {
		at = c.CommitTime
	}
	return append(append(b, w.at.of(at)...), '}'), nil
}

// image appends one image, without its Absent columns and those that a slim record leaves out.
func (w *writer) image(b []byte, r cdc.Row) ([]byte, error) {
	if r == nil {
		return append(b, `null`...), nil
	}
	start := len(b)
	b = append(b, '{')
	for i := range w.c.Columns.List {
		col := &w.c.Columns.List[i]
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

func (w *writer) writes(col *cdc.Column) bool {
	return w.part == whole || col.Key || w.part == kept && slices.Contains(w.keep, col.Name)
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
