package fieldcases

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/mapping"
)

// record is what a topic holds. Empty is null.
type record struct{ key, value string }

type recordCase struct {
	name    string
	config  envelope.Config
	columns string   // declared types, as the mapping has them
	keys    []string // templates, in pool u, apart from its name
	records []record
	want    string // all keys of the records, without the pool, apart by spaces
	skipped string // reason and column of what no key was made of, apart by commas; NULLs too
	ignored string // why records are no change, apart by commas
}

func (c recordCase) run(t *testing.T) {
	t.Helper()
	var file strings.Builder
	fmt.Fprintf(&file, "version: 1\nteam: t\npools: [u]\nmappings:\n  - name: m\n    table: shop.u\n    columns: {%s}\n    keys:\n", c.columns)
	for _, k := range c.keys {
		fmt.Fprintf(&file, "      - %q\n", "u:"+k)
	}
	f, problems := mapping.Parse("f.yaml", []byte(file.String()))
	if mapping.HasErrors(problems) {
		t.Fatal(problems)
	}
	set, _ := mapping.NewSet([]*mapping.File{f})
	c.config.Select = set.Columns
	d, err := envelope.NewDecoder(c.config)
	if err != nil {
		t.Fatal(err)
	}
	got, skipped, ignored := map[string]bool{}, map[string]bool{}, []string{}
	for _, r := range c.records {
		rec := envelope.Record{Topic: "s.shop.u"}
		if r.key != "" {
			rec.Key = []byte(r.key)
		}
		if r.value != "" {
			rec.Value = []byte(r.value)
		}
		change, why, err := d.Decode(rec)
		if err != nil {
			t.Fatal(err)
		}
		if change == nil {
			ignored = append(ignored, why)
			continue
		}
		var result mapping.Result
		set.Keys(change, &result)
		for _, k := range result.Keys {
			got[strings.TrimPrefix(k.Text, "u:")] = true
		}
		for _, s := range result.Skipped {
			if s.Detail == "" {
				t.Errorf("skipped without a word for a person: %+v", s)
			}
			skipped[string(s.Reason)+" "+s.Column] = true
		}
	}
	sorted := func(m map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(m)), ", ") }
	want := strings.Fields(c.want)
	slices.Sort(want)
	if diff := cmp.Diff(strings.Join(slices.Compact(want), ", "), sorted(got)); diff != "" {
		t.Errorf("keys: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(c.skipped, sorted(skipped)); diff != "" {
		t.Errorf("skipped: -want +got\n%s", diff)
	}
	if diff := cmp.Diff(c.ignored, strings.Join(ignored, ", ")); diff != "" {
		t.Errorf("ignored: -want +got\n%s", diff)
	}
}

// debezium is a change of shop.u without a schema. An empty image is null.
func debezium(conn cdc.Connector, op, before, after string) record {
	image := func(s string) string {
		if s == "" {
			return "null"
		}
		return s
	}
	return record{`{"id":42}`, fmt.Sprintf(`{"before":%s,"after":%s,"source":{"connector":%q,"name":"s","db":"shop","schema":"shop","table":"u"},"op":%q,"ts_ms":1}`,
		image(before), image(after), conn, op)}
}

// withSchema adds a schema of the after image: fields are those of Connect's JSON.
func (r record) withSchema(fields string) record {
	return record{r.key, fmt.Sprintf(`{"schema":{"type":"struct","fields":[{"type":"struct","fields":[%s],"optional":true,"field":"after"}]},"payload":%s}`, fields, r.value)}
}

// maxwell is a change of shop.u as Maxwell writes it.
func maxwell(typ, members string) record {
	return record{`{"database":"shop","table":"u","pk.id":42}`, fmt.Sprintf(`{"database":"shop","table":"u","type":%q,"ts":1796028134,"xid":1,"commit":true,%s}`, typ, members)}
}

func inserts(conn cdc.Connector, column string, values ...string) (all []record) {
	for _, v := range values {
		all = append(all, debezium(conn, "c", "", fmt.Sprintf(`{"id":42,%q:%s}`, column, v)))
	}
	return all
}

var (
	asMaxwell   = envelope.Config{Format: envelope.Maxwell, Source: "s"}
	asUnwrapped = envelope.Config{Format: envelope.Unwrapped, Source: "s"}
)

func TestValues(t *testing.T) {
	const fifteen = `"data":{"id":42,"v":"ABEiM0RVZneImaq7zN3u"}`
	bits := `{"type":"bytes","name":"io.debezium.data.Bits","parameters":{"length":"9"},"field":"b"}`
	for _, c := range []recordCase{
		{name: "A3 a UUID of 15 bytes, declared", config: asMaxwell, columns: "v: binary(16)", keys: []string{"{v|uuid}"},
			records: []record{maxwell("insert", fifteen)}, want: "00112233-4455-6677-8899-aabbccddee00"},
		{name: "A3 a UUID of 15 bytes, not declared", config: asMaxwell, keys: []string{"{v|uuid}", "{id}"},
			records: []record{maxwell("insert", fifteen)}, want: "42", skipped: "type v"},
		{name: "A3 VARBINARY is left alone", config: asMaxwell, columns: "v: varbinary(16)", keys: []string{"{v|uuid}", "hex:{v|hex}"},
			records: []record{maxwell("insert", fifteen)}, want: "hex:00112233445566778899aabbccddee", skipped: "type v"},
		{name: "A5 BIT(9) declared", columns: "b: bit(9)", keys: []string{"{b}"}, records: inserts(cdc.MySQL, "b", `"VQE="`), want: "341"},
		{name: "A5 BIT(9) with its schema", keys: []string{"{b}"}, records: []record{inserts(cdc.MySQL, "b", `"VQE="`)[0].withSchema(`{"type":"int32","field":"id"},` + bits)}, want: "341"},
		{name: "A5 BIT(16)", columns: "b: bit(16)", keys: []string{"{b}"}, records: inserts(cdc.MySQL, "b", `"AgE="`), want: "258"},
		{name: "A5 BIT(64)", columns: "b: bit(64)", keys: []string{"{b}"}, records: inserts(cdc.MySQL, "b", `"AAAAgAAAAAA="`, `"AAAAAAEAAAA="`, `"AAAAAAAAAIA="`),
			want: "2147483648 4294967296 9223372036854775808"},
		{name: "A13 a Debezium boolean", columns: "flag: tinyint(1)", keys: []string{"f:{flag}"}, records: inserts(cdc.MySQL, "flag", "true", "false"), want: "f:1 f:0"},
		{name: "A13 a Debezium number", columns: "flag: tinyint(1)", keys: []string{"f:{flag}"}, records: inserts(cdc.MySQL, "flag", "9", "-1", "0"), want: "f:9 f:-1 f:0"},
		{name: "A13 Maxwell's bootstrap", config: envelope.Config{Format: envelope.Maxwell, Source: "s", Snapshots: true}, columns: "flag: tinyint(1)", keys: []string{"f:{flag}"},
			records: []record{maxwell("bootstrap-insert", `"data":{"id":42,"flag":1}`), maxwell("insert", `"data":{"id":42,"flag":9}`)}, want: "f:1 f:9"},
	} {
		t.Run(c.name, c.run)
	}
}

func TestB7NumbersKeepTheirDigits(t *testing.T) {
	numbers, want := []string{"9007199254740993", "18446744073709551615", "1e3"}, "9007199254740993 18446744073709551615 1000"
	var whole, flat, max []record
	for _, n := range numbers {
		whole = append(whole, debezium(cdc.MySQL, "c", "", `{"id":`+n+`}`))
		flat = append(flat, record{`{"id":` + n + `}`, `{"id":` + n + `,"__op":"c"}`})
		max = append(max, maxwell("insert", `"data":{"id":`+n+`}`))
	}
	for _, columns := range []string{"", "id: bigint unsigned"} {
		for _, c := range []recordCase{
			{name: "Debezium", records: whole}, {name: "unwrapped", config: asUnwrapped, records: flat}, {name: "Maxwell", config: asMaxwell, records: max},
			{name: "tombstones", records: []record{{key: `{"id":9007199254740993}`}, {key: `{"id":18446744073709551615}`}, {key: `{"id":1e3}`}}},
		} {
			c.columns, c.keys, c.want = columns, []string{"{id}"}, want
			t.Run(c.name+" "+columns, c.run)
		}
	}
}

// The placeholder of an unchanged TOAST value is never a key, in whichever form it comes.
func TestB4Placeholders(t *testing.T) {
	const text = "__debezium_unavailable_value"
	const encoded = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
	for name, form := range map[string]struct {
		config envelope.Config
		value  string
	}{
		"string":                    {value: `"` + text + `"`},
		"base64":                    {value: `"` + encoded + `"`},
		"one-element array":         {value: `["` + text + `"]`},
		"base64 in an array":        {value: `["` + encoded + `"]`},
		"custom":                    {envelope.Config{Unavailable: "(same)"}, `"(same)"`},
		"custom in base64":          {envelope.Config{Unavailable: "(same)"}, `"KHNhbWUp"`},
		"custom, one-element array": {envelope.Config{Unavailable: "(same)"}, `["(same)"]`},
		"hex, where bytes are hex":  {envelope.Config{Binary: envelope.Hex}, `"5f5f646562657a69756d5f756e617661696c61626c655f76616c7565"`},
	} {
		for _, typ := range []string{"", "slug: text", "slug: bytea", "slug: 'text[]'"} {
			recordCase{config: form.config, columns: typ, keys: []string{"{id}", "{slug}"}, skipped: "absent slug", want: "42",
				records: []record{debezium(cdc.Postgres, "u", "", `{"id":42,"slug":`+form.value+`}`)}}.
				named(name+" "+typ, t)
		}
	}
	// Under REPLICA IDENTITY FULL the old value stands in the before image.
	recordCase{keys: []string{"{id}", "{slug}"}, want: "42 s", records: []record{debezium(cdc.Postgres, "u", `{"id":42,"slug":"s"}`, `{"id":42,"slug":"`+text+`"}`)}}.named("full identity", t)
}

func (c recordCase) named(name string, t *testing.T) {
	t.Helper()
	t.Run(name, c.run)
}

// Debezium's three records of a changed key, in the order of either partition.
func TestC1ChangedKey(t *testing.T) {
	del, tomb, create := debezium(cdc.MySQL, "d", `{"id":42}`, ""), record{key: `{"id":42}`}, debezium(cdc.MySQL, "c", "", `{"id":43}`)
	for name, records := range map[string][]record{"in their order": {del, tomb, create}, "the new key's partition first": {create, del, tomb}, "the tombstone alone": {tomb, create}} {
		recordCase{keys: []string{"{id}"}, records: records, want: "42 43"}.named(name, t)
	}
}

// The same change with and without a schema, its key in one form and its value in the other.
func TestI1Schemas(t *testing.T) {
	plain := debezium(cdc.MySQL, "u", `{"id":42,"email":"a"}`, `{"id":42,"email":"b"}`)
	wrapped := plain.withSchema(`{"type":"int32","field":"id"},{"type":"string","field":"email"}`)
	wrapped.key = `{"schema":{"type":"struct","fields":[{"type":"int32","field":"id"}]},"payload":{"id":42}}`
	for name, r := range map[string]record{"plain": plain, "with schema": wrapped, "its key alone": {wrapped.key, plain.value}, "its value alone": {plain.key, wrapped.value}} {
		recordCase{keys: []string{"{id}", "mail:{email}"}, records: []record{r}, want: "42 mail:a mail:b"}.named(name, t)
		recordCase{keys: []string{"{id}", "mail:{email}"}, records: []record{{key: r.key}}, want: "42", skipped: "absent email"}.named(name+", a tombstone", t)
	}
	recordCase{keys: []string{"{id}", "mail:{email}"}, records: []record{plain, wrapped}, want: "42 mail:a mail:b"}.named("both in one topic", t)
}

// A flat row has no old one: what is keyed by a column that changes says so each time.
func TestI3Unwrapped(t *testing.T) {
	for _, c := range []recordCase{
		{name: "an update of email", records: []record{{`{"id":42}`, `{"id":42,"email":"b","__op":"u"}`}}, want: "42 mail:b", skipped: "absent email"},
		{name: "without fields of the envelope", records: []record{{`{"id":42}`, `{"id":42,"email":"b"}`}}, want: "42 mail:b", skipped: "absent email"},
		{name: "__deleted as text", records: []record{{`{"id":42}`, `{"id":42,"email":"b","__deleted":"true"}`}}, want: "42 mail:b"},
		{name: "__deleted as a boolean", records: []record{{`{"id":42}`, `{"id":42,"email":"b","__deleted":true}`}}, want: "42 mail:b"},
		{name: "__deleted as text, false", records: []record{{`{"id":42}`, `{"id":42,"email":"b","__deleted":"false","__op":"c"}`}}, want: "42 mail:b"},
		{name: "a tombstone, the delete dropped", records: []record{{key: `{"id":42}`}}, want: "42", skipped: "absent email"},
	} {
		c.config, c.keys = asUnwrapped, []string{"{id}", "mail:{email}"}
		t.Run(c.name, c.run)
	}
	// A source that does not say that it is unwrapped is no such source: its rows are parked, not guessed at.
	d, err := envelope.NewDecoder(envelope.Config{Select: func(string, cdc.TableID) *cdc.Columns { return cdc.NewColumns([]cdc.Column{{Name: "id"}}) }})
	if err != nil {
		t.Fatal(err)
	}
	if c, ignored, err := d.Decode(envelope.Record{Topic: "s.shop.u", Value: []byte(`{"id":42,"email":"b"}`)}); err == nil {
		t.Errorf("not declared: %v, %q", c, ignored)
	}
}

func TestI4DecimalModes(t *testing.T) {
	const scaled = `{"type":"int32","field":"id"},{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"%d"},"field":"d"}`
	value := func(v string) []record { return inserts(cdc.MySQL, "d", v) }
	schema := func(scale int, v string) []record {
		return []record{value(v)[0].withSchema(fmt.Sprintf(scaled, scale))}
	}
	const nines = "99999999999999999999999999999999999999"
	for _, c := range []recordCase{
		{name: "base64 with its scale in the schema", records: schema(2, `"Lxg="`), want: "120.56"},
		{name: "base64 with its scale declared", columns: "d: 'decimal(10,2)'", records: value(`"Lxg="`), want: "120.56"},
		{name: "base64 without a scale", records: value(`"Lxg="`), columns: "d: decimal", skipped: "unclear d"},
		{name: "a struct of scale 3", records: value(`{"scale":3,"value":"AdcY"}`), want: "120.600"},
		{name: "string", columns: "d: 'decimal(10,2)'", records: value(`"120.56"`), want: "120.56"},
		{name: "double", columns: "d: 'decimal(10,2)'", records: value("120.56"), skipped: "unclear d"},
		{name: "double, not declared", records: value("120.56"), skipped: "type d"},
		{name: "negative", records: schema(2, `"0Og="`), want: "-120.56"},
		{name: "zero", records: schema(2, `"AA=="`), want: "0.00"},
		{name: "38 digits", records: schema(0, `"SztMqFqGxHoJiiI//////w=="`), want: nines},
		{name: "38 digits below zero, scale 38", records: schema(38, `"tMSzV6V5O4X2dd3AAAAAAQ=="`), want: "-0." + nines},
	} {
		c.keys = []string{"{d}"}
		t.Run(c.name, c.run)
	}
}

// Maxwell leaves NULLs out by default, and old has only what changed.
func TestI9Maxwell(t *testing.T) {
	for _, c := range []recordCase{
		{name: "to NULL", records: []record{maxwell("update", `"data":{"id":42},"old":{"email":"a"}`)}, want: "42 mail:a", skipped: "null email"},
		{name: "from NULL, old left out", records: []record{maxwell("update", `"data":{"id":42,"email":"b"}`)}, want: "42 mail:b"},
		{name: "from NULL, old empty", records: []record{maxwell("update", `"data":{"id":42,"email":"b"},"old":{}`)}, want: "42 mail:b"},
		{name: "from NULL, old null", records: []record{maxwell("update", `"data":{"id":42,"email":"b"},"old":{"email":null}`)}, want: "42 mail:b", skipped: "null email"},
		{name: "delete", records: []record{maxwell("delete", `"data":{"id":42,"email":"b"}`)}, want: "42 mail:b"},
		{name: "delete of a NULL", records: []record{maxwell("delete", `"data":{"id":42}`)}, want: "42", skipped: "null email"},
		{name: "both", records: []record{maxwell("update", `"data":{"id":42,"email":"b"},"old":{"email":"a"}`)}, want: "42 mail:a mail:b"},
	} {
		c.config, c.keys = asMaxwell, []string{"{id}", "mail:{email}"}
		t.Run(c.name, c.run)
	}
}

// One value in every mode that a connector can be told: one key.
func TestI13Modes(t *testing.T) {
	const schema = `{"type":"int32","field":"id"},{"type":"%s","field":"v"}`
	for _, c := range []recordCase{
		{name: "bytes", records: inserts(cdc.MySQL, "v", `"+//+AQ=="`)},
		{name: "bytes with schema", records: []record{inserts(cdc.MySQL, "v", `"+//+AQ=="`)[0].withSchema(fmt.Sprintf(schema, "bytes"))}},
		{name: "base64", config: envelope.Config{Binary: envelope.Base64}, records: []record{inserts(cdc.MySQL, "v", `"+//+AQ=="`)[0].withSchema(fmt.Sprintf(schema, "string"))}},
		{name: "base64-url-safe", config: envelope.Config{Binary: envelope.Base64URL}, records: inserts(cdc.MySQL, "v", `"-__-AQ=="`)},
		{name: "hex", config: envelope.Config{Binary: envelope.Hex}, records: inserts(cdc.MySQL, "v", `"fbfffe01"`)},
		{name: "Maxwell", config: asMaxwell, records: []record{maxwell("insert", `"data":{"id":42,"v":"+//+AQ=="}`)}},
	} {
		c.columns, c.keys, c.want = "v: varbinary(9)", []string{"{v|hex}"}, "fbfffe01"
		t.Run("binary "+c.name, c.run)
	}
	const precise = `{"type":"int32","field":"id"},{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"0"},"field":"n"}`
	negative := inserts(cdc.MySQL, "n", "-1")
	long := negative[0].withSchema(`{"type":"int32","field":"id"},{"type":"int64","field":"n"}`)
	for _, c := range []recordCase{
		{name: "long, declared", columns: "n: bigint unsigned", records: negative, want: "18446744073709551615"},
		{name: "long with schema, declared", columns: "n: bigint unsigned", records: []record{long}, want: "18446744073709551615"},
		{name: "long, not declared", records: negative, want: "-1 18446744073709551615"},
		{name: "long with schema, not declared", records: []record{long}, want: "-1 18446744073709551615"},
		{name: "precise with schema", columns: "n: bigint unsigned", records: []record{inserts(cdc.MySQL, "n", `"AP//////////"`)[0].withSchema(precise)}, want: "18446744073709551615"},
		{name: "precise with schema, not declared", records: []record{inserts(cdc.MySQL, "n", `"AP//////////"`)[0].withSchema(precise)}, want: "18446744073709551615"},
		{name: "precise, declared", columns: "n: bigint unsigned", records: inserts(cdc.MySQL, "n", `"AP//////////"`), want: "18446744073709551615"},
		{name: "Maxwell, a number", config: asMaxwell, columns: "n: bigint unsigned", records: []record{maxwell("insert", `"data":{"id":42,"n":18446744073709551615}`)}, want: "18446744073709551615"},
		{name: "Maxwell, a text", config: asMaxwell, columns: "n: bigint unsigned", records: []record{maxwell("insert", `"data":{"id":42,"n":"18446744073709551615"}`)}, want: "18446744073709551615"},
		{name: "Maxwell, BIT as a number", config: asMaxwell, columns: "n: bit(12)", records: []record{maxwell("insert", `"data":{"id":42,"n":2053}`)}, want: "2053"},
		{name: "Debezium, BIT", columns: "n: bit(12)", records: inserts(cdc.MySQL, "n", `"BQg="`), want: "2053"},
	} {
		c.keys = []string{"{n}"}
		t.Run("numbers "+c.name, c.run)
	}
}
