package mapping

import (
	"encoding/hex"
	"slices"
	"unicode"
	"unicode/utf8"
)

// filter is one step between a column and the key. Each appends to dst what it makes of src and reports false where it
// cannot take src.
type filter struct {
	name  string
	raw   bool // takes the raw bytes of a binary value or a text, so that it only stands first, and takes no number
	apply func(dst, src []byte) ([]byte, bool)
}

// filters is the whole set. Names are what teams write; none takes arguments so far.
var filters = []*filter{
	{name: "lower", apply: eachRune(unicode.ToLower)},
	{name: "upper", apply: eachRune(unicode.ToUpper)},
	{name: "trim", apply: trim},
	{name: "hex", raw: true, apply: toHex},
	{name: "urlencode", apply: urlencode},
}

func filterNamed(name string) *filter {
	if i := slices.IndexFunc(filters, func(f *filter) bool { return f.name == name }); i >= 0 {
		return filters[i]
	}
	return nil
}

func filterNames() []string {
	names := make([]string, len(filters))
	for i, f := range filters {
		names[i] = f.name
	}
	return names
}

// eachRune refuses bytes that are no UTF-8: they would come out as U+FFFD, another key.
func eachRune(f func(rune) rune) func(dst, src []byte) ([]byte, bool) {
	return func(dst, src []byte) ([]byte, bool) {
		if !utf8.Valid(src) {
			return dst, false
		}
		for len(src) > 0 {
			c, n := utf8.DecodeRune(src)
			dst = utf8.AppendRune(dst, f(c))
			src = src[n:]
		}
		return dst, true
	}
}

func trim(dst, src []byte) ([]byte, bool) {
	if !utf8.Valid(src) {
		return dst, false
	}
	for len(src) > 0 {
		c, n := utf8.DecodeRune(src)
		if !unicode.IsSpace(c) {
			break
		}
		src = src[n:]
	}
	for len(src) > 0 {
		c, n := utf8.DecodeLastRune(src)
		if !unicode.IsSpace(c) {
			break
		}
		src = src[:len(src)-n]
	}
	return append(dst, src...), true
}

func toHex(dst, src []byte) ([]byte, bool) { return hex.AppendEncode(dst, src), true }

// urlencode escapes everything but the unreserved characters of RFC 3986.
func urlencode(dst, src []byte) ([]byte, bool) {
	const digits = "0123456789ABCDEF"
	for _, c := range src {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.', c == '_', c == '~':
			dst = append(dst, c)
		default:
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst, true
}
