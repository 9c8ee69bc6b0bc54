package mapping

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
)

// file is a team's file with one mapping, of one key user:{id} in the team's pool.
func file(team, pool, table, more string) string {
	return fmt.Sprintf("version: 1\nteam: %s\npools: [%s]\nmappings:\n  - name: m\n    table: %s\n    keys: [\"%[2]s:{id}\"]\n%[4]s", team, pool, table, more)
}

// load writes files into a folder and loads it.
func load(t *testing.T, files map[string]string) (*Set, []string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set, problems, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, p := range problems {
		lines = append(lines, strings.TrimPrefix(strings.ReplaceAll(p.String(), dir+"/", ""), dir))
	}
	return set, lines
}

func teams(s *Set) (names []string) {
	for _, f := range s.Files() {
		names = append(names, f.Team)
	}
	return names
}

func TestLoadLeavesOutOneFileAlone(t *testing.T) {
	set, problems := load(t, map[string]string{
		"a.yaml":     file("a", "a", "shop.a", ""),
		"b.yml":      file("b", "b", "shop.b", "extra: 1\n"),
		"c.yml":      file("c", "c", "shop.c", ""),
		".d.yaml":    "an editor's own",
		"README.txt": "no mapping",
	})
	if got := teams(set); !cmp.Equal(got, []string{"a", "c"}) {
		t.Errorf("in force: %q", got)
	}
	if want := []string{`b.yml:8:1: field "extra" is unknown in a mapping file`}; !cmp.Equal(problems, want) {
		t.Errorf("problems %q, want %q", problems, want)
	}
}

func TestLaterFileGivesWay(t *testing.T) {
	typed := func(team, table, typ string) string {
		return file(team, team, table, "    columns: {id: "+typ+"}\n")
	}
	for _, c := range []struct {
		name, b string
		a       string
		want    string
	}{
		{"pool", file("b", "a", "shop.b", ""), file("a", "a", "shop.a", ""), `b.yaml:3:9: pool "a" is claimed by a.yaml:3 already (one team owns a pool)`},
		{"type", typed("b", "shop.t", "bigint"), typed("a", "shop.t", "bigint unsigned"),
			`b.yaml:8:15: column id is bigint here and bigint unsigned in a.yaml:8, of a table that both map (a column has one type)`},
		{"type by pattern", typed("b", "shop*.t", "bigint"), typed("a", "'*op.t'", "int"),
			`b.yaml:8:15: column id is bigint here and int in a.yaml:8, of a table that both map (a column has one type)`},
		{"types of two tables", typed("b", "shop.b", "bigint"), typed("a", "shop.a", "int"), ""},
		{"same type", typed("b", "shop.t", "bigint"), typed("a", "shop.t", "bigint"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, problems := load(t, map[string]string{"a.yaml": c.a, "b.yaml": c.b})
			if got := strings.Join(problems, "\n"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
			if want := 2 - len(problems); len(set.Files()) != want {
				t.Errorf("%d files in force, want %d", len(set.Files()), want)
			}
		})
	}
}

func TestLoadOfNothing(t *testing.T) {
	set, problems := load(t, nil)
	if len(problems) != 1 || !strings.HasSuffix(problems[0], ": warning: the folder has no *.yaml file: nothing is mapped") {
		t.Errorf("problems %q", problems)
	}
	if set.Columns("", users) != nil {
		t.Error("a table is mapped")
	}
	if _, _, err := Load(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing folder: %v", err)
	}
}

func TestFingerprint(t *testing.T) {
	a, b := file("a", "a", "shop.a", ""), file("b", "b", "shop.b", "")
	base, _ := load(t, map[string]string{"a.yaml": a, "b.yaml": b})
	for _, c := range []struct {
		name  string
		files map[string]string
		same  bool
	}{
		{"another folder", map[string]string{"a.yaml": a, "b.yaml": b}, true},
		{"beside a file in error", map[string]string{"a.yaml": a, "b.yaml": b, "c.yaml": "broken"}, true},
		{"a comment more", map[string]string{"a.yaml": a, "b.yaml": b + "# more\n"}, false},
		{"another name", map[string]string{"a.yaml": a, "c.yaml": b}, false},
		{"one file less", map[string]string{"a.yaml": a}, false},
	} {
		set, _ := load(t, c.files)
		if same := set.Fingerprint() == base.Fingerprint(); same != c.same || len(set.Fingerprint()) != 16 {
			t.Errorf("%s: fingerprint %s beside %s", c.name, set.Fingerprint(), base.Fingerprint())
		}
	}
}

func TestColumns(t *testing.T) {
	set, problems := load(t, map[string]string{
		"a.yaml": file("a", "a", "shop.users", "    columns: {id: bigint unsigned}\n"),
		"b.yaml": "version: 1\nteam: b\npools: [b]\nmappings:\n  - {name: m, tables: [shop.users, shop.other], keys: [\"b:{email}:{id}\"]}\n" +
			"  - {name: narrow, table: crm.users, source: s1, database: d1, keys: [\"b:narrow:{id}\"]}\n" +
			"  - {name: pattern, table: 'shop_?.users', keys: [\"b:pattern:{n}\"]}\n",
	})
	if problems != nil {
		t.Fatal(problems)
	}
	for _, c := range []struct {
		source string
		table  cdc.TableID
		want   []cdc.Column
	}{
		{"s", users, []cdc.Column{{Name: "id", Type: "bigint unsigned"}, {Name: "email"}}},
		{"s", cdc.TableID{Schema: "shop", Table: "other"}, []cdc.Column{{Name: "email"}, {Name: "id"}}},
		{"s", cdc.TableID{Schema: "shop", Table: "Users"}, nil},
		{"s", cdc.TableID{Schema: "shopx", Table: "users"}, nil},
		{"s", cdc.TableID{Schema: "shop_7", Table: "users"}, []cdc.Column{{Name: "n"}}},
		{"s", cdc.TableID{Schema: "shop_77", Table: "users"}, nil},
		{"s1", cdc.TableID{Database: "d1", Schema: "crm", Table: "users"}, []cdc.Column{{Name: "id"}}},
		{"s2", cdc.TableID{Database: "d1", Schema: "crm", Table: "users"}, nil},
		{"s1", cdc.TableID{Database: "d2", Schema: "crm", Table: "users"}, nil},
		{"", cdc.TableID{Schema: "crm", Table: "users"}, []cdc.Column{{Name: "id"}}}, // a tombstone names neither
	} {
		cols := set.Columns(c.source, c.table)
		var got []cdc.Column
		if cols != nil {
			got = cols.List
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s %v: %s", c.source, c.table, diff)
		}
		if set.Columns(c.source, c.table) != cols {
			t.Errorf("%v: the columns are not the same twice", c.table)
		}
	}
}

// Tables beyond what a Set remembers have the same plan as before, and nothing grows.
func TestTablesBeyondTheCache(t *testing.T) {
	set, _ := load(t, map[string]string{"a.yaml": file("a", "a", "shop_*.users", "")})
	id := func(i int) cdc.TableID { return cdc.TableID{Schema: fmt.Sprintf("shop_%d", i), Table: "users"} }
	first := set.Plan("", id(0))
	for i := range cachedTables + 10 {
		set.Plan("", cdc.TableID{Schema: "x", Table: fmt.Sprint(i)})
	}
	for i := range 10 {
		if p := set.Plan("", id(i)); p != first {
			t.Errorf("table %d has a plan of its own", i)
		}
	}
	if n := len(*set.tables.Load()); n != cachedTables {
		t.Errorf("%d tables remembered, want %d", n, cachedTables)
	}
}

func TestMayMatchSame(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a.b", "a.b", true}, {"a.b", "a.c", false}, {"a.*", "a.c", true}, {"*.b", "a.*", true}, {"a*.x", "*b.x", true}, {"a*.x", "b*.x", false},
		{"a?.x", "ab.x", true}, {"a?.x", "abc.x", false}, {"[ab].x", "?.x", true}, {`a\*.x`, "a*.x", true}, {`a\*.x`, "ab.x", false}, {"**.x", "x.x", true}, {"a*", "a", true},
	} {
		if got := mayMatchSame(c.a, c.b); got != c.want {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
		if got := mayMatchSame(c.b, c.a); got != c.want {
			t.Errorf("%s and %s: %v", c.b, c.a, got)
		}
	}
}

func TestSetIsSafeForConcurrentUse(t *testing.T) {
	set, _ := load(t, map[string]string{"a.yaml": file("a", "a", "shop_*.users", "")})
	plans := make(chan *Plan)
	for range 4 {
		go func() {
			var p *Plan
			for i := range 100 {
				p = set.Plan("", cdc.TableID{Schema: fmt.Sprintf("shop_%d", i), Table: "users"})
			}
			plans <- p
		}()
	}
	first := <-plans
	for range 3 {
		if p := <-plans; p != first || p == nil {
			t.Errorf("two plans for the same mappings: %p, %p", p, first)
		}
	}
}

func TestRunTests(t *testing.T) {
	f := parse(t, mappingHead+`      - user:{id}
      - user:mail:{email}
tests:
  - name: right
    table: shop.users
    before: {id: 1, email: a}
    after: {email: b}
    keys: [user:1, "user:mail:a", "user:mail:b"]
  - name: wrong
    table: shop.users
    after: {id: 013, email: null}
    keys: [user:13, user:2]
  - name: a column in neither image is absent
    table: shop.users
    before: {id: "x", email: "null"}
    keys: [user:x, "user:mail:null"]
`)
	var got []string
	for _, r := range f.RunTests() {
		got = append(got, r.String())
	}
	want := []string{
		"f.yaml:11:5: ok: right",
		"f.yaml:16:5: FAILED: wrong\n    missing     user:13\n    missing     user:2\n    unexpected  user:013\n" +
			"    skipped     user:mail:{email}: after image, column email: the column is NULL",
		"f.yaml:20:5: ok: a column in neither image is absent",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The examples load without a word, and every mapping of them is tested.
func TestExamples(t *testing.T) {
	set, problems, err := Load("../mappings.d")
	if err != nil || len(problems) > 0 {
		t.Fatal(texts(problems), err)
	}
	if len(set.Files()) < 10 {
		t.Errorf("only %d files", len(set.Files()))
	}
	for _, r := range set.RunTests() {
		if !r.OK() {
			t.Error(r)
		}
	}
	for _, f := range set.Files() {
		for _, m := range f.Mappings {
			if !slices.ContainsFunc(f.Tests, func(t *Test) bool { return m.covers(t.Source, t.Table.Database, t.Table.Schema, t.Table.Table) }) {
				t.Errorf("%s: mapping %s has no test", f.Name, m.Name)
			}
		}
	}
}

// Every recipe of docs/MAPPINGS.md is a file without a problem, whose tests pass.
func TestRecipesOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/MAPPINGS.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```yaml\n")[2:] // the first is a whole file
	if len(blocks) < 12 {
		t.Errorf("only %d recipes", len(blocks))
	}
	for _, b := range blocks {
		b, _, _ := strings.Cut(b, "```")
		for _, r := range parse(t, "version: 1\nteam: docs\n"+b).RunTests() {
			if !r.OK() {
				t.Errorf("%s\n%s", r, b)
			}
		}
	}
}

// What docs/MAPPINGS.md shows as a first file is one.
func TestFirstFileOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../docs/MAPPINGS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	results := parse(t, block).RunTests()
	if len(results) != 1 || !results[0].OK() {
		t.Error(results)
	}
}
