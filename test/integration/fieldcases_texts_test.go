//go:build integration

package integration

import (
	"strings"

	"invalidator/test/integration/harness"
)

// textCases: bytes of a key are the bytes of the text.
func textCases() []fieldCase {
	long := strings.Repeat("x", 200)
	return []fieldCase{{
		name: "A10 character sets", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, name VARCHAR(20), e ENUM('Müller','€'), g VARCHAR(20) CHARACTER SET gbk, m VARCHAR(20) CHARACTER SET utf8) CHARACTER SET latin1`},
		keys:  []string{"{name}", "e:{e}", "g:{g}", "m:{m}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 'Müller', 'Müller', 'Müller', 'Müller €'), (2, '€', '€', '中文', '€')`}, // gbk has no €
			[]string{"Müller", "€", "e:Müller", "e:€", "g:Müller", "g:中文", "m:€"}}},
		stays: []string{"M\uFFFDller", "g:M\uFFFDller", "e:1", "e:2"},
	}, {
		name: "A10 a charset that cannot be read", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, d VARCHAR(20) CHARACTER SET dec8)`},
		keys:  []string{"{d}", "{id}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 'Müller')`}, []string{"1"}}},
		stays: []string{"Müller", "M\uFFFDller"},
		says:  []string{"$t", "column=d", "reason=unclear", "dec8"},
	}, {
		name: "A10 a collation of MariaDB alone", kinds: []harness.Kind{harness.MariaDB},
		setup: []string{`CREATE TABLE $t (id INT PRIMARY KEY, name VARCHAR(20)) CHARACTER SET utf8mb4 COLLATE utf8mb4_uca1400_ai_ci`},
		keys:  []string{"{name}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES (1, 'Müller😀')`}, []string{"Müller😀"}}},
	}, {
		name: "A14 equal by collation, two keys", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (k VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY)`},
		keys:  []string{"{k}", "folded:{k|trim|lower}"},
		steps: []step{{[]string{`INSERT INTO $t VALUES ('abc')`}, []string{"abc", "folded:abc"}},
			{[]string{`UPDATE $t SET k = 'ABC'`}, []string{"abc", "ABC", "folded:abc"}},
			{[]string{`DELETE FROM $t WHERE k = 'ABC '`}, []string{"ABC", "folded:abc"}}},
		stays: []string{"folded:ABC"},
	}, {
		name: "A14 CHAR under PAD_CHAR_TO_FULL_LENGTH", kinds: mysqls,
		setup: []string{`CREATE TABLE $t (k CHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY)`},
		keys:  []string{"{k}:x"},
		steps: []step{{[]string{`SET sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'`, `INSERT INTO $t VALUES ('abc')`}, []string{"abc:x"}},
			{[]string{`SET sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'`, `UPDATE $t SET k = 'ABC'`, `DELETE FROM $t WHERE k = 'abc'`}, []string{"abc:x", "ABC:x"}}},
	}, {
		name: "A16 parts are taken by name", kinds: harness.Kinds,
		setup: []string{`CREATE TABLE $t (a VARCHAR(9), b VARCHAR(9), PRIMARY KEY (b, a))`},
		keys:  []string{"{b}:{a}", "escaped:{b|urlencode}:{a|urlencode}"},
		steps: []step{{[]string{`INSERT INTO $t (b, a) VALUES ('x:y', 'z')`}, []string{"x:y:z", "escaped:x%3Ay:z"}},
			{[]string{`INSERT INTO $t (b, a) VALUES ('x', 'y:z')`}, []string{"x:y:z", "escaped:x:y%3Az"}},
			{[]string{`DELETE FROM $t WHERE b = 'x:y'`}, []string{"x:y:z", "escaped:x%3Ay:z"}}},
		stays: []string{"z:x:y", "y:z:x"},
	}, nulls(mysqls), nulls(postgres, `ALTER TABLE $t REPLICA IDENTITY FULL`), {
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

func nulls(kinds []harness.Kind, more ...string) fieldCase {
	return fieldCase{
		name: "A17 null is no key", kinds: kinds,
		setup: append([]string{`CREATE TABLE $t (id INT PRIMARY KEY, email VARCHAR(20))`}, more...),
		keys:  []string{"{email}", "none:{email|default('none')}", "id:{id}"},
		steps: []step{
			{[]string{`INSERT INTO $t VALUES (1, NULL)`}, []string{"id:1", "none:none"}},
			{[]string{`UPDATE $t SET email = 'a@x.test'`}, []string{"a@x.test", "none:none", "none:a@x.test"}},
			{[]string{`UPDATE $t SET email = NULL`}, []string{"a@x.test", "none:none", "none:a@x.test"}},
			{[]string{`DELETE FROM $t`}, []string{"id:1", "none:none"}},
		},
		stays: []string{"", "null", "NULL", "<nil>"},
	}
}
