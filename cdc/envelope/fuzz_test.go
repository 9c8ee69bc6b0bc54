package envelope_test

import (
	"errors"
	"path/filepath"
	"testing"
	"unicode/utf8"

	"invalidator/cdc"
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
