package envelope_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

func keysDecoder(t failer) *envelope.Decoder {
	d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Keys, Source: "invalidator.keys"})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return d
}

// A record of keys is a change of no table, whose keys are texts of their own.
func TestKeysThatWereSent(t *testing.T) {
	d := keysDecoder(t)
	for value, want := range map[string]struct {
		keys    []string
		ordinal int64
	}{
		`{"v":1,"keys":["user:1"]}`: {[]string{"user:1"}, 0},
		`{"v":1,"keys":["a","b"],"by":"ann@ops","reason":"wrong prices","ordinal":500}`:  {[]string{"a", "b"}, 501},
		` { "keys" : [ "a" , "caf\u00e9 \ud83d\ude00" , "<&>" ] , "v" : 1 } `:            {[]string{"a", "café 😀", "<&>"}, 2},
		`{"v":1,"keys_base64":["YQD/"]}`:                                                 {[]string{"a\x00\xff"}, 0},
		`{"v":1,"keys":["user:1"],"keys_base64":["YQD/"],"more":{"keys":[7]},"more":[]}`: {[]string{"user:1", "a\x00\xff"}, 1},
		`{"v":1,"keys":[""]}`: {[]string{""}, 0}, // which the mappings refuse
		`{"v":1,"keys":null,"keys_base64":["Yg=="],"ordinal":"many"}`: {[]string{"b"}, 0},
		`{"v":1,"keys":["a"],"ordinal":-5}`:                           {[]string{"a"}, 0},
	} {
		rec := envelope.Record{Topic: "invalidator.keys", Key: []byte("anything"), Value: []byte(value)}
		c, ignored, err := d.Decode(rec)
		if err != nil || ignored != "" {
			t.Errorf("%s: ignored %q, error %v", value, ignored, err)
			continue
		}
		clear(rec.Value) // a client's buffer that is used again
		if c.Op != cdc.Keys || c.Source != "invalidator.keys" || c.Table != "" || c.Columns != nil || !c.CommitTime.IsZero() || !slices.Equal(c.Keys, want.keys) || c.Ordinal != want.ordinal {
			t.Errorf("%s: %+v", value, c)
		}
	}
	for _, none := range []string{`{"v":1,"keys":[]}`, `{"v":1,"keys":[],"keys_base64":[],"by":"x"}`} {
		if _, ignored, err := d.Decode(envelope.Record{Value: []byte(none)}); ignored != envelope.IgnoredEmpty || err != nil {
			t.Errorf("%s: ignored %q, error %v", none, ignored, err)
		}
	}
}

// What may mean another key than it says is no record of keys: it is parked, and nothing is deleted in its place.
func TestKeysThatCannotBeRead(t *testing.T) {
	d := keysDecoder(t)
	for value, want := range map[string]string{
		``:                                  "not a JSON object",
		`null`:                              "not a JSON object",
		`["user:1"]`:                        "not a JSON object",
		`{"v":1,"keys":["user:1"]`:          "ends in the middle",
		`{"v":1,"keys":["user:1"]} x`:       "text after",
		`{"v":2,"keys":["user:1"]}`:         `version "2", this program reads 1`,
		`{"v":"1","keys":["user:1"]}`:       "version",
		`{"keys":["user:1"]}`:               `version ""`,
		`{"v":1}`:                           "neither keys nor keys_base64",
		`{"v":1,"key":"user:1"}`:            "neither keys nor keys_base64",
		`{"v":1,"keys":"user:1"}`:           "keys is no list",
		`{"v":1,"keys":{"user:1":1}}`:       "keys is no list",
		`{"v":1,"keys":["user:1",7]}`:       "keys[1] is no text",
		`{"v":1,"keys":[null]}`:             "keys[0] is no text",
		`{"v":1,"keys":[["user:1"]]}`:       "keys[0] is no text",
		`{"v":1,"keys":["a"],"keys":["b"]}`: "stands twice",
		`{"v":1,"keys":["a\ud800b"]}`:       "keys[0] has half a character",
		"{\"v\":1,\"keys\":[\"a\xffb\"]}":   "keys[0]: it is not valid UTF-8",
		`{"v":1,"keys_base64":["a b"]}`:     "keys_base64[0]: not base64",
		`{"v":1,"keys_base64":[1]}`:         "keys_base64[0] is no text",
		`{"v":1,"keys":["a"`:                "ends in the middle",
		"\x00\x00\x00\x00\x01\x02":          "",
	} {
		c, ignored, err := d.Decode(envelope.Record{Topic: "invalidator.keys", Value: []byte(value)})
		if c != nil || ignored != "" || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, ignored %q, error %v, want %q", value, c, ignored, err, want)
		}
	}
	if _, _, err := d.Decode(envelope.Record{Key: []byte("user:1")}); err == nil || !strings.Contains(err.Error(), "without a value") {
		t.Errorf("a record without a value: %v", err)
	}
}

// FuzzKeys reads anything: what is read has the keys that any reader of JSON finds there.
func FuzzKeys(f *testing.F) {
	for _, seed := range []string{`{"v":1,"keys":["user:1","a\u00e9"],"keys_base64":["YQD/"],"ordinal":7}`, `{"v":1,"keys":[]}`, `{"v":1,"keys":["a","b",]}`, `{"v":1,"keys":[,]}`, "\xff"} {
		f.Add([]byte(seed))
	}
	d := keysDecoder(f)
	f.Fuzz(func(t *testing.T, value []byte) {
		if value == nil {
			value = []byte{}
		}
		c, ignored, err := d.Decode(envelope.Record{Topic: "invalidator.keys", Value: value})
		if err != nil {
			return
		}
		var want struct {
			V      int
			Keys   []string
			Base64 [][]byte `json:"keys_base64"`
		}
		if err := json.Unmarshal(exactNames(t, value), &want); err != nil {
			t.Fatalf("read, and it is none: %v: %q", err, value)
		}
		for _, k := range want.Base64 {
			want.Keys = append(want.Keys, string(k))
		}
		if c == nil {
			if ignored != envelope.IgnoredEmpty || len(want.Keys) > 0 {
				t.Fatalf("ignored %q with the keys %q: %q", ignored, want.Keys, value)
			}
			return
		}
		if want.V != 1 || !slices.Equal(c.Keys, want.Keys) {
			t.Fatalf("keys %q, want %q: %q", c.Keys, want.Keys, value)
		}
	})
}

// exactNames takes members out that encoding/json would take for ours: it does not mind capitals.
func exactNames(t *testing.T, value []byte) []byte {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(value, &all); err != nil {
		t.Fatalf("read, and it is no JSON: %v: %q", err, value)
	}
	for name := range all {
		if !slices.Contains([]string{"v", "keys", "keys_base64"}, name) {
			delete(all, name)
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
