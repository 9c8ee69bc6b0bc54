package mapping

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

const (
	maxHot       = 64  // copies a key; more would fan one delete out over most of a ring
	maxKey       = 250 // bytes; memcached's own limit
	maxBase64Key = 186 // bytes of one that has to be sent in base64, which is then 248 long
	copyMark     = '#' // key#1 … key#N are a hot key's copies
	noColumn     = -1
	maxColumn    = 64 // characters of a column's name in MySQL; Postgres has 63
)

// Template is one entry of a mapping's keys: what it renders, when, and what is done with it. It is immutable.
type Template struct {
	Text       string // as the file has it
	Pool       string // empty for a raw template of a file: its keys come under one Template a pool
	Team       string
	Mapping    string // empty where a writer sent the key, in a logical message or on the topic of keys
	When       string // the condition as the file has it; empty: every change counts
	Action     Action
	StaleFor   time.Duration // what is left to a copy that is marked stale; 0: copies are deleted
	Hot        int           // extra copies key#1 … key#Hot; 0: none
	OnTruncate OnTruncate    // its mapping's; what a writer sent in a logical message has none
	Shadow     bool          // its keys are told, and nothing is done with them
	Raw        bool          // the column's text is the key itself
	Base64     bool          // its file's binary_keys: a key may hold any byte, and is sent in base64 where it has to be
	Each       []Each        // in the order of the file
	File       string        // where it stands
	Line       int
	Col        int

	parts     []part
	variants  [][]part // parts with every combination of Each in place of its names: at least one, and all of the same shape
	condition *condition
	sent      map[string]*Template // of a raw one: what its keys come under, by pool
	origin    *Template            // of one of those: the raw one
	node      *yaml.Node           // its text in the file
}

// Each is a placeholder that stands for each of its values in turn.
type Each struct {
	Name   string
	Values []string
}

// Columns are the distinct names of columns that the template reads, in its order, and then those that its condition does.
func (t *Template) Columns() []string {
	var names []string
	for _, p := range t.variants[0] {
		if p.column != "" && !slices.Contains(names, p.column) {
			names = append(names, p.column)
		}
	}
	if t.condition != nil {
		for _, c := range t.condition.columns {
			if !slices.Contains(names, c) {
				names = append(names, c)
			}
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

// parseTemplate reads literal text, {column|filter|filter(…)}, and {{ and }} for braces. The faults hold an error where the
// parts cannot be used. Literal text may hold any byte where the file's binary_keys say so.
func parseTemplate(text string, anyByte bool) (parts []part, faults []fault) {
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
			p, end, f := parseReference(text, i)
			if f != nil {
				return nil, append(faults, *f)
			}
			flush()
			if n := len(parts); n > 0 && parts[n-1].column != "" {
				faults = append(faults, fault{i, SeverityWarning, fmt.Sprintf("{%s} follows {%s} with nothing between: two rows may share a key", p.column, parts[n-1].column), "put a : between"})
			}
			parts = append(parts, p)
			i = end
		case unfit(c) && !anyByte:
			return fail(i, unfitHint, "memcached cannot hold a key with %s", nameOf(c))
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

// unfit reports whether memcached ends a key, or a command, at this byte, unless the key is sent in base64.
func unfit(c byte) bool { return c <= 0x20 || c == 0x7f }

const unfitHint = "write it as your clients do; binary_keys: base64 where they send such keys in base64"

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
