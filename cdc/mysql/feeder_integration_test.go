//go:build integration

package mysql

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
)

func TestStreamsAndResumes(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id BIGINT UNSIGNED PRIMARY KEY, email VARCHAR(40))")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (1,'a'),(2,NULL)", "UPDATE u SET email='b' WHERE id=1", "DELETE FROM u WHERE id=2")
		got := tp.take(4)
		b.wants(got,
			"u c - {id=1 email=a}", "u c - {id=2 email=NULL}",
			"u u {id=1 email=a} {id=1 email=b}",
			"u d {id=2 email=NULL} -")
		if c := got[1]; c.Ordinal != 1 || c.Tx == "" || c.CommitTime.IsZero() || c.Source != b.db || c.Position != tp.started ||
			!slices.Equal(c.KeyColumns, []string{"id"}) || !c.Columns.List[0].Key || c.Columns.List[0].Type != "bigint unsigned" {
			t.Errorf("the second change is %+v", c)
		}
		if got[0].Columns != got[3].Columns {
			t.Error("the columns of one table version are not shared")
		}
		middle := tp.after(2)
		if err := tp.stop(); err != nil {
			t.Fatalf("Run gave %v after its context ended", err)
		}
		b.do("INSERT INTO u VALUES (18446744073709551615,'z')")

		again := b.run(b.feeder(), middle)
		b.wants(again.take(3),
			"u u {id=1 email=a} {id=1 email=b}", "u d {id=2 email=NULL} -", "u c - {id=18446744073709551615 email=z}")
		if again.started.GTIDSet != middle.GTIDSet {
			t.Errorf("started at %v, not at the saved %v", again.started, middle)
		}
	})
}

// Tables that were not included when the position was saved join from there on; nobody else does.
func TestTablesJoin(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)", "CREATE TABLE v (id INT PRIMARY KEY)")
		old, _ := cdc.NewInclude([]string{b.db + ".u"})
		tp := b.run(b.feeder(func(c *Config) { c.Include = old }), cdc.Position{})
		b.do("INSERT INTO u VALUES (1)", "INSERT INTO v VALUES (1)")
		tp.take(1)
		tp.stop()
		f := b.feeder()
		f.Widen(old)
		again := b.run(f, tp.last())
		b.do("INSERT INTO v VALUES (2)", "CREATE TABLE w (id INT PRIMARY KEY)", "INSERT INTO w VALUES (3)")
		again.until("the last row", func() bool {
			return len(again.changes) > 0 && text(again.changes[len(again.changes)-1]) == "w c - {id=3}"
		})
		if want := []cdc.TableID{{Schema: b.db, Table: "v"}}; !slices.Equal(again.joined, want) || len(tp.joined) > 0 {
			t.Errorf("joined %v and before %v, want %v", again.joined, tp.joined, want)
		}
	})
}

// What lies behind a place can be asked in bytes.
func TestLag(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY, t LONGTEXT)")
		f := b.feeder()
		tp := b.run(f, cdc.Position{})
		b.do("INSERT INTO u VALUES (1, 'x')")
		tp.take(1)
		at := tp.last()
		b.do("INSERT INTO u VALUES (2, REPEAT('x', 1000000))")
		tp.take(2)
		before, err := f.Lag(t.Context(), at)
		if err != nil || before.Bytes < 1_000_000 {
			t.Errorf("behind by %d, %v", before, err)
		}
		if now, err := f.Lag(t.Context(), tp.last()); err != nil || now.Bytes > before.Bytes-1_000_000 {
			t.Errorf("then by %d, %v", now, err)
		}
		at.ServerUUID = "another"
		if _, err := f.Lag(t.Context(), at); err == nil {
			t.Error("another server's place has a lag")
		}
	})
}

// While nothing is written it is said again and again that all was read, as of now.
func TestIdle(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (1)")
		tp.take(1)
		read := time.Now()
		tp.until("a word", func() bool { return tp.commits[len(tp.commits)-1].time.After(read) })
	})
}

// A new source misses nothing that commits after Started, even before the dump has begun.
func TestNothingIsLostAtTheStart(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		tp := b.run(b.feeder(), cdc.Position{}, func(tp *tape) {
			tp.atStart = func() { b.do("INSERT INTO u VALUES (7)") }
		})
		b.wants(tp.take(1), "u c - {id=7}")
	})
}

func TestC1KeyChange(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (a INT, b INT, c INT, PRIMARY KEY(c,a))", "INSERT INTO u VALUES (1,2,3)")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("UPDATE u SET a=9")
		got := tp.take(1)
		b.wants(got, "u u {a=1 b=2 c=3} {a=9 b=2 c=3}")
		if !slices.Equal(got[0].KeyColumns, []string{"c", "a"}) {
			t.Errorf("key %v, want c, a", got[0].KeyColumns)
		}
	})
}

func TestC2MinimalImages(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY, email VARCHAR(20), bio TEXT, n INT)", "CREATE TABLE keyless (a INT, t TEXT)",
			"INSERT INTO u VALUES (42,'a@x.test',NULL,1)", "INSERT INTO keyless VALUES (1,'t')")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("SET SESSION binlog_row_image=MINIMAL",
			"UPDATE u SET bio='x' WHERE id=42", "UPDATE u SET bio=NULL WHERE id=42", "UPDATE keyless SET a=NULL",
			"SET SESSION binlog_row_image=NOBLOB",
			"UPDATE u SET n=2 WHERE id=42",
			"SET SESSION binlog_row_image=MINIMAL",
			"DELETE FROM u", "SET SESSION binlog_row_image=FULL", "INSERT INTO u VALUES (1,'e',NULL,NULL)")
		keyless := "keyless u {a=1 t=t} {a=NULL}"
		if b.service == "MARIADB" {
			keyless = "keyless u {a=1 t=t} {a=NULL t=t}" // it has no minimal after image without a key
		}
		b.wants(tp.take(6),
			"u u {id=42} {bio=x}",
			"u u {id=42} {bio=NULL}",
			keyless,
			"u u {id=42 email=a@x.test n=1} {id=42 email=a@x.test n=2}",
			"u d {id=42} -",
			"u c - {id=1 email=e bio=NULL n=NULL}")
	})
}

func TestD1AlterInMidStream(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY, e VARCHAR(9))")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (1,'a')", "ALTER TABLE u ADD c INT UNSIGNED FIRST", "INSERT INTO u VALUES (4000000000,2,'b')",
			"ALTER TABLE u RENAME COLUMN e TO f", "UPDATE u SET f='x' WHERE id=2", "ALTER TABLE u DROP c", "DELETE FROM u WHERE id=1",
			"RENAME TABLE u TO v", "DELETE FROM v")
		b.wants(tp.take(7),
			"u c - {id=1 e=a}", "u c - {c=4000000000 id=2 e=b}", "u u {c=4000000000 id=2 f=b} {c=4000000000 id=2 f=x}",
			"u d {id=1 f=a} -", "u t - -", "v t - -", "v d {id=2 f=x} -")
	})
}

// Transactions of tables that are not ours move the position too.
func TestForeignTransactionsMoveThePosition(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)", "CREATE TABLE other (id INT PRIMARY KEY)")
		inc, _ := cdc.NewInclude([]string{b.db + ".u"})
		only := func(c *Config) { c.Include = inc }
		tp := b.run(b.feeder(only), cdc.Position{})
		b.do("INSERT INTO other VALUES (1)", "INSERT INTO other VALUES (2)")
		tp.until("two commits", func() bool { return len(tp.commits) >= 2 })
		at := tp.last()
		tp.stop()
		if at.GTIDSet == tp.started.GTIDSet {
			t.Error("the position did not move")
		}
		b.do("INSERT INTO u VALUES (3)")
		again := b.run(b.feeder(only), at)
		b.wants(again.take(1), "u c - {id=3}")
	})
}

// A rolled-back transaction of an engine without transactions has changed rows all the same.
func TestRollbackOfMixedEngines(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY) ENGINE=InnoDB", "CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM")
		tp := b.run(b.feeder(), cdc.Position{})
		mixed := []string{"BEGIN", "INSERT INTO u VALUES (1)", "SAVEPOINT s", "INSERT INTO m VALUES (2)", "INSERT INTO u VALUES (3)",
			"ROLLBACK TO s", "ROLLBACK"}
		if b.service == "MYSQL" { // where GTIDs forbid the mixture
			mixed = []string{"INSERT INTO m VALUES (2)", "BEGIN", "INSERT INTO u VALUES (1)", "ROLLBACK"}
		}
		b.do(append(mixed, "INSERT INTO u VALUES (4)")...)
		tp.until("the last row", func() bool {
			return len(tp.changes) > 0 && text(tp.changes[len(tp.changes)-1]) == "u c - {id=4}"
		})
		if !slices.Contains(texts(tp.changes), "m c - {id=2}") {
			t.Errorf("the row of m is missing in %v", texts(tp.changes))
		}
	})
}

func TestE7PartialJSON(t *testing.T) {
	b := newBed(t, "MYSQL")
	for _, image := range []string{"FULL", "MINIMAL"} {
		table := "u_" + strings.ToLower(image)
		b.do("CREATE TABLE "+table+" (id INT PRIMARY KEY, j JSON, k JSON, z INT UNSIGNED)",
			"INSERT INTO "+table+` VALUES (42, JSON_OBJECT('a', 1, 'big', REPEAT('x', 1000)), '{}', 4000000000)`)
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("SET SESSION binlog_row_value_options='PARTIAL_JSON', binlog_row_image='"+image+"'",
			"UPDATE "+table+" SET j=JSON_SET(j,'$.a',2) WHERE id=42",
			"UPDATE "+table+" SET j=JSON_SET(j,'$.a',3), z=4000000001 WHERE id=42",
			"SET SESSION binlog_row_value_options='', binlog_row_image='FULL'")
		got := tp.take(2)
		last := got[1]
		if last.Before[0].S != "42" || last.After[1].Kind != cdc.Unclear || last.After[1].Why == "" || last.After[3].S != "4000000001" {
			t.Errorf("%s: got %s", image, text(last))
		}
		tp.stop()
	}
}

// TIMESTAMP is UTC whatever zone the reader's host, the server and the writer's session are in. In that night New York's clocks
// show the two moments alike.
func TestA9TimeZones(t *testing.T) {
	newYork, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	local := time.Local
	time.Local = newYork
	defer func() { time.Local = local }()
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY, ts TIMESTAMP(3), dt DATETIME(3))", "SET SESSION time_zone='+05:30'")
		restore := "SET GLOBAL time_zone='" + b.ask("SELECT @@global.time_zone")[0][0] + "'"
		b.exec(b.admin, "SET GLOBAL time_zone='+05:30'") // which the feeder's own sessions begin with
		defer b.exec(b.admin, restore)
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (1,'2024-11-03 11:00:00.120','2024-11-03 05:30:00.120'),(2,'2024-11-03 12:00:00.120','2024-11-03 06:30:00.120')")
		b.wants(tp.take(2),
			"u c - {id=1 ts=2024-11-03 05:30:00.120 dt=2024-11-03 05:30:00.120}",
			"u c - {id=2 ts=2024-11-03 06:30:00.120 dt=2024-11-03 06:30:00.120}")
	})
}

func TestA10UnreadableTextIsUnclear(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY, d VARCHAR(9) CHARACTER SET dec8, b BLOB)")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (1,'é','x')")
		got := tp.take(1)
		if v := got[0].After[1]; v.Kind != cdc.Unclear || !strings.Contains(v.Why, "dec8") || got[0].After[2].S != "x" {
			t.Errorf("got %s", text(got[0]))
		}
	})
}

// Where neither the log nor the schema knows the labels, the rows are lost by name: a number would be a wrong key.
func TestA6LabelsThatAreNotKnown(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		b := bedUnder(t, service, "MINIMAL")
		b.do("CREATE TABLE u (job INT, type ENUM('RFS','ESS'), s SET('a','b'), PRIMARY KEY(job, type))")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (7,'ESS','b,a')")
		b.wants(tp.take(1), "u c - {job=7 type=ESS s=a,b}") // from the schema
		tp.stop()
		at := tp.last()
		b.do("INSERT INTO u VALUES (8,'ESS','a')", "DROP TABLE u")
		again := b.run(b.feeder(), at)
		again.until("the loss", func() bool { return len(again.losses) == 1 })
		l := again.losses[0]
		if len(l.Tables) != 1 || l.Tables[0].Table != "u" || l.At.IsZero() || !strings.Contains(l.Hint, "binlog_row_metadata = FULL") {
			t.Errorf("lost %+v", l)
		}
		again.until("the drop of the table", func() bool { return len(again.changes) == 1 })
		b.wants(again.take(1), "u t - -")
	}
}

// A primary key that SELECT * does not show is a column like others. MySQL makes such ones by itself from 8.0.30 on
// (sql_generate_invisible_primary_key), which is newer than the server here: TestA18OneColumnMoreThanTheSchema has its form.
func TestA18InvisiblePrimaryKey(t *testing.T) {
	eachMetadataOf(t, "MARIADB", func(b *bed, _ string) {
		b.do("CREATE TABLE u (row_id BIGINT UNSIGNED INVISIBLE AUTO_INCREMENT PRIMARY KEY, phone VARCHAR(9)," +
			" v VARCHAR(20) AS (CONCAT(phone, '-v')) VIRTUAL, s VARCHAR(20) AS (CONCAT(phone, '-s')) STORED, n INT UNSIGNED)")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u (phone, n) VALUES ('555', 4000000000)")
		got := tp.take(1)
		b.wants(got, "u c - {row_id=1 phone=555 v=555-v s=555-s n=4000000000}")
		if !slices.Equal(got[0].KeyColumns, []string{"row_id"}) {
			b.Errorf("key %v", got[0].KeyColumns)
		}
	})
}

func TestA14StoredBytesAreKept(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (k VARCHAR(10) COLLATE utf8mb4_general_ci PRIMARY KEY)",
			"CREATE TABLE c (k CHAR(10) PRIMARY KEY)", "SET SESSION sql_mode='PAD_CHAR_TO_FULL_LENGTH'")
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES ('abc')", "UPDATE u SET k='ABC'", "DELETE FROM u WHERE k='ABC '", "INSERT INTO c VALUES ('abc')")
		b.wants(tp.take(4), "u c - {k=abc}", "u u {k=abc} {k=ABC}", "u d {k=ABC} -", "c c - {k=abc}")
	})
}

func TestWrongPassword(t *testing.T) {
	onBoth(t, func(b *bed) {
		f := b.feeder(func(c *Config) { c.Password = saying("not-this-one") })
		e := b.fails(f, cdc.Position{})
		if e.Retry || e.Hint == "" || !strings.Contains(e.Error(), "cdc") || strings.Contains(e.Error(), "not-this-one") ||
			strings.Contains(e.Error(), "\n") {
			t.Errorf("got %v", e)
		}
		if _, err := f.Check(context.Background()); err == nil {
			t.Error("Check found nothing")
		}
	})
}

func TestUnreachableHosts(t *testing.T) {
	b := newBed(t, "MYSQL")
	e := b.fails(b.feeder(func(c *Config) { c.Hosts = []string{"127.0.0.1:1", "127.0.0.1:2"} }), cdc.Position{})
	if !e.Retry || !strings.Contains(e.Error(), "127.0.0.1:2") || strings.Contains(e.Error(), "\n") {
		t.Errorf("got %v", e)
	}
	b.do("CREATE TABLE u (id INT PRIMARY KEY)")
	tp := b.run(b.feeder(func(c *Config) { c.Hosts = []string{"127.0.0.1:1", b.addr} }), cdc.Position{})
	b.do("INSERT INTO u VALUES (1)")
	b.wants(tp.take(1), "u c - {id=1}")
}

func TestE3PositionThatIsNotInTheLog(t *testing.T) {
	t.Run("mysql", func(t *testing.T) {
		b := newBed(t, "MYSQL")
		e := b.fails(b.feeder(), cdc.Position{GTIDSet: "11111111-2222-3333-4444-555555555555:1-9", ServerUUID: "x"})
		if !errors.Is(e, cdc.ErrGap) || e.Retry || !strings.Contains(e.Error(), "11111111-2222-3333-4444-555555555555:1-9") {
			t.Errorf("got %v", e)
		}
	})
	t.Run("mariadb", func(t *testing.T) {
		b := newBed(t, "MARIADB")
		for _, set := range []string{"0-102-999999999", "0-77-3", "55-1-1"} {
			e := b.fails(b.feeder(), cdc.Position{GTIDSet: set, ServerUUID: "102"})
			if !errors.Is(e, cdc.ErrGap) || e.Retry {
				t.Errorf("%s: got %v", set, e)
			}
		}
	})
}

func TestE4WrongFlavour(t *testing.T) {
	onBoth(t, func(b *bed) {
		other := map[string]cdc.Position{
			"MYSQL":   {GTIDSet: "0-1-5", ServerUUID: "1"},
			"MARIADB": {GTIDSet: "11111111-2222-3333-4444-555555555555:1-9", ServerUUID: "x"},
		}[b.service]
		for _, p := range []cdc.Position{other, {LSN: "0/1"}} {
			if e := b.fails(b.feeder(), p); e.Retry || errors.Is(e, cdc.ErrGap) || e.Hint == "" {
				t.Errorf("%+v: got %v", p, e)
			}
		}
	})
}

// caching_sha2_password without TLS needs the server's public key where it has not cached the password.
func TestE8CachingSHA2(t *testing.T) {
	b := newBed(t, "MYSQL")
	for i, password := range []string{"sha2-password", ""} {
		user := fmt.Sprintf("sha_%s_%d", b.db[5:], i)
		b.exec(b.admin, "CREATE USER '"+user+"'@'%' IDENTIFIED WITH caching_sha2_password BY '"+password+"'",
			"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '"+user+"'@'%'", "FLUSH PRIVILEGES")
		b.Cleanup(func() { b.exec(b.admin, "DROP USER '"+user+"'@'%'") })
		for _, secure := range []*tls.Config{nil, {InsecureSkipVerify: true}} {
			tp := b.run(b.feeder(func(c *Config) { c.User, c.Password, c.TLS = user, saying(password), secure }), cdc.Position{})
			tp.until("the dump", func() bool { return tp.ready })
			table := fmt.Sprintf("t%d_%v", i, secure != nil)
			b.do("CREATE TABLE "+table+" (id INT PRIMARY KEY)", "INSERT INTO "+table+" VALUES (1)")
			b.wants(tp.take(1), table+" c - {id=1}")
			tp.stop()
		}
	}
}

// A cut connection is an error that a later Run may mend, from where the position stands.
func TestCutConnection(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		tp := b.run(b.feeder(b.asOwnUser()), cdc.Position{})
		b.do("INSERT INTO u VALUES (1)")
		tp.take(1)
		b.killDump()
		<-tp.ended
		se := (*cdc.SourceError)(nil)
		if !errors.As(tp.err, &se) || !se.Retry || errors.Is(tp.err, cdc.ErrGap) {
			t.Fatalf("Run gave %v", tp.err)
		}
		b.do("INSERT INTO u VALUES (2)")
		b.wants(b.run(b.feeder(), tp.last()).take(1), "u c - {id=2}")
	})
}

// Both servers hang up on the older of two readers with one server_id, each in its own words.
func TestE11TwoReadersWithOneServerID(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		one := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (1)")
		one.take(1)
		two := b.run(b.feeder(), cdc.Position{})
		b.do("INSERT INTO u VALUES (2)")
		two.take(1)
		select {
		case <-one.ended:
		case <-time.After(patienceOfTests):
			t.Fatal("the older reader goes on")
		}
		se := (*cdc.SourceError)(nil)
		want := fmt.Sprintf("another reader uses server_id %d", deriveServerID(b.db, 3_000_000_000))
		if !errors.As(one.err, &se) || errors.Is(se, cdc.ErrGap) || !se.Retry || !strings.Contains(se.Error(), want) || se.Hint == "" {
			t.Errorf("got %v, want %q", one.err, want)
		}
	})
}
