package envelope_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

// reference is a record's envelope as encoding/json reads it; ok is false where it is no change of a row, or not for sure.
type reference struct {
	before, after map[string]any
	op            string
	ok            bool
}

func readReference(value []byte) (r reference) {
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber()
	var v map[string]any
	if !json.Valid(value) || d.Decode(&v) != nil {
		return r
	}
	if payload, ok := v["payload"].(map[string]any); ok && v["schema"] == nil && v["op"] == nil {
		v = payload
	}
	source, _ := v["source"].(map[string]any)
	r.op, _ = v["op"].(string)
	var isRow [2]bool
	r.before, isRow[0] = v["before"].(map[string]any)
	r.after, isRow[1] = v["after"].(map[string]any)
	snapshot, _ := source["snapshot"].(string)
	_, ours := source["invalidator"]
	r.ok = source != nil && !ours && v["schema"] == nil && (snapshot == "" || snapshot == "false") && (source["snapshot"] == nil || snapshot != "") &&
		(v["before"] == nil || isRow[0]) && (v["after"] == nil || isRow[1]) && (r.op == "u" && isRow[1] || r.op == "c" && isRow[1] || r.op == "d" && isRow[0])
	return r
}

// saidOfRecord are what a good JSON text is refused for: what encoding/json does not look at.
var saidOfRecord = []string{"stands twice", "nested deeper", "not valid UTF-8", "name is not valid text", "by a newer one"}

// agrees compares a decoder, whose record before was another, with encoding/json: no record is read that is no JSON, none that is a
// change is refused, and its texts and whole numbers are the same. It reports whether there was a change.
func agrees(t failer, d *envelope.Decoder, s *envelope.Scratch, value []byte) bool {
	t.Helper()
	c, _, err := d.DecodeInto(context.Background(), envelope.Record{Topic: "p.shop.users", Value: value}, s)
	want := readReference(value)
	if c == nil {
		for _, said := range saidOfRecord {
			if err != nil && strings.Contains(err.Error(), said) {
				return false
			}
		}
		if want.ok {
			t.Fatalf("no change, error %v: %q", err, value)
		}
		return false
	}
	if !json.Valid(value) || !utf8.Valid(value) {
		t.Fatalf("read, and it is no JSON text: %q", value)
	}
	if !want.ok {
		return false
	}
	for i, col := range c.Columns.List {
		sameValue(t, value, want.before, c.Before, i, col.Name)
		sameValue(t, value, want.after, c.After, i, col.Name)
	}
	return true
}

func sameValue(t failer, value []byte, image map[string]any, row cdc.Row, i int, name string) {
	t.Helper()
	v, is := image[name]
	if (image == nil) != (row == nil) {
		t.Fatalf("an image is there, or is not: %q", value)
	}
	if row == nil {
		return
	}
	text, isText := v.(string)
	number, isNumber := v.(json.Number)
	got := row[i]
	switch {
	case !is && got.Kind != cdc.Absent, is && v == nil && got.Kind != cdc.Null && got.Kind != cdc.Absent:
		t.Fatalf("%s is %v, want %v: %q", name, got, v, value)
	case isText && name == "email" && got.Kind == cdc.Text && got.S != text:
		t.Fatalf("%s is %q, want %q: %q", name, got.S, text, value)
	case isText && name == "email" && got.Kind == cdc.Absent && !strings.Contains(text, "unavailable"):
		t.Fatalf("%s is absent, want %q: %q", name, text, value)
	case isNumber && name == "id" && got.Kind == cdc.Integer && !strings.ContainsAny(number.String(), ".eE-") && got.S != number.String():
		t.Fatalf("%s is %q, want %s: %q", name, got.S, number, value)
	}
}

func strictDecoder(t testing.TB) *envelope.Decoder {
	t.Helper()
	return decoder(t, all(cdc.NewColumns([]cdc.Column{{Name: "id", Type: "bigint"}, {Name: "email", Type: "varchar(200)"}, {Name: "version", Type: "int"}})))
}

// FuzzAgainstJSON reads two records one after the other, so that the second is read by what the first was like.
func FuzzAgainstJSON(f *testing.F) {
	users := []byte(`{"before":{"id":1844674407,"email":"ada@example.test","version":17},"after":{"id":18,"email":"b\u00e9\"","version":-1},"source":{"version":"3",` +
		`"connector":"mysql","name":"s","ts_ms":1796028134000,"snapshot":"false","db":"shop","sequence":null,"table":"users","gtid":null,"pos":3289,"row":0},` +
		`"op":"u","ts_ms":1,"transaction":null}`)
	for _, s := range []string{"plain.mysql.shop.users.jsonl", "plain.postgres.shop.users.jsonl"} {
		for _, sample := range readSamples(f, s) {
			f.Add(users, sample.record().Value)
		}
	}
	for _, with := range []string{`"id":01`, `"id":1.`, `"id":"1`, `"id":1 `, `"id" :1`, `"id":[1,]`, `"id":tru`, `"id":"\x"`, "\"id\":\"a\x01\"", "\"id\":\"\xff\"", `"id":{"a":1,"a":}`, `"id":1,"id":2`, `"\u0069d":5`, `"id":12345678901234567890e`} {
		f.Add(users, bytes.Replace(users, []byte(`"id":18`), []byte(with), 1))
	}
	for _, cut := range []string{`"version":-1`, `17`, `"ada@example.test"`, `,"version":17`, `:-1`, `-1}`} {
		f.Add(users, bytes.Replace(users, []byte(cut), nil, 1))
	}
	f.Add(users, users)
	d := strictDecoder(f)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		var s envelope.Scratch
		agrees(t, d, &s, first)
		agrees(t, d, &s, second)
	})
}

// One byte that is another or doubled, or some that are left out, at every place: what is read still is what encoding/json reads.
func TestStrictAtEveryByte(t *testing.T) {
	d := strictDecoder(t)
	var s envelope.Scratch
	good := debezium(cdc.MySQL, "", `"x"`).Value
	good = bytes.Replace(good, []byte(`"id":`), []byte(`"version":12,"email":"ada.lovelace@example.test","id":`), 1)
	read := 0
	for at := range good {
		for _, with := range []string{"", `"`, `\`, "{", "}", "[", "]", ",", ":", "0", "-", ".", "e", "n", " ", "\n", "\x00", "\xff", string(good[at]) + string(good[at])} {
			if !agrees(t, d, &s, good) {
				t.Fatal("the good record is no change")
			}
			if agrees(t, d, &s, fmt.Appendf(nil, "%s%s%s", good[:at], with, good[at+1:])) {
				read++
			}
		}
		for _, n := range []int{2, 3, 4, 5, 8, 12, 21, 34} {
			if !agrees(t, d, &s, good) {
				t.Fatal("the good record is no change")
			}
			agrees(t, d, &s, slices.Delete(bytes.Clone(good), at, min(at+n, len(good))))
		}
	}
	if read < 100 {
		t.Errorf("%d changed records are changes: the texts are not compared", read)
	}
}
