//go:build integration

package mysql

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"

	"invalidator/cdc"
)

// shelf keeps layouts as the state topic does: as JSON, and longer than a feeder lives.
type shelf struct {
	mu   sync.Mutex
	text map[string]string
	fail error // of what comes
}

func newShelf() *shelf { return &shelf{text: map[string]string{}} }

func (s *shelf) Replace(ctx context.Context, all map[cdc.TableID][]cdc.Layout) error {
	s.mu.Lock()
	s.text = map[string]string{}
	s.mu.Unlock()
	return s.Put(ctx, all)
}

func (s *shelf) Put(_ context.Context, some map[cdc.TableID][]cdc.Layout) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	for id, list := range some {
		text, err := json.Marshal(list)
		if err != nil {
			return err
		}
		s.text[id.String()] = string(text)
	}
	return nil
}

func (s *shelf) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

func (s *shelf) copied() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.text)
}

// after is a feeder that begins with what is on the shelf.
func (b *bed) after(s *shelf, change ...func(*Config)) *Feeder {
	b.Helper()
	known := map[cdc.TableID][]cdc.Layout{}
	for name, text := range s.copied() {
		schema, table, _ := strings.Cut(name, ".")
		var list []cdc.Layout
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			b.Fatal(err)
		}
		known[cdc.TableID{Schema: schema, Table: table}] = list
	}
	f := b.feeder(change...)
	f.Remember(known, s)
	return f
}

// met lets a feeder meet the tables with what is on the shelf, and gives where it came to.
func (b *bed) met(s *shelf, change ...func(*Config)) cdc.Position {
	b.Helper()
	tp := b.run(b.after(s, change...), cdc.Position{})
	if err := tp.stop(); err != nil {
		b.Fatal(err)
	}
	return tp.started
}

// A table was altered while nobody read: a column in its middle, other signs, labels in another order, columns of one type that
// changed places. Rows from before are read as they were logged, twice in a row.
func TestD2RowsFromBeforeAnAlter(t *testing.T) {
	eachMinimal(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY, n INT UNSIGNED, a INT, b INT, e ENUM('x','y'), s VARCHAR(9) CHARACTER SET latin1)")
		s := newShelf()
		at := b.met(s)
		b.do("INSERT INTO u VALUES (1,4000000000,10,20,'y','ä')", "DELETE FROM u",
			"ALTER TABLE u ADD c INT AFTER id, MODIFY n INT, MODIFY b INT AFTER c, MODIFY e ENUM('y','x'), CONVERT TO CHARACTER SET utf8mb4",
			"INSERT INTO u VALUES (2,7,20,-5,10,'y','ä')")
		tp := b.run(b.after(s), at)
		b.wants(tp.take(3), "u c - {id=1 n=4000000000 a=10 b=20 e=y s=ä}", "u d {id=1 n=4000000000 a=10 b=20 e=y s=ä} -",
			"u c - {id=2 c=7 b=20 n=-5 a=10 e=y s=ä}")
		tp.stop()
		b.do("DELETE FROM u", "ALTER TABLE u MODIFY a INT FIRST, RENAME COLUMN b TO bb", "INSERT INTO u VALUES (10,3,7,20,-5,'x','ö')")
		again := b.run(b.after(s), tp.last())
		b.wants(again.take(2), "u d {id=2 c=7 b=20 n=-5 a=10 e=y s=ä} -", "u c - {a=10 id=3 c=7 bb=20 n=-5 e=x s=ö}")
		tp.loses()
		again.loses()
	})
}

// Between two changes that nobody followed the layout is not known: those rows are lost by name, and no others. That a table was emptied, or
// got an index, is none of them.
func TestD2RowsBetweenTwoAlters(t *testing.T) {
	eachMinimal(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT, a INT, b INT)", "CREATE TABLE v (id INT)")
		s := newShelf()
		at := b.met(s)
		b.do("INSERT INTO u VALUES (1,10,20)", "ALTER TABLE u MODIFY b INT FIRST", "INSERT INTO u VALUES (20,1,10)", "INSERT INTO v VALUES (1)",
			"ALTER TABLE u MODIFY b INT AFTER id", "CREATE INDEX i ON u (a)", "INSERT INTO u VALUES (2,20,10)", "TRUNCATE TABLE u",
			"INSERT INTO u VALUES (3,20,10)")
		tp := b.run(b.after(s), at)
		want := []string{"u c - {id=1 a=10 b=20}", "v c - {id=1}", "u c - {id=2 b=20 a=10}", "u t - -", "u c - {id=3 b=20 a=10}"}
		b.wants(tp.take(5), want...)
		tp.until("the loss", func() bool { return len(tp.losses) == 1 })
		if l := tp.losses[0]; l.Tables[0].Table != "u" || !strings.Contains(l.Why, "was altered since") {
			t.Errorf("lost %+v", l)
		}
		tp.stop()
		// Where it ended, only the last layout holds.
		b.do("INSERT INTO u VALUES (4,20,10)", "ALTER TABLE u DROP a")
		again := b.run(b.after(s), tp.last())
		b.wants(again.take(1)[:1], "u c - {id=4 b=20 a=10}")
		again.loses()
	})
}

// The swap that gh-ost ends with, all of it while nobody read: the ghost's rows are read by the layout under which it is u now.
func TestD4SwapOfGhost(t *testing.T) {
	eachMinimal(t, func(b *bed) {
		for _, include := range []string{"u", "*"} {
			b.do("CREATE TABLE u (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO u VALUES (1,10,20)")
			s := newShelf()
			at := b.met(s, b.including(include))
			b.do("UPDATE u SET a=11", "CREATE TABLE _u_ghc (id INT)", "CREATE TABLE _u_gho LIKE u", "ALTER TABLE _u_gho MODIFY b INT AFTER id, ADD c INT UNSIGNED FIRST",
				"INSERT INTO _u_gho (id, a, b) SELECT id, a, b FROM u", "UPDATE u SET a=12", "REPLACE INTO _u_gho (id, a, b) VALUES (1,12,20)",
				"CREATE TABLE _u_del (id INT) COMMENT='ghost-cut-over-sentry'", "DROP TABLE _u_del",
				"RENAME TABLE u TO _u_del, _u_gho TO u", "UPDATE u SET a=13, c=4000000000", "DROP TABLE _u_ghc", "DROP TABLE _u_del")
			tp := b.run(b.after(s, b.including(include)), at)
			tp.until("the last row", func() bool {
				n := len(tp.changes)
				return n > 0 && strings.HasSuffix(text(tp.changes[n-1]), "a=13}") || n > 0 && tp.changes[n-1].Table == "_u_del" && n > 7
			})
			var rows []string
			for _, c := range tp.take(0) {
				if c.Op != cdc.Truncate {
					rows = append(rows, text(c))
				}
			}
			want := []string{"u u {id=1 a=10 b=20} {id=1 a=11 b=20}", "u u {id=1 a=11 b=20} {id=1 a=12 b=20}",
				"u u {c=NULL id=1 b=20 a=12} {c=4000000000 id=1 b=20 a=13}"}
			if include == "*" {
				ghost := []string{"_u_gho c - {c=NULL id=1 b=20 a=11}", "_u_gho u {c=NULL id=1 b=20 a=11} {c=NULL id=1 b=20 a=12}"}
				want = []string{want[0], ghost[0], want[1], ghost[1], want[2]}
			}
			if strings.Join(rows, "\n") != strings.Join(want, "\n") {
				b.Errorf("%s: got\n%s\nwant\n%s", include, strings.Join(rows, "\n"), strings.Join(want, "\n"))
			}
			tp.loses()
			tp.stop()
			b.do("DROP TABLE u")
		}
	})
}

// The same with pt-online-schema-change, whose triggers write the new table's rows; and the swap is not the last change of u.
func TestD4SwapThatIsAlteredAgain(t *testing.T) {
	eachMinimal(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY, a INT, b INT)", "INSERT INTO u VALUES (1,10,20)")
		s := newShelf()
		tp := b.run(b.after(s), b.met(s))
		b.do("CREATE TABLE _u_new LIKE u", "ALTER TABLE _u_new MODIFY b INT AFTER id",
			"CREATE TRIGGER pt_osc_upd AFTER UPDATE ON u FOR EACH ROW REPLACE INTO _u_new (id, a, b) VALUES (NEW.id, NEW.a, NEW.b)",
			"INSERT LOW_PRIORITY IGNORE INTO _u_new (id, a, b) SELECT id, a, b FROM u LOCK IN SHARE MODE")
		tp.until("the copy", func() bool { return len(tp.changes) > 0 && tp.changes[len(tp.changes)-1].Op == cdc.Insert })
		n := len(tp.take(1))
		tp.stop()
		b.do("UPDATE u SET a=11", "ANALYZE TABLE _u_new", "RENAME TABLE u TO _u_old, _u_new TO u", "DROP TABLE IF EXISTS _u_old", "DROP TRIGGER IF EXISTS pt_osc_upd",
			"UPDATE u SET a=12", "ALTER TABLE u MODIFY a INT FIRST", "UPDATE u SET a=13")
		again := b.run(b.after(s), tp.last())
		again.until("the last row", func() bool {
			return len(again.changes) > 0 && strings.HasSuffix(text(again.changes[len(again.changes)-1]), "{a=13 id=1 b=20}")
		})
		var rows []string
		for _, c := range append(tp.take(n)[n-1:], again.take(1)...) {
			if c.Op != cdc.Truncate {
				rows = append(rows, text(c))
			}
		}
		want := []string{"_u_new c - {id=1 b=20 a=10}", "u u {id=1 a=10 b=20} {id=1 a=11 b=20}", "_u_new u {id=1 b=20 a=10} {id=1 b=20 a=11}",
			"u u {id=1 b=20 a=11} {id=1 b=20 a=12}", "u u {a=12 id=1 b=20} {a=13 id=1 b=20}"}
		if strings.Join(rows, "\n") != strings.Join(want, "\n") {
			b.Errorf("got\n%s\nwant\n%s", strings.Join(rows, "\n"), strings.Join(want, "\n"))
		}
		again.loses()
	})
}

// A crash between a change and its record, and one between its record and the position: what is read again is read by the layouts from
// before, and what was written down already is known although the table was altered again meanwhile.
func TestD2CrashWhileAnAlterIsWrittenDown(t *testing.T) {
	eachMinimal(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT, a INT, b INT)")
		s := newShelf()
		tp := b.run(b.after(s), b.met(s))
		s.refuse(errors.New("the broker is away"))
		b.do("INSERT INTO u VALUES (1,10,20)", "ALTER TABLE u MODIFY b INT FIRST")
		tp.until("the end", func() bool {
			select {
			case <-tp.ended:
				return true
			default:
				return false
			}
		})
		if tp.err == nil || !strings.Contains(tp.err.Error(), "the broker is away") {
			t.Fatalf("ended with %v", tp.err)
		}
		before := tp.last()
		s.refuse(nil)
		b.do("INSERT INTO u VALUES (20,2,10)")
		second := b.run(b.after(s), before)
		b.wants(second.take(1), "u c - {b=20 id=2 a=10}")
		second.stop()

		b.do("ALTER TABLE u DROP a", "INSERT INTO u VALUES (20,3)")
		third := b.run(b.after(s), before) // as if no position had been saved since
		b.wants(third.take(2), "u c - {b=20 id=2 a=10}", "u c - {b=20 id=3}")
		third.loses()
	})
}

// What is altered while the log describes its tables ends what was known before.
func TestD2AlterUnderFull(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		o := newOwn(t, service, 1, "--binlog-row-metadata=MINIMAL")
		b := o.bed(t)
		b.do("CREATE TABLE u (id INT, a INT, b INT)")
		s := newShelf()
		at := b.met(s)
		b.exec(b.admin, "SET GLOBAL binlog_row_metadata = FULL")
		tp := b.run(b.after(s), at)
		b.do("ALTER TABLE u MODIFY b INT FIRST", "INSERT INTO u VALUES (20,1,10)")
		b.wants(tp.take(1), "u c - {b=20 id=1 a=10}")
		tp.stop()
		b.exec(b.admin, "SET GLOBAL binlog_row_metadata = MINIMAL")
		b.do("INSERT INTO u VALUES (20,2,10)", "ALTER TABLE u MODIFY b INT AFTER id", "INSERT INTO u VALUES (3,20,10)")
		again := b.run(b.after(s), tp.last())
		again.until("the loss", func() bool { return len(again.losses) == 1 })
		b.wants(again.take(1), "u c - {id=3 b=20 a=10}")
	}
}

// An ALTER TABLE that is in no log is told at the next start, and what comes then is read as the table is.
func TestD2AlterThatIsInNoLog(t *testing.T) {
	eachMinimal(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT, a INT, b INT)", "CREATE TABLE v (id INT)")
		s := newShelf()
		at := b.met(s)
		b.exec(b.admin, "SET SESSION sql_log_bin=0", "ALTER TABLE "+b.db+".u MODIFY b INT FIRST")
		b.do("INSERT INTO u VALUES (20,1,10)")
		var log bytes.Buffer
		f := b.after(s)
		f.log = slog.New(slog.NewTextHandler(&log, nil))
		tp := b.run(f, at)
		b.wants(tp.take(1), "u c - {b=20 id=1 a=10}")
		tp.stop()
		if text := log.String(); strings.Count(text, "a table is not what it was") != 1 || !strings.Contains(text, b.db+".u") {
			t.Errorf("told %s", text)
		}
		again := b.run(b.after(s), tp.last()) // it is known from there on
		b.do("INSERT INTO u VALUES (30,2,10)")
		b.wants(again.take(1), "u c - {b=30 id=2 a=10}")
	})
}

// Behind a gap nothing is known, and a source that begins anew does not take what was kept for another beginning.
func TestHistoryEndsInAGap(t *testing.T) {
	eachMinimal(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT, a INT, b INT)", "CREATE TABLE v (id INT)")
		s := newShelf()
		b.met(s)
		if n := len(s.copied()); n != 2 {
			t.Fatalf("%d tables are kept", n)
		}
		f := b.after(s)
		to, err := f.Restart(t.Context())
		if err != nil || len(s.copied()) != 0 {
			t.Fatalf("%v, and %v are kept", err, s.copied())
		}
		b.do("INSERT INTO u VALUES (1,10,20)", "ALTER TABLE u MODIFY b INT FIRST")
		tp := b.run(b.after(s), to)
		tp.until("the loss", func() bool { return len(tp.losses) == 1 })
		tp.stop()
		b.do("DROP TABLE v")
		b.met(s)
		if kept := s.copied(); len(kept) != 1 || strings.Count(kept[b.db+".u"], `"from"`) != 1 {
			t.Errorf("kept %v", kept)
		}
	})
}
