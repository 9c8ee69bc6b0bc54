package mapping

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"invalidator/cdc"
)

// Plan is the templates of one table, compiled into column indexes. It is immutable.
type Plan struct {
	Columns   *cdc.Columns
	Templates []*Template // in the order of the files

	compiled []compiled
}

// compiled is a template with the places of its columns in the plan's Columns.
type compiled struct {
	*Template
	at          []int // by part; noColumn for a literal
	conditionAt []int // by the condition's columns
	many        bool  // a part gives any number of texts
}

// planner gathers the columns of a plan.
type planner struct {
	list  []cdc.Column
	index map[string]int
}

func (p *planner) column(name string) int {
	at, ok := p.index[name]
	if !ok {
		at = len(p.list)
		p.index[name] = at
		p.list = append(p.list, cdc.Column{Name: name})
	}
	return at
}

// compile joins what all mappings of a table read. That they agree on types was checked when the Set was made.
func compile(mappings []*Mapping) *Plan {
	p := &Plan{}
	columns := planner{index: map[string]int{}}
	for _, m := range mappings {
		for _, t := range m.Templates {
			c := compiled{Template: t, at: make([]int, len(t.parts))}
			for i, part := range t.variants[0] {
				c.at[i] = noColumn
				if part.column != "" {
					c.at[i] = columns.column(part.column)
				}
				c.many = c.many || slices.ContainsFunc(part.filters, (*filter).isElements)
			}
			if t.condition != nil {
				for _, name := range t.condition.columns {
					c.conditionAt = append(c.conditionAt, columns.column(name))
				}
			}
			p.Templates = append(p.Templates, t)
			p.compiled = append(p.compiled, c)
		}
	}
	for _, m := range mappings {
		for name, typ := range m.Types {
			if at, ok := columns.index[name]; ok {
				columns.list[at].Type = typ
			}
		}
	}
	p.Columns = cdc.NewColumns(columns.list)
	return p
}

// contradictions finds where f cannot live beside the files that stand before it, or where it contradicts itself.
func contradictions(f *File, earlier []*File) (problems []Problem) {
	report := func(line, col int, hint, format string, args ...any) {
		problems = append(problems, Problem{File: f.Name, Line: line, Col: col, Severity: SeverityError, What: fmt.Sprintf(format, args...), Hint: hint})
	}
	var before []*Mapping
	for _, e := range earlier {
		if filepath.Base(e.Name) == filepath.Base(f.Name) {
			report(1, 1, "rename one", "file %s has the same name", e.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(f.claims)) {
			if n := e.claims[name]; n != nil {
				report(f.claims[name].Line, f.claims[name].Column, "one team owns a pool", "pool %q is claimed by %s:%d already", name, e.Name, n.Line)
			}
		}
		before = append(before, e.Mappings...)
	}
	for _, m := range f.Mappings {
		names := slices.Sorted(maps.Keys(m.Types))
		for _, o := range before {
			for _, name := range names {
				if other, ok := o.Types[name]; ok && other != m.Types[name] && mayShareTable(m, o) {
					n := m.declared[name]
					report(n.Line, n.Column, "a column has one type", "column %s is %s here and %s in %s:%d, of a table that both map",
						name, m.Types[name], other, o.file, o.declared[name].Line)
				}
			}
		}
		before = append(before, m)
	}
	return problems
}

// mayShareTable reports whether some table may be both mappings'.
func mayShareTable(m, o *Mapping) bool {
	if m.Source != "" && o.Source != "" && m.Source != o.Source || m.Database != "" && o.Database != "" && m.Database != o.Database {
		return false
	}
	for _, a := range m.Tables {
		if slices.ContainsFunc(o.Tables, func(b string) bool { return mayMatchSame(a, b) }) {
			return true
		}
	}
	return false
}

// mayMatchSame reports whether a text may exist that both table names match. A character class counts as any character,
// so that it errs towards yes.
func mayMatchSame(a, b string) bool {
	as, bs := glob(a), glob(b)
	// reach[j]: the tokens of a so far and the first j of b match some same text.
	reach := make([]bool, len(bs)+1)
	for i := 0; i <= len(as); i++ {
		next := make([]bool, len(bs)+1)
		for j := 0; j <= len(bs); j++ {
			switch {
			case i == 0 && j == 0:
				next[0] = true
			case i > 0 && reach[j] && as[i-1] == anyText, j > 0 && next[j-1] && bs[j-1] == anyText:
				next[j] = true
			case i > 0 && j > 0 && (as[i-1] == anyText && next[j-1] || bs[j-1] == anyText && reach[j]):
				next[j] = true
			case i > 0 && j > 0 && reach[j-1]:
				next[j] = as[i-1] == bs[j-1] || as[i-1] == anyRune || bs[j-1] == anyRune
			}
		}
		reach = next
	}
	return reach[len(bs)]
}

const (
	anyText rune = -1 // *
	anyRune rune = -2 // ? and [a-z]
)

// glob splits a pattern of path.Match into its tokens.
func glob(pattern string) (tokens []rune) {
	runes := []rune(pattern)
	for i := 0; i < len(runes); i++ {
		switch c := runes[i]; c {
		case '*':
			tokens = append(tokens, anyText)
		case '?':
			tokens = append(tokens, anyRune)
		case '[':
			tokens = append(tokens, anyRune)
			for i++; i < len(runes) && runes[i] != ']'; i++ {
				if runes[i] == '\\' {
					i++
				}
			}
		case '\\':
			if i++; i < len(runes) {
				tokens = append(tokens, runes[i])
			}
		default:
			tokens = append(tokens, c)
		}
	}
	return tokens
}
