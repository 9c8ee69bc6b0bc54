package envelope_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/avro"
	"pgregory.net/rapid"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

// bothWays reads Avro as it stands and by way of JSON.
type bothWays struct {
	direct, asJSON *envelope.Decoder
	scratch        envelope.Scratch
}

func newBothWays(t testing.TB, r *registry, s envelope.Select) *bothWays {
	return &bothWays{direct: avros(t, r, envelope.Avro, s), asJSON: avros(t, r, envelope.Avro, s)}
}

// same compares the two ways for a record, and reports whether it is a change.
func (b *bothWays) same(t failer, rec envelope.Record) bool {
	t.Helper()
	b.asJSON.Decode(rec) // knows its schemas from now on
	if envelope.ReadsAvroWhereItStands(b.asJSON) {
		envelope.WriteAvroAsJSON(b.asJSON)
	}
	want, wantIgnored, wantErr := b.asJSON.Decode(rec)
	if errors.Is(wantErr, envelope.ErrAvroBomb) { // what is not written cannot be too long
		return false
	}
	got, ignored, err := b.direct.DecodeInto(context.Background(), rec, &b.scratch)
	if ignored != wantIgnored || (err == nil) != (wantErr == nil) {
		t.Fatalf("ignored %q, error %v; by way of JSON %q, %v\nvalue %x", ignored, err, wantIgnored, wantErr, rec.Value)
	}
	if diff := cmp.Diff(want, got, exactly, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Fatalf("-by way of JSON +as it stands\n%s\nvalue %x", diff, rec.Value)
	}
	return got != nil
}

// Every record of the samples, whole and broken, says as Avro the same where it stands as by way of JSON.
func TestAvroWhereItStands(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(samplesDir, "*schema.*.jsonl"))
	changes, direct := 0, false
	for _, path := range files {
		database := "postgres"
		if strings.Contains(path, "mysql") {
			database = "mysql"
		}
		for _, types := range []bool{false, true} {
			r := &registry{}
			both := newBothWays(t, r, selectSamples(database, types))
			for _, s := range readSamples(t, filepath.Base(path)) {
				rec := envelope.Record{Topic: s.record().Topic, Key: toAvro(t, r, s.record().Key), Value: toAvro(t, r, s.record().Value)}
				if both.same(t, rec) {
					changes++
				}
				for at := 5; at < len(rec.Value); at += 1 + len(rec.Value)/30 {
					broken := rec
					broken.Value = bytes.Clone(rec.Value)
					broken.Value[at] ^= 1 << (at % 8)
					both.same(t, broken)
					broken.Value = rec.Value[:at]
					both.same(t, broken)
				}
			}
			direct = direct || envelope.ReadsAvroWhereItStands(both.direct)
		}
	}
	if changes < 50 || !direct {
		t.Errorf("%d changes were compared, as they stand: %v", changes, direct)
	}
}

// anyColumn draws a column's Avro type and a value of it for the library, with the text that it must be read as; no text where that is
// another test's.
func anyColumn(t *rapid.T, label string) (typ string, value any, text *string) {
	say := func(s string) *string { return &s }
	switch rapid.IntRange(0, 11).Draw(t, label) {
	case 0:
		n := rapid.Int32().Draw(t, "int")
		return `"int"`, n, say(strconv.Itoa(int(n)))
	case 1:
		n := rapid.Int64().Draw(t, "long")
		return `"long"`, n, say(strconv.FormatInt(n, 10))
	case 2:
		s := rapid.String().Draw(t, "string")
		return `"string"`, s, say(s)
	case 3:
		b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		return `"bytes"`, b, say(`\x` + fmt.Sprintf("%x", b))
	case 4:
		b := rapid.Bool().Draw(t, "boolean")
		return `"boolean"`, b, say(map[bool]string{true: "t", false: "f"}[b])
	case 5:
		return `"double"`, rapid.Float64().Draw(t, "double"), nil
	case 6:
		return `"float"`, rapid.Float32().Draw(t, "float"), nil
	case 7:
		list := rapid.SliceOf(rapid.Int64()).Draw(t, "array")
		return `{"type":"array","items":"long"}`, list, nil
	case 8:
		m := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "map")
		return `{"type":"map","values":"string"}`, m, nil
	case 9:
		symbol := rapid.SampledFrom([]string{"A", "B", "C"}).Draw(t, "enum")
		return `{"type":"enum","name":"` + label + `","symbols":["A","B","C"]}`, symbol, say(symbol)
	case 10:
		b := rapid.SliceOfN(rapid.Byte(), 3, 3).Draw(t, "fixed")
		return `{"type":"fixed","name":"` + label + `","size":3}`, b, say(`\x` + fmt.Sprintf("%x", b))
	}
	typ, value, text = anyColumn(t, label+"n")
	if strings.HasPrefix(typ, `["null"`) {
		return typ, value, text
	}
	if rapid.Bool().Draw(t, "null") {
		value, text = nil, nil
	}
	return `["null",` + typ + `]`, value, text
}

// What the library writes of any schema is read as the library reads it: the wanted columns, whatever stands beside them.
func TestAvroOfAnySchema(t *testing.T) {
	compared := 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "columns")
		var fields []string
		row, texts := map[string]any{}, map[string]*string{}
		var wanted []cdc.Column
		for i := range n {
			name := fmt.Sprintf("c%d", i)
			typ, value, text := anyColumn(t, name)
			fields = append(fields, fmt.Sprintf(`{"name":%q,"type":%s}`, name, typ))
			row[name], texts[name] = value, text
			if rapid.Bool().Draw(t, "wanted") {
				wanted = append(wanted, cdc.Column{Name: name})
			}
		}
		schema := `{"type":"record","name":"E","fields":[{"name":"before","type":["null",{"type":"record","name":"V","fields":[` + strings.Join(fields, ",") + `]}]},` +
			`{"name":"extra","type":{"type":"array","items":["null","string"]}},{"name":"after","type":["null","V"]},` +
			`{"name":"source","type":{"type":"record","name":"S","fields":[{"name":"connector","type":"string"},{"name":"db","type":"string"},{"name":"x","type":["null","long"]},` +
			`{"name":"schema","type":"string"},{"name":"table","type":"string"}]}},{"name":"op","type":"string"}]}`
		parsed, err := avro.Parse(schema)
		if err != nil {
			t.Fatal(err)
		}
		record := map[string]any{"op": "u", "before": row, "after": row, "extra": []any{nil, "x"}, "source": map[string]any{
			"connector": "postgresql", "db": "d", "schema": "public", "table": "t", "x": int64(9)}}
		if rapid.Bool().Draw(t, "insert") {
			record["op"], record["before"] = "c", nil
		}
		body, err := parsed.Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		r := &registry{texts: []string{schema}}
		both, cols := &bothWays{}, cdc.NewColumns(wanted)
		for _, d := range []**envelope.Decoder{&both.direct, &both.asJSON} {
			if *d, err = envelope.NewDecoder(envelope.Config{Format: envelope.Avro, Schemas: r, Select: all(cols)}); err != nil {
				t.Fatal(err)
			}
		}
		rec := envelope.Record{Topic: "p.public.t", Value: append([]byte{0, 0, 0, 0, 1}, body...)}
		if !both.same(t, rec) || !envelope.ReadsAvroWhereItStands(both.direct) {
			t.Fatal("no change, or not as it stands")
		}
		c, _, _ := both.direct.Decode(rec)
		for i, col := range wanted {
			switch v, text := c.After[i], texts[col.Name]; {
			case row[col.Name] == nil && v.Kind != cdc.Null:
				t.Fatalf("%s: %+v of NULL", col.Name, v)
			case text != nil && v.Text() != *text:
				t.Fatalf("%s: %+v, want %q of %s", col.Name, v, *text, schema)
			case text != nil:
				compared++
			}
		}
		at := rapid.IntRange(5, len(rec.Value)-1).Draw(t, "broken at")
		rec.Value[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		both.same(t, rec)
	})
	if compared < 50 {
		t.Errorf("%d values were compared", compared)
	}
}

// A schema that is no envelope as Debezium writes them is read by way of JSON; what has a like name is no image.
func TestAvroThatIsNoEnvelope(t *testing.T) {
	for _, fields := range []string{
		`{"name":"source","type":"string"}`,
		`{"name":"source","type":{"type":"map","values":"string"}}`,
		`{"name":"before","type":{"type":"map","values":"string"}},{"name":"source","type":{"type":"record","name":"S","fields":[]}}`,
		`{"name":"source","type":{"type":"record","name":"S","fields":[{"name":"invalidator","type":"string"}]}}`,
		`{"name":"source","type":["null",{"type":"record","name":"S","fields":[]},{"type":"record","name":"T","fields":[]}]}`,
	} {
		r := &registry{texts: []string{`{"type":"record","name":"E","fields":[` + fields + `,{"name":"op","type":"string"}]}`}}
		d := avros(t, r, envelope.Avro, all(columns("id ", false)))
		d.Decode(envelope.Record{Topic: "a.b.c", Value: []byte{0, 0, 0, 0, 1, 0, 0}})
		if len(r.asked) != 1 || envelope.ReadsAvroWhereItStands(d) {
			t.Errorf("%s: asked %v, and read as it stands", fields, r.asked)
		}
	}
}

// A few bytes cannot claim more elements than a record holds, wanted or passed over; and nothing is made for what they claim.
func TestAvroBombsWhereTheyStand(t *testing.T) {
	for _, items := range []string{`"null"`, `{"type":"record","name":"Empty","fields":[]}`, `"int"`} {
		for _, count := range []int64{1 << 60, -1 << 60, -1 << 63} {
			r := &registry{}
			body := r.add(`{"type":"record","name":"E","fields":[{"name":"after","type":{"type":"record","name":"V","fields":[{"name":"a","type":{"type":"array","items":` + items + `}}]}},` +
				`{"name":"source","type":{"type":"record","name":"S","fields":[{"name":"table","type":"string"}]}},{"name":"op","type":"string"}]}`)
			if body = binary.AppendVarint(body, count); count < 0 {
				body = append(body, 0)
			}
			for _, cols := range []string{"id ", "a "} {
				d := avros(t, r, envelope.Avro, all(columns(cols, false)))
				_, _, err := d.Decode(envelope.Record{Topic: "s.shop.users", Value: body})
				if err == nil || !envelope.ReadsAvroWhereItStands(d) {
					t.Errorf("%s %d: error %v", items, count, err)
				}
			}
		}
	}
}

// FuzzAvroWhereItStands reads anything as a record of an envelope's schema, by both ways.
func FuzzAvroWhereItStands(f *testing.F) {
	const wide = `{"type":"record","name":"E","fields":[{"name":"before","type":["null",{"type":"record","name":"V","fields":[{"name":"id","type":"long"},` +
		`{"name":"email","type":["null","string"]},{"name":"tags","type":{"type":"array","items":["null","string"]}},{"name":"m","type":{"type":"map","values":"bytes"}},` +
		`{"name":"d","type":"double"},{"name":"e","type":{"type":"enum","name":"X","symbols":["A","B"]}},{"name":"f","type":{"type":"fixed","name":"F","size":2}},` +
		`{"name":"n","type":{"type":"array","items":"null"}}]}]},{"name":"after","type":["null","V"]},{"name":"source","type":{"type":"record","name":"S","fields":[` +
		`{"name":"connector","type":"string"},{"name":"db","type":"string"},{"name":"table","type":["null","string"]},{"name":"snapshot","type":["null","string"]}]}},` +
		`{"name":"op","type":["null","string"]},{"name":"transaction","type":["null",{"type":"record","name":"T","fields":[{"name":"id","type":"string"},{"name":"total_order","type":"long"}]}]},` +
		`{"name":"ts_ms","type":["null","long"]},{"name":"more","type":["null","float","boolean"]}]}`
	var row map[string]any
	if err := json.Unmarshal([]byte(`{"email":"a@x.test","tags":["a",null],"m":{}}`), &row); err != nil {
		f.Fatal(err)
	}
	row["id"], row["d"], row["e"], row["f"], row["n"] = int64(-7), 1.5, "B", []byte{1, 2}, []any{nil, nil}
	for _, op := range []string{"u", "c", "d", "r", "t", "m", "x"} {
		body, err := avro.MustParse(wide).Encode(map[string]any{
			"before": row, "after": row, "op": op, "ts_ms": int64(5), "more": true, "transaction": map[string]any{"id": "t:1", "total_order": int64(3)},
			"source": map[string]any{"connector": connectorOf(op), "db": "shop", "table": "users", "snapshot": "false"},
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(`{"id":7}`), body)
	}
	f.Add([]byte(nil), []byte{2, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	r := &registry{texts: []string{wide}}
	var ways []*bothWays
	for _, types := range []bool{false, true} {
		ways = append(ways, newBothWays(f, r, all(columns("id bigint unsigned; email ; tags ; m ; n ; d ; f ; absent ", types))))
	}
	f.Fuzz(func(t *testing.T, key, body []byte) {
		for _, both := range ways {
			both.same(t, envelope.Record{Topic: "p.shop.users", Key: key, Value: append([]byte{0, 0, 0, 0, 1}, body...)})
		}
	})
}

func connectorOf(op string) string {
	if op == "d" || op == "u" {
		return "postgresql"
	}
	return "mysql"
}
