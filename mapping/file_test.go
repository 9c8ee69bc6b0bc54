package mapping

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// head is what a file needs before its mappings, in three lines.
const head = `version: 1
team: profiles
pools: [user]
`

// mappingHead goes on to the keys, in seven lines altogether.
const mappingHead = head + `mappings:
  - name: user
    table: shop.users
    keys:
`

func TestProblemsSayWhereAndWhat(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		// J1: what YAML makes of a text
		{"J1_NO", "version: 1\nteam: profiles\npools: [NO, user]\n", `f.yaml:3:9: pool is NO, which YAML reads as a boolean (write "NO" in quotes)`},
		{"J1_on", "version: 1\nteam: on\npools: [user]\n", `f.yaml:2:7: the team is on, which YAML reads as a boolean (write "on" in quotes)`},
		{"J1_013", "version: 1\nteam: profiles\npools: [013]\n", `f.yaml:3:9: pool is 013, which YAML reads as the number 013 (write "013" in quotes)`},
		{"J1_1e3", "version: 1\nteam: 1e3\npools: [user]\n", `f.yaml:2:7: the team is 1e3, which YAML reads as the number 1e3 (write "1e3" in quotes)`},
		{"J1_1_000", "version: 1\nteam: 1_000\npools: [user]\n", `f.yaml:2:7: the team is 1_000, which YAML reads as the number 1_000 (write "1_000" in quotes)`},
		{"J1_date", "version: 1\nteam: 2024-01-01\npools: [user]\n", `f.yaml:2:7: the team is 2024-01-01, which YAML reads as a date (write "2024-01-01" in quotes)`},
		{"J1_tilde", "version: 1\nteam: ~\npools: [user]\n", `f.yaml:2:7: the team is ~, which YAML reads as nothing (write "~" in quotes)`},
		{"J1_empty", "version: 1\nteam: profiles\ncontact: #profiles-oncall\npools: [user]\n", `f.yaml:3:9: the contact is empty (quote a text that begins with #)`},
		{"J1_tab", "version: 1\nteam: profiles\npools:\n\t- user\n", `f.yaml:4:1: a tab in the indentation (indent with spaces)`},
		{"J1_doubled_table", head + "mappings:\n  - name: user\n    tables: [shop.a, shop.b, shop.a]\n    keys: [\"user:{id}\"]\n",
			`f.yaml:6:30: table "shop.a" is doubled: it stands in line 6 already`},
		{"J1_doubled_field", "version: 1\nteam: a\nteam: b\npools: [user]\n", `f.yaml:3:1: field "team" is doubled: it stands in line 2 already`},
		{"J1_unknown_field", head + "mappings:\n  - name: user\n    table: shop.users\n    coloumns: {id: bigint}\n    keys: [\"user:{id}\"]\n",
			`f.yaml:7:5: field "coloumns" is unknown in a mapping (did you mean "columns"?)`},

		// the document
		{"empty", "", `f.yaml:1:1: the file is empty (begin with version: 1)`},
		{"an empty document", "---\n", `f.yaml:1:1: the file is empty (begin with version: 1)`},
		{"comments alone", "# nothing\n", `f.yaml:1:1: the file is empty (begin with version: 1)`},
		{"not UTF-8", "version: 1\nteam: M\xfcller\n", `f.yaml:2:1: the line is not UTF-8 (save it as UTF-8)`},
		{"flow list with unquoted keys", head + "mappings:\n  - {name: user, table: shop.users, keys: [user:{id}]}\n",
			`f.yaml:5:1: not YAML: did not find expected ',' or ']' (a text that holds : # , [ ] { } or begins with a sign needs quotes: "user:{id}")`},
		{"unquoted brace", mappingHead + "      - {id}:user\n",
			`f.yaml:8:1: not YAML: did not find expected '-' indicator (a text that holds : # , [ ] { } or begins with a sign needs quotes: "user:{id}")`},
		{"not fields", "- a\n", `f.yaml:1:1: a mapping file must be fields with values, not a list`},
		{"two documents", head + "---\nversion: 1\n", `f.yaml:4:1: a second YAML document begins here (make it a file of its own)`},
		{"anchor", "version: 1\nteam: &t profiles\npools: [*t]\n", `f.yaml:2:7: anchors and aliases are not supported (write it out)`},
		{"tag", "version: !!int 1\nteam: a\npools: [user]\n", `f.yaml:1:10: the YAML tag !!int is not supported (leave it out)`},
		{"version", "version: 2\nteam: a\npools: [user]\n", `f.yaml:1:10: the version must be 1, not the number 2 (write version: 1)`},
		{"no team", "version: 1\npools: [user]\n", `f.yaml:1:1: a mapping file has no field "team"`},
		{"no pool", "version: 1\nteam: a\n", `f.yaml:1:1: the file claims no pool (name them in pools, or in underivable)`},
		{"scalar for list", "version: 1\nteam: a\npools: user\n", `f.yaml:3:8: pools must be a list, not the text "user" (write [user])`},
		{"readers", head + "readers: metta\n", `f.yaml:4:10: readers must be classic or meta, not "metta" (did you mean "meta"?)`},
		{"pool twice", "version: 1\nteam: a\npools: [user]\nunderivable: [user]\n", `f.yaml:4:15: pool "user" is doubled: it stands in line 3 already`},
		{"pool with colon", "version: 1\nteam: a\npools: [\"user:\"]\n", `f.yaml:3:9: a pool has no ':' in its name: "user:" (a pool is what stands before a key's first :)`},

		// mappings
		{"no table", head + "mappings:\n  - name: user\n    keys: [\"user:{id}\"]\n", `f.yaml:5:5: a mapping has no table (write table: schema.table)`},
		{"table without schema", head + "mappings:\n  - name: user\n    table: users\n    keys: [\"user:{id}\"]\n",
			`f.yaml:6:12: "users" is no table's name (write schema.table; in MySQL the database is the schema)`},
		{"table and tables", head + "mappings:\n  - name: user\n    table: shop.a\n    tables: [shop.b]\n    keys: [\"user:{id}\"]\n",
			`f.yaml:7:13: table and tables exclude each other`},
		{"no keys", head + "mappings:\n  - name: user\n    table: shop.a\n    keys: []\n", `f.yaml:7:11: keys is an empty list`},
		{"hot over", mappingHead + "      - key: user:{id}\n        hot: 65\n", `f.yaml:9:14: hot must be a number from 0 to 64, not the number 65`},
		{"hot quoted", mappingHead + "      - key: user:{id}\n        hot: \"8\"\n", `f.yaml:9:14: hot must be a number from 0 to 64, not the text "8"`},
		{"hot octal", mappingHead + "      - key: user:{id}\n        hot: 010\n", `f.yaml:9:14: hot must be a number from 0 to 64, not the number 010`},
		{"key as fields", mappingHead + "      - user: {id}\n", "f.yaml:8:9: field \"user\" is unknown in a key\nf.yaml:8:9: a key has no field \"key\""},
		{"key twice", mappingHead + "      - user:{id}\n      - user:{id}\n", `f.yaml:9:9: key "user:{id}" is doubled: it stands in line 8 already`},
		{"float", head + "mappings:\n  - name: user\n    table: shop.users\n    columns: {score: double precision}\n    keys:\n      - user:{score}\n",
			`f.yaml:9:15: column score is a float, which no key can hold (use a column with one text)`},
		{"hex of a number", head + "mappings:\n  - name: user\n    table: shop.users\n    columns: {id: BIGINT  unsigned}\n    keys:\n      - user:{id|hex}\n",
			`f.yaml:9:18: filter "hex" takes bytes or text, and column id is bigint unsigned (it may go through base64, base64url, md5, sha1, sha256, int, div, mod)`},

		// keys
		{"no pool in key", mappingHead + "      - \"{id}:user\"\n", `f.yaml:8:9: the first segment of "{id}:user" is not a literal pool (a key begins with its pool: user:{id})`},
		{"pool runs into column", mappingHead + "      - user{id}\n", `f.yaml:8:9: the first segment of "user{id}" is not a literal pool (a key begins with its pool: user:{id})`},
		{"pool of another", mappingHead + "      - usr:{id}\n", "f.yaml:8:9: pool \"usr\" is not one of this file's (did you mean \"user\"?)"},
		{"filter", mappingHead + "      - user:{email|lowr}\n", `f.yaml:8:21: filter "lowr" is unknown (did you mean "lower"?)`},
		{"filter argument", mappingHead + "      - user:{email|lower('x')}\n", `f.yaml:8:21: filter "lower" takes no arguments (write lower)`},
		{"open brace", mappingHead + "      - user:{id\n", `f.yaml:8:14: a { without its } (write {{ for a brace)`},
		{"close brace", mappingHead + "      - user:id}\n", `f.yaml:8:16: a } without its { (write }} for a brace)`},
		{"no column", mappingHead + "      - user:{}\n", `f.yaml:8:15: a reference without a column (write {id})`},
		{"space in reference", mappingHead + "      - \"user:{ id }\"\n", `f.yaml:8:16: " id " is no column's name (write it as {id}, without spaces)`},
		{"space", mappingHead + "      - user:é {id}\n", `f.yaml:8:15: memcached cannot hold a key with a space (write it as your clients do; binary_keys: base64 where they send such keys in base64)`},
		{"control", mappingHead + "      - \"user:\\x01{id}\"\n", `f.yaml:8:15: memcached cannot hold a key with the control character 0x01 (write it as your clients do; binary_keys: base64 where they send such keys in base64)`},
		{"copy suffix", mappingHead + "      - user:{id}#8\n", `f.yaml:8:19: a template must not end in # and digits (key#1, key#2 … are the names of a hot key's copies)`},
		{"long", mappingHead + "      - key: user:" + strings.Repeat("x", 244) + "{id}\n        hot: 8\n", `f.yaml:8:14: the key is never under 251 bytes, and memcached takes 250`},

		// tests
		{"boolean in a test", mappingHead + "      - user:{id}\ntests:\n  - name: a\n    table: shop.users\n    after: {id: true}\n    keys: []\n",
			`f.yaml:12:17: column id is true, which no database shows (write 1 or 0 for MySQL, t or f for Postgres)`},
		{"test without images", mappingHead + "      - user:{id}\ntests:\n  - name: a\n    table: shop.users\n    keys: []\n",
			`f.yaml:10:5: a test has neither before nor after (an insert has only after, a delete only before)`},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, c.file, c.want) })
	}
}

// refused checks that a file is not used, and what is said of it: a line a problem.
func refused(t *testing.T, file, want string) {
	t.Helper()
	f, problems := Parse("f.yaml", []byte(file))
	if f != nil {
		t.Error("the file is used")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), texts(problems)); diff != "" {
		t.Error(diff)
	}
}

// A key that is in error may be the one that reads a column: that nobody reads it is not said beside the error.
func TestNoColumnIsUnreadBesideABrokenKey(t *testing.T) {
	text := head + "mappings:\n  - name: user\n    table: shop.users\n    columns: {at: datetime}\n    keys: [\"user:{id}\", \"user:{at|dat('%F')}\"]\n"
	_, problems := Parse("f.yaml", []byte(text))
	if diff := cmp.Diff([]string{`f.yaml:8:35: filter "dat" is unknown (did you mean "date"?)`}, texts(problems)); diff != "" {
		t.Error(diff)
	}
}

func TestWarningsLeaveTheFileInUse(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"columns touch", mappingHead + "      - user:{id}{email}\n", `f.yaml:8:18: warning: {email} follows {id} with nothing between: two rows may share a key (put a : between)`},
		{"pool without key", "version: 1\nteam: a\npools: [user]\nmappings: []\n",
			`f.yaml:3:9: warning: no key of this file is in pool "user" (move it to underivable if no row gives its keys)`},
		{"type of no column", head + "mappings:\n  - name: user\n    table: shop.users\n    columns: {idd: bigint}\n    keys: [\"user:{id}\"]\n",
			`f.yaml:7:15: warning: no key of mapping user reads column "idd" (did you mean "id"?)`},
		{"type misspelt", head + "mappings:\n  - name: user\n    table: shop.users\n    columns: {id: bigimt}\n    keys: [\"user:{id}\"]\n",
			`f.yaml:7:19: warning: type "bigimt" is not one that the servers have built in (did you mean "bigint"?)`},
		{"test of another table", mappingHead + "      - user:{id}\ntests:\n  - name: a\n    table: shop.user\n    after: {id: 1}\n    keys: []\n",
			`f.yaml:11:12: warning: no mapping of this file is about table shop.user (did you mean "shop.users"?)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, problems := Parse("f.yaml", []byte(c.file))
			if f == nil {
				t.Error("the file is left out")
			}
			if diff := cmp.Diff(strings.Split(c.want, "\n"), texts(problems)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFileIsReadWhole(t *testing.T) {
	f := parse(t, `version: 1
team: profiles
contact: "#profiles-oncall"
pools: [user, config]
underivable: [feed]
readers: meta
mappings:
  - name: user
    tables: [shop.users, "shop_*.users"]
    source: shop
    database: crm
    columns: {id: BIGINT(20)  Unsigned}
    keys:
      - user:{id}
      - key: config:all
        hot: 8
`)
	if f.Team != "profiles" || f.Contact != "#profiles-oncall" || f.Readers != ReadersMeta || !cmp.Equal(f.Underivable, []string{"feed"}) {
		t.Errorf("got %+v", f)
	}
	m := f.Mappings[0]
	if m.Types["id"] != "bigint(20) unsigned" || m.Source != "shop" || m.Database != "crm" {
		t.Errorf("got %+v", m)
	}
	hot := m.Templates[1]
	want := Template{Text: "config:all", Pool: "config", Team: "profiles", Mapping: "user", Action: ActionDelete, Hot: 8, OnTruncate: TruncateFlush, File: "f.yaml", Line: 15, Col: 14}
	hot.parts, hot.variants, hot.node = nil, nil, nil
	if !cmp.Equal(*hot, want, cmp.AllowUnexported(Template{})) {
		t.Errorf("got %+v, want %+v", *hot, want)
	}
}

func texts(problems []Problem) (lines []string) {
	for _, p := range problems {
		lines = append(lines, p.String())
	}
	return lines
}

// parse reads a file that has nothing wrong.
func parse(t testing.TB, text string) *File {
	t.Helper()
	f, problems := Parse("f.yaml", []byte(text))
	for _, p := range problems {
		t.Error(p)
	}
	if f == nil {
		t.FailNow()
	}
	return f
}

var lineBreak = regexp.MustCompile("[\n\r\u0085\u2028\u2029]") // YAML's

func FuzzParse(f *testing.F) {
	f.Add([]byte(mappingHead + "      - user:{id}\n      - key: user:{email|lower}\n        hot: 8\ntests:\n  - name: a\n    table: shop.users\n    after: {id: 1, email: {hex: 00}}\n    keys: [user:1]\n"))
	f.Add([]byte(head + "mappings:\n  - name: a\n    tables: ['shop_*.u?[a-z]', shop.b]\n    columns: {id: bigint}\n    keys: ['user:{id}']\n"))
	f.Add([]byte(mappingHead + "      - key: user:{id}:{l}\n        each: {l: [en, 1]}\n        when: |\n          changed(a) &&\n           after.b = 'x'\n        action: stale\n        stale_for: 3s\n        shadow: true\n      - raw: '{key}'\n"))
	f.Add([]byte(mappingHead + "      - key: user:{v|elements(',')}\n        when: after.v contains ','\ntests:\n  - {name: a, table: shop.users, op: update, after: {v: 'a,b'}, keys: [], shadow_keys: []}\n"))
	f.Add([]byte(binaryHead + "      - \"u:a b\\0{k}\"\n      - {key: 'u:{l}', each: {l: [a b]}, hot: 8}\n      - {raw: '{k}'}\ntests:\n  - {name: a, table: shop.users, after: {k: {hex: 00ff}}, keys: [[\"u:a b\", {hex: 00}, {hex: 00ff}], 'u:a b']}\n"))
	f.Add([]byte("a: [&x {*x: ~}]\n--- !!binary\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, problems := Parse("f.yaml", data)
		if (file == nil) != HasErrors(problems) {
			t.Fatalf("file %v with problems %v", file, problems)
		}
		lines := 1 + len(lineBreak.FindAll(data, -1))
		for _, p := range problems {
			if p.Line < 1 || p.Col < 1 || p.Line > lines {
				t.Errorf("no place in the file: %s", p)
			}
		}
		if file != nil {
			file.RunTests()
		}
	})
}
