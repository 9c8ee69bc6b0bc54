package mysql

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"invalidator/cdc"
)

// layout is one version of a table, compiled for reading its rows.
type layout struct {
	id          cdc.TableID
	list        []column // as the log has them, hidden ones too
	jsonColumns int
	columns     *cdc.Columns // without the hidden ones
	key         []string     // names of the primary key's columns, in its order; empty for none
}

// hiddenPrefix begins the names of the columns that stand for functional indexes.
const hiddenPrefix = "!hidden!"

// newLayout reads a table map event that names its columns, or else takes what it lacks from the schema, which is nil
// where the event needs none, and where it is unknown for a reason.
func newLayout(id cdc.TableID, e *replication.TableMapEvent, srv *server, compressed []bool, schema *tableSchema, unknown error) (*layout, error) {
	l := &layout{id: id}
	l.list = make([]column, e.ColumnCount)
	for i := range l.list {
		c := &l.list[i]
		c.kind, c.meta = e.ColumnType[i], e.ColumnMeta[i]
		c.compressed = compressed != nil && compressed[i]
		switch c.kind {
		case mysql.MYSQL_TYPE_STRING:
			c.unpackString()
		case mysql.MYSQL_TYPE_JSON:
			l.jsonColumns++
		}
	}
	if len(e.ColumnName) > 0 {
		if err := l.fromEvent(e, srv, schema, unknown); err != nil {
			return nil, err
		}
	} else if unknown != nil {
		return nil, unknown
	} else if err := l.fromSchema(e, srv, schema); err != nil {
		return nil, err
	}
	l.finish()
	return l, nil
}

// selfContained says whether a table map event describes its table alone. Beside events without names there are two that
// do not: where a YEAR makes the signs of others unclear, and MariaDB's UUID, INET6 and INET4, which look like BINARY.
func selfContained(e *replication.TableMapEvent, maria bool) bool {
	if len(e.ColumnName) == 0 {
		return false
	}
	if _, clear := signs(e); !clear {
		return false
	}
	if !maria {
		return true
	}
	collations := e.CollationMap()
	for i, t := range e.ColumnType {
		c := column{kind: t, meta: e.ColumnMeta[i]}
		if t == mysql.MYSQL_TYPE_STRING {
			c.unpackString()
		}
		if c.mayBeSpecial(collations[i] == binaryCollation) {
			return false
		}
	}
	return true
}

func (c *column) mayBeSpecial(binary bool) bool {
	return c.kind == mysql.MYSQL_TYPE_STRING && binary && (c.length == 16 || c.length == 4)
}

const binaryCollation = 63

// fromEvent takes everything from the optional metadata, and MariaDB's special types from a schema with the same columns.
func (l *layout) fromEvent(e *replication.TableMapEvent, srv *server, schema *tableSchema, unknown error) error {
	unsigned, clear := signs(e)
	collations, setCollations := e.CollationMap(), e.EnumSetCollationMap()
	enums, sets := e.EnumStrValueMap(), e.SetStrValueMap()
	for i := range l.list {
		c := &l.list[i]
		c.name = string(e.ColumnName[i])
		c.hidden = strings.HasPrefix(c.name, hiddenPrefix)
		c.unsigned = unsigned != nil && unsigned[i]
		if !clear && isInteger(c.kind) {
			sc := schema.column(c.name)
			if sc == nil {
				return fmt.Errorf("whether column %s is unsigned cannot be told behind a YEAR, and the database does not tell it for this place of the log", c.name)
			}
			c.unsigned = sc.unsigned()
		}
		if id, ok := collations[i]; ok {
			c.charset = charsetOf(srv, id)
		}
		switch c.kind {
		case mysql.MYSQL_TYPE_ENUM:
			c.charset = charsetOf(srv, setCollations[i])
			c.decodeLabels(enums[i])
		case mysql.MYSQL_TYPE_SET:
			c.charset = charsetOf(srv, setCollations[i])
			c.decodeLabels(sets[i])
		}
		if sc := schema.column(c.name); sc != nil && isSpecial(sc.dataType) && c.charset == binaryCharset {
			c.special = sc.dataType
		}
		if unknown != nil && srv.maria && c.mayBeSpecial(c.charset == binaryCharset) {
			c.doubt = "whether it is BINARY, UUID, INET6 or INET4: " + unknown.Error()
		}
	}
	for _, i := range e.PrimaryKey {
		if i >= uint64(len(l.list)) {
			return fmt.Errorf("the primary key names column %d of %d", i+1, len(l.list))
		}
		l.key = append(l.key, l.list[i].name)
	}
	return nil
}

// signs reads which columns are unsigned, from one bit for each numeric column. Old servers (8.0.15) leave YEAR out, and newer
// ones and MariaDB give it a bit: where both readings are possible and differ, clear is false.
func signs(e *replication.TableMapEvent) (unsigned []bool, clear bool) {
	with, withBits := signsCounting(e, true)
	without, withoutBits := signsCounting(e, false)
	switch n := len(e.SignednessBitmap); {
	case withBits == withoutBits, bitmapBytes(withoutBits) != n:
		return with, true
	case bitmapBytes(withBits) != n:
		return without, true
	}
	for i, t := range e.ColumnType {
		if isInteger(t) && with[i] != without[i] {
			return nil, false
		}
	}
	return with, true
}

func signsCounting(e *replication.TableMapEvent, year bool) (unsigned []bool, bits int) {
	unsigned = make([]bool, len(e.ColumnType))
	for i, t := range e.ColumnType {
		if !e.IsNumericColumn(i) || t == mysql.MYSQL_TYPE_YEAR && !year {
			continue
		}
		if at := bits / 8; at < len(e.SignednessBitmap) { // highest bit first
			unsigned[i] = e.SignednessBitmap[at]&(0x80>>(bits%8)) != 0
		}
		bits++
	}
	return unsigned, bits
}

func isInteger(kind byte) bool {
	switch kind {
	case mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_SHORT, mysql.MYSQL_TYPE_INT24, mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_LONGLONG:
		return true
	}
	return false
}

func charsetOf(srv *server, collation uint64) string {
	if name, ok := srv.collations[collation]; ok {
		return name
	}
	return fmt.Sprintf("of collation %d", collation)
}

// fromSchema takes names and the rest from information_schema, whose columns must fit those of the log one by one, and be what the
// event tells of them (MINIMAL: signs and charsets).
func (l *layout) fromSchema(e *replication.TableMapEvent, srv *server, schema *tableSchema) error {
	if schema == nil || len(schema.columns) == 0 {
		return fmt.Errorf("the log does not name its columns and the database has no such table now")
	}
	places, err := l.align(schema)
	if err != nil {
		return err
	}
	for i := range l.list {
		l.list[i].hidden = true
	}
	unsigned, clear := signs(e)
	clear = clear && len(e.SignednessBitmap) > 0
	collations := e.CollationMap()
	for n, i := range places {
		c, sc := &l.list[i], &schema.columns[n]
		if clear && isInteger(c.kind) && unsigned[i] != sc.unsigned() {
			return fmt.Errorf("column %s is %s, and has another sign in the log", sc.name, sc.columnType)
		}
		if id, ok := collations[i]; ok && !sc.sameCharset(charsetOf(srv, id)) {
			return fmt.Errorf("column %s is %s in charset %q, and %s in the log", sc.name, sc.columnType, sc.charset, charsetOf(srv, id))
		}
		c.hidden = false
		c.name, c.unsigned = sc.name, sc.unsigned()
		c.charset = sc.charset
		if c.charset == "" && isCharacter(c.kind) {
			c.charset = binaryCharset
		}
		if c.kind == mysql.MYSQL_TYPE_ENUM || c.kind == mysql.MYSQL_TYPE_SET {
			if c.labels = parseLabels(sc.columnType); c.labels == nil {
				c.labelErr = "its labels are not known"
			}
		}
		if isSpecial(sc.dataType) {
			c.special = sc.dataType
		}
	}
	l.key = schema.key
	return nil
}

// align finds the schema's columns among those of the log, which may have more: hidden ones of functional indexes and of system
// versions. There must be only one way to find them.
func (l *layout) align(schema *tableSchema) ([]int, error) {
	more := len(l.list) - len(schema.columns)
	if more < 0 {
		return nil, fmt.Errorf("a row has %d columns in the log but %d in the database now", len(l.list), len(schema.columns))
	}
	first := make([]int, len(schema.columns)) // each as far to the left as can be
	i := 0
	for n := range schema.columns {
		sc := &schema.columns[n]
		for i <= n+more && !sc.fits(&l.list[i]) {
			i++
		}
		if i > n+more {
			return nil, fmt.Errorf("column %s is %s in the database now, which is not what the log holds", sc.name, sc.columnType)
		}
		first[n] = i
		i++
	}
	i = len(l.list) - 1
	for n := len(schema.columns) - 1; n >= 0; n-- { // and to the right
		for !schema.columns[n].fits(&l.list[i]) {
			i--
		}
		if first[n] != i {
			return nil, fmt.Errorf("a row has %d columns in the log but %d in the database: which of them are hidden cannot be told", len(l.list), len(schema.columns))
		}
		i--
	}
	return first, nil
}

func isCharacter(kind byte) bool {
	switch kind {
	case mysql.MYSQL_TYPE_STRING, mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING, mysql.MYSQL_TYPE_BLOB:
		return true
	}
	return false
}

// finish makes what is handed over: the columns that the table really has.
func (l *layout) finish() {
	list := make([]cdc.Column, 0, len(l.list))
	for i := range l.list {
		if c := &l.list[i]; !c.hidden {
			list = append(list, cdc.Column{Name: c.name, Type: c.typeText(), Key: slices.Contains(l.key, c.name)})
		}
	}
	if l.key == nil {
		l.key = []string{}
	}
	l.columns = cdc.NewColumns(list)
}

// typeText is the column's type in SQL, the same whether it was found in the log or in the schema.
func (c *column) typeText() string {
	suffix := ""
	if c.unsigned {
		suffix = " unsigned"
	}
	switch c.kind {
	case mysql.MYSQL_TYPE_TINY:
		return "tinyint" + suffix
	case mysql.MYSQL_TYPE_SHORT:
		return "smallint" + suffix
	case mysql.MYSQL_TYPE_INT24:
		return "mediumint" + suffix
	case mysql.MYSQL_TYPE_LONG:
		return "int" + suffix
	case mysql.MYSQL_TYPE_LONGLONG:
		return "bigint" + suffix
	case mysql.MYSQL_TYPE_FLOAT:
		return "float" + suffix
	case mysql.MYSQL_TYPE_DOUBLE:
		return "double" + suffix
	case mysql.MYSQL_TYPE_NEWDECIMAL:
		return fmt.Sprintf("decimal(%d,%d)%s", c.meta>>8, c.meta&0xff, suffix)
	case mysql.MYSQL_TYPE_BIT:
		return fmt.Sprintf("bit(%d)", int(c.meta>>8)*8+int(c.meta&0xff))
	case mysql.MYSQL_TYPE_ENUM:
		return "enum" + labelList(c.labels)
	case mysql.MYSQL_TYPE_SET:
		return "set" + labelList(c.labels)
	case mysql.MYSQL_TYPE_STRING:
		if c.special != "" {
			return c.special
		}
		return c.sized("char", "binary", c.length)
	case mysql.MYSQL_TYPE_VARCHAR, mysql.MYSQL_TYPE_VAR_STRING:
		return c.sized("varchar", "varbinary", int(c.meta))
	case mysql.MYSQL_TYPE_BLOB:
		size := map[uint16]string{1: "tiny", 3: "medium", 4: "long"}[c.meta]
		if c.charset == binaryCharset {
			return size + "blob"
		}
		return size + "text"
	case mysql.MYSQL_TYPE_JSON:
		return "json"
	case mysql.MYSQL_TYPE_GEOMETRY:
		return "geometry"
	case mysql.MYSQL_TYPE_VECTOR:
		return "vector"
	case mysql.MYSQL_TYPE_DATE, mysql.MYSQL_TYPE_NEWDATE:
		return "date"
	case mysql.MYSQL_TYPE_YEAR:
		return "year"
	case mysql.MYSQL_TYPE_TIME, mysql.MYSQL_TYPE_TIME2:
		return withDigits("time", c.meta)
	case mysql.MYSQL_TYPE_DATETIME, mysql.MYSQL_TYPE_DATETIME2:
		return withDigits("datetime", c.meta)
	case mysql.MYSQL_TYPE_TIMESTAMP, mysql.MYSQL_TYPE_TIMESTAMP2:
		return withDigits("timestamp", c.meta)
	}
	return ""
}

// sized is a type with its length, which the log counts in bytes and SQL in characters.
func (c *column) sized(text, bytes string, length int) string {
	if c.charset == binaryCharset {
		return bytes + "(" + strconv.Itoa(length) + ")"
	}
	if cs := charsets[c.charset]; cs != nil {
		return text + "(" + strconv.Itoa(length/cs.width) + ")"
	}
	return text
}

func withDigits(name string, digits uint16) string {
	if digits == 0 {
		return name
	}
	return fmt.Sprintf("%s(%d)", name, digits)
}
