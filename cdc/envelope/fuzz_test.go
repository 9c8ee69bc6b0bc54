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
		oneResult(t, d, envelope.Record{Topic: "p.shop.users", Key: key, Value: value})
	})
}

// oneResult checks that a record gives one of the three results, an error of its own, rows that fit, and texts that are text.
func oneResult(t *testing.T, d *envelope.Decoder, rec envelope.Record) {
	c, ignored, err := d.Decode(rec)
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
}

// FuzzOtherFormats reads anything as Maxwell's and as an unwrapped row.
func FuzzOtherFormats(f *testing.F) {
	for _, rec := range []envelope.Record{
		maxwell(`"update"`, `"position":"a:1","data":{"id":7,"email":"b","zoo":[1],"price":1.2E-9},"old":{"email":null}`),
		maxwell(`"bootstrap-insert"`, `"data":{"id":7}`), maxwell(`"table-drop"`, `"sql":"x"`),
		row(`{"id":7,"email":"a","__deleted":"true","__connector":"postgresql","__table":"users","__source_ts_ms":1}`),
		row(`{"id":7,"source":{"db":"x"},"op":"c","after":{}}`), row(`{"schema":{"type":"struct","fields":[]},"payload":{"id":7}}`),
		debezium(cdc.MySQL, "", "1"), {Key: []byte(`{"database":"shop","table":"zoo","pk.id":1}`)},
	} {
		f.Add(rec.Key, rec.Value)
	}
	var decoders []*envelope.Decoder
	for _, format := range []envelope.Format{envelope.Maxwell, envelope.Unwrapped} {
		for _, types := range []bool{false, true} {
			d, err := envelope.NewDecoder(envelope.Config{
				Format: format, Snapshots: true, Binary: envelope.Hex, Select: all(columns("id bigint unsigned; email binary(4); price decimal(10,2); zoo set('a')", types)),
			})
			if err != nil {
				f.Fatal(err)
			}
			decoders = append(decoders, d)
		}
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if len(value) == 0 {
			value = nil
		}
		for _, d := range decoders {
			oneResult(t, d, envelope.Record{Topic: "p.shop.users", Key: key, Value: value})
		}
	})
}

// FuzzAvro reads anything behind any schema, however it is named.
func FuzzAvro(f *testing.F) {
	key, value := usersBody(f)
	f.Add(usersAvro, append([]byte{0, 0, 0, 0, 1}, key...), append([]byte{0, 0, 0, 0, 1}, value...), "", []byte(nil))
	f.Add(usersAvro, []byte(nil), value, "apicurio.value.globalId", id8(1))
	f.Add(usersAvro, []byte(nil), value, "__value_schema_id", []byte{0, 0, 0, 0, 1})
	f.Add(`{"type":"record","name":"V","fields":[{"name":"id","type":{"type":"map","values":{"type":"array","items":"null"}}}]}`, []byte(nil),
		[]byte{0, 0, 0, 0, 1, 2, 2, 'a', 4, 0, 0}, "", []byte(nil))
	f.Fuzz(func(t *testing.T, schema string, key, value []byte, header string, id []byte) {
		if len(schema) > 1<<12 || len(value) > 1<<12 {
			return
		}
		if len(value) == 0 {
			value = nil
		}
		for _, format := range []envelope.Format{envelope.Avro, envelope.Unwrapped} {
			d := avros(t, &registry{texts: []string{schema}}, format, all(columns("id bigint unsigned; email ", true)))
			oneResult(t, d, envelope.Record{Topic: "p.shop.users", Key: key, Value: value, Headers: []envelope.Header{{Key: header, Value: id}}})
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
