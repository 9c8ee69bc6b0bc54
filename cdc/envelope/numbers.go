package envelope

import (
	"bytes"
	"math"
	"math/big"
	"strconv"
	"strings"

	"invalidator/cdc"
)

// maxNumber bounds the bytes and the scale of a decimal: Postgres's longest has 147,455 digits.
const (
	maxNumber = 1 << 16
	maxScale  = 20000
)

// mayBeUnsigned reports whether an integer below zero may be a bigint unsigned that Debezium sent as a long.
func (f *form) mayBeUnsigned() bool { return f.bits == 0 && (f.conn == "" || mysqlLike(f.conn)) }

func (f *form) integer(t *texts, raw []byte) cdc.Value {
	switch raw[0] {
	case '"': // bigint.unsigned.handling.mode=precise or string
		exact := form{reader: asDecimal, kind: cdc.Integer, conn: f.conn}
		return exact.decimal(t, raw)
	case 't', 'f':
		if f.bits == 8 { // a converter has made tinyint(1) a boolean: 9 cannot be told from 1
			return cdc.Value{Kind: cdc.Integer, S: boolText(raw[0] == 't', cdc.MySQL)}
		}
		return unclearValue(raw, whyType)
	case '{', '[':
		return unclearValue(raw, whyType)
	}
	text, ok := plainInteger(raw)
	if !ok {
		if f.reader == asItStands {
			any := form{bits: 64}
			return any.float(t, raw)
		}
		return unclearValue(raw, "a number that is no integer")
	}
	if text[0] != '-' || !f.unsigned && !f.mayBeUnsigned() {
		return cdc.Value{Kind: cdc.Integer, S: text}
	}
	bits := f.bits
	if bits == 0 {
		bits = 64
	}
	n, err := strconv.ParseInt(text, 10, bits)
	if err != nil {
		if f.unsigned {
			return unclearValue(raw, "below zero and too wide for its unsigned column")
		}
		return cdc.Value{Kind: cdc.Integer, S: text}
	}
	wrapped := t.uint(uint64(n) & (1<<bits - 1))
	if f.unsigned {
		return cdc.Value{Kind: cdc.Integer, S: wrapped}
	}
	return cdc.MaybeOneOf(text, wrapped)
}

// maxExponent bounds how far an integer such as 1e3 is written out, in digits.
const maxExponent = 40

// plainInteger is an integer with all its digits; 1e3, as some writers of JSON have it, is 1000. ok is false for a
// fraction.
func plainInteger(raw []byte) (text string, ok bool) {
	e := bytes.IndexAny(raw, ".eE")
	if e < 0 {
		if string(raw) == "-0" {
			return "0", true
		}
		return view(raw), true
	}
	if raw[e] == '.' {
		return "", false
	}
	exp, err := strconv.Atoi(strings.TrimPrefix(string(raw[e+1:]), "+"))
	if err != nil || exp < 0 || exp > maxExponent {
		return "", false
	}
	digits := string(raw[:e])
	if digits == "0" || digits == "-0" {
		return "0", true
	}
	return digits + strings.Repeat("0", exp), true
}

// decimal reads base64 of a big-endian two's complement number, or digits with their point. Where the two can be confused
// (a text of digits alone, without a point, is base64 too), both are candidates.
func (f *form) decimal(t *texts, raw []byte) cdc.Value {
	if raw[0] != '"' {
		switch {
		case f.exact && (raw[0] == '-' || raw[0] >= '0' && raw[0] <= '9'):
			return f.exactNumber(t, raw)
		case raw[0] == '{':
			return variableDecimal(t, raw)
		case f.kind == cdc.Integer && isJSONInt(view(raw)):
			return cdc.Value{Kind: cdc.Integer, S: view(raw)}
		}
		return unclearValue(raw, whyDouble)
	}
	text, ok := t.unquote(raw)
	if !ok {
		return unclearValue(raw, whyText)
	}
	asDigits := !f.binary && isDecimalText(text)
	if asDigits && bytes.IndexByte(text, '.') < 0 && f.scale > 0 && f.reader == asDecimal && len(text)%4 == 0 {
		asDigits = text[0] == 'N' && string(text) == "NaN" // digits of a scaled decimal have their point
	}
	// Digits as base64 are a number below zero, which no bigint unsigned is.
	if asDigits && (f.reader == asDecimalText || f.kind == cdc.Integer || len(text)%4 != 0 || bytes.ContainsAny(text, ".-") || text[0] > '9') {
		return f.digitsValue(t, raw, view(text))
	}
	if f.reader == asDecimalText {
		return unclearValue(raw, "not the text of a number")
	}
	b, err := t.base64(raw)
	if err != nil {
		return unclearValue(raw, err.Error())
	}
	if f.scale == unknown {
		return unclearValue(raw, "base64 decimal without a scale (declare it under columns: decimal(10,2))")
	}
	value := unscaled(t, raw, b, f.scale, f.kind)
	if asDigits && value.Kind != cdc.Unclear {
		return cdc.MaybeOneOf(value.S, view(text))
	}
	return value
}

// exactNumber is a decimal that came as a JSON number with all its digits: 500.00, or 0E-10 as Java has it.
func (f *form) exactNumber(t *texts, raw []byte) cdc.Value {
	mantissa, exponent, _ := strings.Cut(strings.ToUpper(view(raw)), "E")
	shift, err := strconv.Atoi(strings.TrimPrefix(exponent, "+"))
	if exponent != "" && err != nil || shift > maxScale || shift < -maxScale || len(raw) > maxNumber {
		return unclearValue(raw, "no decimal number")
	}
	if exponent != "" {
		whole, fraction, _ := strings.Cut(mantissa, ".")
		mantissa = t.point([]byte(whole+fraction), len(fraction)-shift)
	}
	return f.digitsValue(t, raw, mantissa)
}

// digitsValue is a number that came as its digits, with the zeros that its declared scale shows.
func (f *form) digitsValue(t *texts, raw []byte, text string) cdc.Value {
	_, fraction, pointed := strings.Cut(text, ".")
	if pointed && f.kind == cdc.Integer {
		return unclearValue(raw, "a number that is no integer")
	}
	if missing := f.scale - len(fraction); missing > 0 && missing <= maxScale && text[len(text)-1] <= '9' {
		start := len(t.b)
		if t.b = append(t.b, text...); !pointed {
			t.b = append(t.b, '.')
		}
		t.b = appendZeros(t.b, missing)
		text = t.textSince(start)
	}
	return cdc.Value{Kind: f.kind, S: text}
}

// isDecimalText reports whether a text is a number's digits, or one of Postgres's three that have none.
func isDecimalText(text []byte) bool {
	switch string(text) {
	case "NaN", "Infinity", "-Infinity":
		return true
	}
	n := numberLen(text)
	return n > 0 && n == len(text) && !bytes.ContainsAny(text, "eE")
}

func variableDecimal(t *texts, raw []byte) cdc.Value {
	const why = "a struct"
	if raw[0] != '{' {
		return unclearValue(raw, whyType)
	}
	var scale, value []byte
	m := members{s: scanner{b: raw}}
	for {
		name, member, ok, err := m.next()
		if err != nil {
			return unclearValue(raw, why)
		}
		if !ok {
			break
		}
		switch string(name) {
		case "scale":
			scale = member
		case "value":
			value = member
		default:
			return unclearValue(raw, why)
		}
	}
	n, err := strconv.Atoi(view(scale))
	if err != nil {
		return unclearValue(raw, why)
	}
	b, err := t.base64(value)
	if err != nil {
		return unclearValue(raw, why)
	}
	return unscaled(t, raw, b, n, cdc.Decimal)
}

// unscaled writes a two's complement number with its decimal point.
func unscaled(t *texts, raw, b []byte, scale int, kind cdc.Kind) cdc.Value {
	if len(b) == 0 || len(b) > maxNumber || scale > maxScale || scale < -maxScale {
		return unclearValue(raw, "no decimal number")
	}
	var buf [24]byte
	digits := buf[:0]
	if len(b) <= 8 {
		n := int64(int8(b[0]))
		for _, c := range b[1:] {
			n = n<<8 | int64(c)
		}
		digits = strconv.AppendInt(digits, n, 10)
	} else {
		n := new(big.Int).SetBytes(b)
		if b[0] >= 0x80 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		digits = n.Append(digits, 10)
	}
	return cdc.Value{Kind: kind, S: t.point(digits, scale)}
}

// point writes digits with a decimal point before the last scale of them.
func (t *texts) point(digits []byte, scale int) string {
	start := len(t.b)
	if digits[0] == '-' {
		t.b, digits = append(t.b, '-'), digits[1:]
	}
	switch whole := len(digits) - scale; {
	case scale <= 0:
		if t.b = append(t.b, digits...); digits[0] != '0' {
			t.b = appendZeros(t.b, -scale)
		}
	case whole <= 0:
		t.b = append(appendZeros(append(t.b, '0', '.'), -whole), digits...)
	default:
		t.b = append(append(append(t.b, digits[:whole]...), '.'), digits[whole:]...)
	}
	return t.textSince(start)
}

func appendZeros(b []byte, n int) []byte {
	for range n {
		b = append(b, '0')
	}
	return b
}

func (f *form) float(t *texts, raw []byte) cdc.Value {
	n, err := strconv.ParseFloat(t.of(raw), f.bits) // NaN and Infinity have no JSON number, and come as text
	if err != nil {
		return unclearValue(raw, "not a number")
	}
	format := byte('f')
	if a := math.Abs(n); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	start := len(t.b)
	t.b = strconv.AppendFloat(t.b, n, format, -1, f.bits)
	return cdc.Value{Kind: cdc.Float, S: t.textSince(start)}
}
