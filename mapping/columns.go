package mapping

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// knownTypes are the words that the servers' own types begin with. Anything else may be a type that somebody made, so a
// stranger is only warned of.
var knownTypes = strings.Fields(`tinyint smallint mediumint int integer bigint decimal numeric float double real float4 float8
	bit bool boolean char varchar character tinytext text mediumtext longtext binary varbinary tinyblob blob mediumblob longblob
	bytea enum set json jsonb date time timetz datetime timestamp timestamptz year interval uuid citext inet cidr macaddr name
	int2 int4 int8 bpchar`)

// typeWord is the first word of a type: bigint of "bigint(20) unsigned".
func typeWord(t string) string {
	if i := strings.IndexAny(t, " ("); i >= 0 {
		return t[:i]
	}
	return t
}

// columns reads the types that a mapping declares.
func (r *fileReader) columns(n *yaml.Node, m *Mapping) {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "write columns: {id: bigint unsigned}", "columns must be names with types, not %s", describe(n))
		return
	}
	r.pairs(n, func(key, value *yaml.Node) {
		s, ok := r.text(value, "the type of column "+key.Value)
		if !ok {
			return
		}
		s = strings.Join(strings.Fields(strings.ToLower(s)), " ")
		if w := typeWord(strings.TrimRight(s, "[]")); !slices.Contains(knownTypes, w) {
			r.warnf(value, didYouMean(w, knownTypes), "type %q is not one that the servers have built in", s)
		}
		m.Types[key.Value], m.declared[key.Value] = s, key
	})
}

// checkColumns compares what is declared with what the keys read. Where a key is in error, it may be the one that reads a column.
func (r *fileReader) checkColumns(m *Mapping, whole bool) {
	var read []string
	for _, t := range m.Templates {
		read = append(read, t.Columns()...)
		for _, p := range t.parts {
			if declared, ok := m.Types[p.column]; ok && p.column != "" {
				r.checkTypes(t, p, declared)
			}
		}
	}
	for name, n := range m.declared {
		if whole && len(m.Templates) > 0 && !slices.Contains(read, name) {
			r.warnf(n, didYouMean(name, read), "no key of mapping %s reads column %q", m.Name, name)
		}
	}
}

// checkTypes follows a column's declared type through the filters.
func (r *fileReader) checkTypes(t *Template, p part, declared string) {
	fail := func(at int, hint, format string, args ...any) {
		line, col := r.within(t.node, at)
		r.add(SeverityError, line, col, hint, fmt.Sprintf(format, args...))
	}
	is, what := typesOf(declared), "column "+p.column+" is "+declared
	if is == typeFloat {
		fail(p.at, "use a column with one text", "column %s is a float, which no key can hold", p.column)
		return
	}
	for _, f := range p.filters {
		if f.takes&is == 0 {
			fail(f.at, hintFor(f, is), "filter %q takes %s, and %s", f.name, f.wants, what)
			return
		}
		if f.filterType == filterUUID && is == typeBytes && fixedLength(declared) > 0 && fixedLength(declared) != uuidLen {
			fail(f.at, "", "filter %q takes %s, and %s", f.name, f.wants, what)
			return
		}
		if f.gives != 0 {
			is, what = f.gives, f.name+" gives "+nameOfTypes(f.gives)
		}
	}
	if is == typeJSON {
		fail(p.at, "use json('path') to one scalar", "column %s is a JSON document, which no key can hold", p.column)
	}
}

// hintFor says what to write before a filter, or instead of it.
func hintFor(f *filter, is types) string {
	switch {
	case is == typeJSON:
		return "put json('path') before it"
	case is == typeDecimal && f.takes&typeInteger != 0:
		return "put int before it"
	case is == typeArray && f.takes&typeText != 0:
		return "put elements before it"
	}
	var names []string
	for _, o := range filters {
		general := o.takes == allTexts && o.gives == typeText || o == filterDefault || o == filterElements
		if o.takes&is != 0 && !general {
			names = append(names, o.name)
		}
	}
	return "it may go through " + strings.Join(names, ", ")
}

// fixedLength is the length of a binary(n); 0 where it has none.
func fixedLength(declared string) int {
	digits, ok := strings.CutPrefix(declared, "binary(")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSuffix(digits, ")"))
	if err != nil {
		return 0
	}
	return n
}
