package mapping

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"invalidator/cdc"
)

// LiveTopics is what the topics of a source that somebody else feeds show of its tables.
type LiveTopics struct {
	Format    string      // as the configuration names it
	Typed     bool        // every record of this format names its columns' types
	Unwrapped bool        // the records are rows alone: an update has no before image
	Asked     bool        // the topics' newest records were read; else nothing is known of them
	Count     int         // topics that the source's pattern chooses
	Tables    []LiveTable // those of the newest records
}

// LiveTable is a table as the newest records of a topic show it.
type LiveTable struct {
	cdc.TableID
	Typed bool     // each of them names its columns' types
	Key   []string // the record key's fields; nil where none has any
	NoOld string   // set where the newest update or delete has no old row beside its key: what has the connector write it
}

// topics looks at what the records of those sources leave open that somebody else feeds. Where none of them shows the table, and
// nothing else may give it (fed: a database of ours does), it says so.
func (l *tableLint) topics(m *Mapping, name string, n *yaml.Node, sources []LiveSource, fed bool) {
	var asked []string
	elsewhere, count, unknown := fed, 0, 0
	for _, s := range sources {
		if s.Unknown {
			unknown++
		}
	}
	for _, s := range sources {
		elsewhere = elsewhere || s.Topics == nil && s.Unknown || s.Topics != nil && !s.Topics.Asked
		if s.Topics == nil {
			continue
		}
		if s.Topics.Asked {
			asked, count = append(asked, s.Name), count+s.Topics.Count
		}
		shown := false
		for i := range s.Topics.Tables {
			if t := &s.Topics.Tables[i]; matches(name, t.Schema, t.Table) && m.covers(s.Name, t.Database, t.Schema, t.Table) {
				shown, elsewhere = true, true
				l.leftOpen(m, s, t)
			}
		}
		if !shown && !fed && unknown == 1 { // of several it is not known which feeds the table
			l.leftOpen(m, s, nil)
		}
	}
	if elsewhere || len(asked) == 0 {
		return
	}
	word := "source"
	if len(asked) > 1 {
		word = "sources"
	}
	l.at(n, SeverityWarning, "", "names are compared by case; right where nothing of it was written lately",
		"no change of %s stands among the newest records of the topics of %s %s (%d of them)", name, word, strings.Join(asked, ", "), count)
}

// leftOpen tells what the records of a table leave open; t is nil where none was seen.
func (l *tableLint) leftOpen(m *Mapping, s LiveSource, t *LiveTable) {
	typed := s.Topics.Typed || t != nil && t.Typed
	var told []string
	for _, template := range m.Templates {
		for _, p := range template.variants[0] {
			if p.column == "" {
				continue
			}
			if !typed && !template.Raw && !slices.Contains(told, p.column) && !l.declaredFor(m, p.column) {
				told = append(told, p.column)
				l.untyped(m, template, p, s, t)
			}
			if isFlag(m.Types[p.column]) && s.Topics.Format != formatMaxwell && !slices.Contains(told, p.column) {
				told = append(told, p.column)
				l.flag(template, p, s, t)
			}
			switch {
			case s.Topics.Unwrapped:
				l.unwrapped(template, p, s, t)
			case t != nil && t.NoOld != "" && !slices.Contains(t.Key, p.column):
				l.noOld(template, p, s, t)
			}
		}
		if s.Topics.Unwrapped && template.condition != nil {
			l.unwrappedCondition(m, template, s, t)
		}
	}
}

// declaredFor reports whether a mapping says what type a column of all of m's tables is.
func (l *tableLint) declaredFor(m *Mapping, column string) bool {
	return !slices.ContainsFunc(m.Tables, func(name string) bool {
		return !slices.ContainsFunc(l.set.mappings, func(o *Mapping) bool {
			if o.Types[column] == "" || o.Source != "" && o.Source != m.Source || o.Database != "" && o.Database != m.Database {
				return false
			}
			schema, table, _ := strings.Cut(name, ".")
			return slices.Contains(o.Tables, name) || !isPattern(name) && slices.ContainsFunc(o.Tables, func(p string) bool { return matches(p, schema, table) })
		})
	})
}

// untyped warns of a column whose meaning its records leave open, and notes one whose records nobody has seen.
func (l *tableLint) untyped(m *Mapping, template *Template, p part, s LiveSource, t *LiveTable) {
	line, col := l.r.within(template.node, p.at)
	table, severity := "", SeverityWarning
	if t != nil {
		table = t.TableID.String()
	}
	why := fmt.Sprintf("the records of source %s have no schema, and there bytes, bits, a decimal, a date or a time stand otherwise than SELECT shows them", s.Name)
	switch {
	case s.Topics.Format == formatMaxwell:
		why = fmt.Sprintf("Maxwell's records (source %s) name no types, and there bytes, a set or a document stand otherwise than SELECT shows them; a number with a point is refused", s.Name)
	case t == nil:
		severity = SeverityNote
		why = fmt.Sprintf("where the records of source %s have no schema, bytes, bits, a decimal, a date or a time stand otherwise than SELECT shows them", s.Name)
	}
	l.add(Problem{File: template.File, Line: line, Col: col, Severity: severity, Hint: toDeclare(m, p.column),
		What: fmt.Sprintf("nobody says of which type column %s is: %s", p.column, why)}, table)
}

// isFlag reports whether a declared type is the one that MySQL's connectors can be told to make a boolean of.
func isFlag(declared string) bool {
	word, rest, _ := strings.Cut(strings.ToLower(strings.ReplaceAll(declared, " ", "")), "(")
	return word == "tinyint" && strings.HasPrefix(rest, "1)")
}

// flag notes what a boolean does not tell of a number.
func (l *tableLint) flag(template *Template, p part, s LiveSource, t *LiveTable) {
	line, col := l.r.within(template.node, p.at)
	table := ""
	if t != nil {
		table = t.TableID.String()
	}
	l.add(Problem{File: template.File, Line: line, Col: col, Severity: SeverityNote, Hint: "let the connector write numbers (no TinyIntOneToBooleanConverter)",
		What: fmt.Sprintf("where the connector of source %s makes a boolean of column %s, every value but 0 is 1 here, and the key of a 9 cannot be told from it", s.Name, p.column)}, table)
}

// formatMaxwell is the format's name in the configuration.
const formatMaxwell = "maxwell"

// toDeclare is the line that says a column's type.
func toDeclare(m *Mapping, column string) string {
	const as = "with the database's own word: bigint unsigned, decimal(10,2), binary(16), datetime(6), varchar(100)"
	if len(m.Types) > 0 {
		return fmt.Sprintf("add %s: … to columns of mapping %s, %s", column, m.Name, as)
	}
	return fmt.Sprintf("give mapping %s the line columns: {%s: …}, %s", m.Name, column, as)
}

const rowsAlone = "key by columns that never change, or let the connector write its envelope (no ExtractNewRecordState)"

// unwrapped warns of a column whose old value an update does not say.
func (l *tableLint) unwrapped(template *Template, p part, s LiveSource, t *LiveTable) {
	line, col := l.r.within(template.node, p.at)
	problem := Problem{File: template.File, Line: line, Col: col, Severity: SeverityWarning, Hint: rowsAlone}
	const stays = "an update has no old row, so that the key of its old value stays"
	switch {
	case t == nil:
		problem.What = fmt.Sprintf("source %s is unwrapped: unless column %s is of the record's key, %s", s.Name, p.column, stays)
		l.add(problem, "")
	case len(t.Key) == 0:
		problem.What = fmt.Sprintf("source %s is unwrapped, and its records have no key: of column %s %s", s.Name, p.column, stays)
		problem.Hint = "let the connector write a key (message.key.columns), and " + rowsAlone
		l.add(problem, t.TableID.String())
	case !slices.Contains(t.Key, p.column):
		problem.What = fmt.Sprintf("source %s is unwrapped, and column %s is not of the record's key (%s): %s", s.Name, p.column, strings.Join(t.Key, ", "), stays)
		l.add(problem, t.TableID.String())
	}
}

// unwrappedCondition notes what a condition cannot be told.
func (l *tableLint) unwrappedCondition(m *Mapping, template *Template, s LiveSource, t *LiveTable) {
	for i, column := range template.condition.columns {
		asks := slices.ContainsFunc(template.condition.root.leaves(nil), func(x *term) bool {
			return x.op == opChanged && slices.Contains(x.columns, i) || x.reads(operand{image: Before, column: i})
		})
		if !asks || t != nil && slices.Contains(t.Key, column) {
			continue
		}
		table := ""
		if t != nil {
			table = t.TableID.String()
		}
		l.at(m.when(template), SeverityNote, table, "let the connector write its envelope",
			"source %s is unwrapped: the old value of column %s is not known, and a condition that asks for it counts as true", s.Name, column)
	}
}

// noOld warns of a column whose old value the envelopes of a table lack.
func (l *tableLint) noOld(template *Template, p part, s LiveSource, t *LiveTable) {
	line, col := l.r.within(template.node, p.at)
	l.add(Problem{File: template.File, Line: line, Col: col, Severity: SeverityWarning, Hint: t.NoOld,
		What: fmt.Sprintf("the old value of column %s is not known, so that an update leaves its old key: the newest records of source %s have no old row beside the key", p.column, s.Name)}, t.TableID.String())
}
