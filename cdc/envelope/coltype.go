package envelope

import (
	"strings"

	"invalidator/cdc"
)

// class sorts column types by how their values are read.
type class uint8

const (
	classUnknown class = iota
	classInt
	classDecimal
	classFloat
	classBool
	classText
	classBytes
	classBytea
	classBit
	classDate
	classTimestamp
	classTimestampTZ
	classTime
	classYear
	classJSON
	classLost // Debezium's form does not say what SELECT shows
)

// colType is a column's type as a mapping or Debezium declares it.
type colType struct {
	class    class
	base     string
	n, m     int // what stands in brackets: a length or precision, and a scale; unknown where nothing does
	bits     int // width of an integer or a float
	unsigned bool
	array    bool
}

type baseType struct {
	class class
	bits  int
}

// baseTypes are the types of MySQL, MariaDB and Postgres that are not read as the text they are.
var baseTypes = map[string]baseType{
	"tinyint": {classInt, 8}, "smallint": {classInt, 16}, "mediumint": {classInt, 24}, "int": {classInt, 32}, "integer": {classInt, 32}, "bigint": {classInt, 64},
	"int2": {classInt, 16}, "int4": {classInt, 32}, "int8": {classInt, 64}, "serial": {classInt, 32}, "smallserial": {classInt, 16}, "bigserial": {classInt, 64}, "oid": {classInt, 32},
	"decimal": {classDecimal, 0}, "numeric": {classDecimal, 0}, "dec": {classDecimal, 0}, "fixed": {classDecimal, 0},
	"float": {classFloat, 32}, "float4": {classFloat, 32}, "real": {classFloat, 32}, "double": {classFloat, 64}, "double precision": {classFloat, 64}, "float8": {classFloat, 64},
	"bool": {classBool, 0}, "boolean": {classBool, 0},
	"char": {classText, 0}, "varchar": {classText, 0}, "text": {classText, 0}, "tinytext": {classText, 0}, "mediumtext": {classText, 0}, "longtext": {classText, 0},
	"character": {classText, 0}, "character varying": {classText, 0}, "bpchar": {classText, 0}, "citext": {classText, 0}, "name": {classText, 0},
	"enum": {classText, 0}, "set": {classText, 0}, "uuid": {classText, 0}, "inet": {classText, 0}, "cidr": {classText, 0}, "macaddr": {classText, 0}, "ltree": {classText, 0},
	"binary": {classBytes, 0}, "varbinary": {classBytes, 0}, "blob": {classBytes, 0}, "tinyblob": {classBytes, 0}, "mediumblob": {classBytes, 0}, "longblob": {classBytes, 0},
	"bytea": {classBytea, 0}, "bit": {classBit, 0},
	"date": {classDate, 0}, "datetime": {classTimestamp, 0}, "timestamp": {classTimestamp, 0}, "timestamp without time zone": {classTimestamp, 0},
	"timestamptz": {classTimestampTZ, 0}, "timestamp with time zone": {classTimestampTZ, 0},
	"time": {classTime, 0}, "time without time zone": {classTime, 0}, "year": {classYear, 0},
	"json": {classJSON, 0}, "jsonb": {classJSON, 0},
	"money": {classLost, 0}, "interval": {classLost, 0}, "timetz": {classLost, 0}, "time with time zone": {classLost, 0}, "bit varying": {classLost, 0}, "varbit": {classLost, 0},
	"geometry": {classLost, 0}, "point": {classLost, 0}, "polygon": {classLost, 0}, "linestring": {classLost, 0}, "geography": {classLost, 0},
}

// parseType reads a declared type: "bigint unsigned", "numeric(12,4)", "timestamp(3) with time zone", "text[]".
func parseType(s string, conn cdc.Connector) colType {
	t := colType{n: unknown, m: unknown}
	s = strings.ToLower(strings.TrimSpace(s))
	if element, ok := strings.CutSuffix(s, "[]"); ok {
		t.array, s = true, strings.TrimSuffix(element, "[]")
	} else if element, ok := strings.CutPrefix(s, "_"); ok {
		t.array, s = true, element
	}
	if head, rest, ok := strings.Cut(s, "("); ok {
		inside, tail, _ := strings.Cut(rest, ")")
		first, second, _ := strings.Cut(inside, ",")
		t.n, t.m = smallInt(strings.TrimSpace(first)), smallInt(strings.TrimSpace(second))
		s = head + " " + tail
	}
	words := strings.Fields(s)
	for i := len(words) - 1; i > 0 && (words[i] == "unsigned" || words[i] == "zerofill" || words[i] == "signed"); i-- {
		t.unsigned = t.unsigned || words[i] != "signed"
		words = words[:i]
	}
	t.base = strings.Join(words, " ")
	b := baseTypes[t.base]
	t.class, t.bits = b.class, b.bits
	switch {
	case mysqlLike(conn) && t.class == classBool: // tinyint(1) by another name
		t.class, t.bits = classInt, 8
	case mysqlLike(conn) && t.base == "real", t.base == "float" && t.n > 24:
		t.bits = 64
	case t.base == "serial" && mysqlLike(conn):
		t.bits, t.unsigned = 64, true
	}
	return t
}

// fractionDigits is how many digits of a second the type shows; unknown where nothing says, and for Postgres, which leaves
// trailing zeros out.
func (t colType) fractionDigits(conn cdc.Connector) int {
	switch {
	case conn == cdc.Postgres || t.class != classTimestamp && t.class != classTime:
		return unknown
	case t.n == unknown && mysqlLike(conn):
		return 0
	case t.n > 6:
		return 6
	}
	return t.n
}
