package mapping

import (
	"slices"

	"invalidator/cdc"
)

// maxCandidates bounds the keys that one template gives for one image whose columns leave several texts open.
const maxCandidates = 16

// Image says which state of a row a skip is about.
type Image string

const (
	Before Image = "before"
	After  Image = "after"
)

// What stands in Skip.Detail, apart from what a Value says itself.
const (
	detailNull       = "the column is NULL"
	detailAbsent     = "the image does not hold the column"
	detailNoBefore   = "no before image: the old value cannot be known"
	detailNoAfter    = "no after image: the new value cannot be known"
	detailCandidates = "its columns leave too many texts open"
	detailFloat      = "a float has no one text"
	detailJSON       = "a JSON document has no one text"
	detailNothing    = "the filter finds no value, as in NULL"
	detailText       = "the filter takes text, and this is no UTF-8"
	detailUnfit      = "a space or a control character"
	detailLong       = "over 250 bytes with its copy suffix"
)

// Keys appends to r the distinct keys of both images of c. An image that the kind of change should have and the log left
// out, and a template that an image cannot render, are in r.Skipped; a template may give a key from one image and be
// skipped for the other. A tombstone's Before has the key's columns alone, so that its other templates are skipped as
// absent: the delete before it had them. Truncate and Message give nothing here.
//
// A column that an update's after image leaves out has the value of its before image: an unchanged TOAST value, or a
// minimal row image, which holds what changed.
func (s *Set) Keys(c *cdc.RowChange, r *Result) {
	if c.Op == cdc.Truncate || c.Op == cdc.Message {
		return
	}
	p := s.Plan(c.Source, c.TableID)
	if p == nil {
		return
	}
	if c.Columns != p.Columns {
		c = p.project(c)
	}
	needBefore := c.Op == cdc.Update || c.Op == cdc.Delete || c.Op == cdc.Tomb
	needAfter := c.Op == cdc.Insert || c.Op == cdc.Read || c.Op == cdc.Update
	w := writer{r: r, first: len(r.Keys)}
	for i := range p.compiled {
		t := &p.compiled[i]
		if c.Before != nil {
			w.image(t, Before, c.Before, nil)
		} else if needBefore {
			w.missingBefore(t, c)
		}
	}
	for i := range p.compiled {
		t := &p.compiled[i]
		switch {
		case c.After != nil && c.Op == cdc.Update:
			w.image(t, After, c.After, c.Before)
		case c.After != nil:
			w.image(t, After, c.After, nil)
		case needAfter:
			w.missing(t, After, detailNoAfter)
		}
	}
}

// project lays a change out as the plan's columns stand, by name: it was decoded under another set, or not for one.
func (p *Plan) project(c *cdc.RowChange) *cdc.RowChange {
	row := func(from cdc.Row) cdc.Row {
		if from == nil {
			return nil
		}
		to := make(cdc.Row, len(p.Columns.List))
		for i, col := range p.Columns.List {
			if c.Columns == nil {
				break
			}
			if at := c.Columns.Index(col.Name); at >= 0 && at < len(from) {
				to[i] = from[at]
			}
		}
		return to
	}
	projected := *c
	projected.Columns, projected.Before, projected.After = p.Columns, row(c.Before), row(c.After)
	return &projected
}

// writer renders into a Result.
type writer struct {
	r     *Result
	first int // the keys before it are another change's
}

func (w *writer) skip(t *compiled, image Image, reason SkipReason, column, detail string) {
	w.r.Skipped = append(w.r.Skipped, Skip{Template: t.Template, Image: image, Reason: reason, Column: column, Detail: detail})
}

// missing skips a template whose whole image is not there. A constant key needs none.
func (w *writer) missing(t *compiled, image Image, detail string) {
	for _, p := range t.parts {
		if p.column != "" {
			w.skip(t, image, SkipAbsent, p.column, detail)
			return
		}
	}
	w.image(t, image, nil, nil)
}

// missingBefore is missing, except that an update without a before image left the record's key as it was: what reads
// only the key is complete from the after image.
func (w *writer) missingBefore(t *compiled, c *cdc.RowChange) {
	for _, p := range t.parts {
		if p.column != "" && (c.Op != cdc.Update || !slices.Contains(c.KeyColumns, p.column)) {
			w.skip(t, Before, SkipAbsent, p.column, detailNoBefore)
			return
		}
	}
	if c.Op != cdc.Update {
		w.image(t, Before, nil, nil)
	}
}

// image renders t from row, in which an absent column has its value from behind, if there is one.
func (w *writer) image(t *compiled, image Image, row, behind cdc.Row) {
	var open []choice
	combinations := 1
	for i, at := range t.at {
		if at == noColumn {
			continue
		}
		v := value(row, behind, at)
		if reason, detail := refuse(v, t.parts[i].filters); reason != "" {
			w.skip(t, image, reason, t.parts[i].column, detail)
			return
		}
		if v.Kind == cdc.Ambiguous && !slices.ContainsFunc(open, func(c choice) bool { return c.at == at }) {
			open = append(open, choice{at: at, texts: v.Candidates()})
			combinations *= len(open[len(open)-1].texts)
		}
		if combinations > maxCandidates {
			w.skip(t, image, SkipUnclear, t.parts[i].column, detailCandidates)
			return
		}
	}
	for n := range combinations {
		for i := range open {
			open[i].text = open[i].texts[n%len(open[i].texts)]
			n /= len(open[i].texts)
		}
		w.key(t, image, row, behind, open)
	}
}

// choice is a column whose text is one of several, and the one that is being rendered.
type choice struct {
	at    int
	texts []string
	text  string
}

// value is what an image says of a column.
func value(row, behind cdc.Row, at int) cdc.Value {
	if v := row[at]; v.Kind != cdc.Absent || behind == nil {
		return v
	}
	return behind[at]
}

// key renders one key, with the texts chosen where a column leaves several open.
func (w *writer) key(t *compiled, image Image, row, behind cdc.Row, open []choice) {
	key := w.r.key[:0]
	for i := range t.parts {
		p, at := &t.parts[i], t.at[i]
		if at == noColumn {
			key = append(key, p.literal...)
			continue
		}
		v := value(row, behind, at)
		for _, c := range open {
			if c.at == at {
				v = textValue(c.text)
			}
		}
		var kind cdc.Kind
		var reason SkipReason
		var detail string
		key, kind, reason, detail = through(&w.r.value, key, v, p.filters)
		if kind == cdc.Ambiguous && reason == "" {
			reason, detail = SkipUnclear, detailCandidates
		}
		if reason != "" {
			w.skip(t, image, reason, p.column, detail)
			return
		}
	}
	w.r.key = key
	if detail := unfitKey(key, t.Hot); detail != "" {
		w.skip(t, image, SkipBadKey, "", detail)
		return
	}
	w.add(t.Template, key)
}

// add appends a key unless this change has it already. The text is kept once; of two templates the one with more copies
// stands for it, so that no copy is forgotten.
func (w *writer) add(t *Template, key []byte) {
	for i := w.first; i < len(w.r.Keys); i++ {
		if k := &w.r.Keys[i]; k.Text == string(key) {
			if t.Hot > k.Template.Hot {
				k.Template = t
			}
			return
		}
	}
	w.r.Keys = append(w.r.Keys, Key{Text: string(key), Template: t})
}

// unfitKey says why memcached cannot hold a key with this many hot copies; empty where it can.
func unfitKey(key []byte, hot int) string {
	if len(key)+copySuffix(hot) > maxKey {
		return detailLong
	}
	for _, c := range key {
		if unfit(c) {
			return detailUnfit
		}
	}
	return ""
}

// copySuffix is the length of the longest #N.
func copySuffix(hot int) int {
	switch {
	case hot == 0:
		return 0
	case hot < 10:
		return 2
	}
	return 3 // maxHot has two digits
}
