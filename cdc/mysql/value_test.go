package mysql

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"

	"invalidator/cdc"
)

// One value each, as bytes of the log. What the servers themselves write is compared in the integration tests; these show
// the forms, and those that no server here writes.
func TestValues(t *testing.T) {
	str := func(kind byte, length int) uint16 { return uint16(kind)<<8 | uint16(length) }
	for _, tc := range []struct {
		what string
		col  column
		hex  string
		kind cdc.Kind
		want string
	}{
		{"A1 unsigned", column{kind: mysql.MYSQL_TYPE_LONGLONG, unsigned: true}, "ffffffffffffffff", cdc.Integer, "18446744073709551615"},
		{"signed", column{kind: mysql.MYSQL_TYPE_LONGLONG}, "ffffffffffffffff", cdc.Integer, "-1"},
		{"medium", column{kind: mysql.MYSQL_TYPE_INT24}, "000080", cdc.Integer, "-8388608"},
		{"A2 decimal(10,2)", column{kind: mysql.MYSQL_TYPE_NEWDECIMAL, meta: 10<<8 | 2}, "800001f400", cdc.Decimal, "500.00"},
		{"decimal below zero", column{kind: mysql.MYSQL_TYPE_NEWDECIMAL, meta: 10<<8 | 2}, "7ffffffff5", cdc.Decimal, "-0.10"},
		{"A5 bit(9)", column{kind: mysql.MYSQL_TYPE_BIT, meta: 1<<8 | 1}, "0155", cdc.Integer, "341"},
		{"A4 binary(4)", column{kind: mysql.MYSQL_TYPE_STRING, meta: str(mysql.MYSQL_TYPE_STRING, 4), charset: "binary"}, "03555341", cdc.Bytes, "USA\x00"},
		{"A4 char(4) binary collation", column{kind: mysql.MYSQL_TYPE_STRING, meta: str(mysql.MYSQL_TYPE_STRING, 4), charset: "utf8mb4"}, "03555341", cdc.Text, "USA"},
		{"char(255) utf8mb4", column{kind: mysql.MYSQL_TYPE_STRING, meta: str(mysql.MYSQL_TYPE_STRING^0x30, 0xfc), charset: "utf8mb4"}, "010061", cdc.Text, "a"},
		{"enum", column{kind: mysql.MYSQL_TYPE_STRING, meta: str(mysql.MYSQL_TYPE_ENUM, 2), labels: []string{"a", "b"}}, "0200", cdc.Text, "b"},
		{"A6 enum of no label", column{kind: mysql.MYSQL_TYPE_STRING, meta: str(mysql.MYSQL_TYPE_ENUM, 1), labels: []string{"a"}}, "02", cdc.Unclear, "2"},
		{"A6 set of no label", column{kind: mysql.MYSQL_TYPE_STRING, meta: str(mysql.MYSQL_TYPE_SET, 1), labels: []string{"a"}}, "02", cdc.Unclear, "2"},
		{"old timestamp", column{kind: mysql.MYSQL_TYPE_TIMESTAMP}, "01000000", cdc.Text, "1970-01-01 00:00:01"},
		{"old datetime", column{kind: mysql.MYSQL_TYPE_DATETIME}, hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, 20241103053000)), cdc.Text, "2024-11-03 05:30:00"},
		{"old time", column{kind: mysql.MYSQL_TYPE_TIME}, "c7cfff", cdc.Text, "-01:23:45"},
		{"time(2)", column{kind: mysql.MYSQL_TYPE_TIME2, meta: 2}, "7fffffff", cdc.Text, "-00:00:00.01"},
		{"A10 bad utf8", column{kind: mysql.MYSQL_TYPE_VARCHAR, meta: 10, charset: "utf8mb4"}, "02c328", cdc.Unclear, "utf8mb4"},
		{"A10 bad ascii", column{kind: mysql.MYSQL_TYPE_VARCHAR, meta: 10, charset: "ascii"}, "01e9", cdc.Unclear, "ascii"},
		{"A10 bad gbk", column{kind: mysql.MYSQL_TYPE_VARCHAR, meta: 10, charset: "gbk"}, "02ffff", cdc.Unclear, "gbk"},
		{"A10 a charset that nobody knows", column{kind: mysql.MYSQL_TYPE_VARCHAR, meta: 10, charset: "of collation 9999"}, "0161", cdc.Unclear, "collation 9999"},
		{"wave dash in sjis", column{kind: mysql.MYSQL_TYPE_VARCHAR, meta: 10, charset: "sjis"}, "028160", cdc.Unclear, "sjis"},
		{"bad JSON", column{kind: mysql.MYSQL_TYPE_JSON, meta: 4}, "01000000ff", cdc.Unclear, "JSON"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			json, err := newJSONDecoder()
			if err != nil {
				t.Fatal(err)
			}
			raw, err := hex.DecodeString(tc.hex)
			if err != nil {
				t.Fatal(err)
			}
			if tc.col.kind == mysql.MYSQL_TYPE_STRING {
				tc.col.unpackString()
			}
			in := &cursor{s: string(raw)}
			v, err := tc.col.value(in, json)
			switch {
			case err != nil || in.short || in.pos != len(raw):
				t.Errorf("%v, read %d of %d bytes", err, in.pos, len(raw))
			case v.Kind != tc.kind, v.Kind != cdc.Unclear && v.S != tc.want, v.Kind == cdc.Unclear && !strings.Contains(v.Why, tc.want):
				t.Errorf("got %+v, want kind %d %q", v, tc.kind, tc.want)
			}
		})
	}
}

// A float is for conditions alone: it has the shortest text at the column's own width.
func TestA11Floats(t *testing.T) {
	for v, want := range map[float32]string{345.678894: "345.6789", 3.14: "3.14", 1.234567: "1.234567", 1e20: "100000000000000000000", 1e21: "1e+21", 1e-7: "1e-07", 0.5: "0.5"} {
		if got := float(float64(v), 32); got.S != want {
			t.Errorf("%v: got %s, want %s", v, got.S, want)
		}
	}
	if got := float(math.Copysign(0, -1), 64); got.S != "-0" {
		t.Errorf("got %s", got.S)
	}
}

// Absent, NULL and empty are three things (C2).
func TestImageTellsAbsentFromNull(t *testing.T) {
	varchar := column{kind: mysql.MYSQL_TYPE_VARCHAR, meta: 10, charset: "utf8mb4"}
	l := &layout{list: []column{varchar, varchar, varchar, varchar}}
	for i := range l.list {
		l.list[i].name = string(rune('a' + i))
	}
	l.list[3].hidden = true
	l.finish()
	d := rowDecoder{layout: l}
	in := &cursor{s: "\x01\x00\x01x"} // of the columns b, c, d: b is NULL, c is empty, d is hidden
	row, err := d.image(nil, in, "\x0e", false)
	if err != nil || len(row) != 3 || row[0].Kind != cdc.Absent || row[1].Kind != cdc.Null || row[2] != (cdc.Value{Kind: cdc.Text}) {
		t.Errorf("got %+v, %v", row, err)
	}
	if _, err := d.image(nil, &cursor{s: "\x00\x05ab"}, "\x01", false); err != errShort {
		t.Errorf("a cut row gives %v", err)
	}
}

// No bytes make the decoder panic, or read past the end, or forever.
func FuzzImage(f *testing.F) {
	f.Add([]byte("\x01\x00\x01x"), []byte("\x0e"), []byte{mysql.MYSQL_TYPE_LONG, mysql.MYSQL_TYPE_VARCHAR}, uint16(10))
	f.Add([]byte("\x00\x80\x00\x01\xf4\x00"), []byte("\x01"), []byte{mysql.MYSQL_TYPE_NEWDECIMAL}, uint16(10<<8|2))
	f.Add([]byte("\x00\x05\x00\x00\x00\x00\x01\x00\x0c\x00"), []byte("\x01"), []byte{mysql.MYSQL_TYPE_JSON}, uint16(4))
	f.Add([]byte("\x00\x0b\x00\x00\x00\x02\x01\x00\x0a\x00\x02\x00\x00\x02\x00\x00"), []byte("\x01"), []byte{mysql.MYSQL_TYPE_JSON}, uint16(4)) // points at itself
	f.Add([]byte("\x01\x7f\xff\xff\xff"), []byte("\xff"), []byte{mysql.MYSQL_TYPE_TIME2, mysql.MYSQL_TYPE_STRING}, uint16(2))
	json, err := newJSONDecoder()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body, present, kinds []byte, meta uint16) {
		l := &layout{}
		for _, k := range kinds {
			c := column{kind: k, meta: meta, charset: "gbk", name: "c"}
			switch k {
			case mysql.MYSQL_TYPE_STRING:
				c.unpackString()
			case mysql.MYSQL_TYPE_JSON:
				l.jsonColumns++
			}
			l.list = append(l.list, c)
		}
		l.finish()
		d := rowDecoder{layout: l, json: json, partial: true}
		in := &cursor{s: string(body)}
		row, err := d.image(nil, in, bitmap(present), true)
		if err == nil && (len(row) != len(kinds) || in.pos > len(body)) {
			t.Errorf("%d values of %d columns, %d of %d bytes", len(row), len(kinds), in.pos, len(body))
		}
	})
}

func TestLabels(t *testing.T) {
	got := parseLabels(`enum('a','it''s','back\\slash','x,y)','')`)
	if want := []string{"a", "it's", `back\slash`, "x,y)", ""}; strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("got %q", got)
	}
	for _, s := range []string{"", "enum", "enum('open", "enum(x)"} {
		if got := parseLabels(s); got != nil {
			t.Errorf("%s: got %q", s, got)
		}
	}
}

// Doubles within a document, as MySQL 8.0 shows them.
func TestA12DoublesOfDocuments(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 1: "1.0", -2.5e10: "-25000000000.0", 1e14: "100000000000000.0", 1e15: "1e15", 2.5e15: "2.5e15", 1.25e17: "1.25e17",
		123456789012345.6: "123456789012345.6", 1234567890123456.5: "1234567890123456.5", 12345678901234568: "1.2345678901234568e16",
		12345678901234567890.12: "1.2345678901234567e19", 0.0001: "0.0001", 1e-5: "0.00001", 1.234567890123e-5: "0.00001234567890123",
		1e-10: "0.0000000001", 1e-15: "0.000000000000001", 1e-16: "1e-16", 5e-324: "5e-324", 1.7976931348623157e308: "1.7976931348623157e308",
		math.Copysign(0, -1): "-0.0", -0.1: "-0.1", 345.678894: "345.678894",
	} {
		if got := string(appendDouble(nil, v)); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}

// A document's doubles are found among its other numbers, and what does not fit is no document.
func TestA12NumbersFit(t *testing.T) {
	doc := `{"a":-1,"b":"5,-6:7","c":[1e+16,0.5,true],"d":12.50}`
	got, err := spaced(doc, []string{"", "1e16", "", ""})
	if want := `{"a": -1, "b": "5,-6:7", "c": [1e16, 0.5, true], "d": 12.50}`; err != nil || got != want {
		t.Errorf("got %s, %v", got, err)
	}
	for _, numbers := range [][]string{{"", "1e16", ""}, {"", "1e16", "", "", ""}} {
		if got, err := spaced(doc, numbers); err == nil {
			t.Errorf("%d numbers: got %s", len(numbers), got)
		}
	}
}
