package mysql

import (
	"slices"
	"strings"

	"invalidator/cdc"
	"invalidator/cdc/internal/sqltext"
)

// changeRows is for statements that change rows, which are in the log where sessions do not log rows. The tables are those that
// the text names where one is changed: more than those that were changed, but never fewer, triggers and functions aside.
func (st *statement) changeRows(s *scanner, word, database string) {
	switch word {
	case "INSERT", "REPLACE":
		s.Skip("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
		if id, ok := s.Name(database); ok {
			st.tables = []cdc.TableID{id}
		}
	case "UPDATE":
		st.tables = s.references(database, "SET")
	case "DELETE":
		st.tables = s.deleted(database)
	case "LOAD":
		for s.SkipTo("INTO") != "" {
			if s.Has("TABLE") {
				st.tables = s.Names(database)
				break
			}
		}
	case "WITH":
		st.nested(s, database, s.SkipTo("UPDATE", "DELETE", "INSERT", "REPLACE", "SELECT"))
		return
	case "SET": // MariaDB: SET STATEMENT variable = value FOR statement
		if s.Has("STATEMENT") && s.SkipTo("FOR") != "" {
			st.nested(s, database, s.Keyword())
		}
		return
	case "ANALYZE": // MariaDB runs what it analyzes
		if w := s.SkipTo("TABLE", "TABLES", "UPDATE", "DELETE", "INSERT", "REPLACE", "SELECT"); w != "TABLE" && w != "TABLES" {
			st.nested(s, database, w)
		}
		return
	case "CALL", "SELECT", "DO":
	default:
		st.reach = reachAll
		return
	}
	st.verb, st.why = verbLost, word+" was logged as a statement"
	if len(st.tables) == 0 {
		st.tables = []cdc.TableID{{Schema: database}}
	}
}

func (st *statement) nested(s *scanner, database, word string) {
	if word == "WITH" || word == "SET" || word == "ANALYZE" {
		word = s.SkipTo("UPDATE", "DELETE", "INSERT", "REPLACE", "SELECT")
	}
	if word == "" {
		st.reach = reachAll
		return
	}
	st.changeRows(s, word, database)
}

// deleted: DELETE FROM t, DELETE t1, t2 FROM tables, DELETE FROM t1, t2 USING tables. What stands before the tables may be
// aliases of them.
func (s *scanner) deleted(database string) []cdc.TableID {
	s.Skip("LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY")
	if !s.Has("FROM") {
		s.SkipTo("FROM")
		return s.references(database, "WHERE", "ORDER", "LIMIT", "RETURNING")
	}
	rest := *s
	tables := rest.references(database, "USING", "WHERE", "ORDER", "LIMIT", "RETURNING", "BEFORE")
	if s.SkipTo("USING", "WHERE", "ORDER", "LIMIT", "RETURNING") == "USING" {
		tables = s.references(database, "WHERE", "ORDER", "LIMIT", "RETURNING")
	}
	return tables
}

// references reads the tables of a join up to one of the ends, those inside of parentheses too, but for subqueries.
func (s *scanner) references(database string, ends ...string) (tables []cdc.TableID) {
	here := true // a table's name may come
	for {
		rest := *s
		t := rest.Next()
		word := strings.ToUpper(t.Text)
		switch {
		case t == sqltext.Token{}:
			return tables
		case t.Quoted && !here:
			*s = rest
		case !t.Quoted && (slices.Contains(ends, word) || word == ";"):
			return tables
		case !t.Quoted && word == "(":
			*s = rest
			if sub := rest.Keyword(); !here || sub == "SELECT" || sub == "WITH" || sub == "VALUES" || sub == "TABLE" {
				s.CloseParens()
				here = false
			}
		case !t.Quoted && (word == "," || word == "JOIN" || word == "STRAIGHT_JOIN"):
			*s = rest
			here = true
		case here && !t.Quoted && (word == "LOW_PRIORITY" || word == "IGNORE" || word == "LATERAL"):
			*s = rest
		case here:
			id, ok := s.Name(database)
			if ok && !slices.Contains(tables, id) {
				tables = append(tables, id)
			}
			if here = false; !ok {
				*s = rest
			}
		default:
			*s = rest
		}
	}
}
