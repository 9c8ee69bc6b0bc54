package mysql

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"invalidator/cdc"
)

var _ cdc.Describer = (*Feeder)(nil)

// Describe implements cdc.Describer.
func (f *Feeder) Describe(ctx context.Context, include *cdc.Include) ([]cdc.TableInfo, error) {
	c, err := f.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer c.close()
	tables, err := c.describe(c.server.folded(include))
	if err != nil {
		return nil, f.classify(fmt.Errorf("describing the tables of %s: %w", c.server.addr, err), cdc.Position{})
	}
	return tables, nil
}

// describe asks table by table: a server that keeps its catalogue in files opens every table for a question about all columns.
func (c *conn) describe(include *cdc.Include) (tables []cdc.TableInfo, err error) {
	rows, err := c.rows("SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES" +
		" WHERE TABLE_SCHEMA NOT IN ('mysql','sys','information_schema','performance_schema') ORDER BY 1, 2")
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if !include.Match(r[0], r[1]) {
			continue
		}
		t := cdc.TableInfo{TableID: cdc.TableID{Schema: r[0], Table: r[1]}, Unsent: unsentTable(r[2])}
		schema, err := c.schemaOf(t.TableID)
		if err != nil {
			return nil, err
		}
		for _, sc := range schema.columns {
			t.Columns = append(t.Columns, c.server.describeColumn(sc, slices.Contains(schema.key, sc.name)))
		}
		if t.Unsent.What == "" {
			c.cascades(&t)
		}
		tables = append(tables, t)
	}
	return tables, nil
}

func (s *server) describeColumn(sc schemaColumn, key bool) cdc.ColumnInfo {
	d := cdc.ColumnInfo{Column: cdc.Column{Name: sc.name, Type: displayWidth.ReplaceAllString(strings.ToLower(sc.columnType), "$1"), Key: key}}
	if sc.charset != "" && sc.charset != binaryCharset && charsets[sc.charset] == nil {
		d.Unsent = cdc.Lack{What: "its charset " + sc.charset + " cannot be read", Hint: "convert the column to utf8mb4"}
	}
	d.OldUnsent = s.oldUnsent(d.Column, sc.dataType)
	return d
}

func unsentTable(kind string) cdc.Lack {
	if kind == "BASE TABLE" || kind == "SYSTEM VERSIONED" {
		return cdc.Lack{}
	}
	return cdc.Lack{What: "it is a " + strings.ToLower(kind) + ": its changes are logged under the names of the tables that it reads", Hint: "map those tables"}
}

// oldUnsent says what the server's row image leaves out.
func (s *server) oldUnsent(c cdc.Column, dataType string) cdc.Lack {
	image := s.vars["binlog_row_image"]
	large := strings.HasSuffix(dataType, "text") || strings.HasSuffix(dataType, "blob") || dataType == "json"
	if image == "FULL" || c.Key || image == "NOBLOB" && !large {
		return cdc.Lack{}
	}
	return cdc.Lack{What: "binlog_row_image is " + orUnknown(image), Hint: "SET GLOBAL binlog_row_image = FULL, and let all sessions reconnect"}
}

// A foreign key in SHOW CREATE TABLE, which an account that may only SELECT can ask for on every server: the information schema
// of MariaDB shows it none.
var (
	foreignKey = regexp.MustCompile("(?m)^ *CONSTRAINT (`(?:[^`]|``)+`) FOREIGN KEY .* REFERENCES (`(?:[^`]|``)+`(?:\\.`(?:[^`]|``)+`)?) \\([^)]*\\)(.*)$")
	ownAction  = regexp.MustCompile("ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEFAULT)")
)

// cascades names foreign keys whose actions change rows that the log then does not show: the storage engine does it alone.
func (c *conn) cascades(t *cdc.TableInfo) {
	rows, err := c.rows("SHOW CREATE TABLE " + identifier(t.Schema) + "." + identifier(t.Table))
	if err != nil || len(rows) == 0 || len(rows[0]) < 2 {
		t.Partial = append(t.Partial, cdc.Lack{What: fmt.Sprintf("whether foreign keys change its rows cannot be asked: %v", err)})
		return
	}
	for _, k := range foreignKey.FindAllStringSubmatch(rows[0][1], -1) {
		if rules := ownAction.FindAllString(k[3], -1); len(rules) > 0 {
			t.Partial = append(t.Partial, cdc.Lack{
				What: fmt.Sprintf("rows that change with their parent in %s (foreign key %s, %s) are in no log", bare(k[2]), bare(k[1]), strings.Join(rules, ", ")),
				Hint: "map the parent's table for these keys too, or let the application change the rows itself"})
		}
	}
}

func identifier(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func bare(quoted string) string { return strings.ReplaceAll(quoted, "`", "") }

// displayWidth is what old servers write behind an integer's type. It says nothing of the values, but for a tinyint(1), which
// is called a boolean.
var displayWidth = regexp.MustCompile(`^((?:small|medium|big)?int)\(\d+\)`)
