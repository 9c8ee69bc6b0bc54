//go:build integration

package integration

import (
	"fmt"
	"strings"

	"invalidator/test/integration/harness"
)

// valueCases: what a key shows is what a SELECT shows.
func valueCases() []fieldCase {
	nines := strings.Repeat("9", 38)
	const zero = "00000000-0000-0000-0000-000000000000"
	return []fieldCase{{
		name: "A1 unsigned integers", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id BIGINT UNSIGNED PRIMARY KEY, t TINYINT UNSIGNED, s SMALLINT UNSIGNED, m MEDIUMINT UNSIGNED, i INT UNSIGNED)`},
		keys:  []string{"{id}", "small:{t}:{s}:{m}:{i}"},
		steps: []step{
			{[]string{`INSERT INTO $t VALUES (9223372036854775807, 255, 65535, 16777215, 4294967295), (9223372036854775808, 127, 0, 0, 0), (18446744073709551615, 128, 0, 0, 0)`},
				[]string{"9223372036854775807", "9223372036854775808", "18446744073709551615", "small:255:65535:16777215:4294967295", "small:128:0:0:0"}},
			{[]string{`DELETE FROM $t`}, []string{"9223372036854775807", "9223372036854775808", "18446744073709551615"}},
		},
		stays: []string{"-1", "small:-1:-1:-1:-1", "-9223372036854775808"},
	}, {
		name: "A2 decimals", kinds: mysqls, // whose scale ends at 30 in MySQL
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, d1 DECIMAL(38,0), d2 DECIMAL(10,2), d3 DECIMAL(38,30), d4 DECIMAL(10,2))`},
		keys:  []string{"{d1}", "price:{d2}", "{d3}", "{d4}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, ` + nines + `, 500, 0.000000000000000000000000000001, -0.1)`},
			[]string{nines, "price:500.00", "0.000000000000000000000000000001", "-0.10"}}},
		stays: []string{"price:500", "price:500.0", "-0.1"},
	}, {
		name: "A2 decimals of scale 38", kinds: []harness.Kind{harness.MariaDB, harness.Postgres},
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, d1 NUMERIC(38,0), d2 NUMERIC(10,2), d3 NUMERIC(38,38), d4 NUMERIC(10,2))`},
		keys:  []string{"{d1}", "price:{d2}", "{d3}", "{d4}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, ` + nines + `, 500, 0.00000000000000000000000000000000000001, -0.1)`},
			[]string{nines, "price:500.00", "0.00000000000000000000000000000000000001", "-0.10"}}},
		stays: []string{"price:500", "-0.1"},
	}, {
		name: "A3 A4 binary is padded, text is not", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id BINARY(16) PRIMARY KEY, v VARBINARY(16), c CHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, b BINARY(4))`},
		keys:  []string{"{id|uuid}", "v:{v|uuid}", "hex:{v|hex}", "text:{c}:{b|hex}"},
		steps: []step{{[]string{
			`INSERT INTO $t VALUES (X'00112233445566778899AABBCCDDEE00', X'00112233445566778899AABBCCDDEE00', 'USA', 'USA')`,
			`INSERT INTO $t VALUES (X'00112233445566778899AABBCCDD0000', X'00112233445566778899AABBCCDD0000', 'DE', 'DE')`,
			`INSERT INTO $t VALUES (X'00000000000000000000000000000000', X'00000000000000000000000000000000', '', '')`,
			`INSERT INTO $t VALUES (X'01', X'1100', 'x', 'x')`},
			[]string{"00112233-4455-6677-8899-aabbccddee00", "v:00112233-4455-6677-8899-aabbccddee00",
				"00112233-4455-6677-8899-aabbccdd0000", "v:00112233-4455-6677-8899-aabbccdd0000", zero, "v:" + zero,
				"01000000-0000-0000-0000-000000000000", "hex:1100", "text:USA:55534100", "text:DE:44450000"}},
			{[]string{`DELETE FROM $t`}, []string{"00112233-4455-6677-8899-aabbccddee00", "00112233-4455-6677-8899-aabbccdd0000", zero}}},
		says: []string{"mapping=rows", "{v|uuid}", "column=v", "reason=type"}, // two bytes are no UUID
	}, {
		name: "A5 bits", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, b BIT(64), b9 BIT(9), b16 BIT(16))`},
		keys:  []string{"{b}:{b9}:{b16}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 9223372036854775808, 341, 0x0102), (2, 2147483648, 1, 1), (3, 4294967296, 256, 2)`},
			[]string{"9223372036854775808:341:258", "2147483648:1:1", "4294967296:256:2"}}},
		stays: []string{"-2147483648:1:1", "1:256:2"},
	}, {
		name: "A9 times do not depend on zones", kinds: mysqls, // the feeder's process is in New York
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, ts TIMESTAMP(3), dt DATETIME(3))`},
		keys:  []string{"{ts|urlencode}", "dt:{dt|urlencode}"},
		steps: []step{{[]string{`SET time_zone = '+05:30'`,
			`INSERT INTO $t VALUES (1, '2024-11-03 11:00:00.120', '2024-11-03 11:00:00.120'), (2, '2024-11-03 12:00:00.120', '2024-11-03 01:30:00')`},
			[]string{"2024-11-03%2005%3A30%3A00.120", "2024-11-03%2006%3A30%3A00.120", "dt:2024-11-03%2011%3A00%3A00.120", "dt:2024-11-03%2001%3A30%3A00.000"}}},
		stays: []string{"2024-11-03%2001%3A30%3A00.120", "2024-11-03%2011%3A00%3A00.120"},
	}, {
		name: "A13 TINYINT(1) is a number", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, flag TINYINT(1))`},
		keys:  []string{"{flag}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 9), (2, -1), (3, 0)`}, []string{"9", "-1", "0"}}},
		stays: []string{"1", "true"},
	}, {
		name: "A18 generated columns in the middle", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, first VARCHAR(9), v VARCHAR(20) AS (CONCAT(first, '-v')) VIRTUAL, s VARCHAR(20) AS (CONCAT(first, '-s')) STORED, phone VARCHAR(9))`},
		keys:  []string{"{id}:{phone}", "{s}", "{v}"},
		steps: []step{{[]string{`INSERT INTO $t (id, first, phone) VALUES (1, 'ann', '555')`}, []string{"1:555", "ann-s", "ann-v"}}},
	}, {
		name: "A18 a functional index", kinds: []harness.Kind{harness.MySQL}, // MariaDB has none
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, phone VARCHAR(9), n INT UNSIGNED, INDEX((RIGHT(phone,4))))`},
		keys:  []string{"{id}:{phone}:{n}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, '555-1234', 4000000000)`, `ALTER TABLE $t ADD z INT`, `UPDATE $t SET n = 7`},
			[]string{"1:555-1234:4000000000", "1:555-1234:7"}}},
	}, {
		name: "A18 an invisible primary key", kinds: []harness.Kind{harness.MariaDB}, // MySQL's begin with 8.0.23
		setup: []string{`CREATE TABLE $t (row_id BIGINT UNSIGNED INVISIBLE AUTO_INCREMENT PRIMARY KEY, phone VARCHAR(9), n INT)`},
		keys:  []string{"{row_id}:{phone}:{n}"},
		steps: []step{{[]string{`INSERT INTO $t (phone, n) VALUES ('555', 7)`, `UPDATE $t SET n = 8`}, []string{"1:555:7", "1:555:8"}}},
	}}
}

// labelCases: the log has numbers, a SELECT shows labels.
func labelCases() []fieldCase {
	labels := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, ",'l%d'", i+1)
		}
		return b.String()[1:]
	}
	return []fieldCase{{
		name: "A6 labels of enum and set", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (job INT, type ENUM('RFS','ESS'), e ENUM(` + labels(300) + `), s SET(` + labels(18) + `), PRIMARY KEY (job, type))`},
		keys:  []string{"{job}:{type}", "e:{e}", "set:{s}"},
		steps: []step{
			{[]string{`INSERT INTO $t VALUES (7, 'ESS', 'l257', 'l18,l1,l9')`}, []string{"7:ESS", "e:l257", "set:l1,l9,l18"}},
			{[]string{`SET sql_mode = ''`, `INSERT INTO $t VALUES (8, 'no such label', 'nor this', '')`}, []string{"8:", "e:", "set:"}},
			{[]string{`DELETE FROM $t`}, []string{"7:ESS", "8:", "e:l257", "e:", "set:l1,l9,l18", "set:"}},
		},
		stays: []string{"7:2", "8:0", "e:257", "e:1", "e:0", "set:131329", "set:0"},
	}}
}

// documentCases: what has no one text gives no key, and costs no other template of its row.
func documentCases() []fieldCase {
	floats := []string{"345.678894", "3.14", "1.234567", "1e20", "-0.0"}
	insert := `INSERT INTO $t VALUES`
	stays := []string{"f:345.679", "f:345.6789", "f:1.23457", "f:100000000000000000000", "f:1e+20", "f:1e20", "f:-0", "f:0"}
	var ids []string
	for i, f := range floats {
		insert += fmt.Sprintf(" (%d, %s),", i, f)
		ids, stays = append(ids, fmt.Sprint(i)), append(stays, "f:"+f)
	}
	// A decimal in MySQL's JSON is one only where SQL made it; in a text of JSON it is a double there.
	const digits = "12345678901234567890.12"
	return []fieldCase{{
		name: "A11 a float gives no key", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, f FLOAT)`},
		keys:  []string{"f:{f}", "{id}"},
		steps: []step{{[]string{strings.TrimSuffix(insert, ",")}, ids}},
		stays: stays,
		says:  []string{"table=", "$t", "f:{f}", "column=f", "reason=type", "a float has no one text"},
	}, {
		name: "A11 a float gives no key", kinds: postgres,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, f REAL)`},
		keys:  []string{"f:{f}", "{id}"},
		steps: []step{{[]string{strings.TrimSuffix(insert, ",")}, ids}},
		stays: stays,
		says:  []string{"table=", "$t", "f:{f}", "column=f", "reason=type", "a float has no one text"},
	}, {
		name: "A12 a path in a document", kinds: []harness.Kind{harness.MySQL},
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, j JSON)`},
		keys:  []string{"j:{j}", "b:{j|json('b')}", "a:{j|json('a')}", "x:{j|json('x')}", "{id}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, '{"b":1.0,"a":` + digits + `}')`, `UPDATE $t SET j = JSON_OBJECT('b', 2, 'a', CAST(` + digits + ` AS DECIMAL(22,2)))`},
			[]string{"1", "b:1.0", "b:2", "a:1.2345678901234567e19", "a:" + digits}}},
		stays: []string{"b:1", "x", "x:null"},
		says:  []string{"$t", "j:{j}", "column=j", "reason=type", "a JSON document has no one text"},
	}, {
		name: "A12 a path in a document", kinds: postgres,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, j JSONB)`},
		keys:  []string{"j:{j}", "b:{j|json('b')}", "a:{j|json('a')}", "x:{j|json('x')}", "{id}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, '{"b":1.0,"a":` + digits + `}')`}, []string{"1", "b:1.0", "a:" + digits}}},
		stays: []string{"b:1", "x", "x:null"},
		says:  []string{"$t", "j:{j}", "column=j", "reason=type", "a JSON document has no one text"},
	}, {
		name: "A12 a path in a document", kinds: []harness.Kind{harness.MariaDB}, // to which JSON is a text
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, j JSON)`},
		keys:  []string{"b:{j|json('b')}", "a:{j|json('a')}", "x:{j|json('x')}", "{id}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, '{"b":1.0,"a":` + digits + `}')`}, []string{"1", "b:1.0", "a:" + digits}}},
		stays: []string{"b:1", "x", "x:null"},
	}}
}
