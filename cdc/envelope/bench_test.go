package envelope_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/avro"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

// benchRecords are one change of about 420 bytes of rows in each form, of which two columns are wanted.
func benchRecords(b *testing.B) (map[string]envelope.Record, *cdc.Columns) {
	sample := func(file string, i int) envelope.Record { return readSamples(b, file)[i].record() }
	return map[string]envelope.Record{
		"ours":     encode(b, change(), envelope.Options{}),
		"debezium": sample("plain.mysql.shop.users.jsonl", 2),
		"schema":   sample("schema.mysql.shop.users.jsonl", 2),
		"maxwell": {Topic: "maxwell", Key: []byte(`{"database":"shop","table":"users","pk.id":18446744073709551615}`), Value: []byte(
			`{"database":"shop","table":"users","type":"update","ts":1796028134,"xid":940786,"commit":true,"position":"binlog.000006:800911","data":{"id":18446744073709551615,` +
				`"email":"ada.lovelace@example.test","phone":"+44 20 7946 0000","name":"Ada Lovelace","version":18,"updated_at":"2026-11-30 01:02:03.123456","note":null},` +
				`"old":{"email":"ada@example.test","version":17,"updated_at":"2026-11-29 11:12:13.123456"}}`)},
		"unwrapped": {Topic: "p.shop.users", Key: []byte(`{"id":18446744073709551615}`), Value: []byte(
			`{"id":18446744073709551615,"email":"ada.lovelace@example.test","phone":"+44 20 7946 0000","name":"Ada Lovelace","version":18,"updated_at":"2026-11-30T01:02:03.123456Z",` +
				`"note":null,"__deleted":"false","__op":"u","__table":"users","__db":"shop","__connector":"mysql","__source_ts_ms":1796028134000,"bio":"Enchantress of numbers, first of all who wrote for engines"}`)},
	}, columns("id bigint unsigned; email varchar(200)", true)
}

func BenchmarkDecode(b *testing.B) {
	recs, cols := benchRecords(b)
	for name, rec := range recs {
		b.Run(name, func(b *testing.B) {
			conf := envelope.Config{Select: all(cols)}
			if f := envelope.Format(name); f == envelope.Maxwell || f == envelope.Unwrapped {
				conf.Format = f
			}
			d, err := envelope.NewDecoder(conf)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(rec.Value)))
			b.ReportAllocs()
			var s envelope.Scratch
			for b.Loop() {
				if _, _, err := d.DecodeInto(context.Background(), rec, &s); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(name+"_encoding_json", func(b *testing.B) {
			b.SetBytes(int64(len(rec.Value)))
			b.ReportAllocs()
			for b.Loop() {
				var v map[string]any
				if err := json.Unmarshal(rec.Value, &v); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// An Avro record against the library's decode into maps.
func BenchmarkDecodeAvro(b *testing.B) {
	r := &registry{}
	rec := readSamples(b, "schema.mysql.shop.users.jsonl")[2].record()
	rec.Key, rec.Value = toAvro(b, r, rec.Key), toAvro(b, r, rec.Value)
	d := avros(b, r, envelope.Avro, all(columns("id bigint unsigned; email varchar(200)", true)))
	decode(b, d, rec)
	b.Run("avro", func(b *testing.B) {
		b.SetBytes(int64(len(rec.Value)))
		b.ReportAllocs()
		var s envelope.Scratch
		for b.Loop() {
			if _, _, err := d.DecodeInto(context.Background(), rec, &s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("avro_maps", func(b *testing.B) {
		schema := avro.MustParse(r.texts[binary.BigEndian.Uint32(rec.Value[1:])-1])
		b.SetBytes(int64(len(rec.Value)))
		b.ReportAllocs()
		for b.Loop() {
			var v any
			if _, err := schema.Decode(rec.Value[5:], &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecodeUnmapped(b *testing.B) {
	recs, _ := benchRecords(b)
	d := decoder(b, all(nil))
	rec := recs["ours"]
	b.ReportAllocs()
	var s envelope.Scratch
	for b.Loop() {
		if _, _, err := d.DecodeInto(context.Background(), rec, &s); err != nil {
			b.Fatal(err)
		}
	}
}

// The changes of a transaction, and changes of which each is a transaction of its own.
func BenchmarkEncode(b *testing.B) {
	for name, step := range map[string]uint64{"same_transaction": 0, "others": 1} {
		b.Run(name, func(b *testing.B) {
			c, o, buf := change(), envelope.Options{At: time.Now()}, make([]byte, 0, 4096)
			b.ReportAllocs()
			var e envelope.Encoder
			for b.Loop() {
				c.Position.Pos += step
				c.Ordinal++
				if _, _, err := e.Encode(c, o, buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A row of 100 columns and 4 KB, of which one is wanted, is passed over rather than decoded.
func BenchmarkDecodeWide(b *testing.B) {
	var list []cdc.Column
	var row cdc.Row
	for i := range 100 {
		list = append(list, cdc.Column{Name: fmt.Sprintf("column_%d", i), Key: i == 0})
		row = append(row, text(strings.Repeat("x", 40)))
	}
	c := change()
	c.Columns, c.Before, c.After = cdc.NewColumns(list), row, row
	rec := encode(b, c, envelope.Options{})
	d := decoder(b, all(columns("column_0 text", true)))
	b.SetBytes(int64(len(rec.Value)))
	b.ReportAllocs()
	var s envelope.Scratch
	for b.Loop() {
		if _, _, err := d.DecodeInto(context.Background(), rec, &s); err != nil {
			b.Fatal(err)
		}
	}
}
