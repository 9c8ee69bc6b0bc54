package envelope_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"invalidator/cdc"
	"invalidator/cdc/cdctest"
	"invalidator/cdc/envelope"
)

// FuzzDecode reads anything: one of the three results, an error that is the record's own, and texts that are text.
func FuzzDecode(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join(samplesDir, "*.jsonl"))
	for _, path := range files {
		for _, s := range readSamples(f, filepath.Base(path)) {
			if rec := s.record(); len(rec.Value) < 4096 {
				f.Add(rec.Key, rec.Value)
			}
		}
	}
	rec := encode(f, change(), envelope.Options{})
	f.Add(rec.Key, rec.Value)
	f.Add([]byte(`{"id":1}`), []byte(nil))
	f.Add([]byte(nil), []byte("\xff\x00\x7b"))
	d, err := envelope.NewDecoder(envelope.Config{
		Snapshots: true,
		Select: func(_ string, t cdc.TableID) *cdc.Columns {
			if list, ok := declared["mysql."+t.Table]; ok {
				return columns(list, len(t.Schema)%2 == 0)
			}
			return users
		},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if len(value) == 0 {
			value = nil
		}
		c, ignored, err := d.Decode(envelope.Record{Topic: "p.shop.users", Key: key, Value: value})
		results := 0
		for _, set := range []bool{c != nil, ignored != "", err != nil} {
			if set {
				results++
			}
		}
		var de *envelope.DecodeError
		if results != 1 || err != nil && !errors.As(err, &de) {
			t.Fatalf("change %v, ignored %q, error %v", c, ignored, err)
		}
		if c == nil {
			return
		}
		for _, row := range []cdc.Row{c.Before, c.After} {
			if row != nil && len(row) != len(c.Columns.List) {
				t.Fatalf("%d values for %d columns", len(row), len(c.Columns.List))
			}
			for _, v := range row {
				if v.Kind != cdc.Bytes && !utf8.ValidString(v.Text()) {
					t.Fatalf("kind %d: %q is no text", v.Kind, v.Text())
				}
			}
		}
	})
}

// FuzzDeclaredType reads any value under any declared type: the record is good, whatever the column is.
func FuzzDeclaredType(f *testing.F) {
	for _, v := range cdctest.Types(f) {
		f.Add(string(v.Server), v.Type, v.JSON)
	}
	f.Add("", "timestamp(99)", `"2026-02-28T12:00:00Z"`)
	f.Fuzz(func(t *testing.T, conn, typ, value string) {
		if !json.Valid([]byte(value)) || !utf8.ValidString(value) || len(value) > 1<<12 {
			return
		}
		d := decoder(t, all(cdc.NewColumns([]cdc.Column{{Name: "id"}, {Name: "v", Type: typ}})))
		rec := debezium(cdc.MySQL, "", value)
		rec.Value = bytes.Replace(rec.Value, []byte(`"connector":"mysql"`), fmt.Appendf(nil, `"connector":%q`, connectors[len(conn)%len(connectors)]), 1)
		c, ignored, err := d.Decode(rec)
		if err != nil && strings.Contains(err.Error(), "nested deeper") {
			return
		}
		if err != nil || ignored != "" {
			t.Fatalf("%s as %s: ignored %q, error %v", value, typ, ignored, err)
		}
		v := c.After[1]
		for _, text := range v.Candidates() {
			if v.Kind != cdc.Bytes && !utf8.ValidString(text) {
				t.Fatalf("%s as %s: %q is no text", value, typ, text)
			}
		}
		if v.Kind == cdc.Unclear && v.Why == "" {
			t.Fatalf("%s as %s is unclear, and nothing says why", value, typ)
		}
	})
}

var connectors = []cdc.Connector{"", cdc.MySQL, cdc.MariaDB, cdc.Postgres}
