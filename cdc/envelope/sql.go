package envelope

import (
	"slices"
	"strings"

	"invalidator/cdc"
)

// sqlScanner splits SQL as MySQL and MariaDB write it into words, past blanks and comments. What an executable comment
// (/*!50100 … */) holds counts.
type sqlScanner struct {
	text   string
	inside bool // within an executable comment
}

// sqlToken is a word, a quoted name without its quotes, or one other character; the zero token is the end.
type sqlToken struct {
	text   string
	quoted bool
}

// keyword is the next word in upper case; empty at the end, or where a quoted name follows.
func (s *sqlScanner) keyword() string {
	t := s.next()
	if t.quoted {
		return ""
	}
	return strings.ToUpper(t.text)
}

// has reports whether the next token is the given unquoted word, and takes it if so.
func (s *sqlScanner) has(word string) bool {
	rest := *s
	if t := rest.next(); t.quoted || !strings.EqualFold(t.text, word) {
		return false
	}
	*s = rest
	return true
}

// skip takes as many of the words as come next.
func (s *sqlScanner) skip(words ...string) {
	for slices.ContainsFunc(words, s.has) {
	}
}

// skipTo takes everything up to and with the first of the words that stands outside parentheses, and gives it; empty at the end.
func (s *sqlScanner) skipTo(words ...string) string {
	for depth := 0; ; {
		switch t := s.next(); {
		case t == sqlToken{}:
			return ""
		case t.quoted:
		case t.text == "(":
			depth++
		case t.text == ")":
			depth--
		case depth <= 0 && slices.Contains(words, strings.ToUpper(t.text)):
			return strings.ToUpper(t.text)
		}
	}
}

// name reads a table's name, with the database that it is in; false where something else comes.
func (s *sqlScanner) name(database string) (cdc.TableID, bool) {
	rest := *s
	t := rest.next()
	if !t.isName() {
		return cdc.TableID{}, false
	}
	*s = rest
	id := cdc.TableID{Schema: database, Table: t.text}
	for rest.has(".") {
		if t = rest.next(); !t.isName() {
			break
		}
		*s = rest
		id = cdc.TableID{Schema: id.Table, Table: t.text}
	}
	return id, true
}

// names reads a list of names with commas between.
func (s *sqlScanner) names(database string) (list []cdc.TableID) {
	for {
		id, ok := s.name(database)
		if !ok {
			return list
		}
		if list = append(list, id); !s.has(",") {
			return list
		}
	}
}

func (t sqlToken) isName() bool { return t.text != "" && (t.quoted || isSQLWord(t.text[0])) }

func isSQLWord(b byte) bool {
	return b == '_' || b == '$' || b >= 0x80 || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

func (s *sqlScanner) next() sqlToken {
	s.blanks()
	if s.text == "" {
		return sqlToken{}
	}
	switch b := s.text[0]; {
	case b == '`' || b == '"' || b == '\'':
		return sqlToken{s.quotedText(b), true}
	case isSQLWord(b):
		n := 1
		for n < len(s.text) && isSQLWord(s.text[n]) {
			n++
		}
		return sqlToken{s.cut(n), false}
	}
	return sqlToken{s.cut(1), false}
}

func (s *sqlScanner) cut(n int) string {
	head := s.text[:n]
	s.text = s.text[n:]
	return head
}

// quotedText reads up to the closing quote; a doubled quote stands for itself, and so does what is behind a backslash in a
// string. An open end is the text's.
func (s *sqlScanner) quotedText(q byte) string {
	var b strings.Builder
	s.cut(1)
	for s.text != "" {
		c := s.cut(1)
		switch {
		case c[0] == '\\' && q != '`' && s.text != "":
			c = s.cut(1)
		case c[0] == q && !strings.HasPrefix(s.text, string(q)):
			return b.String()
		case c[0] == q:
			s.cut(1)
		}
		b.WriteString(c)
	}
	return b.String()
}

// blanks skips blanks and comments, and the marks of executable comments.
func (s *sqlScanner) blanks() {
	for {
		s.text = strings.TrimLeft(s.text, " \t\r\n\f\v")
		switch {
		case strings.HasPrefix(s.text, "/*!"), strings.HasPrefix(s.text, "/*M!"):
			s.cut(strings.IndexByte(s.text, '!') + 1)
			s.text = strings.TrimLeft(s.text, "0123456789")
			s.inside = true
		case strings.HasPrefix(s.text, "/*"):
			s.skipPast("*/")
		case s.inside && strings.HasPrefix(s.text, "*/"):
			s.cut(2)
			s.inside = false
		case strings.HasPrefix(s.text, "#"):
			s.skipPast("\n")
		case strings.HasPrefix(s.text, "--") && (len(s.text) == 2 || strings.ContainsRune(" \t\r\n", rune(s.text[2]))):
			s.skipPast("\n")
		default:
			return
		}
	}
}

func (s *sqlScanner) skipPast(end string) {
	_, s.text, _ = strings.Cut(s.text, end)
}
