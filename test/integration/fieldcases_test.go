//go:build integration

package integration

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// fieldCase is a fault that people met with such pipelines, restated: rows as they are before, statements, and the keys whose
// copies must be deleted by each. The names begin with the numbers under which such faults are collected.
type fieldCase struct {
	name  string
	kinds []harness.Kind
	setup []string // tables and rows; $t is the case's own table
	keys  []string // templates, without the pool, which is the case's own
	steps []step
	stays []string // keys that nothing may delete
}

// step is statements of one session and the keys that they must delete.
type step struct {
	sql  []string
	keys []string
}

var (
	mysqls   = []harness.Kind{harness.MySQL, harness.MariaDB}
	postgres = []harness.Kind{harness.Postgres}
)

// TestFieldCases runs SQL through the whole pipeline: every key that it must delete is filled on every copy before, and is gone
// after; a key beside it stays.
func TestFieldCases(t *testing.T) {
	for _, kind := range harness.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			r := newCaseRun(t, kind)
			// All at once first: workers look for new topics every few seconds only.
			for i, c := range r.cases {
				r.begin(t, i, c, c.steps[0])
			}
			for i, c := range r.cases {
				t.Run(c.name, func(t *testing.T) {
					r.await(t, i, c, c.steps[0])
					for _, s := range c.steps[1:] {
						r.begin(t, i, c, s)
						r.await(t, i, c, s)
					}
				})
			}
		})
	}
}

// caseRun is the pipeline of all cases of one kind of database.
type caseRun struct {
	*harness.Pipeline
	db    *harness.Database
	cases []fieldCase
	ring  *ring
	nodes map[string]*harness.Node
}

func newCaseRun(t *testing.T, kind harness.Kind) *caseRun {
	t.Helper()
	r := &caseRun{db: harness.NewDatabase(t, kind), nodes: map[string]*harness.Node{}}
	mappings := map[string]string{}
	for _, c := range fieldCases() {
		if slices.Contains(c.kinds, kind) {
			i := len(r.cases)
			r.cases = append(r.cases, c)
			for _, s := range c.setup {
				r.db.Do(t, strings.ReplaceAll(s, "$t", caseTable(i)))
			}
			mappings[caseTable(i)+".yaml"] = r.mapping(i, c)
		}
	}
	nodes := harness.StartNodes(t, 4)
	for _, n := range nodes {
		r.nodes[n.Addr] = n
	}
	record := sink.Record{Shards: shards(nodes)}
	r.ring = newRing(record)
	r.Pipeline = harness.New(t, harness.Options{Databases: []*harness.Database{r.db}, Mappings: mappings, Record: record, Settle: 50 * time.Millisecond})
	r.Feed()
	r.Work()
	r.AwaitFeeding(r.db)
	return r
}

func caseTable(i int) string { return fmt.Sprintf("case%d", i) }

// mapping is a file for one case: its pool is named like its table.
func (r *caseRun) mapping(i int, c fieldCase) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\nteam: %s\npools: [%[1]s]\nmappings:\n  - name: rows\n    table: %s.%[1]s\n    keys:\n", caseTable(i), r.db.Schema)
	for _, k := range c.keys {
		fmt.Fprintf(&b, "      - %q\n", caseTable(i)+":"+k)
	}
	return b.String()
}

func caseKey(i int, k string) string { return caseTable(i) + ":" + k }

// stay are the keys of a case that nothing deletes.
func (c fieldCase) stay() []string { return append([]string{"beside"}, c.stays...) }

// begin fills what a step deletes, and what it does not, and executes it.
func (r *caseRun) begin(t *testing.T, i int, c fieldCase, s step) {
	t.Helper()
	for _, k := range append(slices.Clone(s.keys), c.stay()...) {
		for _, addr := range r.ring.owners(caseKey(i, k)) {
			if err := r.nodes[addr].Set(caseKey(i, k), "before"); err != nil {
				t.Fatal(err)
			}
		}
	}
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// What a case sets in its session must not come back with the connection.
	defer conn.Raw(func(any) error { return driver.ErrBadConn })
	for _, q := range s.sql {
		if _, err := conn.ExecContext(t.Context(), strings.ReplaceAll(q, "$t", caseTable(i))); err != nil {
			t.Fatalf("%s: %s: %v", c.name, q, err)
		}
	}
}

// await waits until a step's keys are gone from every owner, and looks for what must have stayed.
func (r *caseRun) await(t *testing.T, i int, c fieldCase, s step) {
	t.Helper()
	for _, k := range s.keys {
		for _, addr := range r.ring.owners(caseKey(i, k)) {
			harness.AwaitQuick(t, fmt.Sprintf("%q to be deleted on %s", caseKey(i, k), addr), func() (bool, string) {
				hit, err := r.nodes[addr].Get(caseKey(i, k))
				return err == nil && !hit.Found, fmt.Sprint(hit, err)
			})
		}
	}
	for _, k := range c.stay() {
		for _, addr := range r.ring.owners(caseKey(i, k)) {
			if hit, err := r.nodes[addr].Get(caseKey(i, k)); err != nil || !hit.Found {
				t.Errorf("%q is gone from %s: %v %v", caseKey(i, k), addr, hit, err)
			}
		}
	}
}

func fieldCases() []fieldCase {
	return slices.Concat(valueCases(), textCases(), postgresCases(), imageCases())
}

// valueCases: what a key shows is what a SELECT shows.
func valueCases() []fieldCase {
	nines := strings.Repeat("9", 38)
	return []fieldCase{{
		name: "A1 unsigned integers", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id BIGINT UNSIGNED PRIMARY KEY, t TINYINT UNSIGNED, s SMALLINT UNSIGNED, m MEDIUMINT UNSIGNED, i INT UNSIGNED)`},
		keys:  []string{"{id}", "small:{t}:{s}:{m}:{i}"},
		steps: []step{
			{[]string{`INSERT INTO $t VALUES (9223372036854775807, 255, 65535, 16777215, 4294967295), (9223372036854775808, 127, 0, 0, 0), (18446744073709551615, 128, 0, 0, 0)`},
				[]string{"9223372036854775807", "9223372036854775808", "18446744073709551615", "small:255:65535:16777215:4294967295", "small:128:0:0:0"}},
			{[]string{`DELETE FROM $t WHERE id > 9223372036854775807`}, []string{"9223372036854775808", "18446744073709551615"}},
		},
		stays: []string{"-1", "small:-1:-1:-1:-1"},
	}, {
		name: "A2 decimals", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, d1 DECIMAL(38,0), d2 DECIMAL(10,2), d3 DECIMAL(38,30), d4 DECIMAL(10,2))`},
		keys:  []string{"{d1}", "{d2}", "{d3}", "{d4}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, ` + nines + `, 500, 0.000000000000000000000000000001, -0.1)`},
			[]string{nines, "500.00", "0.000000000000000000000000000001", "-0.10"}}},
		stays: []string{"500", "500.0", "-0.1"},
	}, {
		name: "A2 decimals", kinds: postgres,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, d1 NUMERIC(38,0), d2 NUMERIC(10,2), d3 NUMERIC(38,38))`},
		keys:  []string{"{d1}", "{d2}", "{d3}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, ` + nines + `, 500, 0.00000000000000000000000000000000000001)`},
			[]string{nines, "500.00", "0.00000000000000000000000000000000000001"}}},
		stays: []string{"500"},
	}, {
		name: "A3 A4 binary is padded, text is not", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id BINARY(16) PRIMARY KEY, v VARBINARY(16), c CHAR(4) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, b BINARY(4))`},
		keys:  []string{"{id|hex}", "v:{v|hex}", "text:{c}:{b|hex}"},
		steps: []step{{[]string{
			`INSERT INTO $t VALUES (X'00112233445566778899AABBCCDDEE00', X'1100', 'USA', 'USA')`,
			`INSERT INTO $t VALUES (X'00000000000000000000000000000000', X'', 'DE', 'DE')`},
			[]string{"00112233445566778899aabbccddee00", strings.Repeat("0", 32), "v:1100", "text:USA:55534100", "text:DE:44450000"}}},
	}, {
		name: "A5 bits", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, b BIT(64), b9 BIT(9), b16 BIT(16))`},
		keys:  []string{"{b}:{b9}:{b16}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 9223372036854775808, 341, 258), (2, 2147483648, 1, 1)`},
			[]string{"9223372036854775808:341:258", "2147483648:1:1"}}},
	}, {
		name: "A6 labels of enum and set", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (job INT, type ENUM('RFS','ESS'), s SET('a','b','c','d','e','f','g','h','i'), PRIMARY KEY (job, type))`},
		keys:  []string{"{job}:{type}", "set:{s}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (7, 'ESS', 'i,a')`}, []string{"7:ESS", "set:a,i"}},
			{[]string{`DELETE FROM $t`}, []string{"7:ESS"}}},
		stays: []string{"7:2"},
	}, {
		name: "A9 times do not depend on the session's zone", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, ts TIMESTAMP(3), dt DATETIME(3))`},
		keys:  []string{"{ts|urlencode}", "dt:{dt|urlencode}"},
		steps: []step{{[]string{`SET time_zone = '+05:30'`, `INSERT INTO $t VALUES (1, '2024-11-03 11:00:00.120', '2024-11-03 11:00:00.120')`},
			[]string{"2024-11-03%2005%3A30%3A00.120", "dt:2024-11-03%2011%3A00%3A00.120"}}},
	}, {
		name: "A11 A12 floats and documents give no key, the others do", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, f FLOAT, j JSON)`},
		keys:  []string{"{id}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 3.14, '{"b":1.0}')`, `UPDATE $t SET f = 1e20`}, []string{"1"}}},
	}, {
		name: "A13 TINYINT(1) is a number", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, flag TINYINT(1))`},
		keys:  []string{"{flag}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 9), (2, -1), (3, 0)`}, []string{"9", "-1", "0"}}},
		stays: []string{"1", "true"},
	}, {
		name: "A18 generated and invisible columns", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, first VARCHAR(9), v VARCHAR(20) AS (CONCAT(first, '-v')) VIRTUAL, s VARCHAR(20) AS (CONCAT(first, '-s')) STORED, phone VARCHAR(9))`},
		keys:  []string{"{id}:{phone}", "{s}"},
		steps: []step{{[]string{`INSERT INTO $t (id, first, phone) VALUES (1, 'ann', '555')`}, []string{"1:555", "ann-s"}}},
	}}
}

// textCases: bytes of a key are the bytes of the text.
func textCases() []fieldCase {
	long := strings.Repeat("x", 200)
	return []fieldCase{{
		name: "A10 character sets", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, name VARCHAR(20) CHARACTER SET latin1, g VARCHAR(20) CHARACTER SET gbk)`},
		keys:  []string{"{name}", "g:{g}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 'Müller', '中'), (2, '€', '文')`}, []string{"Müller", "€", "g:中", "g:文"}}},
	}, {
		name: "A14 equal by collation, two keys", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (k VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY)`, `INSERT INTO $t VALUES ('abc')`},
		keys:  []string{"{k}"},
		steps: []step{{[]string{`UPDATE $t SET k = 'ABC'`}, []string{"abc", "ABC"}},
			{[]string{`DELETE FROM $t WHERE k = 'abc '`}, []string{"ABC"}}},
	}, {
		name: "A16 parts are taken by name", kinds: harness.Kinds,
		setup: []string{`CREATE TABLE $t (a VARCHAR(9), b VARCHAR(9), PRIMARY KEY (b, a))`},
		keys:  []string{"{b}:{a}"},
		steps: []step{{[]string{`INSERT INTO $t (b, a) VALUES ('x:y', 'z'), ('x', 'w')`}, []string{"x:y:z", "x:w"}}},
	}, {
		name: "A17 null is no key", kinds: harness.Kinds,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, email VARCHAR(20))`},
		keys:  []string{"{email}"},
		steps: []step{
			{[]string{`INSERT INTO $t VALUES (1, NULL)`, `UPDATE $t SET email = 'a@x.test'`}, []string{"a@x.test"}},
			{[]string{`UPDATE $t SET email = 'b@x.test'`}, []string{"b@x.test"}},
			{[]string{`UPDATE $t SET email = NULL`, `INSERT INTO $t VALUES (2, 'c@x.test')`}, []string{"c@x.test"}},
		},
		stays: []string{"null", "NULL"},
	}, {
		name: "G6 a row too large for a record", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, slug VARCHAR(20), body LONGTEXT)`},
		keys:  []string{"{id}:{slug}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 's', REPEAT('b', 2000000))`}, []string{"1:s"}},
			{[]string{`UPDATE $t SET slug = 't', body = REPEAT('c', 2000000)`}, []string{"1:s", "1:t"}}},
	}, {
		name: "H1 a key that memcached cannot hold", kinds: harness.Kinds,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, url VARCHAR(255))`},
		keys:  []string{"{id}", "url:{url}"},
		steps: []step{
			{[]string{`INSERT INTO $t VALUES (1, 'a b'), (2, '` + long + long[:55] + `'), (3, '` + long + `')`}, []string{"1", "2", "3", "url:" + long}},
			{[]string{"INSERT INTO $t VALUES (4, 'a\r\nflush_all')"}, []string{"4"}},
		},
		stays: []string{"url:a"},
	}, {
		name: "H2 keys are UTF-8 bytes", kinds: harness.Kinds,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, name VARCHAR(99))`},
		keys:  []string{"{name}"},
		steps: []step{{[]string{"INSERT INTO $t VALUES (1, 'Zo\u00eb'), (2, '" + strings.Repeat("😀", 50) + "')"}, []string{"Zo\u00eb", strings.Repeat("😀", 50)}}},
		stays: []string{"Zoe\u0308"}, // the same name, decomposed: another key
	}}
}

// imageCases: what the log does not show of a change.
func imageCases() []fieldCase {
	return []fieldCase{{
		name: "C1 a changed primary key deletes both", kinds: harness.Kinds,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, x INT)`, `INSERT INTO $t VALUES (42, 0)`},
		keys:  []string{"{id}"},
		steps: []step{{[]string{`UPDATE $t SET id = 43 WHERE id = 42`}, []string{"42", "43"}},
			{[]string{`UPDATE $t SET id = 44`, `UPDATE $t SET id = 45`}, []string{"43", "44", "45"}}},
	}, {
		name: "C2 a minimal row image", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, email VARCHAR(20), bio VARCHAR(20))`, `INSERT INTO $t VALUES (42, 'a@x.test', '')`},
		keys:  []string{"{id}", "mail:{email}"},
		steps: []step{{[]string{`SET SESSION binlog_row_image = MINIMAL`, `UPDATE $t SET bio = 'x' WHERE id = 42`}, []string{"42"}}},
		stays: []string{"mail", "mail:NULL"},
	}, {
		name: "D1 columns that come and go", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, a INT)`},
		keys:  []string{"{id}:{a}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 11)`, `ALTER TABLE $t ADD c INT FIRST`, `INSERT INTO $t (id, a, c) VALUES (2, 22, 0)`,
			`ALTER TABLE $t DROP c`, `UPDATE $t SET a = 33 WHERE id = 1`, `DELETE FROM $t WHERE id = 2`},
			[]string{"1:11", "2:22", "1:33"}}},
	}, {
		name: "D5 statements that are not rows", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY)`},
		keys:  []string{"{id}"},
		steps: []step{{[]string{`/*!50100 CREATE PROCEDURE p() BEGIN SELECT 'a;"b'; END */`, `DROP PROCEDURE p`, `INSERT INTO $t VALUES (1)`}, []string{"1"}}},
	}, {
		name: "E7 a document changed in part", kinds: []harness.Kind{harness.MySQL},
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, j JSON)`, `INSERT INTO $t VALUES (42, JSON_OBJECT('a', 1, 'pad', REPEAT('x', 1000)))`},
		keys:  []string{"{id}"},
		steps: []step{{[]string{`SET SESSION binlog_row_value_options = 'PARTIAL_JSON'`, `UPDATE $t SET j = JSON_SET(j, '$.a', 2) WHERE id = 42`}, []string{"42"}}},
	}}
}

func postgresCases() []fieldCase {
	slug := strings.Repeat("s", 200)
	toast := []string{
		`CREATE TABLE $t (id INT PRIMARY KEY, slug TEXT, body TEXT, x INT)`,
		`ALTER TABLE $t ALTER slug SET STORAGE EXTERNAL, ALTER body SET STORAGE PLAIN`,
		`INSERT INTO $t VALUES (1, '` + slug + `', repeat('b', 3000), 0)`,
	}
	return []fieldCase{{
		name: "B3 every type passes as its text", kinds: postgres,
		setup: []string{`CREATE TYPE mood AS ENUM ('sad', 'ok')`, `CREATE DOMAIN age AS INT CHECK (VALUE > 0)`,
			`CREATE TABLE $t (id UUID PRIMARY KEY, m mood, a age, n NUMERIC, t TEXT[], b BOOLEAN)`},
		keys: []string{"{id}", "{m}:{a}:{b}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES ('6F9619FF-8B86-D011-B42D-00C04FC964FF', 'ok', 7, 1, '{x,y}', true)`},
			[]string{"6f9619ff-8b86-d011-b42d-00c04fc964ff", "ok:7:t"}}},
	}, {
		name: "B4 unchanged TOAST, full identity", kinds: postgres,
		setup: append(slices.Clone(toast), `ALTER TABLE $t REPLICA IDENTITY FULL`),
		keys:  []string{"{id}", "slug:{slug}"},
		steps: []step{{[]string{`UPDATE $t SET x = 1`}, []string{"1", "slug:" + slug}}},
	}, {
		name: "B4 unchanged TOAST, default identity", kinds: postgres,
		setup: toast,
		keys:  []string{"{id}", "slug:{slug}"},
		steps: []step{{[]string{`UPDATE $t SET x = 1`}, []string{"1"}}},
		stays: []string{"slug:" + slug}, // it cannot be known
	}, {
		name: "C3 default identity knows the key alone", kinds: postgres,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, email TEXT)`, `INSERT INTO $t VALUES (42, 'a@x.test')`},
		keys:  []string{"{id}", "mail:{email}"},
		steps: []step{{[]string{`UPDATE $t SET email = 'b@x.test' WHERE id = 42`}, []string{"42", "mail:b@x.test"}}},
		stays: []string{"mail:a@x.test"},
	}, {
		name: "C3 full identity knows the old row", kinds: postgres,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, email TEXT)`, `ALTER TABLE $t REPLICA IDENTITY FULL`, `INSERT INTO $t VALUES (42, 'a@x.test')`},
		keys:  []string{"{id}", "mail:{email}"},
		steps: []step{{[]string{`UPDATE $t SET email = 'b@x.test' WHERE id = 42`}, []string{"42", "mail:a@x.test", "mail:b@x.test"}}},
	}, {
		name: "C3 an index as identity", kinds: postgres,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, email TEXT NOT NULL)`, `CREATE UNIQUE INDEX $t_i ON $t (email)`,
			`ALTER TABLE $t REPLICA IDENTITY USING INDEX $t_i`, `INSERT INTO $t VALUES (42, 'a@x.test')`},
		keys:  []string{"{id}", "mail:{email}"},
		steps: []step{{[]string{`UPDATE $t SET email = 'b@x.test' WHERE id = 42`}, []string{"42", "mail:a@x.test", "mail:b@x.test"}}},
	}, {
		name: "C5 rows that a foreign key deletes", kinds: postgres,
		setup: []string{`CREATE TABLE $t_parent (id INT PRIMARY KEY)`, `CREATE TABLE $t (id INT PRIMARY KEY, parent INT REFERENCES $t_parent ON DELETE CASCADE)`,
			`INSERT INTO $t_parent VALUES (1)`, `INSERT INTO $t VALUES (10, 1), (11, 1)`},
		keys:  []string{"{id}"},
		steps: []step{{[]string{`DELETE FROM $t_parent`}, []string{"10", "11"}}},
	}, {
		name: "G6 a row too large for a record", kinds: postgres,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, slug TEXT, body TEXT)`, `ALTER TABLE $t REPLICA IDENTITY FULL`},
		keys:  []string{"{id}:{slug}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 's', repeat('b', 2000000))`}, []string{"1:s"}},
			{[]string{`UPDATE $t SET slug = 't', body = repeat('c', 2000000)`}, []string{"1:s", "1:t"}}},
	}, {
		name: "D1 columns that come and go", kinds: postgres,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, a INT)`},
		keys:  []string{"{id}:{a}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 11)`, `ALTER TABLE $t DROP a`, `ALTER TABLE $t ADD a INT DEFAULT 22`, `INSERT INTO $t (id) VALUES (2)`},
			[]string{"1:11", "2:22"}}},
	}}
}
