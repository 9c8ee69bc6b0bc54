package envelope

import (
	"strings"

	"invalidator/cdc"
)

// reader is how a column's value stands in a record.
type reader uint8

const (
	asItStands reader = iota // nothing says what it is
	asInteger
	asDecimal     // base64 of two's complement, or text of digits
	asDecimalText // digits alone
	asVariable    // {"scale": n, "value": base64}
	asFloat
	asBool
	asText
	asBase64
	asBits
	asDate      // days
	asTimestamp // a count of units, or ISO text
	asTime      // a count of units, or ISO text
	asYear
	asDocument
	asArray
	asSet   // an array of labels, or their text
	asLabel // the text of an enum or a set
	asUnclear
)

// form is how a column's value is read: compiled once from what the schema and the declared type say.
type form struct {
	reader
	conn   cdc.Connector
	kind   cdc.Kind // of a text, of base64, of an integer or decimal
	scale  int      // asDecimal; unknown where nothing says
	binary bool     // asDecimal: base64 alone, as the schema says
	exact  bool     // asDecimal: a JSON number has all its digits (Maxwell)
	hex    bool     // asBase64: hex in its place
	length int      // asBase64, asBits: bytes or bits; unknown where nothing says
	unit   int64    // asTimestamp, asTime: units a second
	digits int      // asTimestamp, asTime: fraction digits that are shown; unknown where nothing says
	zoned  bool     // asTimestamp: SELECT shows a zone

	bits     int  // asInteger: the column's width, 0 where nothing says
	unsigned bool // asInteger

	item *form  // asArray: its elements
	why  string // asUnclear
}

func unclear(why string) form { return form{reader: asUnclear, why: why} }

const whyDouble = "a decimal sent as a double, which has lost digits (set decimal.handling.mode to precise or string)"

// dialect is how a source writes what its format leaves open.
type dialect struct {
	maxwell bool
	hex     bool // bytes that stand as text
}

// compile merges what is known about a column: f is nil where no schema wraps the record, declared is the mapping's word.
func (d dialect) compile(conn cdc.Connector, declared string, f *field) form {
	if declared == "" && f != nil {
		declared = f.colType
	}
	t := parseType(declared, conn)
	var out form
	switch {
	case t.class == classLost && !t.array:
		out = unclear("Debezium's form of " + t.base + " does not say what SELECT shows")
	case d.maxwell:
		out = byMaxwell(t)
	case f == nil:
		out = byType(conn, t)
	case f.semantic != "":
		out = bySemantic(conn, t, f)
	default:
		out = byWire(conn, t, f)
	}
	out.conn = conn
	if d.hex && out.reader == asBase64 {
		out.hex = f == nil || f.wire == "string"
	}
	return out
}

// byMaxwell is for what Maxwell writes: values as SELECT shows them, with all digits of a number.
func byMaxwell(t colType) form {
	switch t.class {
	case classUnknown:
		return form{reader: asItStands, bits: 64, exact: true}
	case classDecimal:
		f := byType(cdc.MySQL, t)
		f.exact = true
		return f
	case classText, classDate, classTimestamp, classTime:
		if t.base == "set" {
			return form{reader: asSet}
		}
		return form{reader: asText, kind: cdc.Text}
	}
	return byType(cdc.MySQL, t)
}

// byType is for records without a schema.
func byType(conn cdc.Connector, t colType) form {
	if t.array {
		t.array = false
		item := byType(conn, t)
		item.conn = conn
		if t.class != classInt && t.class != classText {
			return unclear("an array of " + t.base)
		}
		return form{reader: asArray, item: &item}
	}
	switch t.class {
	case classInt:
		return form{reader: asInteger, kind: cdc.Integer, bits: t.bits, unsigned: t.unsigned}
	case classDecimal:
		scale := t.m
		if t.n != unknown && scale == unknown {
			scale = 0
		}
		return form{reader: asDecimal, kind: cdc.Decimal, scale: scale}
	case classFloat:
		return form{reader: asFloat, bits: t.bits}
	case classBool:
		return form{reader: asBool}
	case classText:
		return textForm(t)
	case classBytes, classBytea:
		return bytesForm(conn, t)
	case classBit:
		n := t.n
		if n == unknown {
			n = 1
		}
		return form{reader: asBits, length: n}
	case classDate:
		return form{reader: asDate}
	case classTimestamp, classTimestampTZ:
		return form{reader: asTimestamp, unit: adaptiveUnit(conn, t), digits: t.fractionDigits(conn), zoned: t.class == classTimestampTZ}
	case classTime:
		return form{reader: asTime, unit: adaptiveUnit(conn, t), digits: t.fractionDigits(conn)}
	case classYear:
		return form{reader: asYear}
	case classJSON:
		return form{reader: asDocument}
	}
	return form{reader: asItStands}
}

const (
	millis = 1e3
	micros = 1e6
	nanos  = 1e9
)

// adaptiveUnit is the unit that Debezium's default time.precision.mode uses: of MySQL adaptive_time_microseconds, of
// Postgres adaptive.
func adaptiveUnit(conn cdc.Connector, t colType) int64 {
	n := t.n
	if n == unknown {
		if n = 0; conn == cdc.Postgres {
			n = 6
		}
	}
	if n > 3 || t.class == classTime && conn != cdc.Postgres {
		return micros
	}
	return millis
}

func bytesForm(conn cdc.Connector, t colType) form {
	if t.class == classUnknown && conn == "" {
		return unclear("bytes of a tombstone's key, which does not name its connector")
	}
	out := form{reader: asBase64, kind: cdc.Bytes, length: unknown}
	if t.class == classBytea || t.class == classUnknown && conn == cdc.Postgres {
		out.kind = cdc.Bytea
	}
	if t.base == "binary" { // the server takes trailing zero bytes off a row image; SELECT shows them
		if out.length = t.n; out.length == unknown {
			out.length = 1
		}
	}
	return out
}

// bySemantic is for fields whose schema has a name.
func bySemantic(conn cdc.Connector, t colType, f *field) form {
	digits := t.fractionDigits(conn)
	short := f.semantic[strings.LastIndexByte(f.semantic, '.')+1:]
	switch f.semantic {
	case "org.apache.kafka.connect.data.Decimal":
		kind := cdc.Decimal
		if t.class == classInt { // bigint.unsigned.handling.mode=precise
			kind = cdc.Integer
		}
		return form{reader: asDecimal, kind: kind, scale: f.scale, binary: true}
	case "io.debezium.data.VariableScaleDecimal":
		return form{reader: asVariable}
	case "io.debezium.data.Bits":
		n := f.length
		if n == unknown {
			n = t.n
		}
		return form{reader: asBits, length: n}
	case "io.debezium.data.Enum", "io.debezium.data.EnumSet":
		return form{reader: asLabel, kind: cdc.Text}
	case "io.debezium.data.Uuid", "io.debezium.data.Xml", "io.debezium.data.Ltree":
		return form{reader: asText, kind: cdc.Text}
	case "io.debezium.data.Json":
		return form{reader: asDocument}
	case "io.debezium.time.Year":
		return form{reader: asYear}
	case "io.debezium.time.Date", "org.apache.kafka.connect.data.Date", "io.debezium.time.IsoDate":
		return form{reader: asDate}
	case "io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp":
		return form{reader: asTimestamp, unit: millis, digits: digits}
	case "io.debezium.time.MicroTimestamp":
		return form{reader: asTimestamp, unit: micros, digits: digits}
	case "io.debezium.time.NanoTimestamp":
		return form{reader: asTimestamp, unit: nanos, digits: digits}
	case "io.debezium.time.IsoTimestamp":
		return form{reader: asTimestamp, digits: digits}
	case "io.debezium.time.ZonedTimestamp":
		return form{reader: asTimestamp, digits: digits, zoned: !mysqlLike(conn)}
	case "io.debezium.time.Time", "org.apache.kafka.connect.data.Time":
		return form{reader: asTime, unit: millis, digits: digits}
	case "io.debezium.time.MicroTime":
		return form{reader: asTime, unit: micros, digits: digits}
	case "io.debezium.time.NanoTime":
		return form{reader: asTime, unit: nanos, digits: digits}
	}
	return unclear("the semantic type " + short + " does not say what SELECT shows")
}

// byWire is for fields of a plain Connect type.
func byWire(conn cdc.Connector, t colType, f *field) form {
	switch f.wire {
	case "int8", "int16", "int32":
		// Debezium widens unsigned integers, so that only 64 bits can be both.
		if t.class != classInt {
			t.bits = 32
		}
		return form{reader: asInteger, kind: cdc.Integer, bits: t.bits, unsigned: t.unsigned}
	case "int64":
		return form{reader: asInteger, kind: cdc.Integer, bits: t.bits, unsigned: t.unsigned}
	case "float", "float32":
		return form{reader: asFloat, bits: 32}
	case "double", "float64":
		if t.class == classDecimal {
			return unclear(whyDouble)
		}
		return form{reader: asFloat, bits: 64}
	case "boolean":
		if t.class == classBit {
			return form{reader: asBits, length: 1}
		}
		return form{reader: asBool}
	case "string":
		return byString(conn, t)
	case "bytes":
		return bytesForm(conn, t)
	case "array":
		if f.items != nil && f.items.semantic == "" {
			t.array, t.class = false, classUnknown
			item := byWire(conn, t, f.items)
			item.conn = conn
			if item.reader == asInteger || item.reader == asText {
				return form{reader: asArray, item: &item}
			}
		}
		return unclear("an array whose elements are not plain integers or texts")
	}
	return unclear("a " + f.wire)
}

func byString(conn cdc.Connector, t colType) form {
	switch t.class {
	case classInt:
		return form{reader: asDecimalText, kind: cdc.Integer}
	case classDecimal:
		return form{reader: asDecimalText, kind: cdc.Decimal}
	case classBytes, classBytea, classJSON, classTimestamp, classTimestampTZ, classTime, classDate:
		return byType(conn, t)
	}
	return textForm(t)
}

func textForm(t colType) form {
	if t.base == "enum" || t.base == "set" {
		return form{reader: asLabel, kind: cdc.Text}
	}
	return form{reader: asText, kind: cdc.Text}
}
