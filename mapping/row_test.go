package mapping

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
)

func TestParseRow(t *testing.T) {
	c, err := ParseRow("shop.users", `{"id": 18446744073709551615, "name": "a\tb", "score": 1.50, "gone": null}`, `{name: 013}`)
	if err != nil {
		t.Fatal(err)
	}
	before, after := map[string]cdc.Value{}, map[string]cdc.Value{}
	for i, col := range c.Columns.List {
		before[col.Name], after[col.Name] = c.Before[i], c.After[i]
	}
	want := map[string]cdc.Value{
		"id": {Kind: cdc.Integer, S: "18446744073709551615"}, "name": {Kind: cdc.Text, S: "a\tb"},
		"score": {Kind: cdc.Decimal, S: "1.50"}, "gone": {Kind: cdc.Null},
	}
	if diff := cmp.Diff(want, before); diff != "" {
		t.Error(diff)
	}
	want["name"] = cdc.Value{Kind: cdc.Text, S: "013"}
	if diff := cmp.Diff(want, after); diff != "" {
		t.Error(diff)
	}
	if c.Op != cdc.Update || c.TableID.String() != "shop.users" {
		t.Errorf("got %s of %s", c.Op, c.TableID)
	}
	for _, empty := range []string{"{}", `{"id": 1}`} {
		if c, err := ParseRow("shop.users", "", empty); err != nil || c.Op != cdc.Insert || c.Before != nil || c.After == nil {
			t.Errorf("%s: %v, %v", empty, c, err)
		}
	}
}

func FuzzParseRow(f *testing.F) {
	f.Add("shop.users", `{"id": 1}`, `{email: null, b: {hex: 00ff}}`)
	f.Add("a.b", "", "{a: *b}")
	f.Add("a", "[]", "\t{}")
	set := setOf(f, mappingHead+"      - user:{id}\n      - user:by:{email|lower}\n")
	f.Fuzz(func(t *testing.T, table, before, after string) {
		c, err := ParseRow(table, before, after)
		if (c == nil) != (err != nil) {
			t.Fatalf("%v with %v", c, err)
		}
		if c != nil {
			var r Result
			set.Keys(c, &r)
		}
	})
}
