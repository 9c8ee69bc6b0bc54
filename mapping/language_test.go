package mapping

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"invalidator/cdc"
)

// metaHead is mappingHead of a file whose readers heed stale flags, in eight lines altogether.
const metaHead = "version: 1\nteam: profiles\npools: [user]\nreaders: meta\nmappings:\n  - name: user\n    table: shop.users\n    keys:\n"

func setFrom(t testing.TB, text string) *Set {
	t.Helper()
	s, problems := NewSet([]*File{parse(t, text)})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return s
}

func TestEachGivesAKeyForEveryValue(t *testing.T) {
	s := setFrom(t, mappingHead+`      - key: user:{id}:{locale|upper}:{page}
        each: {locale: [en, de-AT], page: [1, 2]}
`)
	got, _ := keys(s, change(s, cdc.Update, row{"id": integer64("1")}, row{"id": integer64("2")}))
	want := strings.Fields("user:1:EN:1 user:1:EN:2 user:1:DE-AT:1 user:1:DE-AT:2 user:2:EN:1 user:2:EN:2 user:2:DE-AT:1 user:2:DE-AT:2")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := s.Columns("", users).List; len(got) != 1 || got[0].Name != "id" {
		t.Errorf("columns %v: a placeholder is none", got)
	}
	// A row that cannot be rendered is skipped once, not once a value.
	if got, skipped := keys(s, change(s, cdc.Insert, nil, row{"id": null})); got != nil || len(skipped) != 1 {
		t.Errorf("got %q, skipped %q", got, skipped)
	}
}

func TestElements(t *testing.T) {
	for _, c := range []struct {
		template      string
		before, after cdc.Value
		keys, skipped string
	}{
		{"u:{v|elements}", text(`{a,"b,\"c\\",NULL,"NULL",d}`), text("{}"), `u:a u:b,"c\ u:NULL u:d`, "before null u:{v|elements} v"},
		{"u:{v|elements}", text("{{1,2},{3,4}}"), text("[0:1]={5,6}"), "u:1 u:2 u:3 u:4 u:5 u:6", ""},
		{"u:{v|elements}", text(`["a","é\u0062",1.50,true,null]`), text("[]"), "u:a u:éb u:1.50 u:true", "before null u:{v|elements} v"},
		{"u:{v|elements}", cdc.Value{Kind: cdc.JSON, S: `[1, 18446744073709551615]`}, null, "u:1 u:18446744073709551615", "after null u:{v|elements} v"},
		{"u:{v|elements}", text(`[1,[2]]`), text("[1"), "u:1", "before type u:{v|elements} v, after type u:{v|elements} v"},
		{"u:{v|elements}", text("a,b"), text("{a"), "", "before type u:{v|elements} v, after type u:{v|elements} v"},
		{"u:{v|elements(',')|trim|upper}", text("a, b"), text("b,c"), "u:A u:B u:C", ""},
		{"u:{v|elements('; ')}", text("a; b"), text(""), "u:a u:b", ""},
		{"u:{v|lower|elements(',')|sha1(4)}:{v}", text("A,B"), text("a"), "u:86f7:A,B u:e9d7:A,B u:86f7:a", ""},
		{"u:{v|elements(',')}:{v|elements(',')}", text("a,b"), absent, "u:a:a u:b:a u:a:b u:b:b", ""},
		{"u:{v|elements(',')}", text("a,b c"), text("d"), "u:a u:d", "before bad_key u:{v|elements(',')} "},
		{"u:{v|default('x,y')|elements(',')}", null, text("z"), "u:x u:y u:z", ""},
		{"u:{v|elements|default('none')}", text("{NULL,a}"), absent, "u:none u:a", ""},
		{"u:{v|elements(',')}", text(strings.Repeat("a,", 1000)), text("d"), "u:d", "before many u:{v|elements(',')} v"},
		{"u:{v|elements}", text("{" + strings.Repeat("a,", 1000) + "a}"), text("{d}"), "u:d", "before many u:{v|elements} v"},
		{"u:{v|elements(',')}:{v|elements(',')}", text(strings.Repeat("a,", 64)), text("d"), "u:d:d", "before many u:{v|elements(',')}:{v|elements(',')} v"},
		{"u:{v|elements(',')}", cdc.MaybeOneOf("a,b", "c"), text("d"), "u:a u:b u:c u:d", ""},
	} {
		t.Run(c.template, func(t *testing.T) {
			s := set(t, c.template)
			got, skipped := keys(s, change(s, cdc.Update, row{"v": c.before}, row{"v": c.after}))
			if diff := cmp.Diff(strings.Fields(c.keys), got, sameWhenEmpty); diff != "" {
				t.Error("keys", diff)
			}
			if diff := cmp.Diff(c.skipped, strings.Join(skipped, ", ")); diff != "" {
				t.Error("skipped", diff)
			}
		})
	}
}

// What Postgres writes of any texts is read back as they were.
func TestArrayElementsAreReadBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOfN(rapid.StringOf(rapid.SampledFrom([]rune(`ab"\{}, NULnulé`))), 0, 5).Draw(rt, "elements")
		var quoted []string
		for _, e := range want {
			quoted = append(quoted, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(e)+`"`)
		}
		list, detail := new(listing).elements("{"+strings.Join(quoted, ",")+"}", &filter{filterType: filterElements})
		var got []string
		for _, v := range list {
			got = append(got, v.S)
		}
		if detail != "" || strings.Join(got, "\x00") != strings.Join(want, "\x00") || len(got) != len(want) {
			rt.Fatalf("%q: got %q, %s", want, got, detail)
		}
	})
}

func FuzzElements(f *testing.F) {
	for _, s := range []string{`{a,"b \"c\"",NULL,{d}}`, `["a",1,null,{"b":[]}]`, "[0:1]={a}", "{", "}", `{"`, `{\`, "[", "a,b", "{}{}"} {
		f.Add(s, ",")
	}
	f.Fuzz(func(t *testing.T, s, separator string) {
		list, detail := new(listing).elements(s, &filter{filterType: filterElements})
		if len(list) > maxElements || detail == detailElements && list != nil {
			t.Errorf("%d elements, %s", len(list), detail)
		}
		if separator != "" {
			list, _ := new(listing).elements(s, &filter{filterType: filterElements, args: []argument{{text: separator}}})
			var texts []string
			for _, v := range list {
				texts = append(texts, v.S)
			}
			if list != nil && strings.Join(texts, separator) != s {
				t.Errorf("%q by %q: %q", s, separator, texts)
			}
		}
	})
}

func TestRawKeysAreOfTheFilesPools(t *testing.T) {
	s := setFrom(t, "version: 1\nteam: outbox\npools: [user, config]\nunderivable: [feed]\nmappings:\n  - name: outbox\n    table: shop.users\n    keys:\n      - raw: \"{key}\"\n        hot: 8\n")
	for _, c := range []struct{ value, pool, skipped string }{
		{"user:1", "user", ""},
		{"feed:42", "feed", ""},
		{"config", "config", ""},
		{"users:1", "", "after pool {key} key"},
		{"", "", "after pool {key} key"},
		{":x", "", "after pool {key} key"},
		{"user:a b", "", "after bad_key {key} "},
		{"user:" + strings.Repeat("x", 244), "", "after bad_key {key} "}, // with #8
	} {
		row := change(s, cdc.Insert, nil, row{"key": text(c.value)})
		var r Result
		s.Keys(row, &r)
		pool := ""
		if len(r.Keys) == 1 && r.Keys[0].Text == c.value && r.Keys[0].Template.Hot == 8 && r.Keys[0].Template.Mapping == "outbox" {
			pool = r.Keys[0].Template.Pool
		}
		if _, skipped := keys(s, row); pool != c.pool || strings.Join(skipped, ", ") != c.skipped {
			t.Errorf("%q: pool %q, skipped %q", c.value, pool, skipped)
		}
	}
}

func TestLogicalMessagesAreKeys(t *testing.T) {
	s := setFrom(t, "version: 1\nteam: feeds\npools: [user]\nunderivable: [feed]\n"+"mappings: [{name: m, table: shop.t, keys: [\"user:{id}\"]}]\n")
	for _, c := range []struct{ prefix, content, want string }{
		{"cache", "feed:42", "feed:42 of feed, feeds"},
		{"cache", "user:1", "user:1 of user, feeds"},
		{"other", "feed:42", ""},
		{"cache", "shop:1", "skipped: a logical message: pool: the key's pool is not one of any file's"},
		{"cache", "", "skipped: a logical message: absent: the message was too large to be sent whole"},
		{"cache", "feed:a b", "skipped: a logical message: bad_key: a space or a control character"},
	} {
		var r Result
		s.Keys(&cdc.RowChange{Op: cdc.Message, Prefix: c.prefix, Content: []byte(c.content)}, &r)
		var got []string
		for _, k := range r.Keys {
			got = append(got, fmt.Sprintf("%s of %s, %s", k.Text, k.Template.Pool, k.Template.Team))
		}
		for _, skip := range r.Skipped {
			got = append(got, fmt.Sprintf("skipped: %s: %s: %s", skip.Template.Text, skip.Reason, skip.Detail))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s %q: got %q, want %q", c.prefix, c.content, got, c.want)
		}
	}
}

func TestActions(t *testing.T) {
	f := parse(t, metaHead+`      - user:{id}
      - {key: "user:a:{id}", action: stale}
      - {key: "user:b:{id}", action: stale, stale_for: 1m}
      - {key: "user:c:{id}", action: refresh}
      - {key: "user:d:{id}", action: refresh, stale_for: 5s}
`)
	var got []string
	for _, x := range f.Mappings[0].Templates {
		got = append(got, fmt.Sprint(x.Action, " ", x.StaleFor))
	}
	if diff := cmp.Diff([]string{"delete 0s", "stale 30s", "stale 1m0s", "refresh 0s", "refresh 5s"}, got); diff != "" {
		t.Error(diff)
	}
}

// Under classic readers nobody heeds the stale flag.
func TestStaleIsADeleteForClassicReaders(t *testing.T) {
	f, problems := Parse("f.yaml", []byte(mappingHead+"      - key: user:{id}\n        action: stale\n"))
	want := "f.yaml:9:17: warning: the file's readers are classic: its keys are deleted, not marked stale (write readers: meta if every reader of these pools asks by mg and heeds its flags)"
	if got := texts(problems); !cmp.Equal(got, []string{want}) || f == nil {
		t.Errorf("got %q", got)
	}
	if x := f.Mappings[0].Templates[0]; x.Action != ActionStale || x.StaleFor != 0 {
		t.Errorf("got %s for %s", x.Action, x.StaleFor)
	}
}

// One key that is to be deleted and, by another template, marked stale: both are done.
func TestOneKeyOfTwoActions(t *testing.T) {
	s := setFrom(t, metaHead+"      - user:{id}\n      - {key: \"user:{other}\", action: stale}\n      - {key: \"user:{id|int}\", hot: 8}\n")
	var r Result
	s.Keys(change(s, cdc.Insert, nil, row{"id": integer64("1"), "other": integer64("1")}), &r)
	var got []string
	for _, k := range r.Keys {
		got = append(got, fmt.Sprint(k.Text, " ", k.Template.Action, " ", k.Template.Hot))
	}
	if diff := cmp.Diff([]string{"user:1 delete 8", "user:1 stale 0"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestShadowKeysStandApart(t *testing.T) {
	s := setFrom(t, mappingHead+"      - user:{id}\n      - {key: \"user:new:{id}\", shadow: true}\n")
	var r Result
	s.Keys(change(s, cdc.Update, row{"id": integer64("1")}, row{"id": integer64("1")}), &r)
	if len(r.Keys) != 1 || r.Keys[0].Text != "user:1" || len(r.Shadow) != 1 || r.Shadow[0].Text != "user:new:1" || !r.Shadow[0].Template.Shadow {
		t.Errorf("keys %v, in shadow %v", r.Keys, r.Shadow)
	}
	if r.Reset(); len(r.Shadow) != 0 {
		t.Error("keys in shadow after Reset")
	}
}

// Many keys are as distinct as few.
func TestManyKeysAreDistinct(t *testing.T) {
	s := set(t, "u:{v|elements(',')}", "u:{w|elements(',')}")
	var list []string
	for i := range 500 {
		list = append(list, fmt.Sprint(i))
	}
	v := text(strings.Join(list, ","))
	got, skipped := keys(s, change(s, cdc.Update, row{"v": v, "w": v}, row{"v": v, "w": text("7,x")}))
	if len(got) != 501 || len(skipped) != 0 {
		t.Errorf("%d keys, skipped %v", len(got), skipped)
	}
}

// A key's text is good until Reset, however far the Result's memory grew meanwhile; a clone is good for ever.
func TestKeysOutliveTheGrowthOfTheirResult(t *testing.T) {
	s := set(t, "u:{id}")
	var r Result
	var want []string
	for i := range 1000 {
		id := fmt.Sprint(i)
		s.Keys(change(s, cdc.Insert, nil, row{"id": text(id)}), &r)
		want = append(want, "u:"+id)
	}
	own := CloneKeys(r.Keys)
	for i, k := range r.Keys {
		if k.Text != want[i] {
			t.Fatalf("key %d is %q", i, k.Text)
		}
	}
	r.Reset()
	for range 1000 {
		s.Keys(change(s, cdc.Insert, nil, row{"id": text("other")}), &r)
	}
	for i, k := range own {
		if k.Text != want[i] || k.Template == nil {
			t.Fatalf("clone %d is %q", i, k.Text)
		}
	}
	if CloneKeys(nil) != nil {
		t.Error("clones of nothing")
	}
}

func TestKeysOfPlainTemplatesAllocateNothing(t *testing.T) {
	s := setFrom(t, mappingHead+`      - user:{id}
      - user:by-email:{email|trim|lower}
      - {key: "user:{tenant}:{id}:v3", hot: 8, when: "changed(email, tenant) && after.status != 'draft'"}
      - {key: "user:{id}:{locale}", each: {locale: [en, de]}}
      - {key: "user:shadow:{id}", shadow: true}
      - user:null:{nothing}
      - user:bin:{bin|hex}
      - {key: "user:unmet:{id}", when: "after.price > 100.5"}
      - raw: "{key}"
`)
	v := row{"id": integer64("18446744073709551615"), "tenant": text("acme"), "email": text(" Ada@Example.test"), "status": text("live"), "nothing": null, "bin": raw("\x00\x01"),
		"price": {Kind: cdc.Decimal, S: "9.99"}, "key": text("user:x")}
	w := row{"id": v["id"], "tenant": v["tenant"], "email": text("countess@example.test"), "status": v["status"], "nothing": null, "bin": v["bin"], "price": v["price"], "key": text("user:y")}
	c := change(s, cdc.Update, v, w)
	message := &cdc.RowChange{Op: cdc.Message, Prefix: "cache", Content: []byte("user:1")}
	var r Result
	for range 3 {
		r.Reset()
		s.Keys(c, &r)
		if len(r.Keys) != 9 || len(r.Shadow) != 1 || len(r.Unmet) != 1 {
			t.Fatalf("keys %v, in shadow %v, unmet %v", r.Keys, r.Shadow, r.Unmet)
		}
	}
	if n := testing.AllocsPerRun(100, func() { r.Reset(); s.Keys(c, &r); s.Keys(message, &r) }); n != 0 {
		t.Errorf("%v allocations a change", n)
	}
	s.Keys(c, &r)
	if n := testing.AllocsPerRun(100, func() { CloneKeys(r.Keys) }); n != 2 {
		t.Errorf("%v allocations for clones of %d keys", n, len(r.Keys))
	}
}

func TestManyKeysOfEachAllocateNothing(t *testing.T) {
	s := setFrom(t, mappingHead+"      - {key: \"user:{id}:{a}:{b}\", each: {a: [1, 2, 3, 4, 5, 6, 7, 8], b: [1, 2, 3, 4, 5, 6, 7, 8]}}\n")
	c := change(s, cdc.Update, row{"id": integer64("1")}, row{"id": integer64("2")})
	var r Result
	for range 3 {
		r.Reset()
		s.Keys(c, &r)
	}
	if n := testing.AllocsPerRun(20, func() { r.Reset(); s.Keys(c, &r) }); n != 0 || len(r.Keys) != 128 {
		t.Errorf("%v allocations for %d keys", n, len(r.Keys))
	}
}

func TestUnderivable(t *testing.T) {
	s, _ := load(t, map[string]string{"a.yaml": file("a", "a", "shop.a", "") + "underivable: [z, feed]\n", "b.yaml": file("b", "b", "shop.b", "") + "underivable: [list]\n"})
	if got := s.Underivable(); !cmp.Equal(got, []string{"feed", "list", "z"}) {
		t.Errorf("got %q", got)
	}
}

func TestCoverage(t *testing.T) {
	f := parse(t, mappingHead+`      - user:{id}
      - {key: "user:a:{id}", when: after.n > 1}
      - {key: "user:b:{id}", when: after.n > 1 || op == 'delete'}
      - {key: "user:never:{nothing}"}
      - {key: "user:open:{id}", when: after.missing == 1, shadow: true}
      - raw: "{key}"
tests:
  - name: met
    table: shop.users
    after: {id: 1, n: 2, key: user:x}
    keys: [user:1, user:a:1, user:b:1, user:x]
    shadow_keys: [user:open:1]
  - name: unmet
    table: shop.users
    op: update
    after: {id: 1, n: 1}
    keys: [user:1]
    shadow_keys: []
`)
	results := f.RunTests()
	if !results[0].OK() || results[1].String() != "f.yaml:20:5: FAILED: unmet\n    unexpected  user:open:1 (in shadow)\n"+
		"    skipped     user:{id}: before image, column id: no before image: the old value cannot be known\n"+
		"    skipped     user:never:{nothing}: before image, column nothing: no before image: the old value cannot be known\n"+
		"    skipped     user:open:{id}: before image, column id: no before image: the old value cannot be known\n"+
		"    skipped     {key}: before image, column key: no before image: the old value cannot be known\n"+
		"    skipped     user:never:{nothing}: after image, column nothing: the image does not hold the column\n"+
		"    skipped     {key}: after image, column key: the image does not hold the column" {
		t.Error(results)
	}
	var got []string
	for _, c := range f.Coverage(results) {
		got = append(got, fmt.Sprint(c.Template.Text, " ", c.Rendered, " ", c.Met, " ", c.Unmet))
	}
	want := []string{"user:{id} true true true", "user:a:{id} true true true", "user:b:{id} true true true", "user:never:{nothing} false true true", "user:open:{id} true false false", "{key} true true true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestLanguageProblems(t *testing.T) {
	const key = mappingHead + "      - key: user:{id}:{locale}\n"
	var many []string
	for i := range 17 {
		many = append(many, fmt.Sprint(i))
	}
	list := "[" + strings.Join(many, ", ") + "]"
	for _, c := range []struct{ name, file, want string }{
		{"each unused", mappingHead + "      - key: user:{id}\n        each: {locale: [en]}\n", `f.yaml:9:16: each locale is not in the key (write {locale} in the key)`},
		{"each no list", key + "        each: {locale: en}\n", `f.yaml:9:24: each locale must be a list, not the text "en" (write [en])`},
		{"each empty", key + "        each: {locale: []}\n", `f.yaml:9:24: each locale is an empty list`},
		{"each nothing", key + "        each: {}\n", `f.yaml:9:15: each must be names with lists, not fields with values (write each: {locale: [en, de]})`},
		{"each NO", key + "        each: {locale: [NO]}\n", `f.yaml:9:25: a value of each locale is NO, which YAML reads as a boolean (write "NO" in quotes)`},
		{"each octal", key + "        each: {locale: [013]}\n", `f.yaml:9:25: a value of each locale is 013, which YAML reads as the number 013 (write "013" in quotes)`},
		{"each doubled", key + "        each: {locale: [en, en]}\n", `f.yaml:9:29: value "en" is doubled: it stands in line 9 already`},
		{"each with a space", key + "        each: {locale: [en us]}\n", `f.yaml:9:25: memcached cannot hold a key with a space (write it as your clients do; binary_keys: base64 where they send such keys in base64)`},
		{"each through a filter", mappingHead + "      - key: user:{id}:{locale|int}\n        each: {locale: [en]}\n", `f.yaml:9:25: "en" cannot be rendered: `},
		{"each of elements", mappingHead + "      - key: user:{id}:{locale|elements(',')}\n        each: {locale: [en]}\n", `f.yaml:8:25: each locale has one text at a time, and elements takes a list`},
		{"each as a copy", key + "        each: {locale: [\"#1\"]}\n", `f.yaml:8:24: a key ends in # and digits (key#1, key#2 … are the names of a hot key's copies)`},
		{"each too long", key + "        each: {locale: [" + strings.Repeat("x", 250) + "]}\n", `f.yaml:8:14: the key is never under 256 bytes, and memcached takes 250`},
		{"each too many", mappingHead + "      - key: user:{a}:{b}:{id}\n        each: {a: " + list + ", b: " + list + "}\n", `f.yaml:9:15: each gives over 256 keys (split the template)`},
		{"each is a column", head + "mappings:\n  - name: user\n    table: shop.users\n    columns: {id: int, locale: text}\n    keys:\n      - key: user:{id}:{locale}\n        each: {locale: [en]}\n",
			"f.yaml:7:24: warning: no key of mapping user reads column \"locale\"\n" + `f.yaml:10:16: each locale is a column too, whose type stands in line 7 (give it another name)`},
		{"when", mappingHead + "      - key: user:{id}\n        when: after.status = 'x'\n", `f.yaml:9:28: not a condition: unexpected "=" (write == to compare)`},
		{"when a boolean", mappingHead + "      - key: user:{id}\n        when: true\n", `f.yaml:9:15: when is true, which YAML reads as a boolean (write "true" in quotes)`},
		{"action", metaHead + "      - key: user:{id}\n        action: stail\n", `f.yaml:10:17: action must be delete, stale or refresh, not "stail" (did you mean "stale"?)`},
		{"stale_for of a delete", metaHead + "      - key: user:{id}\n        stale_for: 3s\n", `f.yaml:10:20: stale_for is for copies that are marked stale, and these are deleted (write action: stale, or refresh)`},
		{"stale_for over", metaHead + "      - {key: \"user:{id}\", action: stale, stale_for: 61s}\n", `f.yaml:9:54: stale_for must be whole seconds from 1s to 60s, not the text "61s" (write 30s)`},
		{"stale_for under", metaHead + "      - {key: \"user:{id}\", action: stale, stale_for: 0s}\n", `f.yaml:9:54: stale_for must be whole seconds from 1s to 60s, not the text "0s" (write 30s)`},
		{"stale_for without a unit", metaHead + "      - {key: \"user:{id}\", action: stale, stale_for: 30}\n", `f.yaml:9:54: stale_for must be whole seconds from 1s to 60s, not the number 30 (write 30s)`},
		{"stale_for of a fraction", metaHead + "      - {key: \"user:{id}\", action: stale, stale_for: 1.5s}\n", `f.yaml:9:54: stale_for must be whole seconds from 1s to 60s, not the text "1.5s" (write 30s)`},
		{"shadow", mappingHead + "      - {key: \"user:{id}\", shadow: yes}\n", `f.yaml:8:36: shadow must be a boolean, not the text "yes" (write true or false)`},
		{"key and raw", mappingHead + "      - {key: \"user:{id}\", raw: \"{key}\"}\n", `f.yaml:8:33: key and raw exclude each other`},
		{"raw with more", mappingHead + "      - raw: \"user:{key}\"\n", `f.yaml:8:14: raw must be one column, which holds whole keys (write raw: "{key}", or a key: that begins with its pool)`},
		{"raw with each", mappingHead + "      - raw: \"{key}\"\n        each: {key: [a]}\n", `f.yaml:9:15: raw and each exclude each other`},
		{"the same twice", mappingHead + "      - {key: \"user:{id}\", when: changed(a)}\n      - {key: \"user:{id}\", when: changed(a)}\n", `f.yaml:9:15: key "user:{id}" is doubled: it stands in line 8 already`},
		{"op of a test", mappingHead + "      - user:{id}\ntests:\n  - {name: a, table: shop.users, op: upsert, after: {id: 1}, keys: []}\n", `f.yaml:10:38: op must be insert, update, delete or truncate, not "upsert" (did you mean "insert"?)`},
		{"op against images", mappingHead + "      - user:{id}\ntests:\n  - {name: a, table: shop.users, op: delete, after: {id: 1}, keys: []}\n", `f.yaml:10:5: a delete has no after (leave it out)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, problems := Parse("f.yaml", []byte(c.file))
			got := strings.Join(texts(problems), "\n")
			if f != nil || got != c.want && !(strings.HasSuffix(c.want, ": ") && strings.HasPrefix(got, c.want)) {
				t.Errorf("got\n\t%s\nwant\n\t%s", got, c.want)
			}
		})
	}
}

// The same key under two conditions is no mistake: each may be done in its own way.
func TestOneKeyUnderTwoConditions(t *testing.T) {
	s := setFrom(t, metaHead+"      - {key: \"user:{id}\", when: changed(price)}\n      - {key: \"user:{id}\", when: \"!changed(price)\", action: stale}\n")
	for price, want := range map[string]Action{"1": ActionStale, "2": ActionDelete} {
		var r Result
		s.Keys(change(s, cdc.Update, row{"id": integer64("1"), "price": integer64("1")}, row{"id": integer64("1"), "price": integer64(price)}), &r)
		if len(r.Keys) != 1 || r.Keys[0].Template.Action != want {
			t.Errorf("price %s: got %v", price, r.Keys)
		}
	}
}
