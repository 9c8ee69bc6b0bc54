package mapping

import (
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// knownTypes are the words that the servers' own types begin with. Anything else may be a type that somebody made, so a
// stranger is only warned of.
var knownTypes = strings.Fields(`tinyint smallint mediumint int integer bigint decimal numeric float double real float4 float8
	bit bool boolean char varchar character tinytext text mediumtext longtext binary varbinary tinyblob blob mediumblob longblob
	bytea enum set json jsonb date time timetz datetime timestamp timestamptz year interval uuid citext inet cidr macaddr name
	int2 int4 int8 bpchar`)

// unrenderable are the types that no key may hold: each source shows them in its own way.
var unrenderable = map[string]string{
	"float": "a float", "double": "a float", "real": "a float", "float4": "a float", "float8": "a float",
	"json": "a JSON document", "jsonb": "a JSON document",
}

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
		if w := typeWord(s); !slices.Contains(knownTypes, w) {
			r.warnf(value, didYouMean(w, knownTypes), "type %q is not one that the servers have built in", s)
		}
		m.Types[key.Value], m.declared[key.Value] = s, key
	})
}

// checkColumns compares what is declared with what the keys read.
func (r *fileReader) checkColumns(m *Mapping) {
	var read []string
	for _, t := range m.Templates {
		read = append(read, t.Columns()...)
		for _, p := range t.parts {
			declared := m.Types[p.column]
			if what := unrenderable[typeWord(declared)]; what != "" {
				r.add(SeverityError, t.Line, t.Col, "use a column with one text", "column "+p.column+" is "+what+", which no key can hold")
			}
			if len(p.filters) > 0 && p.filters[0].raw && isNumber(declared) {
				r.add(SeverityError, t.Line, t.Col, "", "filter "+p.filters[0].name+" takes bytes or a text, and column "+p.column+" is "+declared)
			}
		}
	}
	for name, n := range m.declared {
		if len(m.Templates) > 0 && !slices.Contains(read, name) {
			r.warnf(n, didYouMean(name, read), "no key of mapping %s reads column %q", m.Name, name)
		}
	}
}

func isNumber(t string) bool {
	w := typeWord(t)
	return w != "interval" && (strings.Contains(w, "int") && w != "point" || w == "decimal" || w == "numeric" || w == "bit")
}
