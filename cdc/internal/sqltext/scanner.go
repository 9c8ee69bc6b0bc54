// Package sqltext splits statements of MySQL and MariaDB into words. cdc/mysql reads the statements of the log with it, and
// cdc/envelope those that other feeders hand on.
package sqltext

import (
	"slices"
	"strings"

	"invalidator/cdc"
)

// Scanner splits SQL into words, past blanks and comments. The content of an executable comment (/*!50100 … */) counts.
type Scanner struct {
	Text   string // what is still to be read
	inside bool   // within an executable comment
}

// Token is a word, a quoted name without its quotes, or one other character; the zero token is the end.
type Token struct {
	Text   string
	Quoted bool
}

// Keyword is the next word in upper case; empty at the end or where something else follows.
func (s *Scanner) Keyword() string {
	t := s.Next()
	if t.Quoted {
		return ""
	}
	return strings.ToUpper(t.Text)
}

// Has reports whether the next token is the given unquoted word, and takes it if so.
func (s *Scanner) Has(word string) bool {
	rest := *s
	if t := rest.Next(); t.Quoted || !strings.EqualFold(t.Text, word) {
		return false
	}
	*s = rest
	return true
}

// Skip takes as many of the words as come next.
func (s *Scanner) Skip(words ...string) {
	for slices.ContainsFunc(words, s.Has) {
	}
}

// SkipTo takes everything up to and with the first of the words that stands outside parentheses, and gives it; empty at the end.
func (s *Scanner) SkipTo(words ...string) string {
	for depth := 0; ; {
		switch t := s.Next(); {
		case t == Token{}:
			return ""
		case t.Quoted:
		case t.Text == "(":
			depth++
		case t.Text == ")":
			depth--
		case depth <= 0 && slices.Contains(words, strings.ToUpper(t.Text)):
			return strings.ToUpper(t.Text)
		}
	}
}

// CloseParens takes everything behind an opening parenthesis up to the one that closes it.
func (s *Scanner) CloseParens() {
	for depth := 1; depth > 0; {
		t := s.Next()
		switch {
		case t == Token{}:
			return
		case t.Quoted:
		case t.Text == "(":
			depth++
		case t.Text == ")":
			depth--
		}
	}
}

// Name reads a table's name, with the database that it is in, and the .* that a DELETE may put behind it; false where
// something else comes.
func (s *Scanner) Name(database string) (cdc.TableID, bool) {
	rest := *s
	t := rest.Next()
	if !t.Quoted && !isWord(t.Text) {
		return cdc.TableID{}, false
	}
	*s = rest
	id := cdc.TableID{Schema: database, Table: t.Text}
	for rest.Has(".") {
		t = rest.Next()
		if !t.Quoted && !isWord(t.Text) && t.Text != "*" {
			break
		}
		*s = rest
		if t.Quoted || t.Text != "*" {
			id = cdc.TableID{Schema: id.Table, Table: t.Text}
		}
	}
	return id, true
}

// Names reads a list of names with commas between.
func (s *Scanner) Names(database string) (list []cdc.TableID) {
	for {
		id, ok := s.Name(database)
		if !ok {
			return list
		}
		if list = append(list, id); !s.Has(",") {
			return list
		}
	}
}

func isWord(s string) bool { return s != "" && isWordByte(s[0]) }

func isWordByte(b byte) bool {
	return b == '_' || b == '$' || b >= 0x80 || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
}

func (s *Scanner) Next() Token {
	s.blanks()
	if s.Text == "" {
		return Token{}
	}
	switch b := s.Text[0]; {
	case b == '`' || b == '"' || b == '\'':
		return Token{s.quotedText(b), true}
	case isWordByte(b):
		n := 1
		for n < len(s.Text) && isWordByte(s.Text[n]) {
			n++
		}
		return Token{s.cut(n), false}
	}
	return Token{s.cut(1), false}
}

func (s *Scanner) cut(n int) string {
	head := s.Text[:n]
	s.Text = s.Text[n:]
	return head
}

// quotedText reads up to the closing quote; a doubled quote stands for itself, and so does what is behind a backslash in a
// string. An open end is the text's.
func (s *Scanner) quotedText(q byte) string {
	var b strings.Builder
	s.cut(1)
	for s.Text != "" {
		c := s.cut(1)
		switch {
		case c[0] == '\\' && q != '`' && s.Text != "":
			c = s.cut(1)
		case c[0] == q && !strings.HasPrefix(s.Text, string(q)):
			return b.String()
		case c[0] == q:
			s.cut(1)
		}
		b.WriteString(c)
	}
	return b.String()
}

// blanks skips blanks and comments, and the marks of executable comments.
func (s *Scanner) blanks() {
	for {
		s.Text = strings.TrimLeft(s.Text, " \t\r\n\f\v")
		switch {
		case strings.HasPrefix(s.Text, "/*!"), strings.HasPrefix(s.Text, "/*M!"):
			s.cut(strings.IndexByte(s.Text, '!') + 1)
			s.Text = strings.TrimLeft(s.Text, "0123456789")
			s.inside = true
		case strings.HasPrefix(s.Text, "/*"):
			s.skipPast("*/")
		case s.inside && strings.HasPrefix(s.Text, "*/"):
			s.cut(2)
			s.inside = false
		case strings.HasPrefix(s.Text, "#"):
			s.skipPast("\n")
		case strings.HasPrefix(s.Text, "--") && (len(s.Text) == 2 || strings.ContainsRune(" \t\r\n", rune(s.Text[2]))):
			s.skipPast("\n")
		default:
			return
		}
	}
}

func (s *Scanner) skipPast(end string) {
	_, s.Text, _ = strings.Cut(s.Text, end)
}
