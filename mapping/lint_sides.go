package mapping

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// maxAtoms bounds the tests of a condition whose outcomes are tried out, all with all. A longer one is taken to depend on each.
const maxAtoms = 12

// oneSided tells of conditions that ask a column of one image alone. after.status == 'live' is false for the update that takes
// an article down, and so leaves its page. What only inserts or deletes can meet has no other side.
func (s *Set) oneSided() (problems []Problem) {
	for _, f := range s.files {
		r := &fileReader{reader: reader{file: f.Name, lines: bytes.Split(f.data, []byte("\n"))}, f: f}
		for _, m := range f.Mappings {
			for _, t := range m.Templates {
				if t.condition != nil {
					problems = append(problems, r.sides(m, t)...)
				}
			}
		}
	}
	return problems
}

// sides looks at one template's condition, column by column.
func (r *fileReader) sides(m *Mapping, t *Template) (problems []Problem) {
	for i, column := range t.condition.columns {
		for _, one := range []struct {
			asked, other Image
			missed       string
		}{
			{After, Before, "an update that takes a row out of what it asks for"},
			{Before, After, "an update that brings a row into what it asks for"},
		} {
			asked, other := operand{image: one.asked, column: i}, operand{image: one.other, column: i}
			if t.condition.mentions(other) || !t.condition.hangsOn(asked) || m.elsewhere(t, one.other, column) {
				continue
			}
			when := m.when(t)
			line, col := r.within(when, placeOf(one.asked, column, t.When))
			problems = append(problems, Problem{File: r.file, Line: line, Col: col, Severity: SeverityWarning, Hint: t.condition.bothSides(asked),
				What: fmt.Sprintf("the condition asks for %s.%s and not for %s.%s: %s is missed", one.asked, column, one.other, column, one.missed)})
		}
	}
	return problems
}

// elsewhere reports whether the same key stands in the mapping again, under a condition that asks the other image, or under
// none.
func (m *Mapping) elsewhere(t *Template, image Image, column string) bool {
	return slices.ContainsFunc(m.Templates, func(o *Template) bool {
		if o == t || o.Text != t.Text || o.Shadow {
			return false
		}
		if o.condition == nil {
			return true
		}
		i := slices.Index(o.condition.columns, column)
		return i >= 0 && o.condition.mentions(operand{image: image, column: i})
	})
}

// placeOf is the byte at which a condition's text first names a column of an image.
func placeOf(image Image, column, text string) int {
	name := regexp.MustCompile(`\b` + string(image) + `\s*(\.\s*|\[\s*['"])` + regexp.QuoteMeta(column))
	if found := name.FindStringIndex(text); found != nil {
		return found[0]
	}
	return 0
}

// leaves are the terms that are no and, or, not.
func (t *term) leaves(all []*term) []*term {
	switch t.op {
	case opAnd, opOr:
		return t.b.leaves(t.a.leaves(all))
	case opNot:
		return t.a.leaves(all)
	}
	return append(all, t)
}

// reads reports whether a test compares this column of this image.
func (t *term) reads(o operand) bool {
	same := func(p operand) bool { return p.image == o.image && p.column == o.column }
	return t.op != opChanged && t.op != opIsKind && (same(t.left) || same(t.right))
}

// asksBoth reports whether a test compares the two images with each other.
func (t *term) asksBoth() bool {
	return t.left.image != "" && t.right.image != "" && t.left.image != t.right.image
}

func (c *condition) mentions(o operand) bool {
	return slices.ContainsFunc(c.root.leaves(nil), func(t *term) bool { return t.reads(o) })
}

// hangsOn reports whether what a column of an image holds can decide about an update in which that column changes.
func (c *condition) hangsOn(o operand) bool {
	free, own := map[*term]int{}, map[*term]int{} // each with the bit that is its outcome
	for _, t := range c.root.leaves(nil) {
		switch {
		case t.op == opIsKind, t.op == opChanged && slices.Contains(t.columns, o.column):
		case t.reads(o) && !t.asksBoth():
			own[t] = len(own)
		default:
			free[t] = len(free)
		}
	}
	if len(own) == 0 || len(own)+len(free) > maxAtoms {
		return len(own) > 0
	}
	for others := range 1 << len(free) {
		first := c.root.outcome(o.column, free, others, own, 0)
		for mine := 1; mine < 1<<len(own); mine++ {
			if c.root.outcome(o.column, free, others, own, mine) != first {
				return true
			}
		}
	}
	return false
}

// outcome is what an update comes to in which a column changes and the other tests have the outcomes that the bits say.
func (t *term) outcome(changed int, free map[*term]int, others int, own map[*term]int, mine int) bool {
	switch t.op {
	case opAnd:
		return t.a.outcome(changed, free, others, own, mine) && t.b.outcome(changed, free, others, own, mine)
	case opOr:
		return t.a.outcome(changed, free, others, own, mine) || t.b.outcome(changed, free, others, own, mine)
	case opNot:
		return !t.a.outcome(changed, free, others, own, mine)
	case opIsKind:
		return t.kinds&kindUpdate != 0
	case opChanged:
		if slices.Contains(t.columns, changed) {
			return true
		}
	}
	if bit, ok := own[t]; ok {
		return mine>>bit&1 == 1
	}
	return others>>free[t]&1 == 1
}

// bothSides is how to ask both images: before.status == 'live' || after.status == 'live'.
func (c *condition) bothSides(o operand) string {
	text, negated := "", false
	var tests int
	var walk func(t *term, not bool)
	walk = func(t *term, not bool) {
		switch {
		case t.op == opAnd || t.op == opOr:
			walk(t.a, false)
			walk(t.b, false)
		case t.op == opNot:
			walk(t.a, true)
		case t.reads(o) && !t.asksBoth():
			tests++
			negated = not
			text = c.text(t, o.image, not)
		}
	}
	walk(c.root, false)
	name := c.columns[o.column]
	if tests > 1 || text == "" {
		return fmt.Sprintf("ask the same of both images, joined by ||; right as it is where %s never changes", name)
	}
	swapped := []string{text, text}
	for i, image := range []Image{Before, After} {
		swapped[i] = strings.ReplaceAll(text, imageMark, string(image))
	}
	both := strings.Join(swapped, " || ")
	if root := c.root; root.op == opAnd || root.op == opOr || root.op == opNot && !negated {
		both = "(" + both + ")"
	}
	return fmt.Sprintf("write %s; right as it is where %s never changes", both, name)
}

// imageMark stands for the image in a test's text. No text of a file, which is UTF-8, holds it.
const imageMark = "\xff"

// text writes a test out, with imageMark for image. It is empty where that would need more than a line's worth of words.
func (c *condition) text(t *term, image Image, not bool) string {
	is := func(yes, no string) string {
		if not {
			return no
		}
		return yes
	}
	left, right := c.operandText(t.left, image), c.operandText(t.right, image)
	switch t.op {
	case opTruth:
		return is("", "!") + left
	case opIsNull:
		return left + is(" == ", " != ") + "null"
	case opEqual:
		return left + is(" == ", " != ") + right
	case opLess:
		return is(left+" < "+right, left+" >= "+right)
	case opLessEqual:
		return is(left+" <= "+right, left+" > "+right)
	case opIn:
		list := make([]string, len(t.list))
		for i, e := range t.list {
			list[i] = c.operandText(e, image)
		}
		return left + is(" in [", " not in [") + strings.Join(list, ", ") + "]"
	}
	words := map[operator]string{opContains: "contains", opStartsWith: "startsWith", opEndsWith: "endsWith", opMatches: "matches"}
	return left + is(" ", " not ") + words[t.op] + " " + right
}

// identifier is a column's name that needs no quotes.
var identifier = regexp.MustCompile(`^[A-Za-z_$][A-Za-z0-9_$]*$`)

func (c *condition) operandText(o operand, image Image) string {
	if o.image == "" {
		if o.literal == literalText {
			return quoted(o.text)
		}
		return o.text
	}
	at, name := string(o.image), c.columns[o.column]
	if o.image == image {
		at = imageMark
	}
	if identifier.MatchString(name) {
		return at + "." + name
	}
	return at + "[" + quoted(name) + "]"
}

func quoted(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`, "\n", `\n`).Replace(s) + "'"
}
