package mysql

import (
	"slices"
	"strings"

	"invalidator/cdc"
)

// scanner splits SQL into words, past blanks and comments. The content of an executable comment (/*!50100 … */) counts.
type scanner struct {
	text   string
	inside bool // within an executable comment
}

// token is a word, a quoted name without its quotes, or one other character; the zero token is the end.
type token struct {
	text   string
	quoted bool
}

// keyword is the next word in upper case; empty at the end or where something else follows.
func (s *scanner) keyword() string {
	t := s.next()
	if t.quoted {
		return ""
	}
	return strings.ToUpper(t.text)
}

// has reports whether the next token is the given unquoted word, and takes it if so.
func (s *scanner) has(word string) bool {
	rest := *s
	if t := rest.next(); t.quoted || !strings.EqualFold(t.text, word) {
		return false
	}
	*s = rest
	return true
}

// skip takes as many of the words as come next.
func (s *scanner) skip(words ...string) {
	for slices.ContainsFunc(words, s.has) {
	}
}

// skipTo takes everything up to and with the first of the words that stands outside parentheses, and gives it; empty at the end.
func (s *scanner) skipTo(words ...string) string {
	for depth := 0; ; {
		switch t := s.next(); {
		case t == token{}:
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

// closeParens takes everything behind an opening parenthesis up to the one that closes it.
func (s *scanner) closeParens() {
	for depth := 1; depth > 0; {
		t := s.next()
		switch {
		case t == token{}:
			return
		case t.quoted:
		case t.text == "(":
			depth++
		case t.text == ")":
			depth--
		}
	}
}

// name reads a table's name, with the database that it is in, and the .* that a DELETE may put behind it; false where
// something else comes.
func (s *scanner) name(database string) (cdc.TableID, bool) {
	rest := *s
	t := rest.next()
	if !t.quoted && !isWord(t.text) {
		return cdc.TableID{}, false
	}
	*s = rest
	id := cdc.TableID{Schema: database, Table: t.text}
	for rest.has(".") {
		t = rest.next()
		if !t.quoted && !isWord(t.text) && t.text != "*" {
			break
		}
		*s = rest
		if t.quoted || t.text != "*" {
			id = cdc.TableID{Schema: id.Table, Table: t.text}
		}
	}
	return id, true
}

// names reads a list of names with commas between.
func (s *scanner) names(database string) (list []cdc.TableID) {
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

func isWord(s string) bool { return s != "" && isWordByte(s[0]) }

func isWordByte(b byte) bool {
	return b == '_' || b == '$' || b >= 0x80 || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

func (s *scanner) next() token {
	s.blanks()
	if s.text == "" {
		return token{}
	}
	switch b := s.text[0]; {
	case b == '`' || b == '"' || b == '\'':
		return token{s.quotedText(b), true}
	case isWordByte(b):
		n := 1
		for n < len(s.text) && isWordByte(s.text[n]) {
			n++
		}
		return token{s.cut(n), false}
	}
	return token{s.cut(1), false}
}

func (s *scanner) cut(n int) string {
	head := s.text[:n]
	s.text = s.text[n:]
	return head
}

// quotedText reads up to the closing quote; a doubled quote stands for itself, and so does what is behind a backslash in a
// string. An open end is the text's.
func (s *scanner) quotedText(q byte) string {
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
func (s *scanner) blanks() {
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

func (s *scanner) skipPast(end string) {
	_, s.text, _ = strings.Cut(s.text, end)
}
