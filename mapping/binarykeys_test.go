package mapping

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
	"pgregory.net/rapid"

	"invalidator/cdc"
)

// binaryHead begins a file whose clients send keys in base64 where they have to.
const binaryHead = "version: 1\nteam: profiles\npools: [u]\nunderivable: [feed]\nreaders: meta\nbinary_keys: base64\nmappings:\n  - name: user\n    table: shop.users\n    keys:\n"

func TestH1_KeysForBase64(t *testing.T) {
	const space = "u: " // a template that has one itself
	for _, c := range []struct {
		name, entry, column, keys string
		skipped                   string
	}{
		{"a space", `"u:{k}"`, "a b", `"u:a b"`, ""},
		{"a line break", `"u:{k}"`, "a\r\nmd b", `"u:a\r\nmd b"`, ""},
		{"NUL, DEL, and no UTF-8", `"u:{k}"`, "\x00\x7f\xff", `"u:\x00\x7f\xff"`, ""},
		{"a plain one", `"u:{k}"`, "a", `"u:a"`, ""},
		{"a plain one of 250 bytes", `"u:{k}"`, strings.Repeat("x", 248), `"u:` + strings.Repeat("x", 248) + `"`, ""},
		{"a plain one of 251 bytes", `"u:{k}"`, strings.Repeat("x", 249), "", "after bad_key u:{k} "},
		{"186 bytes", `"u:{k}"`, strings.Repeat("x", 183) + " ", `"u:` + strings.Repeat("x", 183) + ` "`, ""},
		{"187 bytes", `"u:{k}"`, strings.Repeat("x", 184) + " ", "", "after bad_key u:{k} "},
		{"184 bytes and #8", `{key: "u:{k}", hot: 8}`, strings.Repeat("x", 181) + " ", `"u:` + strings.Repeat("x", 181) + ` "`, ""},
		{"185 bytes and #8", `{key: "u:{k}", hot: 8}`, strings.Repeat("x", 182) + " ", "", "after bad_key u:{k} "},
		{"in the template", `"` + space + `{k}"`, "a", `"u: a"`, ""},
		{"in a list", `{key: "u:{l}:{k}", each: {l: ["a b", "c\0"]}}`, "x", `"u:a b:x" "u:c\x00:x"`, ""},
		{"a raw one", `{raw: "{k}"}`, "feed:a b", `"feed:a b"`, ""},
		{"a raw one of another pool", `{raw: "{k}"}`, "shop:a b", "", "after pool {k} k"},
		{"of elements", `"u:{k|elements(',')}"`, "a b,c", `"u:a b" "u:c"`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := setFrom(t, binaryHead+"      - "+c.entry+"\n")
			got, skipped := keys(s, change(s, cdc.Insert, nil, row{"k": text(c.column)}))
			for i := range got {
				got[i] = fmt.Sprintf("%q", got[i])
			}
			if diff := cmp.Diff(c.keys, strings.Join(got, " ")); diff != "" {
				t.Error("keys", diff)
			}
			if diff := cmp.Diff(c.skipped, strings.Join(skipped, ", ")); diff != "" {
				t.Error("skipped", diff)
			}
		})
	}
}

// The bytes of a column stand in the key as they are, and another file's template of the same row is in error alone.
func TestBinaryKeysAreAFilesOwn(t *testing.T) {
	declares := parse(t, binaryHead+"      - u:{k}\n")
	other, problems := Parse("g.yaml", []byte("version: 1\nteam: b\npools: [w]\nreaders: meta\nmappings:\n  - {name: w, table: shop.users, keys: [\"w:{k}\", \"w:{k|hex}\"]}\n"))
	if other == nil {
		t.Fatal(problems)
	}
	s, problems := NewSet([]*File{declares, other})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	got, skipped := keys(s, change(s, cdc.Insert, nil, row{"k": raw("\x00\xff ")}))
	if want := []string{"u:\x00\xff ", "w:00ff20"}; !cmp.Equal(got, want) || !cmp.Equal(skipped, []string{"after bad_key w:{k} "}) {
		t.Errorf("got %q, skipped %q", got, skipped)
	}
}

func TestLogicalMessagesForBase64(t *testing.T) {
	s := setFrom(t, binaryHead+"      - u:{k}\n")
	for content, want := range map[string]string{
		"feed:a b":                            "",
		"u:\x00":                              "",
		"u:" + strings.Repeat("x", 184) + " ": detailLongBase64,
		"u:" + strings.Repeat("x", 250):       detailLong,
	} {
		var r Result
		s.Keys(&cdc.RowChange{Op: cdc.Message, Prefix: "cache", Content: []byte(content)}, &r)
		switch {
		case want == "" && (len(r.Keys) != 1 || r.Keys[0].Text != content || !r.Keys[0].Template.Base64):
			t.Errorf("%q: got %v, skipped %v", content, r.Keys, r.Skipped)
		case want != "" && (len(r.Skipped) != 1 || r.Skipped[0].Detail != want || r.Skipped[0].Reason != SkipBadKey):
			t.Errorf("%q: got %v, skipped %v, want %s", content, r.Keys, r.Skipped, want)
		}
	}
}

func TestBinaryKeysProblems(t *testing.T) {
	const keys = "mappings:\n  - name: user\n    table: shop.users\n    keys:\n      - user:{id}\n"
	for _, c := range []struct{ name, file, want string }{
		{"classic readers", head + "readers: classic\nbinary_keys: base64\n" + keys,
			"f.yaml:5:14: binary_keys is for readers that speak the meta protocol, and the file's are classic (write readers: meta if they speak it, or leave binary_keys out)"},
		{"readers that come later", head + "binary_keys: base64\n" + keys + "readers: classic\n",
			"f.yaml:4:14: binary_keys is for readers that speak the meta protocol, and the file's are classic (write readers: meta if they speak it, or leave binary_keys out)"},
		{"readers by default", head + "binary_keys: base64\n" + keys,
			"f.yaml:4:14: binary_keys is for readers that speak the meta protocol, and the file's are classic (write readers: meta if they speak it, or leave binary_keys out)"},
		{"another way", head + "readers: meta\nbinary_keys: base46\n" + keys, `f.yaml:5:14: binary_keys must be base64, not "base46" (did you mean "base64"?)`},
		{"a boolean", head + "readers: meta\nbinary_keys: true\n" + keys, `f.yaml:5:14: binary_keys is true, which YAML reads as a boolean (write "true" in quotes)`},
		{"a pool", "version: 1\nteam: a\npools: [\"a b\"]\nreaders: meta\nbinary_keys: base64\n",
			`f.yaml:3:9: a pool has no ' ' in its name: "a b" (a pool is what stands before a key's first :)`},
		{"never short enough", binaryHead + "      - {key: \"u:" + strings.Repeat("x", 182) + " {id}\", hot: 8}\n", `f.yaml:11:16: the key is never under 187 bytes, and memcached takes 186`},
		{"a key twice in a test", head + keys + "tests:\n  - name: a\n    table: shop.users\n    after: {id: 1}\n    keys: [[\"user:\", {hex: 61}], \"user:a\"]\n",
			`f.yaml:13:34: key "user:a" is doubled: it stands in line 13 already`},
		{"a key in pieces that is none", head + keys + "tests:\n  - name: a\n    table: shop.users\n    after: {id: 1}\n    keys: [[\"user:\", {hex: 6}], [\"a\", [\"b\"]], [{hex: \"\"}]]\n",
			"f.yaml:13:28: the bytes of the key are not hexadecimal: \"6\"\nf.yaml:13:39: a piece of a key must be a text, not a list\nf.yaml:13:47: a key is empty"},
	} {
		t.Run(c.name, func(t *testing.T) { refused(t, c.file, c.want) })
	}
}

func TestCheckClassic(t *testing.T) {
	if got := setFrom(t, metaHead+"      - user:{id}\n").CheckClassic(); len(got) > 0 {
		t.Errorf("got %v of a file without binary_keys", got)
	}
	want := "f.yaml:6:14: the configuration has cache.protocol: classic, which cannot delete keys with spaces or control bytes: their changes are parked (set cache.protocol: meta if the nodes speak it, or leave binary_keys out)"
	if got := texts(setFrom(t, binaryHead+"      - u:{id}\n").CheckClassic()); !cmp.Equal(got, []string{want}) {
		t.Errorf("got %q", got)
	}
}

func TestBinaryKeysInTests(t *testing.T) {
	f := parse(t, binaryHead+"      - u:{k}\ntests:\n"+
		"  - {name: right, table: shop.users, before: {k: {hex: 00ff}}, after: {k: a b}, keys: [[\"u:\", {hex: 00ff}], \"u:a b\"]}\n"+
		"  - {name: wrong, table: shop.users, before: {k: {hex: 00ff}}, after: {k: a b}, keys: [[\"u:\", {hex: 00}], \"u:\\x7f\", \"u:ÿ\"]}\n")
	results := f.RunTests()
	if !results[0].OK() {
		t.Error(results[0])
	}
	missing, unexpected := []string{`"u:\x00"`, `"u:\x7f"`, "u:ÿ"}, []string{`["u:\x00", {hex: ff}]`, `"u:a b"`}
	if diff := cmp.Diff([][]string{missing, unexpected}, [][]string{results[1].Missing, results[1].Unexpected}); diff != "" {
		t.Error(diff)
	}
}

// What a failed test shows can be put into the file as it is.
func TestShowKeyReadsBack(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var key string
		for _, piece := range rapid.SliceOfN(rapid.SampledFrom([]string{"u:", "é", "\ufffd", " ", "\x00", "\x7f", "\u0085", "\u2028", "\"", "\\", "\xff", "\xc3", "\xf0\x9f", "😀", "{", "#"}), 1, 8).Draw(rt, "pieces") {
			key += piece
		}
		shown := ShowKey(key)
		if shown == key { // a plain text, which somebody puts into quotes
			return
		}
		r := reader{file: "f"}
		root := r.document([]byte("[" + shown + "]"))
		if root == nil {
			rt.Fatalf("%q is shown as %s: %v", key, shown, r.problems)
		}
		if got := r.testKeys(root, "keys"); len(got) != 1 || got[0] != key {
			rt.Fatalf("%q is shown as %s, which reads as %q: %v", key, shown, got, r.problems)
		}
	})
	var n yaml.Node // the trap that pieces are for: an escape is a character in YAML, not a byte
	if err := yaml.Unmarshal([]byte(`"\xff"`), &n); err != nil || n.Content[0].Value != "ÿ" {
		t.Errorf("got %q, %v", n.Content[0].Value, err)
	}
}

func TestDiffOfBinaryKeys(t *testing.T) {
	const plain = "version: 1\nteam: a\npools: [u]\nreaders: meta\n"
	const mappings = "mappings:\n  - name: user\n    table: shop.users\n    columns: {id: bigint}\n    keys: [\"u:{id}\", \"u:{url}\", \"u:url:{url|urlencode}\", \"u:h:{url|sha1}\", \"u:up:{url|upper}\"]\n"
	was, is := setOf(t, plain+mappings), setOf(t, plain+"binary_keys: base64\n"+mappings)
	for _, c := range []struct {
		was, is *Set
		want    string
	}{
		{was, is, "changed u:{url} replay; binary_keys: none -> base64\nchanged u:up:{url|upper} replay; binary_keys: none -> base64"},
		{is, was, "changed u:{url}; binary_keys: base64 -> none; warns: changes no longer delete its keys with a space or a control byte\n" +
			"changed u:up:{url|upper}; binary_keys: base64 -> none; warns: changes no longer delete its keys with a space or a control byte"},
		{is, is, ""},
	} {
		if diff := cmp.Diff(c.want, told(Diff(c.was, c.is))); diff != "" {
			t.Error(diff)
		}
	}
}
