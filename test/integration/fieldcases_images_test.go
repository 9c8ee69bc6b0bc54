//go:build integration

package integration

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"invalidator/test/integration/harness"
)

// imageCases: what the log does not show of a change.
func imageCases() []fieldCase {
	return []fieldCase{{
		name: "C1 a changed primary key deletes both", kinds: harness.Kinds,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, x INT)`, `INSERT INTO $t VALUES (42, 0)`},
		keys:  []string{"{id}"},
		steps: []step{{[]string{`UPDATE $t SET id = 43 WHERE id = 42`}, []string{"42", "43"}},
			{[]string{`UPDATE $t SET id = 44`, `UPDATE $t SET id = 45`}, []string{"43", "44", "45"}}},
	}, {
		name: "C2 a row image of a session's own", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, email VARCHAR(20), bio TEXT, n INT)`, `INSERT INTO $t VALUES (42, 'a@x.test', 'old', 0)`},
		keys:  []string{"{id}", "mail:{email}", "bio:{bio}"},
		steps: []step{
			{[]string{`SET SESSION binlog_row_image = MINIMAL`, `UPDATE $t SET bio = 'x' WHERE id = 42`}, []string{"42", "bio:x"}},
			{[]string{`SET SESSION binlog_row_image = NOBLOB`, `UPDATE $t SET n = 2 WHERE id = 42`}, []string{"42", "mail:a@x.test"}},
			{[]string{`SET SESSION binlog_row_image = MINIMAL`, `DELETE FROM $t`}, []string{"42"}},
		},
		stays: []string{"mail:", "mail:NULL", "bio:", "bio:old"},
		says:  []string{"$t", "mail:{email}", "column=email", "reason=absent", "binlog_row_image = FULL"},
	}, {
		name: "C2 a minimal row image without a key", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (a INT, b VARCHAR(9))`, `INSERT INTO $t VALUES (1, 'x')`},
		keys:  []string{"{a}:{b}"},
		steps: []step{{[]string{`SET SESSION binlog_row_image = MINIMAL`, `UPDATE $t SET a = 2`}, []string{"1:x", "2:x"}}},
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
	const uuid = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
	var b strings.Builder // 9000 characters that do not compress
	for i := 0; b.Len() < 9000; i++ {
		fmt.Fprintf(&b, "%x", sha256.Sum256([]byte{byte(i), byte(i >> 8)}))
	}
	slug := b.String()[:9000]
	hash := fmt.Sprintf("slug:%x", sha256.Sum256([]byte(slug)))[:len("slug:")+32] // the whole text is too long for a key
	toast := []string{
		`CREATE TABLE $t (id INT PRIMARY KEY, slug TEXT, body TEXT)`,
		`ALTER TABLE $t ALTER COLUMN slug SET STORAGE EXTERNAL`,
		`INSERT INTO $t VALUES (1, '` + slug + `', '')`,
	}
	return []fieldCase{{
		name: "B3 every type passes as its text", kinds: postgres,
		setup: []string{`CREATE EXTENSION citext`, `CREATE EXTENSION hstore`, `CREATE TYPE mood AS ENUM ('sad', 'ok')`, `CREATE DOMAIN age AS INT CHECK (VALUE > 0)`,
			`CREATE TABLE $t (id UUID PRIMARY KEY, mail citext, m mood, a age, tags TEXT[], grid INT[][], h hstore)`},
		keys: []string{"{id}", "mail:{mail}", "mood:{m}", "age:{a}", "tags:{tags}", "grid:{grid}", "h:{h|urlencode}"},
		steps: []step{
			{[]string{`INSERT INTO $t VALUES ('6F9619FF-8B86-D011-B42D-00C04FC964FF', 'A@x.test', 'ok', 7, '{x,y}', '{{1,2},{3,4}}', 'a=>1')`},
				[]string{uuid, "mail:A@x.test", "mood:ok", "age:7", "tags:{x,y}", "grid:{{1,2},{3,4}}", "h:%22a%22%3D%3E%221%22"}},
			{[]string{`UPDATE $t SET mail = 'b@x.test'`}, []string{uuid, "mail:b@x.test"}},
			{[]string{`UPDATE $t SET m = 'sad'`}, []string{uuid, "mood:sad"}},
			{[]string{`UPDATE $t SET a = 8`}, []string{uuid, "age:8"}},
			{[]string{`UPDATE $t SET tags = '{z}'`}, []string{uuid, "tags:{z}"}},
			{[]string{`UPDATE $t SET grid = '{{5}}'`}, []string{uuid, "grid:{{5}}"}},
			{[]string{`UPDATE $t SET h = 'a=>NULL'`}, []string{uuid, "h:%22a%22%3D%3ENULL"}},
		},
	}, {
		name: "B4 unchanged TOAST, full identity", kinds: postgres,
		setup: append(slices.Clone(toast), `ALTER TABLE $t REPLICA IDENTITY FULL`),
		keys:  []string{"{id}", "slug:{slug|sha256(32)}"},
		steps: []step{{[]string{`UPDATE $t SET body = 'x'`}, []string{"1", hash}}},
	}, {
		name: "B4 unchanged TOAST, default identity", kinds: postgres,
		setup: toast,
		keys:  []string{"{id}", "slug:{slug|sha256(32)}"},
		steps: []step{{[]string{`UPDATE $t SET body = 'x'`}, []string{"1"}}},
		stays: []string{hash}, // it cannot be known
		says:  []string{"public.$t", "slug:{slug|sha256(32)}", "column=slug", "reason=absent", "REPLICA IDENTITY FULL"},
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
