package mysql

import (
	"slices"
	"strings"

	"invalidator/cdc"
	"invalidator/cdc/internal/sqltext"
)

// verb is what a statement in the log means to a reader of rows.
type verb int

const (
	verbOther        verb = iota // no row changed
	verbBegin                    // a transaction starts
	verbEnd                      // a transaction ends
	verbInside                   // neither starts nor ends one, and changes no row
	verbTruncate                 // all rows of tables went, or came: TRUNCATE, DROP, RENAME
	verbDropDatabase             // tables[0].Schema went, with all its tables
	verbLost                     // rows changed, and the log does not show them
	verbXAStart                  // a transaction starts that a later one commits, or rolls back
	verbXACommit
	verbXARollback
)

// reach says whose layouts a statement may have changed.
//
// A table without a name stands for all of its database.
type reach int

const (
	reachAll    reach = iota // it is not understood
	reachNone                //
	reachTables              // those of its tables
)

// touches reports whether a table's layout may have changed.
func (st *statement) touches(id cdc.TableID) bool {
	switch {
	case st.keeps:
		return false
	case st.reach == reachTables:
		return slices.Contains(st.tables, id) || slices.Contains(st.tables, cdc.TableID{Schema: id.Schema})
	}
	return st.reach == reachAll
}

// statement is what recognise made of a query event's text.
type statement struct {
	verb   verb
	reach  reach
	keeps  bool          // it changes no columns and no primary key, although it reaches tables: their schemas stay
	word   string        // its first word, upper case
	tables []cdc.TableID // concerned; Table is empty where the text does not say more than the database
	why    string        // of verbLost
	xid    string        // of the XA verbs: the same for all statements of one

	renames []renaming // in their order, where it does nothing else to tables
}

// renaming gives a table another name, which none has at that moment.
type renaming struct{ from, to cdc.TableID }

// as writes the statement's names as the server keeps them.
func (st *statement) as(srv *server) {
	for i, id := range st.tables {
		st.tables[i] = srv.tableID(id.Schema, id.Table)
	}
	for i, x := range st.renames {
		st.renames[i] = renaming{srv.tableID(x.from.Schema, x.from.Table), srv.tableID(x.to.Schema, x.to.Table)}
	}
}

// renamed gives the name under which a table goes on with its layout, where the statement does nothing else to it.
func (st *statement) renamed(id cdc.TableID) (now cdc.TableID, ok bool) {
	now = id
	for _, x := range st.renames {
		if x.from == now {
			now, ok = x.to, true
		}
	}
	return now, ok
}

// scanner reads what statements have in common.
type scanner struct{ sqltext.Scanner }

// recognise looks at a statement as far as it must to tell which rows and layouts it may have changed. What it does not know
// reaches all layouts, which costs a look at the schema.
func recognise(text, database string) statement {
	s := &scanner{sqltext.Scanner{Text: text}}
	word := s.Keyword()
	st := statement{word: word, reach: reachNone}
	switch word {
	case "BEGIN":
		st.verb = verbBegin
	case "START":
		if s.Has("TRANSACTION") {
			st.verb = verbBegin
		}
	case "COMMIT":
		st.verb = verbEnd
	case "ROLLBACK":
		if st.verb = verbEnd; s.SkipTo("TO") != "" {
			st.verb = verbInside
		}
	case "SAVEPOINT", "RELEASE":
		st.verb = verbInside
	case "XA":
		st.xa(s)
	case "CREATE":
		st.create(s, database)
	case "DROP":
		st.drop(s, database)
	case "ALTER":
		st.alter(s, database)
	case "RENAME":
		if s.Has("TABLE") || s.Has("TABLES") {
			st.rename(s, database)
		}
	case "TRUNCATE":
		s.Has("TABLE")
		st.truncate(s.Names(database))
		st.keeps = st.reach == reachTables
	case "GRANT", "REVOKE", "FLUSH", "OPTIMIZE", "REPAIR", "CHECK", "INSTALL", "UNINSTALL", "BINLOG", "LOCK", "UNLOCK":
	default:
		st.changeRows(s, word, database)
	}
	return st
}

func (st *statement) truncate(tables []cdc.TableID) {
	st.verb, st.reach, st.tables = verbTruncate, reachTables, tables
	if len(tables) == 0 {
		st.verb, st.reach = verbOther, reachAll
	}
}

// xa: rows stand in the group of XA START; XA COMMIT and XA ROLLBACK are groups of their own, and name it.
func (st *statement) xa(s *scanner) {
	switch s.Keyword() {
	case "START", "BEGIN":
		st.verb = verbXAStart
	case "COMMIT":
		st.verb = verbXACommit
	case "ROLLBACK":
		st.verb = verbXARollback
	default:
		st.verb = verbInside
		return
	}
	st.xid = xidText(s.Text)
}

// xidText is X'67',X'62',1 as both servers write it into the log, without blanks and in upper case.
func xidText(text string) string {
	return strings.ToUpper(strings.Join(strings.Fields(text), ""))
}

// create: a table that is made with rows of a SELECT has them in the log, unless the whole statement is there instead.
func (st *statement) create(s *scanner, database string) {
	replace := false
	for {
		t := s.Next()
		if t.Text == "" {
			st.reach = reachAll
			return
		}
		if t.Quoted {
			continue
		}
		switch strings.ToUpper(t.Text) {
		case "REPLACE":
			replace = true
		case "TEMPORARY", "VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "USER", "ROLE", "SERVER", "TABLESPACE", "LOGFILE",
			"RESOURCE", "PACKAGE", "SEQUENCE":
			return
		case "DATABASE", "SCHEMA":
			if replace {
				st.dropDatabase(s)
			}
			return
		case "INDEX":
			st.reachOn(s, database)
			st.keeps = st.reach == reachTables
			return
		case "TABLE":
			st.createTable(s, database, replace)
			return
		}
	}
}

func (st *statement) createTable(s *scanner, database string, replace bool) {
	s.Skip("IF", "NOT", "EXISTS")
	id, ok := s.Name(database)
	if !ok {
		st.reach = reachAll
		return
	}
	if st.truncate([]cdc.TableID{id}); replace {
		return
	}
	st.verb = verbOther
	for t := s.Next(); t.Text != "" || t.Quoted; t = s.Next() {
		if !t.Quoted && strings.EqualFold(t.Text, "SELECT") {
			st.verb, st.why = verbLost, "CREATE TABLE … SELECT was logged as a statement"
			return
		}
	}
}

// reachOn: an index may be a hidden column, and one that is dropped the primary key.
func (st *statement) reachOn(s *scanner, database string) {
	st.reach = reachAll
	if s.SkipTo("ON") != "" {
		if id, ok := s.Name(database); ok {
			st.reach, st.tables = reachTables, []cdc.TableID{id}
		}
	}
}

func (st *statement) drop(s *scanner, database string) {
	switch s.Keyword() {
	case "TABLE", "TABLES":
		s.Skip("IF", "EXISTS")
		st.truncate(s.Names(database))
	case "DATABASE", "SCHEMA":
		st.dropDatabase(s)
	case "INDEX":
		st.reachOn(s, database)
	case "TEMPORARY", "VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "USER", "ROLE", "SERVER", "TABLESPACE", "RESOURCE",
		"PACKAGE", "SEQUENCE", "PREPARE", "UNDO", "LOGFILE", "SPATIAL":
	default:
		st.reach = reachAll
	}
}

func (st *statement) dropDatabase(s *scanner) {
	s.Skip("IF", "NOT", "EXISTS")
	st.reach = reachAll
	if id, ok := s.Name(""); ok {
		st.verb, st.reach, st.tables = verbDropDatabase, reachTables, []cdc.TableID{{Schema: id.Table}}
	}
}

// rename: rows leave one name and come under another. A swap of tables is two of them.
func (st *statement) rename(s *scanner, database string) {
	var all []cdc.TableID
	for whole := false; !whole; {
		s.Skip("IF", "EXISTS")
		from, ok := s.Name(database)
		if !ok || s.SkipTo("TO") == "" {
			st.renames = nil
			break
		}
		to, ok := s.Name(database)
		if !ok {
			st.renames = nil
			break
		}
		st.renames = append(st.renames, renaming{from, to})
		for _, id := range []cdc.TableID{from, to} {
			if !slices.Contains(all, id) {
				all = append(all, id)
			}
		}
		whole = !s.Has(",")
	}
	st.truncate(all)
}

// alter looks for those that take rows away or bring some: of partitions, of tablespaces, and a new name.
func (st *statement) alter(s *scanner, database string) {
	s.Skip("ONLINE", "IGNORE")
	switch s.Keyword() {
	case "TABLE":
	case "DATABASE", "SCHEMA", "VIEW", "PROCEDURE", "FUNCTION", "EVENT", "USER", "ROLE", "SERVER", "TABLESPACE", "SEQUENCE", "INSTANCE",
		"RESOURCE", "LOGFILE", "UNDO", "ALGORITHM", "DEFINER", "SQL":
		return
	default:
		st.reach = reachAll
		return
	}
	s.Skip("IF", "EXISTS")
	id, ok := s.Name(database)
	if !ok {
		st.reach = reachAll
		return
	}
	st.reach, st.tables = reachTables, []cdc.TableID{id}
	alone := *s
	if alone.Has("RENAME") && st.alterRename(&alone, database) && alone.Next() == (sqltext.Token{}) {
		st.renames = []renaming{{id, st.tables[1]}}
		return
	}
	st.verb, st.tables = verbOther, st.tables[:1]
	for {
		switch word := s.SkipTo("DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT", "RENAME"); word {
		case "":
			return
		case "RENAME":
			st.alterRename(s, database)
		default:
			st.alterRows(s, database, word)
		}
	}
}

// alterRename reads what stands behind RENAME, and reports whether it is another name for the table.
func (st *statement) alterRename(s *scanner, database string) bool {
	for _, other := range []string{"COLUMN", "INDEX", "KEY"} {
		if s.Has(other) {
			return false
		}
	}
	s.Skip("TO", "AS", "=")
	id, ok := s.Name(database)
	if ok {
		st.tables = append(st.tables, id)
		if st.verb == verbOther {
			st.verb = verbTruncate
		}
	}
	return ok
}

func (st *statement) alterRows(s *scanner, database, word string) {
	what := ""
	switch {
	case s.Has("PARTITION"):
		what = " PARTITION"
	case s.Has("TABLESPACE"):
		what = " TABLESPACE"
	case word == "CONVERT" && s.Has("TABLE"):
		what = " TABLE"
		if id, ok := s.Name(database); ok {
			st.tables = append(st.tables, id)
		}
	default:
		return
	}
	st.verb, st.why = verbLost, "ALTER TABLE … "+word+what
	if word == "EXCHANGE" || word == "CONVERT" && what == " PARTITION" {
		rest := *s
		if rest.SkipTo("TABLE") != "" {
			if id, ok := rest.Name(database); ok {
				st.tables = append(st.tables, id)
			}
		}
	}
}
