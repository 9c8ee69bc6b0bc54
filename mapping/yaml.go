package mapping

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// reader walks a YAML tree under a strict schema and collects what is wrong, each with its place. It goes on after a
// problem, so that one look at the list mends the file.
type reader struct {
	file     string
	lines    [][]byte
	problems []Problem
}

func (r *reader) errorf(n *yaml.Node, hint, format string, args ...any) {
	r.add(SeverityError, n.Line, n.Column, hint, fmt.Sprintf(format, args...))
}

func (r *reader) warnf(n *yaml.Node, hint, format string, args ...any) {
	r.add(SeverityWarning, n.Line, n.Column, hint, fmt.Sprintf(format, args...))
}

func (r *reader) add(s Severity, line, col int, hint, what string) {
	r.problems = append(r.problems, Problem{File: r.file, Line: line, Col: col, Severity: s, What: what, Hint: hint})
}

// document parses data and returns its root, or nil where there is none to read.
func (r *reader) document(data []byte) *yaml.Node {
	r.lines = bytes.Split(data, []byte("\n"))
	for i, l := range r.lines {
		if !utf8.Valid(l) {
			r.add(SeverityError, i+1, 1, "save it as UTF-8", "the line is not UTF-8")
			return nil
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && doc.Content[0].Tag == "!!null" && doc.Content[0].Value == "" {
		r.add(SeverityError, 1, 1, "begin with version: 1", "the file is empty")
		return nil
	}
	if err == nil {
		if err = dec.Decode(&more); err == nil {
			r.errorf(&more, "make it a file of its own", "a second YAML document begins here")
			return nil
		}
	}
	if !errors.Is(err, io.EOF) && err != nil {
		r.syntax(err)
		return nil
	}
	if !r.plain(doc.Content[0]) {
		return nil
	}
	return doc.Content[0]
}

var yamlError = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)`)

// syntax reports what the YAML parser says, with the line as well as it tells it. Tabs are found by ourselves: the
// parser's words for them are about something else.
func (r *reader) syntax(err error) {
	for i, l := range r.lines {
		indent := l[:len(l)-len(bytes.TrimLeft(l, " \t"))]
		if tab := bytes.IndexByte(indent, '\t'); tab >= 0 && len(bytes.TrimSpace(l)) > 0 {
			r.add(SeverityError, i+1, tab+1, "indent with spaces", "a tab in the indentation")
			return
		}
	}
	line, what := 1, err.Error()
	if m := yamlError.FindStringSubmatch(what); m != nil {
		what = m[2]
		if n, err := strconv.Atoi(m[1]); err == nil {
			line = n
			if strings.HasPrefix(what, "did not find expected") { // these lines it counts from 0
				line++
			}
		}
	}
	r.add(SeverityError, min(line, len(r.lines)), 1, `a text that holds : # , [ ] { } or begins with a sign needs quotes: "user:{id}"`, "not YAML: "+what)
}

// plain refuses what would let a file say something in another place than where it is read: anchors, aliases, tags.
func (r *reader) plain(n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		r.errorf(n, "write it out", "anchors and aliases are not supported")
		return false
	case n.Style&yaml.TaggedStyle != 0:
		r.errorf(n, "leave it out", "the YAML tag %s is not supported", n.Tag)
		return false
	}
	for _, c := range n.Content {
		if !r.plain(c) {
			return false
		}
	}
	return true
}

// field is one field of an object.
type field struct {
	name     string
	required bool
	read     func(*yaml.Node)
}

// object reads n by its fields. what names it for a person: "a mapping".
func (r *reader) object(n *yaml.Node, what string, fields []field) {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "", "%s must be fields with values, not %s", what, describe(n))
		return
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	seen := r.pairs(n, func(key, value *yaml.Node) {
		i := slices.Index(names, key.Value)
		if i < 0 {
			r.errorf(key, didYouMean(key.Value, names), "field %q is unknown in %s", key.Value, what)
			return
		}
		fields[i].read(value)
	})
	for _, f := range fields {
		if f.required && seen[f.name] == 0 {
			r.errorf(n, "", "%s has no field %q", what, f.name)
		}
	}
}

// pairs calls do for each key of a mapping node once, and returns the line of each.
func (r *reader) pairs(n *yaml.Node, do func(key, value *yaml.Node)) map[string]int {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind != yaml.ScalarNode {
			r.errorf(key, "", "a field's name must be a text, not %s", describe(key))
			continue
		}
		if line := seen[key.Value]; line > 0 {
			r.errorf(key, "", "field %q is doubled: it stands in line %d already", key.Value, line)
			continue
		}
		seen[key.Value] = key.Line
		do(key, value)
	}
	return seen
}

// list returns the elements of a list, none of which is an error unless mayBeEmpty.
func (r *reader) list(n *yaml.Node, what string, mayBeEmpty bool) []*yaml.Node {
	if n.Kind != yaml.SequenceNode {
		hint := ""
		if n.Kind == yaml.ScalarNode && n.Value != "" {
			hint = "write [" + n.Value + "]"
		}
		r.errorf(n, hint, "%s must be a list, not %s", what, describe(n))
		return nil
	}
	if len(n.Content) == 0 && !mayBeEmpty {
		r.errorf(n, "", "%s is an empty list", what)
	}
	return n.Content
}

// yaml11 are the words that older YAML reads as a boolean. A country code NO must not depend on who reads the file.
var yaml11 = []string{"y", "n", "yes", "no", "on", "off", "true", "false"}

// text reads a scalar that everybody who reads YAML takes as a text.
func (r *reader) text(n *yaml.Node, what string) (string, bool) {
	hint := fmt.Sprintf("write %q in quotes", n.Value)
	quoted := n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0
	switch {
	case n.Kind != yaml.ScalarNode:
		r.errorf(n, "", "%s must be a text, not %s", what, describe(n))
	case n.Value == "":
		r.errorf(n, "quote a text that begins with #", "%s is empty", what)
	case quoted:
		return n.Value, true
	case slices.Contains(yaml11, strings.ToLower(n.Value)):
		r.errorf(n, hint, "%s is %s, which YAML reads as a boolean", what, n.Value)
	case n.Tag != "!!str":
		r.errorf(n, hint, "%s is %s, which YAML reads as %s", what, n.Value, describe(n))
	default:
		return n.Value, true
	}
	return "", false
}

// texts reads a list of distinct texts.
func (r *reader) texts(n *yaml.Node, what, one string, mayBeEmpty bool) []*yaml.Node {
	var out []*yaml.Node
	for _, e := range r.list(n, what, mayBeEmpty) {
		s, ok := r.text(e, one)
		if !ok {
			continue
		}
		if i := slices.IndexFunc(out, func(o *yaml.Node) bool { return o.Value == s }); i >= 0 {
			r.errorf(e, "", "%s %q is doubled: it stands in line %d already", one, s, out[i].Line)
			continue
		}
		out = append(out, e)
	}
	return out
}

// number reads a plain decimal integer from 0 to most.
func (r *reader) number(n *yaml.Node, what string, most int) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || err != nil || strconv.Itoa(v) != n.Value || v < 0 || v > most {
		r.errorf(n, "", "%s must be a number from 0 to %d, not %s", what, most, describe(n))
		return 0
	}
	return v
}

// describe names what stands at n, for a message.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "fields with values"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.Tag {
	case "!!null":
		return "nothing"
	case "!!bool":
		return "a boolean"
	case "!!int", "!!float":
		return "the number " + n.Value
	case "!!timestamp":
		return "a date"
	}
	return fmt.Sprintf("the text %q", n.Value)
}
