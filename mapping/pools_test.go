package mapping

import (
	"slices"
	"testing"
)

func TestPools(t *testing.T) {
	f, problems := Parse("a.yaml", []byte(`
version: 1
team: a
contact: "#a"
pools: [user, mail, item, any]
underivable: [feed]
mappings:
  - {name: user, table: shop.users, source: one, keys: ["user:{id}", "mail:{email}"]}
  - {name: item, table: "shop.item_*", keys: ["item:{id}"]}
  - {name: outbox, table: shop.outbox, keys: [{raw: "{key}"}]}
`))
	if f == nil {
		t.Fatal(problems)
	}
	s, _ := NewSet([]*File{f})
	for _, tc := range []struct {
		source string
		tables []string
		want   []string
	}{
		{"one", []string{"shop.users"}, []string{"mail", "user"}},
		{"two", []string{"shop.users"}, nil},
		{"one", []string{"shop.item_7"}, []string{"item"}},
		{"one", []string{"shop.*"}, []string{"any", "feed", "item", "mail", "user"}},
		{"one", []string{"*.*"}, []string{"any", "feed", "item", "mail", "user"}},
		{"one", []string{"shop.it?m_*"}, []string{"item"}},
		{"one", []string{"other.*"}, nil},
		{"one", []string{"other.*", "shop.outbox"}, []string{"any", "feed", "item", "mail", "user"}},
		{"one", nil, nil},
	} {
		if got := s.Pools(tc.source, tc.tables); !slices.Equal(got, tc.want) {
			t.Errorf("%s %s: %s, want %s", tc.source, tc.tables, got, tc.want)
		}
	}
	if got := s.TablesIn("one", "shop"); !slices.Equal(got, []string{"outbox", "users"}) {
		t.Error(got)
	}
	if got := s.TablesIn("two", "shop"); !slices.Equal(got, []string{"outbox"}) {
		t.Error(got)
	}
}
