package envelope

import "invalidator/cdc"

// hints remember what the members of an object were called in the last record, by their order, and where each went. The next record
// most likely has the same: one comparison then takes the place of reading a name and looking it up. They are only that: a name that
// is another is read, and remembered in its place.
type hints struct{ list []hint }

type hint struct {
	text  []byte // the name with what stands around it: {"id": or ,"id":
	place int
}

// recordHints are those of the objects of one record.
type recordHints struct {
	record, source, marker, flat, maxwell, key hints

	tables [hintedTables]tableHints
	last   int         // the table that was read last, which the next image is most likely of
	oldest int         // the place that the next other table takes
	values [2][][]byte // of images that were read by the hints of passed while they were passed over; empty for others
	passed int
}

// tableHints are those of what tables differ in.
type tableHints struct {
	of     *cdc.Columns // what the images' places count
	images [2]hints     // by rowBefore and rowAfter
	names  hints        // of the key
}

// hintedTables is how many tables a Scratch remembers: a topic has one, or those of a service.
const hintedTables = 8

// table gives the hints of the table that these columns are read of.
func (k *recordHints) table(cols *cdc.Columns) *tableHints {
	if k.tables[k.last].of == cols {
		return &k.tables[k.last]
	}
	for i := range k.tables {
		if k.tables[i].of == cols {
			k.last = i
			return &k.tables[i]
		}
	}
	k.last = k.oldest
	k.oldest = (k.oldest + 1) % hintedTables
	k.forget()
	t := &k.tables[k.last]
	t.of = cols
	for _, h := range [...]*hints{&t.images[rowBefore], &t.images[rowAfter], &t.names} {
		h.list = h.list[:0]
	}
	return t
}

const (
	nowhere   = -1 // the place of a member that is not read
	elsewhere = -2 // likewise, of one that an envelope does not have
	unseen    = -3 // the place of a member that is no hint's

	// maxHints bounds the hints of an object, and maxHint each one's bytes: more are members of no table that one maps.
	maxHints = 256
	maxHint  = 128
)

// hinted is name, and the place that the hint gives; unseen where it is another name, whose place the caller then tells by learn.
func (m *members) hinted(h *hints) (name []byte, place int, ok bool, err error) {
	s := &m.s
	m.from = s.i
	if m.n < len(h.list) {
		t := &h.list[m.n]
		if end := s.i + len(t.text); end <= len(s.b) && string(s.b[s.i:end]) == string(t.text) {
			name, s.i = s.b[s.i+2:end-2], end
			m.n++
			m.started = true
			return name, t.place, true, nil
		}
	}
	name, ok, err = m.name()
	return name, unseen, ok, err
}

// forget lets go of the images' values.
func (k *recordHints) forget() {
	for i, values := range k.values {
		clear(values)
		k.values[i] = values[:0]
	}
}

// pass passes over an image, whose table may not be known yet. Where it has the members of the last one, their values are kept, so
// that they need not be looked for again; else it is scanner.object.
func (k *recordHints) pass(s *scanner, which int) ([]byte, error) {
	s.space()
	in, values := *s, k.values[which][:0]
	k.passed = k.last
	whole := true
	for _, h := range k.tables[k.last].images[which].list {
		end := in.i + len(h.text)
		if end > len(in.b) || string(in.b[in.i:end]) != string(h.text) {
			break
		}
		in.i = end
		value, err := in.raw()
		if err != nil { // which whoever reads the image will say
			whole = false
			break
		}
		values = append(values, value)
	}
	if !whole || len(values) == 0 || in.i >= len(in.b) || in.b[in.i] != '}' {
		clear(values)
		k.values[which] = values[:0]
		return s.object()
	}
	k.values[which] = values
	start := s.i
	s.i = in.i + 1
	return s.b[start:s.i], nil
}

// imageReader walks the members of an image.
type imageReader struct {
	r      *reading
	m      members
	h      *hints
	values [][]byte // that pass has kept; nil: the image is read from its text
	n      int      // how many of them were given
}

func (r *reading) readImage(which int, raw []byte) imageReader {
	k := &r.s.hints
	in := imageReader{r: r, m: members{s: scanner{b: raw}}, h: &k.table(r.cols).images[which]}
	if k.passed == k.last && len(k.values[which]) > 0 {
		in.values = k.values[which]
	}
	return in
}

// next returns the next member, and the place of its column; nowhere for one that is not wanted.
func (in *imageReader) next() (name []byte, i int, value []byte, ok bool, err error) {
	if in.values != nil {
		if in.n == len(in.values) {
			return nil, 0, nil, false, nil
		}
		t := &in.h.list[in.n]
		in.n++
		return t.text[2 : len(t.text)-2], t.place, in.values[in.n-1], true, nil
	}
	if name, i, ok, err = in.m.hinted(in.h); !ok {
		return nil, 0, nil, false, err
	}
	if i == unseen {
		i = in.r.column(name)
		in.m.learn(in.h, name, i)
	}
	value, err = in.m.s.raw()
	return name, i, value, err == nil, err
}

// learn remembers where the member goes that hinted has given.
func (m *members) learn(h *hints, name []byte, place int) {
	text := m.s.b[m.from:m.s.i]
	plain := len(text) == len(name)+len(`{"":`) // nothing is escaped, and no space stands between
	if m.n > len(h.list) || m.n >= maxHints || !plain || len(text) > maxHint {
		m.n = maxHints // what follows is in no order that was seen
		return
	}
	if m.n == len(h.list) {
		if len(h.list) < cap(h.list) { // with the room of its predecessor
			h.list = h.list[:m.n+1]
		} else {
			h.list = append(h.list, hint{})
		}
	}
	h.list[m.n].text, h.list[m.n].place = append(h.list[m.n].text[:0], text...), place
	m.n++
}
