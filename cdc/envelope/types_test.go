package envelope_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"invalidator/cdc"
	"invalidator/cdc/cdctest"
	"invalidator/cdc/envelope"
)

// debezium makes a record of one column v, as a Debezium connector writes it; schema is empty for none.
func debezium(conn cdc.Connector, schema, value string) envelope.Record {
	payload := fmt.Sprintf(`{"before":null,"after":{"id":7,"v":%s},"source":{"connector":"%s","name":"s","ts_ms":1796028134579,"snapshot":"false",`+
		`"db":"shop","schema":"shop","table":"zoo"},"op":"c","ts_ms":1796028134591}`, value, conn)
	if schema != "" {
		payload = fmt.Sprintf(`{"schema":{"type":"struct","fields":[{"type":"struct","fields":[%s],"optional":true,"field":"after"}],"optional":false},`+
			`"payload":%s}`, schema, payload)
	}
	return envelope.Record{Topic: "s.shop.zoo", Value: []byte(payload)}
}

// fieldSchema writes out TYPES.md's short form of a column's schema.
func fieldSchema(short string) string {
	base, arg, _ := strings.Cut(strings.TrimSuffix(short, ")"), "(")
	semantic := map[string]string{
		"Bits": "bytes io.debezium.data.Bits", "Enum": "string io.debezium.data.Enum", "EnumSet": "string io.debezium.data.EnumSet",
		"Json": "string io.debezium.data.Json", "Uuid": "string io.debezium.data.Uuid", "VariableScaleDecimal": "struct io.debezium.data.VariableScaleDecimal",
		"Date": "int32 io.debezium.time.Date", "Timestamp": "int64 io.debezium.time.Timestamp", "MicroTimestamp": "int64 io.debezium.time.MicroTimestamp",
		"ZonedTimestamp": "string io.debezium.time.ZonedTimestamp", "Time": "int32 io.debezium.time.Time", "MicroTime": "int64 io.debezium.time.MicroTime",
		"MicroDuration": "int64 io.debezium.time.MicroDuration", "Year": "int32 io.debezium.time.Year",
		"Decimal": "bytes org.apache.kafka.connect.data.Decimal",
	}
	if item, ok := strings.CutPrefix(short, "array "); ok {
		return fmt.Sprintf(`{"type":"array","items":{"type":"%s","optional":true},"optional":true,"field":"v"}`, item)
	}
	wire, name, ok := strings.Cut(semantic[base], " ")
	if !ok {
		return fmt.Sprintf(`{"type":"%s","optional":true,"field":"v"}`, short)
	}
	params := ""
	switch base {
	case "Decimal":
		params = fmt.Sprintf(`"parameters":{"scale":"%s"},`, arg)
	case "VariableScaleDecimal":
		params = `"fields":[{"type":"int32","optional":false,"field":"scale"},{"type":"bytes","optional":false,"field":"value"}],`
	case "Bits":
		params = fmt.Sprintf(`"parameters":{"length":"%s"},`, arg)
	}
	return fmt.Sprintf(`{"type":"%s","optional":true,"name":"%s","version":1,%s"field":"v"}`, wire, name, params)
}

// reads checks what is read of v against a cell of the table.
func reads(t *testing.T, cell string, want cdc.Value, got cdc.Value) {
	t.Helper()
	texts := []string{want.Text()}
	switch {
	case cell == "?":
		if got.Kind != cdc.Unclear || got.Why == "" {
			t.Errorf("kind %d, text %q; want unclear with its reason", got.Kind, got.Text())
		}
		return
	case cell != "" && cell[0] == '~':
		if got.Kind != cdc.Float {
			t.Errorf("kind %d; want a float", got.Kind)
		}
		texts = []string{cell[1:]}
	case cell != "":
		texts = strings.Split(cell, " or ")
	case want.Kind == cdc.Bytes || want.Kind == cdc.Bytea || want.Kind == cdc.JSON:
		if got.Kind != want.Kind {
			t.Errorf("kind %d; want %d", got.Kind, want.Kind)
		}
	}
	if g, w := strings.Join(got.Candidates(), " or "), strings.Join(texts, " or "); g != w {
		t.Errorf("%q (kind %d, %s); want %q", g, got.Kind, got.Why, w)
	}
}

// Every row of TYPES.md gives its text by every route (A1, A2, A5, A13, B1, B7, I4).
func TestTypes(t *testing.T) {
	for _, v := range cdctest.Types(t) {
		for _, conn := range v.Connectors() {
			t.Run(fmt.Sprintf("%s/%s/%s/%s", conn, v.Type, v.Insert, v.Schema), func(t *testing.T) {
				bare, typed := columns("id ; v ", false), cdc.NewColumns([]cdc.Column{{Name: "id"}, {Name: "v", Type: v.Type}})
				schema := `{"type":"int32","field":"id"},` + fieldSchema(v.Schema)
				propagated := strings.Replace(schema, `"field":"v"`, fmt.Sprintf(`"parameters":{"__debezium.source.column.type":"%s"},"field":"v"`, v.Type), 1)
				if strings.Contains(schema, `"parameters"`) {
					propagated = strings.Replace(schema, `"parameters":{`, fmt.Sprintf(`"parameters":{"__debezium.source.column.type":"%s",`, v.Type), 1)
				}
				for _, route := range []struct {
					name, schema string
					cols         *cdc.Columns
					cell         string
				}{
					{"with schema", schema, bare, v.WithSchema},
					{"with schema, declared", schema, typed, v.Declared},
					{"with schema, propagated", propagated, bare, v.Declared},
					{"without schema, declared", "", typed, v.Declared},
					{"without schema", "", bare, v.Neither},
				} {
					t.Run(route.name, func(t *testing.T) {
						c := decode(t, decoder(t, all(route.cols)), debezium(conn, route.schema, v.JSON))
						reads(t, route.cell, v.Value, c.After[1])
						if route.schema != "" {
							r := &registry{}
							rec := debezium(conn, route.schema, v.JSON)
							rec.Value = toAvro(t, r, wholeSchema(rec.Value))
							c = decode(t, avros(t, r, envelope.Avro, all(route.cols)), rec)
							reads(t, route.cell, v.Value, c.After[1])
						}
						c = decode(t, unwrapping(t, all(route.cols)), unwrapped(conn, route.schema, v.JSON))
						reads(t, route.cell, v.Value, c.After[1])
					})
				}
				t.Run("maxwell", func(t *testing.T) { fromMaxwell(t, bare, typed, v) })
				t.Run("our envelope", func(t *testing.T) { ours(t, conn, bare, v) })
			})
		}
	}
}

// wholeSchema adds to a record of debezium what its schema leaves out of the envelope.
func wholeSchema(value []byte) []byte {
	text := func(name string) string { return fmt.Sprintf(`{"type":"string","field":"%s"}`, name) }
	rest := `"field":"after"},{"type":"struct","name":"Source","fields":[` + text("connector") + "," + text("name") + "," + text("db") + "," + text("schema") + "," + text("table") +
		`],"field":"source"},` + text("op") + `],"optional":false}`
	return bytes.Replace(value, []byte(`"field":"after"}],"optional":false}`), []byte(rest), 1)
}

// unwrapped makes the same record as debezium without its envelope.
func unwrapped(conn cdc.Connector, schema, value string) envelope.Record {
	payload := fmt.Sprintf(`{"id":7,"v":%s,"__deleted":"false","__op":"c","__connector":"%s"}`, value, conn)
	if schema != "" {
		payload = fmt.Sprintf(`{"schema":{"type":"struct","fields":[%s],"optional":false},"payload":%s}`, schema, payload)
	}
	return envelope.Record{Topic: "s.shop.zoo", Value: []byte(payload)}
}

func unwrapping(t testing.TB, s envelope.Select) *envelope.Decoder {
	t.Helper()
	d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Unwrapped, Select: s, Source: "s"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func fromMaxwell(t *testing.T, bare, typed *cdc.Columns, v cdctest.Vector) {
	if v.Maxwell == "" {
		return
	}
	rec := maxwell(`"insert"`, `"data":{"id":7,"v":`+v.Maxwell+`}`)
	declared := ""
	switch v.Value.Kind {
	case cdc.Float:
		declared = "~" + v.Value.S
	case cdc.JSON:
		declared = v.Maxwell
	}
	reads(t, declared, v.Value, decode(t, maxwells(t, all(typed)), rec).After[1])
	reads(t, v.Undeclared, v.Value, decode(t, maxwells(t, all(bare)), rec).After[1])
}

func ours(t *testing.T, conn cdc.Connector, cols *cdc.Columns, v cdctest.Vector) {
	c := &cdc.RowChange{
		Source: "s", Connector: conn, TableID: cdc.TableID{Schema: "shop", Table: "zoo"}, Op: cdc.Insert, Columns: cols,
		After: cdc.Row{{Kind: cdc.Integer, S: "7"}, v.Value},
	}
	rec := encode(t, c, envelope.Options{})
	if want := fmt.Sprintf(`"v":%s}`, v.Ours); !strings.Contains(string(rec.Value), want) {
		t.Errorf("%s lacks %s", rec.Value, want)
	}
	if got := decode(t, decoder(t, all(cols)), rec).After[1]; got != v.Value {
		t.Errorf("read %+v; want %+v", got, v.Value)
	}
}
