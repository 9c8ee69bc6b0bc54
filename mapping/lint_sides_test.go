package mapping

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLintTellsOfConditionsThatAskOneImage(t *testing.T) {
	const (
		leaves = "the condition asks for after.status and not for before.status: an update that takes a row out of what it asks for is missed"
		enters = "the condition asks for before.status and not for after.status: an update that brings a row into what it asks for is missed"
		never  = "; right as it is where status never changes"
	)
	for _, c := range []struct {
		when string
		col  int // of the finding in the condition, from 1; 0: none
		what string
		hint string
	}{
		{"after.status == 'live'", 1, leaves, "write before.status == 'live' || after.status == 'live'"},
		{"after.status != 'draft'", 1, leaves, "write before.status != 'draft' || after.status != 'draft'"},
		{"!(after.status == 'draft')", 3, leaves, "write before.status != 'draft' || after.status != 'draft'"},
		{"changed(name, bio) && after.status == 'live'", 23, leaves, "write (before.status == 'live' || after.status == 'live')"},
		{"changed(status) && after.status in ['live', 3]", 20, leaves, "write (before.status in ['live', 3] || after.status in ['live', 3])"},
		{"op != 'delete' && after.status == null", 19, leaves, "write (before.status == null || after.status == null)"},
		{"op == 'insert' || after.status startsWith 'it\\'s'", 19, leaves, `write (before.status startsWith 'it\'s' || after.status startsWith 'it\'s')`},
		{"not (after.status in [1])", 6, leaves, "write before.status not in [1] || after.status not in [1]"},
		{"after.status", 1, leaves, "write before.status || after.status"},
		{"1 < after.status && after.name != before.name", 5, leaves, "write (1 < before.status || 1 < after.status)"},
		{"1 <= after.status <= 5", 6, leaves, "ask the same of both images, joined by ||"},
		{"before.status == 'live'", 1, enters, "write before.status == 'live' || after.status == 'live'"},
		{"op == 'update' && before.status == 'draft'", 19, enters, "write (before.status == 'draft' || after.status == 'draft')"},

		{"before.status == 'live' || after.status == 'live'", 0, "", ""},
		{"before.status != 'live' && after.status == 'live'", 0, "", ""}, // whoever asks both means it
		{"after.status > before.status", 0, "", ""},
		{"changed(status)", 0, "", ""},
		{"changed(status) || after.status == 'live'", 0, "", ""},
		{"changed(status, name) || changed(bio) && after.status == 'live'", 0, "", ""},
		{"op == 'insert' && after.status == 'live'", 0, "", ""},
		{"op == 'delete' && before.status == 'live'", 0, "", ""},
		{"op != 'update' && after.status == 'live'", 0, "", ""},
		{"op in ['insert', 'update'] && (op == 'insert' && after.status == 'live' || changed(status))", 0, "", ""},
		{"before == null && after.status == 'live'", 0, "", ""},
		{"after.status > before.name", 0, "", ""},
	} {
		t.Run(c.when, func(t *testing.T) {
			set, problems := NewSet([]*File{parse(t, mappingHead+"      - key: user:{id}\n        when: |\n          "+c.when+"\n")})
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			want := ""
			if c.col > 0 {
				want = fmt.Sprintf("f.yaml:10:%d: warning: %s (%s)", 10+c.col, c.what, c.hint+never)
			}
			if diff := cmp.Diff(want, strings.Join(texts(set.Lint()), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A key that stands twice is looked at as one.
func TestLintOfOneImageLooksAtTheKeysOtherEntries(t *testing.T) {
	const first = "      - {key: \"user:{id}\", when: after.status == 'live'}\n"
	for other, findings := range map[string]int{
		"{key: \"user:{id}\", when: before.status == 'live'}": 0,
		"{key: \"user:{id}\", when: before.name == 'x'}":      2,
		"{key: \"user:{id}\"}":                                0,
		"{key: \"user:{id}\", shadow: true}":                  1,
		"{key: \"user:x:{id}\"}":                              1,
	} {
		set, problems := NewSet([]*File{parse(t, mappingHead+first+"      - "+other+"\n")})
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		if got := set.Lint(); len(got) != findings {
			t.Errorf("%s: %v", other, got)
		}
	}
}

// A condition of many tests is not tried out, and counts as one that hangs on each.
func TestLintOfOneImageOfALongCondition(t *testing.T) {
	long := "changed(status) || after.status == 'x'"
	for i := range maxAtoms {
		long += fmt.Sprintf(" || before.c%d == 1 || after.c%d == 1", i, i)
	}
	set, problems := NewSet([]*File{parse(t, mappingHead+"      - key: user:{id}\n        when: "+long+"\n")})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	if got := set.Lint(); len(got) != 1 {
		t.Error(got)
	}
}
