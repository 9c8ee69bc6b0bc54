//go:build integration

package debezium

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"invalidator/test/integration/harness"
)

// table is one that the test makes and maps. Its columns are "name type", with the type as the database writes it.
type table struct {
	name, key string
	columns   []string
	then      string // done to it once it is made
}

// shop is what one kind of database holds and what is done to it, each statement a transaction of its own.
type shop struct {
	tables     []table
	statements []string
}

// The tables ready and done are mapped by nobody: their rows say that a route reads, and that it has read everything.
const ready, done = "ready", "done"

var shops = map[harness.Kind]shop{
	harness.MySQL: {
		tables: []table{
			{name: "users", key: "id", then: "MODIFY name varchar(100) CHARACTER SET latin1", columns: []string{
				"id bigint unsigned", "email varchar(200)", "name varchar(100)", "version int", "updated_at timestamp(6)"}},
			{name: "listings", key: "org_id, id", then: "MODIFY sku varchar(40) NOT NULL", columns: []string{
				"id int", "org_id int", "sku varchar(40)", "price decimal(12,4)", "status enum('draft','live','gone')", "tags set('a','b','c')"}},
			{name: "zoo", key: "id", columns: []string{
				"id int", "u8 tinyint unsigned", "i8 tinyint", "b1 tinyint(1)", "i64 bigint", "u64 bigint unsigned", "d decimal(30,10)",
				"c char(5)", "v varchar(50)", "t text", "bl varbinary(16)", "bin16 binary(16)", "bi bit(1)", "bi12 bit(12)", "dt date",
				"dtm datetime", "dtm6 datetime(6)", "ts timestamp", "tm time(3)", "y year", "e enum('x','y,z')", "s set('p','q')",
				`e2 enum('it''s','a\\b','ü')`}},
			{name: "scales", key: "id", columns: []string{"id int", "f float", "g double", "j json", "n int"}},
		},
		statements: []string{
			"INSERT INTO users VALUES (1,'A@x.io','Zoë',1,'2026-11-30 01:02:03.123456'),(18446744073709551615,'max@x.io','max',2,null)",
			"INSERT INTO listings(id,org_id,sku,price,status,tags) VALUES (1,7,'A-1',10.5,'live','a,c'),(2,7,'A-2',0.0001,'draft','')",
			`INSERT INTO zoo VALUES (1,255,-128,1,-5,18446744073709551615,'12345678901234567890.0123456789','ab','vé','tx',x'00ff10',
				x'00112233445566778899aabbccddee00',b'1',b'101010101010','2026-02-28','2026-02-28 23:59:59','2026-02-28 23:59:59.000001',
				'2026-02-28 12:00:00','-12:34:56.789',2026,'y,z','p,q','a\\b')`,
			"INSERT INTO zoo(id) VALUES (2)",
			"INSERT INTO zoo(id,i8,b1,u64,d,v,dt,dtm6,tm,e,s,e2) VALUES (3,0,0,0,-0.5,'','9999-12-31','1969-12-31 23:59:59.5','838:59:59','x','','it''s'),(4,0,0,0,0,'',null,null,null,null,null,'ü')",
			"INSERT INTO scales VALUES (1,1.5,0.1,'{\"b\":1,\"a\":[1,2.50,\"x\"]}',7)",
			"UPDATE users SET email='b@x.io' WHERE id=1",
			"UPDATE users SET id=18446744073709551614 WHERE id=18446744073709551615",
			"UPDATE listings SET org_id=9 WHERE id=1",
			"UPDATE listings SET price=11, status=NULL WHERE id=2",
			"UPDATE zoo SET v='changed', d=1, bin16=x'ff', ts=NULL WHERE id=1",
			"UPDATE zoo SET id=5 WHERE id=1",
			"ALTER TABLE users ADD COLUMN phone varchar(20) AFTER email",
			"INSERT INTO users(id,email,phone,name,version,updated_at) VALUES (3,'c@x.io','+1','n',1,null)",
			"UPDATE users SET phone='+2'",
			"DELETE FROM users WHERE id=1",
			"DELETE FROM listings",
			"DELETE FROM zoo",
			"DELETE FROM scales",
		},
	},
	harness.Postgres: {
		tables: []table{
			{name: "users", key: "id", columns: []string{
				"id bigint", "email text", "name character varying(100)", "version integer", "updated_at timestamp with time zone"}},
			{name: "listings", key: "org_id, id", then: "ALTER sku SET NOT NULL", columns: []string{
				"org_id integer", "id integer", "sku text", "price numeric(12,4)", "status text"}},
			{name: "zoo", key: "id", then: "REPLICA IDENTITY FULL", columns: []string{
				"id integer", "b boolean", "i2 smallint", "i8 bigint", "n numeric", "n2 numeric(30,10)", "c character(5)",
				"v character varying(50)", "t text", "by bytea", "u uuid", "dt date", "ts timestamp without time zone",
				"ts3 timestamp(3) without time zone", "tstz timestamp with time zone", "tm time without time zone", "iv interval",
				"arr integer[]", "words text[]", "inet inet", "mny money", "bt bit(3)", "bt1 bit(1)"}},
			{name: "scales", key: "id", columns: []string{"id integer", "r real", "d double precision", "j json", "jb jsonb", "n integer"}},
			{name: "bigrow", key: "id", then: "ALTER big SET STORAGE EXTERNAL", columns: []string{"id integer", "small text", "big text"}},
			{name: "bigfull", key: "id", then: "ALTER big SET STORAGE EXTERNAL, REPLICA IDENTITY FULL", columns: []string{"id integer", "small text", "big text"}},
		},
		statements: []string{
			"INSERT INTO users VALUES (1,'A@x.io','Zoé',1,'2026-11-30 01:02:03.123456+00'),(2,'b@x.io',null,2,null)",
			"INSERT INTO listings VALUES (7,1,'A-1',10.5,'live'),(7,2,'',0.0001,null)",
			`INSERT INTO zoo VALUES (1,true,-5,9223372036854775807,123.45,'12345678901234567890.0123456789','ab','vé','tx','\x00ff10',
				'6f1ed002-ab5c-4d8e-9c2b-0123456789ab','2026-02-28','2026-02-28 23:59:59.000001','2026-02-28 23:59:59.12',
				'2026-02-28 23:59:59+02','12:34:56.789','1 day 02:00','{1,2,null}',array['a','b c',null],'10.0.0.1/8','12.34',b'101',b'1')`,
			"INSERT INTO zoo(id) VALUES (2)",
			"INSERT INTO zoo(id,b,i8,n,n2,v,dt,ts,tstz,arr,bt1) VALUES (3,false,-1,-1.005,-0.5,'','0001-01-01','1969-12-31 23:59:59.5','2026-01-01',array[]::int[],b'0')",
			"INSERT INTO scales VALUES (1,1.5,0.1,'{\"b\":1, \"a\":2}','{\"b\":1, \"a\":2}',7)",
			"INSERT INTO bigrow VALUES (1,'a',repeat('0123456789',1000))",
			"INSERT INTO bigfull VALUES (1,'a',repeat('0123456789',1000))",
			"UPDATE users SET email='b@x.io' WHERE id=1",
			"UPDATE users SET id=5 WHERE id=1",
			"UPDATE listings SET org_id=9 WHERE id=1",
			"UPDATE zoo SET v='changed' WHERE id=1",
			"UPDATE zoo SET id=5, bt=b'000' WHERE id=1",
			"UPDATE bigrow SET small='b' WHERE id=1",
			"UPDATE bigfull SET small='b' WHERE id=1",
			"UPDATE bigrow SET big=big || '!' WHERE id=1",
			"UPDATE bigfull SET big=big || '!' WHERE id=1",
			"ALTER TABLE users ADD COLUMN phone text",
			"INSERT INTO users VALUES (3,'c@x.io','n',1,null,'+1')",
			"UPDATE users SET phone='+2'",
			"SELECT pg_logical_emit_message(true,'cache','user:1:v3')",
			"DELETE FROM users WHERE id=5",
			"DELETE FROM listings",
			"DELETE FROM zoo",
			"DELETE FROM scales",
			"DELETE FROM bigrow",
			"DELETE FROM bigfull",
		},
	},
}

// create makes the tables.
func (s *shop) create(t *testing.T, d *harness.Database) {
	t.Helper()
	for _, name := range []string{ready, done} {
		d.Do(t, "CREATE TABLE "+name+" (id int PRIMARY KEY)")
	}
	for _, tab := range s.tables {
		var columns []string
		for _, c := range tab.columns {
			if name, _, _ := strings.Cut(c, " "); !slices.Contains(strings.Split(tab.key, ", "), name) {
				c += " NULL" // also where a MySQL timestamp would be NOT NULL
			}
			columns = append(columns, c)
		}
		d.Do(t, fmt.Sprintf("CREATE TABLE %s (%s, PRIMARY KEY (%s))", tab.name, strings.Join(columns, ", "), tab.key))
		if tab.then != "" {
			d.Do(t, "ALTER TABLE "+tab.name+" "+tab.then)
		}
	}
}

// changes are the statements that change rows, or that write a message.
func (s *shop) changes() []string {
	return slices.DeleteFunc(slices.Clone(s.statements), func(st string) bool { return strings.HasPrefix(st, "ALTER") })
}

// mappings are the mapping files of two teams that map every column that a key can be made of, with the types declared or
// not. A key tells its column: col:<table>.<column>:<primary key>:<value>.
func (s *shop) mappings(d *harness.Database, declared bool) string {
	var b strings.Builder
	b.WriteString("version: 1\nteam: all\npools: [col, user, listing]\nmappings:\n")
	for _, tab := range s.tables {
		row := "{" + strings.ReplaceAll(tab.key, ", ", "}/{") + "}"
		fmt.Fprintf(&b, "  - name: %s\n    table: %s.%s\n", tab.name, d.Schema, tab.name)
		columns := tab.columns
		if tab.name == "users" {
			columns = append(slices.Clone(columns), "phone "+map[harness.Kind]string{harness.MySQL: "varchar(20)", harness.Postgres: "text"}[d.Kind])
		}
		var keys, types []string
		for _, c := range columns {
			name, typ, _ := strings.Cut(c, " ")
			if f := filter(typ); f != "" {
				keys = append(keys, fmt.Sprintf("col:%s.%s:%s:{%s|%s}", tab.name, name, row, name, f))
				types = append(types, fmt.Sprintf("%s: %q", name, typ))
			}
		}
		switch tab.name {
		case "users":
			keys = append(keys, "user:{id}", "user:by-email:{email|lower}")
		case "listings":
			keys = append(keys, "listing:{org_id}:{sku|urlencode}")
		}
		if declared {
			fmt.Fprintf(&b, "    columns: {%s}\n", strings.Join(types, ", "))
		}
		b.WriteString("    keys:\n")
		for _, k := range keys {
			fmt.Fprintf(&b, "      - %q\n", k)
		}
	}
	return b.String()
}

// filter is what makes a value of a type fit for a key; none where no key can be made of it.
func filter(typ string) string {
	word := strings.FieldsFunc(typ, func(r rune) bool { return r == ' ' || r == '(' })[0]
	switch word {
	case "float", "double", "real", "json", "jsonb":
		return ""
	case "binary", "varbinary", "bytea":
		return "hex"
	}
	return "urlencode"
}
