package envelope

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strconv"
	"unicode/utf8"
	"unsafe"
)

var errNotUTF8 = errors.New("text is not valid UTF-8")

// appendString appends s as a JSON string. It refuses what is not UTF-8: the bytes would not come back as they were.
func appendString(b []byte, s string) ([]byte, error) {
	if isPlain(s) {
		return append(append(append(b, '"'), s...), '"'), nil
	}
	if !utf8.ValidString(s) {
		return b, errNotUTF8
	}
	const digits = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, '\\', 'n')
		default:
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		from = i + 1
	}
	return append(append(b, s[from:]...), '"'), nil
}

// isPlain reports whether a text is of ASCII and stands in JSON as it is.
func isPlain(s string) bool {
	const highs = 0x8080808080808080
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for ; len(b) >= 8; b = b[8:] {
		if w := binary.LittleEndian.Uint64(b); w&highs != 0 || marks(w) != 0 {
			return false
		}
	}
	for _, c := range b {
		if c < 0x20 || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

func appendBase64(b []byte, s string) []byte {
	b = append(b, '"')
	b = base64.StdEncoding.AppendEncode(b, []byte(s))
	return append(b, '"')
}

func appendIntField(b []byte, name string, n int64) []byte {
	b = append(append(b, name...), ':')
	return strconv.AppendInt(b, n, 10)
}

// isJSONInt reports whether s is an integer as JSON writes it, so that it stands in a record with all its digits.
func isJSONInt(s string) bool {
	if len(s) > 0 && s[0] == '-' {
		s = s[1:]
	}
	if s == "" || len(s) > 1 && s[0] == '0' {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
