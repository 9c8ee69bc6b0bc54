package mysql

import (
	"fmt"
	"strings"

	"invalidator/cdc"
)

// checkTables looks at the included tables as they are now.
func (f *Feeder) checkTables(c *conn) (found []cdc.Finding, err error) {
	rows, err := c.rows("SELECT t.TABLE_SCHEMA, t.TABLE_NAME, EXISTS (SELECT 1 FROM information_schema.STATISTICS k" +
		" WHERE k.TABLE_SCHEMA = t.TABLE_SCHEMA AND k.TABLE_NAME = t.TABLE_NAME AND k.INDEX_NAME = 'PRIMARY')" +
		" FROM information_schema.TABLES t WHERE t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') ORDER BY 1, 2")
	if err != nil {
		return nil, err
	}
	var tables []cdc.TableID
	for _, r := range rows {
		id := c.server.tableID(r[0], r[1])
		if !c.server.included(id) {
			continue
		}
		tables = append(tables, id)
		add := func(what, hint string) {
			x := f.finding(cdc.SeverityWarning, what, hint)
			x.Table = id.String()
			found = append(found, x)
		}
		if r[2] == "0" {
			add("it has no primary key: changes of one row may go to different partitions",
				"ALTER TABLE "+identifier(id.Schema)+"."+identifier(id.Table)+" ADD PRIMARY KEY (…)")
		}
		info := cdc.TableInfo{TableID: id}
		c.cascades(&info)
		for _, lack := range info.Partial {
			add(lack.What, lack.Hint)
		}
	}
	found = append(f.checkNames(c.server, tables), found...)
	more, err := f.checkColumns(c)
	return append(found, more...), err
}

// checkNames looks for names that match nothing (D7).
func (f *Feeder) checkNames(s *server, tables []cdc.TableID) (found []cdc.Finding) {
	if len(tables) == 0 {
		return []cdc.Finding{f.finding(cdc.SeverityWarning, "no table matches include, as far as "+f.cfg.User+" may see", "compare include with SHOW TABLES; "+s.caseRule())}
	}
	for _, p := range s.include.Unmatched(tables) {
		found = append(found, f.finding(cdc.SeverityWarning, "include: "+p+" matches no table, as far as "+f.cfg.User+" may see", "compare it with SHOW TABLES; "+s.caseRule()))
	}
	if s.lower && f.cfg.Include.Unmatched(tables) != nil {
		found = append(found, f.finding(cdc.SeverityWarning, "lower_case_table_names is "+s.vars["lower_case_table_names"]+": changes come under names in lower case",
			"write names in lower case, in include and in mappings"))
	}
	return found
}

func (s *server) caseRule() string {
	if s.lower {
		return "this server keeps names in lower case"
	}
	return "names are compared by case"
}

// checkColumns looks for values that cannot be told.
func (f *Feeder) checkColumns(c *conn) (found []cdc.Finding, err error) {
	rows, err := c.rows("SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, CHARACTER_SET_NAME FROM information_schema.COLUMNS" +
		" WHERE CHARACTER_SET_NAME IS NOT NULL AND CHARACTER_SET_NAME NOT IN (" + knownCharsets() + ") ORDER BY 1, 2, ORDINAL_POSITION")
	for _, r := range rows {
		if id := c.server.tableID(r[0], r[1]); c.server.included(id) {
			x := f.finding(cdc.SeverityWarning, fmt.Sprintf("its charset %s cannot be read: keys made of it are not deleted", r[3]), "convert the column to utf8mb4")
			x.Table, x.Column = id.String(), r[2]
			found = append(found, x)
		}
	}
	return found, err
}

func knownCharsets() string {
	names := []string{quote(binaryCharset)}
	for name := range charsets {
		names = append(names, quote(name))
	}
	return strings.Join(names, ",")
}
