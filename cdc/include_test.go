package cdc

import "testing"

func TestInclude(t *testing.T) {
	in, err := NewInclude([]string{"shop.*", "tenant_?.users"})
	if err != nil {
		t.Fatal(err)
	}
	for table, want := range map[TableID]bool{
		{Schema: "shop", Table: "users"}: true, {Schema: "Shop", Table: "users"}: false, {Schema: "shop2", Table: "users"}: false,
		{Schema: "tenant_7", Table: "users"}: true, {Schema: "tenant_12", Table: "users"}: false, {Schema: "tenant_7", Table: "orders"}: false,
	} {
		if got := in.Match(table.Schema, table.Table); got != want {
			t.Errorf("%s: %v; want %v", table, got, want)
		}
	}
	var none *Include
	if none.Match("shop", "users") {
		t.Error("nothing chooses a table")
	}
	if _, err := NewInclude([]string{"shop.[a"}); err == nil {
		t.Error("a broken pattern is no error")
	}
}

func TestIncludeOfSchemas(t *testing.T) {
	in, err := NewInclude([]string{"Shop.*", "tenant_?.users", "log*"})
	if err != nil {
		t.Fatal(err)
	}
	for schema, want := range map[string]bool{"Shop": true, "shop": false, "tenant_7": true, "tenant_77": false, "logs": true, "": false} {
		if got := in.MatchSchema(schema); got != want {
			t.Errorf("%s: %v; want %v", schema, got, want)
		}
	}
	if !in.Fold().Match("shop", "u") || (*Include)(nil).Fold().Match("a", "b") || (*Include)(nil).MatchSchema("a") {
		t.Error("folded, Shop.* is shop.*, and nothing is nothing")
	}
	got := in.Unmatched([]TableID{{Schema: "Shop", Table: "u"}, {Schema: "logs", Table: "x"}})
	if len(got) != 1 || got[0] != "tenant_?.users" {
		t.Errorf("without a table: %q", got)
	}
}
