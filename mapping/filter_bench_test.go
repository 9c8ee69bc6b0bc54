package mapping

import (
	"strings"
	"testing"

	"invalidator/cdc"
)

// steady are filters with a value for which they allocate nothing, once the buffers have grown.
var steady = []struct {
	filters string
	in      cdc.Value
}{
	{"", integer64("18446744073709551615")},
	{"lower", text("Ada.Lovelace@Example.test")},
	{"upper", text("Ada.Lovelace@Example.test")},
	{"trim", text("  Ada Lovelace ")},
	{"truncate(8)", text("Ada.Lovelace@Example.test")},
	{"pad(20)", integer64("42")},
	{"urlencode", text("Ada Lovelace/é")},
	{"hex", raw("0123456789abcdef")},
	{"base64", raw("0123456789abcdef")},
	{"base64url", raw("0123456789abcdef")},
	{"uuid", raw("0123456789abcdef")},
	{"uuid", text("6F1ED002-AB5C-4D8E-9C2B-0123456789AB")},
	{"md5", text("Ada.Lovelace@Example.test")},
	{"sha1", text("Ada.Lovelace@Example.test")},
	{"sha256(16)", text("Ada.Lovelace@Example.test")},
	{"default('none')", text("Ada")},
	{"default('none')", null},
	{"int", numeric("1234567890.50")},
	{"div(100)", integer64("18446744073709551615")},
	{"mod(16)", integer64("18446744073709551615")},
	{"date('%Y-%m-%d')", text("2026-02-28 23:59:59.000001")},
	{"date('%F %T', 'Europe/Berlin')", text("2026-02-28 23:59:59.000001+00")},
	{"unix", text("2026-02-28 23:59:59")},
	{"unix_ms", text("2026-02-28 23:59:59.120")},
	{"unix('Europe/Berlin')", text("2026-02-28 23:59:59")},
	{"json('address.city[0]')", doc(`{"id": 9007199254740993, "tags": ["a", "b"], "address": {"street": "Unter den Linden", "city": ["Berlin", "Mitte"]}}`)},
	{"trim|lower|sha256(16)", text(" Ada.Lovelace@Example.test")},
}

func steadyChain(t testing.TB, filters string) []*filter {
	if filters == "" {
		return nil
	}
	return chain(t, filters)
}

func TestFiltersAllocateNothing(t *testing.T) {
	for _, c := range steady {
		var buf [2][]byte
		fs, dst := steadyChain(t, c.filters), make([]byte, 0, maxKey)
		if n := testing.AllocsPerRun(100, func() {
			if _, _, reason, detail := through(&buf, dst, c.in, fs); reason != "" {
				t.Fatal(detail)
			}
		}); n > 0 {
			t.Errorf("%s of %q: %v allocations", c.filters, c.in.S, n)
		}
	}
}

func BenchmarkFilters(b *testing.B) {
	for _, c := range steady {
		b.Run(strings.ReplaceAll(c.filters, " ", ""), func(b *testing.B) {
			var buf [2][]byte
			fs, dst := steadyChain(b, c.filters), make([]byte, 0, maxKey)
			b.ReportAllocs()
			for b.Loop() {
				through(&buf, dst, c.in, fs)
			}
		})
	}
}
