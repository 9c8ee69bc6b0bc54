package mapping

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"invalidator/cdc"
)

func TestJSONFilter(t *testing.T) {
	// A12, as MySQL and Postgres show it
	const a12 = `{"a": 12345678901234567890.12, "b": 1.0}`
	for _, c := range []struct{ filters, in, want string }{
		{"json('a')", a12, "12345678901234567890.12"},
		{"json('b')", a12, "1.0"},
		{"json('b')|int", a12, "1"},
		{"json('a')|int|mod(100)", a12, "90"},
		// B7: all digits
		{"json('id')", `{"id": 9007199254740993}`, "9007199254740993"},
		{"json('id')|mod(10)", `{"id": 18446744073709551615}`, "5"},
		{"json('id')", `{"id": 1e3}`, "1e3"},
		{"json('id')", `{"id": -0.5E-2}`, "-0.5E-2"},

		{"json('a.b[1].c')", `{"a":{"b":[{"c":1},{"c":"x y"}]}}`, "x y"},
		{"json('[1]')", `[1, 2]`, "2"},
		{"json('[0][1]')", `[[1, 2]]`, "2"},
		{"json('[1]')", `{"1": 2}`, "skip null"},
		{"json('a.1')", `{"a": [1, 2]}`, "skip null"},
		{"json('\"a.b\".c')", `{"a.b": {"c": true}}`, "true"},
		{"json('\"\"')", `{"": 1}`, "1"},
		{"json('user id')", `{"user id": 1}`, "1"},
		{"json('é')", `{"\u00e9": "\u00fc"}`, "ü"},
		{"json('a')", `{"\u0061": 1}`, "1"},
		{"json('a')", `{"a": "\ud83d\ude00\"\\\/\b\f\n\r\t"}`, "😀\"\\/\b\f\n\r\t"},
		{"json('a')", `{"a": "\ufffd"}`, "\ufffd"},
		{"json('a')", `{"a": ""}`, ""},
		{"json('a')", `{"a": false}`, "false"},
		{"json('a')", " \n{\t\"a\" :\r1 } ", "1"},
		{"json('a')", `{"a": 1, "a": 2}`, "2"},
		{"json('a.b')", `{"a": {"b": 1}, "a": {}}`, "skip null"},

		// what is not there is NULL, as in SQL
		{"json('x')", a12, "skip null"},
		{"json('a.x')", a12, "skip null"},
		{"json('a')", `{"a": null}`, "skip null"},
		{"json('a')", `null`, "skip null"},
		{"json('[2]')", `[1, 2]`, "skip null"},
		{"json('x')|default('none')", a12, "none"},
		{"json('x')|lower|default('none')", a12, "none"},
		{"json('a')|default('none')", `{"a": null}`, "none"},

		{"json('a')", `{"a": {}}`, "skip type"},
		{"json('a')", `{"a": [1]}`, "skip type"},
		{"json('a')|default('none')", `{"a": []}`, "skip type"},
		{"json('a')", `{"a": "\ud83d"}`, "skip type"},
		{"json('a')", `{"a": "\ude00\ud83d"}`, "skip type"},
		{"json('a')", "{\"a\": \"\xff\"}", "skip type"},
		{"json('a')", `{"a": "\x"}`, "skip type"},
		{"json('a')", `{"a": 1`, "skip type"},
		{"json('a')", `{"a": 1} 2`, "skip type"},
		{"json('a')", `{"a": 1, }`, "skip type"},
		{"json('a')", `{"a": 01}`, "skip type"},
		{"json('a')", `{"a": -}`, "skip type"},
		{"json('a')", `{"a": 1.}`, "skip type"},
		{"json('a')", `{"a": 1e}`, "skip type"},
		{"json('a')", `{"a": nul}`, "skip type"},
		{"json('a')", `{a: 1}`, "skip type"},
		{"json('a')", `{"a"}`, "skip type"},
		{"json('a')", ``, "skip type"},
		{"json('a')", strings.Repeat("[", 5000), "skip type"},
		{"json('a')", strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "skip type"},
	} {
		for _, in := range []cdc.Value{doc(c.in), text(c.in)} { // MariaDB's json is a text
			if got := filtered(t, c.filters, in); got != c.want {
				t.Errorf("%s of %.50s: got %q, want %q", c.filters, c.in, got, c.want)
			}
		}
	}
	if got := filtered(t, "json('a')", raw(`{"a": 1}`)); got != "skip type" {
		t.Errorf("of bytes: got %q", got)
	}
}

func TestJSONPaths(t *testing.T) {
	for _, path := range []string{"", ".", ".a", "a.", "a..b", "a[", "a[]", "a[x]", "a[-1]", "a[+1]", "a[1", "a[1]b", "a]", "a[*]", "a.*", "**", "$", "$.a", "$[0]",
		`"a`, `"a"b`, `a"b"`, strings.Repeat("a.", 40) + "a"} {
		if got, bad := parsePath(argument{text: path, isText: true}); bad == nil {
			t.Errorf("%q: got %v", path, got)
		}
	}
	if got, bad := parsePath(argument{text: `a.b[0]."c.d"[12]`}); bad != nil || fmt.Sprint(got) != "[{a -1} {b -1} { 0} {c.d -1} { 12}]" {
		t.Errorf("got %v, %v", got, bad)
	}
}

// lookUp is the filter by way of encoding/json.
func lookUp(text string, path []pathStep) string {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || !json.Valid([]byte(text)) {
		return "skip type"
	}
	for _, s := range path {
		switch in := v.(type) {
		case map[string]any:
			v = in[s.name]
			if s.index != noIndex {
				v = nil
			}
		case []any:
			v = nil
			if s.index >= 0 && s.index < len(in) {
				v = in[s.index]
			}
		default:
			v = nil
		}
	}
	switch v := v.(type) {
	case nil:
		return "skip null"
	case map[string]any, []any:
		return "skip type"
	default:
		return fmt.Sprint(v)
	}
}

func TestJSONAgreesWithTheLibrary(t *testing.T) {
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		scalars := []*rapid.Generator[any]{rapid.Just[any](nil), rapid.Bool().AsAny(), rapid.Int64().AsAny(), rapid.String().AsAny(), rapid.Float64Range(-1e9, 1e9).AsAny()}
		if depth == 0 {
			return rapid.OneOf(scalars...)
		}
		inner := rapid.Deferred(func() *rapid.Generator[any] { return value(depth - 1) })
		return rapid.OneOf(append(scalars, rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "a.b", "é\""}), inner, 0, 4).AsAny(), rapid.SliceOfN(inner, 0, 3).AsAny())...)
	}
	paths := []string{"a", "b", "a.b", `"a.b"`, "[0]", "a[1]", "a.a", "[0].b", "b[0].a"}
	rapid.Check(t, func(rt *rapid.T) {
		data, err := json.Marshal(value(3).Draw(rt, "document"))
		if err != nil {
			rt.Fatal(err)
		}
		path := rapid.SampledFrom(paths).Draw(rt, "path")
		steps, _ := parsePath(argument{text: path})
		if got, want := filtered(t, "json('"+path+"')", doc(string(data))), lookUp(string(data), steps); got != want {
			rt.Errorf("%s of %s: got %q, want %q", path, data, got, want)
		}
	})
}

// Whatever stands in a column: what the library takes for a document, so does the filter, and finds the same in it.
func FuzzJSONFilter(f *testing.F) {
	for _, s := range []string{`{"a":{"b":[1,"x"]}}`, `{"a":"\ud83d\ude00"}`, `[1e5,-0.1]`, `{"a":null,"a":true}`, "{\"a\":\"\xff\"}", `{"a":`} {
		f.Add(s, "a.b[1]")
	}
	f.Fuzz(func(t *testing.T, text, path string) {
		steps, bad := parsePath(argument{text: path})
		if bad != nil {
			return
		}
		s, _ := bindJSON([]argument{{text: path, isText: true}})
		out, kind, trouble := s([]byte("u:"), []byte(text), cdc.JSON)
		if valid := json.Valid([]byte(text)); valid == (trouble == detailDoc) && strings.Count(text, "[")+strings.Count(text, "{") < maxNesting {
			t.Errorf("%q: valid is %v, trouble %q", text, valid, trouble)
		}
		if trouble != "" || kind == cdc.Null || kind == cdc.JSON || !utf8.ValidString(text) || strings.Contains(text, `\u`) {
			return
		}
		if want := lookUp(text, steps); string(out) != "u:"+want {
			t.Errorf("%q at %q: got %q, want %q", text, path, out, want)
		}
	})
}
