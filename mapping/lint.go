package mapping

import (
	"fmt"
	"slices"
	"strings"
)

// SeverityNote grades what may well be meant: somebody who reviews the file should know.
const SeverityNote Severity = "note"

// Lint looks at what the loader takes and a reviewer would ask about: conditions that ask one image alone, and templates that
// are equal when the names of their columns are left out, and outboxes that a TRUNCATE may sweep.
func (s *Set) Lint() []Problem {
	problems := slices.Concat(s.alike(), s.oneSided(), s.sweptOutboxes())
	sortProblems(problems)
	return problems
}

// alike finds templates of one shape. user:{id} and user:{email} are two meanings of one key; user:{id} of one table and
// user:{user_id} of another are mostly one meaning.
func (s *Set) alike() (problems []Problem) {
	for _, f := range s.files {
		first := map[string]placed{} // by shape; a pool is one file's, so that no two files share one
		for _, m := range f.Mappings {
			for _, t := range m.Templates {
				shape := t.shape()
				if t.Raw || !strings.Contains(shape, shapeColumn) {
					continue
				}
				o, ok := first[shape]
				if !ok {
					first[shape] = placed{m, t}
					continue
				}
				if o.m != m || !slices.EqualFunc(o.t.references(), t.references(), func(a, b part) bool { return a.column == b.column }) {
					problems = append(problems, sameShape(o, placed{m, t}))
				}
			}
		}
	}
	return problems
}

// placed is a template in its mapping.
type placed struct {
	m *Mapping
	t *Template
}

// shapeColumn stands for any column, through any filters, in a shape. A template's literal text, which is UTF-8, never holds it.
const shapeColumn = "\xff"

// shape is the template without the names of its columns and their filters.
func (t *Template) shape() string {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.literal)
		if p.column != "" {
			b.WriteString(shapeColumn)
		}
	}
	return b.String()
}

// sameShape tells of two templates of one shape. That a number and a text are the same thing is unlikely.
func sameShape(a, b placed) Problem {
	p := Problem{File: b.t.File, Line: b.t.Line, Col: b.t.Col, Severity: SeverityNote,
		Hint: "right where they hold the same thing; else put a word between, as in user:by-email:{email}"}
	of := ""
	if a.m != b.m {
		of = " of " + strings.Join(a.m.Tables, ", ")
	}
	p.What = fmt.Sprintf("%s gives the keys of %s%s in line %d: a row of one may share its key with a row of the other", b.t.Text, a.t.Text, of, a.t.Line)
	as, bs := a.t.references(), b.t.references()
	for i := range as {
		ta, tb := a.m.Types[as[i].column], b.m.Types[bs[i].column]
		if ta != "" && tb != "" && isNumber(ta) != isNumber(tb) && len(as[i].filters)+len(bs[i].filters) == 0 {
			p.Severity = SeverityWarning
			p.What += fmt.Sprintf(", and %s is %s where %s is %s", bs[i].column, tb, as[i].column, ta)
		}
	}
	return p
}

// references are the parts that are columns.
func (t *Template) references() (refs []part) {
	for _, p := range t.parts {
		if p.column != "" {
			refs = append(refs, p)
		}
	}
	return refs
}
