package mapping

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
)

// The field cases that filters answer, from a row to its keys.
func TestKeysThroughFilters(t *testing.T) {
	zeros := raw("\x6f\x1e\xd0\x02\xab\x5c\x4d\x8e\x9c\x2b\x01\x23\x45\x67\x89\x00")
	for _, c := range []struct {
		name          string
		template      string
		before, after row
		keys, skipped []string
	}{
		{name: "A1 the shard of an unsigned bigint", template: "u:{id|mod(16)}:{id}", after: row{"id": integer64("18446744073709551615")},
			keys: []string{"u:15:18446744073709551615"}},
		{name: "A1 the shard of what may be unsigned", template: "u:{id|mod(16)}:{id}", after: row{"id": cdc.MaybeOneOf("-1", "18446744073709551615")},
			keys: []string{"u:-1:-1", "u:15:18446744073709551615"}},
		{name: "A2 a decimal's whole part", template: "u:{d|int}:{d}", after: row{"d": numeric("500.00")}, keys: []string{"u:500:500.00"}},
		{name: "A3 a UUID that ends in a zero", template: "u:{id|uuid}", after: row{"id": zeros}, keys: []string{"u:6f1ed002-ab5c-4d8e-9c2b-012345678900"}},
		{name: "A3 one that lost its zero", template: "u:{id|uuid}", after: row{"id": raw(zeros.S[:15])}, skipped: []string{"after type u:{id|uuid} id"}},
		{name: "A4 hex of a binary(4)", template: "u:{b|hex}", after: row{"b": raw("USA\x00")}, keys: []string{"u:55534100"}},
		{name: "A5 bits are a number", template: "u:{b|mod(256)|pad(3)}", after: row{"b": integer64("9223372036854775808")}, keys: []string{"u:000"}},
		{name: "A6 a SET's labels", template: "u:{s|urlencode}", after: row{"s": text("p,q")}, keys: []string{"u:p%2Cq"}},
		{name: "A9 two moments of one local text", template: "u:{at|date('%FT%T%z','America/New_York')}", before: row{"at": text("2024-11-03 05:30:00.120")},
			after: row{"at": text("2024-11-03 06:30:00.120")}, keys: []string{"u:2024-11-03T01:30:00-0400", "u:2024-11-03T01:30:00-0500"}},
		{name: "A9 one local text of two moments", template: "u:{at|unix('America/New_York')}", after: row{"at": text("2024-11-03 01:30:00")},
			keys: []string{"u:1730611800", "u:1730615400"}},
		{name: "A9 a datetime whose digits are not known", template: "u:{at|unix}", after: row{"at": cdc.MaybeOneOf("2026-02-28 23:59:59", "2026-02-28 23:59:59.000")},
			keys: []string{"u:1772323199"}},
		{name: "A11 a float", template: "u:{f|int}", after: row{"f": {Kind: cdc.Float, S: "3.14"}}, skipped: []string{"after type u:{f|int} f"}},
		{name: "A12 a path", template: "u:{j|json('a')}:{j|json('b')|int}", after: row{"j": doc(`{"b": 1.0, "a": 12345678901234567890.12}`)},
			keys: []string{"u:12345678901234567890.12:1"}},
		{name: "A12 a path to nothing", template: "u:{j|json('x')}", after: row{"j": doc(`{"b": 1.0}`)}, skipped: []string{"after null u:{j|json('x')} j"}},
		{name: "A12 a path to more than a scalar", template: "u:{j|json('x')}", after: row{"j": doc(`{"x": {}}`)}, skipped: []string{"after type u:{j|json('x')} j"}},
		{name: "A14 a filter's key", template: "u:{k|trim|lower}", before: row{"k": text("abc")}, after: row{"k": text("ABC ")}, keys: []string{"u:abc"}},
		{name: "A16 an escape", template: "u:{a|urlencode}:{b|urlencode}", before: row{"a": text("x:y"), "b": text("z")}, after: row{"a": text("x"), "b": text("y:z")},
			keys: []string{"u:x%3Ay:z", "u:x:y%3Az"}},
		{name: "A17 a text for NULL", template: "u:{mail|lower|default('none')}", before: row{"mail": null}, after: row{"mail": text("A@x")}, keys: []string{"u:none", "u:a@x"}},
		{name: "A17 and none for what is absent", template: "u:{mail|default('none')}", after: row{"mail": absent}, skipped: []string{"after absent u:{mail|default('none')} mail"}},
		{name: "B1 bytea", template: "u:{b|hex}:{b|base64url}", after: row{"b": bytea("\x00\xff\x10")}, keys: []string{"u:00ff10:AP8Q"}},
		{name: "B1 a timestamptz", template: "u:{at|unix_ms}", after: row{"at": text("2026-02-28 21:59:59.12+00")}, keys: []string{"u:1772315999120"}},
		{name: "B3 a uuid", template: "u:{id|uuid}", after: row{"id": text("6f1ed002-ab5c-4d8e-9c2b-0123456789ab")}, keys: []string{"u:6f1ed002-ab5c-4d8e-9c2b-0123456789ab"}},
		{name: "B4 unchanged TOAST", template: "u:{slug|sha256(16)}", before: row{"slug": text("abc")}, after: row{"slug": absent}, keys: []string{"u:ba7816bf8f01cfea"}},
		{name: "B7 a number above 2^53 in a document", template: "u:{j|json('id')}", after: row{"j": doc(`{"id": 9007199254740993}`)}, keys: []string{"u:9007199254740993"}},
		{name: "H1 what is too long for a key", template: "u:{s|truncate(5)}", after: row{"s": text("a\u00e9bcdefgh")}, keys: []string{"u:a\u00e9bcd"}},
		{name: "the elements at a path", template: "u:{j|json('a.tags')|elements|upper}", after: row{"j": doc(`{"a": {"tags": ["x", 7, "z"]}}`)}, keys: []string{"u:X", "u:7", "u:Z"}},
		{name: "no elements at a path", template: "u:{j|json('b')|elements}", after: row{"j": doc(`{"a": 1}`)}, skipped: []string{"after null u:{j|json('b')|elements} j"}},
		{name: "a good text of several", template: "u:{b|int}", after: row{"b": cdc.MaybeOneOf("t", "1")}, keys: []string{"u:1"}, skipped: []string{"after type u:{b|int} b"}},
		{name: "a good key beside one that is none", template: "u:{n|mod(3)}", before: row{"n": text("x")}, after: row{"n": text("4")}, keys: []string{"u:1"},
			skipped: []string{"before type u:{n|mod(3)} n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, op := set(t, c.template), cdc.Insert
			if c.before != nil {
				op = cdc.Update
			}
			got, skipped := keys(s, change(s, op, c.before, c.after))
			if !cmp.Equal(got, c.keys) || !cmp.Equal(skipped, c.skipped) {
				t.Errorf("got %q, skipped %q, want %q and %q", got, skipped, c.keys, c.skipped)
			}
		})
	}
}

// What is skipped says why, for a person.
func TestSkipOfAFilterSaysWhy(t *testing.T) {
	s := set(t, "u:{c|uuid}", "u:{c|mod(3)}")
	var r Result
	s.Keys(change(s, cdc.Insert, nil, row{"c": raw("\x01")}), &r)
	var got []string
	for _, k := range r.Skipped {
		got = append(got, k.String())
	}
	want := []string{"u:{c|uuid}: after image, column c: " + detailUUID, "u:{c|mod(3)}: after image, column c: mod takes an integer, and this is bytes"}
	if !cmp.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestKeysThroughFiltersAllocateNothing(t *testing.T) {
	s := set(t, "u:{id|mod(1024)|pad(4)}:{id}", "u:{mail|trim|lower|sha256(16)}", "u:{at|date('%Y-%m-%d','Europe/Berlin')}", "u:{j|json('a.b')|default('none')}")
	c := change(s, cdc.Update, row{"id": integer64("1"), "mail": text("A@x.test"), "at": text("2026-02-28 23:30:00"), "j": null},
		row{"id": integer64("1"), "mail": text("B@x.test"), "at": text("2026-03-28 23:30:00"), "j": doc(`{"a": {"b": 7}}`)})
	var r Result
	if n := testing.AllocsPerRun(100, func() {
		r.Reset()
		s.Keys(c, &r)
	}); n > 0 || len(r.Keys) != 7 {
		t.Errorf("%v allocations for %v", n, r.Keys)
	}
}
