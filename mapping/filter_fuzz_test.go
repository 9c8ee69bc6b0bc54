package mapping

import (
	"bytes"
	"fmt"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"invalidator/cdc"
)

// FuzzFilters puts any value through any filters that the parser takes. Whatever comes out is appended, or else nothing is, with
// the reason.
func FuzzFilters(f *testing.F) {
	for _, c := range steady {
		if c.filters != "" {
			f.Add(c.filters, byte(c.in.Kind), c.in.S)
		}
	}
	for _, s := range []string{"mod(0)|", "pad(8,'é')|truncate(3)", "default('x')|upper|hex", "json('a')|int|div(7)", "date('%Q','x')", "unix('Europe/Berlin')|pad(9)|md5(3)|uuid", "elements(',')|lower"} {
		f.Add(s, byte(cdc.Text), "2026-10-25 02:30:00")
	}
	f.Fuzz(func(t *testing.T, filters string, kind byte, s string) {
		parts, _ := parseTemplate("u:{c|"+filters+"}", false)
		if len(parts) != 2 {
			return
		}
		fs := parts[1].filters
		for i, g := range fs {
			if g.filterType == filterElements {
				fs = fs[:i]
				break
			}
		}
		v := cdc.Value{Kind: cdc.Kind(kind) % (cdc.Ambiguous + 1), S: s}
		var buf [2][]byte
		out, _, reason, detail := through(&buf, []byte("u:"), v, fs)
		switch {
		case !bytes.HasPrefix(out, []byte("u:")):
			t.Errorf("%s of %+v took what stood before it: %q", filters, v, out)
		case reason != "" && string(out) != "u:":
			t.Errorf("%s of %+v gave %q beside reason %s", filters, v, out, reason)
		case reason != "" && reason != SkipUnclear && detail == "":
			t.Errorf("%s of %+v: reason %s has no detail", filters, v, reason)
		}
		again, _, _, _ := through(&buf, []byte("u:"), v, fs)
		if !bytes.Equal(again, out) {
			t.Errorf("%s of %+v: %q, then %q", filters, v, out, again)
		}
	})
}

// FuzzReference reads any text as filters; a fault lies within it.
func FuzzReference(f *testing.F) {
	for _, s := range []string{"id}", "id|lower}", "id|mod(16)}", "a|pad( 8 , 'x' )|hex}", "a|default('it''s')}", "a|default('}", "a|mod(", "a|mod(1,}", "a|date('%F','Europe/Berlin')}x", "|}", "a|}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, end, bad := parseReference("{"+text, 0)
		switch {
		case bad != nil && (bad.at < 0 || bad.at > len(text)+1 || bad.what == ""):
			t.Errorf("%q: %+v", text, bad)
		case bad == nil && (end > len(text)+1 || text[end-2] != '}' || p.column == ""):
			t.Errorf("%q: got %+v up to %d", text, p, end)
		}
	})
}

func TestNumberFiltersAgreeWithBigInt(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in := rapid.StringMatching(`-?[0-9]{1,60}`).Draw(rt, "number")
		fraction := rapid.SampledFrom([]string{"", ".0", ".99", ".5000"}).Draw(rt, "fraction")
		n := rapid.Uint64Range(1, maxDivisor).Draw(rt, "divisor")
		x, _ := new(big.Int).SetString(in, 10)
		quotient, rest := new(big.Int).QuoRem(x, new(big.Int).SetUint64(n), new(big.Int))
		for filters, want := range map[string]*big.Int{"int": x, fmt.Sprintf("div(%d)", n): quotient, fmt.Sprintf("int|mod(%d)", n): rest} {
			if got := filtered(t, filters, numeric(in+fraction)); got != want.String() {
				rt.Errorf("%s of %s: got %s, want %s", filters, in+fraction, got, want)
			}
		}
		if got := filtered(t, fmt.Sprintf("mod(%d)", n), integer64(in)); got != rest.String() {
			rt.Errorf("mod of %s: got %s, want %s", in, got, rest)
		}
	})
}

func TestTextFiltersKeepUTF8(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in, n := rapid.String().Draw(rt, "text"), rapid.IntRange(1, 30).Draw(rt, "length")
		if lower, upper := filtered(t, "lower", text(in)), filtered(t, "upper", text(in)); lower != strings.ToLower(in) || upper != strings.ToUpper(in) {
			rt.Errorf("%q: lower is %q, upper %q", in, lower, upper)
		}
		if got, want := filtered(t, fmt.Sprintf("truncate(%d)", n), text(in)), []rune(in); got != string(want[:min(n, len(want))]) {
			rt.Errorf("truncate(%d) of %q: got %q", n, in, got)
		}
		if got := filtered(t, fmt.Sprintf("pad(%d,'ü')", n), text(in)); utf8.RuneCountInString(got) != max(n, utf8.RuneCountInString(in)) || got[len(got)-len(in):] != in {
			rt.Errorf("pad(%d) of %q: got %q", n, in, got)
		}
	})
}
