//go:build integration

package mysql

import (
	"slices"
	"strings"
	"testing"

	"invalidator/cdc"
)

// Statements that take all rows of tables are told as such, and the stream goes on.
func TestC6WholeTables(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)", "CREATE TABLE v (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1)")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("/* a comment */ TRUNCATE  TABLE `u`", "INSERT INTO u VALUES (2)", "DROP TABLE u, v", "CREATE TABLE u (uid INT PRIMARY KEY)",
			"INSERT INTO u VALUES (3)", "CREATE TEMPORARY TABLE w (id INT)", "DROP TEMPORARY TABLE w")
		got := tp.take(5)
		b.wants(got, "u t - -", "u c - {id=2}", "u t - -", "v t - -", "u c - {uid=3}")
		if got[0].Tx == "" || got[0].CommitTime.IsZero() {
			t.Errorf("the truncate is %+v", got[0])
		}
	})
}

// DROP DATABASE takes each of its included tables, those that were never read too.
func TestC6DropDatabase(t *testing.T) {
	onBoth(t, func(b *bed) {
		other := b.db + "_x"
		b.exec(b.admin, "CREATE DATABASE "+other, "CREATE TABLE "+other+".a (id INT PRIMARY KEY)", "CREATE TABLE "+other+".b (id INT PRIMARY KEY)")
		inc, err := cdc.NewInclude([]string{b.db + "*.*"})
		if err != nil {
			t.Fatal(err)
		}
		tp := b.run(b.feeder(func(c *Config) { c.Include = inc }), cdc.Position{})
		b.exec(b.admin, "CREATE TABLE "+other+".c (id INT PRIMARY KEY)")
		b.exec(b.admin, "DROP DATABASE "+other)
		got := tp.take(3)
		b.wants(got, "a t - -", "b t - -", "c t - -")
		if got[0].Schema != other {
			t.Errorf("of %s", got[0].Schema)
		}
		from := tp.started
		tp.stop()
		// Read once more, when nobody knows any longer which tables there were before c.
		again := b.run(b.feeder(func(c *Config) { c.Include = inc }), from)
		again.until("a loss", func() bool { return len(again.losses) == 1 })
		if l := again.losses[0]; !slices.Equal(l.Tables, []cdc.TableID{{Schema: other}}) || !strings.HasPrefix(l.Why, "DROP DATABASE") {
			t.Errorf("lost %+v", l)
		}
	})
}

func TestC7Partitions(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE p (id INT PRIMARY KEY) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20),"+
			" PARTITION p2 VALUES LESS THAN (30))", "CREATE TABLE q (id INT PRIMARY KEY)", "INSERT INTO p VALUES (1),(11),(21)")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE q", "ALTER TABLE p TRUNCATE PARTITION p2", "alter table `p` drop /* x */ partition p0",
			"INSERT INTO p VALUES (12)")
		tp.loses("p,q: ALTER TABLE … EXCHANGE PARTITION", "p: ALTER TABLE … TRUNCATE PARTITION", "p: ALTER TABLE … DROP PARTITION")
		b.wants(tp.take(1), "p c - {id=12}")
	})
}

// A swap of tables, as gh-ost and pt-online-schema-change do it, is all rows of u.
func TestC7SwapOfTables(t *testing.T) {
	eachMetadata(t, func(b *bed, _ string) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO u VALUES (1,2,3)")
		tp := b.run(b.feeder(b.including("u")), cdc.Position{})
		b.do("UPDATE u SET a=4", "CREATE TABLE _u_gho (id INT PRIMARY KEY, b INT, a INT)", "INSERT INTO _u_gho SELECT id, b, a FROM u",
			"RENAME TABLE u TO _u_del, _u_gho TO u", "UPDATE u SET a=5", "DROP TABLE _u_del")
		b.wants(tp.take(3), "u u {id=1 a=2 b=3} {id=1 a=4 b=3}", "u t - -", "u u {id=1 b=3 a=4} {id=1 b=3 a=5}")
	})
}

// A session that logs statements, whatever the others do.
func TestE1StatementsAreLost(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY, x INT)", "CREATE TABLE v (id INT PRIMARY KEY, x INT)", "INSERT INTO u VALUES (42,0),(43,0)",
			"SET SESSION binlog_format=STATEMENT")
		b.exec(b.admin, "CREATE TABLE IF NOT EXISTS "+b.db+".w (id INT PRIMARY KEY)")
		tp := b.run(b.feeder(b.including("u", "v")), cdc.Position{})
		b.do("UPDATE u SET x=1 WHERE id=42",
			"/* by hand */ uPDaTe u JOIN v ON u.id=v.id SET u.x=1, v.x=2",
			"DELETE a FROM u AS a WHERE a.id=43",
			"INSERT INTO v SELECT id, x FROM u",
			"INSERT INTO w VALUES (1)", // not ours
			"BEGIN", "REPLACE INTO u VALUES (7,7)", "UPDATE u SET x=8 WHERE id=7", "COMMIT")
		want := []string{"u: UPDATE was logged as a statement", "u,v: UPDATE was logged as a statement", "u: DELETE was logged as a statement",
			"v: INSERT was logged as a statement", "u: REPLACE was logged as a statement"}
		if b.service == "MYSQL" { // MariaDB has no UPDATE or DELETE behind WITH
			b.do("WITH x AS (SELECT 42 AS id) UPDATE v SET x=9 WHERE id IN (SELECT id FROM x)")
			want = append(want, "v: UPDATE was logged as a statement")
		}
		b.do("SET SESSION binlog_format=ROW", "INSERT INTO u VALUES (2,2)")
		b.wants(tp.take(1), "u c - {id=2 x=2}")
		tp.loses(want...)
	})
}
