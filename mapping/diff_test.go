package mapping

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	const user = "  - {name: user, table: shop.users, keys: [\"user:{id}\"]}\n"
	for _, c := range []struct{ name, was, is, want string }{
		{"nothing", user, user, ""},
		{"added", user, user + "  - {name: mail, table: shop.users, keys: [\"user:mail:{email}\"]}\n",
			"added user:mail:{email} replay"},
		{"removed", user + "  - {name: mail, table: shop.users, keys: [\"user:mail:{email}\"]}\n", user,
			"removed user:mail:{email}; warns: changes no longer delete its keys: first see that no client reads them"},
		{"another column", user, strings.Replace(user, "{id}", "{uuid|lower}", 1),
			"changed user:{uuid|lower} replay; key: user:{id} -> user:{uuid|lower}; warns: changes no longer delete the keys of user:{id}: first see that no client reads them"},
		{"a filter", user, strings.Replace(user, "{id}", "{id|lower}", 1),
			"changed user:{id|lower} replay; key: user:{id} -> user:{id|lower}; warns: changes no longer delete the keys of user:{id}: first see that no client reads them"},
		{"another mapping of the table", user, strings.Replace(user, "name: user", "name: person", 1),
			"changed user:{id}; mapping: profiles/user -> profiles/person"},
		{"tables", user, strings.Replace(user, "table: shop.users", "tables: [shop.people, shop.guests]", 1),
			"changed user:{id} replay; tables: + shop.people, shop.guests; tables: - shop.users; warns: changes of shop.users no longer delete its keys"},
		{"narrowed to a source", user, strings.Replace(user, "table:", "source: a, table:", 1),
			"changed user:{id}; source: any -> a; warns: changes of any other source no longer delete its keys"},
		{"no longer narrowed", strings.Replace(user, "table:", "database: a, table:", 1), user,
			"changed user:{id} replay; database: a -> any"},
		{"a type", user, strings.Replace(user, "keys", "columns: {id: bigint unsigned}, keys", 1),
			"changed user:{id} replay; type of id: not declared -> bigint unsigned"},
		{"hot up", user, strings.Replace(user, `"user:{id}"`, `{key: "user:{id}", hot: 8}`, 1),
			"changed user:{id} replay; hot: 0 -> 8"},
		{"hot down", strings.Replace(user, `"user:{id}"`, `{key: "user:{id}", hot: 8}`, 1), strings.Replace(user, `"user:{id}"`, `{key: "user:{id}", hot: 4}`, 1),
			"changed user:{id}; hot: 8 -> 4; warns: changes no longer delete the copies from #5 on: first see that no client reads them"},
		{"a condition", user, strings.Replace(user, `"user:{id}"`, `{key: "user:{id}", when: changed(name)}`, 1),
			"changed user:{id}; when: always -> changed(name)"},
		{"another condition", strings.Replace(user, `"user:{id}"`, `{key: "user:{id}", when: changed(mail)}`, 1), strings.Replace(user, `"user:{id}"`, `{key: "user:{id}", when: changed(name)}`, 1),
			"changed user:{id} replay; when: changed(mail) -> changed(name)"},
		{"one of two conditions", strings.Replace(user, `["user:{id}"]`, `[{key: "user:{id}", when: changed(a)}, {key: "user:{id}", when: changed(b)}]`, 1),
			strings.Replace(user, `["user:{id}"]`, `[{key: "user:{id}", when: changed(b)}]`, 1),
			"removed user:{id}; warns: changes no longer delete its keys: first see that no client reads them"},
		{"each", strings.Replace(user, `"user:{id}"`, `{key: "user:{id}:{l}", each: {l: [en, de]}}`, 1), strings.Replace(user, `"user:{id}"`, `{key: "user:{id}:{l}", each: {l: [de, fr]}}`, 1),
			"changed user:{id}:{l} replay; each l: + fr; each l: - en; warns: changes no longer delete the keys with en"},
		{"truncates ignored", user, strings.Replace(user, "keys", "on_truncate: ignore, keys", 1),
			"changed user:{id}; on_truncate: flush -> ignore; warns: a truncate of its tables leaves its keys as they are until they expire"},
		{"truncates flushed", strings.Replace(user, "keys", "on_truncate: ignore, keys", 1), user,
			"changed user:{id} replay; on_truncate: ignore -> flush"},
		{"the default written out", user, strings.Replace(user, "keys", "on_truncate: flush, keys", 1), ""},
		{"truncates of a known key", strings.Replace(user, "{id}", "all", 1), strings.Replace(strings.Replace(user, "{id}", "all", 1), "keys", "on_truncate: ignore, keys", 1), ""},
		{"an action", strings.Replace(user, `"user:{id}"`, `{key: "user:{id}", action: refresh}`, 1), user,
			"changed user:{id}; action: refresh -> delete"},
		{"into shadow", user, strings.Replace(user, `"user:{id}"`, `{key: "user:{id}", shadow: true}`, 1),
			"changed user:{id}; shadow: on; warns: changes no longer delete its keys"},
		{"out of shadow", strings.Replace(user, `"user:{id}"`, `{key: "user:{id}", shadow: true}`, 1), user,
			"changed user:{id} replay; shadow: off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, told(Diff(setOf(t, head+"mappings:\n"+c.was), setOf(t, head+"mappings:\n"+c.is)))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDiffOfPools(t *testing.T) {
	was := setOf(t, "version: 1\nteam: a\nunderivable: [feed, gone]\n")
	is := setOf(t, "version: 1\nteam: b\nunderivable: [feed, fresh]\n")
	want := "added fresh:* flush; underivable\nremoved gone:* flush; pool"
	if diff := cmp.Diff(want, told(Diff(was, is))); diff != "" {
		t.Error(diff)
	}
}

func setOf(t testing.TB, text string) *Set {
	t.Helper()
	set, problems := NewSet([]*File{parse(t, text)})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

func told(changes []Change) string {
	var lines []string
	for _, c := range changes {
		line := fmt.Sprintf("%s %s %s", c.Kind, c.Family, c.Need)
		parts := append([]string{strings.TrimSpace(line)}, c.What...)
		for _, w := range c.Warnings {
			parts = append(parts, "warns: "+w)
		}
		lines = append(lines, strings.Join(parts, "; "))
	}
	return strings.Join(lines, "\n")
}
