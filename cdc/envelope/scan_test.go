package envelope

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
)

// The scanner takes exactly what encoding/json takes, up to the depth that it allows, and reads a text as that does.
func TestScannerIsJSON(t *testing.T) {
	pieces := rapid.SampledFrom([]string{
		`"`, `\`, `\"`, `\u00e9`, `\ud83d\ude00`, `\ud83d`, "\x1f", "\t", " ", "{", "}", "[", "]", ":", ",", "-", "0", "12", ".5", "e+3", "true", "null",
		"abcdefgh", "é", `"k":`, "!", "\x7f", "#",
	})
	rapid.Check(t, func(t *rapid.T) {
		var in []byte
		quote := rapid.Bool().Draw(t, "quoted")
		for range rapid.IntRange(0, 12).Draw(t, "n") {
			in = append(in, pieces.Draw(t, "piece")...)
		}
		if quote {
			in = append(append([]byte{'"'}, in...), '"')
		}
		s := scanner{b: in}
		raw, err := s.raw()
		if err == nil {
			err = s.end()
		}
		if ok := json.Valid(in); ok != (err == nil) {
			t.Fatalf("%q: %v; encoding/json takes it: %v", in, err, ok)
		}
		if err != nil || raw[0] != '"' {
			return
		}
		var want string
		if err := json.Unmarshal(in, &want); err != nil {
			t.Fatal(err)
		}
		if text, ok := unquote(raw); ok && string(text) != want {
			t.Fatalf("%q: %q; want %q", in, text, want)
		}
	})
}
