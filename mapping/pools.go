package mapping

import (
	"maps"
	"slices"
	"strings"
)

// Pools are the pools whose keys the rows of some tables of a source give, sorted: what must be flushed where changes of
// those tables were lost. A table is "schema.table", in which * and ? and classes are path.Match's. Where it is not certain
// whether a mapping is about a table (both may be patterns), it counts.
func (s *Set) Pools(source string, tables []string) []string {
	found := map[string]bool{}
	for _, f := range s.files {
		for _, m := range f.Mappings {
			if !m.mayMap(source, tables) {
				continue
			}
			for _, t := range m.Templates {
				if t.Raw { // a row's text is the key: any pool of the file
					for _, pool := range f.Pools {
						found[pool] = true
					}
					for _, pool := range f.Underivable {
						found[pool] = true
					}
					continue
				}
				found[t.Pool] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func (m *Mapping) mayMap(source string, tables []string) bool {
	if m.Source != "" && m.Source != source {
		return false
	}
	return slices.ContainsFunc(m.Tables, func(name string) bool {
		return slices.ContainsFunc(tables, func(table string) bool { return mayMatchSame(name, table) })
	})
}

// TablesIn are the tables of a schema that mappings of a source name exactly, sorted: a pattern names none.
func (s *Set) TablesIn(source, schema string) []string {
	var all []string
	for _, m := range s.mappings {
		if m.Source != "" && m.Source != source {
			continue
		}
		for _, name := range m.Tables {
			if table, ok := strings.CutPrefix(name, schema+"."); ok && !isPattern(name) {
				all = append(all, table)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
