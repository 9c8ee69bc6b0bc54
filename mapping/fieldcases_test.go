package mapping

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"invalidator/cdc"
)

// surprises are texts that YAML reads as something else where nobody quotes them.
var surprises = []string{"NO", "no", "n", "on", "yes", "013", "1e3", "1_000", "2024-01-01", "~", "null", ""}

// j1Places are files with one place where a text is asked for, as %s; at is its line.
var j1Places = []struct {
	name, file string
	line       int
}{
	{"team", "version: 1\nteam: %s\npools: [user]\n", 2},
	{"contact", "version: 1\nteam: profiles\ncontact: %s\npools: [user]\n", 3},
	{"pool", "version: 1\nteam: profiles\npools:\n  - %s\n", 4},
	{"underivable", "version: 1\nteam: profiles\npools: [user]\nunderivable:\n  - %s\n", 5},
	{"name", head + "mappings:\n  - name: %s\n    table: shop.users\n    keys: [\"user:{id}\"]\n", 5},
	{"table", head + "mappings:\n  - name: user\n    table: %s\n    keys: [\"user:{id}\"]\n", 6},
	{"source", head + "mappings:\n  - name: user\n    source: %s\n    table: shop.users\n    keys: [\"user:{id}\"]\n", 6},
	{"column type", head + "mappings:\n  - name: user\n    table: shop.users\n    columns:\n      id: %s\n    keys: [\"user:{id}\"]\n", 8},
	{"key", mappingHead + "      - %s\n", 8},
	{"key in the long form", mappingHead + "      - key: %s\n", 8},
	{"each", mappingHead + "      - key: user:{id}:{cc}\n        each:\n          cc:\n            - %s\n", 11},
	{"when", mappingHead + "      - key: user:{id}\n        when: %s\n", 9},
	{"action", mappingHead + "      - key: user:{id}\n        action: %s\n", 9},
	{"a test's name", mappingHead + "      - user:{id}\ntests:\n  - name: %s\n    table: shop.users\n    after: {id: 1}\n    keys: [\"user:1\"]\n", 10},
	{"a test's key", mappingHead + "      - user:{id}\ntests:\n  - name: a\n    table: shop.users\n    after: {id: 1}\n    keys:\n      - %s\n", 14},
}

// J1: what YAML would make of a text is an error that names the line, wherever a text is asked for; no file loads with another
// value than the one that stands in it.
func TestJ1UnquotedTextsAreErrors(t *testing.T) {
	for _, p := range j1Places {
		for _, s := range surprises {
			t.Run(p.name+"/"+s, func(t *testing.T) {
				f, problems := Parse("f.yaml", fmt.Appendf(nil, p.file, s))
				if f != nil {
					t.Fatalf("the file is used: %q", texts(problems))
				}
				where := fmt.Sprintf("f.yaml:%d:", p.line)
				if !slices.ContainsFunc(texts(problems), func(x string) bool {
					return strings.HasPrefix(x, where) && (strings.Contains(x, s+", which YAML reads as ") || s == "" && strings.Contains(x, "empty"))
				}) {
					t.Errorf("%q does not say it of line %d", texts(problems), p.line)
				}
			})
		}
	}
}

func fileSet(t *testing.T, file string) *Set {
	t.Helper()
	s, problems := NewSet([]*File{parse(t, file)})
	if HasErrors(problems) {
		t.Fatal(problems)
	}
	return s
}

// J1: in quotes, and as a part of a longer text, they are texts like others.
func TestJ1TextsStayTexts(t *testing.T) {
	for _, s := range surprises {
		if s == "" || s == "~" { // no pool is called so
			continue
		}
		t.Run(s, func(t *testing.T) {
			set := fileSet(t, fmt.Sprintf("version: 1\nteam: %[1]q\npools: [%[1]q]\nmappings:\n  - name: %[1]q\n    table: shop.users\n    keys:\n"+
				"      - %[1]s:{id}\n      - %[1]s:%[1]s\n      - {key: \"%[1]s:{id}:{cc}\", each: {cc: [%[1]q, x]}}\n", s))
			got, _ := keys(set, change(set, cdc.Insert, nil, row{"id": integer64("7")}))
			if want := []string{s + ":7", s + ":" + s, s + ":7:" + s, s + ":7:x"}; !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// J1: the values of a team's own tests are what a database would show, letter for letter.
func TestJ1ValuesOfTestsStayTexts(t *testing.T) {
	var file strings.Builder
	file.WriteString(mappingHead + "      - user:{cc}\ntests:\n")
	for i, s := range []string{"NO", "on", "013", "1e3", "1_000", "2024-01-01", "12:30:00"} {
		fmt.Fprintf(&file, "  - {name: t%d, table: shop.users, after: {cc: %s}, keys: [\"user:%s\"]}\n", i, s, s)
	}
	fmt.Fprintf(&file, "  - {name: nothing, table: shop.users, after: {cc: ~}, keys: []}\n")
	f := parse(t, file.String())
	for _, r := range f.RunTests() {
		if len(r.Missing) > 0 || len(r.Unexpected) > 0 {
			t.Errorf("%s: missing %q, unexpected %q", r.Test.Name, r.Missing, r.Unexpected)
		}
	}
}

// J1: a file that becomes wrong in any of these ways stays in force as it was.
func TestJ1ReloadKeepsTheLastGoodFile(t *testing.T) {
	good := head + "mappings:\n  - name: user\n    table: shop.users\n    keys: [\"user:{id}\"]\n"
	bad := map[string]string{
		"a tab":            strings.Replace(good, "    table", "\ttable", 1),
		"a table twice":    strings.Replace(good, "table: shop.users", "tables: [shop.users, shop.users]", 1),
		"an unknown field": strings.Replace(good, "    keys", "    coloumn: x\n    keys", 1),
		"a field twice":    good + "team: other\n",
	}
	for _, p := range j1Places {
		for _, s := range surprises {
			bad[p.name+" "+s] = fmt.Sprintf(p.file, s)
		}
	}
	for name, text := range bad {
		t.Run(name, func(t *testing.T) {
			first, _ := after(map[string]string{"a": good})
			s, blamed := after(map[string]string{"a": good}, map[string]string{"a": text})
			if s.Fingerprint() != first.Fingerprint() || !slices.Equal(blamed, []string{"a"}) {
				t.Errorf("in force %s, blamed %q", inForce(s), blamed)
			}
			got, _ := keys(s, change(s, cdc.Insert, nil, row{"id": integer64("7")}))
			if !slices.Equal(got, []string{"user:7"}) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// A11 and A12: where the type is declared, a file with a float or a whole document in a key does not load, and says what else to do.
func TestA11A12RefusedAtLoad(t *testing.T) {
	for typ, want := range map[string]string{
		"float": "column c is a float, which no key can hold (use a column with one text)", "double": "column c is a float, which no key can hold (use a column with one text)",
		"double precision": "column c is a float, which no key can hold (use a column with one text)", "real": "column c is a float, which no key can hold (use a column with one text)",
		"json": "column c is a JSON document, which no key can hold (", "jsonb": "column c is a JSON document, which no key can hold (",
	} {
		t.Run(typ, func(t *testing.T) {
			const file = head + "mappings:\n  - name: user\n    table: shop.users\n    columns: {c: %s}\n    keys:\n      - user:{%s}\n"
			f, problems := Parse("f.yaml", fmt.Appendf(nil, file, typ, "c"))
			if got := texts(problems); f != nil || len(got) != 1 || !strings.HasPrefix(got[0], "f.yaml:9:15: "+want) {
				t.Errorf("used %v, %q", f != nil, got)
			}
			f, problems = Parse("f.yaml", fmt.Appendf(nil, file, typ, "c|json('a')"))
			if (f != nil) != strings.HasPrefix(typ, "json") {
				t.Errorf("a path: used %v, %q", f != nil, texts(problems))
			}
		})
	}
}

// A13: what a boolean of Debezium's does not tell is said before the first record comes.
func TestA13NoteOfBooleans(t *testing.T) {
	const file = head + "mappings:\n  - name: user\n    table: shop.users\n    columns: {flag: TINYINT (1), n: tinyint(4), id: bigint}\n    keys: [\"user:{flag}\", \"user:{id}:{flag}:{n}\"]\n"
	const note = "f.yaml:8:19: note: where the connector of source dbz makes a boolean of column flag, every value but 0 is 1 here, and the key of a 9 cannot be told from it " +
		"(let the connector write numbers (no TinyIntOneToBooleanConverter))"
	for format, want := range map[string][]string{"debezium": {note}, "unwrapped": {note}, "avro": {note}, "maxwell": nil} {
		set := fileSet(t, file)
		if got := texts(set.LintTables(topicsOf("dbz", LiveTopics{Format: format, Typed: true}))); !slices.Equal(got, want) {
			t.Errorf("%s: got %q", format, got)
		}
	}
}

// I3: a source of unwrapped rows is warned of where a key holds a column that can change without its record's key.
func TestI3UnwrappedSourceIsWarnedOf(t *testing.T) {
	set := fileSet(t, head+"mappings:\n  - name: user\n    table: shop.users\n    columns: {id: bigint, email: varchar(9)}\n    keys: [\"user:{id}\", \"user:mail:{email}\"]\n")
	topics := LiveTopics{Format: "unwrapped", Unwrapped: true, Asked: true, Tables: []LiveTable{shopTable("users", false, "id")}}
	got := texts(set.LintTables(topicsOf("flat", topics)))
	if len(got) != 1 || !strings.HasPrefix(got[0], "f.yaml:8:37: warning: table shop.users: source flat is unwrapped, and column email is not of the record's key (id): "+
		"an update has no old row, so that the key of its old value stays") {
		t.Errorf("got %q", got)
	}
	topics.Unwrapped, topics.Format = false, "debezium"
	if got := texts(set.LintTables(topicsOf("whole", topics))); len(got) != 0 {
		t.Errorf("of whole records: %q", got)
	}
}
