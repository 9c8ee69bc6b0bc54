package mapping

import (
	"slices"

	"invalidator/cdc"
)

// Image says which state of a row a skip is about.
type Image string

const (
	Before Image = "before"
	After  Image = "after"
)

// What stands in Skip.Detail, apart from what a Value or a filter says itself.
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
	detailElements   = "it has over 1000 elements"
	detailMany       = "it gives over 4096 keys"
	detailNested     = "an array in an array of JSON"
	detailNoList     = "elements takes an array of Postgres or JSON; a list in a text needs what stands between its elements: elements(',')"
	detailPool       = "the key's pool is not one of the file's"
	detailUnfit      = "a space or a control character"
	detailLong       = "over 250 bytes with its copy suffix"
	detailLongBase64 = "over 186 bytes with its copy suffix, and a space or a control character, so that it has to be sent in base64"
)

// Keys appends to r the distinct keys of both images of c. An image that the kind of change should have and the log left
// out, and a template that an image cannot render, are in r.Skipped; a template may give a key from one image and be
// skipped for the other. A tombstone's Before has the key's columns alone, so that its other templates are skipped as
// absent, and its conditions hold where those do not decide them: the delete before it had the row. A Truncate gives the keys
// that need no row, and the pools of the others in r.Flush. A Message with the prefix "cache" gives the key that is its content, if its pool is claimed by a file in force.
// Keys that were sent are given as they are, whoever claims their pools.
//
// A condition is asked once, about the change; where it is true both images give their keys.
//
// A column that an update's after image leaves out has the value of its before image: an unchanged TOAST value, or a
// minimal row image, which holds what changed.
//
// It allocates nothing once r has room, but for values that leave several texts open.
func (s *Set) Keys(c *cdc.RowChange, r *Result) {
	w := writer{r: r,
		keys:   distinct{keys: &r.Keys, first: len(r.Keys), index: &r.index[0]},
		shadow: distinct{keys: &r.Shadow, first: len(r.Shadow), index: &r.index[1]},
	}
	switch c.Op {
	case cdc.Truncate:
		w.truncate(s, c)
		return
	case cdc.Message:
		w.message(s, c)
		return
	case cdc.Keys:
		w.sentKeys(s, c)
		return
	}
	if c.Table == "" { // which would be every table of the schema
		return
	}
	p := s.Plan(c.Source, c.TableID)
	if p == nil {
		return
	}
	if c.Columns != p.Columns {
		c = p.project(c)
	}
	r.met = r.met[:0]
	for i := range p.compiled {
		r.met = append(r.met, w.decide(&p.compiled[i], c))
	}
	for i := range p.compiled {
		if t := &p.compiled[i]; r.met[i] {
			skipped := len(r.Skipped)
			w.before(t, c)
			r.met[i] = len(r.Skipped) > skipped || !t.readsSame(c)
		}
	}
	for i := range p.compiled {
		if r.met[i] {
			w.after(&p.compiled[i], c)
		}
	}
}

// readsSame reports whether both images of an update say the same of all that t reads: they then give the same keys.
func (t *compiled) readsSame(c *cdc.RowChange) bool {
	if c.Op != cdc.Update || c.Before == nil || c.After == nil {
		return false
	}
	for _, at := range t.at {
		if at != noColumn && value(c.After, c.Before, at) != c.Before[at] {
			return false
		}
	}
	return true
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
	r            *Result
	keys, shadow distinct
}

func (w *writer) skip(t *compiled, image Image, reason SkipReason, column, detail string) {
	s := Skip{Template: t.Template, Image: image, Reason: reason, Column: column, Detail: detail}
	if n := len(w.r.Skipped); n > 0 && w.r.Skipped[n-1] == s { // of many keys that fail alike
		return
	}
	w.r.Skipped = append(w.r.Skipped, s)
}

// decide asks a template's condition. What it cannot decide counts as true, and is told.
func (w *writer) decide(t *compiled, c *cdc.RowChange) bool {
	if t.condition == nil {
		return true
	}
	e := evaluation{c: t.condition, at: t.conditionAt, RowChange: c}
	switch e.eval(t.condition.root) {
	case no:
		w.r.Unmet = append(w.r.Unmet, t.Template)
		return false
	case open:
		if e.open.Column != "" && c.Op != cdc.Tomb {
			e.open.Template = t.Template
			w.r.Undecided = append(w.r.Undecided, e.open)
		}
	}
	return true
}

func (w *writer) before(t *compiled, c *cdc.RowChange) {
	if c.Before != nil {
		w.image(t, Before, c.Before, nil)
	} else if c.Op == cdc.Update || c.Op == cdc.Delete || c.Op == cdc.Tomb {
		w.missingBefore(t, c)
	}
}

func (w *writer) after(t *compiled, c *cdc.RowChange) {
	switch {
	case c.After != nil && c.Op == cdc.Update:
		w.image(t, After, c.After, c.Before)
	case c.After != nil:
		w.image(t, After, c.After, nil)
	case c.Op == cdc.Insert || c.Op == cdc.Read || c.Op == cdc.Update:
		w.missing(t, After, detailNoAfter)
	}
}

// missing skips a template whose whole image is not there. A constant key needs none.
func (w *writer) missing(t *compiled, image Image, detail string) {
	for _, p := range t.variants[0] {
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
	for _, p := range t.variants[0] {
		if p.column != "" && (c.Op != cdc.Update || !slices.Contains(c.KeyColumns, p.column)) {
			w.skip(t, Before, SkipAbsent, p.column, detailNoBefore)
			return
		}
	}
	if c.Op != cdc.Update {
		w.image(t, Before, nil, nil)
	}
}

// value is what an image says of a column, where one that is absent has its value from behind, if there is one.
func value(row, behind cdc.Row, at int) cdc.Value {
	if v := row[at]; v.Kind != cdc.Absent || behind == nil {
		return v
	}
	return behind[at]
}

// image renders t from row: one key, or one for each of its variants.
func (w *writer) image(t *compiled, image Image, row, behind cdc.Row) {
	if t.many {
		w.several(t, image, row, behind)
		return
	}
	for _, parts := range t.variants {
		start := len(w.r.arena)
		key := w.r.arena
		for i := range parts {
			p, at := &parts[i], t.at[i]
			if at == noColumn {
				key = append(key, p.literal...)
				continue
			}
			var kind cdc.Kind
			var reason SkipReason
			var detail string
			key, kind, reason, detail = through(&w.r.value, key, value(row, behind, at), p.filters)
			switch {
			case kind == cdc.Ambiguous: // each text on its own, since some may be none
				w.several(t, image, row, behind)
				return
			case reason != "":
				w.skip(t, image, reason, p.column, detail)
				return // the variants read the same columns
			}
		}
		w.finish(t, image, key, start)
	}
}

// finish takes the key that begins at start of the arena, unless there is something wrong with it.
func (w *writer) finish(t *compiled, image Image, arena []byte, start int) {
	key, template := arena[start:], t.Template
	if t.Raw {
		if template = t.sent[string(poolOf(key))]; template == nil {
			w.skip(t, image, SkipPool, t.variants[0][0].column, detailPool)
			return
		}
	}
	if detail := unfitKey(key, template); detail != "" {
		w.skip(t, image, SkipBadKey, "", detail)
		return
	}
	w.add(template, arena, start)
}

func (w *writer) add(t *Template, arena []byte, start int) {
	list := &w.keys
	if t.Shadow {
		list = &w.shadow
	}
	if !list.add(t, arena[start:]) {
		arena = arena[:start]
	}
	w.r.arena = arena
}

// unfitKey says why memcached cannot hold a key of t with its hot copies; empty where it can.
func unfitKey(key []byte, t *Template) string {
	length := len(key) + copySuffix(t.Hot)
	if length > maxKey {
		return detailLong
	}
	for _, c := range key {
		switch {
		case !unfit(c):
		case !t.Base64:
			return detailUnfit
		case length > maxBase64Key:
			return detailLongBase64
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
