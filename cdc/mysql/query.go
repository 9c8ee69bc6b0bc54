package mysql

import (
	"slices"
	"strings"

	"invalidator/cdc"
)

// verb is what a statement in the log means to a reader of rows.
type verb int

const (
	verbOther    verb = iota // DDL and all that we do not know: layouts may have changed
	verbBegin                // a transaction starts
	verbEnd                  // a transaction ends
	verbInside               // neither starts nor ends one, and changes no row
	verbTruncate             // a table lost all its rows
	verbRows                 // rows changed, and the log holds the statement instead of them
)

// statement is what recognise made of a query event's text.
type statement struct {
	verb  verb
	word  string      // its first word, upper case
	table cdc.TableID // of verbTruncate and verbRows; Table is empty where the text does not say it plainly
}

// recognise looks at the first words of a statement. It need not understand it: what it does not know is verbOther, which
// costs a look at the schema.
func recognise(text, database string) statement {
	s := scanner{text: text}
	word := s.keyword()
	st := statement{word: word}
	switch word {
	case "BEGIN":
		st.verb = verbBegin
	case "START":
		if s.keyword() == "TRANSACTION" {
			st.verb = verbBegin
		}
	case "COMMIT":
		st.verb = verbEnd
	case "ROLLBACK":
		st.verb = verbEnd
		for w := s.keyword(); w != ""; w = s.keyword() {
			if w == "TO" {
				st.verb = verbInside
			}
		}
	case "SAVEPOINT", "RELEASE":
		st.verb = verbInside
	case "XA":
		st.verb = verbOfXA(s.keyword())
	case "TRUNCATE":
		st.verb = verbTruncate
		st.table = s.tableAfter(database, "TABLE")
	case "INSERT", "REPLACE":
		st.verb = verbRows
		st.table = s.tableAfter(database, "LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO")
	case "UPDATE":
		st.verb = verbRows
		st.table = s.tableAfter(database, "LOW_PRIORITY", "IGNORE")
	case "DELETE":
		st.verb = verbRows
		st.table = s.tableAfter(database, "LOW_PRIORITY", "QUICK", "IGNORE", "HISTORY", "FROM")
	case "LOAD":
		st.verb = verbRows
		for w := s.next(); w.text != ""; w = s.next() {
			if strings.EqualFold(w.text, "TABLE") && !w.quoted {
				st.table = s.tableAfter(database)
				break
			}
		}
	case "WITH", "CALL", "SELECT", "DO":
		st.verb = verbRows
	}
	return st
}

// verbOfXA: the statements of a prepared transaction. Its rows stand before XA END; what it ends with in the log is the
// XA_PREPARE event, and its COMMIT or ROLLBACK comes later, as a transaction of its own.
func verbOfXA(word string) verb {
	switch word {
	case "START", "BEGIN":
		return verbBegin
	case "COMMIT", "ROLLBACK":
		return verbEnd
	}
	return verbInside
}

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

// tableAfter skips the given words and reads a name, with the database that it is in.
func (s *scanner) tableAfter(database string, words ...string) cdc.TableID {
	t := s.next()
	for !t.quoted && t.text != "" && slices.Contains(words, strings.ToUpper(t.text)) {
		t = s.next()
	}
	if !t.quoted && !isWord(t.text) {
		return cdc.TableID{}
	}
	id := cdc.TableID{Schema: database, Table: t.text}
	rest := *s
	if dot := rest.next(); dot.text == "." && !dot.quoted {
		if t = rest.next(); t.quoted || isWord(t.text) {
			id = cdc.TableID{Schema: id.Table, Table: t.text}
			*s = rest
		}
	}
	return id
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
		return token{s.quotedName(b), true}
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

// quotedName reads up to the closing quote; a doubled quote stands for itself. An open end is the text's.
func (s *scanner) quotedName(q byte) string {
	var b strings.Builder
	s.cut(1)
	for s.text != "" {
		c := s.cut(1)
		if c[0] == q {
			if s.text == "" || s.text[0] != q {
				break
			}
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
