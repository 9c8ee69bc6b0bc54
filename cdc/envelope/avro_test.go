package envelope_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/avro"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

// registry is a schema source in memory: a schema's id is its place, from 1.
type registry struct {
	texts []string
	asked []envelope.SchemaID
	err   error
}

func (r *registry) Schema(_ context.Context, id envelope.SchemaID) (string, error) {
	r.asked = append(r.asked, id)
	if r.err != nil {
		return "", r.err
	}
	n := int(id.Number)
	if id.Kind == envelope.GUID {
		n, _ = strconv.Atoi(id.GUID[len(id.GUID)-4:])
	}
	if n < 1 || n > len(r.texts) {
		return "", fmt.Errorf("no schema %s", id)
	}
	return r.texts[n-1], nil
}

// add registers a schema and returns the prefix of its records.
func (r *registry) add(text string) []byte {
	for i, old := range r.texts {
		if old == text {
			return binary.BigEndian.AppendUint32([]byte{0}, uint32(i+1))
		}
	}
	r.texts = append(r.texts, text)
	return binary.BigEndian.AppendUint32([]byte{0}, uint32(len(r.texts)))
}

func avros(t testing.TB, r *registry, format envelope.Format, s envelope.Select) *envelope.Decoder {
	t.Helper()
	d, err := envelope.NewDecoder(envelope.Config{Format: format, Schemas: r, Select: s, Snapshots: true})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// connectSchema is a schema as JsonConverter writes it.
type connectSchema struct {
	Type, Name, Field string
	Optional          bool
	Default           any
	Version           int
	Parameters        map[string]string
	Fields            []connectSchema
	Items, Keys       *connectSchema
	Values            *connectSchema
}

// avroConverter writes schemas and values as Confluent's AvroConverter does.
type avroConverter struct {
	t     testing.TB
	named map[string]bool
}

func (a *avroConverter) schema(s *connectSchema) any {
	out := map[string]any{"type": map[string]string{"int8": "int", "int16": "int", "int32": "int", "int64": "long"}[s.Type]}
	switch s.Type {
	case "int8", "int16":
		out["connect.type"] = s.Type
	case "int32", "int64":
	case "struct":
		name := s.Name
		if name == "" {
			name = fmt.Sprintf("ConnectDefault%d", len(a.named))
		}
		if a.named[name] {
			return a.optional(s, name)
		}
		a.named[name] = true
		fields := []any{}
		for i := range s.Fields {
			f := map[string]any{"name": s.Fields[i].Field, "type": a.schema(&s.Fields[i])}
			if s.Fields[i].Optional {
				f["default"] = nil
			} else if s.Fields[i].Default != nil && s.Fields[i].Type != "bytes" {
				f["default"] = s.Fields[i].Default
			}
			fields = append(fields, f)
		}
		out["type"], out["name"], out["fields"] = "record", name, fields
	case "array":
		out["type"], out["items"] = "array", a.schema(s.Items)
	case "map":
		out["type"], out["values"] = "map", a.schema(s.Values)
	default:
		out["type"] = s.Type
	}
	if s.Name != "" {
		out["connect.name"] = s.Name
	}
	if s.Version > 0 {
		out["connect.version"] = s.Version
	}
	if len(s.Parameters) > 0 {
		out["connect.parameters"] = s.Parameters
	}
	if s.Name == "org.apache.kafka.connect.data.Decimal" {
		scale, _ := strconv.Atoi(s.Parameters["scale"])
		if scale >= 0 {
			out["logicalType"], out["precision"], out["scale"] = "decimal", 64, scale
		}
	}
	return a.optional(s, out)
}

func (a *avroConverter) optional(s *connectSchema, of any) any {
	if s.Optional {
		return []any{"null", of}
	}
	return of
}

// append writes a value: by hand, so that a library's view of logical types is not in between.
func (a *avroConverter) append(out []byte, s *connectSchema, raw json.RawMessage) []byte {
	a.t.Helper()
	if s.Optional {
		if string(raw) == "null" || raw == nil {
			return append(out, 0)
		}
		out = append(out, 2)
	}
	must := func(err error) {
		if err != nil {
			a.t.Fatalf("%s as %s %s: %v", raw, s.Type, s.Name, err)
		}
	}
	if raw == nil {
		var err error
		raw, err = json.Marshal(s.Default)
		must(err)
	}
	text := func() []byte {
		var b string
		must(json.Unmarshal(raw, &b))
		return []byte(b)
	}
	sized := func(b []byte) []byte { return append(binary.AppendVarint(out, int64(len(b))), b...) }
	switch s.Type {
	case "int8", "int16", "int32", "int64":
		n, err := strconv.ParseInt(string(raw), 10, 64)
		must(err)
		return binary.AppendVarint(out, n)
	case "boolean":
		return append(out, map[string]byte{"true": 1, "false": 0}[string(raw)])
	case "string":
		return sized(text())
	case "bytes":
		b, err := base64.StdEncoding.DecodeString(string(text()))
		must(err)
		return sized(b)
	case "float", "double":
		var err error
		if s.Type == "float" {
			var f float32
			must(json.Unmarshal(raw, &f))
			out, err = binary.Append(out, binary.LittleEndian, f)
		} else {
			var f float64
			must(json.Unmarshal(raw, &f))
			out, err = binary.Append(out, binary.LittleEndian, f)
		}
		must(err)
		return out
	case "struct":
		var fields map[string]json.RawMessage
		must(json.Unmarshal(raw, &fields))
		for i := range s.Fields {
			out = a.append(out, &s.Fields[i], fields[s.Fields[i].Field])
		}
		return out
	case "array":
		var items []json.RawMessage
		must(json.Unmarshal(raw, &items))
		if len(items) > 0 {
			out = binary.AppendVarint(out, int64(len(items)))
			for _, item := range items {
				out = a.append(out, s.Items, item)
			}
		}
		return append(out, 0)
	case "map":
		var items map[string]json.RawMessage
		must(json.Unmarshal(raw, &items))
		for name, item := range items { // a block each, its size in bytes before it
			entry := a.append(append(binary.AppendVarint(nil, int64(len(name))), name...), s.Values, item)
			out = append(binary.AppendVarint(append(out, 1), int64(len(entry))), entry...)
		}
		return append(out, 0)
	}
	a.t.Fatalf("type %s", s.Type)
	return nil
}

// toAvro writes one part of a record that JsonConverter wrote with its schema.
func toAvro(t testing.TB, r *registry, part []byte) []byte {
	t.Helper()
	if part == nil {
		return nil
	}
	var w struct {
		Schema  *connectSchema
		Payload json.RawMessage
	}
	if err := json.Unmarshal(part, &w); err != nil || w.Schema == nil {
		t.Fatalf("%v: %s", err, part)
	}
	a := avroConverter{t: t, named: map[string]bool{}}
	text, err := json.Marshal(a.schema(w.Schema))
	if err != nil {
		t.Fatal(err)
	}
	return a.append(r.add(string(text)), w.Schema, w.Payload)
}

// Every record of the samples that came with its schema reads the same as Avro.
func TestAvroSamples(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(samplesDir, "schema.*.jsonl"))
	heartbeats, _ := filepath.Glob(filepath.Join(samplesDir, "__debezium-heartbeat.schema.*.jsonl"))
	if len(files) == 0 || len(heartbeats) == 0 {
		t.Fatal("no samples")
	}
	for _, path := range append(files, heartbeats...) {
		file := filepath.Base(path)
		t.Run(file, func(t *testing.T) {
			database := "postgres"
			if strings.Contains(file, "mysql") {
				database = "mysql"
			}
			var r registry
			for _, types := range []bool{false, true} {
				wanted := selectSamples(database, types)
				asJSON, err := envelope.NewDecoder(envelope.Config{Select: wanted, Snapshots: true})
				if err != nil {
					t.Fatal(err)
				}
				asAvro := avros(t, &r, envelope.Avro, wanted)
				for i, s := range readSamples(t, file) {
					rec := s.record()
					want, wantIgnored, err := asJSON.Decode(rec)
					if err != nil {
						t.Fatal(err)
					}
					framed := envelope.Record{Topic: rec.Topic, Key: toAvro(t, &r, rec.Key), Value: toAvro(t, &r, rec.Value)}
					got, ignored, err := asAvro.Decode(framed)
					if err != nil || ignored != wantIgnored {
						t.Fatalf("record %d: ignored %q, want %q, error %v", i, ignored, wantIgnored, err)
					}
					if diff := cmp.Diff(want, got, exactly); diff != "" {
						t.Errorf("record %d: -as JSON +as Avro\n%s", i, diff)
					}
				}
			}
		})
	}
}

const (
	usersAvro = `{"type":"record","name":"Envelope","namespace":"s.shop.users","fields":[` +
		`{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"email","type":["null","string"],"default":null}]}],"default":null},` +
		`{"name":"after","type":["null","Value"],"default":null},` +
		`{"name":"source","type":{"type":"record","name":"Source","namespace":"io.debezium.connector.mysql","fields":[{"name":"connector","type":"string"},{"name":"name","type":"string"},` +
		`{"name":"db","type":"string"},{"name":"table","type":["null","string"],"default":null}]}},{"name":"op","type":"string"}]}`
	usersKeyAvro = `{"type":"record","name":"Key","namespace":"s.shop.users","fields":[{"name":"id","type":"long"}]}`
)

// usersBody is a delete of user 42, as Avro without any framing; encoded by the library.
func usersBody(t testing.TB) (key, value []byte) {
	t.Helper()
	encode := func(schema string, v any) []byte {
		b, err := avro.MustParse(schema).Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	return encode(usersKeyAvro, map[string]any{"id": int64(42)}), encode(usersAvro, map[string]any{
		"before": map[string]any{"id": int64(42), "email": "a@x.test"}, "after": nil,
		"source": map[string]any{"connector": "mysql", "name": "s", "db": "shop", "table": "users"}, "op": "d",
	})
}

func id8(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// I7: an id of four bytes, of eight, or in a header, which wins over the prefix; the payload behind a header may begin with
// anything.
func TestI7Framing(t *testing.T) {
	key, value := usersBody(t)
	zero := append([]byte{0}, value[1:]...) // before is null: the payload begins with 0
	zero = append(zero[:1], value[1+1+1+len("a@x.test")+1:]...)
	confluent := func(part string, id byte) envelope.Header {
		return envelope.Header{Key: "__" + part + "_schema_id", Value: []byte{0, 0, 0, 0, id}}
	}
	guid := func(part string, id byte) envelope.Header {
		return envelope.Header{Key: "__" + part + "_schema_id", Value: append(append([]byte{1}, make([]byte, 15)...), id)}
	}
	apicurio := func(part, kind string, id byte) envelope.Header {
		return envelope.Header{Key: "apicurio." + part + "." + kind, Value: id8(uint64(id))}
	}
	for _, tt := range []struct {
		name       string
		key, value []byte
		headers    []envelope.Header
		kind       envelope.IDKind
	}{
		{"4 bytes", append([]byte{0, 0, 0, 0, 2}, key...), append([]byte{0, 0, 0, 0, 1}, value...), nil, envelope.ConfluentID},
		{"8 bytes", append(append([]byte{0}, id8(2)...), key...), append(append([]byte{0}, id8(1)...), value...), nil, envelope.GlobalID},
		{"Confluent's header", key, value, []envelope.Header{confluent("key", 2), confluent("value", 1)}, envelope.ConfluentID},
		{"Confluent's header with a GUID", key, value, []envelope.Header{guid("key", 2), guid("value", 1)}, envelope.GUID},
		{"Apicurio's global ids", key, value, []envelope.Header{{Key: "apicurio.value.encoding", Value: []byte("BINARY")}, apicurio("key", "globalId", 2), apicurio("value", "globalId", 1)}, envelope.GlobalID},
		{"Apicurio's content ids", key, value, []envelope.Header{apicurio("key", "contentId", 2), apicurio("value", "contentId", 1)}, envelope.ContentID},
		{"a header wins over what looks like a prefix", key, zero, []envelope.Header{apicurio("key", "globalId", 2), apicurio("value", "globalId", 1)}, envelope.GlobalID},
		{"a key of JSON", []byte(`{"id":42}`), append([]byte{0, 0, 0, 0, 1}, value...), nil, envelope.ConfluentID},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := &registry{texts: []string{usersAvro, usersKeyAvro}}
			d := avros(t, r, envelope.Avro, all(columns("id ; email ", false)))
			for range 2 {
				c := decode(t, d, envelope.Record{Topic: "s.shop.users", Key: tt.key, Value: tt.value, Headers: tt.headers})
				if c.Op != cdc.Delete || c.Before[0].Candidates()[0] != "42" || c.TableID.String() != "shop.users" || !cmp.Equal(c.KeyColumns, []string{"id"}) {
					t.Errorf("%+v", c)
				}
			}
			if len(r.asked) > 2 || r.asked[0].Kind != tt.kind {
				t.Errorf("asked for %v", r.asked)
			}
		})
	}
	r := &registry{texts: []string{usersAvro, usersKeyAvro}}
	d := avros(t, r, envelope.Avro, all(columns("id ; email ", false)))
	if c := decode(t, d, envelope.Record{Topic: "s.shop.users", Key: append([]byte{0, 0, 0, 0, 2}, key...)}); c.Op != cdc.Tomb || c.Before[0].Text() != "42" {
		t.Errorf("tombstone: %+v", c)
	}
}

// I7: whatever is wrong with an id or a schema is said by name; only a registry that does not answer is worth another try.
func TestI7FramingErrors(t *testing.T) {
	_, value := usersBody(t)
	framed := append([]byte{0, 0, 0, 0, 1}, value...)
	for _, tt := range []struct {
		name  string
		texts []string
		err   error
		rec   envelope.Record
		want  string
		retry bool
	}{
		{"registry down", nil, down{}, envelope.Record{Value: framed}, "down", true},
		{"unknown id", nil, nil, envelope.Record{Value: framed}, "no schema id 1", false},
		{"JSON Schema", []string{`{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}`}, nil, envelope.Record{Value: framed}, "JSON Schema and Protobuf are not read", false},
		{"Protobuf", []string{`syntax = "proto3"; message A {}`}, nil, envelope.Record{Value: framed}, "JSON Schema and Protobuf are not read", false},
		{"another schema", []string{usersKeyAvro}, nil, envelope.Record{Value: framed}, "written with another schema?", false},
		{"recursive", []string{`{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}`}, nil, envelope.Record{Value: framed}, "holds itself", false},
		{"cut", []string{usersAvro}, nil, envelope.Record{Value: framed[:12]}, "in the middle", false},
		{"id 0", nil, nil, envelope.Record{Value: []byte{0, 0, 0, 0, 0, 1}}, "a schema id of 0", false},
		{"a short header", nil, nil, envelope.Record{Value: value, Headers: []envelope.Header{{Key: "apicurio.value.globalId", Value: []byte{1}}}}, "an id has 8", false},
		{"Confluent's header", nil, nil, envelope.Record{Value: value, Headers: []envelope.Header{{Key: "__value_schema_id", Value: []byte{9}}}}, "no schema id", false},
		{"Avro as JSON", nil, nil, envelope.Record{Value: value, Headers: []envelope.Header{{Key: "apicurio.value.encoding", Value: []byte("JSON")}}}, "BINARY", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := avros(t, &registry{texts: tt.texts, err: tt.err}, envelope.Avro, all(columns("id ", false))).Decode(tt.rec)
			var de *envelope.DecodeError
			if !errors.As(err, &de) || !strings.Contains(err.Error(), tt.want) || de.Retryable() != tt.retry {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	if _, _, err := decoder(t, all(columns("id ", false))).Decode(envelope.Record{Value: framed}); err == nil || !strings.Contains(err.Error(), "registry") {
		t.Errorf("without a registry: %v", err)
	}
	if _, err := envelope.NewDecoder(envelope.Config{Format: envelope.Avro}); err == nil {
		t.Error("avro without a registry is no error")
	}
}

type down struct{}

func (down) Error() string   { return "the registry is down" }
func (down) Retryable() bool { return true }

// I3 and I7: an unwrapped row may be Avro too.
func TestI3UnwrappedAvro(t *testing.T) {
	const schema = `{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"email","type":["null","string"]},{"name":"__deleted","type":["null","string"]},` +
		`{"name":"__connector","type":"string"}]}`
	body, err := avro.MustParse(schema).Encode(map[string]any{"id": int64(7), "email": "a", "__deleted": "true", "__connector": "postgresql"})
	if err != nil {
		t.Fatal(err)
	}
	r := &registry{}
	c := decode(t, avros(t, r, envelope.Unwrapped, all(columns("id ; email ", false))), envelope.Record{Topic: "s.shop.users", Value: append(r.add(schema), body...)})
	if c.Op != cdc.Delete || c.Before[0] != integer("7") || c.Before[1] != text("a") {
		t.Errorf("%+v", c)
	}
}

// A schema that does not come from Connect says with logical types what it means, and holds what JSON has no form for.
func TestAvroLogicalTypes(t *testing.T) {
	for _, tt := range []struct {
		typ, body string // in hex
		want      string
	}{
		{`{"type":"bytes","logicalType":"decimal","precision":10,"scale":2}`, "04ff9c", "-1.00"},
		{`{"type":"fixed","name":"F","size":2,"logicalType":"decimal","precision":4,"scale":1}`, "04d2", "123.4"},
		{`{"type":"int","logicalType":"date"}`, "c0c002", "2026-02-28"},
		{`{"type":"long","logicalType":"timestamp-micros"}`, "82", ""},
		{`{"type":"string","logicalType":"uuid"}`, "0278", "x"},
		{`{"type":"enum","name":"E","symbols":["A","B"]}`, "02", "B"},
		{`["null","string","int"]`, "020278", "?"},
		{`{"type":"array","items":"int"}`, "03040204 00", "{1,2}"},
		{`"double"`, "000000000000f87f", "~NaN"},
		{`"float"`, "0000c03f", "~1.5"},
		{`"boolean"`, "01", "t"},
	} {
		t.Run(tt.typ, func(t *testing.T) {
			r := &registry{}
			id := r.add(`{"type":"record","name":"Value","fields":[{"name":"id","type":"int"},{"name":"v","type":` + tt.typ + `},{"name":"__connector","type":"string"}]}`)
			raw, err := hex.DecodeString("0e" + strings.ReplaceAll(tt.body, " ", "") + "14" + hex.EncodeToString([]byte("postgresql")))
			if err != nil {
				t.Fatal(err)
			}
			c, _, err := avros(t, r, envelope.Unwrapped, all(columns("id ; v ", false))).Decode(envelope.Record{Topic: "s.shop.users", Value: append(id, raw...)})
			if tt.want == "" {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			reads(t, tt.want, cdc.Value{Kind: cdc.Text, S: tt.want}, c.After[1])
		})
	}
}

// A few bytes cannot claim more elements than a record holds.
func TestAvroBombs(t *testing.T) {
	for _, items := range []string{`"null"`, `{"type":"record","name":"Empty","fields":[]}`, `"int"`} {
		for _, count := range []int64{1 << 60, -1 << 60, -1 << 63} {
			r := &registry{}
			body := binary.AppendVarint(r.add(`{"type":"record","name":"V","fields":[{"name":"a","type":{"type":"array","items":`+items+`}}]}`), count)
			if count < 0 {
				body = append(body, 0)
			}
			_, _, err := avros(t, r, envelope.Unwrapped, all(columns("id ", false))).Decode(envelope.Record{Topic: "s.shop.users", Value: body})
			if err == nil {
				t.Errorf("%s %d: no error", items, count)
			}
		}
	}
	if !bytes.Equal((&registry{texts: []string{"a"}}).add("a"), []byte{0, 0, 0, 0, 1}) {
		t.Error("ids count from 1")
	}
}
