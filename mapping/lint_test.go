package mapping

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLintTellsOfTemplatesThatDifferInColumnsAlone(t *testing.T) {
	for _, c := range []struct{ name, mappings, want string }{
		{"one table, two meanings", `
  - {name: user, table: shop.users, keys: ["user:{id}", "user:{email|lower}"]}`,
			"f.yaml:5:57: note: user:{email|lower} gives the keys of user:{id} in line 5: a row of one may share its key with a row of the other"},
		{"a number and a text", `
  - {name: user, table: shop.users, columns: {id: bigint, name: varchar(20)}, keys: ["user:{id}", "user:{name}"]}`,
			"f.yaml:5:99: warning: user:{name} gives the keys of user:{id} in line 5: a row of one may share its key with a row of the other, and name is varchar(20) where id is bigint"},
		{"another table's column", `
  - {name: user, table: shop.users, keys: ["user:{id}"]}
  - {name: address, table: shop.addresses, keys: ["user:{user_id}"]}`,
			"f.yaml:6:51: note: user:{user_id} gives the keys of user:{id} of shop.users in line 5: a row of one may share its key with a row of the other"},
		{"apart by a word", `
  - {name: user, table: shop.users, keys: ["user:{id}", "user:by-email:{email}"]}`, ""},
		{"without a column", `
  - {name: a, table: shop.a, keys: ["user:all"]}
  - {name: b, table: shop.b, keys: ["user:all"]}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, _ := NewSet([]*File{parse(t, head+"mappings:"+c.mappings+"\n")})
			got := ""
			for _, p := range set.Lint() {
				p.Hint = ""
				got += p.String() + "\n"
			}
			if diff := cmp.Diff(c.want, strings.TrimSuffix(got, "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}
