package mapping

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
)

const truncateFile = `version: 1
team: profiles
pools: [user, profile, config, page, order]
underivable: [feed]
mappings:
  - name: user
    table: shop.users
    keys:
      - {key: "user:{id}", when: op == 'insert'}
      - user:by-email:{email}
      - {key: "profile:{id}:{l}", each: {l: [en, de]}}
      - {key: "config:all", when: changed(name)}
      - {key: "config:{l}", each: {l: [en, de]}}
      - {key: "order:{id}", shadow: true}
      - {key: "config:shadow", shadow: true}
  - name: pages
    tables: ["shop.users", "shop_*.pages"]
    on_truncate: ignore
    keys: ["page:{id}", "user:{name}", "page:all"]
  - name: outbox
    table: shop.outbox
    keys: [{raw: "{key}"}]
  - name: orders
    table: crm.orders
    source: crm
    keys: ["order:{id}"]
`

func pools(list []Emptied) string {
	var names []string
	for _, e := range list {
		names = append(names, e.Pool)
	}
	return strings.Join(names, " ")
}

// C6: of a table that was emptied the known keys are deleted, and of each other template the pool is flushed, or left as it is.
func TestC6Truncate(t *testing.T) {
	s := setOf(t, truncateFile)
	tables := func(names ...string) (ids []cdc.TableID) {
		for _, n := range names {
			schema, table, _ := strings.Cut(n, ".")
			ids = append(ids, cdc.TableID{Schema: schema, Table: table})
		}
		return ids
	}
	const all = "config:all config:en config:de page:all"
	for _, c := range []struct {
		name                           string
		source                         string
		tables                         []cdc.TableID
		keys, shadow, flush, unflushed string
	}{
		{"a table", "", tables("shop.users"), all, "config:shadow", "user profile", "page"},
		{"only ignored", "", tables("shop_7.pages"), "page:all", "", "", "page user"},
		{"an ignored pool that another table flushes", "", tables("shop_7.pages", "shop.users"), "page:all config:all config:en config:de", "config:shadow", "user profile", "page"},
		{"an outbox may hold keys of every pool", "", tables("shop.outbox"), "", "", "config feed order page profile user", ""},
		{"a table that nobody maps", "", tables("shop.nothing"), "", "", "", ""},
		{"one of several", "", tables("shop.nothing", "shop.outbox"), "", "", "config feed order page profile user", ""},
		{"another source's table", "shop", tables("crm.orders"), "", "", "", ""},
		{"the source's", "crm", tables("crm.orders"), "", "", "order", ""},
		{"every table of a schema", "", tables("shop."), all, "config:shadow", "user profile config feed order page", ""},
		{"every table of a schema, by a pattern", "", tables("shop_7."), "page:all", "", "", "page user"},
		{"every table of a schema that is a pattern's text", "", tables("shop_*."), "page:all", "", "", "page user"},
		{"every table of another schema", "", tables("shopping.", "sho."), "", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			change := &cdc.RowChange{Source: c.source, TableID: c.tables[0], Also: c.tables[1:], Op: cdc.Truncate}
			var r Result
			for range 2 { // a Result is used again
				r.Reset()
				s.Keys(change, &r)
			}
			texts := func(keys []Key) string {
				var all []string
				for _, k := range keys {
					all = append(all, k.Text)
				}
				return strings.Join(all, " ")
			}
			got := []string{texts(r.Keys), texts(r.Shadow), pools(r.Flush), pools(r.Unflushed)}
			if diff := cmp.Diff([]string{c.keys, c.shadow, c.flush, c.unflushed}, got); diff != "" {
				t.Error(diff)
			}
			if len(r.Skipped)+len(r.Undecided)+len(r.Unmet) > 0 {
				t.Errorf("%v %v %v", r.Skipped, r.Undecided, r.Unmet)
			}
			for _, e := range slices.Concat(r.Flush, r.Unflushed) {
				if e.Template == nil || e.Template.Team != "profiles" {
					t.Errorf("%+v", e)
				}
			}
		})
	}
}

// A row whose table is not known is nobody's, and never one of every table.
func TestRowWithoutTableGivesNoKey(t *testing.T) {
	s := setOf(t, truncateFile)
	id := cdc.TableID{Schema: "shop"}
	cols := s.Columns("", id)
	if cols == nil {
		t.Fatal("no table of the schema is mapped")
	}
	row := make(cdc.Row, len(cols.List))
	row[cols.Index("id")] = integer64("7")
	for _, op := range []cdc.Op{cdc.Insert, cdc.Update, cdc.Delete, cdc.Tomb} {
		var r Result
		s.Keys(&cdc.RowChange{TableID: id, Op: op, Columns: cols, Before: row, After: row}, &r)
		if len(r.Keys)+len(r.Shadow)+len(r.Skipped)+len(r.Flush) > 0 {
			t.Errorf("op %s: %+v", op, r)
		}
	}
}

// A file's test of a truncate names the pools exactly.
func TestTestsOfTruncates(t *testing.T) {
	const tests = `tests:
  - {name: exact, table: shop.users, op: truncate, keys: ["config:all", "config:en", "config:de", "page:all"], flush: [profile, user], shadow_keys: ["config:shadow"]}
  - {name: none said, table: shop.users, op: truncate, keys: ["config:all", "config:en", "config:de", "page:all"]}
  - {name: too many, table: shop_1.pages, op: truncate, keys: ["page:all"], flush: [page]}
  - {name: ignored, table: shop_1.pages, op: truncate, keys: ["page:all"], flush: []}
`
	f := parse(t, truncateFile+tests)
	results := f.RunTests()
	var got []string
	for _, r := range results {
		got = append(got, strings.Join([]string{r.Test.Name, strings.Join(r.Missing, ","), strings.Join(r.Unexpected, ",")}, "|"))
	}
	want := []string{"exact||", "none said||flush of pool user,flush of pool profile", "too many|flush of pool page|", "ignored||"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, c := range f.Coverage(results) {
		if c.Template.Text == "config:all" && (!c.Rendered || c.Met || c.Unmet) {
			t.Errorf("a truncate asks no condition: %+v", c)
		}
		if c.Template.Text == "user:{id}" && c.Rendered {
			t.Errorf("a truncate has no key of it: %+v", c)
		}
	}
}

func TestFaultsOfTruncates(t *testing.T) {
	const head = "version: 1\nteam: a\npools: [user]\nmappings:\n  - {name: user, table: shop.users, on_truncate: flush, keys: [\"user:{id}\"]}\n"
	for text, want := range map[string]string{
		strings.Replace(head, "flush", "flsh", 1):                                                    `f.yaml:5:50: on_truncate must be flush or ignore, not "flsh" (did you mean "flush"?)`,
		head + "tests:\n  - {name: a, table: shop.users, op: truncate, after: {id: 1}, keys: []}\n":  "f.yaml:7:5: a truncate has neither before nor after (leave them out)",
		head + "tests:\n  - {name: a, table: shop.users, after: {id: 1}, keys: [], flush: [user]}\n": "f.yaml:7:67: flush is for a truncate: any other change says its keys (write op: truncate, or leave it out)",
		head + "tests:\n  - {name: a, table: shop.users, op: truncate, keys: [], flush: [usr]}\n":    `f.yaml:7:66: pool "usr" is not one of this file's (did you mean "user"?)`,
		head + "tests:\n  - {name: a, table: shop.users, op: truncat, keys: [], before: {id: 1}}\n":  `f.yaml:7:38: op must be insert, update, delete or truncate, not "truncat" (did you mean "truncate"?)`,
	} {
		f, problems := Parse("f.yaml", []byte(text))
		if f != nil || len(problems) == 0 || problems[0].String() != want {
			t.Errorf("%v, want %s", problems, want)
		}
	}
}

// Whoever sweeps an outbox by TRUNCATE would flush every pool of the file each time.
func TestLintTellsOfOutboxesThatMayBeSwept(t *testing.T) {
	const file = "version: 1\nteam: a\npools: [user]\nmappings:\n  - {name: o, table: shop.outbox, keys: [{raw: '{key}'}]}\n"
	const want = "f.yaml:5:48: note: a TRUNCATE of this table flushes every pool of the file, for the keys in it may be of any " +
		"(write on_truncate: ignore if the table is swept so, or on_truncate: flush if it never is)"
	if got := setOf(t, file).Lint(); len(got) != 1 || got[0].String() != want {
		t.Errorf("%v", got)
	}
	for _, said := range []string{"ignore", "flush"} {
		if got := setOf(t, strings.Replace(file, "keys:", "on_truncate: "+said+", keys:", 1)).Lint(); len(got) > 0 {
			t.Errorf("%v", got)
		}
	}
}
