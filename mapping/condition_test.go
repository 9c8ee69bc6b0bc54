package mapping

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"invalidator/cdc"
)

// when maps shop.users by u:{id} under a condition.
func when(t testing.TB, condition string) *Set {
	t.Helper()
	set, problems := NewSet([]*File{parse(t, head+"mappings:\n  - name: user\n    table: shop.users\n    keys:\n      - key: user:{id}\n        when: "+
		"'"+strings.ReplaceAll(condition, "'", "''")+"'\n")})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

// outcome is what a condition makes of a change: true, false, or why it was open.
func outcome(s *Set, c *cdc.RowChange) string {
	var r Result
	s.Keys(c, &r)
	switch {
	case len(r.Undecided) > 0 && len(r.Unmet) == 0:
		u := r.Undecided[0]
		return fmt.Sprintf("open: %s.%s: %s", u.Image, u.Column, u.Detail)
	case len(r.Unmet) > 0:
		return "false"
	}
	return "true"
}

func TestConditions(t *testing.T) {
	decimal := func(s string) cdc.Value { return cdc.Value{Kind: cdc.Decimal, S: s} }
	boolean := func(s string) cdc.Value { return cdc.Value{Kind: cdc.Bool, S: s} }
	float := func(s string) cdc.Value { return cdc.Value{Kind: cdc.Float, S: s} }
	document := func(s string) cdc.Value { return cdc.Value{Kind: cdc.JSON, S: s} }
	unclear := cdc.Value{Kind: cdc.Unclear, S: "AfQ=", Why: "no scale"}
	maybe := cdc.MaybeOneOf("-1", "255")
	for _, c := range []struct {
		when          string
		op            cdc.Op
		before, after row
		want          string
	}{
		// changed
		{"changed(name)", cdc.Update, row{"name": text("a")}, row{"name": text("b")}, "true"},
		{"changed(name)", cdc.Update, row{"name": text("a")}, row{"name": text("a")}, "false"},
		{"changed(name, bio)", cdc.Update, row{"name": text("a"), "bio": text("x")}, row{"name": text("a"), "bio": text("y")}, "true"},
		{"changed(name)", cdc.Update, row{"name": null}, row{"name": text("")}, "true"},
		{"changed(name)", cdc.Update, row{"name": null}, row{"name": null}, "false"},
		{"changed(name)", cdc.Insert, nil, row{"name": text("a")}, "true"},
		{"changed(name)", cdc.Delete, row{"name": text("a")}, nil, "true"},
		{"changed(name)", cdc.Read, nil, row{"name": text("a")}, "true"},
		{"changed(name)", cdc.Tomb, row{}, nil, "true"},
		{"!changed(name)", cdc.Insert, nil, row{"name": text("a")}, "false"},
		{"changed(slug)", cdc.Update, row{"slug": text("s")}, row{"slug": absent}, "false"}, // unchanged TOAST
		{"changed(slug)", cdc.Update, row{}, row{}, "open: before.slug: the image does not hold the column"},
		{"changed(slug)", cdc.Update, nil, row{"slug": text("s")}, "open: before.slug: no before image: the old value cannot be known"},
		{"!changed(slug)", cdc.Update, row{}, row{}, "open: before.slug: the image does not hold the column"},
		{"changed(slug, name)", cdc.Update, row{"name": text("a")}, row{"name": text("b")}, "true"},
		{"changed(d)", cdc.Update, row{"d": unclear}, row{"d": unclear}, "open: before.d: no scale"},
		{"changed(d)", cdc.Update, row{"d": maybe}, row{"d": maybe}, "false"},
		{"changed('a name')", cdc.Update, row{"a name": text("a")}, row{"a name": text("b")}, "true"},

		// op
		{"op == 'insert'", cdc.Insert, nil, row{}, "true"},
		{"op == 'insert'", cdc.Read, nil, row{}, "true"},
		{"op != 'delete'", cdc.Delete, row{}, nil, "false"},
		{"op == 'delete'", cdc.Tomb, row{}, nil, "true"},
		{"'update' == op", cdc.Update, row{}, row{}, "true"},
		{"op in ['insert', 'delete']", cdc.Update, row{}, row{}, "false"},
		{"op not in ['insert', 'delete']", cdc.Update, row{}, row{}, "true"},
		{"before == null", cdc.Insert, nil, row{}, "true"},
		{"before == nil", cdc.Update, nil, row{}, "false"}, // it had one, which the log does not hold
		{"null != after", cdc.Delete, row{}, nil, "false"},

		// an image that there never is leaves open what asks for it, and nobody is told
		{"before.status == 'draft'", cdc.Insert, nil, row{"status": text("live")}, "true"},
		{"before.status != 'draft'", cdc.Insert, nil, row{"status": text("live")}, "true"},
		{"after.status == 'live'", cdc.Delete, row{"status": text("live")}, nil, "true"},
		{"before.status == 'draft' && after.status == 'live'", cdc.Insert, nil, row{"status": text("draft")}, "false"},
		{"op == 'update' && before.status == 'draft'", cdc.Insert, nil, row{}, "false"},
		{"before.gone == null && after.gone != null", cdc.Delete, row{"gone": text("1")}, nil, "false"},
		{"after.status == 'live'", cdc.Tomb, row{}, nil, "true"},

		// texts and NULL
		{"after.status != 'draft'", cdc.Insert, nil, row{"status": text("live")}, "true"},
		{"after.status != 'draft'", cdc.Insert, nil, row{"status": text("draft")}, "false"},
		{"after.status == \"it's\"", cdc.Insert, nil, row{"status": text("it's")}, "true"},
		{"after.status == 'draft'", cdc.Insert, nil, row{"status": null}, "false"},
		{"after.status != 'draft'", cdc.Insert, nil, row{"status": null}, "true"},
		{"after.status == null", cdc.Insert, nil, row{"status": null}, "true"},
		{"after.status == nil", cdc.Insert, nil, row{"status": text("")}, "false"},
		{"null != after.status", cdc.Insert, nil, row{"status": null}, "false"},
		{"after.d == null", cdc.Insert, nil, row{"d": unclear}, "false"},
		{"after.d == null", cdc.Insert, nil, row{}, "open: after.d: the image does not hold the column"},
		{"after.n < 5", cdc.Insert, nil, row{"n": null}, "false"},
		{"after.status in ['draft', 'gone']", cdc.Insert, nil, row{"status": text("gone")}, "true"},
		{"after.status in ['draft', null]", cdc.Insert, nil, row{"status": null}, "true"},
		{"after.status not in ['draft', 'gone']", cdc.Insert, nil, row{"status": text("gone")}, "false"},
		{"after.at >= '2026-01-01'", cdc.Insert, nil, row{"at": text("2026-01-01 00:00:00")}, "true"},
		{"after['a name'] == 'x'", cdc.Insert, nil, row{"a name": text("x")}, "true"},
		{"after.Größe == 'ß'", cdc.Insert, nil, row{"Größe": text("ß")}, "true"},
		{"after.name startsWith 'A'", cdc.Insert, nil, row{"name": text("Ada")}, "true"},
		{"after.name endsWith 'A'", cdc.Insert, nil, row{"name": text("Ada")}, "false"},
		{"after.name contains 'd'", cdc.Insert, nil, row{"name": text("Ada")}, "true"},
		{"after.name not contains 'd'", cdc.Insert, nil, row{"name": text("Ada")}, "false"},
		{"after.name contains after.part", cdc.Insert, nil, row{"name": text("Ada"), "part": text("da")}, "true"},
		{"after.name matches '^A.a$'", cdc.Insert, nil, row{"name": text("Ada")}, "true"},
		{"after.name matches '^A'", cdc.Insert, nil, row{"name": null}, "false"},
		{"before.name != after.name", cdc.Update, row{"name": text("a")}, row{"name": text("A")}, "true"},
		{"before.name == after.name", cdc.Update, row{"name": null}, row{"name": null}, "true"},
		{"after.b == 'ab'", cdc.Insert, nil, row{"b": raw("ab")}, "true"},
		{"after.b == '\\\\x6162'", cdc.Insert, nil, row{"b": {Kind: cdc.Bytea, S: "ab"}}, "true"},

		// numbers are exact, whatever their size
		{"after.id == 18446744073709551", cdc.Insert, nil, row{"id": integer64("18446744073709551")}, "true"},
		{"after.id >= '18446744073709551615'", cdc.Insert, nil, row{"id": integer64("18446744073709551614")}, "false"},
		{"after.id >= '18446744073709551615'", cdc.Insert, nil, row{"id": integer64("18446744073709551615")}, "true"},
		{"after.id > 9007199254740992", cdc.Insert, nil, row{"id": integer64("9007199254740993")}, "true"},
		{"after.id == -5", cdc.Insert, nil, row{"id": integer64("-5")}, "true"},
		{"-5 < after.id", cdc.Insert, nil, row{"id": integer64("-6")}, "false"},
		{"1 <= after.id < 3", cdc.Insert, nil, row{"id": integer64("3")}, "false"},
		{"after.id == 9", cdc.Insert, nil, row{"id": integer64("10")}, "false"},
		{"after.id < 10", cdc.Insert, nil, row{"id": integer64("9")}, "true"},
		{"after.price == 500", cdc.Insert, nil, row{"price": decimal("500.00")}, "true"},
		{"after.price > 0.1", cdc.Insert, nil, row{"price": decimal("0.10000000000000000000000000000000000001")}, "true"},
		{"after.price in [1, 2.50]", cdc.Insert, nil, row{"price": decimal("2.5")}, "true"},
		{"before.price < after.price", cdc.Update, row{"price": decimal("9.99")}, row{"price": decimal("10.00")}, "true"},
		{"after.price < 1", cdc.Insert, nil, row{"price": decimal("NaN")}, "open: after.price: compared with a number, and this is none"},
		{"after.id == 'x'", cdc.Insert, nil, row{"id": integer64("1")}, "false"},
		{"after.code == 5", cdc.Insert, nil, row{"code": text("005")}, "true"}, // a decimal of an envelope without types
		{"after.code == 5", cdc.Insert, nil, row{"code": text("A5")}, "false"},
		{"after.code < 5", cdc.Insert, nil, row{"code": text("A5")}, "open: after.code: compared with a number, and this is none"},
		{"after.f < 0.5", cdc.Insert, nil, row{"f": float("1e-07")}, "true"},
		{"after.f == 0.5", cdc.Insert, nil, row{"f": float("NaN")}, "false"},
		{"after.i == 255", cdc.Insert, nil, row{"i": maybe}, "open: after.i: the record leaves several values open"},
		{"after.i != 7", cdc.Insert, nil, row{"i": maybe}, "true"},

		// booleans
		{"after.active", cdc.Insert, nil, row{"active": boolean("t")}, "true"},
		{"!after.active", cdc.Insert, nil, row{"active": integer64("1")}, "false"},
		{"not after.active", cdc.Insert, nil, row{"active": null}, "true"},
		{"after.active == false", cdc.Insert, nil, row{"active": boolean("0")}, "true"},
		{"after.active == true", cdc.Insert, nil, row{"active": null}, "false"},
		{"after.active", cdc.Insert, nil, row{"active": integer64("9")}, "open: after.active: neither true nor false"},

		// documents
		{"after.doc == '{}'", cdc.Insert, nil, row{"doc": document("{}")}, "open: after.doc: a JSON document has no one text"},
		{"before.doc == after.doc", cdc.Update, row{"doc": document("{}")}, row{"doc": document("{}")}, "true"},
		{"changed(doc)", cdc.Update, row{"doc": document("{}")}, row{"doc": document("[]")}, "true"},

		// what is open loses to what decides
		{"after.x == 1 && after.y == 1", cdc.Insert, nil, row{"y": integer64("2")}, "false"},
		{"after.y == 1 && after.x == 1", cdc.Insert, nil, row{"y": integer64("2")}, "false"},
		{"after.x == 1 || after.y == 2", cdc.Insert, nil, row{"y": integer64("2")}, "true"},
		{"after.x == 1 and after.y == 2", cdc.Insert, nil, row{"y": integer64("2")}, "open: after.x: the image does not hold the column"},
		{"after.x == 1 or after.y == 1", cdc.Insert, nil, row{"y": integer64("2")}, "open: after.x: the image does not hold the column"},
		{"!(after.x == 1) || after.z == 1", cdc.Insert, nil, row{}, "open: after.x: the image does not hold the column"},
		{"before.x == 1 && after.y == 1", cdc.Insert, nil, row{}, "open: after.y: the image does not hold the column"},
	} {
		s := when(t, c.when)
		if _, ok := c.before["id"]; c.before != nil && !ok {
			c.before["id"] = integer64("1")
		}
		if _, ok := c.after["id"]; c.after != nil && !ok {
			c.after["id"] = integer64("1")
		}
		if got := outcome(s, change(s, c.op, c.before, c.after)); got != c.want {
			t.Errorf("%s of %s %v -> %v: got %s, want %s", c.when, c.op, c.before, c.after, got, c.want)
		}
	}
}

// An update without a before image left the record's key as it was.
func TestConditionOnTheKeyWithoutABeforeImage(t *testing.T) {
	s := when(t, "changed(id)")
	c := change(s, cdc.Update, nil, row{"id": integer64("1")})
	c.KeyColumns = []string{"id"}
	if got := outcome(s, c); got != "false" {
		t.Errorf("got %s", got)
	}
}

func TestConditionFaults(t *testing.T) {
	for _, c := range []struct{ when, want string }{
		{"after.status = 'x'", `13: not a condition: unexpected "=" (write == to compare)`},
		{"after.status ==", `15: not a condition: it ends too early`},
		{"(after.a == 1", `13: not a condition: it ends too early`},
		{"after.id == 18446744073709551615", `31: not a condition: the number is too large (write it in quotes: it is compared as a number with a number)`},
		{"after.a == 'x", `13: not a condition: a text without its closing quote (write \' for a quote within a text)`},
		{"changed(a b)", `10: not a condition: unexpected "b"`},
		{"changed()", `0: changed names no column (write changed(name, bio))`},
		{"changed(after.name)", `8: changed compares both images of a column (write changed(name))`},
		{"changed(1)", `8: changed takes names of columns (write changed(name, bio))`},
		{"chnged(name)", `0: function "chnged" is unknown (did you mean "changed"?)`},
		{"aftr.name == 'x'", `0: "aftr" is no image: a column is before.name or after.name (did you mean "after"?)`},
		{"status == 'x'", `0: column "status" of which image? (write after.status or before.status)`},
		{"ä == 1 || x", `0: column "ä" of which image? (write after.ä or before.ä)`},
		{"after.ä == 1 || status == 2", `17: column "status" of which image? (write after.status or before.status)`},
		{"op == 'updte'", `6: op is 'insert', 'update' or 'delete', never 'updte' (did you mean "update"?)`},
		{"op == after.x", `6: op is compared with a text (write op == 'update')`},
		{"op", `0: op stands alone (write op == 'update')`},
		{"before", `0: before is a whole image (write before.name, or before == null)`},
		{"after == 'x'", `0: after is a whole image (write after.name, or after == null)`},
		{"after.a.b == 1", `0: not a column of before or after (write after.name, or after['a name'])`},
		{"after?.a == 1", ``},
		{"true", `0: a constant is no condition (compare it with a column)`},
		{"1 == 1", `2: a comparison of two constants (compare a column with it)`},
		{"after.x < null", `8: null is neither less nor greater than anything (compare by == or !=)`},
		{"after.x + 1 == 2", ``},
		{"after.x == 0x10", `11: a number that no column shows: 0x10 (write its digits, as 1000 or 0.5)`},
		{"after.x == 1e3", `11: a number that no column shows: 1e3 (write its digits, as 1000 or 0.5)`},
		{"after.x in []", `11: in takes a list of constants (write after.status in ['draft', 'gone'])`},
		{"after.x in [after.y]", `12: in takes a list of constants (write after.status in ['draft', 'gone'])`},
		{"'a' in ['a']", `0: in takes a column (write after.status in ['draft', 'gone'])`},
		{"'a' contains 'a'", `0: contains takes a column on its left (write after.name contains 'x')`},
		{"after.x matches '('", "16: missing closing ): `(` (the syntax is RE2's)"},
		{"after.x matches after.y", `16: matches takes a text on its right (write after.name matches 'x')`},
		{"len(after.x) > 1", ``},
		{"after.x ? true : false", ``},
		{"let x = 1; x == 1", ``},
		{strings.Repeat("(", 5000), `0: the condition is over 4096 bytes (use in […], or split the template)`},
	} {
		_, bad := parseCondition(c.when)
		if bad == nil {
			t.Errorf("%s: no fault", c.when)
			continue
		}
		got := fmt.Sprintf("%d: %s", bad.at, bad.what)
		if bad.hint != "" {
			got += " (" + bad.hint + ")"
		}
		if c.want == "" && strings.Contains(got, "not part of a condition") || c.want == "" && strings.Contains(got, "not a column of") {
			continue
		}
		if got != c.want {
			t.Errorf("%s: got\n\t%s, want\n\t%s", c.when, got, c.want)
		}
	}
}

// A condition's fault stands where it is in the file, however YAML writes the text.
func TestConditionFaultsStandInTheFile(t *testing.T) {
	const key = mappingHead + "      - key: user:{id}\n"
	for _, c := range []struct{ when, want string }{
		{"        when: after.a = 1\n", "f.yaml:9:23"},
		{"        when: \"after.a = 1\"\n", "f.yaml:9:24"},
		{"        when: 'after.a == ''x'' || after.b = 1'\n", "f.yaml:9:15"}, // behind an escape: its beginning
		{"        when: |\n          after.a == 1 ||\n            after.b = 1\n", "f.yaml:11:21"},
		{"        when: >-\n          after.a == 1 ||\n          after.b = 1\n", "f.yaml:11:19"},
		{"        when: after.a == 1 ||\n          after.b = 1\n", "f.yaml:10:19"},
	} {
		_, problems := Parse("f.yaml", []byte(key+c.when))
		if len(problems) != 1 || !strings.HasPrefix(problems[0].String(), c.want+": not a condition: unexpected \"=\"") {
			t.Errorf("%s: got %v, want %s", c.when, problems, c.want)
		}
	}
}

// assignment decides, for every column of a change, whether a value is known.
var conditionValues = rapid.SampledFrom([]cdc.Value{null, text("x"), text("y"), integer64("1"), integer64("2"), {Kind: cdc.Decimal, S: "1.0"}})

var conditions = rapid.Custom(func(t *rapid.T) string {
	leaf := rapid.SampledFrom([]string{"changed(a)", "changed(a, b)", "op == 'update'", "after.a == 'x'", "before.b != 1", "after.b == null", "before.a == after.a",
		"after.a in ['x', 1]", "before.b < 2", "after.a startsWith 'x'", "before == null", "after.b >= before.b"})
	join := rapid.SampledFrom([]string{" && ", " || ", " and ", " or "})
	s := leaf.Draw(t, "leaf")
	for range rapid.IntRange(0, 4).Draw(t, "more") {
		s += join.Draw(t, "join")
		if rapid.Bool().Draw(t, "not") {
			s += "!(" + leaf.Draw(t, "leaf") + ")"
		} else {
			s += leaf.Draw(t, "leaf")
		}
	}
	if strings.Contains(s, "&&") || strings.Contains(s, "||") {
		s = "(" + s + ") && op != 'nope'"
		s = strings.TrimSuffix(s, " && op != 'nope'")
	}
	return s
})

// Leaving columns out of an image never makes a condition false that is true with them: no delete is lost to what a log leaves
// out. And a condition that is decided without them stays as it is.
func TestUndecidedNeverLoses(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		condition := conditions.Draw(rt, "condition")
		s := when(t, condition)
		op := rapid.SampledFrom([]cdc.Op{cdc.Insert, cdc.Update, cdc.Delete}).Draw(rt, "op")
		image := func(name string) (full, cut row) {
			full, cut = row{"id": integer64("1")}, row{"id": integer64("1")}
			for _, column := range []string{"a", "b"} {
				full[column] = conditionValues.Draw(rt, name+"."+column)
				if rapid.Bool().Draw(rt, name+"."+column+" is sent") {
					cut[column] = full[column]
				}
			}
			return full, cut
		}
		before, cutBefore := image("before")
		after, cutAfter := image("after")
		switch op {
		case cdc.Insert:
			before, cutBefore = nil, nil
		case cdc.Delete:
			after, cutAfter = nil, nil
		case cdc.Update:
			for column := range after { // what an after image leaves out is as before
				if _, sent := cutAfter[column]; !sent {
					if _, sent := cutBefore[column]; sent {
						after[column] = before[column]
					}
				}
			}
		}
		whole, cut := outcome(s, change(s, op, before, after)), outcome(s, change(s, op, cutBefore, cutAfter))
		if whole == "true" && cut == "false" {
			rt.Fatalf("%s of %s: true, and false when %v -> %v is cut to %v -> %v", condition, op, before, after, cutBefore, cutAfter)
		}
		if cut == "true" && whole == "false" {
			rt.Fatalf("%s of %s: false, and decided true when %v -> %v is cut to %v -> %v", condition, op, before, after, cutBefore, cutAfter)
		}
	})
}

// A value that may have been NULL instead decides nothing: Maxwell leaves both out of an old row alike.
func TestDoubtfulValueIsOpen(t *testing.T) {
	before := row{"id": integer64("1"), "a": cdc.Value{Kind: cdc.Text, S: "draft", Why: "it may have been NULL"}, "b": integer64("1")}
	after := row{"id": integer64("1"), "a": cdc.Value{Kind: cdc.Text, S: "draft"}, "b": integer64("1")}
	for condition, want := range map[string]string{
		"before.a != 'draft'":                 "open: before.a: it may have been NULL",
		"before.a == null":                    "open: before.a: it may have been NULL",
		"before.a != null":                    "open: before.a: it may have been NULL",
		"after.a == 'draft'":                  "true",
		"before.a == 'draft' && after.b == 2": "false",
		"before.a == 'live' || after.b == 1":  "true",
		"changed(a)":                          "true",
	} {
		s := when(t, condition)
		if got := outcome(s, change(s, cdc.Update, before, after)); got != want {
			t.Errorf("%s is %s, want %s", condition, got, want)
		}
	}
}

// The keys of a change whose condition is true are those without a condition; where it is false there is none.
func TestConditionIsAboutTheChange(t *testing.T) {
	plain := set(t, "u:{id}:{a}")
	rapid.Check(t, func(rt *rapid.T) {
		f := parse(t, "version: 1\nteam: profiles\npools: [u]\nmappings:\n  - name: user\n    table: shop.users\n    keys: [{key: 'u:{id}:{a}', when: \""+conditions.Draw(rt, "condition")+"\"}]\n")
		s, _ := NewSet([]*File{f})
		draw := func(name string) row {
			return row{"id": conditionValues.Draw(rt, name), "a": conditionValues.Draw(rt, name), "b": conditionValues.Draw(rt, name)}
		}
		before, after := draw("before"), draw("after")
		got, _ := keys(s, change(s, cdc.Update, before, after))
		want, _ := keys(plain, change(plain, cdc.Update, before, after))
		if outcome(s, change(s, cdc.Update, before, after)) == "false" {
			want = nil
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			rt.Fatalf("got %q, want %q", got, want)
		}
	})
}

func TestNumbersCompareExactly(t *testing.T) {
	order := []string{"-100", "-99.5", "-1.01", "-1", "-0.5", "0", "0.1", "0.10000000000000000001", "0.5", "1", "9", "10", "18446744073709551615", "18446744073709551616.5"}
	for i, a := range order {
		for j, b := range order {
			x, _ := parseNumber(a)
			y, _ := parseNumber(b)
			if got, want := x.compare(y), compareInts(i, j); got != want {
				t.Errorf("%s and %s: %d, want %d", a, b, got, want)
			}
		}
	}
	for _, same := range [][2]string{{"1", "1.00"}, {"-0", "0"}, {"007", "7"}, {"0.50", ".5"}} {
		x, okX := parseNumber(same[0])
		y, okY := parseNumber(same[1])
		if strings.HasPrefix(same[1], ".") {
			if okY {
				t.Error(".5 is no number as a database shows it")
			}
		} else if x.compare(y) != 0 || !okX || !okY {
			t.Errorf("%v differ", same)
		}
	}
	for _, none := range []string{"", "-", "1.", "1e3", " 1", "NaN", "+1", "1.2.3", "--1"} {
		if _, ok := parseNumber(none); ok {
			t.Errorf("%q is a number", none)
		}
	}
}

func compareInts(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// A condition either has a fault, in its text, or can be asked.
func FuzzCondition(f *testing.F) {
	for _, s := range []string{"changed(a, b) && after.c != 'x'", "op in ['insert']", "!(before['a b'] == -1.5) || after.x matches '^a'", "1 < after.a < 3", "after.a = 1", "((((", "a?.b", ";;", "x | y",
		"not not after.a", "let", "if", "after.a ?? 1", "[", "{a: 1}", "#", "after.a[0:1]", "changed(1..2)", "'\\u00zz'", "b'x'", "/* */ after.a", "any(after.a, .b)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		c, bad := parseCondition(s)
		if bad != nil {
			if bad.at < 0 || bad.at > len(s) || bad.what == "" {
				t.Errorf("a fault at byte %d of %d: %q", bad.at, len(s), bad.what)
			}
			return
		}
		at := make([]int, len(c.columns))
		values := cdc.Row{text("x"), integer64("1"), null, absent, {Kind: cdc.Float, S: "1e9"}, cdc.MaybeOneOf("-1", "255")}
		for i := range at {
			at[i] = i % len(values)
		}
		for _, op := range []cdc.Op{cdc.Insert, cdc.Update, cdc.Delete} {
			e := evaluation{c: c, at: at, RowChange: &cdc.RowChange{Op: op, Before: values, After: values}}
			e.eval(c.root)
		}
	})
}

func BenchmarkCondition(b *testing.B) {
	for _, condition := range []string{"changed(name, bio)", "changed(name, bio) && after.status != 'draft'", "(before.name != after.name || before.bio != after.bio) && after.status != 'draft'", "after.price > 9.99 && after.id in [1, 2, 3]"} {
		s := when(b, condition)
		v := row{"id": integer64("3"), "name": text("Ada"), "bio": text("x"), "status": text("live"), "price": {Kind: cdc.Decimal, S: "10.00"}}
		w := row{"id": integer64("3"), "name": text("Ada"), "bio": text("y"), "status": text("live"), "price": {Kind: cdc.Decimal, S: "10.00"}}
		c := change(s, cdc.Update, v, w)
		t := &s.Plan("", users).compiled[0]
		b.Run(condition, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				e := evaluation{c: t.condition, at: t.conditionAt, RowChange: c}
				if e.eval(t.condition.root) != yes {
					b.Fatal("not true")
				}
			}
		})
	}
}
