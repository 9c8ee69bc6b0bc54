package mapping

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	maxHot    = 64  // copies a key; more would fan one delete out over most of a ring
	maxKey    = 250 // bytes; memcached's own limit
	copyMark  = '#' // key#1 … key#N are a hot key's copies
	noColumn  = -1
	maxColumn = 64 // characters of a column's name in MySQL; Postgres has 63
)

// Template is one entry of a mapping's keys: what it renders, when, and what is done with it. It is immutable.
type Template struct {
	Text     string // as the file has it
	Pool     string // empty for a raw template of a file: its keys come under one Template a pool
	Team     string
	Mapping  string // empty where a writer sent the key in a logical message
	When     string // the condition as the file has it; empty: every change counts
	Action   Action
	StaleFor time.Duration // what is left to a copy that is marked stale; 0: copies are deleted
	Hot      int           // extra copies key#1 … key#Hot; 0: none
	Shadow   bool          // its keys are told, and nothing is done with them
	Raw      bool          // the column's text is the key itself
	Each     []Each        // in the order of the file
	File     string        // where it stands
	Line     int
	Col      int

	parts []part
}

// Each is a placeholder that stands for each of its values in turn.
type Each struct {
	Name   string
	Values []string
}

// part is literal text, or else a column through its filters.
type part struct {
	literal string
	column  string // empty: literal
	filters []*filter
}

// Columns are the distinct names that the template reads, in its order.
func (t *Template) Columns() []string {
	var names []string
	for _, p := range t.parts {
		if p.column != "" && !slices.Contains(names, p.column) {
			names = append(names, p.column)
		}
	}
	return names
}

// fault is something wrong at a byte of a template's text.
type fault struct {
	at         int
	severity   Severity
	what, hint string
}

// parseTemplate reads literal text, {column|filter|filter}, and {{ and }} for braces. The faults hold an error where the
// parts cannot be used.
func parseTemplate(text string) (parts []part, faults []fault) {
	fail := func(at int, hint, format string, args ...any) ([]part, []fault) {
		return nil, append(faults, fault{at, SeverityError, fmt.Sprintf(format, args...), hint})
	}
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			parts = append(parts, part{literal: literal.String()})
			literal.Reset()
		}
	}
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case c == '{' && strings.HasPrefix(text[i:], "{{"), c == '}' && strings.HasPrefix(text[i:], "}}"):
			literal.WriteByte(c)
			i += 2
		case c == '}':
			return fail(i, "write }} for a brace", "a } without its {")
		case c == '{':
			end := strings.IndexAny(text[i+1:], "{}")
			if end < 0 || text[i+1+end] == '{' {
				return fail(i, "write {{ for a brace", "a { without its }")
			}
			p, f := parseReference(text[i+1:i+1+end], i+1)
			if f != nil {
				return nil, append(faults, *f)
			}
			flush()
			if n := len(parts); n > 0 && parts[n-1].column != "" {
				faults = append(faults, fault{i, SeverityWarning, fmt.Sprintf("{%s} follows {%s} with nothing between: two rows may share a key", p.column, parts[n-1].column), "put a : between"})
			}
			parts = append(parts, p)
			i += end + 2
		case unfit(c):
			return fail(i, "", "memcached cannot hold a key with %s", nameOf(c))
		default:
			literal.WriteByte(c)
			i++
		}
	}
	flush()
	if n := len(parts); n > 0 && endsAsCopy(parts[n-1].literal) {
		return fail(len(text)-1, "key#1, key#2 … are the names of a hot key's copies", "a template must not end in # and digits")
	}
	return parts, faults
}

// parseReference reads what stands between braces, which begins at byte at of the template.
func parseReference(text string, at int) (part, *fault) {
	fail := func(at int, hint, format string, args ...any) (part, *fault) {
		return part{}, &fault{at, SeverityError, fmt.Sprintf(format, args...), hint}
	}
	words := strings.Split(text, "|")
	column := words[0]
	if column == "" {
		return fail(at, "write {id}", "a reference without a column")
	}
	if strings.TrimSpace(column) != column || len(column) > 4*maxColumn {
		return fail(at, "write it as {id}, without spaces", "%q is no column's name", column)
	}
	p := part{column: column}
	at += len(column) + 1
	for i, name := range words[1:] {
		f := filterNamed(name)
		word, _, called := strings.Cut(name, "(")
		switch {
		case f == nil && called && filterNamed(word) != nil:
			return fail(at, "write "+word, "filter %q takes no arguments", word)
		case f == nil:
			hint := didYouMean(name, filterNames())
			if hint == "" {
				hint = "the filters are " + strings.Join(filterNames(), ", ")
			}
			return fail(at, hint, "filter %q is unknown", name)
		case f.raw && i > 0:
			return fail(at, "write it first", "filter %q takes a column's bytes", name)
		}
		p.filters = append(p.filters, f)
		at += len(name) + 1
	}
	return p, nil
}

// unfit reports whether memcached ends a key, or a command, at this byte.
func unfit(c byte) bool { return c <= 0x20 || c == 0x7f }

func nameOf(c byte) string {
	switch c {
	case ' ':
		return "a space"
	case '\t':
		return "a tab"
	case '\n', '\r':
		return "a line break"
	}
	return fmt.Sprintf("the control character 0x%02x", c)
}

func endsAsCopy(literal string) bool {
	head := strings.TrimRight(literal, "0123456789")
	return len(head) < len(literal) && strings.HasSuffix(head, string(copyMark))
}

// pool returns the first segment where it is literal and something else, or nothing, follows it.
func pool(parts []part) (name string, ok bool) {
	if len(parts) == 0 || parts[0].column != "" {
		return "", false
	}
	name, _, found := strings.Cut(parts[0].literal, ":")
	return name, name != "" && (found || len(parts) == 1)
}
