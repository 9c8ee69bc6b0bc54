package mysql

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"invalidator/cdc"
)

// A cloud's server may log a row with a column that its schema does not show. Where the event names its columns they line up;
// where it does not, the table is refused and no value moves by one.
func TestA18OneColumnMoreThanTheSchema(t *testing.T) {
	long, varchar := byte(mysql.MYSQL_TYPE_LONGLONG), byte(mysql.MYSQL_TYPE_VARCHAR)
	event := func(names ...string) *replication.TableMapEvent {
		e := &replication.TableMapEvent{Schema: []byte("shop"), Table: []byte("u"), ColumnCount: 3, ColumnType: []byte{long, long, varchar},
			ColumnMeta: []uint16{0, 0, 40}, SignednessBitmap: []byte{0b1000_0000}}
		for _, n := range names {
			e.ColumnName = append(e.ColumnName, []byte(n))
		}
		if names != nil {
			e.PrimaryKey, e.DefaultCharset = []uint64{0}, []uint64{45}
		}
		return e
	}
	srv := &server{collations: map[uint64]string{45: "utf8mb4"}}
	schema := &tableSchema{columns: []schemaColumn{
		{name: "n", dataType: "bigint", columnType: "bigint"}, {name: "email", dataType: "varchar", columnType: "varchar(10)", charset: "utf8mb4"}}}

	l, err := newLayout(cdc.TableID{Schema: "shop", Table: "u"}, event("my_row_id", "n", "email"), srv, nil, schema, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := rowDecoder{layout: l}
	row, err := d.image(nil, &cursor{s: "\x00" + "\xff\xff\xff\xff\xff\xff\xff\xff" + "\x07\x00\x00\x00\x00\x00\x00\x00" + "\x03a@x"}, "\x07", false)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i, v := range row {
		got = append(got, l.columns.List[i].Name+"="+v.Text())
	}
	if want := []string{"my_row_id=18446744073709551615", "n=7", "email=a@x"}; !slices.Equal(got, want) || !slices.Equal(l.key, []string{"my_row_id"}) {
		t.Errorf("got %q by %q, want %q", got, l.key, want)
	}

	if l, err := newLayout(cdc.TableID{Schema: "shop", Table: "u"}, event(), srv, nil, schema, nil); err == nil || !strings.Contains(err.Error(), "not what the log holds") {
		t.Errorf("without names: %v, %v", l, err)
	}
}

// What a log under MINIMAL tells of its columns must be what the schema says: else the schema is not the row's.
func TestSchemaThatTheLogContradicts(t *testing.T) {
	srv := &server{collations: map[uint64]string{8: "latin1", 33: "utf8mb3", 45: "utf8mb4", 63: "binary"}}
	for _, x := range []struct {
		sign    byte
		charset uint64
		n, s    string // the schema's type and charset
		says    string // nothing: it is read
	}{
		{0b1000_0000, 45, "bigint unsigned", "utf8mb4", ""},
		{0, 33, "bigint", "utf8mb3", ""},
		{0, 33, "bigint", "utf8", ""},
		{0, 63, "bigint", "", ""},
		{0, 45, "bigint unsigned", "utf8mb4", "column n is bigint unsigned, and has another sign in the log"},
		{0b1000_0000, 45, "bigint", "utf8mb4", "another sign"},
		{0, 8, "bigint", "utf8mb4", `in charset "utf8mb4", and latin1 in the log`},
		{0, 45, "bigint", "", "utf8mb4 in the log"},
	} {
		e := &replication.TableMapEvent{ColumnCount: 2, ColumnType: []byte{mysql.MYSQL_TYPE_LONGLONG, mysql.MYSQL_TYPE_VARCHAR},
			ColumnMeta: []uint16{0, 40}, SignednessBitmap: []byte{x.sign}, DefaultCharset: []uint64{x.charset}}
		schema := &tableSchema{columns: []schemaColumn{
			{name: "n", dataType: "bigint", columnType: x.n}, {name: "s", dataType: "varchar", columnType: "varchar(10)", charset: x.s, octets: 40}}}
		_, err := newLayout(cdc.TableID{Schema: "shop", Table: "u"}, e, srv, nil, schema, nil)
		if (err != nil) != (x.says != "") || err != nil && !strings.Contains(err.Error(), x.says) {
			t.Errorf("%+v: %v", x, err)
		}
	}
}

// Old servers give YEAR no sign bit, newer ones do; the number of bits says which, or else nothing does.
func TestSignsBehindAYear(t *testing.T) {
	const tiny, year = mysql.MYSQL_TYPE_TINY, mysql.MYSQL_TYPE_YEAR
	for _, tc := range []struct {
		what  string
		types []byte
		bits  []byte
		want  []bool // nil: it cannot be told
	}{
		{"no year", []byte{tiny, tiny, tiny}, []byte{0b0110_0000}, []bool{false, true, true}},
		{"the same either way", []byte{tiny, year}, []byte{0b1000_0000}, []bool{true, false}},
		{"a bit for the year, or none", []byte{tiny, year, tiny}, []byte{0b0100_0000}, nil},
		{"one byte: the year has no bit", []byte{year, tiny, tiny, tiny, tiny, tiny, tiny, tiny, tiny}, []byte{0b1000_0001},
			[]bool{false, true, false, false, false, false, false, false, true}},
		{"two bytes: the year has a bit", []byte{year, tiny, tiny, tiny, tiny, tiny, tiny, tiny, tiny}, []byte{0b0100_0000, 0b1000_0000},
			[]bool{false, true, false, false, false, false, false, false, true}},
	} {
		e := &replication.TableMapEvent{ColumnCount: uint64(len(tc.types)), ColumnType: tc.types,
			ColumnMeta: make([]uint16, len(tc.types)), SignednessBitmap: tc.bits}
		got, clear := signs(e)
		if clear != (tc.want != nil) || clear && !slices.Equal(got, tc.want) {
			t.Errorf("%s: got %v, %v", tc.what, got, clear)
		}
	}
}
