package mapping

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"invalidator/cdc"
)

// FuzzJSONElements compares the elements of a JSON array with those that encoding/json finds.
func FuzzJSONElements(f *testing.F) {
	for _, s := range []string{`[]`, ` [ ]`, `["a",1,null,{"b":[]},true,1.50]`, `["é\n\ud83d\ude00"]`, `["\ud83d"]`, `[1,]`, `[,1]`, `[1 2]`, `[1]x`, `[01]`, "[\"\xff\"]", "[\"\x01\"]", `[`, `[[[]]] `, `[0:1]`, "[\t1 ,\r\n2 ]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.Contains(s, "]={") || !strings.HasPrefix(s, "[") || strings.Count(s, "[")+strings.Count(s, "{") > maxNesting {
			return
		}
		list, detail := new(listing).elements(s, &filter{filterType: filterElements})
		var want []json.RawMessage
		if err := json.Unmarshal([]byte(s), &want); err != nil || !utf8.ValidString(s) {
			if detail != detailDoc || list != nil {
				t.Fatalf("%q: %v, %s, and it is no JSON", s, list, detail)
			}
			return
		}
		if len(want) > maxElements {
			if detail != detailElements || list != nil {
				t.Fatalf("%d elements: %s", len(want), detail)
			}
			return
		}
		var texts []string
		for _, raw := range want {
			var text string
			switch {
			case raw[0] == '{', raw[0] == '[': // which is no one text
				continue
			case raw[0] == 'n':
			case raw[0] != '"':
				text = string(raw)
			case json.Unmarshal(raw, &text) != nil || strings.ContainsRune(text, utf8.RuneError) && detail == detailUTF16: // half a pair of code units
				return
			}
			texts = append(texts, text)
		}
		var got []string
		for _, v := range list {
			got = append(got, v.S)
		}
		if detail != detailUTF16 && strings.Join(got, "\x00") != strings.Join(texts, "\x00") {
			t.Fatalf("%q: %q, want %q (%s)", s, got, texts, detail)
		}
	})
}

// A list is taken apart in room that is there already, however it is written.
func TestElementsAllocateNothing(t *testing.T) {
	s := set(t, "u:{v|elements|lower}", "u:{id}:{w|elements(', ')|sha1(8)|upper}")
	for _, list := range []string{`["A","b\n\"",3,null]`, `{a,"b \"c\"",{d},NULL}`, `[0:1]={x,"y,z"}`} {
		c := change(s, cdc.Update, row{"id": text("7"), "v": text(list), "w": text("p, q, r")}, row{"id": text("7"), "v": text(list), "w": text("p, s")})
		var r Result
		keys := 0
		n := testing.AllocsPerRun(100, func() {
			r.Reset()
			s.Keys(c, &r)
			keys = len(r.Keys)
		})
		if n > 0 || keys < 6 {
			t.Errorf("%s: %v allocations for %d keys", list, n, keys)
		}
	}
}

// What a list gave stays as it was when the room for the next one is too small.
func TestElementsAsTheRoomGrows(t *testing.T) {
	s := set(t, "u:{v|elements}")
	var r Result
	for n := range 200 {
		var want []string
		for i := range n {
			want = append(want, strings.Repeat("x", i%40)+"y")
		}
		quoted, _ := json.Marshal(want)
		r.Reset()
		s.Keys(change(s, cdc.Insert, nil, row{"v": text(string(quoted))}), &r)
		seen := map[string]bool{}
		for _, k := range r.Keys {
			seen[k.Text] = true
		}
		for _, w := range want {
			if !seen["u:"+w] {
				t.Fatalf("%d elements: %q is missing", n, w)
			}
		}
	}
}
