package mapping

import (
	"slices"
	"strconv"
	"strings"

	"invalidator/cdc"
)

// truth has a third value, for what a change does not say. It wins over nothing: false && open is false, true || open is
// true, and everything else with it is open.
type truth uint8

const (
	no truth = iota
	yes
	open
)

func truthOf(b bool) truth {
	if b {
		return yes
	}
	return no
}

func (t truth) not() truth {
	switch t {
	case no:
		return yes
	case yes:
		return no
	}
	return open
}

// What stands in Undecided.Detail, apart from details of skips and what a Value says itself.
const (
	detailUnset    = "a number that is none"
	detailNoBool   = "neither true nor false"
	detailNoNumber = "compared with a number, and this is none"
	detailDocument = "a JSON document has no one text"
	detailEvery    = "the record leaves several values open"
)

// evaluation is one condition of one change.
type evaluation struct {
	c  *condition
	at []int // condition.columns -> the change's columns
	*cdc.RowChange
	open Undecided // the first that was in the way; no column where only an image is that this kind of change never has
}

func (e *evaluation) blame(o operand, detail string) truth {
	if e.open.Column == "" {
		e.open = Undecided{Image: o.image, Column: e.c.columns[o.column], Detail: detail}
	}
	return open
}

// kind is what the condition calls op.
func (e *evaluation) kind() changeKind {
	switch e.Op {
	case cdc.Insert, cdc.Read:
		return kindInsert
	case cdc.Update:
		return kindUpdate
	}
	return kindDelete
}

func (e *evaluation) eval(t *term) truth {
	switch t.op {
	case opAnd:
		a := e.eval(t.a)
		if a == no {
			return no
		}
		if b := e.eval(t.b); b == no || a == yes {
			return b
		}
		return open
	case opOr:
		a := e.eval(t.a)
		if a == yes {
			return yes
		}
		if b := e.eval(t.b); b == yes || a == no {
			return b
		}
		return open
	case opNot:
		return e.eval(t.a).not()
	case opChanged:
		return e.changed(t)
	case opIsKind:
		return truthOf(t.kinds&e.kind() != 0)
	}
	return e.test(t)
}

// changed is true for every insert and delete. Of an update it is true where a column differs, and open where none is known
// to and some may.
func (e *evaluation) changed(t *term) truth {
	if e.kind() != kindUpdate {
		return yes
	}
	result := no
	for _, c := range t.columns {
		before, after := operand{image: Before, column: c}, operand{image: After, column: c}
		v, w := e.value(before), e.value(after)
		switch {
		case !stated(v):
			result = e.blame(before, e.whyNot(before, v))
		case !stated(w):
			result = e.blame(after, e.whyNot(after, w))
		case !v.Equal(w):
			return yes
		}
	}
	return result
}

func stated(v cdc.Value) bool { return v.Kind != cdc.Absent && v.Kind != cdc.Unclear }

// value is what the change says of a column. An update's after image has what it leaves out from the before image; an update
// without a before image left the record's key as it was.
func (e *evaluation) value(o operand) cdc.Value {
	at := e.at[o.column]
	switch {
	case o.image == After && e.After == nil, o.image == Before && e.Before == nil && e.Op != cdc.Update:
		return cdc.Value{}
	case o.image == After && e.Op == cdc.Update:
		return value(e.After, e.Before, at)
	case o.image == After:
		return e.After[at]
	case e.Before != nil:
		return e.Before[at]
	case e.After != nil && slices.Contains(e.KeyColumns, e.c.columns[o.column]):
		return e.After[at]
	}
	return cdc.Value{}
}

// whyNot says why a value is not known.
func (e *evaluation) whyNot(o operand, v cdc.Value) string {
	switch {
	case v.Kind == cdc.Unclear:
		return v.Why
	case o.image == Before && e.Before == nil:
		return detailNoBefore
	case o.image == After && e.After == nil:
		return detailNoAfter
	}
	return detailAbsent
}

// known is the value of a column, or why there is none. An image that this kind of change never has leaves open what asks for
// it, and nobody is to blame: an insert has no old value to compare.
func (e *evaluation) known(o operand) (v cdc.Value, ok bool) {
	v = e.value(o)
	if v.Doubtful() { // it may have been NULL
		e.blame(o, v.Why)
		return v, false
	}
	if stated(v) {
		return v, true
	}
	if !(o.image == Before && e.kind() == kindInsert || o.image == After && e.kind() == kindDelete) {
		e.blame(o, e.whyNot(o, v))
	}
	return v, false
}

// test evaluates what compares.
func (e *evaluation) test(t *term) truth {
	var v, w cdc.Value
	ok := true
	if t.left.image != "" {
		v, ok = e.known(t.left)
		if t.op == opIsNull && v.Kind == cdc.Unclear { // whatever it is, it is something
			return no
		}
	}
	if ok && t.right.image != "" {
		w, ok = e.known(t.right)
	}
	if !ok {
		return open
	}
	switch t.op {
	case opIsNull:
		return truthOf(v.Kind == cdc.Null)
	case opTruth:
		return e.isTrue(t.left, v)
	case opIn:
		result := no
		for _, o := range t.list {
			switch e.equal(t.left, v, o, cdc.Value{}) {
			case yes:
				return yes
			case open:
				result = open
			}
		}
		return result
	case opEqual:
		return e.equal(t.left, v, t.right, w)
	case opLess, opLessEqual:
		return e.less(t, v, w)
	}
	return e.textTest(t, v, w)
}

// isTrue is a boolean's value: MySQL's 1 and 0, Postgres' t and f. NULL is not true.
func (e *evaluation) isTrue(o operand, v cdc.Value) truth {
	switch {
	case v.Kind == cdc.Null:
		return no
	case v.Kind == cdc.Bool || v.Kind == cdc.Integer || v.Kind == cdc.Text:
		switch v.S {
		case "1", "t", "true":
			return yes
		case "0", "f", "false":
			return no
		}
	}
	return e.blame(o, detailNoBool)
}

// equal compares a column with a literal, or with a column.
func (e *evaluation) equal(l operand, v cdc.Value, r operand, w cdc.Value) truth {
	if r.image == "" {
		switch r.literal {
		case literalNull:
			return truthOf(v.Kind == cdc.Null)
		case literalBool:
			if v.Kind == cdc.Null {
				return no
			}
			if is := e.isTrue(l, v); r.text == "false" {
				return is.not()
			} else {
				return is
			}
		}
	}
	if v.Kind == cdc.Null || w.Kind == cdc.Null {
		return truthOf(v.Kind == w.Kind)
	}
	if r.image == "" && r.literal == literalText && v.Kind == cdc.Text { // the commonest, without ado
		return truthOf(v.S == r.text)
	}
	return e.compare(l, v, r, w, equalTexts)
}

func (e *evaluation) less(t *term, v, w cdc.Value) truth {
	if v.Kind == cdc.Null || w.Kind == cdc.Null {
		return no
	}
	test := lessTexts
	if t.op == opLessEqual {
		test = lessOrEqualTexts
	}
	return e.compare(t.left, v, t.right, w, test)
}

func (e *evaluation) textTest(t *term, v, w cdc.Value) truth {
	if v.Kind == cdc.Null || w.Kind == cdc.Null {
		return no
	}
	return e.compare(t.left, v, t.right, w, func(a, b side) (truth, string) {
		switch t.op {
		case opContains:
			return truthOf(strings.Contains(a.text, b.text)), ""
		case opStartsWith:
			return truthOf(strings.HasPrefix(a.text, b.text)), ""
		case opEndsWith:
			return truthOf(strings.HasSuffix(a.text, b.text)), ""
		}
		return truthOf(t.pattern.MatchString(a.text)), ""
	})
}

// side is one side of a comparison: a text, and whether it is a number by nature.
type side struct {
	text    string
	numeric bool // a number literal, or a column of numbers
	float   bool
}

func sideOf(o operand, v cdc.Value, text string) side {
	if o.image == "" {
		return side{text: o.text, numeric: o.literal == literalNumber}
	}
	return side{text: text, numeric: v.Kind == cdc.Integer || v.Kind == cdc.Decimal || v.Kind == cdc.Float, float: v.Kind == cdc.Float}
}

// compare applies test to every text that the two sides may have: where they do not agree, nobody knows.
func (e *evaluation) compare(l operand, v cdc.Value, r operand, w cdc.Value, test func(a, b side) (truth, string)) truth {
	o := l
	if o.image == "" {
		o = r
	}
	if (v.Kind == cdc.JSON || w.Kind == cdc.JSON) && v.S != w.S {
		return e.blame(o, detailDocument)
	}
	if v.Kind == cdc.Ambiguous && w.Kind == cdc.Ambiguous && v.S == w.S { // the same bits
		v, w = cdc.Value{Kind: cdc.Text, S: v.Text()}, cdc.Value{Kind: cdc.Text, S: w.Text()}
	}
	result, first := open, true
	rest, more := allTextsOf(v), true
	for more {
		var a, b string
		a, rest, more = nextText(v, rest)
		others, again := allTextsOf(w), true
		for again {
			b, others, again = nextText(w, others)
			is, why := test(sideOf(l, v, a), sideOf(r, w, b))
			switch {
			case is == open:
				return e.blame(o, why)
			case first:
				result, first = is, false
			case is != result:
				return e.blame(o, detailEvery)
			}
		}
	}
	return result
}

// allTextsOf and nextText walk over the texts that a value may have, without making a list.
func allTextsOf(v cdc.Value) string {
	if v.Kind == cdc.Ambiguous {
		return v.S
	}
	return v.Text()
}

func nextText(v cdc.Value, rest string) (text, behind string, more bool) {
	if v.Kind != cdc.Ambiguous {
		return rest, "", false
	}
	return strings.Cut(rest, separator)
}

func equalTexts(a, b side) (truth, string) {
	if a.text == b.text {
		return yes, ""
	}
	if !a.numeric && !b.numeric {
		return no, ""
	}
	order, is, _ := compareNumbers(a, b)
	if is == open { // a number and a text that is none
		return no, ""
	}
	return truthOf(order == 0), ""
}

func lessTexts(a, b side) (truth, string)        { return ordered(a, b, -1) }
func lessOrEqualTexts(a, b side) (truth, string) { return ordered(a, b, 0) }

// ordered reports whether a is less than b, or, with most 0, no greater.
func ordered(a, b side, most int) (truth, string) {
	order := strings.Compare(a.text, b.text)
	if a.numeric || b.numeric {
		var is truth
		var why string
		if order, is, why = compareNumbers(a, b); is == open {
			return open, why
		}
	}
	return truthOf(order <= most), ""
}

// compareNumbers is exact, but for floats. Its truth is open where one side is no number.
func compareNumbers(a, b side) (order int, is truth, why string) {
	if a.float || b.float {
		x, errX := strconv.ParseFloat(a.text, 64)
		y, errY := strconv.ParseFloat(b.text, 64)
		switch {
		case errX != nil || errY != nil || x != x || y != y:
			return 0, open, detailUnset
		case x < y:
			return -1, yes, ""
		case x > y:
			return 1, yes, ""
		}
		return 0, yes, ""
	}
	x, okX := parseNumber(a.text)
	y, okY := parseNumber(b.text)
	if !okX || !okY {
		return 0, open, detailNoNumber
	}
	return x.compare(y), yes, ""
}
