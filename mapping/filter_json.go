package mapping

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"invalidator/cdc"
)

const (
	maxPath     = 32   // steps from a document's root to its scalar
	maxNesting  = 1000 // of a document: MySQL allows 100; more is not looked at, for each level is a call
	detailDoc   = "the text is no JSON"
	detailUTF16 = "the path leads to a string that is no Unicode text"
)

// pathStep is a member's name, or else an index.
type pathStep struct {
	name  string
	index int // noIndex: a name
}

const noIndex = -1

// bindJSON gives what stands at a path: a string's text, a number as the document has it, true or false; an object or an array is a
// document again, of which elements may follow. As in SQL, null and nothing at all are NULL.
func bindJSON(args []argument) (step, *fault) {
	path, bad := parsePath(args[0])
	if bad != nil {
		return nil, bad
	}
	return func(dst, src []byte, _ cdc.Kind) ([]byte, cdc.Kind, string) {
		d := document{b: src}
		value := d.find(path, 0)
		if d.space(); d.bad || d.i < len(src) {
			return dst, cdc.Text, detailDoc
		}
		return appendJSON(dst, value)
	}, nil
}

// appendJSON appends the text of a JSON value; nil is nothing at all.
func appendJSON(dst, value []byte) ([]byte, cdc.Kind, string) {
	if value == nil {
		return dst, cdc.Null, ""
	}
	switch value[0] {
	case '{', '[':
		return append(dst, value...), cdc.JSON, ""
	case 'n':
		return dst, cdc.Null, ""
	case 't', 'f':
		return append(dst, value...), cdc.Text, ""
	case '"':
		start := len(dst)
		dst, ok := unquote(dst, value)
		if !ok || !utf8.Valid(dst[start:]) {
			return dst[:start], cdc.Text, detailUTF16
		}
		return dst, cdc.Text, ""
	}
	if bytes.ContainsAny(value, ".eE") {
		return append(dst, value...), cdc.Decimal, ""
	}
	return append(dst, value...), cdc.Integer, ""
}

// parsePath reads a.b[0], and "a.b" in double quotes for a name that holds one of the signs.
func parsePath(a argument) (path []pathStep, bad *fault) {
	fail := func(format string, args ...any) ([]pathStep, *fault) {
		return nil, a.fault("write json('a.b[0]'), or json('\"a.b\".c') for a name with a point", format, args...)
	}
	text := a.text
	for first := true; first || text != ""; first = false {
		switch {
		case text == "$" || strings.HasPrefix(text, "$.") || strings.HasPrefix(text, "$["):
			return fail("a path begins below the document's root, without $")
		case strings.HasPrefix(text, "["):
			digits, rest, _ := strings.Cut(text[1:], "]")
			n, err := strconv.Atoi(digits)
			if err != nil || n < 0 || digits[0] == '+' || !strings.HasPrefix(text[1+len(digits):], "]") {
				return fail("%q is no index", text)
			}
			path, text = append(path, pathStep{index: n}), rest
		default:
			if !first && text[0] == '.' {
				text = text[1:]
			} else if !first {
				return fail("a point is missing before %q", text)
			}
			var name string
			if quoted, ok := strings.CutPrefix(text, `"`); ok {
				name, text, ok = strings.Cut(quoted, `"`)
				if !ok {
					return fail("a name without its closing quote: %q", quoted)
				}
			} else {
				n := strings.IndexAny(text, `.[]"*`)
				if n < 0 {
					n = len(text)
				}
				if name, text = text[:n], text[n:]; name == "" {
					return fail("%q is no path to one scalar", a.text)
				}
			}
			path = append(path, pathStep{name: name, index: noIndex})
		}
	}
	if len(path) > maxPath {
		return fail("the path has more than %d steps", maxPath)
	}
	return path, nil
}

// document walks JSON text without building anything of it. It checks the grammar of all that it passes over.
type document struct {
	b   []byte
	i   int
	bad bool
}

func (d *document) space() {
	for d.i < len(d.b) && (d.b[d.i] == ' ' || d.b[d.i] == '\t' || d.b[d.i] == '\n' || d.b[d.i] == '\r') {
		d.i++
	}
}

// take consumes c, after space.
func (d *document) take(c byte) bool {
	d.space()
	if d.i < len(d.b) && d.b[d.i] == c {
		d.i++
		return true
	}
	return false
}

// find passes over a value and returns the text of what stands at the path in it, or nil. Of a member that is doubled the
// last counts, as in every server.
func (d *document) find(path []pathStep, depth int) (found []byte) {
	d.space()
	start := d.i
	switch {
	case d.bad, depth > maxNesting:
		d.bad = true
	case d.take('{'):
		found = d.members(path, depth)
	case d.take('['):
		found = d.elements(path, depth)
	default:
		d.scalar()
	}
	if len(path) == 0 && !d.bad {
		return d.b[start:d.i]
	}
	return found
}

func (d *document) members(path []pathStep, depth int) (found []byte) {
	if d.take('}') {
		return nil
	}
	for !d.bad {
		d.space()
		start := d.i
		d.string()
		name := d.b[start:d.i]
		if !d.take(':') {
			d.bad = true
		}
		if !d.bad && len(path) > 0 && path[0].index == noIndex && isName(name, path[0].name) {
			found = d.find(path[1:], depth+1)
		} else {
			d.skip(depth + 1)
		}
		if d.take('}') {
			return found
		}
		d.bad = d.bad || !d.take(',')
	}
	return nil
}

func (d *document) elements(path []pathStep, depth int) (found []byte) {
	if d.take(']') {
		return nil
	}
	for n := 0; !d.bad; n++ {
		if len(path) > 0 && path[0].index == n {
			found = d.find(path[1:], depth+1)
		} else {
			d.skip(depth + 1)
		}
		if d.take(']') {
			return found
		}
		d.bad = d.bad || !d.take(',')
	}
	return nil
}

// nowhere is a path to nothing.
var nowhere = []pathStep{{index: noIndex - 1}}

func (d *document) skip(depth int) { d.find(nowhere, depth) }

func (d *document) scalar() {
	if d.i == len(d.b) {
		d.bad = true
		return
	}
	switch c := d.b[d.i]; {
	case c == '"':
		d.string()
	case c == 't':
		d.word("true")
	case c == 'f':
		d.word("false")
	case c == 'n':
		d.word("null")
	default:
		d.number()
	}
}

func (d *document) word(w string) {
	if d.bad = !bytes.HasPrefix(d.b[d.i:], []byte(w)); !d.bad {
		d.i += len(w)
	}
}

func (d *document) number() {
	if d.i < len(d.b) && d.b[d.i] == '-' {
		d.i++
	}
	whole := d.i
	d.digits()
	if d.i < len(d.b) && d.b[d.i] == '.' {
		d.i++
		d.digits()
	}
	if d.i < len(d.b) && d.b[d.i]|0x20 == 'e' {
		if d.i++; d.i < len(d.b) && (d.b[d.i] == '+' || d.b[d.i] == '-') {
			d.i++
		}
		d.digits()
	}
	if whole+1 < d.i && d.b[whole] == '0' && '0' <= d.b[whole+1] && d.b[whole+1] <= '9' {
		d.bad = true
	}
}

func (d *document) digits() {
	start := d.i
	for d.i < len(d.b) && '0' <= d.b[d.i] && d.b[d.i] <= '9' {
		d.i++
	}
	d.bad = d.bad || d.i == start
}

func (d *document) string() {
	if d.i == len(d.b) || d.b[d.i] != '"' {
		d.bad = true
		return
	}
	for d.i++; d.i < len(d.b); d.i++ {
		switch c := d.b[d.i]; {
		case c == '"':
			d.i++
			return
		case c == '\\':
			if d.i++; d.i == len(d.b) || strings.IndexByte(escapes+"u", d.b[d.i]) < 0 || d.b[d.i] == 'u' && hex4(d.b[d.i+1:]) < 0 {
				d.bad = true
				return
			}
		case c < ' ':
			d.bad = true
			return
		}
	}
	d.i, d.bad = len(d.b), true
}

// What stands behind a backslash, apart from u, and what it means.
const (
	escapes = `"\/bfnrt`
	escaped = "\"\\/\b\f\n\r\t"
)

// isName reports whether a member's name, in its quotes, is that name.
func isName(quoted []byte, name string) bool {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == name
	}
	text, ok := unquote(nil, quoted)
	return ok && string(text) == name
}

// unquote appends the text of a string, which stands in its quotes and keeps to the grammar. It is false where that is no
// Unicode: half a pair of code units.
func unquote(dst, quoted []byte) ([]byte, bool) {
	for b := quoted[1 : len(quoted)-1]; len(b) > 0; {
		n := bytes.IndexByte(b, '\\')
		if n < 0 {
			return append(dst, b...), true
		}
		dst = append(dst, b[:n]...)
		b = b[n+1:]
		if c := b[0]; c != 'u' {
			dst, b = append(dst, escaped[strings.IndexByte(escapes, c)]), b[1:]
			continue
		}
		c := hex4(b[1:])
		if b = b[5:]; utf16.IsSurrogate(c) && len(b) > 1 && b[0] == '\\' && b[1] == 'u' {
			if c = utf16.DecodeRune(c, hex4(b[2:])); c == utf8.RuneError {
				return dst, false
			}
			b = b[6:]
		}
		if utf16.IsSurrogate(c) {
			return dst, false
		}
		dst = utf8.AppendRune(dst, c)
	}
	return dst, true
}

// hex4 is a code unit of four hexadecimal digits; -1 where they are none.
func hex4(b []byte) (c rune) {
	if len(b) < 4 {
		return -1
	}
	for _, h := range b[:4] {
		switch {
		case '0' <= h && h <= '9':
			c = c<<4 | rune(h-'0')
		case 'a' <= h|0x20 && h|0x20 <= 'f':
			c = c<<4 | rune(h|0x20-'a'+10)
		default:
			return -1
		}
	}
	return c
}
