package envelope_test

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

// anyRecords are records of every kind, by format: Debezium's samples, the same as Avro, our own, and Maxwell's, flat ones and tombstones.
func anyRecords(t testing.TB, r *registry) [][]envelope.Record {
	files, _ := filepath.Glob(filepath.Join(samplesDir, "*.jsonl"))
	if len(files) == 0 {
		t.Fatal("no samples")
	}
	var samples, avros []envelope.Record
	for _, path := range files {
		for _, s := range readSamples(t, filepath.Base(path)) {
			samples = append(samples, s.record())
			if strings.HasPrefix(filepath.Base(path), "schema.") {
				rec := s.record()
				rec.Key, rec.Value = toAvro(t, r, rec.Key), toAvro(t, r, rec.Value)
				avros = append(avros, rec)
			}
		}
	}
	message := &cdc.RowChange{
		Source: "shop", Connector: cdc.Postgres, TableID: cdc.TableID{Database: "shop"}, Op: cdc.Message, Prefix: "cache", Content: []byte("feed:42"),
		Tx: "102836", Position: cdc.Position{LSN: "AB/180F3BE0"},
	}
	other := change() // the same columns with other kinds
	other.Before, other.After = other.After, cdc.Row{text("7"), {Kind: cdc.Bytes, S: "\x01"}, {Kind: cdc.Float, S: "1.5"}, {Kind: cdc.JSON, S: "{}"}, text("AA==")}
	ours := []envelope.Record{encode(t, change(), envelope.Options{}), encode(t, other, envelope.Options{}), encode(t, message, envelope.Options{})}
	return [][]envelope.Record{samples, avros, ours, {
		maxwell(`"update"`, `"position":"a:1","gtid":"x:1","data":{"id":7,"email":"b\n","zoo":[1],"price":1.2E-9},"old":{"email":null}`),
		maxwell(`"update"`, `"data":{"id":7,"email":"b"},"old":{"id":8}`), maxwell(`"delete"`, `"data":{"id":7,"price":5}`),
		maxwell(`"insert"`, `"data":{"id":7}`), maxwell(`"bootstrap-insert"`, `"data":{"id":7}`), maxwell(`"table-drop"`, `"sql":"x"`),
		envelope.Record{Topic: "maxwell", Key: []byte(`{"database":"shop","table":"zoo","pk.id":1}`)},
		row(`{"id":7,"email":"a\u00e9","__deleted":"true","__connector":"postgresql","__table":"users","__source_ts_ms":1,"__source_lsn":43690}`),
		row(`{"id":7,"__op":"c","price":"AcI="}`), row(`{"schema":{"type":"struct","fields":[]},"payload":{"id":7}}`), row(`{"id":7,"__op":"t"}`),
		envelope.Record{Topic: "p.shop.users", Key: []byte(`{"id":-1,"email":"a"}`)}, envelope.Record{Topic: "p.shop.zoo", Key: []byte(`{"id":5}`)},
		envelope.Record{Topic: "p.shop.zoo"}, row(`null`), row(`{`),
		debezium(cdc.MySQL, `{"type":"int64","optional":true,"name":"io.debezium.time.MicroTimestamp","field":"v"}`, "1796028134579123"),
		debezium(cdc.Postgres, `{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"v"}`, `"AcI="`),
	}}
}

// anyDecoders read every format, with and without types, and with no column at all.
func anyDecoders(t testing.TB, r *registry) []*envelope.Decoder {
	own := columns("id bigint unsigned; email binary(9); price decimal(10,2); zoo set('a'); v ", true)
	selects := []envelope.Select{
		selectSamples("mysql", true), selectSamples("postgres", true), selectSamples("mysql", false), all(own), all(users), all(cdc.NewColumns(nil)), all(nil),
	}
	var ds []*envelope.Decoder
	for _, s := range selects {
		for _, f := range []envelope.Format{envelope.Auto, envelope.Avro, envelope.Maxwell, envelope.Unwrapped} {
			for _, b := range []envelope.Binary{envelope.Base64, envelope.Hex} {
				d, err := envelope.NewDecoder(envelope.Config{Format: f, Schemas: r, Select: s, Snapshots: true, Binary: b, Source: "s"})
				if err != nil {
					t.Fatal(err)
				}
				ds = append(ds, d)
			}
		}
	}
	return ds
}

// Whatever a Scratch held before, the next record reads as it does alone.
func TestScratchHoldsNothingOfTheLastRecord(t *testing.T) {
	r := &registry{}
	recs := anyRecords(t, r)
	ds := anyDecoders(t, r)
	changes := 0
	rapid.Check(t, func(t *rapid.T) {
		var s envelope.Scratch
		d := rapid.SampledFrom(ds).Draw(t, "decoder")
		for range 40 {
			if rapid.IntRange(0, 9).Draw(t, "other") == 0 {
				d = rapid.SampledFrom(ds).Draw(t, "decoder")
			}
			rec := rapid.SampledFrom(rapid.SampledFrom(recs).Draw(t, "format")).Draw(t, "record")
			if rapid.IntRange(0, 3).Draw(t, "broken") == 0 && len(rec.Value) > 0 {
				rec.Value = bytes.Clone(rec.Value)
				at := rapid.IntRange(0, len(rec.Value)-1).Draw(t, "at")
				rec.Value[at] = rapid.SampledFrom([]byte(`0"\{},:nx-`)).Draw(t, "byte")
			}
			if sameIn(t, d, rec, &s) {
				changes++
			}
		}
	})
	if changes < 300 {
		t.Errorf("%d changes were compared: the records are not read", changes)
	}
}

// Records of tables by turns, more of them than a Scratch remembers, allocate nothing either.
func TestTablesByTurnsAllocateNothing(t *testing.T) {
	var recs []envelope.Record
	cols := map[string]*cdc.Columns{}
	for i := range 12 {
		table := fmt.Sprintf("t%d", i)
		cols[table] = cdc.NewColumns([]cdc.Column{{Name: "id", Type: "bigint"}, {Name: "email", Type: "varchar(200)"}})
		rec := debezium(cdc.MySQL, "", `"x"`)
		rec.Value = bytes.Replace(rec.Value, []byte(`"id":`), fmt.Appendf(nil, `"c%s":1,"email":"a@x.test","d%d":null,"id":`, strings.Repeat("x", i), i), 1)
		rec.Value = bytes.Replace(rec.Value, []byte(`"table":"zoo"`), fmt.Appendf(nil, `"table":%q`, table), 1)
		recs = append(recs, rec)
	}
	d := decoder(t, func(_ string, id cdc.TableID) *cdc.Columns { return cols[id.Table] })
	for _, n := range []int{1, 2, len(recs)} {
		var s envelope.Scratch
		read := 0
		allocated := testing.AllocsPerRun(50, func() {
			for _, rec := range recs[:n] {
				if c, _, err := d.DecodeInto(context.Background(), rec, &s); err == nil && c != nil && c.After[1].S == "a@x.test" {
					read++
				}
			}
		})
		if allocated > 0 || read != 51*n {
			t.Errorf("%d tables: %v allocations, %d records read", n, allocated, read)
		}
	}
}

// failer is what tests and rapid's have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// sameIn compares DecodeInto a used Scratch with Decode, whose change must not depend on the record's bytes any more, and reports
// whether there was one.
func sameIn(t failer, d *envelope.Decoder, rec envelope.Record, s *envelope.Scratch) bool {
	t.Helper()
	own := envelope.Record{Topic: rec.Topic, Key: bytes.Clone(rec.Key), Value: bytes.Clone(rec.Value), Headers: rec.Headers}
	want, wantIgnored, wantErr := d.Decode(own)
	overwrite(own.Key)
	overwrite(own.Value)
	got, ignored, err := d.DecodeInto(context.Background(), rec, s)
	if ignored != wantIgnored || (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
		t.Fatalf("ignored %q, error %v; alone %q, %v\nvalue %s", ignored, err, wantIgnored, wantErr, rec.Value)
	}
	if diff := cmp.Diff(want, got, exactly, cmp.Comparer(bytes.Equal)); diff != "" {
		t.Fatalf("%s\nvalue %s", diff, rec.Value)
	}
	return got != nil
}

func overwrite(b []byte) {
	for i := range b {
		b[i] = '#'
	}
}

// FuzzScratch reads two records one after the other.
func FuzzScratch(f *testing.F) {
	r := &registry{}
	ds := anyDecoders(f, r)
	f.Add([]byte(`{"id":1}`), encode(f, change(), envelope.Options{}).Value, debezium(cdc.MySQL, "", "1").Value)
	f.Add([]byte(`{"database":"shop","table":"zoo","pk.id":7}`), maxwell(`"update"`, `"data":{"id":7,"email":"b"},"old":{"id":8}`).Value, []byte(nil))
	f.Fuzz(func(t *testing.T, key, first, second []byte) {
		var s envelope.Scratch
		for _, d := range ds {
			for _, value := range [][]byte{first, second} {
				if len(value) == 0 {
					value = nil
				}
				sameIn(t, d, envelope.Record{Topic: "p.shop.users", Key: key, Value: value}, &s)
			}
		}
	})
}
