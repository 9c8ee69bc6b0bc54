//go:build integration

package mysql

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"invalidator/cdc"
	"invalidator/cdc/cdctest"
)

// specimen is a column with values for it, and the expression that shows it as text; empty: the column itself.
type specimen struct {
	name   string // of the field case, and of the column
	typ    string
	values []string // SQL, a row each; the last stands for the rows that have no value of their own
	show   string
	only   string // a service that has this type; empty: both
	kind   cdc.Kind
}

// The server's own text is what every value is compared with, but where show says otherwise.
var specimens = []specimen{
	{name: "A1_tiny", typ: "TINYINT UNSIGNED", values: []string{"255", "128", "0"}, kind: cdc.Integer},
	{name: "A1_small", typ: "SMALLINT UNSIGNED", values: []string{"65535", "32768"}, kind: cdc.Integer},
	{name: "A1_medium", typ: "MEDIUMINT UNSIGNED", values: []string{"16777215", "8388608"}, kind: cdc.Integer},
	{name: "A1_int", typ: "INT UNSIGNED", values: []string{"4294967295", "2147483648"}, kind: cdc.Integer},
	{name: "A1_big", typ: "BIGINT UNSIGNED", values: []string{"18446744073709551615", "9223372036854775808", "9223372036854775807"}, kind: cdc.Integer},
	{name: "s_tiny", typ: "TINYINT", values: []string{"-128", "127", "-1"}, kind: cdc.Integer},
	{name: "s_small", typ: "SMALLINT", values: []string{"-32768", "-1"}, kind: cdc.Integer},
	{name: "s_medium", typ: "MEDIUMINT", values: []string{"-8388608", "-1"}, kind: cdc.Integer},
	{name: "s_int", typ: "INT", values: []string{"-2147483648", "-1"}, kind: cdc.Integer},
	{name: "s_big", typ: "BIGINT", values: []string{"-9223372036854775808", "-1"}, kind: cdc.Integer},
	{name: "A2_d38", typ: "DECIMAL(38,0)", values: []string{strings.Repeat("9", 38), "-" + strings.Repeat("9", 38), "0"}, kind: cdc.Decimal},
	{name: "A2_d10", typ: "DECIMAL(10,2)", values: []string{"500.00", "-0.10", "0", "99999999.99", "-1.05"}, kind: cdc.Decimal},
	{name: "A2_d3830", typ: "DECIMAL(38,30)", values: []string{"0.000000000000000000000000000001", "-12345678.000000001", "1"}, kind: cdc.Decimal}, // MySQL's greatest scale
	{name: "A2_d3838", typ: "DECIMAL(38,38)", values: []string{"0.00000000000000000000000000000000000001", "-0." + strings.Repeat("9", 38), "0"}, only: "MARIADB", kind: cdc.Decimal},
	{name: "A2_d65", typ: "DECIMAL(65,30)", values: []string{strings.Repeat("9", 35) + "." + strings.Repeat("9", 30), "1000000000", "-1000000000.5"}, kind: cdc.Decimal},
	{name: "A3_bin", typ: "BINARY(16)", values: []string{"x'00112233445566778899aabbccddee00'", "x'00112233445566778899aabbccdd0000'", "x'00000000000000000000000000000000'", "x'00'"}, show: "HEX(%s)", kind: cdc.Bytes},
	{name: "A3_varbin", typ: "VARBINARY(16)", values: []string{"x'00112233445566778899aabbccddee00'", "x'00112233445566778899aabbccdd0000'", "x'00000000000000000000000000000000'", "x'0000'", "''"}, show: "HEX(%s)", kind: cdc.Bytes},
	{name: "A3_longbin", typ: "BINARY(255)", values: []string{"'x'"}, show: "HEX(%s)", kind: cdc.Bytes},
	{name: "A4_bincoll", typ: "CHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", values: []string{"'USA'", "''", "'a b'"}, kind: cdc.Text},
	{name: "A4_b", typ: "BINARY(4)", values: []string{"'USA'"}, show: "HEX(%s)", kind: cdc.Bytes},
	{name: "A5_b64", typ: "BIT(64)", values: []string{"2147483648", "4294967296", "9223372036854775808", "18446744073709551615"}, show: "CAST(%s AS UNSIGNED)", kind: cdc.Integer},
	{name: "A5_b9", typ: "BIT(9)", values: []string{"341", "0"}, show: "CAST(%s AS UNSIGNED)", kind: cdc.Integer},
	{name: "A5_b16", typ: "BIT(16)", values: []string{"258"}, show: "CAST(%s AS UNSIGNED)", kind: cdc.Integer},
	{name: "A5_b1", typ: "BIT(1)", values: []string{"1", "0"}, show: "CAST(%s AS UNSIGNED)", kind: cdc.Integer},
	{name: "A6_enum", typ: "ENUM('RFS','E''S\\\\S,','ü')", values: []string{"1", "2", "3", "0", "'no such label'"}, kind: cdc.Text},
	{name: "A6_enum300", typ: "ENUM(" + labels(300) + ")", values: []string{"257", "300", "1", "0"}, kind: cdc.Text},
	{name: "A6_set", typ: "SET(" + labels(18) + ")", values: []string{"1+256+131072", "0", "262143"}, kind: cdc.Text},
	{name: "A6_set64", typ: "SET(" + labels(64) + ")", values: []string{"9223372036854775809", "0"}, kind: cdc.Text},
	{name: "A9_ts3", typ: "TIMESTAMP(3) NULL", values: []string{"'2024-11-03 05:30:00.120'", "'2024-11-03 06:30:00.120'", "'2024-11-03 06:30:00'", "0"}, kind: cdc.Text},
	{name: "A9_ts0", typ: "TIMESTAMP NULL", values: []string{"'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'", "0"}, kind: cdc.Text},
	{name: "A9_ts6", typ: "TIMESTAMP(6) NULL", values: []string{"'2026-11-30 01:02:03.123456'", "0"}, kind: cdc.Text},
	{name: "A9_dt3", typ: "DATETIME(3)", values: []string{"'2024-11-03 05:30:00.120'", "'2024-11-03 05:30:00'", "'9999-12-31 23:59:59.999'", "0", "'2024-00-00 00:00:00'"}, kind: cdc.Text},
	{name: "A9_dt0", typ: "DATETIME", values: []string{"'2024-11-03 05:30:00'", "'1000-01-01 00:00:00'", "0"}, kind: cdc.Text},
	{name: "A9_dt5", typ: "DATETIME(5)", values: []string{"'2024-11-03 05:30:00.00001'", "'0001-01-01 00:00:00.99999'"}, kind: cdc.Text},
	{name: "date", typ: "DATE", values: []string{"'2024-02-29'", "'9999-12-31'", "0", "'2024-00-00'"}, kind: cdc.Text},
	{name: "time0", typ: "TIME", values: []string{"'12:00:00'", "'-838:59:59'", "'838:59:59'", "0", "'-00:00:01'"}, kind: cdc.Text},
	{name: "time1", typ: "TIME(1)", values: []string{"'12:00:00'", "'-00:00:00.1'", "'-01:00:00.9'"}, kind: cdc.Text},
	{name: "time3", typ: "TIME(3)", values: []string{"'12:00:00'", "'-00:00:00.001'", "'-12:34:56.999'", "'-12:34:56'", "0"}, kind: cdc.Text},
	{name: "time6", typ: "TIME(6)", values: []string{"'12:00:00'", "'-00:00:00.000001'", "'-838:59:58.999999'", "'838:59:58.999999'", "0"}, kind: cdc.Text},
	{name: "year", typ: "YEAR", values: []string{"2024", "1901", "2155"}, kind: cdc.Integer},
	{name: "A10_latin1", typ: "VARCHAR(20) CHARACTER SET latin1", values: []string{"'Müller'", "'€'", "'plain'", "''"}, kind: cdc.Text},
	{name: "A10_latin1all", typ: "VARCHAR(255) CHARACTER SET latin1", values: []string{"x'8081828384858687888990919293949596979899a0a1aabbccddeeff'", "'x'"}, kind: cdc.Text},
	{name: "A10_gbk", typ: "VARCHAR(20) CHARACTER SET gbk", values: []string{"'汉字'", "'Müller'", "'€'", "'abc'"}, kind: cdc.Text},
	{name: "A10_sjis", typ: "VARCHAR(20) CHARACTER SET sjis", values: []string{"'日本ｶﾅ'", "'abc'"}, kind: cdc.Text},
	{name: "A10_ujis", typ: "VARCHAR(20) CHARACTER SET ujis", values: []string{"'日本語'", "'abc'"}, kind: cdc.Text},
	{name: "A10_big5", typ: "VARCHAR(20) CHARACTER SET big5", values: []string{"'中文'", "'abc'"}, kind: cdc.Text},
	{name: "A10_euckr", typ: "VARCHAR(20) CHARACTER SET euckr", values: []string{"'한국'", "'abc'"}, kind: cdc.Text},
	{name: "A10_koi8r", typ: "VARCHAR(20) CHARACTER SET koi8r", values: []string{"'Привет'", "'abc'"}, kind: cdc.Text},
	{name: "A10_cp1251", typ: "VARCHAR(20) CHARACTER SET cp1251", values: []string{"'Привет'", "'abc'"}, kind: cdc.Text},
	{name: "A10_latin2", typ: "VARCHAR(20) CHARACTER SET latin2", values: []string{"'Łódź'", "'abc'"}, kind: cdc.Text},
	{name: "A10_greek", typ: "VARCHAR(20) CHARACTER SET greek", values: []string{"'Ελλάς'", "'abc'"}, kind: cdc.Text},
	{name: "A10_cp850", typ: "VARCHAR(20) CHARACTER SET cp850", values: []string{"'Müller'", "'abc'"}, kind: cdc.Text},
	{name: "A10_utf16", typ: "VARCHAR(20) CHARACTER SET utf16", values: []string{"'Müller 😀'", "'abc'"}, kind: cdc.Text},
	{name: "A10_utf16le", typ: "VARCHAR(20) CHARACTER SET utf16le", values: []string{"'Müller 😀'", "'abc'"}, kind: cdc.Text},
	{name: "A10_utf32", typ: "CHAR(20) CHARACTER SET utf32", values: []string{"'Müller 😀'", "'abc'"}, kind: cdc.Text},
	{name: "A10_ucs2", typ: "CHAR(20) CHARACTER SET ucs2", values: []string{"'Müller'", "'abc'"}, kind: cdc.Text},
	{name: "A10_utf8mb3", typ: "VARCHAR(20) CHARACTER SET utf8", values: []string{"'Müller €'"}, kind: cdc.Text},
	{name: "A10_utf8mb4", typ: "CHAR(60) CHARACTER SET utf8mb4", values: []string{"'Zoë 😀'"}, kind: cdc.Text},
	{name: "A10_ascii", typ: "VARCHAR(20) CHARACTER SET ascii", values: []string{"'plain'"}, kind: cdc.Text},
	{name: "A10_enumlatin1", typ: "ENUM('Müller','€') CHARACTER SET latin1", values: []string{"1", "2"}, kind: cdc.Text},
	{name: "A10_setgbk", typ: "SET('汉','字') CHARACTER SET gbk", values: []string{"1", "3"}, kind: cdc.Text},
	{name: "A10_uca1400", typ: "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci", values: []string{"'Zoë'"}, only: "MARIADB", kind: cdc.Text},
	{name: "A10_textlatin1", typ: "TEXT CHARACTER SET latin1", values: []string{"'Müller'", "''"}, kind: cdc.Text},
	{name: "A10_longtext", typ: "LONGTEXT", values: []string{"REPEAT('ä', 40000)", "''"}, kind: cdc.Text},
	{name: "A10_tinytext", typ: "TINYTEXT", values: []string{"'t'"}, kind: cdc.Text},
	{name: "longvarchar", typ: "VARCHAR(2000)", values: []string{"REPEAT('é', 2000)", "'x'"}, kind: cdc.Text},
	{name: "mblob", typ: "MEDIUMBLOB", values: []string{"x'00ff00'", "''"}, show: "HEX(%s)", kind: cdc.Bytes},
	{name: "A11_f", typ: "FLOAT", values: []string{"3.14", "0.5", "-2"}, kind: cdc.Float},
	{name: "A11_d", typ: "DOUBLE", values: []string{"345.678894", "1.234567", "-0.25", "1e15"}, kind: cdc.Float},
	{name: "A12_j", typ: "JSON", values: []string{`'{"b":1.0,"a":[1,"x\\\\\\",:y",null,true,-2.5e10],"long key":{}}'`, `'"text"'`, `JSON_OBJECT('d', CAST(12345678901234567890.12 AS DECIMAL(30,2)), 't', CAST('2024-01-02 03:04:05' AS DATETIME))`}, only: "MYSQL", kind: cdc.JSON},
	{name: "A12_maria", typ: "JSON", values: []string{`'{"b":1.0,"a":2}'`}, only: "MARIADB", kind: cdc.Text},
	{name: "A13_flag", typ: "TINYINT(1)", values: []string{"9", "-1", "0"}, kind: cdc.Integer},
	{name: "A14_ci", typ: "VARCHAR(10) COLLATE utf8mb4_general_ci", values: []string{"'abc'", "'ABC'", "'abc '"}, kind: cdc.Text},
	{name: "A14_char", typ: "CHAR(10)", values: []string{"'abc '", "' abc'"}, kind: cdc.Text},
	{name: "A17_null", typ: "VARCHAR(10)", values: []string{"NULL"}, kind: cdc.Null},
	{name: "A18_stored", typ: "VARCHAR(30) AS (CONCAT('s', k)) STORED", kind: cdc.Text},
	{name: "A18_virtual", typ: "VARCHAR(30) AS (CONCAT('v', k)) VIRTUAL", kind: cdc.Text},
	{name: "geo", typ: "POINT", values: []string{"ST_GeomFromText('POINT(1 2)')"}, show: "HEX(%s)", kind: cdc.Bytes},
	{name: "inet6", typ: "INET6", values: []string{"'2001:db8::'", "'::ffff:1.2.3.4'", "'::'"}, only: "MARIADB", kind: cdc.Text},
	{name: "inet4", typ: "INET4", values: []string{"'10.0.0.0'", "'255.1.2.32'"}, only: "MARIADB", kind: cdc.Text},
	{name: "uuid", typ: "UUID", values: []string{"'00112233-4455-6677-8899-aabbccddee00'", "'123e4567-e89b-12d3-a456-426614174000'", "'017f22e2-79b0-7cc3-98c4-dc0c0c07398f'", "'000102030405460788090a0b0c0d0e0f'", "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"}, only: "MARIADB", kind: cdc.Text},
	{name: "z_last", typ: "INT UNSIGNED", values: []string{"4000000000"}, kind: cdc.Integer},
}

func labels(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ",'l%d'", i+1)
	}
	return b.String()[1:]
}

// TestZoo reads rows with every type and compares each value with the text that the server gives for it.
func TestZoo(t *testing.T) {
	eachMetadata(t, func(b *bed, _ string) { b.zoo() })
}

func (b *bed) zoo() {
	columns, rows := []string{"k INT PRIMARY KEY"}, 0
	var names, shows []string
	var mine []specimen
	for _, s := range specimens {
		if s.only != "" && s.only != b.service {
			continue
		}
		mine = append(mine, s)
		columns = append(columns, s.name+" "+s.typ)
		if s.show == "" {
			s.show = "%s"
		}
		shows = append(shows, fmt.Sprintf(s.show, s.name))
		if len(s.values) > 0 {
			names = append(names, s.name)
		}
		rows = max(rows, len(s.values))
	}
	b.do("SET SESSION sql_mode='', time_zone='+00:00'", "CREATE TABLE zoo ("+strings.Join(columns, ", ")+") CHARACTER SET utf8mb4")
	tp := b.run(b.feeder(), cdc.Position{})
	for i := range rows {
		values := []string{fmt.Sprint(i)}
		for _, s := range mine {
			if len(s.values) > 0 {
				values = append(values, s.values[min(i, len(s.values)-1)])
			}
		}
		b.do("INSERT INTO zoo (k, " + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")")
	}
	got := tp.take(rows)
	want := b.ask("SELECT " + strings.Join(shows, ", ") + " FROM zoo ORDER BY k")
	for i, s := range mine {
		b.Run(s.name, func(t *testing.T) {
			for r := range rows {
				v := got[r].After[got[r].Columns.Index(s.name)]
				text := show(v)
				if strings.HasPrefix(s.show, "HEX") {
					text = strings.ToUpper(hex.EncodeToString([]byte(text)))
				}
				if text != want[r][i] {
					t.Errorf("row %d: got %.100q, the server says %.100q", r, text, want[r][i])
				}
				if v.Kind != s.kind {
					t.Errorf("row %d: kind %d, want %d", r, v.Kind, s.kind)
				}
			}
			if typ := got[0].Columns.List[got[0].Columns.Index(s.name)].Type; typ == "" {
				t.Error("the column's type is not told")
			}
		})
	}
}

// TestTypesTable walks the table that every route of a value has in common.
func TestTypesTable(t *testing.T) {
	onBoth(t, func(b *bed) {
		var columns, values []string
		var want []cdctest.Vector
		for _, v := range cdctest.Types(b) {
			if v.Server != cdc.MySQL && (v.Server != cdc.MariaDB || b.service == "MYSQL") {
				continue
			}
			columns = append(columns, fmt.Sprintf("c%d %s NULL", len(want), v.Type))
			values = append(values, v.Insert)
			want = append(want, v)
		}
		b.do("SET SESSION sql_mode='', time_zone='+00:00'", "CREATE TABLE types ("+strings.Join(columns, ", ")+") CHARACTER SET utf8mb4")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO types VALUES (" + strings.Join(values, ", ") + ")")
		got := tp.take(1)[0]
		for i, w := range want {
			v := w.Value
			if v.Kind == cdc.JSON && b.service == "MARIADB" {
				v.Kind = cdc.Text // where JSON is another word for LONGTEXT
			}
			if !got.After[i].Equal(v) || got.After[i].Kind != v.Kind {
				t := got.After[i]
				b.Errorf("%s %s: kind %d %q, want kind %d %q", w.Type, w.Insert, t.Kind, t.S, v.Kind, v.S)
			}
			if typ := got.Columns.List[i].Type; typ != w.Type && w.Type != "tinyint(1)" && w.Type != "json" {
				b.Errorf("type %q, want %q", typ, w.Type)
			}
		}
	})
}
