//go:build integration

package mysql

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
)

// withoutGTIDs are the arguments of a server whose positions are file and offset.
var withoutGTIDs = []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}

// kinds are the servers whose positions differ.
func kinds(t *testing.T, test func(t *testing.T, o *own)) {
	t.Run("mysql", func(t *testing.T) { test(t, newOwn(t, "MYSQL", 1)) })
	t.Run("files", func(t *testing.T) { test(t, newOwn(t, "MYSQL", 1, withoutGTIDs...)) })
	t.Run("mariadb", func(t *testing.T) { test(t, newOwn(t, "MARIADB", 1)) })
}

// What is wanted was purged while nobody read.
func TestE3Purged(t *testing.T) {
	kinds(t, func(t *testing.T, o *own) {
		b := o.bed(t)
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (1)")
		tp.take(1)
		tp.stop()
		b.do("INSERT INTO u VALUES (2)")
		b.exec(b.admin, "FLUSH BINARY LOGS")
		b.purge()
		e, gap := b.gapOf(b.feeder(), tp.last())
		if gap.Undone != nil || gap.Tables != nil || !strings.Contains(e.Error(), o.addr) && b.service == "MYSQL" {
			t.Errorf("got %+v", e)
		}
		next, err := b.feeder().Restart(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.do("INSERT INTO u VALUES (3)")
		b.wants(b.run(b.feeder(), next).take(1), "u c - {id=3}")
	})
}

// purge drops all logs but the last.
func (b *bed) purge() {
	b.Helper()
	end, err := endOfLog(&conn{Conn: b.admin})
	if err != nil {
		b.Fatal(err)
	}
	deadline := time.After(patienceOfTests)
	for again := time.NewTicker(20 * time.Millisecond); ; { // a log stays while a dump that has ended holds it, and until the engine is done with it
		b.exec(b.admin, "PURGE BINARY LOGS TO '"+end.file+"'")
		logs, err := (&conn{Conn: b.admin}).rows("SHOW BINARY LOGS")
		if err != nil {
			b.Fatal(err)
		}
		if logs[0][0] == end.file {
			again.Stop()
			return
		}
		select {
		case <-again.C:
		case <-deadline:
			b.Fatalf("%s keeps %v", b.service, logs)
		}
	}
}

// RESET MASTER uses file names and GTIDs again: an old position looks good.
func TestE3ResetMaster(t *testing.T) {
	kinds(t, func(t *testing.T, o *own) {
		b := o.bed(t)
		b.do("CREATE TABLE u (id INT PRIMARY KEY, t TEXT)")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (1,'')")
		tp.take(1)
		tp.stop()
		for _, writes := range []int{0, 1, 40} { // an empty log, a short one, and one with more bytes and transactions than the position
			b.exec(b.admin, "RESET MASTER")
			for i := range writes {
				b.do(fmt.Sprintf("REPLACE INTO u VALUES (%d, REPEAT('x', %d))", 100+i, 90+7*i))
			}
			_, gap := b.gapOf(b.feeder(), tp.last())
			if gap.Undone != nil {
				t.Errorf("%d writes: changes are undone, although the log alone was reset: %v", writes, gap)
			}
		}
		next, err := b.feeder().Restart(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b.do("INSERT INTO u VALUES (3,'')")
		b.wants(b.run(b.feeder(), next).take(1), "u c - {id=3 t=}")
	})
}

// The machine went down with the end of the log, which had been read: those transactions are undone.
func TestE3TornLog(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(strings.ToLower(service), func(t *testing.T) {
			o := newOwn(t, service, 1)
			b := o.bed(t)
			b.do("CREATE TABLE u (id INT PRIMARY KEY)")
			tp := b.run(b.feeder(), cdc.Position{})
			b.do("INSERT INTO u VALUES (1)")
			tp.take(1)
			end := tp.last()
			b.do("INSERT INTO u VALUES (2)", "INSERT INTO u VALUES (3)")
			seen := tp.take(3)
			at := tp.last()
			tp.stop()
			o.kill(t)
			if err := os.Truncate(filepath.Join(o.dir, end.File), int64(end.Pos)); err != nil {
				t.Fatal(err)
			}
			o.start(t)
			_, gap := b.gapOf(b.feeder(), at)
			if ids := undone(gap, seen); !slices.Equal(ids, []string{"2", "3"}) {
				t.Errorf("undone are %v of %q", ids, gap.UndoneText)
			}
		})
	}
}

// The position does not move before the transaction has ended, whatever it consists of.
func TestE2CutInsideATransaction(t *testing.T) {
	kinds(t, func(t *testing.T, o *own) {
		const rows = 10_000
		b := o.bed(t)
		b.do("CREATE TABLE u (id INT PRIMARY KEY, t VARCHAR(100))")
		b.do("INSERT INTO u SELECT a.n*1000+b.n*100+c.n*10+d.n, REPEAT('x',100) FROM " + digits("a") + "," + digits("b") + "," + digits("c") + "," + digits("d") + " ORDER BY 1")
		tp := b.run(b.feeder(), cdc.Position{}, func(tp *tape) {
			tp.hold = func(c *cdc.RowChange) error {
				if c.Ordinal == 3000 {
					return errStop
				}
				return nil
			}
		})
		b.do("DELETE FROM u ORDER BY id")
		<-tp.ended
		if tp.err != errStop {
			t.Fatalf("Run gave %v, want the handler's own error", tp.err)
		}
		got := b.run(b.feeder(), tp.last()).take(rows)
		for i, c := range got {
			if c.Before[0].S != fmt.Sprint(i) || c.Ordinal != int64(i) || c.Op != cdc.Delete {
				t.Fatalf("change %d is %s with ordinal %d", i, text(c), c.Ordinal)
			}
		}
		if len(got) != rows {
			t.Errorf("%d changes, want %d", len(got), rows)
		}
	})
}

var errStop = errors.New("stop here")

// digits is a derived table of ten rows.
func digits(name string) string {
	return "(SELECT 0 n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7 UNION SELECT 8 UNION SELECT 9) " + name
}

// Without GTIDs a place is one server's: another that answers in its stead is a gap, and a prepared transaction is read again from
// before it.
func TestPositionsOfFiles(t *testing.T) {
	o := newOwn(t, "MYSQL", 1, withoutGTIDs...)
	b := o.bed(t)
	b.do("CREATE TABLE u (id INT PRIMARY KEY)")
	tp := b.run(b.feeder(), cdc.Position{})
	b.do(xa("'x'", "INSERT INTO u VALUES (1)")...)
	b.exec(b.admin, "INSERT INTO "+b.db+".u VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO "+b.db+".u VALUES (3)")
	b.wants(tp.take(2), "u c - {id=2}", "u c - {id=3}")
	tp.stop()
	again := b.run(b.feeder(), tp.last())
	b.do("XA COMMIT 'x'")
	b.wants(again.take(3), "u c - {id=2}", "u c - {id=3}", "u c - {id=1}")
	again.until("the last commit", func() bool { return len(again.commits) > 0 && again.commits[len(again.commits)-1].changes == 3 })
	again.stop()
	last := b.run(b.feeder(), again.last())
	b.do("INSERT INTO u VALUES (4)")
	b.wants(last.take(1), "u c - {id=4}")
	last.stop()
	at := last.last()
	at.ServerUUID = someUUID
	if e, _ := b.gapOf(b.feeder(), at); !strings.Contains(e.Error(), someUUID) {
		t.Errorf("got %v", e)
	}
}

// Memory is bounded by a queue of bytes, whatever a transaction's size is, and the server waits for a reader that is held back.
func TestE13HugeTransactions(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(strings.ToLower(service), func(t *testing.T) {
			runtime.GC()
			const rows = 500_000
			o := newOwn(t, service, 1, "--max-allowed-packet=128M", "--net-write-timeout=5", "--innodb-buffer-pool-size=128M", "--max-binlog-cache-size=1G",
				"--innodb-log-file-size=48M")
			b := o.bed(t)
			b.do("CREATE TABLE u (id INT PRIMARY KEY, t VARCHAR(100))", "CREATE TABLE big (id INT PRIMARY KEY, b LONGBLOB)")
			d := make([]string, 0, 6)
			for _, name := range strings.Split("a b c d e f", " ") {
				d = append(d, digits(name))
			}
			b.do(fmt.Sprintf("INSERT INTO u SELECT a.n*100000+b.n*10000+c.n*1000+d.n*100+e.n*10+f.n, REPEAT('x',50) FROM %s WHERE a.n < %d",
				strings.Join(d, ","), rows/100_000))
			held := false
			var most uint64
			tp := b.run(b.feeder(), cdc.Position{}, func(tp *tape) {
				tp.light = true
				tp.hold = func(c *cdc.RowChange) error {
					if !held { // longer than the server's own patience, which is 5 s
						held = true
						<-time.After(7 * time.Second)
					}
					if c.Ordinal%10_000 == 0 {
						most = max(most, heap())
					}
					return nil
				}
			})
			b.do("UPDATE u SET t=REPEAT('y',60)")
			tp.until("the rows", func() bool { return tp.count == rows })
			b.do("INSERT INTO big VALUES (1, REPEAT('z', 64 << 20))", "UPDATE big SET id=2")
			tp.until("the large rows", func() bool { return tp.count == rows+2 && tp.commits[len(tp.commits)-1].changes == rows+2 })
			if err := tp.stop(); err != nil {
				t.Errorf("the feeder ended: %v", err)
			}
			if most = max(most, heap()); most > 256<<20 {
				t.Errorf("the heap grew to %d MiB", most>>20)
			}
		})
	}
}
