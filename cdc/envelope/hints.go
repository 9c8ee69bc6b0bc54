package envelope

import "invalidator/cdc"

// hints remember what the members of an object were called in the last record, by their order, and where each went. The next record
// most likely has the same: one comparison then takes the place of reading a name and looking it up. They are only that: a name that
// is another is read, and remembered in its place.
type hints struct {
	list []hint
	of   *cdc.Columns // what the places count: hints of others are forgotten
}

type hint struct {
	text  []byte // the name with what stands around it: {"id": or ,"id":
	place int
}

// recordHints are those of the objects of one record.
type recordHints struct{ record, source, marker, image, maxwell, key, names hints }

const (
	nowhere   = -1 // the place of a member that is not read
	elsewhere = -2 // likewise, of one that an envelope does not have
	unseen    = -3 // the place of a member that is no hint's

	// maxHints bounds the hints of an object, and maxHint each one's bytes: more are members of no table that one maps.
	maxHints = 256
	maxHint  = 128
)

// about forgets what was remembered of other columns.
func (h *hints) about(of *cdc.Columns) *hints {
	if h.of != of {
		h.list, h.of = h.list[:0], of
	}
	return h
}

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
