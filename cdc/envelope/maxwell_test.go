package envelope_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
)

// maxwell makes a record of shop.zoo as Maxwell writes it: typ and the members behind it.
func maxwell(typ, members string) envelope.Record {
	return envelope.Record{
		Topic: "maxwell", Key: []byte(`{"database":"shop","table":"zoo","pk.id":7}`),
		Value: []byte(`{"database":"shop","table":"zoo","type":` + typ + `,"ts":1796028134,"xid":940786,"commit":true,` + members + `}`),
	}
}

// exactly compares changes with all that they say.
var exactly = cmp.Options{
	cmp.Comparer(func(a, b *cdc.Columns) bool { return a == b }),
	cmp.Comparer(func(a, b cdc.Value) bool { return a == b }),
}

func maxwells(t testing.TB, s envelope.Select) *envelope.Decoder {
	t.Helper()
	d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Maxwell, Select: s, Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// A whole record with everything that Maxwell can be told to write.
func TestMaxwellRecord(t *testing.T) {
	cols := columns("id bigint unsigned; email ", true)
	c := decode(t, maxwells(t, func(source string, id cdc.TableID) *cdc.Columns {
		if source != "shop" || id.String() != "shop.zoo" {
			t.Errorf("asked for %s of %s", id, source)
		}
		return cols
	}), maxwell(`"update"`, `"xoffset":3,"position":"master.000006:800911","gtid":"a-b:1-23","server_id":1,"thread_id":2,"primary_key":[7],`+
		`"primary_key_columns":["id"],"data":{"id":18446744073709551615,"email":"b@x.test","gone":null},"old":{"email":"a@x.test"}`))
	want := &cdc.RowChange{
		Source: "shop", Connector: cdc.MySQL, TableID: cdc.TableID{Schema: "shop", Table: "zoo"}, Op: cdc.Update, Columns: cols, KeyColumns: []string{"id"},
		Before: cdc.Row{integer("18446744073709551615"), text("a@x.test")}, After: cdc.Row{integer("18446744073709551615"), text("b@x.test")},
		CommitTime: time.Unix(1796028134, 0).UTC(), Tx: "940786", Ordinal: 3,
		Position: cdc.Position{File: "master.000006", Pos: 800911, GTIDSet: "a-b:1-23"},
	}
	if diff := cmp.Diff(want, c, exactly); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// I9: with nulls left out, a column that is nowhere is NULL, and what old does not name may have been.
func TestI9MaxwellLeavesOutNulls(t *testing.T) {
	cols := columns("id ; email ; name ", false)
	doubt := func(v cdc.Value) cdc.Value {
		v.Why = "it did not change, or it was NULL before"
		return v
	}
	absent := cdc.Value{}
	for _, tt := range []struct {
		name, typ, members string
		before, after      cdc.Row
	}{
		{"to NULL", "update", `"data":{"id":7},"old":{"email":"a"}`, cdc.Row{doubt(integer("7")), text("a"), null}, cdc.Row{integer("7"), null, null}},
		{"from NULL, left out", "update", `"data":{"id":7,"email":"b"},"old":{}`, cdc.Row{doubt(integer("7")), doubt(text("b")), null}, cdc.Row{integer("7"), text("b"), null}},
		{"from NULL, old left out", "update", `"data":{"id":7,"email":"b"}`, cdc.Row{doubt(integer("7")), doubt(text("b")), null}, cdc.Row{integer("7"), text("b"), null}},
		{"from NULL, written", "update", `"data":{"id":7,"email":"b"},"old":{"email":null}`, cdc.Row{integer("7"), null, absent}, cdc.Row{integer("7"), text("b"), absent}},
		{"nulls written", "update", `"data":{"id":7,"email":"b","other":null},"old":{"email":"a"}`, cdc.Row{integer("7"), text("a"), absent}, cdc.Row{integer("7"), text("b"), absent}},
		{"insert", "insert", `"data":{"id":7,"email":"b"}`, nil, cdc.Row{integer("7"), text("b"), null}},
		{"delete", "delete", `"data":{"id":7,"email":"b"}`, cdc.Row{integer("7"), text("b"), null}, nil},
		{"the key changed", "update", `"data":{"id":8,"email":"b","name":null},"old":{"id":7}`, cdc.Row{integer("7"), text("b"), null}, cdc.Row{integer("8"), text("b"), null}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := decode(t, maxwells(t, all(cols)), maxwell(`"`+tt.typ+`"`, tt.members))
			if diff := cmp.Diff([]cdc.Row{tt.before, tt.after}, []cdc.Row{c.Before, c.After}, exactly); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A value that may have been NULL counts as changed: a condition that asks must not lose the delete.
func TestI9DoubtfulValueIsNotEqual(t *testing.T) {
	c := decode(t, maxwells(t, all(columns("id ; email ", false))), maxwell(`"update"`, `"data":{"id":7,"email":"b"},"old":{}`))
	if !c.Before[1].Doubtful() || c.Before[1].Text() != "b" || c.Before[1].Equal(c.After[1]) || c.After[1].Doubtful() {
		t.Errorf("before %+v, after %+v", c.Before[1], c.After[1])
	}
}

// I6 and I12: what is no row change, and the rows of a bootstrap, which is Maxwell's snapshot.
func TestI6I12MaxwellTypes(t *testing.T) {
	cols := all(columns("id ", false))
	for _, tt := range []struct{ typ, members, ignored string }{
		{"bootstrap-start", `"data":{}`, envelope.IgnoredSnapshot},
		{"bootstrap-insert", `"data":{"id":7}`, envelope.IgnoredSnapshot},
		{"bootstrap-complete", `"data":{}`, envelope.IgnoredSnapshot},
		{"table-create", `"def":{},"sql":"create table x"`, envelope.IgnoredDDL},
		{"table-alter", `"old":{},"def":{},"sql":"alter table x"`, envelope.IgnoredDDL},
		{"database-create", `"charset":"utf8"`, envelope.IgnoredDDL},
	} {
		if c, ignored, err := maxwells(t, cols).Decode(maxwell(`"`+tt.typ+`"`, tt.members)); c != nil || ignored != tt.ignored || err != nil {
			t.Errorf("%s: %v, %q, %v", tt.typ, c, ignored, err)
		}
	}
	d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Maxwell, Select: cols, Snapshots: true})
	if err != nil {
		t.Fatal(err)
	}
	if c := decode(t, d, maxwell(`"bootstrap-insert"`, `"data":{"id":7}`)); c.Op != cdc.Read || c.After[0] != integer("7") {
		t.Errorf("%+v", c)
	}
	if _, ignored, err := maxwells(t, nil).Decode(maxwell(`"insert"`, `"data":{"id":7}`)); ignored != envelope.IgnoredUnmapped || err != nil {
		t.Errorf("%q, %v", ignored, err)
	}
}

// A3: base64 of a BINARY(16) that lost its trailing zero byte is padded where the length is declared.
func TestA3MaxwellBinaryPadding(t *testing.T) {
	const fifteen = `"data":{"id":7,"v":"ABEiM0RVZneImaq7zN3u"}`
	c := decode(t, maxwells(t, all(columns("id ; v binary(16)", true))), maxwell(`"insert"`, fifteen))
	if want := "\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\x00"; c.After[1].Kind != cdc.Bytes || c.After[1].S != want {
		t.Errorf("%+v", c.After[1])
	}
	c = decode(t, maxwells(t, all(columns("id ; v varbinary(16)", true))), maxwell(`"insert"`, fifteen))
	if c.After[1].Kind != cdc.Bytes || len(c.After[1].S) != 15 {
		t.Errorf("%+v", c.After[1])
	}
}

// A13 and I13: Maxwell's numbers need no schema.
func TestA13I13MaxwellNumbers(t *testing.T) {
	for _, tt := range []struct{ typ, value, want string }{
		{"tinyint(1)", "9", "9"}, {"tinyint(1)", "1", "1"}, {"", "-1", "-1"}, {"bigint unsigned", "18446744073709551615", "18446744073709551615"},
		{"bigint unsigned", `"18446744073709551615"`, "18446744073709551615"}, {"bit(12)", "2053", "2053"},
		{"decimal(12,4)", "10.5", "10.5000"}, {"decimal(20,10)", "0E-10", "0.0000000000"}, {"decimal(38,0)", "1E+3", "1000"}, {"decimal(20,10)", "-1.2E-9", "-0.0000000012"},
	} {
		c := decode(t, maxwells(t, all(columns("id ; v "+tt.typ, true))), maxwell(`"insert"`, `"data":{"id":7,"v":`+tt.value+`}`))
		t.Run(tt.typ+tt.value, func(t *testing.T) { wantTexts(t, c.After[1], tt.want) })
	}
}

func TestG7MaxwellTombstone(t *testing.T) {
	d := maxwells(t, all(columns("Id bigint; email ", true)))
	c := decode(t, d, envelope.Record{Topic: "maxwell", Key: []byte(`{"database":"shop","table":"zoo","pk.id":7}`)})
	if c.Op != cdc.Tomb || c.TableID.String() != "shop.zoo" || c.Before[0] != integer("7") || c.Before[1].Kind != cdc.Absent || c.Source != "shop" {
		t.Errorf("%+v", c)
	}
	if _, ignored, err := d.Decode(envelope.Record{Topic: "maxwell"}); ignored != envelope.IgnoredEmpty || err != nil {
		t.Errorf("%q, %v", ignored, err)
	}
	if _, _, err := d.Decode(envelope.Record{Topic: "maxwell", Key: []byte(`["shop","zoo",[{"id":7}]]`)}); err == nil {
		t.Error("a key that is an array is no error")
	}
}

func TestG5MaxwellPoison(t *testing.T) {
	for name, rec := range map[string]envelope.Record{
		"no data":      maxwell(`"insert"`, `"old":{}`),
		"encrypted":    maxwell(`"insert"`, `"encrypted":{"iv":"x","bytes":"y"}`),
		"unknown type": maxwell(`"rename"`, `"data":{"id":7}`),
		"a debezium":   debezium(cdc.MySQL, "", "1"),
		"twice":        maxwell(`"insert"`, `"data":{"id":7,"id":8}`),
		"data twice":   maxwell(`"insert"`, `"data":{"id":7},"data":{"id":8}`),
		"data is none": maxwell(`"insert"`, `"data":[7]`),
		"cut":          {Value: []byte(`{"database":"shop`)},
		"not UTF-8":    maxwell(`"insert"`, "\"data\":{\"id\":\"\xff\"}"),
	} {
		t.Run(name, func(t *testing.T) {
			c, ignored, err := maxwells(t, all(columns("id ", false))).Decode(rec)
			var de *envelope.DecodeError
			if !errors.As(err, &de) || c != nil || ignored != "" {
				t.Errorf("%v, %q, %v", c, ignored, err)
			}
		})
	}
}
