package mysql

import (
	"encoding/binary"
	"errors"
	"math"
	"strconv"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
)

// maxPlainDigits is how many digits before the point, or zeros behind it, MySQL writes out; beyond it takes an exponent.
const maxPlainDigits = 15

// appendDouble writes a double as MySQL shows it within a document: the shortest digits that mean it, with a point or an exponent
// at least (1.0, 1e15, 0.00001). The driver's own text has other exponents, and long rows of digits where MySQL has one.
func appendDouble(dst []byte, v float64) []byte {
	var buf [32]byte
	s := strconv.AppendFloat(buf[:0], math.Abs(v), 'e', -1, 64) // d.ddde±xx
	mark := len(s) - 1
	for s[mark] != 'e' {
		mark--
	}
	exponent, _ := strconv.Atoi(string(s[mark+1:]))
	digits := append(s[:1], s[min(2, mark):mark]...)
	point := exponent + 1 // where it stands among the digits
	if math.Signbit(v) {
		dst = append(dst, '-')
	}
	switch {
	case point <= -maxPlainDigits, point > maxPlainDigits && point >= len(digits):
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(append(dst, '.'), digits[1:]...)
		}
		return strconv.AppendInt(append(dst, 'e'), int64(exponent), 10)
	case point <= 0:
		dst = append(dst, "0."...)
		for range -point {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	}
	for i := range point {
		if i < len(digits) {
			dst = append(dst, digits[i])
		} else {
			dst = append(dst, '0')
		}
	}
	dst = append(dst, '.')
	if point >= len(digits) {
		return append(dst, '0')
	}
	return append(dst, digits[point:]...)
}

// number takes note of a value that stands in the document's text as a number, in its place among them: a double's own text, or
// nothing for one that the driver writes as MySQL does. It reports whether the value can be one.
func (w *jsonWalk) number(kind byte, data string) bool {
	text := ""
	switch kind {
	case replication.JSONB_INT16, replication.JSONB_UINT16, replication.JSONB_INT32, replication.JSONB_UINT32, replication.JSONB_INT64, replication.JSONB_UINT64:
	case replication.JSONB_OPAQUE:
		if data == "" || data[0] != mysql.MYSQL_TYPE_NEWDECIMAL {
			return true
		}
	case replication.JSONB_DOUBLE:
		if len(data) < 8 {
			return false
		}
		v := math.Float64frombits(binary.LittleEndian.Uint64([]byte(data[:8])))
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return false
		}
		w.doubles = true
		if w.keep {
			text = string(appendDouble(nil, v))
		}
	default:
		return true
	}
	if w.keep {
		w.numbers = append(w.numbers, text)
	}
	return true
}

// numbersOf are a finite document's numbers in the order of its text, nil where the driver writes all of them as MySQL does.
func numbersOf(doc string) []string {
	w := jsonWalk{budget: len(doc)}
	if w.follow(doc[0], doc[1:], 0); !w.doubles {
		return nil
	}
	w = jsonWalk{budget: len(doc), keep: true}
	w.follow(doc[0], doc[1:], 0)
	return w.numbers
}

var errNumbers = errors.New("its numbers do not fit")

// spaced puts MySQL's blanks behind the commas and colons of a document, but not within its strings, and its doubles' texts in
// the place of the driver's. numbers are all of the document's; nil for no double.
func spaced(doc string, numbers []string) (string, error) {
	out := make([]byte, 0, len(doc)+len(doc)/8)
	quoted, next := false, 0
	for i := 0; i < len(doc); i++ {
		b := doc[i]
		if !quoted && numbers != nil && (b == '-' || b >= '0' && b <= '9') {
			end := i + 1
			for end < len(doc) && doc[end] != ',' && doc[end] != ']' && doc[end] != '}' {
				end++
			}
			if next >= len(numbers) {
				return "", errNumbers
			}
			if text := numbers[next]; text != "" {
				out = append(out, text...)
			} else {
				out = append(out, doc[i:end]...)
			}
			next++
			i = end - 1
			continue
		}
		out = append(out, b)
		switch {
		case quoted && b == '\\' && i+1 < len(doc):
			i++
			out = append(out, doc[i])
		case b == '"':
			quoted = !quoted
		case !quoted && (b == ',' || b == ':'):
			out = append(out, ' ')
		}
	}
	if next != len(numbers) {
		return "", errNumbers
	}
	return string(out), nil
}
