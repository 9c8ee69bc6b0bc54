package mapping

import (
	"strings"

	"invalidator/cdc"
)

// types is a set of sorts of values. What a filter takes is one such set, asked in two ways: when a file is checked, of what a
// declared column type may hold; when a row is rendered, of what a value's Kind may be.
type types uint16

const (
	typeText  types = 1 << iota // char, varchar, text: anything may stand in it
	typeLabel                   // enum, set, uuid, inet, a hash: neither a number nor a date
	typeDate                    // date
	typeTime                    // datetime, timestamp
	typeClock                   // time, interval
	typeArray                   // of Postgres
	typeBytes                   // binary, blob, bytea
	typeInteger
	typeDecimal
	typeBool
	typeJSON
	typeFloat
	typeEnd
)

const (
	stringTypes = typeText | typeLabel | typeDate | typeTime | typeClock | typeArray
	allTexts    = stringTypes | typeBytes | typeInteger | typeDecimal | typeBool // what has one text
	anyType     = typeEnd - 1
)

// typesOfKind are the sorts that a value may be.
func typesOfKind(k cdc.Kind) types {
	switch k {
	case cdc.Bool:
		return typeBool
	case cdc.Integer:
		return typeInteger
	case cdc.Decimal:
		return typeDecimal | typeInteger // as its digits show
	case cdc.Float:
		return typeFloat
	case cdc.Text, cdc.Ambiguous:
		return stringTypes
	case cdc.Bytes, cdc.Bytea:
		return typeBytes
	case cdc.JSON:
		return typeJSON
	}
	return 0
}

func nameOfKind(k cdc.Kind) string {
	switch k {
	case cdc.Bool:
		return "a boolean"
	case cdc.Integer, cdc.Decimal:
		return "a number"
	case cdc.Float:
		return "a float"
	case cdc.Bytes, cdc.Bytea:
		return "bytes"
	case cdc.JSON:
		return "a JSON document"
	}
	return "text"
}

// nameOfTypes says what a filter gives.
func nameOfTypes(t types) string {
	if t == typeInteger {
		return "an integer"
	}
	return "text"
}

// declaredTypes are the sorts that a column of a declared type may hold.
var declaredTypes = map[types][]string{
	typeInteger:            strings.Fields("tinyint smallint mediumint int integer bigint int2 int4 int8 serial smallserial bigserial oid year"),
	typeFloat:              strings.Fields("float double real float4 float8"),
	typeBool | typeInteger: strings.Fields("bool boolean"), // a tinyint(1) of MySQL by another name
	typeText:               strings.Fields("char varchar character tinytext text mediumtext longtext citext name bpchar"),
	typeBytes:              strings.Fields("binary varbinary tinyblob blob mediumblob longblob bytea"),
	typeLabel:              strings.Fields("enum set uuid inet cidr macaddr"),
	typeDate:               strings.Fields("date"),
	typeTime:               strings.Fields("datetime timestamp timestamptz"),
	typeClock:              strings.Fields("time timetz interval"),
	typeJSON:               strings.Fields("json jsonb"),
}

// typesOf are the sorts that a column may hold, by its declared type; any where that is empty or nobody knows it.
func typesOf(declared string) types {
	word := typeWord(declared)
	switch {
	case strings.HasSuffix(declared, "[]"), strings.HasPrefix(declared, "_"):
		return typeArray
	case word == "bit": // a number in MySQL, digits in Postgres
		return typeInteger | typeLabel | typeBool
	case word == "tinyint":
		return typeInteger | typeBool
	case word == "decimal" || word == "numeric":
		_, scale, ok := strings.Cut(declared, ",")
		if ok && strings.Trim(scale, " )0") != "" {
			return typeDecimal
		}
		return typeDecimal | typeInteger
	}
	for t, words := range declaredTypes {
		for _, w := range words {
			if w == word {
				return t
			}
		}
	}
	return anyType
}

// isNumber reports whether a column of a declared type holds digits alone.
func isNumber(declared string) bool {
	return declared != "" && typesOf(declared)&^(typeInteger|typeDecimal|typeBool) == 0
}
