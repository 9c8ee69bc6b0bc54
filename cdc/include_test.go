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
