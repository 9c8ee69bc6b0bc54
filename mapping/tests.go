package mapping

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"invalidator/cdc"
)

// Test is one case of a file's tests: a change of a row, and the exact keys that it gives.
type Test struct {
	Name          string
	Table         cdc.TableID
	Source        string // empty: any
	Op            cdc.Op // zero: what the images say
	Before, After map[string]cdc.Value
	Keys          []string
	ShadowKeys    []string // what templates in shadow give; nil: not looked at
	Flush         []string // Op Truncate: the pools that are flushed
	File          string
	Line, Col     int
}

// TestResult is what came of one Test.
type TestResult struct {
	Test       *Test
	Missing    []string    // wanted, and not given; as ShowKey has them
	Unexpected []string    // given, and not wanted; likewise
	Skipped    []Skip      // why some may be missing
	Rendered   []*Template // that gave a key, in shadow or not
	Unmet      []*Template // whose condition was false
	Undecided  []Undecided // conditions that counted as true since the test's row leaves them open
}

// Coverage says what a file's tests reach of one template.
type Coverage struct {
	Template *Template
	Rendered bool // some test has a key of it
	Met      bool // some test has its condition true, and decided; true where it has no condition
	Unmet    bool // some test has its condition false; true where it has no condition
}

// Complete reports whether nothing of the template is left that no test reaches.
func (c Coverage) Complete() bool { return c.Rendered && c.Met && c.Unmet }

// Coverage is what the tests that gave results reach of the file's templates, in their order.
func (f *File) Coverage(results []TestResult) []Coverage {
	var all []Coverage
	for _, m := range f.Mappings {
		for _, t := range m.Templates {
			c := Coverage{Template: t, Met: t.When == "", Unmet: t.When == ""}
			for _, r := range results {
				rendered := slices.Contains(r.Rendered, t)
				if r.Test.Op == cdc.Truncate { // which asks no condition
					c.Rendered = c.Rendered || rendered
					continue
				}
				open := slices.ContainsFunc(r.Undecided, func(u Undecided) bool { return u.Template == t })
				c.Rendered = c.Rendered || rendered
				c.Met = c.Met || rendered && !open
				c.Unmet = c.Unmet || slices.Contains(r.Unmet, t)
			}
			all = append(all, c)
		}
	}
	return all
}

// OK reports whether the test passed.
func (t TestResult) OK() bool { return len(t.Missing) == 0 && len(t.Unexpected) == 0 }

// String is one line for a test that passed, and for one that failed the keys that differ and the templates skipped.
func (t TestResult) String() string {
	var b strings.Builder
	word := "ok"
	if !t.OK() {
		word = "FAILED"
	}
	fmt.Fprintf(&b, "%s:%d:%d: %s: %s", t.Test.File, t.Test.Line, t.Test.Col, word, t.Test.Name)
	if t.OK() {
		return b.String()
	}
	for _, k := range t.Missing {
		fmt.Fprintf(&b, "\n    missing     %s", k)
	}
	for _, k := range t.Unexpected {
		fmt.Fprintf(&b, "\n    unexpected  %s", k)
	}
	for _, s := range t.Skipped {
		fmt.Fprintf(&b, "\n    skipped     %s", s)
	}
	return b.String()
}

// RunTests runs the tests of every file in force.
func (s *Set) RunTests() []TestResult {
	var all []TestResult
	for _, f := range s.files {
		all = append(all, f.RunTests()...)
	}
	return all
}

// RunTests runs the file's tests against its own mappings: what other teams make of the same table is theirs to test.
func (f *File) RunTests() []TestResult {
	set, _ := NewSet([]*File{f})
	results := make([]TestResult, len(f.Tests))
	for i, t := range f.Tests {
		results[i] = t.run(set)
	}
	return results
}

func (t *Test) run(set *Set) TestResult {
	var r Result
	set.Keys(t.change(), &r)
	result := TestResult{Test: t, Skipped: r.Skipped, Unmet: r.Unmet, Undecided: r.Undecided}
	for _, k := range slices.Concat(r.Keys, r.Shadow) {
		t := k.Template
		if t.origin != nil {
			t = t.origin
		}
		if !slices.Contains(result.Rendered, t) {
			result.Rendered = append(result.Rendered, t)
		}
	}
	result.compare(t.Keys, r.Keys, "")
	if t.ShadowKeys != nil {
		result.compare(t.ShadowKeys, r.Shadow, inShadow)
	}
	for _, pool := range t.Flush {
		if !has(r.Flush, pool) {
			result.Missing = append(result.Missing, flushOf+pool)
		}
	}
	for _, e := range r.Flush {
		if !slices.Contains(t.Flush, e.Pool) {
			result.Unexpected = append(result.Unexpected, flushOf+e.Pool)
		}
	}
	return result
}

// flushOf stands before a pool among the keys that a test shows.
const flushOf = "flush of pool "

// inShadow marks the keys of templates in shadow.
const inShadow = " (in shadow)"

// compare notes where the keys given are not exactly those wanted.
func (t *TestResult) compare(want []string, got []Key, mark string) {
	for _, text := range want {
		if !slices.ContainsFunc(got, func(k Key) bool { return k.Text == text }) {
			t.Missing = append(t.Missing, ShowKey(text)+mark)
		}
	}
	for _, k := range got {
		if text := ShowKey(k.Text) + mark; !slices.Contains(want, k.Text) && !slices.Contains(t.Unexpected, text) {
			t.Unexpected = append(t.Unexpected, text)
		}
	}
}

// change is the test's row change. A column that one image leaves out is equal in both.
func (t *Test) change() *cdc.RowChange {
	var list []cdc.Column
	for _, image := range []map[string]cdc.Value{t.Before, t.After} {
		for name := range image {
			if !slices.ContainsFunc(list, func(c cdc.Column) bool { return c.Name == name }) {
				list = append(list, cdc.Column{Name: name})
			}
		}
	}
	row := func(image, other map[string]cdc.Value) cdc.Row {
		if image == nil {
			return nil
		}
		r := make(cdc.Row, len(list))
		for i, c := range list {
			v, ok := image[c.Name]
			if !ok {
				v = other[c.Name]
			}
			r[i] = v
		}
		return r
	}
	op := cdc.Update
	switch {
	case t.Op != 0:
		op = t.Op
	case t.Before == nil:
		op = cdc.Insert
	case t.After == nil:
		op = cdc.Delete
	}
	return &cdc.RowChange{Source: t.Source, TableID: t.Table, Op: op, Columns: cdc.NewColumns(list),
		Before: row(t.Before, t.After), After: row(t.After, t.Before)}
}

// test reads one entry of tests.
func (r *fileReader) test(n *yaml.Node) {
	t := &Test{File: r.file, Line: n.Line, Col: n.Column}
	var flush *yaml.Node
	r.object(n, "a test", []field{
		{name: "name", required: true, read: func(n *yaml.Node) { t.Name, _ = r.text(n, "the test's name") }},
		{name: "table", required: true, read: func(n *yaml.Node) { r.testTable(n, t) }},
		{name: "source", read: func(n *yaml.Node) { t.Source, _ = r.text(n, "the source") }},
		{name: "database", read: func(n *yaml.Node) { t.Table.Database, _ = r.text(n, "the database") }},
		{name: "op", read: func(n *yaml.Node) { t.Op = r.testOp(n) }},
		{name: "before", read: func(n *yaml.Node) { t.Before = r.image(n, "before") }},
		{name: "after", read: func(n *yaml.Node) { t.After = r.image(n, "after") }},
		{name: "keys", required: true, read: func(n *yaml.Node) {
			t.Keys = r.testKeys(n, "keys")
		}},
		{name: "shadow_keys", read: func(n *yaml.Node) {
			t.ShadowKeys = append([]string{}, r.testKeys(n, "shadow_keys")...)
		}},
		{name: "flush", read: func(n *yaml.Node) { flush, t.Flush = n, r.testFlush(n) }},
	})
	switch {
	case n.Kind != yaml.MappingNode:
	case flush != nil && t.Op != cdc.Truncate:
		r.errorf(flush, "write op: truncate, or leave it out", "flush is for a truncate: any other change says its keys")
	case t.Op == cdc.Truncate && (t.Before != nil || t.After != nil):
		r.errorf(n, "leave them out", "a truncate has neither before nor after")
	case t.Op == cdc.Truncate:
	case t.Before == nil && t.After == nil:
		r.errorf(n, "an insert has only after, a delete only before", "a test has neither before nor after")
	case t.Op == cdc.Insert && t.Before != nil:
		r.errorf(n, "leave it out", "an insert has no before")
	case t.Op == cdc.Delete && t.After != nil:
		r.errorf(n, "leave it out", "a delete has no after")
	}
	r.f.Tests = append(r.f.Tests, t)
}

func (r *reader) testOp(n *yaml.Node) cdc.Op {
	ops := map[string]cdc.Op{"insert": cdc.Insert, "update": cdc.Update, "delete": cdc.Delete, "truncate": cdc.Truncate}
	s, ok := r.text(n, "op")
	if ok && ops[s] == 0 {
		r.errorf(n, didYouMean(s, []string{"insert", "update", "delete", "truncate"}), "op must be insert, update, delete or truncate, not %q", s)
	}
	return ops[s]
}

func (r *fileReader) testTable(n *yaml.Node, t *Test) {
	s, ok := r.text(n, "the table")
	if !ok || !r.tableName(n, s) {
		return
	}
	t.Table.Schema, t.Table.Table, _ = strings.Cut(s, ".")
	var names []string
	for _, m := range r.f.Mappings {
		if m.covers("", "", t.Table.Schema, t.Table.Table) {
			return
		}
		names = append(names, m.Tables...)
	}
	r.warnf(n, didYouMean(s, names), "no mapping of this file is about table %s", s)
}

// image reads one image of a row.
func (r *reader) image(n *yaml.Node, what string) map[string]cdc.Value {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "write "+what+": {id: 1}", "%s must be columns with values, not %s", what, describe(n))
		return nil
	}
	row := map[string]cdc.Value{}
	r.pairs(n, func(key, value *yaml.Node) {
		if v, ok := r.value(key.Value, value); ok {
			row[key.Value] = v
		}
	})
	return row
}

var (
	integer = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)
	decimal = regexp.MustCompile(`^-?[0-9]+\.[0-9]+$`)
)

// value reads a column's value exactly as it is written: 013 and 2024-01-01 are texts, as a database shows them.
func (r *reader) value(column string, n *yaml.Node) (cdc.Value, bool) {
	if isHex(n) {
		b, ok := r.hexBytes(n, "column "+column)
		return cdc.Value{Kind: cdc.Bytes, S: b}, ok
	}
	switch {
	case n.Kind != yaml.ScalarNode:
		r.errorf(n, "bytes are written {hex: 00ff}", "column %s must have a text, a number or null, not %s", column, describe(n))
		return cdc.Value{}, false
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		return cdc.Value{Kind: cdc.Text, S: n.Value}, true
	case n.Tag == "!!null":
		return cdc.Value{Kind: cdc.Null}, true
	case n.Tag == "!!bool":
		r.errorf(n, "write 1 or 0 for MySQL, t or f for Postgres", "column %s is %s, which no database shows", column, n.Value)
		return cdc.Value{}, false
	case integer.MatchString(n.Value):
		return cdc.Value{Kind: cdc.Integer, S: n.Value}, true
	case decimal.MatchString(n.Value):
		return cdc.Value{Kind: cdc.Decimal, S: n.Value}, true
	}
	return cdc.Value{Kind: cdc.Text, S: n.Value}, true
}
