package envelope

import (
	"bytes"
	"strings"

	"invalidator/cdc"
)

func unclearValue(raw []byte, why string) cdc.Value {
	return cdc.Value{Kind: cdc.Unclear, S: view(raw), Why: why}
}

const (
	whyType = "a value of another JSON type than its column's"
	whyText = "text with half a surrogate pair"
)

// value reads one value. Whatever cannot be told is Unclear: one column never costs the others their keys.
func (f *form) value(t *texts, raw []byte) cdc.Value {
	if raw[0] == 'n' {
		return cdc.Value{Kind: cdc.Null}
	}
	switch f.reader {
	case asUnclear:
		return unclearValue(raw, f.why)
	case asInteger:
		return f.integer(t, raw)
	case asDecimal, asDecimalText:
		return f.decimal(t, raw)
	case asVariable:
		return variableDecimal(t, raw)
	case asFloat:
		return f.float(t, raw)
	case asBool:
		return f.bool(raw)
	case asText:
		return f.text(t, raw)
	case asDocument:
		return f.document(t, raw)
	case asBase64:
		return f.bytes(t, raw)
	case asBits:
		return f.bitString(t, raw)
	case asDate:
		return f.date(t, raw)
	case asTimestamp:
		return f.timestamp(t, raw)
	case asTime:
		return f.time(t, raw)
	case asYear:
		return f.year(t, raw)
	case asArray:
		return f.array(t, raw)
	case asSet:
		return f.set(t, raw)
	case asLabel:
		return f.label(t, raw)
	}
	return f.stands(t, raw)
}

// stands reads a value of which nothing says what it is: as it stands.
func (f *form) stands(t *texts, raw []byte) cdc.Value {
	switch raw[0] {
	case '"':
		plain := form{kind: cdc.Text, conn: f.conn}
		if f.exact { // Maxwell's
			return plain.text(t, raw)
		}
		return plain.label(t, raw)
	case 't', 'f':
		return f.bool(raw)
	case '{':
		if f.exact {
			return unclearValue(raw, "a document of unknown type (declare it under columns)")
		}
		return variableDecimal(t, raw)
	case '[':
		return unclearValue(raw, "an array of unknown type (declare it under columns)")
	}
	if bytes.IndexByte(raw, '.') >= 0 {
		any := form{bits: 64}
		return any.float(t, raw)
	}
	return f.integer(t, raw)
}

func (f *form) text(t *texts, raw []byte) cdc.Value {
	if raw[0] != '"' {
		if f.reader != asItStands && raw[0] != '{' && raw[0] != '[' { // a number or boolean in a column declared as text
			return cdc.Value{Kind: f.kind, S: view(raw)}
		}
		return unclearValue(raw, whyType)
	}
	text, ok := t.unquote(raw)
	if !ok {
		return unclearValue(raw, whyText)
	}
	return cdc.Value{Kind: f.kind, S: view(text)}
}

// label reads a text that may be the label of a MySQL enum. Debezium 3.6 writes one from the binlog as its DDL has it, with
// backslashes (y\,z for y,z), and one from a snapshot as SELECT shows it.
func (f *form) label(t *texts, raw []byte) cdc.Value {
	v := f.text(t, raw)
	if v.Kind != cdc.Text || f.conn == cdc.Postgres || strings.IndexByte(v.S, '\\') < 0 {
		return v
	}
	plain := make([]byte, 0, len(v.S))
	for i := 0; i < len(v.S); i++ {
		if v.S[i] == '\\' && i+1 < len(v.S) {
			i++
		}
		plain = append(plain, v.S[i])
	}
	if string(plain) == v.S { // the backslash stands last
		return v
	}
	return cdc.MaybeOneOf(string(plain), v.S)
}

func (f *form) document(t *texts, raw []byte) cdc.Value {
	if raw[0] != '"' {
		return cdc.Value{Kind: cdc.JSON, S: view(raw)}
	}
	text, ok := t.unquote(raw)
	if !ok {
		return unclearValue(raw, whyText)
	}
	return cdc.Value{Kind: cdc.JSON, S: view(text)}
}

// boolText is a boolean as SELECT shows it: MySQL's booleans are tinyint(1) and bit(1).
func boolText(b bool, conn cdc.Connector) string {
	switch {
	case mysqlLike(conn) && b:
		return "1"
	case mysqlLike(conn):
		return "0"
	case b:
		return "t"
	}
	return "f"
}

func (f *form) bool(raw []byte) cdc.Value {
	switch raw[0] {
	case 't', 'f':
		if f.conn == "" { // a tombstone's key does not say which
			b := raw[0] == 't'
			return cdc.MaybeOneOf(boolText(b, cdc.Postgres), boolText(b, cdc.MySQL))
		}
		return cdc.Value{Kind: cdc.Bool, S: boolText(raw[0] == 't', f.conn)}
	case '0', '1':
		if len(raw) == 1 {
			return cdc.Value{Kind: cdc.Bool, S: boolText(raw[0] == '1', f.conn)}
		}
	}
	return unclearValue(raw, whyType)
}

func (f *form) bytes(t *texts, raw []byte) cdc.Value {
	b, err := t.base64(raw)
	if f.hex {
		b, err = t.hex(raw)
	}
	if err != nil {
		return unclearValue(raw, err.Error())
	}
	for len(b) < f.length {
		b = append(b, 0)
	}
	return cdc.Value{Kind: f.kind, S: view(b)}
}

// bitString reads Debezium's bits: a boolean for one, base64 of little-endian bytes for more. MySQL shows them as the text
// of a number, Postgres as digits.
func (f *form) bitString(t *texts, raw []byte) cdc.Value {
	var little []byte
	length := f.length
	switch raw[0] {
	case 't', 'f':
		little, length = []byte{0}, 1
		if raw[0] == 't' {
			little[0] = 1
		}
	case '"':
		var err error
		if little, err = t.base64(raw); err != nil {
			return unclearValue(raw, err.Error())
		}
	default:
		if isJSONInt(view(raw)) && raw[0] != '-' && mysqlLike(f.conn) {
			return cdc.Value{Kind: cdc.Integer, S: view(raw)}
		}
		return unclearValue(raw, whyType)
	}
	if mysqlLike(f.conn) {
		return bitNumber(t, raw, little)
	}
	digits := bitDigits(t, raw, little, length)
	if f.conn != "" || digits.Kind == cdc.Unclear {
		return digits
	}
	number := bitNumber(t, raw, little)
	if number.Kind == cdc.Unclear || number.S == digits.S {
		return digits
	}
	return cdc.MaybeOneOf(number.S, digits.S) // a tombstone's key does not say which
}

func bitNumber(t *texts, raw, little []byte) cdc.Value {
	var n uint64
	for i, c := range little {
		if i >= 8 && c != 0 {
			return unclearValue(raw, "more than 64 bits")
		}
		if i < 8 {
			n |= uint64(c) << (8 * i)
		}
	}
	return cdc.Value{Kind: cdc.Integer, S: t.uint(n)}
}

// maxBits bounds a bit string: Postgres allows 83,886,080, keys and columns that make sense far less.
const maxBits = 1 << 16

func bitDigits(t *texts, raw, little []byte, length int) cdc.Value {
	if length < 0 || length > maxBits {
		return unclearValue(raw, "bits without their length")
	}
	start := len(t.b)
	t.b = append(t.b, make([]byte, length)...)
	digits := t.b[start:]
	for i := range digits {
		digits[length-1-i] = '0'
		if i/8 < len(little) {
			digits[length-1-i] += little[i/8] >> (i % 8) & 1
		}
	}
	return cdc.Value{Kind: cdc.Text, S: view(digits)}
}

// array shows an array of integers or texts as Postgres does.
func (f *form) array(t *texts, raw []byte) cdc.Value {
	if raw[0] != '[' {
		return unclearValue(raw, whyType)
	}
	out := []byte{'{'}
	clear := true
	err := elements(raw, func(el []byte) error {
		if len(out) > 1 {
			out = append(out, ',')
		}
		switch v := f.item.value(t, el); {
		case el[0] == 'n':
			out = append(out, "NULL"...)
		case v.Kind == cdc.Integer:
			out = append(out, v.S...)
		case v.Kind == cdc.Text:
			out = appendElement(out, v.S)
		default:
			clear = false
		}
		return nil
	})
	if err != nil || !clear {
		return unclearValue(raw, "an array whose elements are not plain integers or texts")
	}
	return cdc.Value{Kind: cdc.Text, S: string(append(out, '}'))}
}

// set shows the labels of a set as MySQL does.
func (f *form) set(t *texts, raw []byte) cdc.Value {
	if raw[0] == '"' {
		return (&form{reader: asText, kind: cdc.Text}).text(t, raw)
	}
	if raw[0] != '[' {
		return unclearValue(raw, whyType)
	}
	var labels []string
	clear := true
	err := elements(raw, func(el []byte) error {
		labels = append(labels, textOf(el))
		clear = clear && el[0] == '"'
		return nil
	})
	if err != nil || !clear {
		return unclearValue(raw, whyType)
	}
	return cdc.Value{Kind: cdc.Text, S: strings.Join(labels, ",")}
}

// appendElement appends a text as an element of an array, quoted where Postgres quotes.
func appendElement(b []byte, s string) []byte {
	plain := s != "" && !equalFoldNull(s)
	for i := 0; i < len(s) && plain; i++ {
		switch s[i] {
		case '{', '}', ',', '"', '\\', ' ', '\t', '\n', '\r', '\v', '\f':
			plain = false
		}
	}
	if plain {
		return append(b, s...)
	}
	b = append(b, '"')
	for i := 0; i < len(s); i++ {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

func equalFoldNull(s string) bool { return len(s) == 4 && bytes.EqualFold([]byte(s), []byte("null")) }
