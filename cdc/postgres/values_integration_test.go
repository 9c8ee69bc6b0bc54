//go:build integration

package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"invalidator/cdc"
	"invalidator/cdc/cdctest"
)

// zoo is a column of every type, with values whose text is easily got wrong.
var zoo = []struct {
	column string
	kind   cdc.Kind
	values []string
}{
	{"bool boolean", cdc.Bool, []string{"true", "false"}},
	{"small smallint", cdc.Integer, []string{"-32768", "32767"}},
	{"int integer", cdc.Integer, []string{"-2147483648"}},
	{"big bigint", cdc.Integer, []string{"9223372036854775807", "-9223372036854775808"}},
	{"num numeric(12,4)", cdc.Decimal, []string{"500", "-0.1", "12345678.0001"}},
	{"plain numeric", cdc.Decimal, []string{"500.00", "'NaN'", "'Infinity'", "99999999999999999999999999999999999999"}},
	{"real real", cdc.Float, []string{"3.14", "345.678894", "1e20", "'-0'", "'NaN'"}},
	{"double double precision", cdc.Float, []string{"0.1", "1e300", "1.2345678901234567", "'-Infinity'"}},
	{"text text", cdc.Text, []string{"''", "'Müller €'", `E'a\tb\\c'`, "repeat('x', 5000)"}},
	{"varchar character varying(20)", cdc.Text, []string{"'abc '"}},
	{"char character(5)", cdc.Text, []string{"'abc'", "''"}},
	{"name name", cdc.Text, []string{"'n'"}},
	{"internal \"char\"", cdc.Text, []string{"'c'"}},
	{"bytea bytea", cdc.Bytea, []string{`'\x00ff5c'`, `''`}},
	{"uuid uuid", cdc.Text, []string{"'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A00'"}},
	{"json json", cdc.JSON, []string{`'{"b": 1.0,  "a":12345678901234567890.12}'`}},
	{"jsonb jsonb", cdc.JSON, []string{`'{"b":1.0,"a":12345678901234567890.12}'`}},
	{"date date", cdc.Text, []string{"'2026-11-30'", "'infinity'", "'0044-03-15 BC'"}},
	{"time time(3) without time zone", cdc.Text, []string{"'01:02:03.120'"}},
	{"timetz time with time zone", cdc.Text, []string{"'01:02:03+05:30'"}},
	{"ts timestamp without time zone", cdc.Text, []string{"'2026-11-30 01:02:03.123456'"}},
	{"tstz timestamp with time zone", cdc.Text, []string{"'2024-11-03 05:30:00.12+00'", "'2024-11-03 01:30:00.12-05'"}},
	{"iv interval", cdc.Text, []string{"'1 year 2 mons 3 days 04:05:06.789'", "'-1 day'"}},
	{"inet inet", cdc.Text, []string{"'10.0.0.1/8'", "'::1'"}},
	{"cidr cidr", cdc.Text, []string{"'10.0.0.0/8'"}},
	{"mac macaddr", cdc.Text, []string{"'08:00:2B:01:02:03'"}},
	{"money money", cdc.Text, []string{"1234.5"}},
	{"bits bit(9)", cdc.Text, []string{"B'101010101'"}},
	{"varbits bit varying(9)", cdc.Text, []string{"B'101'"}},
	{"point point", cdc.Text, []string{"'(1.5,2)'"}},
	{"range int4range", cdc.Text, []string{"'[1,5)'"}},
	{"xml xml", cdc.Text, []string{"'<a>b</a>'"}},
	{"search tsvector", cdc.Text, []string{"'a fat cat'"}},
	{"tags text[]", cdc.Text, []string{`ARRAY['a,b', 'c"d', NULL, '']`}},
	{"grid integer[]", cdc.Text, []string{"'{{1,2},{3,4}}'"}},
	{"mood mood", cdc.Text, []string{"'so so'"}},
	{"age positive", cdc.Integer, []string{"7"}},
	{"price price", cdc.Decimal, []string{"7"}},
	{"pair pair", cdc.Text, []string{"ROW(1, 'a b')"}},
	{"mail citext", cdc.Text, []string{"'A@x.test'"}},
	{"more hstore", cdc.Text, []string{`'a=>1, b=>NULL'`}},
}

func makeZoo(d *db) {
	d.exec(
		"CREATE EXTENSION citext", "CREATE EXTENSION hstore",
		"CREATE TYPE mood AS ENUM ('happy', 'so so')", "CREATE TYPE pair AS (a int, b text)",
		"CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
		"CREATE DOMAIN amount AS numeric(10,2)", "CREATE DOMAIN price AS amount CHECK (VALUE > 0)")
	columns := []string{"id int PRIMARY KEY"}
	for _, z := range zoo {
		columns = append(columns, quoteColumn(z.column))
	}
	d.exec("CREATE TABLE zoo (" + strings.Join(columns, ", ") + ")")
}

func quoteColumn(column string) string {
	name, typ, _ := strings.Cut(column, " ")
	return quote(name) + " " + typ
}

func fillZoo(d *db) {
	for row := range 5 {
		names, values := []string{"id"}, []string{string(rune('0' + row))}
		for _, z := range zoo {
			if row < len(z.values) {
				name, typ, _ := strings.Cut(z.column, " ")
				names, values = append(names, quote(name)), append(values, "("+z.values[row]+")::"+typ)
			}
		}
		d.exec("INSERT INTO zoo (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(values, ", ") + ")")
	}
}

// Every value's text is what SELECT sends, and every column's type what the database calls it: no type, however exotic, costs a
// row.
func TestB3ValuesAsSelectShowsThem(t *testing.T) {
	for _, server := range []string{"POSTGRES", "POSTGRES17"} {
		t.Run(server, func(t *testing.T) {
			d := newDBOn(t, server)
			makeZoo(d)
			r := d.start(d.feeder("public.zoo"), cdc.Position{})
			fillZoo(d)
			checkZoo(d, r.caughtUp())
			r.stop()
		})
	}
}

func checkZoo(d *db, changes []*cdc.RowChange) {
	d.t.Helper()
	results, err := d.conn.PgConn().Exec(context.Background(), "SET TimeZone = 'UTC'; SELECT * FROM zoo ORDER BY id").ReadAll()
	if err != nil {
		d.t.Fatal(err)
	}
	rows := results[1].Rows
	if len(changes) != len(rows) {
		d.t.Fatalf("%d changes of %d rows", len(changes), len(rows))
	}
	for n, c := range changes {
		for i, want := range rows[n] {
			column, got := c.Columns.List[i], c.After[i]
			if want == nil {
				if got.Kind != cdc.Null {
					d.t.Errorf("row %d, %s: got %+v, want NULL", n, column.Name, got)
				}
				continue
			}
			if got.Text() != string(want) {
				d.t.Errorf("row %d, %s: got %q, SELECT shows %q", n, column.Name, got.Text(), want)
			}
			if i > 0 && got.Kind != zoo[i-1].kind {
				d.t.Errorf("row %d, %s: kind %d, want %d", n, column.Name, got.Kind, zoo[i-1].kind)
			}
		}
	}
	for i, z := range zoo {
		column := changes[0].Columns.List[i+1]
		if got := column.Name + " " + column.Type; got != z.column {
			d.t.Errorf("column %q, want %q", got, z.column)
		}
	}
}

// What a database or a role sets for its sessions does not reach the texts: they are the same after it as before.
func TestB1SessionSettingsArePinned(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE v (id int PRIMARY KEY, tz timestamptz, day date, iv interval, raw bytea, f float8)")
	const insert, want = `INSERT INTO v VALUES (1, '2026-11-30 01:02:03+00', '2026-11-30', '1 day 02:00:00', '\x00ff', 0.1234567890123)`,
		`{id=1 tz=2026-11-30 01:02:03+00 day=2026-11-30 iv=1 day 02:00:00 raw=\x00ff f=0.1234567890123}`
	r := d.start(d.feeder("public.v"), cdc.Position{})
	d.exec(insert)
	same(t, shown(r.caughtUp()), "c v - "+want)
	at := r.stop()
	for _, setting := range []string{
		"datestyle = 'German'", "timezone = 'Asia/Tokyo'", "bytea_output = 'escape'",
		"intervalstyle = 'iso_8601'", "extra_float_digits = 0",
	} {
		d.exec("ALTER DATABASE " + d.name + " SET " + setting)
	}
	d.exec("ALTER ROLE postgres IN DATABASE " + d.name + " SET extra_float_digits = -5")
	again := d.start(d.feeder("public.v"), at)
	d.exec("DELETE FROM v", insert)
	changes := again.caughtUp()
	same(t, shown(changes[len(changes)-1:]), "c v - "+want)
	again.stop()
}

// Every row of cdc/TYPES.md holds for this feeder.
func TestTypesTable(t *testing.T) {
	d := newDB(t)
	var vectors []cdctest.Vector
	columns, values := []string{"id int PRIMARY KEY"}, []string{"1"}
	for _, v := range cdctest.Types(t) {
		if v.Server == cdc.Postgres {
			vectors = append(vectors, v)
			columns, values = append(columns, fmt.Sprintf("c%d %s", len(vectors), v.Type)), append(values, v.Insert)
		}
	}
	d.exec("CREATE TABLE types (" + strings.Join(columns, ", ") + ")")
	r := d.start(d.feeder("public.types"), cdc.Position{})
	d.exec("INSERT INTO types VALUES (" + strings.Join(values, ", ") + ")")
	changes := r.caughtUp()
	if len(changes) != 1 {
		t.Fatalf("%d changes", len(changes))
	}
	for i, v := range vectors {
		if got := changes[0].After[i+1]; got != v.Value {
			t.Errorf("%s of %s: got %+v, the table says %+v", v.Insert, v.Type, got, v.Value)
		}
		if got := changes[0].Columns.List[i+1].Type; got != v.Type {
			t.Errorf("type %q, the table says %q", got, v.Type)
		}
	}
	r.stop()
}
