package envelope

import (
	"fmt"
	"sync/atomic"
	"unicode/utf8"

	"invalidator/cdc"
)

// An Avro record that is an envelope is walked as it stands: of the source block the members that are read, and of the images the
// wanted columns, are written as the JSON that Debezium would have written, value by value, so that one set of rules reads both. All
// else is passed over, and checked on the way. What is no envelope (a key, a row without one, a heartbeat) is small or rare, and
// written as JSON whole.

// avroEnvelope says what the fields of an envelope's schema are.
type avroEnvelope struct {
	places []int // by field: of envelopePlace
	source []int // by field of the source block: of sourcePlace
}

// maxAvroDepth is how deep a schema may nest for its records to be read without writing them as JSON, where maxDepth bounds it.
const maxAvroDepth = maxDepth - 4

// newAvroEnvelope is nil for a schema that is none of an envelope, or not as Debezium writes one.
func newAvroEnvelope(top *avroType) *avroEnvelope {
	if top.kind != avroRecord || top.depth() > maxAvroDepth || top.doubled() {
		return nil
	}
	e := &avroEnvelope{places: make([]int, len(top.sub))}
	for i, sub := range top.sub {
		place := envelopePlace(top.name(i))
		e.places[i] = place
		if place != envBefore && place != envAfter && place != envSource {
			continue
		}
		record := sub.record()
		if record == nil || record.doubled() {
			return nil
		}
		if place != envSource {
			continue
		}
		for j := range record.sub {
			at := sourcePlace(record.name(j))
			if at == srcOurs { // no writer of ours has Avro
				return nil
			}
			e.source = append(e.source, at)
		}
	}
	if e.source == nil {
		return nil
	}
	return e
}

// name is that of a record's field.
func (t *avroType) name(i int) []byte { return t.names[i][1 : len(t.names[i])-2] }

// record is t itself, or the one record of a union of null and it; nil where there is none.
func (t *avroType) record() *avroType {
	switch {
	case t.kind == avroRecord:
		return t
	case t.kind == avroUnion && len(t.sub) == 2:
		for i, sub := range t.sub {
			if sub.kind == avroRecord && t.sub[1-i].kind == avroNull {
				return sub
			}
		}
	}
	return nil
}

// doubled reports whether two fields of a record have one name.
func (t *avroType) doubled() bool {
	seen := map[string]bool{}
	for i := range t.names {
		seen[string(t.names[i])] = true
	}
	return len(seen) < len(t.names)
}

// depth is how deep the JSON of a value nests.
func (t *avroType) depth() int {
	deepest := 0
	for _, sub := range t.sub {
		deepest = max(deepest, sub.depth())
	}
	if t.kind != avroUnion {
		deepest++
	}
	return deepest
}

// avroImage is one image, where it stands in the record.
type avroImage struct {
	of   *avroType // the record; nil for an image that is not there
	body []byte
	at   []int // where each field begins; room of the Scratch
}

var (
	someObject = []byte("{}")   // stands for an object that is not written as JSON
	someValue  = []byte("true") // likewise, for any other
)

// avroValue reads an envelope into r.env, r.src and the places of its images.
func (r *reading) avroValue(s *avroSchema, body []byte) error {
	in := newAvroReader(body)
	for i, sub := range s.top.sub {
		t, err := sub.branch(&in)
		if err != nil {
			return err
		}
		place := s.envelope.places[i]
		switch {
		case place == nowhere:
			err = t.skip(&in)
		case place == elsewhere:
			r.env.other, err = someValue, t.skip(&in)
		case t.kind == avroRecord && place == envSource:
			r.env.at[place] = someObject
			err = r.avroSource(t, s.envelope.source, &in)
		case t.kind == avroRecord && (place == envBefore || place == envAfter):
			r.env.at[place] = someObject
			err = r.avroPass(place, t, &in)
		default:
			r.env.at[place], err = r.avroJSON(t, &in)
		}
		if err != nil {
			return err
		}
	}
	r.direct = true
	return in.end()
}

func (r *reading) avroSource(t *avroType, places []int, in *avroReader) (err error) {
	for i, sub := range t.sub {
		if at := places[i]; at < 0 {
			err = sub.skip(in)
		} else {
			r.src.at[at], err = r.avroJSON(sub, in)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// avroPass passes over an image and keeps where its fields begin.
func (r *reading) avroPass(place int, t *avroType, in *avroReader) error {
	image := &r.s.images[place]
	image.of, image.at = t, image.at[:0]
	body := in.b
	for _, sub := range t.sub {
		image.at = append(image.at, len(body)-len(in.b))
		if err := sub.skip(in); err != nil {
			return err
		}
	}
	image.body = body[:len(body)-len(in.b)]
	return nil
}

// avroJSON is the next value as JSON, good until the next record.
func (r *reading) avroJSON(t *avroType, in *avroReader) ([]byte, error) {
	buf := &r.s.avro[inValue]
	start := len(*buf)
	in.limit += start // which counts from the start of what is written
	out, err := t.append(*buf, in)
	in.limit -= start
	*buf = out
	return out[start:len(out):len(out)], err
}

// avroWanted are the fields of a record that columns are read of.
type avroWanted struct {
	cols *cdc.Columns
	list []avroColumn // in the order of the fields
}

type avroColumn struct{ field, column int }

// wants are the fields that cols are read of; kept until they are others.
func (t *avroType) wants(cols *cdc.Columns) []avroColumn {
	if w := t.wanted.Load(); w != nil && w.cols == cols {
		return w.list
	}
	w := &avroWanted{cols: cols}
	for i := range t.sub {
		if c := cols.Index(string(t.name(i))); c >= 0 {
			w.list = append(w.list, avroColumn{i, c})
		}
	}
	t.wanted.Store(w)
	return w.list
}

// lastWanted is kept in the type of a record.
type lastWanted struct{ atomic.Pointer[avroWanted] }

// avroRow is image, of one that avroPass has passed over.
func (r *reading) avroRow(which int) (cdc.Row, error) {
	image := &r.s.images[which]
	row := r.s.row(which, len(r.cols.List))
	forms := r.forms()
	field := func(i int) ([]byte, error) {
		in := newAvroReader(image.body)
		in.b = image.body[image.at[i]:]
		raw, err := r.avroJSON(image.of.sub[i], &in)
		if err != nil {
			err = fmt.Errorf("reading %s as Avro: %w", rowNames[which], err)
		}
		return raw, err
	}
	sent := r.sentCheck(which)
	for i := 0; i < len(image.at) && sent.on && !sent.filled; i++ {
		raw, err := field(i)
		if err != nil {
			return nil, err
		}
		sent.see(r, image.of.name(i), raw)
	}
	for _, w := range image.of.wants(r.cols) {
		raw, err := field(w.field)
		if err != nil {
			r.at.column = r.cols.List[w.column].Name
			return nil, err
		}
		if !r.d.placeholder.is(raw) {
			row[w.column] = forms[w.column].value(&r.s.texts, raw)
		}
	}
	sent.apply(row)
	return row, nil
}

// branch is the type of the value that comes next: t itself, or the branch that a union names.
func (t *avroType) branch(in *avroReader) (*avroType, error) {
	if t.kind != avroUnion {
		return t, nil
	}
	i, err := in.choice(len(t.sub))
	if err != nil {
		return nil, err
	}
	return t.sub[i], nil
}

// choice is the number of one of n branches or symbols.
func (r *avroReader) choice(n int) (int, error) {
	i, err := r.long()
	if err == nil && (i < 0 || i >= int64(n)) {
		err = fmt.Errorf("branch or symbol %d of %d (written with another schema?)", i, n)
	}
	return int(i), err
}

// skip passes over one value. It refuses what append refuses.
func (t *avroType) skip(in *avroReader) (err error) {
	switch t.kind {
	case avroInt:
		_, err = in.long()
	case avroBytes:
		_, err = in.bytes()
	case avroFixed:
		_, err = in.take(int64(t.size))
	case avroBoolean:
		_, err = in.take(1)
	case avroFloat:
		_, err = in.take(4)
	case avroDouble:
		_, err = in.take(8)
	case avroString:
		err = in.text()
	case avroEnum:
		_, err = in.choice(len(t.names))
	case avroUnion:
		if t, err = t.branch(in); err == nil {
			err = t.skip(in)
		}
	case avroRecord:
		for _, sub := range t.sub {
			if err = sub.skip(in); err != nil {
				return err
			}
		}
	case avroArray, avroMap:
		err = t.skipBlocks(in)
	}
	return err
}

// text passes over a text.
func (r *avroReader) text() error {
	b, err := r.bytes()
	if err == nil && !utf8.Valid(b) {
		err = errNotUTF8
	}
	return err
}

func (t *avroType) skipBlocks(in *avroReader) error {
	for {
		count, err := in.block()
		if count == 0 || err != nil {
			return err
		}
		for ; count != 0; count-- {
			if in.elements--; in.elements < 0 {
				return errAvroBomb
			}
			if t.kind == avroMap {
				if err := in.text(); err != nil {
					return err
				}
			}
			if err := t.sub[0].skip(in); err != nil {
				return err
			}
		}
	}
}
