package sink

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHotKeys(t *testing.T) {
	source := map[string]int{"feed:1": 8}
	h := NewHotKeys(42, source)
	source["feed:2"] = 4 // h has its own map
	if h.Copies("feed:1") != 8 || h.Copies("feed:2") != 0 || h.Len() != 1 || h.Revision() != 42 {
		t.Errorf("got %d, %d, %d keys, revision %d", h.Copies("feed:1"), h.Copies("feed:2"), h.Len(), h.Revision())
	}
	if empty := NewHotKeys(0, nil); empty.Copies("feed:1") != 0 || empty.Len() != 0 {
		t.Error("no map is not an empty registry")
	}
}

func TestParseHotEntry(t *testing.T) {
	for _, c := range []struct {
		name, value string
		key         string
		copies      int
		err         string
	}{
		{"feed:1", `{"copies": 8, "since": "2026-11-30T10:00:00Z"}`, "feed:1", 8, ""},
		{"a%2Fb+c%C3%AB", `{"copies": 1}`, "a/b+cë", 1, ""},
		{"feed:1", `{"copies": 64, "until": 5}`, "feed:1", 64, ""},
		{"feed:1", `{"copies": 65}`, "", 0, `hot key "feed:1": copies is 65 or missing (write 1 to 64, or remove the entry)`},
		{"feed:1", `{}`, "", 0, `hot key "feed:1": copies is 0 or missing (write 1 to 64, or remove the entry)`},
		{"feed:1", `{"copies": 8, "copies": 9}`, "", 0, `hot key "feed:1": copies: the field is there twice (write {"copies": 8})`},
		{"feed:1", `8`, "", 0, `hot key "feed:1": a number does not belong here (write {"copies": 8})`},
		{"feed%zz", `{"copies": 8}`, "", 0, `hot key "feed%zz": decoding its name: invalid URL escape "%zz" (percent-encode the key)`},
		{"feed%20%00%FF", `{"copies": 8}`, "feed \x00\xff", 8, ""}, // of clients that send keys in base64
		{strings.Repeat("x", 251), `{"copies": 8}`, "", 0, `key "` + strings.Repeat("x", 251) + `" cannot be in memcached: it is 251 bytes long, the limit is 250`},
		{"", `{"copies": 8}`, "", 0, `key "" cannot be in memcached: it is empty`},
	} {
		key, copies, err := ParseHotEntry(c.name, []byte(c.value))
		switch {
		case c.err == "" && (err != nil || key != c.key || copies != c.copies):
			t.Errorf("%s %s: got %q, %d, %v", c.name, c.value, key, copies, err)
		case c.err != "" && (err == nil || err.Error() != c.err):
			t.Errorf("%s %s: got %v, want %s", c.name, c.value, err, c.err)
		}
	}
}

func TestParseHotFile(t *testing.T) {
	h, err := ParseHotFile("hot.json", []byte(`{"feed:1": {"copies": 8}, "café": {"copies": 2, "since": "2026-11-30T10:00:00Z"}}`), 3)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int{"feed:1": 8, "café": 2}, maps.Collect(h.Each)); diff != "" || h.Revision() != 3 {
		t.Errorf("revision %d, hot keys (-want +got):\n%s", h.Revision(), diff)
	}
}

func TestParseHotFileSaysWhatIsWrong(t *testing.T) {
	for data, want := range map[string]string{
		"{\n\"feed:1\": {\"copies\": 0}}":                              `hot.json: hot key "feed:1": copies is 0 or missing (write 1 to 64, or remove the entry)`,
		"{\n\"feed:1\": {\"copies\": 1}, \"feed:1\": {\"copies\": 2}}": `hot.json:2: feed:1: the field is there twice (write {"user:1": {"copies": 8}, …})`,
		`[{"key": "feed:1", "copies": 8}]`:                             `hot.json:1: a list does not belong here (write {"user:1": {"copies": 8}, …})`,
	} {
		if _, err := ParseHotFile("hot.json", []byte(data), 0); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", data, err, want)
		}
	}
}

func fits(key string) bool {
	_, err := CheckMetaKey(key)
	return err == nil
}

func FuzzParseHot(f *testing.F) {
	f.Add("feed%3A1", []byte(`{"copies": 8}`))
	f.Add("", []byte(`{"feed:1": {"copies": 8}}`))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		if key, copies, err := ParseHotEntry(name, data); err == nil && (!fits(key) || copies < 1 || copies > MaxHotCopies) {
			t.Errorf("took %q with %d copies", key, copies)
		}
		if h, err := ParseHotFile("hot.json", data, 0); err == nil {
			for key, copies := range h.Each {
				if !fits(key) || copies < 1 || copies > MaxHotCopies {
					t.Errorf("took %q with %d copies", key, copies)
				}
			}
		}
	})
}
