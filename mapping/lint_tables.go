package mapping

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"invalidator/cdc"
)

// LiveSource is a configured source, as its database describes it now, or as its topics show it where somebody else feeds it.
type LiveSource struct {
	Name    string
	Include *cdc.Include    // which tables are fed
	Tables  []cdc.TableInfo // those that mappings name, fed or not
	Unknown bool            // it could not be asked, or somebody else feeds it: which tables it has is not known
	Topics  *LiveTopics     // of one that somebody else feeds; else nil
}

// Patterns are all tables that the mappings name, as patterns of a cdc.Include.
func (s *Set) Patterns() []string {
	var all []string
	for _, m := range s.mappings {
		all = append(all, m.Tables...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// LintTables compares the mappings with the tables as they are: what cannot work is an error, what the log will say only in part
// is a warning. Of the tables of a pattern that lack the same thing the first is named.
func (s *Set) LintTables(sources []LiveSource) []Problem {
	var problems []Problem
	for _, f := range s.files {
		l := &tableLint{set: s, r: &fileReader{reader: reader{file: f.Name, lines: bytes.Split(f.data, []byte("\n"))}, f: f}, seen: map[string]*seenProblem{}}
		for _, m := range f.Mappings {
			l.mapping(m, sources)
		}
		problems = append(problems, l.problems()...)
	}
	sortProblems(problems)
	return problems
}

// tableLint looks at the mappings of one file.
type tableLint struct {
	set   *Set
	r     *fileReader
	order []*seenProblem
	seen  map[string]*seenProblem
}

// seenProblem is one problem, of one table or of several.
type seenProblem struct {
	Problem
	table string // the first; empty where it is about none
	more  int
}

func (l *tableLint) add(p Problem, table string) {
	id := fmt.Sprint(p.Line, p.Col, p.What)
	if s := l.seen[id]; s != nil {
		s.more++
		return
	}
	l.seen[id] = &seenProblem{Problem: p, table: table}
	l.order = append(l.order, l.seen[id])
}

func (l *tableLint) problems() (all []Problem) {
	for _, s := range l.order {
		if s.table != "" {
			of := s.table
			if s.more > 0 {
				of = fmt.Sprintf("%s and %d more", s.table, s.more)
			}
			s.What = "table " + of + ": " + s.What
		}
		all = append(all, s.Problem)
	}
	return all
}

func (l *tableLint) at(n *yaml.Node, sev Severity, table, hint, format string, args ...any) {
	l.add(Problem{File: l.r.file, Line: n.Line, Col: n.Column, Severity: sev, What: fmt.Sprintf(format, args...), Hint: hint}, table)
}

func (l *tableLint) mapping(m *Mapping, sources []LiveSource) {
	var mine []LiveSource
	for _, s := range sources {
		if m.Source == "" || m.Source == s.Name {
			mine = append(mine, s)
		}
	}
	if len(mine) == 0 {
		hint := didYouMean(m.Source, sourceNames(sources))
		l.at(m.field("source"), SeverityError, "", hint, "no source of the configuration is called %q", m.Source)
		return
	}
	for i, name := range m.Tables {
		l.table(m, name, m.tableNode(i), mine)
	}
}

// table looks at one entry of table or tables.
func (l *tableLint) table(m *Mapping, name string, n *yaml.Node, sources []LiveSource) {
	found, fed, unknown := "", false, false
	for _, s := range sources {
		unknown = unknown || s.Unknown
		for i := range s.Tables {
			t := &s.Tables[i]
			if !matches(name, t.Schema, t.Table) || !m.covers(s.Name, t.Database, t.Schema, t.Table) {
				continue
			}
			found = s.Name
			if s.Include.Match(t.Schema, t.Table) {
				fed = true
				l.compare(m, t, n)
			}
		}
	}
	l.topics(m, name, n, sources, fed)
	switch {
	case fed, unknown:
	case found != "":
		l.at(n, SeverityError, "", "add it to include", "no source feeds %s: source %s has it, and its include leaves it out", name, found)
	case isPattern(name):
		l.at(n, SeverityError, "", "names are compared by case", "no table matches %s in %s", name, inSources(sources))
	default:
		l.at(n, SeverityError, "", "names are compared by case; for a table to come, add it first", "no table %s exists in %s", name, inSources(sources))
	}
}

// compare looks at what one table gives the mapping's templates.
func (l *tableLint) compare(m *Mapping, t *cdc.TableInfo, n *yaml.Node) {
	name := t.TableID.String()
	if t.Unsent.What != "" {
		l.at(n, SeverityError, name, t.Unsent.Hint, "%s", t.Unsent.What)
		return
	}
	for _, p := range t.Partial {
		l.at(n, SeverityWarning, name, p.Hint, "%s", p.What)
	}
	for _, column := range slices.Sorted(maps.Keys(m.Types)) {
		if live := t.Column(column); live != nil && disagree(m.Types[column], live.Type) {
			l.at(m.declared[column], SeverityWarning, name, "write "+column+": "+live.Type, "column %s is declared %s and is %s", column, m.Types[column], live.Type)
		}
	}
	for _, template := range m.Templates {
		l.template(m, template, t)
	}
}

func (l *tableLint) template(m *Mapping, t *Template, table *cdc.TableInfo) {
	name := table.TableID.String()
	for _, p := range t.variants[0] {
		if p.column == "" {
			continue
		}
		line, col := l.r.within(t.node, p.at)
		live := l.column(line, col, table, p.column)
		if live == nil {
			continue
		}
		if lack := live.OldUnsent; lack.What != "" {
			l.add(Problem{File: t.File, Line: line, Col: col, Severity: SeverityWarning, Hint: lack.Hint,
				What: fmt.Sprintf("the old value of column %s is not known, so that an update leaves its old key: %s", p.column, lack.What)}, name)
		}
		l.r.problems = nil
		l.r.checkTypes(t, p, strings.ToLower(live.Type))
		for _, x := range l.r.problems {
			l.add(x, name)
		}
	}
	if t.condition == nil {
		return
	}
	when := m.when(t)
	for _, column := range t.condition.columns {
		if live := l.column(when.Line, when.Column, table, column); live != nil && live.OldUnsent.What != "" {
			l.at(when, SeverityNote, name, live.OldUnsent.Hint, "the old value of column %s is not known: a condition that asks for it counts as true", column)
		}
	}
}

// column finds a column that is read at a place, and says so where there is none to be read.
func (l *tableLint) column(line, col int, table *cdc.TableInfo, name string) *cdc.ColumnInfo {
	p := Problem{File: l.r.file, Line: line, Col: col, Severity: SeverityError}
	live := table.Column(name)
	switch {
	case live == nil:
		p.What, p.Hint = "it has no column "+name, didYouMean(name, columnNames(table))
	case live.Unsent.What != "":
		p.What, p.Hint = "column "+name+" is never seen: "+live.Unsent.What, live.Unsent.Hint
	default:
		return live
	}
	l.add(p, table.TableID.String())
	return nil
}

// disagree reports whether a declared type would make another key of a value than the live type does.
func disagree(declared, live string) bool {
	live = strings.ToLower(live)
	unsigned := func(t string) bool { return strings.Contains(t, "unsigned") }
	return typesOf(declared) != typesOf(live) || unsigned(declared) != unsigned(live) || fixedLength(declared) != fixedLength(live)
}

func columnNames(t *cdc.TableInfo) (names []string) {
	for _, c := range t.Columns {
		names = append(names, c.Name)
	}
	return names
}

func sourceNames(sources []LiveSource) (names []string) {
	for _, s := range sources {
		names = append(names, s.Name)
	}
	return names
}

func inSources(sources []LiveSource) string {
	word := "source "
	if len(sources) > 1 {
		word = "sources "
	}
	return word + strings.Join(sourceNames(sources), ", ")
}

// field is the value of one of the mapping's fields in its file.
func (m *Mapping) field(name string) *yaml.Node {
	for i := 0; i+1 < len(m.node.Content); i += 2 {
		if m.node.Content[i].Value == name {
			return m.node.Content[i+1]
		}
	}
	return m.node
}

// tableNode is where the mapping's i-th table stands.
func (m *Mapping) tableNode(i int) *yaml.Node {
	if tables := m.field("tables"); tables != m.node {
		return tables.Content[i]
	}
	return m.field("table")
}

// when is the condition of one of the mapping's templates in its file.
func (m *Mapping) when(t *Template) *yaml.Node {
	for _, entry := range m.field("keys").Content {
		if slices.Contains(entry.Content, t.node) {
			for i := 0; i+1 < len(entry.Content); i += 2 {
				if entry.Content[i].Value == "when" {
					return entry.Content[i+1]
				}
			}
		}
	}
	return t.node
}
