package mapping

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
)

func TestLintTablesNamesTheFirstOfAPattern(t *testing.T) {
	set, _ := NewSet([]*File{parse(t, head+"mappings:\n  - {name: user, table: 'shop_*.users', keys: [\"user:{id}\", \"user:x:{mail}\"]}\n")})
	include, err := cdc.NewInclude([]string{"shop_*.*"})
	if err != nil {
		t.Fatal(err)
	}
	source := LiveSource{Name: "shop", Include: include}
	for _, schema := range []string{"shop_1", "shop_2", "shop_3", "else_1"} {
		source.Tables = append(source.Tables, cdc.TableInfo{TableID: cdc.TableID{Schema: schema, Table: "users"},
			Columns: []cdc.ColumnInfo{{Column: cdc.Column{Name: "id", Type: "bigint"}}, {Column: cdc.Column{Name: "email", Type: "text"}}}})
	}
	want := []string{`f.yaml:5:70: table shop_1.users and 2 more: it has no column mail (did you mean "email"?)`}
	if diff := cmp.Diff(want, texts(set.LintTables([]LiveSource{source}))); diff != "" {
		t.Error(diff)
	}
}

// What somebody else feeds cannot be asked, so that nothing is known to be missing.
func TestLintTablesKnowsWhatItDoesNotKnow(t *testing.T) {
	set, _ := NewSet([]*File{parse(t, head+"mappings:\n  - {name: user, table: shop.users, keys: [\"user:{id}\"]}\n")})
	if problems := set.LintTables([]LiveSource{{Name: "shop"}, {Name: "dbz", Unknown: true}}); len(problems) > 0 {
		t.Errorf("got %v", problems)
	}
	got := strings.Join(texts(set.LintTables([]LiveSource{{Name: "shop"}})), "")
	if want := "f.yaml:5:25: no table shop.users exists in source shop (names are compared by case; for a table to come, add it first)"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLintTablesReadsConditions(t *testing.T) {
	set, _ := NewSet([]*File{parse(t, mappingHead+"      - key: user:{id}:{locale}\n        each: {locale: [en]}\n        when: changed(name) && after.stat == 1\n")})
	include, err := cdc.NewInclude([]string{"shop.*"})
	if err != nil {
		t.Fatal(err)
	}
	source := LiveSource{Name: "shop", Include: include, Tables: []cdc.TableInfo{{TableID: cdc.TableID{Schema: "shop", Table: "users"}, Columns: []cdc.ColumnInfo{
		{Column: cdc.Column{Name: "id", Type: "bigint"}},
		{Column: cdc.Column{Name: "name", Type: "text"}, OldUnsent: cdc.Lack{What: "x", Hint: "mend it"}},
		{Column: cdc.Column{Name: "state", Type: "int"}},
	}}}}
	want := []string{
		"f.yaml:10:15: note: table shop.users: the old value of column name is not known: a condition that asks for it counts as true (mend it)",
		`f.yaml:10:15: table shop.users: it has no column stat (did you mean "state"?)`,
	}
	if diff := cmp.Diff(want, texts(set.LintTables([]LiveSource{source}))); diff != "" {
		t.Error(diff)
	}
}
