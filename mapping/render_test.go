package mapping

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"invalidator/cdc"
)

var users = cdc.TableID{Schema: "shop", Table: "users"}

// set maps shop.users by templates of pool u; "8*…" is a hot one.
func set(t testing.TB, templates ...string) *Set {
	t.Helper()
	var b strings.Builder
	b.WriteString("version: 1\nteam: profiles\npools: [u]\nmappings:\n  - name: user\n    table: shop.users\n    keys:\n")
	for _, text := range templates {
		hot, key, found := strings.Cut(text, "*")
		if !found {
			hot, key = "0", text
		}
		fmt.Fprintf(&b, "      - {key: %q, hot: %s}\n", key, hot)
	}
	f, problems := Parse("f.yaml", []byte(b.String()))
	if f == nil {
		t.Fatal(problems)
	}
	s, problems := NewSet([]*File{f})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return s
}

type row map[string]cdc.Value

func text(s string) cdc.Value      { return cdc.Value{Kind: cdc.Text, S: s} }
func integer64(s string) cdc.Value { return cdc.Value{Kind: cdc.Integer, S: s} }
func raw(s string) cdc.Value       { return cdc.Value{Kind: cdc.Bytes, S: s} }

var (
	null   = cdc.Value{Kind: cdc.Null}
	absent = cdc.Value{}
)

// change is a change of shop.users as a decoder makes it under s; a nil row is an image that is not there.
func change(s *Set, op cdc.Op, before, after row) *cdc.RowChange {
	c := &cdc.RowChange{TableID: users, Op: op, Columns: s.Columns("", users)}
	lay := func(from row) cdc.Row {
		if from == nil {
			return nil
		}
		to := make(cdc.Row, len(c.Columns.List))
		for i, col := range c.Columns.List {
			to[i] = from[col.Name]
		}
		return to
	}
	c.Before, c.After = lay(before), lay(after)
	return c
}

// keys are the texts of what c gives, and what was skipped.
func keys(s *Set, c *cdc.RowChange) (texts, skipped []string) {
	var r Result
	s.Keys(c, &r)
	for _, k := range r.Keys {
		texts = append(texts, k.Text)
	}
	for _, k := range r.Skipped {
		skipped = append(skipped, fmt.Sprintf("%s %s %s %s", k.Image, k.Reason, k.Template.Text, k.Column))
	}
	return texts, skipped
}

func TestKeys(t *testing.T) {
	id := integer64("1")
	for _, c := range []struct {
		name          string
		templates     string // apart by spaces
		op            cdc.Op
		before, after row
		keys, skipped string // apart by spaces; by ", "
	}{
		{name: "an insert has its after image", templates: "u:{id}", op: cdc.Insert, after: row{"id": id}, keys: "u:1"},
		{name: "a delete has its before image", templates: "u:{id}", op: cdc.Delete, before: row{"id": id}, keys: "u:1"},
		{name: "a snapshot's row is as an insert", templates: "u:{id}", op: cdc.Read, after: row{"id": id}, keys: "u:1"},
		{name: "an update has both, before first", templates: "u:{id} u:mail:{mail}", op: cdc.Update,
			before: row{"id": id, "mail": text("a")}, after: row{"id": integer64("2"), "mail": text("b")}, keys: "u:1 u:mail:a u:2 u:mail:b"},
		{name: "a key is given once", templates: "u:{id} u:{other}", op: cdc.Update,
			before: row{"id": id, "other": id}, after: row{"id": id, "other": id}, keys: "u:1"},
		{name: "braces", templates: "u:{{{id}}}", op: cdc.Insert, after: row{"id": id}, keys: "u:{1}"},
		{name: "no column", templates: "u:all", op: cdc.Delete, before: row{}, keys: "u:all"},
		{name: "no column, no image", templates: "u:all u:{id}", op: cdc.Delete, keys: "u:all", skipped: "before absent u:{id} id"},
		{name: "no row", templates: "u:all u:{id}", op: cdc.Truncate, keys: "u:all"},
		{name: "an empty text is a text", templates: "u:{id}:x", op: cdc.Insert, after: row{"id": text("")}, keys: "u::x"},

		{name: "A14 case and spaces are bytes", templates: "u:{k}", op: cdc.Update, before: row{"k": text("abc")}, after: row{"k": text("ABC")}, keys: "u:abc u:ABC"},
		{name: "A14 filters where they are asked for", templates: "u:{k|lower} u:trimmed:{k|trim|upper}", op: cdc.Update,
			before: row{"k": text("abc")}, after: row{"k": text("ABC")}, keys: "u:abc u:trimmed:ABC"},
		{name: "A16 the order is the template's", templates: "u:{b}:{a}", op: cdc.Update,
			before: row{"a": text("z"), "b": text("x:y")}, after: row{"a": text("y:z"), "b": text("x")}, keys: "u:x:y:z"},
		{name: "A16 an escape keeps rows apart", templates: "u:{b|urlencode}:{a|urlencode}", op: cdc.Update,
			before: row{"a": text("z"), "b": text("x:y")}, after: row{"a": text("y:z"), "b": text("x")}, keys: "u:x%3Ay:z u:x:y%3Az"},
		{name: "A17 NULL gives no key, and the other image does", templates: "u:mail:{mail} u:{id}", op: cdc.Update,
			before: row{"id": id, "mail": null}, after: row{"id": id, "mail": text("a")}, keys: "u:1 u:mail:a", skipped: "before null u:mail:{mail} mail"},
		{name: "A17 back to NULL", templates: "u:mail:{mail} u:{id}", op: cdc.Update,
			before: row{"id": id, "mail": text("a")}, after: row{"id": id, "mail": null}, keys: "u:mail:a u:1", skipped: "after null u:mail:{mail} mail"},
		{name: "A17 a delete of NULL", templates: "u:mail:{mail} u:{id}", op: cdc.Delete,
			before: row{"id": id, "mail": null}, keys: "u:1", skipped: "before null u:mail:{mail} mail"},

		{name: "B4 unchanged TOAST has the old tuple's value", templates: "u:{slug}", op: cdc.Update, before: row{"slug": text("s")}, after: row{"slug": absent}, keys: "u:s"},
		{name: "B4 unknown in both", templates: "u:{slug} u:{id}", op: cdc.Update, before: row{"id": id}, after: row{"id": id}, keys: "u:1",
			skipped: "before absent u:{slug} slug, after absent u:{slug} slug"},
		{name: "C2 minimal row image", templates: "u:{id} u:mail:{mail}", op: cdc.Update, before: row{"id": id}, after: row{"mail": text("b")},
			keys: "u:1 u:mail:b", skipped: "before absent u:mail:{mail} mail"},
		{name: "a tombstone has its key alone", templates: "u:{id} u:mail:{mail}", op: cdc.Tomb, before: row{"id": id}, keys: "u:1",
			skipped: "before absent u:mail:{mail} mail"},
		{name: "an after image is missing", templates: "u:{id}", op: cdc.Update, before: row{"id": id}, keys: "u:1", skipped: "after absent u:{id} id"},

		{name: "A11 a float", templates: "u:{f} u:{id}", op: cdc.Insert, after: row{"id": id, "f": {Kind: cdc.Float, S: "3.14"}}, keys: "u:1", skipped: "after type u:{f} f"},
		{name: "A12 a JSON document", templates: "u:{j}", op: cdc.Insert, after: row{"j": {Kind: cdc.JSON, S: "{}"}}, skipped: "after type u:{j} j"},
		{name: "I5 an unclear value", templates: "u:{d} u:{id}", op: cdc.Insert, after: row{"id": id, "d": {Kind: cdc.Unclear, S: "AfQ=", Why: "no scale"}},
			keys: "u:1", skipped: "after unclear u:{d} d"},
		{name: "A1 maybe unsigned: every candidate", templates: "u:{id}:{id}:{n}", op: cdc.Insert,
			after: row{"id": cdc.MaybeOneOf("-1", "18446744073709551615"), "n": cdc.MaybeOneOf("-2", "254")},
			keys:  "u:-1:-1:-2 u:18446744073709551615:18446744073709551615:-2 u:-1:-1:254 u:18446744073709551615:18446744073709551615:254"},
		{name: "too many candidates", templates: "u:{a}:{b}:{c}:{d}:{e}", op: cdc.Insert, after: row{"a": cdc.MaybeOneOf("1", "2"), "b": cdc.MaybeOneOf("1", "2"),
			"c": cdc.MaybeOneOf("1", "2"), "d": cdc.MaybeOneOf("1", "2"), "e": cdc.MaybeOneOf("1", "2")}, skipped: "after unclear u:{a}:{b}:{c}:{d}:{e} e"},
		{name: "one bad candidate of two", templates: "u:{a}", op: cdc.Insert, after: row{"a": cdc.MaybeOneOf("a b", "c")}, keys: "u:c", skipped: "after bad_key u:{a} "},

		{name: "B1 bytes of Postgres", templates: "u:{b} u:hex:{b|hex}", op: cdc.Insert, after: row{"b": {Kind: cdc.Bytea, S: "\x00\xff"}}, keys: `u:\x00ff u:hex:00ff`},
		{name: "A3 hex of a binary UUID", templates: "u:{b|hex|upper}", op: cdc.Insert, after: row{"b": raw("\x01\x8f\x00\x00")}, keys: "u:018F0000"},
		{name: "hex of a number", templates: "u:{id|hex}", op: cdc.Insert, after: row{"id": id}, skipped: "after type u:{id|hex} id"},
		{name: "lower of bytes that are no text", templates: "u:{b|lower}", op: cdc.Insert, after: row{"b": raw("A\xff")}, skipped: "after type u:{b|lower} b"},
		{name: "lower of bytes that are a text", templates: "u:{b|lower}", op: cdc.Insert, after: row{"b": raw("ÅB")}, keys: "u:åb"},

		{name: "H1 a space", templates: "u:{k} u:{id}", op: cdc.Insert, after: row{"id": id, "k": text("a b")}, keys: "u:1", skipped: "after bad_key u:{k} "},
		{name: "H1 a command in a value", templates: "u:{k}", op: cdc.Insert, after: row{"k": text("a\r\nflush_all")}, skipped: "after bad_key u:{k} "},
		{name: "H1 NUL", templates: "u:{k}", op: cdc.Insert, after: row{"k": text("a\x00b")}, skipped: "after bad_key u:{k} "},
		{name: "H1 DEL", templates: "u:{k}", op: cdc.Insert, after: row{"k": text("a\x7fb")}, skipped: "after bad_key u:{k} "},
		{name: "H1 escaped", templates: "u:{k|urlencode}", op: cdc.Insert, after: row{"k": text("a b\r\n~é")}, keys: "u:a%20b%0D%0A~%C3%A9"},
		{name: "H1 250 bytes", templates: "u:{k}", op: cdc.Insert, after: row{"k": text(strings.Repeat("x", 248))}, keys: "u:" + strings.Repeat("x", 248)},
		{name: "H1 251 bytes", templates: "u:{k}", op: cdc.Insert, after: row{"k": text(strings.Repeat("x", 249))}, skipped: "after bad_key u:{k} "},
		{name: "H1 248 bytes and #8", templates: "8*u:{k}", op: cdc.Insert, after: row{"k": text(strings.Repeat("x", 246))}, keys: "u:" + strings.Repeat("x", 246)},
		{name: "H1 249 bytes and #8", templates: "8*u:{k}", op: cdc.Insert, after: row{"k": text(strings.Repeat("x", 247))}, skipped: "after bad_key u:{k} "},
		{name: "H1 248 bytes and #64", templates: "64*u:{k}", op: cdc.Insert, after: row{"k": text(strings.Repeat("x", 246))}, skipped: "after bad_key u:{k} "},
		{name: "H2 UTF-8 as it stands", templates: "u:{k}", op: cdc.Insert, after: row{"k": text("Zoë")}, keys: "u:Zoë"},
		{name: "H2 length by bytes", templates: "u:{k}", op: cdc.Insert, after: row{"k": text(strings.Repeat("😀", 83))}, skipped: "after bad_key u:{k} "},
		{name: "a value that ends as a copy", templates: "u:{k}", op: cdc.Insert, after: row{"k": text("a#3")}, keys: "u:a#3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := set(t, strings.Fields(c.templates)...)
			got, skipped := keys(s, change(s, c.op, c.before, c.after))
			if diff := cmp.Diff(strings.Fields(c.keys), got, sameWhenEmpty); diff != "" {
				t.Error("keys", diff)
			}
			if diff := cmp.Diff(c.skipped, strings.Join(skipped, ", ")); diff != "" {
				t.Error("skipped", diff)
			}
		})
	}
}

var sameWhenEmpty = cmp.Transformer("nil", func(s []string) string { return strings.Join(s, "\n") })

// C3: Postgres under REPLICA IDENTITY DEFAULT sends no old tuple unless the key changed.
func TestUpdateWithoutBeforeImage(t *testing.T) {
	s := set(t, "u:{id}", "u:mail:{mail}", "u:all")
	c := change(s, cdc.Update, nil, row{"id": integer64("42"), "mail": text("b")})
	for _, k := range []struct {
		columns []string
		skipped []string
	}{
		{[]string{"id"}, []string{"before absent u:mail:{mail} mail"}},
		{nil, []string{"before absent u:{id} id", "before absent u:mail:{mail} mail"}},
	} {
		c.KeyColumns = k.columns
		got, skipped := keys(s, c)
		if want := []string{"u:42", "u:mail:b", "u:all"}; !cmp.Equal(got, want) || !cmp.Equal(skipped, k.skipped) {
			t.Errorf("key columns %v: got %q, skipped %q", k.columns, got, skipped)
		}
	}
}

func TestHotterTemplateStandsForASharedKey(t *testing.T) {
	s := set(t, "u:{id}", "8*u:{other}")
	var r Result
	s.Keys(change(s, cdc.Insert, nil, row{"id": integer64("1"), "other": integer64("1")}), &r)
	if len(r.Keys) != 1 || r.Keys[0].Template.Hot != 8 {
		t.Errorf("got %v", r.Keys)
	}
}

func TestKeysAppends(t *testing.T) {
	s := set(t, "u:{id}")
	var r Result
	for range 2 {
		s.Keys(change(s, cdc.Insert, nil, row{"id": integer64("1")}), &r)
	}
	if len(r.Keys) != 2 {
		t.Errorf("two changes gave %v", r.Keys)
	}
	if r.Reset(); len(r.Keys) != 0 {
		t.Errorf("after Reset: %v", r.Keys)
	}
}

// A18: a change laid out otherwise than the plan is read by names.
func TestForeignLayout(t *testing.T) {
	s := set(t, "u:{id}:{mail}")
	c := &cdc.RowChange{TableID: users, Op: cdc.Insert,
		Columns: cdc.NewColumns([]cdc.Column{{Name: "hidden"}, {Name: "mail"}, {Name: "id"}}),
		After:   cdc.Row{text("x"), text("a"), integer64("1")}}
	if got, _ := keys(s, c); !cmp.Equal(got, []string{"u:1:a"}) {
		t.Errorf("got %q", got)
	}
}

// The keys of an update are those of its images, each alone.
func TestUpdateGivesTheKeysOfBothImages(t *testing.T) {
	columns := []string{"a", "b", "c"}
	value := rapid.Custom(func(t *rapid.T) cdc.Value {
		return rapid.SampledFrom([]cdc.Value{null, absent, text("x"), text("X "), text("y"), integer64("7"), raw("\xff"),
			{Kind: cdc.Float, S: "1"}, {Kind: cdc.Unclear, S: "?"}, cdc.MaybeOneOf("-1", "255")}).Draw(t, "value")
	})
	image := rapid.MapOfN(rapid.SampledFrom(columns), value, 0, 3)
	reference := rapid.Custom(func(t *rapid.T) string {
		return "{" + rapid.SampledFrom(columns).Draw(t, "column") + rapid.SampledFrom([]string{"", "|lower", "|trim", "|hex", "|urlencode", "|lower|urlencode"}).Draw(t, "filters") + "}"
	})
	template := rapid.Custom(func(t *rapid.T) string {
		return "u:" + strings.Join(rapid.SliceOfN(reference, 1, 3).Draw(t, "references"), ":")
	})
	rapid.Check(t, func(rt *rapid.T) {
		s := set(t, rapid.SliceOfNDistinct(template, 1, 4, rapid.ID).Draw(rt, "templates")...)
		before, after := row(image.Draw(rt, "before")), row(image.Draw(rt, "after"))
		got, _ := keys(s, change(s, cdc.Update, before, after))
		old, _ := keys(s, change(s, cdc.Delete, before, nil))
		now, _ := keys(s, change(s, cdc.Insert, nil, after))
		for _, k := range append(old, now...) {
			if !slices.Contains(got, k) {
				rt.Fatalf("key %q of one image is not among those of both, %q", k, got)
			}
		}
		for i, k := range got {
			if slices.Contains(got[:i], k) {
				rt.Fatalf("key %q is given twice", k)
			}
		}
	})
}

func BenchmarkKeys(b *testing.B) {
	s := set(b, "u:{id}", "u:by-email:{email|lower}", "8*u:{tenant}:{id}:v3")
	same := row{"id": integer64("18446744073709551615"), "tenant": text("acme"), "email": text("Ada.Lovelace@Example.test")}
	moved := row{"id": same["id"], "tenant": same["tenant"], "email": text("countess@example.test")}
	for _, c := range []struct {
		name   string
		change *cdc.RowChange
	}{
		{"unchanged", change(s, cdc.Update, same, same)},
		{"moved", change(s, cdc.Update, same, moved)},
		{"unmapped", &cdc.RowChange{TableID: cdc.TableID{Schema: "shop", Table: "audit"}, Op: cdc.Insert}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var r Result
			b.ReportAllocs()
			for b.Loop() {
				r.Reset()
				s.Keys(c.change, &r)
			}
		})
	}
}
