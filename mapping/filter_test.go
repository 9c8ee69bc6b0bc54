package mapping

import (
	"strings"
	"testing"

	"invalidator/cdc"
)

// chain parses filters as a template has them.
func chain(t testing.TB, filters string) []*filter {
	t.Helper()
	parts, faults := parseTemplate("u:{c|"+filters+"}", false)
	if parts == nil {
		t.Fatalf("%s: %v", filters, faults)
	}
	return parts[1].filters
}

// filtered is what filters make of a value: its texts, apart by " or ", or else the reason why there is none.
func filtered(t testing.TB, filters string, v cdc.Value) string {
	t.Helper()
	var buf [2][]byte
	out, kind, reason, detail := through(&buf, []byte("u:"), v, chain(t, filters))
	if reason != "" {
		if string(out) != "u:" || detail == "" {
			t.Errorf("%s of %+v: got %q and detail %q beside reason %s", filters, v, out, detail, reason)
		}
		return "skip " + string(reason)
	}
	if out = out[len("u:"):]; kind == cdc.Ambiguous {
		return strings.ReplaceAll(string(out), separator, " or ")
	}
	return string(out)
}

func numeric(s string) cdc.Value { return cdc.Value{Kind: cdc.Decimal, S: s} }
func bytea(s string) cdc.Value   { return cdc.Value{Kind: cdc.Bytea, S: s} }
func boolean(s string) cdc.Value { return cdc.Value{Kind: cdc.Bool, S: s} }
func doc(s string) cdc.Value     { return cdc.Value{Kind: cdc.JSON, S: s} }

func TestFilters(t *testing.T) {
	const big = "18446744073709551615"
	for _, c := range []struct {
		filters string
		in      cdc.Value
		want    string
	}{
		{"lower", text("AbC ÄÖ İ Σ"), "abc äö i σ"},
		{"upper", text("abc äß"), "ABC Äß"},
		{"lower", raw("ÅB"), "åb"},
		{"lower", raw("A\xff"), "skip type"},
		{"lower", integer64("7"), "7"},
		{"lower", bytea("\x0aA"), `\x0a41`}, // as Postgres shows it
		{"trim", text(" \t\u00a0 a b \u3000\n"), "a b"},
		{"trim", text("  "), ""},
		{"truncate(3)", text("Zoë!"), "Zoë"},
		{"truncate(3)", text("äöü€"), "äöü"},
		{"truncate(3)", text("a"), "a"},
		{"truncate(2)", text("😀😀😀"), "😀😀"},
		{"truncate(2)", raw("a\xffb"), "skip type"},
		{"truncate(4)", text("2026-02-28"), "2026"},
		{"pad(8,'0')", integer64("42"), "00000042"},
		{"pad(4)", integer64("42"), "0042"},
		{"pad(4, 'é')", text("ü"), "éééü"},
		{"pad(2)", integer64("12345"), "12345"},
		{"pad(5)", integer64("-5"), "000-5"},
		{"urlencode", text("aZ09-._~ /%é"), "aZ09-._~%20%2F%25%C3%A9"},
		{"urlencode", raw("\x00\xff"), "%00%FF"},

		{"hex", raw("\x00\x7f\xff"), "007fff"},
		{"hex", bytea("\x00\x7f\xff"), "007fff"},
		{"hex", text("é"), "c3a9"},
		{"hex|upper", raw("\xab"), "AB"},
		{"lower|hex", text("A"), "61"},
		{"hex", integer64("255"), "skip type"},
		{"hex", boolean("t"), "skip type"},
		{"base64", raw("\x00\xff\x10"), "AP8Q"},
		{"base64", text("a?>"), "YT8+"},
		{"base64", text("a"), "YQ=="},
		{"base64url", text("a?>"), "YT8-"},
		{"base64url", text("a"), "YQ"},
		{"base64", integer64("1"), "MQ=="},

		// A3: a UUID that ends in zeros keeps them; one that lost them is refused.
		{"uuid", raw("\x6f\x1e\xd0\x02\xab\x5c\x4d\x8e\x9c\x2b\x01\x23\x45\x67\x89\x00"), "6f1ed002-ab5c-4d8e-9c2b-012345678900"},
		{"uuid", raw("\x6f\x1e\xd0\x02\xab\x5c\x4d\x8e\x9c\x2b\x01\x23\x45\x67\x00\x00"), "6f1ed002-ab5c-4d8e-9c2b-012345670000"},
		{"uuid", raw(strings.Repeat("\x00", 16)), "00000000-0000-0000-0000-000000000000"},
		{"uuid", bytea(strings.Repeat("\xff", 16)), "ffffffff-ffff-ffff-ffff-ffffffffffff"},
		{"uuid", raw("\x6f\x1e\xd0\x02\xab\x5c\x4d\x8e\x9c\x2b\x01\x23\x45\x67\x89"), "skip type"},
		{"uuid", text("6F1ED002-AB5C-4D8E-9C2B-0123456789AB"), "6f1ed002-ab5c-4d8e-9c2b-0123456789ab"},
		{"uuid", text("6F1ED002AB5C4D8E9C2B0123456789AB"), "6f1ed002-ab5c-4d8e-9c2b-0123456789ab"},
		{"uuid", text("6F1ED002AB5C-4D8E-9C2B-0123456789AB"), "skip type"},
		{"uuid", text("6F1ED002-AB5C-4D8E-9C2B-0123456789AG"), "skip type"},
		{"uuid", text("bx7Q0g=="), "skip type"}, // base64 of an undeclared binary
		{"uuid|upper", text("6f1ed002ab5c4d8e9c2b0123456789ab"), "6F1ED002-AB5C-4D8E-9C2B-0123456789AB"},

		{"md5", text("user:1"), "bdb1dd105679979ca82b28edd1c8ccd2"},
		{"md5", text(""), "d41d8cd98f00b204e9800998ecf8427e"},
		{"sha1", text("abc"), "a9993e364706816aba3e25717850c26c9cd0d89d"},
		{"sha256", text("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
		{"sha256(16)", text("abc"), "ba7816bf8f01cfea"},
		{"sha256(15)", raw("abc"), "ba7816bf8f01cfe"},
		{"sha256(1)", bytea("abc"), "b"},
		{"lower|sha256(16)", text("ABC"), "ba7816bf8f01cfea"},
		{"md5(4)", integer64("1"), "c4ca"},
		{"md5|uuid", text(""), "d41d8cd9-8f00-b204-e980-0998ecf8427e"},

		{"int", numeric("500.00"), "500"},
		{"int", numeric("-0.10"), "0"},
		{"int", numeric("-12.99"), "-12"},
		{"int", numeric("99999999999999999999999999999999999999"), "99999999999999999999999999999999999999"},
		{"int", text("007"), "7"},
		{"int", text("+7"), "7"},
		{"int", text("-0"), "0"},
		{"int", text("0.9"), "0"},
		{"int", text("12abc"), "skip type"},
		{"int", text(" 12"), "skip type"},
		{"int", text(""), "skip type"},
		{"int", text("."), "skip type"},
		{"int", text("5."), "skip type"},
		{"int", text(".5"), "skip type"},
		{"int", text("1e3"), "skip type"},
		{"int", text("-"), "skip type"},
		{"int", numeric("NaN"), "skip type"},
		{"int", numeric("Infinity"), "skip type"},
		{"int", boolean("t"), "1"},
		{"int", boolean("f"), "0"},
		{"int", boolean("1"), "1"},
		{"int", raw("12"), "skip type"},
		{"int", cdc.Value{Kind: cdc.Float, S: "1.5"}, "skip type"},
		{"div(100)", integer64("12345"), "123"},
		{"div(100)", integer64("-12345"), "-123"},
		{"div(100)", integer64("-99"), "0"},
		{"div(100)", numeric("500.00"), "5"},
		{"div(1)", integer64(big), big},
		{"div(10)|div(10)", integer64(big), "184467440737095516"},
		{"mod(16)", integer64(big), "15"},
		{"mod(1000000000000000000)", integer64(big), "446744073709551615"},
		{"mod(3)", integer64("-7"), "-1"}, // as MOD of MySQL and Postgres
		{"mod(7)", integer64("-7"), "0"},
		{"mod(3)", numeric("7"), "1"},
		{"mod(3)", numeric("7.00"), "skip type"},
		{"int|mod(3)", numeric("7.50"), "1"},
		{"mod(3)", text("x"), "skip type"},
		{"mod(1024)|pad(4)", integer64("1025"), "0001"},
		{"mod(2)", cdc.MaybeOneOf("-1", big), "-1 or 1"},

		{"default('none')", null, "none"},
		{"default('none')", text("a"), "a"},
		{"default('none')", text(""), ""},
		{"default('none')", absent, "skip absent"},
		{"default('none')", cdc.Value{Kind: cdc.Unclear, Why: "no scale"}, "skip unclear"},
		{"default('none')", doc("{}"), "skip type"},
		{"default('none')", bytea("\x0a"), `\x0a`},
		{"default('')", null, ""},
		{"default('it''s')", null, "it's"},
		{"default('No')|lower", null, "no"},
		{"lower|default('No')", null, "No"},
		{"lower|default('No')", text("A"), "a"},
		{"default('none')|hex", bytea("\x0a"), "0a"},
		{"lower", null, "skip null"},
		{"default('0')|mod(3)", null, "0"},

		{"json('a')", doc(`{"b": 1, "a": "x"}`), "x"},
	} {
		if got := filtered(t, c.filters, c.in); got != c.want {
			t.Errorf("%s of %q: got %q, want %q", c.filters, c.in.S, got, c.want)
		}
	}
}

func TestFaultsOfFilters(t *testing.T) {
	for _, c := range []struct {
		template string
		at       string // the rest of the template from where the fault is
		want     string
	}{
		{"u:{c|mod}", "mod}", `filter "mod" takes one argument (write mod(16))`},
		{"u:{c|mod(16,3)}", "mod(16,3)}", `filter "mod" takes one argument (write mod(16))`},
		{"u:{c|mod()}", "mod()}", `filter "mod" has empty parentheses (write mod(16))`},
		{"u:{c|mod(0)}", "0)}", `filter "mod" takes a number from 1 to 1000000000000000000, not 0`},
		{"u:{c|mod(1000000000000000001)}", "1000000000000000001)}", `filter "mod" takes a number from 1 to 1000000000000000000, not 1000000000000000001`},
		{"u:{c|mod(99999999999999999999)}", "99999999999999999999)}", `99999999999999999999 is too large`},
		{"u:{c|mod('16')}", "'16')}", `filter "mod" takes a number here, not "16" (write mod(16))`},
		{"u:{c|mod(-1)}", "-1)}", `an argument is a number or a text in single quotes, not "-1" (write 16, or 'text')`},
		{`u:{c|default("x")}`, `"x")}`, `an argument is a number or a text in single quotes, not "\"x\"" (write 16, or 'text')`},
		{"u:{c|mod(16}", "}", `a , or ) is missing (arguments stand apart by commas, and end with ))`},
		{"u:{c|mod(", "(", `a ( without its )`},
		{"u:{c|mod(16)x}", "x}", `something stands behind the filter's arguments (a filter ends at | or })`},
		{"u:{c|mod(16)", "{c|mod(16)", `a { without its } (write {{ for a brace)`},
		{"u:{c|default('x}", "'x}", `a text without its closing quote (write '' for a quote within a text)`},
		{"u:{c|lower()}", "lower()}", `filter "lower" has empty parentheses (write lower)`},
		{"u:{c|lower('x')}", "lower('x')}", `filter "lower" takes no arguments (write lower)`},
		{"u:{c|sha256(65)}", "65)}", `filter "sha256" takes a number from 1 to 64, not 65`},
		{"u:{c|md5(1,2)}", "md5(1,2)}", `filter "md5" takes at most one argument (write md5(16))`},
		{"u:{c|pad(300)}", "300)}", `filter "pad" takes a number from 1 to 250, not 300`},
		{"u:{c|pad(3,'ab')}", "'ab')}", `pad takes one character that a key can hold, not "ab" (write pad(8, '0'))`},
		{"u:{c|pad(3,' ')}", "' ')}", `pad takes one character that a key can hold, not " " (write pad(8, '0'))`},
		{"u:{c|pad(3,'')}", "'')}", `pad takes one character that a key can hold, not "" (write pad(8, '0'))`},
		{"u:{c|date}", "date}", `filter "date" takes one or two arguments (write date('%Y-%m-%d', 'Europe/Berlin'))`},
		{"u:{c|date(2026)}", "2026)}", `filter "date" takes a text here, not 2026 (write date('%Y-%m-%d', 'Europe/Berlin'))`},
		{"u:{c|date('%Q')}", "'%Q')}", `the format has "%Q" (` + hintVerbs + `)`},
		{"u:{c|date('%')}", "'%')}", `the format has "%" (` + hintVerbs + `)`},
		{"u:{c|date('')}", "'')}", `the format is empty (` + hintVerbs + `)`},
		{"u:{c|date('%F', 'Europe/Berlim')}", "'Europe/Berlim')}", `"Europe/Berlim" is no time zone's name (write a name such as 'Europe/Berlin', or 'UTC')`},
		{"u:{c|unix('Local')}", "'Local')}", `"Local" is no time zone's name (write a name such as 'Europe/Berlin', or 'UTC')`},
		{"u:{c|unix('')}", "'')}", `"" is no time zone's name (write a name such as 'Europe/Berlin', or 'UTC')`},
		{"u:{c|default('a b')}", "'a b')}", `memcached cannot hold a key with a space (put urlencode behind it)`},
		{"u:{c|default('none')|mod(3)}", "'none')|mod(3)}", `"none" cannot go on from default: ` + detailNumber},
		{"u:{c|elements('')}", "'')}", `nothing stands between the elements (write elements(','))`},
		{"u:{c|json('$.a')}", "'$.a')}", `a path begins below the document's root, without $ (write json('a.b[0]'), or json('"a.b".c') for a name with a point)`},
	} {
		parts, faults := parseTemplate(c.template, false)
		if parts != nil || len(faults) != 1 {
			t.Errorf("%s: got %v, %v", c.template, parts, faults)
			continue
		}
		f := faults[0]
		got := f.what
		if f.hint != "" {
			got += " (" + f.hint + ")"
		}
		if got != c.want || c.template[f.at:] != c.at {
			t.Errorf("%s: got %s at %s, want %s", c.template, got, c.template[f.at:], c.want)
		}
	}
	for _, good := range []string{"u:{c|default('a b')|urlencode}", "u:{c|mod( 16 )}", "u:{c|pad( 8 , '0' )}", "u:{c|default('{|}')}", "u:{c|default('')}"} {
		if parts, faults := parseTemplate(good, false); parts == nil || faults != nil {
			t.Errorf("%s: %v", good, faults)
		}
	}
}
