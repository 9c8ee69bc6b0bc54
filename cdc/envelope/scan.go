package envelope

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// The scanner walks JSON text without building anything of it: a worker wants a few columns of a record and passes over
// the rest. It checks the grammar of what it passes over, and works in place; its memory is bounded by maxDepth.

// maxDepth bounds nesting. A Debezium record with its schema has 8 levels; columns of nested arrays add theirs.
const maxDepth = 64

var (
	errDepth    = fmt.Errorf("JSON nested deeper than %d levels", maxDepth)
	errTrailing = errors.New("text after the JSON value")
	errCut      = errors.New("JSON ends in the middle")
)

type scanner struct {
	b []byte
	i int
}

func (s *scanner) bad() error {
	if s.i >= len(s.b) {
		return errCut
	}
	return fmt.Errorf("not JSON at byte %d: %q", s.i, s.b[s.i])
}

// space passes over white space, of which there is none in what Debezium and we write.
func (s *scanner) space() {
	if s.i < len(s.b) && s.b[s.i] <= ' ' {
		s.spaces()
	}
}

func (s *scanner) spaces() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return
		}
	}
}

// take consumes c, after space.
func (s *scanner) take(c byte) bool {
	s.space()
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// end checks that nothing follows.
func (s *scanner) end() error {
	if s.space(); s.i < len(s.b) {
		return errTrailing
	}
	return nil
}

// raw returns the text of the next value.
func (s *scanner) raw() ([]byte, error) {
	s.space()
	start := s.i
	if n := plainLen(s.b[start:]); n > 0 {
		s.i += n
		return s.b[start:s.i], nil
	}
	if err := s.skip(0); err != nil {
		return nil, err
	}
	return s.b[start:s.i], nil
}

// plainLen is the length of the short text or whole number that b begins with, which most values are; 0 where it begins with
// anything else, or with what must be looked at closer.
func plainLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	if b[0]-'1' < 9 {
		for i := 1; i < len(b); i++ {
			if c := b[i]; c-'0' >= 10 {
				if c == ',' || c == '}' {
					return i
				}
				return 0
			}
		}
		return 0
	}
	if b[0] != '"' {
		return 0
	}
	for i := 1; len(b)-i >= 8; i += 8 {
		if m := marks(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			if i += bits.TrailingZeros64(m) / 8; b[i] == '"' {
				return i + 1
			}
			return 0
		}
	}
	return 0
}

// object is raw for what is read afterwards, or never: of an object it looks at brackets and strings alone, which is faster.
func (s *scanner) object() ([]byte, error) {
	if s.space(); s.i >= len(s.b) || s.b[s.i] != '{' {
		return s.raw()
	}
	start, depth := s.i, 0
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case '"':
			if _, err := s.skipString(); err != nil {
				return nil, err
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.i++
				return s.b[start:s.i], nil
			}
		}
		s.i++
	}
	return nil, errCut
}

func (s *scanner) skip(depth int) error {
	s.space()
	if s.i >= len(s.b) {
		return errCut
	}
	switch c := s.b[s.i]; c {
	case '"':
		_, err := s.skipString()
		return err
	case '{', '[':
		if depth == maxDepth {
			return errDepth
		}
		s.i++
		return s.skipInside(c, depth+1)
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	}
	n := numberLen(s.b[s.i:])
	if n == 0 {
		return s.bad()
	}
	s.i += n
	return nil
}

// skipInside passes over an object or array whose opening byte has been read.
func (s *scanner) skipInside(open byte, depth int) error {
	closing := open + 2 // ']' and '}' lie two after '[' and '{'
	if s.take(closing) {
		return nil
	}
	for {
		if open == '{' {
			if s.space(); s.i >= len(s.b) || s.b[s.i] != '"' {
				return s.bad()
			}
			if _, err := s.skipString(); err != nil {
				return err
			}
			if !s.take(':') {
				return s.bad()
			}
		}
		if err := s.skip(depth); err != nil {
			return err
		}
		if s.take(',') {
			continue
		}
		if s.take(closing) {
			return nil
		}
		return s.bad()
	}
}

func (s *scanner) word(w string) error {
	if len(s.b)-s.i < len(w) {
		return errCut
	}
	if string(s.b[s.i:s.i+len(w)]) != w {
		return s.bad()
	}
	s.i += len(w)
	return nil
}

// skipString passes over a string and reports whether anything in it is escaped.
func (s *scanner) skipString() (escaped bool, err error) {
	b, i := s.b, s.i+1
	for {
		for len(b)-i >= 8 {
			m := marks(binary.LittleEndian.Uint64(b[i:]))
			if m != 0 {
				i += bits.TrailingZeros64(m) / 8
				break
			}
			i += 8
		}
		if i >= len(b) {
			s.i = i
			return escaped, errCut
		}
		switch c := b[i]; {
		case c == '"':
			s.i = i + 1
			return escaped, nil
		case c == '\\':
			n := escapeLen(b[i:])
			if n == 0 {
				s.i = i
				return escaped, s.bad()
			}
			escaped = true
			i += n
		case c < 0x20:
			s.i = i
			return escaped, s.bad()
		default:
			i++
		}
	}
}

// marks sets the high bit of each of eight bytes that ends a string, escapes, or is a control character. A borrow from one
// may mark those above it too, so that the lowest mark alone is sure.
func marks(w uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quotes, slashes := w^(ones*'"'), w^(ones*'\\')
	control := (w - ones*0x20) &^ w
	return (control | (quotes-ones)&^quotes | (slashes-ones)&^slashes) & highs
}

// escapeLen is the length of the escape that b begins with; 0 where it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if hex4(b) >= 0 {
			return 6
		}
	}
	return 0
}

// hex4 reads \uXXXX; -1 where it is none.
func hex4(b []byte) rune {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	n, err := strconv.ParseUint(string(b[2:6]), 16, 32)
	if err != nil {
		return -1
	}
	return rune(n)
}

// numberLen is the length of the JSON number that b begins with; 0 where there is none.
func numberLen(b []byte) int {
	i := 0
	if i < len(b) && b[i] == '-' {
		i++
	}
	n := digitsLen(b[i:])
	if n == 0 || n > 1 && b[i] == '0' {
		return 0
	}
	i += n
	if i < len(b) && b[i] == '.' {
		if n = digitsLen(b[i+1:]); n == 0 {
			return 0
		}
		i += 1 + n
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if n = digitsLen(b[i:]); n == 0 {
			return 0
		}
		i += n
	}
	return i
}

func digitsLen(b []byte) int {
	n := 0
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	return n
}

func isJSONNumber(s string) bool { return s != "" && numberLen([]byte(s)) == len(s) }

// members walks the members of one object.
type members struct {
	s       scanner
	started bool
	inner   bool // more may follow the object
	n, from int  // which member is the next to be hinted, and where the last one's name began
}

// next returns the next member: its name, unescaped, and its value's text. ok is false at the object's end, and on error.
func (m *members) next() (name, value []byte, ok bool, err error) {
	if name, ok, err = m.name(); ok {
		value, err = m.s.raw()
	}
	return name, value, ok && err == nil, err
}

// name reads the next member's name alone: its value comes next in m.s.
func (m *members) name() (name []byte, ok bool, err error) {
	s := &m.s
	if !m.started {
		m.started = true
		if !s.take('{') {
			return nil, false, errors.New("not a JSON object")
		}
		if s.take('}') {
			return nil, false, m.end()
		}
	} else if !s.take(',') {
		if !s.take('}') {
			return nil, false, s.bad()
		}
		return nil, false, m.end()
	}
	if s.space(); s.i >= len(s.b) || s.b[s.i] != '"' {
		return nil, false, s.bad()
	}
	start := s.i
	escaped, err := s.skipString()
	if err != nil {
		return nil, false, err
	}
	name = s.b[start+1 : s.i-1]
	if escaped {
		if name, ok = unquote(s.b[start:s.i]); !ok {
			return nil, false, errors.New("a field's name is not valid text")
		}
	}
	if !s.take(':') {
		return nil, false, s.bad()
	}
	return name, true, nil
}

func (m *members) end() error {
	if m.inner {
		return nil
	}
	return m.s.end()
}

// unquote is texts.unquote for what is kept, or compared at once.
func unquote(raw []byte) (text []byte, ok bool) {
	var t texts
	return t.unquote(raw)
}

// appendUnescaped appends the inside of a JSON string as the text that it stands for.
func appendUnescaped(out, in []byte) (_ []byte, ok bool) {
	for i := 0; i < len(in); {
		if in[i] != '\\' {
			out = append(out, in[i])
			i++
			continue
		}
		if in[i+1] != 'u' {
			out = append(out, unescape(in[i+1]))
			i += 2
			continue
		}
		r := hex4(in[i:])
		i += 6
		if utf16.IsSurrogate(r) {
			r = utf16.DecodeRune(r, hex4(in[i:]))
			if r == utf8.RuneError {
				return out, false
			}
			i += 6
		}
		out = utf8.AppendRune(out, r)
	}
	return out, true
}

func unescape(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}
