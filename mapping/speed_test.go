package mapping_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/mapping"
)

// From a record's bytes to its keys: what a worker does with each record. docs/PERFORMANCE.md says how to read the figures.

// twoKeys are the templates that each format is measured with. A moved address makes a third key.
var twoKeys = []string{"user:{id}", "user:by-email:{email}"}

// kinds are the kinds of templates, each with a row of which it reads one or two columns.
var kinds = map[string][]string{
	"plain":    twoKeys,
	"filters":  {"user:{id|pad(20)}", "user:by-email:{email|lower|sha256(16)}"},
	"each":     {"{key: 'user:{id}:{locale}', each: {locale: [en, de]}}"},
	"when":     {"user:{id}", `{key: 'user:by-email:{email}', when: "changed(version) && after.version > 3"}`},
	"elements": {"user:{id}", "user:tag:{tags|elements(',')}"},
	"raw":      {"user:{id}", `{raw: "{sent}"}`},
	"hot":      {"{key: 'user:{id}', hot: 8}", "user:by-email:{email}"},
}

func speedSet(t testing.TB, keys []string) *mapping.Set {
	t.Helper()
	file := "version: 1\nteam: t\npools: [user]\nmappings:\n  - name: user\n    table: shop.users\n    columns: {id: bigint unsigned, email: varchar(200)}\n    keys:\n"
	for _, k := range keys {
		if !strings.HasPrefix(k, "{") {
			k = `"` + k + `"`
		}
		file += "      - " + k + "\n"
	}
	f, problems := mapping.Parse("speed.yaml", []byte(file))
	if f == nil {
		t.Fatal(problems)
	}
	set, problems := mapping.NewSet([]*mapping.File{f})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return set
}

var speedColumns = cdc.NewColumns([]cdc.Column{
	{Name: "id", Type: "bigint unsigned", Key: true}, {Name: "email", Type: "varchar(200)"}, {Name: "version", Type: "int"}, {Name: "tags", Type: "text"}, {Name: "sent", Type: "text"},
})

// ourRecord is an update as our feeder writes it; all is whether it has the columns that only some kinds read.
func ourRecord(t testing.TB, all bool) envelope.Record {
	t.Helper()
	text := func(s string) cdc.Value { return cdc.Value{Kind: cdc.Text, S: s} }
	integer := func(s string) cdc.Value { return cdc.Value{Kind: cdc.Integer, S: s} }
	c := &cdc.RowChange{
		Source: "shop", Connector: cdc.MySQL, TableID: cdc.TableID{Schema: "shop", Table: "users"}, Op: cdc.Update, Columns: speedColumns,
		Before: cdc.Row{integer("1844674407"), text("ada.lovelace@example.test"), integer("17"), {}, {}},
		After:  cdc.Row{integer("1844674407"), text("ada.lovelace@example.test"), integer("18"), {}, {}},
		Tx:     "3e11fa47-71ca-11e1-9e33-c80aa9429562:23", Position: cdc.Position{File: "binlog.000006", Pos: 3289},
		CommitTime: time.Date(2026, 11, 30, 1, 2, 3, 123456000, time.UTC),
	}
	if all {
		c.Before[3], c.Before[4] = text("a,b"), text("user:of:1844674407")
		c.After[3], c.After[4] = text("a,c"), text("user:of:1844674407")
	}
	key, value, err := envelope.Encode(c, envelope.Options{At: c.CommitTime}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return envelope.Record{Topic: "p.shop.users", Key: key, Value: value}
}

// sized is how long, in bytes, the records are whose cost is aimed at.
const sized = 420

// ourSized is an update of that size as our feeder writes it: of a narrow table, on a server without GTIDs.
func ourSized(t testing.TB) envelope.Record {
	t.Helper()
	row := cdc.Row{{Kind: cdc.Integer, S: "184467"}, {Kind: cdc.Text, S: "ada@example.test"}, {}, {}, {}}
	key, value, err := envelope.Encode(&cdc.RowChange{
		Source: "shop", Connector: cdc.MySQL, TableID: cdc.TableID{Schema: "shop", Table: "users"}, Op: cdc.Update, Columns: speedColumns, Before: row, After: row,
		Position: cdc.Position{File: "binlog.000006", Pos: 3289}, CommitTime: time.Date(2026, 11, 30, 1, 2, 3, 123456000, time.UTC),
	}, envelope.Options{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return envelope.Record{Topic: "p.shop.users", Key: key, Value: value}
}

// debeziumSized is the like as Debezium 2.1 writes it, whose source block is the shortest.
var debeziumSized = envelope.Record{Topic: "shop.shop.users", Key: []byte(`{"id":1844674407}`), Value: []byte(
	`{"before":{"id":1844674407,"email":"ada.b.king@example.test"},"after":{"id":1844674407,"email":"ada.b.king@example.test"},"source":{"version":"2.1.4.Final",` +
		`"connector":"mysql","name":"shop","ts_ms":1796028134000,"snapshot":"false","db":"shop","sequence":null,"table":"users","server_id":1,"gtid":null,` +
		`"file":"binlog.000006","pos":3289,"row":0,"thread":160,"query":null},"op":"u","ts_ms":1796028134591,"transaction":null}`)}

// sampleRecord is an update as Debezium wrote it.
func sampleRecord(t testing.TB, file string) envelope.Record {
	t.Helper()
	f, err := os.Open("../testdata/debezium-samples/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s struct{ Topic, Key, Payload string }
		if err := json.Unmarshal(lines.Bytes(), &s); err == nil && strings.Contains(s.Payload, `"op":"u"`) {
			return envelope.Record{Topic: s.Topic, Key: []byte(s.Key), Value: []byte(s.Payload)}
		}
	}
	t.Fatalf("%s has no update", file)
	return envelope.Record{}
}

const usersSchema = `{"type":"record","name":"Envelope","fields":[
	{"name":"before","type":["null",{"type":"record","name":"Value","fields":[{"name":"id","type":"long"},{"name":"email","type":"string"},{"name":"version","type":"int"}]}]},
	{"name":"after","type":["null","Value"]},
	{"name":"source","type":{"type":"record","name":"Source","fields":[{"name":"connector","type":"string"},{"name":"name","type":"string"},{"name":"ts_ms","type":"long"},
		{"name":"db","type":"string"},{"name":"table","type":"string"},{"name":"gtid","type":["null","string"]},{"name":"file","type":"string"},{"name":"pos","type":"long"}]}},
	{"name":"op","type":"string"},{"name":"ts_ms","type":["null","long"]}]}`

var parsedSchema = avro.MustParse(usersSchema)

type oneSchema struct{}

func (oneSchema) Schema(context.Context, envelope.SchemaID) (string, error) { return usersSchema, nil }

func avroRecord(t testing.TB) envelope.Record {
	t.Helper()
	user := map[string]any{"id": int64(1844674407), "email": "ada.lovelace@example.test", "version": int32(18)}
	value, err := parsedSchema.Encode(map[string]any{
		"before": user, "after": user, "op": "u", "ts_ms": int64(1796028134591),
		"source": map[string]any{
			"connector": "mysql", "name": "shop", "ts_ms": int64(1796028134579), "db": "shop", "table": "users",
			"gtid": "499cc7c1-ec8e-11f1-b291-02fc00000001:102658", "file": "binlog.000006", "pos": int64(3289),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return envelope.Record{Topic: "p.shop.users", Key: []byte(`{"id":1844674407}`), Value: append([]byte{0, 0, 0, 0, 1}, value...)}
}

// path is a record's way from its bytes to its keys.
type path struct {
	decoder *envelope.Decoder
	set     *mapping.Set
	rec     envelope.Record
	scratch envelope.Scratch
	result  mapping.Result
}

func newPath(t testing.TB, format envelope.Format, keys []string, rec envelope.Record) *path {
	t.Helper()
	set := speedSet(t, keys)
	conf := envelope.Config{Format: format, Select: set.Columns, Source: "shop", Connector: cdc.MySQL}
	if format == envelope.Avro {
		conf.Schemas = oneSchema{}
	}
	d, err := envelope.NewDecoder(conf)
	if err != nil {
		t.Fatal(err)
	}
	p := &path{decoder: d, set: set, rec: rec}
	if p.keys(); len(p.result.Keys) < 2 || len(p.result.Skipped) > 0 {
		t.Fatalf("keys %v, skipped %v of %s", p.result.Keys, p.result.Skipped, rec.Value)
	}
	return p
}

func (p *path) keys() {
	c, ignored, err := p.decoder.DecodeInto(context.Background(), p.rec, &p.scratch)
	if err != nil || ignored != "" {
		panic(fmt.Sprint(ignored, err))
	}
	p.result.Reset()
	p.set.Keys(c, &p.result)
}

// paths are all that is measured, by name: a record of the size that is aimed at, each format with plain templates, and each kind of
// template with our format.
func paths(t testing.TB) map[string]*path {
	maxwell := envelope.Record{Topic: "maxwell", Key: []byte(`{"database":"shop","table":"users","pk.id":1844674407}`), Value: []byte(
		`{"database":"shop","table":"users","type":"update","ts":1796028134,"xid":940786,"commit":true,"position":"binlog.000006:800911","data":{"id":1844674407,` +
			`"email":"ada.lovelace@example.test","phone":"+44 20 7946 0000","name":"Ada Lovelace","version":18,"updated_at":"2026-11-30 01:02:03.123456","note":null},` +
			`"old":{"email":"ada@example.test","version":17,"updated_at":"2026-11-29 11:12:13.123456"}}`)}
	unwrapped := envelope.Record{Topic: "p.shop.users", Key: []byte(`{"id":1844674407}`), Value: []byte(
		`{"id":1844674407,"email":"ada.lovelace@example.test","phone":"+44 20 7946 0000","name":"Ada Lovelace","version":18,"updated_at":"2026-11-30T01:02:03.123456Z",` +
			`"note":null,"bio":"Enchantress of numbers, first of all who wrote for engines","__deleted":"false","__op":"c","__table":"users","__db":"shop",` +
			`"__connector":"mysql","__source_ts_ms":1796028134000}`)}
	ps := map[string]*path{
		"format=ours":      newPath(t, envelope.Auto, twoKeys, ourRecord(t, false)),
		"size=ours":        newPath(t, envelope.Auto, twoKeys, ourSized(t)),
		"size=debezium":    newPath(t, envelope.Auto, twoKeys, debeziumSized),
		"format=debezium":  newPath(t, envelope.Auto, twoKeys, sampleRecord(t, "plain.mysql.shop.users.jsonl")),
		"format=schema":    newPath(t, envelope.Auto, twoKeys, sampleRecord(t, "schema.mysql.shop.users.jsonl")),
		"format=maxwell":   newPath(t, envelope.Maxwell, twoKeys, maxwell),
		"format=unwrapped": newPath(t, envelope.Unwrapped, twoKeys, unwrapped),
		"format=avro":      newPath(t, envelope.Avro, twoKeys, avroRecord(t)),
	}
	for _, name := range []string{"size=ours", "size=debezium"} {
		if n := len(ps[name].rec.Value); n != sized || len(ps[name].result.Keys) != 2 {
			t.Fatalf("%s has %d bytes and keys %v: %s", name, n, ps[name].result.Keys, ps[name].rec.Value)
		}
	}
	for kind, keys := range kinds {
		ps["templates="+kind] = newPath(t, envelope.Auto, keys, ourRecord(t, true))
	}
	return ps
}

// From bytes to keys nothing is allocated, once there is room.
func TestFromBytesToKeysAllocatesNothing(t *testing.T) {
	for name, p := range paths(t) {
		if n := testing.AllocsPerRun(200, p.keys); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// intoMaps is the way that a first attempt takes: encoding/json into maps, or the Avro library, and two keys of them.
func (p *path) intoMaps() {
	var v map[string]any
	var err error
	if p.rec.Value[0] == 0 {
		_, err = parsedSchema.Decode(p.rec.Value[5:], &v)
	} else {
		err = json.Unmarshal(p.rec.Value, &v)
	}
	if err != nil {
		panic(err)
	}
	row := v
	for _, name := range []string{"payload", "after", "data"} {
		if inner, ok := row[name].(map[string]any); ok {
			row = inner
		}
	}
	made = append(made[:0], fmt.Sprint("user:", row["id"]), fmt.Sprint("user:by-email:", row["email"]))
}

var made []string

// scan is the limit: it looks at each byte once, and does nothing.
func (p *path) scan() {
	for _, c := range p.rec.Value {
		if c == '"' {
			quotes++
		}
	}
}

var quotes int

// least is the shortest time that one call of each takes, in ns, of many short runs that take turns: on a shared machine the
// shortest is what the code takes, and the others are what the neighbours take.
func least(calls ...func()) []float64 {
	const runs, each = 300, 32
	best := make([]float64, len(calls))
	for i := range best {
		best[i] = math.Inf(1)
	}
	for range runs {
		for i, call := range calls {
			start := time.Now()
			for range each {
				call()
			}
			best[i] = min(best[i], float64(time.Since(start).Nanoseconds())/each)
		}
	}
	return best
}

// BenchmarkBytesToKeys reports, beside the usual, the shortest time of each: least-ns to the keys, maps-ns through maps, scan-ns to look
// at each byte; and how many times faster than maps it is.
func BenchmarkBytesToKeys(b *testing.B) {
	all := paths(b)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p := all[name]
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(p.rec.Value)))
			b.ReportAllocs()
			for b.Loop() {
				p.keys()
			}
			t := least(p.keys, p.intoMaps, p.scan)
			b.ReportMetric(t[0], "least-ns")
			b.ReportMetric(t[1], "maps-ns")
			b.ReportMetric(t[1]/t[0], "x-maps")
			b.ReportMetric(t[2], "scan-ns")
			b.ReportMetric(float64(len(p.rec.Value)), "bytes")
		})
	}
}
