//go:build integration

package mysql

import (
	"fmt"
	"strings"
	"testing"

	"invalidator/cdc"
)

// xa writes the statements of a transaction up to its XA PREPARE.
func xa(xid string, statements ...string) []string {
	return append(append([]string{"XA START " + xid}, statements...), "XA END "+xid, "XA PREPARE "+xid)
}

// Rows of an XA transaction are handed over when it is committed, as its commit's.
func TestXARowsComeAtTheCommit(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		one, two := "'1"+b.db+"','b',7", "'2"+b.db+"'"
		other := b.connect("app", "app-password", b.db)
		tp := b.run(b.feeder(), cdc.Position{})
		b.exec(other, xa(two, "INSERT INTO u VALUES (20)")...)
		b.do(xa(one, "INSERT INTO u VALUES (1),(2)")...)
		b.exec(b.admin, "INSERT INTO "+b.db+".u VALUES (3)")
		b.exec(other, "XA ROLLBACK "+two)
		b.do("XA COMMIT "+one, "XA START "+two, "INSERT INTO u VALUES (4)", "XA END "+two, "XA COMMIT "+two+" ONE PHASE", "INSERT INTO u VALUES (5)")
		got := tp.take(5)
		b.wants(got, "u c - {id=3}", "u c - {id=1}", "u c - {id=2}", "u c - {id=4}", "u c - {id=5}")
		for i, ordinal := range []int64{0, 0, 1, 0, 0} {
			if got[i].Ordinal != ordinal || i > 0 && (got[i].Tx == got[i-1].Tx) != (i == 2) {
				t.Errorf("change %d has ordinal %d in %s", i, got[i].Ordinal, got[i].Tx)
			}
		}
		if !strings.HasSuffix(tp.last().GTIDSet, "") || tp.last().GTIDSet == "" {
			t.Errorf("the position is %+v", tp.last())
		}
		tp.loses()
	})
}

// A restart between XA PREPARE and XA COMMIT reads the rows again, and a position behind both does not.
func TestXARestartWhilePrepared(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)")
		inc, _ := cdc.NewInclude([]string{b.db + ".u"})
		f := b.feeder(func(c *Config) { c.Include = inc })
		ours, foreign := "'1"+b.db+"'", "'2"+b.db+"'"
		tp := b.run(f, cdc.Position{})
		b.do(xa(ours, "INSERT INTO u VALUES (1)")...)
		second := b.connect("app", "app-password", b.db)
		b.exec(second, xa(foreign, "INSERT INTO other VALUES (1)")...)
		b.exec(b.admin, "INSERT INTO "+b.db+".u VALUES (2)")
		b.wants(tp.take(1), "u c - {id=2}")
		tp.stop()

		again := b.run(f, tp.last())
		b.do("XA COMMIT " + ours)
		b.exec(second, "XA COMMIT "+foreign)
		b.do("INSERT INTO u VALUES (3)")
		want := []string{"u c - {id=1}", "u c - {id=3}"}
		if b.service == "MARIADB" { // whose position is held before the oldest prepared transaction
			want = append([]string{"u c - {id=2}"}, want...)
		}
		b.wants(again.take(len(want)), want...)
		again.loses()
		again.stop()

		last := b.run(f, again.last())
		b.do("INSERT INTO u VALUES (4)")
		b.wants(last.take(1), "u c - {id=4}")
	})
}

// A prepared transaction that is too large to keep is read again from the log, in order with what comes behind.
func TestXALargerThanMemory(t *testing.T) {
	onBoth(t, func(b *bed) {
		const rows, width = 2000, 20_000 // 40 MB
		b.do("CREATE TABLE u (id INT PRIMARY KEY, t LONGTEXT)", "CREATE TABLE v (id INT PRIMARY KEY)")
		xid := "'" + b.db + "'"
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("XA START " + xid)
		for i := 0; i < rows; i += 100 {
			var values []string
			for j := i; j < i+100; j++ {
				values = append(values, fmt.Sprintf("(%d,REPEAT('x',%d))", j, width))
			}
			b.do("INSERT INTO u VALUES " + strings.Join(values, ","))
		}
		b.do("INSERT INTO v VALUES (1)", "XA END "+xid, "XA PREPARE "+xid)
		b.exec(b.admin, "INSERT INTO "+b.db+".v VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO "+b.db+".v VALUES (3)")
		b.do("XA COMMIT "+xid, "INSERT INTO v VALUES (4)")
		got := tp.take(rows + 4)
		if texts(got[:2])[1] != "v c - {id=3}" || texts(got[rows+2:])[0] != "v c - {id=1}" || texts(got[rows+2:])[1] != "v c - {id=4}" || len(got) != rows+4 {
			t.Fatalf("%d changes, the last are %v", len(got), texts(got[rows+2:]))
		}
		for i, c := range got[2 : rows+2] {
			if c.After[0].S != fmt.Sprint(i) || c.Ordinal != int64(i) || c.Tx != got[2].Tx || len(c.After[1].S) != width {
				t.Fatalf("change %d is id %s, ordinal %d, %s", i, c.After[0].S, c.Ordinal, c.Tx)
			}
		}
		tp.loses()
	})
}

// What was prepared before the source was read cannot be known at its commit.
func TestXAPreparedBeforeTheStart(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		xid := "'" + b.db + "'"
		b.do(xa(xid, "INSERT INTO u VALUES (1)")...)
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("XA COMMIT "+xid, "INSERT INTO u VALUES (2)")
		b.wants(tp.take(1), "u c - {id=2}")
		tp.loses(": XA COMMIT of a transaction that was prepared before this source was read")
	})
}

// Statements of a prepared transaction that were logged as text are lost when it is committed.
func TestXALogsStatements(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)", "SET SESSION binlog_format=STATEMENT")
		one, two := "'1"+b.db+"'", "'2"+b.db+"'"
		tp := b.run(b.feeder(), cdc.Position{})
		b.do(xa(one, "INSERT INTO u VALUES (1)")...)
		b.do("XA ROLLBACK " + one)
		b.do(xa(two, "INSERT INTO u VALUES (2)")...)
		b.exec(b.admin, "INSERT INTO "+b.db+".u VALUES (3)")
		b.wants(tp.take(1), "u c - {id=3}")
		tp.loses()
		b.do("XA COMMIT " + two)
		b.exec(b.admin, "INSERT INTO "+b.db+".u VALUES (4)")
		tp.loses("u: INSERT was logged as a statement")
	})
}
