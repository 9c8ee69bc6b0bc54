package envelope

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/internal/sqltext"
)

// A schema change is no change of a row, unless it takes rows away and no record says so row by row: TRUNCATE, DROP, RENAME and
// what is done to partitions. It is then a Truncate of the tables that it names.

// schemaChange reads Debezium's record of a DDL statement. Those of a snapshot create what they found: a DROP before that is
// part of the record and happened nowhere.
func (r *reading) schemaChange() (*cdc.RowChange, string, error) {
	if r.src.isSnapshot() {
		return nil, IgnoredDDL, nil
	}
	r.table = r.d.tableOf(&r.src)
	database := textOf(r.src.at[srcDB])
	tables := emptiedBy(textOf(r.env.at[envDDL]), database)
	for _, id := range droppedTables(r.env.at[envTableChanges]) {
		tables = addTable(tables, id)
	}
	if !r.takeEmptied(folded(tables, textOf(r.src.at[srcTable]))) {
		return nil, IgnoredDDL, nil
	}
	c := r.newChange(cdc.Truncate)
	c.Also = r.also
	return c, "", nil
}

// maxwellSchemaChange reads Maxwell's, which has the statement and says of a dropped table or database which it was.
func (r *reading) maxwellSchemaChange(m *maxwellRecord) (*cdc.RowChange, string, error) {
	database := textOf(m.at[mxDatabase])
	tables := emptiedBy(textOf(m.at[mxSQL]), database)
	switch textOf(m.at[mxType]) {
	case "table-drop", "table-truncate": // of which Maxwell's own releases do not tell
		tables = addTable(tables, cdc.TableID{Schema: database, Table: textOf(m.at[mxTable])})
	case "database-drop":
		tables = addTable(tables, cdc.TableID{Schema: database})
	}
	r.table = r.d.maxwellTable(m.at[mxDatabase], m.at[mxTable])
	if !r.takeEmptied(folded(tables, textOf(m.at[mxTable]))) {
		return nil, IgnoredDDL, nil
	}
	c := r.newMaxwellChange(cdc.Truncate, m)
	if ms := intOf(m.at[mxTS]); ms > 0 { // of a schema change it is in milliseconds
		c.CommitTime = time.UnixMilli(ms).UTC()
	}
	c.Also = r.also
	return c, "", nil
}

// folded adds the names that rows may have where the server does not tell upper from lower case, and a statement has another name than
// they: in lower case, and as the record itself has them, with commas between.
func folded(tables []cdc.TableID, names string) []cdc.TableID {
	for _, id := range slices.Clone(tables) {
		tables = addTable(tables, cdc.TableID{Schema: strings.ToLower(id.Schema), Table: strings.ToLower(id.Table)})
		for name := range strings.SplitSeq(names, ",") {
			if id.Table != "" && strings.EqualFold(name, id.Table) {
				tables = addTable(tables, cdc.TableID{Schema: id.Schema, Table: name})
			}
		}
	}
	return tables
}

// takeEmptied makes the first table that is mapped the change's, and keeps the others that are; false where none is.
func (r *reading) takeEmptied(tables []cdc.TableID) bool {
	for _, id := range tables {
		cols := r.d.conf.Select(r.table.source, id)
		switch {
		case cols == nil:
		case r.cols == nil:
			r.table = &table{source: r.table.source, connector: r.table.connector, id: id}
			r.at.table, r.cols = id, cols
		default:
			r.also = append(r.also, id)
		}
	}
	return r.cols != nil
}

// droppedTables are the tables that Debezium's tableChanges say are gone.
func droppedTables(raw []byte) (tables []cdc.TableID) {
	var changes []struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	if raw == nil || json.Unmarshal(raw, &changes) != nil { // of another shape: the statement says it too
		return nil
	}
	for _, c := range changes {
		if c.Type != "DROP" {
			continue
		}
		s := sqlScanner{sqltext.Scanner{Text: c.ID}}
		if id, ok := s.Name(""); ok {
			tables = append(tables, id)
		}
	}
	return tables
}

func addTable(tables []cdc.TableID, ids ...cdc.TableID) []cdc.TableID {
	for _, id := range ids {
		if !slices.Contains(tables, id) {
			tables = append(tables, id)
		}
	}
	return tables
}

// sqlScanner reads what statements have in common.
type sqlScanner struct{ sqltext.Scanner }

// emptiedBy are the tables of which a text of MySQL's or MariaDB's SQL may take rows away without naming them, with database for
// those that do not name their own. An empty Table is every table of Schema. What it does not understand empties nothing.
func emptiedBy(ddl, database string) (tables []cdc.TableID) {
	s := &sqlScanner{sqltext.Scanner{Text: ddl}}
	for s.Text != "" {
		switch s.Keyword() {
		case "TRUNCATE":
			s.Has("TABLE")
			tables = addTable(tables, s.Names(database)...)
		case "DROP":
			tables = addTable(tables, s.dropped(database)...)
		case "CREATE":
			replaced, routine := s.replaced(database)
			if routine { // the statements in its body are not executed
				return tables
			}
			tables = addTable(tables, replaced...)
		case "RENAME":
			if s.Has("TABLE") || s.Has("TABLES") {
				tables = addTable(tables, s.renamed(database)...)
			}
		case "ALTER":
			tables = addTable(tables, s.altered(database)...)
		case ";":
			continue
		}
		s.SkipTo(";")
	}
	return tables
}

// dropped is what stands behind DROP.
func (s *sqlScanner) dropped(database string) []cdc.TableID {
	switch s.Keyword() {
	case "TABLE", "TABLES":
		s.Skip("IF", "EXISTS")
		return s.Names(database)
	case "DATABASE", "SCHEMA":
		return s.database()
	}
	return nil // a temporary table is nobody else's, and the rest has no rows
}

// database reads the name of one.
func (s *sqlScanner) database() []cdc.TableID {
	s.Skip("IF", "EXISTS")
	if id, ok := s.Name(""); ok {
		return []cdc.TableID{{Schema: id.Table}}
	}
	return nil
}

// replaced is what stands behind CREATE: a table or a database that takes another's place, or a routine with a body.
func (s *sqlScanner) replaced(database string) (tables []cdc.TableID, routine bool) {
	for replace := false; ; {
		rest := *s
		t := rest.Next()
		if t == (sqltext.Token{}) || t.Text == ";" {
			return nil, false
		}
		if *s = rest; t.Quoted {
			continue
		}
		switch strings.ToUpper(t.Text) {
		case "REPLACE":
			replace = true
		case "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE":
			return nil, true
		case "TEMPORARY", "VIEW", "INDEX", "USER", "ROLE", "SERVER", "TABLESPACE", "SEQUENCE":
			return nil, false
		case "TABLE":
			if id, ok := s.Name(database); ok && replace {
				tables = append(tables, id)
			}
			return tables, false
		case "DATABASE", "SCHEMA":
			if replace {
				tables = s.database()
			}
			return tables, false
		}
	}
}

// renamed: rows leave one name and come under another. A swap of tables is two of them.
func (s *sqlScanner) renamed(database string) (tables []cdc.TableID) {
	for {
		s.Skip("IF", "EXISTS")
		from, ok := s.Name(database)
		if !ok {
			return tables
		}
		s.skipWait()
		if !s.Has("TO") {
			return addTable(tables, from)
		}
		to, ok := s.Name(database)
		if !ok {
			return addTable(tables, from)
		}
		if tables = addTable(tables, from, to); !s.Has(",") {
			return tables
		}
	}
}

// skipWait takes MariaDB's WAIT n and NOWAIT, which say how long a lock is waited for.
func (s *sqlScanner) skipWait() {
	if s.Has("WAIT") {
		s.Next()
	}
	s.Has("NOWAIT")
}

// altered is what stands behind ALTER: of a table a new name, a partition that goes or is exchanged, a tablespace.
func (s *sqlScanner) altered(database string) (tables []cdc.TableID) {
	s.Skip("ONLINE", "IGNORE")
	if !s.Has("TABLE") {
		return nil
	}
	s.Skip("IF", "EXISTS")
	id, ok := s.Name(database)
	if !ok {
		return nil
	}
	s.skipWait()
	for {
		rest := *s
		switch word := rest.SkipTo("RENAME", "DROP", "TRUNCATE", "EXCHANGE", "DISCARD", "IMPORT", "CONVERT", ";"); word {
		case "", ";":
			return tables
		case "RENAME":
			*s = rest
			if s.Has("COLUMN") || s.Has("INDEX") || s.Has("KEY") {
				continue
			}
			s.Skip("TO", "AS", "=")
			tables = addTable(tables, id)
			if to, ok := s.Name(database); ok {
				tables = addTable(tables, to)
			}
		default:
			*s = rest
			if s.Has("PARTITION") || s.Has("TABLESPACE") || word == "CONVERT" && s.Has("TABLE") {
				tables = addTable(tables, id)
				tables = addTable(tables, s.exchanged(word, database)...)
			}
		}
	}
}

// exchanged is the other table of EXCHANGE PARTITION p WITH TABLE t, CONVERT PARTITION p TO TABLE t and CONVERT TABLE t TO PARTITION p.
func (s *sqlScanner) exchanged(word, database string) []cdc.TableID {
	if word != "EXCHANGE" && word != "CONVERT" {
		return nil
	}
	rest := *s
	if at := rest.SkipTo("TABLE", "PARTITION", ";"); at == "TABLE" {
		s = &rest
	}
	if id, ok := s.Name(database); ok {
		return []cdc.TableID{id}
	}
	return nil
}
