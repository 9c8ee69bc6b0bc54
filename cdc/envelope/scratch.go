package envelope

import (
	"bytes"
	"slices"
	"strings"

	"invalidator/cdc"
)

// Scratch is what one change at a time is decoded into: the change itself, its rows, and the texts that do not stand in the
// record as they are read. Its memory is used again, so that reading a record allocates nothing once there is room. The zero
// Scratch is ready; it is for one goroutine.
type Scratch struct {
	reading reading       // of the last record: begun anew with each
	change  cdc.RowChange // likewise

	// Room that is kept from record to record. Whoever takes a part of it empties it first.
	rows   [3]cdc.Row // by rowBefore, rowAfter and rowOld
	texts  texts
	avro   [2][]byte    // the JSON of Avro's parts, by part
	images [2]avroImage // by rowBefore and rowAfter
	hints  recordHints
	kinds  []ownKind
	others []int    // of a sentCheck
	names  []string // of the last tombstone's key; never written again
}

const (
	rowBefore = envBefore
	rowAfter  = envAfter
	rowOld    = rowAfter + 1 // Maxwell's, before it is laid over data
)

var rowNames = [...]string{rowBefore: "before", rowAfter: "after"}

// maxKept bounds each buffer that is kept, in bytes, so that one long record does not take its room for ever.
const maxKept = 64 << 10

// Reset lets go of the last record, whose change is no longer good. DecodeInto begins with it; who stops decoding for a while calls
// it so that the record's memory is free.
func (s *Scratch) Reset() {
	s.reading, s.change = reading{}, cdc.RowChange{}
	for _, row := range s.rows {
		clear(row)
	}
	s.texts.reset()
	s.hints.forget()
	for i, b := range s.avro {
		if s.avro[i] = b[:0]; cap(b) > maxKept {
			s.avro[i] = nil
		}
		s.images[i].of, s.images[i].body = nil, nil
	}
}

// row takes one of the rows, with n values that are Absent.
func (s *Scratch) row(which, n int) cdc.Row {
	if s.rows[which] == nil || cap(s.rows[which]) < n {
		s.rows[which] = make(cdc.Row, n)
	}
	s.rows[which] = s.rows[which][:n]
	clear(s.rows[which])
	return s.rows[which]
}

// own returns a copy of a decoded change that shares nothing with its Scratch or its record.
func own(c *cdc.RowChange) *cdc.RowChange {
	out, n := *c, 0
	var all strings.Builder
	each := func(do func(*string)) {
		for _, s := range [...]*string{&out.Tx, &out.Position.GTIDSet, &out.Position.File, &out.Position.LSN, &out.Prefix} {
			do(s)
		}
		for _, row := range [...]cdc.Row{out.Before, out.After} {
			for i := range row {
				do(&row[i].S)
			}
		}
	}
	out.Before, out.After, out.Content = slices.Clone(c.Before), slices.Clone(c.After), bytes.Clone(c.Content)
	each(func(s *string) { n += len(*s) })
	all.Grow(n)
	each(func(s *string) {
		from := all.Len()
		all.WriteString(*s)
		*s = all.String()[from:]
	})
	return &out
}
