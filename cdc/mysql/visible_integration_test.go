//go:build integration

package mysql

import (
	"fmt"
	"testing"

	"invalidator/cdc"
)

// With sync_binlog=0 and a delay before the sync, a server sends its log for as long as the delay before readers see the commit: as it
// does while a semi-synchronous commit waits for a replica (AFTER_SYNC), of which this version has no plugin. Each change, of a row, a
// truncate and an XA transaction, is handed over when a reader sees it, also where the settings change while the source is read.
func TestHeldBackUntilReadersSeeIt(t *testing.T) {
	b := newOwn(t, "MYSQL", 1).bed(t)
	b.do("CREATE TABLE u (id INT PRIMARY KEY)", "CREATE TABLE x (id INT PRIMARY KEY)", "INSERT INTO x VALUES (1)")
	reader := b.connect("root", "", b.db)
	early := 0
	f := b.feeder(b.asOwnUser())
	tp := b.run(f, cdc.Position{}, func(tp *tape) {
		tp.hold = func(c *cdc.RowChange) error {
			want, query := "1", "SELECT COUNT(*) FROM u"
			switch {
			case c.Op == cdc.Truncate:
				want, query = "0", "SELECT COUNT(*) FROM x"
			case c.Op == cdc.Insert:
				query += " WHERE id = " + c.After[0].Text()
			}
			r, err := reader.Execute(query)
			if err != nil {
				return err
			}
			defer r.Close()
			if got, err := r.GetString(0, 0); err != nil || got != want {
				early++
			}
			return nil
		}
	})
	b.do("INSERT INTO u VALUES (0)")
	tp.take(1)
	b.exec(b.admin, "SET GLOBAL sync_binlog = 0, GLOBAL binlog_group_commit_sync_delay = 300000")
	b.check(f) // as it is done once a minute
	early = 0
	for i := range 3 {
		b.do(fmt.Sprintf("INSERT INTO u VALUES (%d)", 10+i))
	}
	b.do("TRUNCATE x", "XA START 'a'", "INSERT INTO u VALUES (20)", "XA END 'a'", "XA PREPARE 'a'", "XA COMMIT 'a'", "BEGIN", "INSERT INTO u VALUES (30)", "INSERT INTO u VALUES (31)", "COMMIT")
	tp.take(8)
	asking := b.ask("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND = 'Sleep' AND USER = '" + b.ownUser() + "'")
	if len(asking) != 1 {
		t.Fatalf("asking: %q", asking)
	}
	b.exec(b.admin, "KILL "+asking[0][0])
	b.do("INSERT INTO u VALUES (40)")
	b.wants(tp.take(9), "u c - {id=0}", "u c - {id=10}", "u c - {id=11}", "u c - {id=12}", "x t - -", "u c - {id=20}", "u c - {id=30}", "u c - {id=31}", "u c - {id=40}")
	if early > 0 {
		t.Errorf("%d changes came before readers saw them", early)
	}
	if err := tp.stop(); err != nil {
		t.Error(err)
	}
}
