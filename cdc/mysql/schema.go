package mysql

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// tableSchema is a table as information_schema describes it now.
type tableSchema struct {
	columns []schemaColumn
	key     []string // the primary key's columns, in its order
}

// layoutOf writes a schema down as of a place; nil: it is not known from there on.
func layoutOf(from cdc.Position, t *tableSchema) cdc.Layout {
	l := cdc.Layout{From: from}
	if t == nil {
		return l
	}
	l.Key = t.key
	for _, c := range t.columns {
		l.Columns = append(l.Columns, cdc.LayoutColumn{Name: c.name, Type: c.dataType, Full: c.columnType, Charset: c.charset,
			Octets: c.octets, Precision: c.precision, Scale: c.scale})
	}
	return l
}

// schemaOfLayout is the inverse; nil where the layout is not known.
func schemaOfLayout(l cdc.Layout) *tableSchema {
	if len(l.Columns) == 0 {
		return nil
	}
	t := &tableSchema{key: l.Key}
	for _, c := range l.Columns {
		t.columns = append(t.columns, schemaColumn{name: c.Name, dataType: c.Type, columnType: c.Full, charset: c.Charset,
			octets: c.Octets, precision: c.Precision, scale: c.Scale})
	}
	return t
}

// equal: what is not known is equal to nothing.
func (t *tableSchema) equal(u *tableSchema) bool {
	return t != nil && u != nil && slices.Equal(t.columns, u.columns) && slices.Equal(t.key, u.key)
}

// likens is equal, but for what a newer version of a server writes in another way.
func (t *tableSchema) likens(u *tableSchema) bool {
	return slices.Equal(t.key, u.key) && slices.EqualFunc(t.columns, u.columns, func(a, b schemaColumn) bool {
		labels := slices.Equal(parseLabels(a.columnType), parseLabels(b.columnType)) // of others there are none
		return a.name == b.name && a.dataType == b.dataType && a.unsigned() == b.unsigned() && a.octets == b.octets && labels
	})
}

type schemaColumn struct {
	name, dataType string
	columnType     string // as the database writes it
	charset        string // empty for none and for bytes
	octets         int    // longest value in bytes, of types that have one; -1: none
	precision      int    // of DECIMAL; -1: none
	scale          int
}

// column finds a column by name; nil where there is none, or no schema.
func (t *tableSchema) column(name string) *schemaColumn {
	if t == nil {
		return nil
	}
	for i := range t.columns {
		if t.columns[i].name == name {
			return &t.columns[i]
		}
	}
	return nil
}

// sameCharset compares with a name of the log. An older server, by which the schema was written down, said utf8.
func (s *schemaColumn) sameCharset(name string) bool {
	mine := cmp.Or(s.charset, binaryCharset)
	return mine == name || strings.TrimSuffix(mine, "mb3") == strings.TrimSuffix(name, "mb3")
}

func (s *schemaColumn) unsigned() bool { return strings.Contains(s.columnType, " unsigned") }

func (c *conn) schemaOf(id cdc.TableID) (*tableSchema, error) {
	where := " WHERE TABLE_SCHEMA = " + quote(id.Schema) + " AND TABLE_NAME = " + quote(id.Table)
	rows, err := c.rows("SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IFNULL(CHARACTER_SET_NAME, '')," +
		" IFNULL(CHARACTER_OCTET_LENGTH, -1), IFNULL(NUMERIC_PRECISION, -1), IFNULL(NUMERIC_SCALE, -1)" +
		" FROM information_schema.COLUMNS" + where + " ORDER BY ORDINAL_POSITION")
	if err != nil {
		return nil, err
	}
	t := &tableSchema{}
	for _, r := range rows {
		sc := schemaColumn{name: r[0], dataType: strings.ToLower(r[1]), columnType: r[2], charset: r[3]}
		for i, n := range []*int{&sc.octets, &sc.precision, &sc.scale} {
			if *n, err = strconv.Atoi(r[4+i]); err != nil {
				*n = -1 // a LONGTEXT's length does not fit everywhere
			}
		}
		t.columns = append(t.columns, sc)
	}
	rows, err = c.rows("SELECT COLUMN_NAME FROM information_schema.STATISTICS" + where +
		" AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX")
	for _, r := range rows {
		t.key = append(t.key, r[0])
	}
	return t, err
}

// typesInLog maps a type of the log to the names that the schema may have for it.
var typesInLog = map[byte][]string{
	mysql.MYSQL_TYPE_TINY:       {"tinyint"},
	mysql.MYSQL_TYPE_SHORT:      {"smallint"},
	mysql.MYSQL_TYPE_INT24:      {"mediumint"},
	mysql.MYSQL_TYPE_LONG:       {"int"},
	mysql.MYSQL_TYPE_LONGLONG:   {"bigint"},
	mysql.MYSQL_TYPE_NEWDECIMAL: {"decimal"},
	mysql.MYSQL_TYPE_FLOAT:      {"float"},
	mysql.MYSQL_TYPE_DOUBLE:     {"double"},
	mysql.MYSQL_TYPE_BIT:        {"bit"},
	mysql.MYSQL_TYPE_ENUM:       {"enum"},
	mysql.MYSQL_TYPE_SET:        {"set"},
	mysql.MYSQL_TYPE_STRING:     {"char", "binary", "uuid", "inet6", "inet4"},
	mysql.MYSQL_TYPE_VARCHAR:    {"varchar", "varbinary"},
	mysql.MYSQL_TYPE_VAR_STRING: {"varchar", "varbinary"},
	mysql.MYSQL_TYPE_BLOB: {"tinyblob", "blob", "mediumblob", "longblob", "tinytext", "text", "mediumtext", "longtext",
		"json"},
	mysql.MYSQL_TYPE_JSON:       {"json"},
	mysql.MYSQL_TYPE_VECTOR:     {"vector"},
	mysql.MYSQL_TYPE_DATE:       {"date"},
	mysql.MYSQL_TYPE_NEWDATE:    {"date"},
	mysql.MYSQL_TYPE_YEAR:       {"year"},
	mysql.MYSQL_TYPE_TIME:       {"time"},
	mysql.MYSQL_TYPE_TIME2:      {"time"},
	mysql.MYSQL_TYPE_DATETIME:   {"datetime"},
	mysql.MYSQL_TYPE_DATETIME2:  {"datetime"},
	mysql.MYSQL_TYPE_TIMESTAMP:  {"timestamp"},
	mysql.MYSQL_TYPE_TIMESTAMP2: {"timestamp"},
	mysql.MYSQL_TYPE_GEOMETRY: {"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring",
		"multipolygon", "geometrycollection", "geomcollection"},
}

// fits says whether the schema's column can be what the log holds: a row that was logged under an older layout must not be
// read by today's.
func (s *schemaColumn) fits(c *column) bool {
	if !slices.Contains(typesInLog[c.kind], s.dataType) {
		return false
	}
	switch c.kind {
	case mysql.MYSQL_TYPE_STRING:
		return s.octets == c.length || isSpecial(s.dataType)
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING:
		return s.octets == int(c.meta)
	case mysql.MYSQL_TYPE_NEWDECIMAL:
		return s.precision == int(c.meta>>8) && s.scale == int(c.meta&0xff)
	}
	return true
}

func isSpecial(dataType string) bool {
	return dataType == "uuid" || dataType == "inet6" || dataType == "inet4"
}
