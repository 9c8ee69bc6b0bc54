package envelope_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

// readValue reads one Debezium value of a column v: schema and declared are empty where nothing says.
func readValue(t *testing.T, conn cdc.Connector, schema, declared, value string) cdc.Value {
	t.Helper()
	if schema != "" {
		schema = `{"type":"int32","field":"id"},` + fieldSchema(schema)
	}
	cols := cdc.NewColumns([]cdc.Column{{Name: "id"}, {Name: "v", Type: declared}})
	return decode(t, decoder(t, all(cols)), debezium(conn, schema, value)).After[1]
}

func wantTexts(t *testing.T, v cdc.Value, texts ...string) {
	t.Helper()
	if diff := cmp.Diff(texts, v.Candidates()); diff != "" {
		t.Errorf("kind %d (%s): -want +got\n%s", v.Kind, v.Why, diff)
	}
}

func wantUnclear(t *testing.T, v cdc.Value, why string) {
	t.Helper()
	if v.Kind != cdc.Unclear || !strings.Contains(v.Why, why) || v.Text() != "" {
		t.Errorf("kind %d, why %q, text %q; want unclear: %s", v.Kind, v.Why, v.Text(), why)
	}
}

func TestA1UnsignedIntegers(t *testing.T) {
	wantTexts(t, readValue(t, cdc.MySQL, "", "bigint unsigned", "-1"), "18446744073709551615")
	wantTexts(t, readValue(t, cdc.MySQL, "", "int unsigned", "-1"), "4294967295")
	wantTexts(t, readValue(t, cdc.MariaDB, "", "tinyint unsigned", "-1"), "255")
	wantUnclear(t, readValue(t, cdc.MySQL, "", "tinyint unsigned", "-129"), "too wide")
	wantTexts(t, readValue(t, cdc.MySQL, "int64", "", "-1"), "-1", "18446744073709551615")
	wantTexts(t, readValue(t, cdc.Postgres, "", "", "-1"), "-1")
}

func TestA2Decimals(t *testing.T) {
	for _, tt := range []struct{ schema, declared, value, want string }{
		{"Decimal(2)", "", `"AMNQ"`, "500.00"},
		{"", "decimal(10,2)", `"AMNQ"`, "500.00"},
		{"", "decimal(10,2)", `"500.00"`, "500.00"},
		{"", "decimal(10,2) unsigned", `"AA=="`, "0.00"},
		{"", "decimal(10)", `"AfQ="`, "500"},
		{"Decimal(4)", "", `"9g=="`, "-0.0010"},
		{"Decimal(-2)", "", `"BQ=="`, "500"},
	} {
		t.Run(tt.value+tt.schema+tt.declared, func(t *testing.T) {
			wantTexts(t, readValue(t, cdc.MySQL, tt.schema, tt.declared, tt.value), tt.want)
		})
	}
}

func TestA5Bits(t *testing.T) {
	wantTexts(t, readValue(t, cdc.MySQL, "Bits(9)", "", `"VQE="`), "341")
	wantTexts(t, readValue(t, cdc.MySQL, "", "bit(16)", `"AgE="`), "258")
	wantTexts(t, readValue(t, cdc.MySQL, "", "bit(64)", `"AAAAAAAAAIA="`), "9223372036854775808")
	wantTexts(t, readValue(t, cdc.Postgres, "", "bit(9)", `"VQE="`), "101010101")
	wantUnclear(t, readValue(t, cdc.Postgres, "Bits(2147483647)", "", `"VQE="`), "bits without their length")
}

func TestA13Booleans(t *testing.T) {
	wantTexts(t, readValue(t, cdc.MySQL, "boolean", "tinyint(1)", "true"), "1")
	wantTexts(t, readValue(t, cdc.MySQL, "", "", "false"), "0")
	wantTexts(t, readValue(t, cdc.MySQL, "int16", "tinyint(1)", "9"), "9")
	wantTexts(t, readValue(t, cdc.Postgres, "boolean", "", "true"), "t")
}

func TestB4UnchangedToast(t *testing.T) {
	const text = "__debezium_unavailable_value"
	encoded := base64.StdEncoding.EncodeToString([]byte(text))
	for _, form := range []string{
		`"` + text + `"`, `"` + encoded + `"`, `["` + text + `"]`, `{"` + text + `":"` + text + `"}`,
	} {
		for _, declared := range []string{"", "text", "bytea", "text[]", "jsonb", "numeric(10,2)"} {
			if v := readValue(t, cdc.Postgres, "", declared, form); v.Kind != cdc.Absent {
				t.Errorf("%s declared %q: kind %d; want absent", form, declared, v.Kind)
			}
		}
	}
	d, err := envelope.NewDecoder(envelope.Config{Select: all(columns("id ; v ", false)), Unavailable: "(same)"})
	if err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]cdc.Kind{`"(same)"`: cdc.Absent, `["(same)"]`: cdc.Absent, `"` + text + `"`: cdc.Text} {
		if v := decode(t, d, debezium(cdc.Postgres, "", value)).After[1]; v.Kind != want {
			t.Errorf("custom placeholder: %s is kind %d; want %d", value, v.Kind, want)
		}
	}
}

// A before image of the key alone has no columns but those: what Debezium puts in the others' place was not sent.
func TestB4BeforeImageOfTheKeyAlone(t *testing.T) {
	cols := columns("id ; sku ; status ; price ; email ", false)
	read := func(schema, before string) cdc.Row {
		t.Helper()
		value := fmt.Sprintf(`{"before":%s,"after":null,"source":{"connector":"postgresql","name":"s","db":"d","schema":"shop","table":"t"},"op":"d"}`, before)
		if schema != "" {
			value = fmt.Sprintf(`{"schema":{"type":"struct","fields":[{"type":"struct","fields":[%s],"field":"before"}]},"payload":%s}`, schema, value)
		}
		return decode(t, decoder(t, all(cols)), envelope.Record{Topic: "s.shop.t", Key: []byte(`{"id":5}`), Value: []byte(value)}).Before
	}
	absent := cdc.Value{}
	for _, tt := range []struct {
		name, schema, before string
		want                 cdc.Row
	}{
		{"fillers", "", `{"id":5,"sku":"","status":null,"price":0,"email":null}`, cdc.Row{integer("5"), absent, absent, absent, absent}},
		{"a default", `{"type":"string","default":"new","field":"status"}`, `{"id":5,"sku":"","status":"new","email":null}`, cdc.Row{integer("5"), absent, absent, absent, absent}},
		{"a whole row", "", `{"id":5,"sku":"","status":"live","price":0,"email":null}`, cdc.Row{integer("5"), text(""), text("live"), integer("0"), null}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := read(tt.schema, tt.before)
			if diff := cmp.Diff(tt.want, got, sameChange); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestB7NumbersKeepTheirDigits(t *testing.T) {
	for value, want := range map[string]string{
		"9007199254740993": "9007199254740993", "18446744073709551615": "18446744073709551615", "1e3": "1000", "1E+3": "1000", "-0": "0",
	} {
		for _, declared := range []string{"", "bigint unsigned"} {
			wantTexts(t, readValue(t, cdc.MySQL, "", declared, value), want)
		}
	}
	if v := readValue(t, cdc.MySQL, "", "", "1.5"); v.Kind != cdc.Float {
		t.Errorf("1.5 is kind %d; want a float, which no template renders", v.Kind)
	}
	if v := readValue(t, cdc.MySQL, "", "", "1e400000000"); v.Kind != cdc.Unclear {
		t.Errorf("1e400000000 is kind %d", v.Kind)
	}
}

// C1, as Debezium sends it: a delete, a tombstone and a create.
func TestC1DebeziumChangedKey(t *testing.T) {
	d := decoder(t, selectSamples("mysql", true))
	var got []string
	for _, s := range readSamples(t, "plain.mysql.shop.listings.jsonl")[2:5] {
		c := decode(t, d, s.record())
		row := c.After
		if row == nil {
			row = c.Before
		}
		got = append(got, fmt.Sprintf("%s %s", c.Op, row[1].Text()))
	}
	if diff := cmp.Diff([]string{"d 7", "x 7", "c 9"}, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestG5PoisonPills(t *testing.T) {
	d := decoder(t, all(columns("id ", false)))
	good := string(debezium(cdc.MySQL, "", "1").Value)
	for name, value := range map[string]string{
		"binary":             "\xff\x00\x7b",
		"cut":                good[:len(good)/2],
		"empty":              "",
		"array":              `[1]`,
		"string":             `"x"`,
		"number":             `7`,
		"another object":     `{"id":7}`,
		"10 MB of nesting":   strings.Repeat("[", 10<<20),
		"10 MB in an object": `{"a":` + strings.Repeat(`{"a":`, 2<<20),
		"nesting in a row":   strings.Replace(good, `"v":1`, `"v":`+strings.Repeat("[", 65)+strings.Repeat("]", 65), 1),
		"trailing":           good + "x",
		"twice":              strings.Replace(good, `"id":7`, `"id":7,"id":8`, 1),
		"op twice":           strings.Replace(good, `"op"`, `"op":"d","op"`, 1),
		"not UTF-8":          strings.Replace(good, `"v":1`, "\"v\":\"M\xfcller\"", 1),
		"unknown op":         strings.Replace(good, `"op":"c"`, `"op":"z"`, 1),
		"no source":          `{"op":"c","after":{"id":1}}`,
		"no after":           strings.Replace(good, `"after"`, `"other"`, 1),
		"control character":  strings.Replace(good, `"v":1`, "\"v\":\"\n\"", 1),
		"after is no object": strings.Replace(good, `{"id":7,"v":1}`, `[]`, 1),
		"newer marker":       strings.Replace(good, `"db"`, `"invalidator":{"v":2},"db"`, 1),
		"a bare row":         `{"id":7,"status":"BEGIN"}`,
		"a row with a time":  `{"ts_ms":7,"name":"x"}`,
		"a row of ddl":       `{"id":7,"ddl":"x"}`,
		"schema of no shape": `{"schema":7,"payload":{}}`,
	} {
		t.Run(name, func(t *testing.T) {
			c, ignored, err := d.Decode(envelope.Record{Topic: "s.shop.zoo", Value: []byte(value)})
			var de *envelope.DecodeError
			if !errors.As(err, &de) || c != nil || ignored != "" {
				t.Errorf("change %v, ignored %q, error %v; want a DecodeError alone", c, ignored, err)
			} else if de.Topic != "s.shop.zoo" {
				t.Errorf("%v names no topic", err)
			}
		})
	}
	decode(t, d, envelope.Record{Topic: "s.shop.zoo", Value: []byte(good)})
}

func TestG7TombstonesAndNulls(t *testing.T) {
	d := decoder(t, func(_ string, id cdc.TableID) *cdc.Columns {
		if id.Schema == "shop" && id.Table == "users" {
			return columns("id bigint; email ", true)
		}
		return nil
	})
	c := decode(t, d, envelope.Record{Topic: "prefix.with.dots.shop.users", Key: []byte(`{"id":42}`)})
	if c.Op != cdc.Tomb || c.After != nil || c.Before[0] != integer("42") || c.Before[1].Kind != cdc.Absent || c.TableID.String() != "shop.users" {
		t.Errorf("%+v", c)
	}
	for _, tt := range []struct{ name, topic, key, value, ignored string }{
		{"null and null", "p.shop.users", "", "", envelope.IgnoredEmpty},
		{"null as text", "p.shop.users", "null", "null", envelope.IgnoredEmpty},
		{"unmapped", "p.shop.other", `{"id":42}`, "", envelope.IgnoredUnmapped},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := envelope.Record{Topic: tt.topic}
			if tt.key != "" {
				rec.Key = []byte(tt.key)
			}
			if tt.value != "" {
				rec.Value = []byte(tt.value)
			}
			if c, ignored, err := d.Decode(rec); c != nil || ignored != tt.ignored || err != nil {
				t.Errorf("%v, %q, %v", c, ignored, err)
			}
		})
	}
	for _, rec := range []envelope.Record{
		{Topic: "p.shop.users", Key: []byte(`{"id":42}`), Value: []byte{}},
		{Topic: "users", Key: []byte(`{"id":42}`)},
		{Topic: "p.shop.users", Key: []byte(`42`)},
		{Topic: "p.shop.users", Key: []byte(`{"id":42,"id":43}`)},
	} {
		if _, _, err := d.Decode(rec); err == nil {
			t.Errorf("%s %s: no error", rec.Topic, rec.Key)
		}
	}
}

// A delete that comes without its row is read from its key; without either it is parked.
func TestDeleteWithoutBeforeImage(t *testing.T) {
	value := []byte(`{"before":null,"after":null,"source":{"connector":"postgresql","name":"s","db":"d","schema":"shop","table":"users"},"op":"d"}`)
	d := decoder(t, all(columns("id ; email ", false)))
	c := decode(t, d, envelope.Record{Topic: "s.shop.users", Key: []byte(`{"id":42}`), Value: value})
	if c.Op != cdc.Delete || c.Before[0] != integer("42") || c.Before[1].Kind != cdc.Absent {
		t.Errorf("%+v", c)
	}
	if _, _, err := d.Decode(envelope.Record{Topic: "s.shop.users", Value: value}); err == nil {
		t.Error("no error without a key")
	}
}

// I1: each part of a record is read by its own form, whichever the other has.
func TestI1MixedSchemas(t *testing.T) {
	cols := columns("id bigint unsigned; email varchar(200)", true)
	plain, wrapped := readSamples(t, "plain.mysql.shop.users.jsonl")[4].record(), readSamples(t, "schema.mysql.shop.users.jsonl")
	for _, s := range wrapped {
		if rec := s.record(); bytes.Contains(rec.Value, []byte(`"op":"d"`)) {
			d := decoder(t, all(cols))
			for _, rec := range []envelope.Record{
				{Topic: "t", Key: plain.Key, Value: plain.Value}, {Topic: "t", Key: rec.Key, Value: rec.Value},
				{Topic: "t", Key: plain.Key, Value: rec.Value}, {Topic: "t", Key: rec.Key, Value: plain.Value},
			} {
				c := decode(t, d, rec)
				if c.Before[0].Text() != "1" || c.Before[1].Text() != "b@x.io" || len(c.KeyColumns) != 1 || c.KeyColumns[0] != "id" {
					t.Errorf("%+v", c)
				}
			}
			return
		}
	}
	t.Fatal("the samples hold no delete")
}

// I2: a delete with its tombstone, either alone.
func TestI2Tombstone(t *testing.T) {
	d := decoder(t, selectSamples("postgres", true))
	for _, form := range []string{"plain", "schema"} {
		seen := map[cdc.Op]int{}
		for _, s := range readSamples(t, form+".postgres.shop.users.jsonl")[1:] {
			c := decode(t, d, s.record())
			seen[c.Op]++
			if c.Op == cdc.Tomb && (!c.Before[0].Known() || c.Before[1].Kind != cdc.Absent) {
				t.Errorf("%s: %+v", form, c.Before)
			}
		}
		if seen[cdc.Delete] != 2 || seen[cdc.Tomb] != 2 {
			t.Errorf("%s: %v", form, seen)
		}
	}
}

func TestI4DecimalModes(t *testing.T) {
	wantTexts(t, readValue(t, cdc.Postgres, "Decimal(2)", "", `"Lxg="`), "120.56")
	wantTexts(t, readValue(t, cdc.Postgres, "Decimal(2)", "", `"0Og="`), "-120.56")
	wantTexts(t, readValue(t, cdc.Postgres, "VariableScaleDecimal", "", `{"scale":3,"value":"AdcY"}`), "120.600")
	wantTexts(t, readValue(t, cdc.Postgres, "", "", `{"scale":3,"value":"AdcY"}`), "120.600")
	wantTexts(t, readValue(t, cdc.Postgres, "", "numeric(12,4)", `"120.5600"`), "120.5600")
	wantUnclear(t, readValue(t, cdc.MySQL, "", "decimal", `"Lxg="`), "without a scale")
	wantUnclear(t, readValue(t, cdc.Postgres, "", "numeric(10,2)", `120.56`), "double")
	wantUnclear(t, readValue(t, cdc.Postgres, "double", "numeric(10,2)", `120.56`), "double")
	wantUnclear(t, readValue(t, cdc.Postgres, "Decimal(2)", "", `"?"`), "base64")
	wantTexts(t, readValue(t, cdc.Postgres, "", "numeric(10,0)", `"1000"`), "-2667212", "1000")
}

func TestI6RecordsThatAreNoRowChanges(t *testing.T) {
	for file, want := range map[string]string{
		"__debezium-heartbeat.%s.mysql.jsonl": envelope.IgnoredHeartbeat, "__debezium-heartbeat.%s.postgres.jsonl": envelope.IgnoredHeartbeat,
		"%s.mysql.transaction.jsonl": envelope.IgnoredTransaction, "%s.postgres.transaction.jsonl": envelope.IgnoredTransaction,
		"%s.mysql.schema-changes.jsonl": envelope.IgnoredDDL,
	} {
		for _, form := range []string{"plain", "schema"} {
			for _, s := range readSamples(t, fmt.Sprintf(file, form)) {
				c, ignored, err := decoder(t, all(columns("id ", false))).Decode(s.record())
				if c != nil || ignored != want || err != nil {
					t.Errorf("%s %s: %v, %q, %v", form, file, c, ignored, err)
				}
			}
		}
	}
	for _, form := range []string{"plain", "schema"} {
		c := decode(t, decoder(t, nil), readSamples(t, form+".postgres.message.jsonl")[0].record())
		if c.Op != cdc.Message || c.Prefix != "cache" || string(c.Content) != "user:1:v3" || c.Source == "" {
			t.Errorf("%s: %+v", form, c)
		}
	}
}

func TestI12Snapshots(t *testing.T) {
	record := func(op, snapshot string) envelope.Record {
		rec := debezium(cdc.MySQL, "", "1")
		rec.Value = bytes.Replace(rec.Value, []byte(`"op":"c"`), []byte(`"op":"`+op+`"`), 1)
		rec.Value = bytes.Replace(rec.Value, []byte(`"snapshot":"false"`), []byte(`"snapshot":`+snapshot), 1)
		return rec
	}
	cols := all(columns("id ", false))
	ignoring := decoder(t, cols)
	mapping, err := envelope.NewDecoder(envelope.Config{Select: cols, Snapshots: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		op, snapshot string
		ignored      bool
	}{
		{"r", `"true"`, true}, {"r", `"first_in_data_collection"`, true}, {"r", `"incremental"`, true}, {"r", "null", true}, {"r", `"false"`, true},
		{"c", `"true"`, true}, {"c", `"last"`, true}, {"c", "true", true},
		{"c", `"false"`, false}, {"c", "false", false}, {"c", "null", false}, {"c", `"incremental"`, false}, {"u", `"last"`, false},
	} {
		c, ignored, err := ignoring.Decode(record(tt.op, tt.snapshot))
		if err != nil || (ignored == envelope.IgnoredSnapshot) != tt.ignored || (c == nil) != tt.ignored {
			t.Errorf("op %s, snapshot %s: %v, %q, %v", tt.op, tt.snapshot, c, ignored, err)
		}
		if c := decode(t, mapping, record(tt.op, tt.snapshot)); (c.Op == cdc.Read) != tt.ignored {
			t.Errorf("op %s, snapshot %s, asked for: op %s", tt.op, tt.snapshot, c.Op)
		}
	}
}

// A tombstone's key does not say which database wrote it: what that leaves open is ambiguous.
func TestTombstoneKeyIsAmbiguous(t *testing.T) {
	list := "id ; flag ; at timestamp(3); bits bit(3); data "
	d := decoder(t, all(columns(list, true)))
	c := decode(t, d, envelope.Record{
		Topic: "p.shop.t", Key: []byte(`{"id":-1,"flag":true,"at":"2026-11-30T01:02:03.120Z","bits":"BQ=="}`),
	})
	wantTexts(t, c.Before[0], "-1", "18446744073709551615")
	wantTexts(t, c.Before[1], "t", "1")
	wantTexts(t, c.Before[2], "2026-11-30 01:02:03.120", "2026-11-30 01:02:03.12")
	wantTexts(t, c.Before[3], "5", "101")
	key := []byte(`{"schema":{"type":"struct","fields":[{"type":"bytes","field":"data"},{"type":"string","name":"io.debezium.time.ZonedTimestamp",` +
		`"field":"at"}]},"payload":{"data":"AP8=","at":"2026-11-30T01:02:03.5Z"}}`)
	c = decode(t, decoder(t, all(columns(list, false))), envelope.Record{Topic: "p.shop.t", Key: key})
	wantUnclear(t, c.Before[4], "connector")
	wantTexts(t, c.Before[2], "2026-11-30 01:02:03.5", "2026-11-30 01:02:03.5+00")
}
