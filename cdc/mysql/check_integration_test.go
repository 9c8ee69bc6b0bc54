//go:build integration

package mysql

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
)

func (b *bed) check(f *Feeder) []cdc.Finding {
	b.Helper()
	found, err := f.Check(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	return found
}

func findings(found []cdc.Finding) (out []string) {
	for _, x := range found {
		out = append(out, x.String())
	}
	return out
}

func TestCheckOfAGoodSource(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		if found := b.check(b.feeder()); len(found) > 0 {
			t.Errorf("found %q", findings(found))
		}
	})
}

func TestCheckOfTables(t *testing.T) {
	onBoth(t, func(b *bed) {
		if found := b.check(b.feeder()); len(found) != 1 || !strings.Contains(found[0].What, "no table matches") {
			t.Errorf("found %q", findings(found))
		}
		b.do("CREATE TABLE keyless (a INT)", "CREATE TABLE u (id INT PRIMARY KEY, d VARCHAR(9) CHARACTER SET dec8)")
		found := b.check(b.feeder())
		if len(found) != 2 || found[0].Table != b.db+".keyless" || found[0].Hint == "" || found[1].Column != "d" {
			t.Errorf("found %q", findings(found))
		}
	})
}

func TestCheckOfPrivileges(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		as := b.asOwnUser()
		b.exec(b.admin, "REVOKE REPLICATION SLAVE ON *.* FROM '"+b.ownUser()+"'@'%'")
		found := b.check(b.feeder(as))
		if len(found) != 1 || found[0].Severity != cdc.SeverityError || !strings.HasPrefix(found[0].Hint, "GRANT REPLICATION SLAVE") {
			t.Errorf("found %q", findings(found))
		}
		if e := b.fails(b.feeder(as), cdc.Position{}); e.Retry || !strings.Contains(e.Hint, "GRANT") {
			t.Errorf("Run gave %v", e)
		}
	})
}

func TestCheckOfMetadata(t *testing.T) {
	eachMetadata(t, func(b *bed, metadata string) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		found := b.check(b.feeder())
		told := slices.ContainsFunc(found, func(x cdc.Finding) bool { return x.Hint == "SET GLOBAL binlog_row_metadata = FULL" })
		if told != (metadata != "FULL") {
			b.Errorf("found %q", findings(found))
		}
	})
}

// finds reports whether one of the findings has the severity, the table, all of the words, and a hint.
func (b *bed) finds(found []cdc.Finding, severity cdc.Severity, table string, words ...string) {
	b.Helper()
	for _, x := range found {
		ok := x.Severity == severity && x.Hint != "" && x.Source == b.db && (table == "" || x.Table == b.db+"."+table)
		for _, w := range words {
			ok = ok && strings.Contains(x.What+" "+x.Hint, w)
		}
		if ok {
			return
		}
	}
	b.Errorf("%s: no %s with %q of table %q among %q", b.service, severity, words, table, findings(found))
}

// Cascades change rows of the child that no log shows: each is named (C5), and the log indeed has the parent's row alone.
func TestC5Cascades(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB",
			"CREATE TABLE child (id INT PRIMARY KEY, parent_id INT, CONSTRAINT c1 FOREIGN KEY (parent_id) REFERENCES parent(id) ON DELETE CASCADE) ENGINE=InnoDB",
			"CREATE TABLE orphan (id INT PRIMARY KEY, p INT, CONSTRAINT c2 FOREIGN KEY (p) REFERENCES parent(id) ON DELETE SET NULL ON UPDATE CASCADE) ENGINE=InnoDB",
			"CREATE TABLE strict (id INT PRIMARY KEY, p INT, CONSTRAINT c3 FOREIGN KEY (p) REFERENCES parent(id)) ENGINE=InnoDB",
			"INSERT INTO parent VALUES (1),(2)", "INSERT INTO child VALUES (10,1),(11,1)", "INSERT INTO orphan VALUES (20,1),(21,2)")
		found := b.check(b.feeder())
		b.finds(found, cdc.SeverityWarning, "child", "parent", "c1", "ON DELETE CASCADE")
		b.finds(found, cdc.SeverityWarning, "orphan", "parent", "c2", "ON DELETE SET NULL", "ON UPDATE CASCADE")
		if len(found) != 2 {
			t.Errorf("found %q", findings(found))
		}
		tp := b.run(b.feeder(), cdc.Position{})
		b.do("DELETE FROM parent WHERE id=1", "UPDATE parent SET id=3 WHERE id=2", "INSERT INTO child VALUES (12,NULL)")
		b.wants(tp.take(3), "parent d {id=1} -", "parent u {id=2} {id=3}", "child c - {id=12 parent_id=NULL}")
	})
}

// Writes that never reach the log (C9): filters are errors, and a session that logs nothing is seen by nobody.
func TestC9Filters(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(strings.ToLower(service), func(t *testing.T) {
			b := newOwn(t, service, 1, "--binlog-do-db=other").bed(t)
			b.do("CREATE TABLE u (id INT PRIMARY KEY)")
			b.finds(b.check(b.feeder()), cdc.SeverityError, "", "database "+b.db+" is not logged", "binlog-do-db")
			b.exec(b.admin, "CREATE DATABASE other", "CREATE TABLE other.u (id INT PRIMARY KEY)")
			inc, _ := cdc.NewInclude([]string{"other.*"})
			if found := b.check(b.feeder(func(c *Config) { c.Include = inc })); len(found) > 0 {
				t.Errorf("of another database: %q", findings(found))
			}
		})
	}
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE u (id INT PRIMARY KEY)")
		tp := b.run(b.feeder(), cdc.Position{})
		b.exec(b.admin, "SET SESSION sql_log_bin=0", "INSERT INTO "+b.db+".u VALUES (1)", "SET SESSION sql_log_bin=1", "INSERT INTO "+b.db+".u VALUES (2)")
		b.wants(tp.take(1), "u c - {id=2}")
	})
}

// What a server keeps, and for how long.
func TestCheckOfAServer(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(strings.ToLower(service), func(t *testing.T) {
			args := []string{"--binlog-expire-logs-seconds=7200", "--binlog-row-image=NOBLOB"}
			if service == "MARIADB" {
				args = append(args, "--rpl-semi-sync-master-enabled=ON", "--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout=3000")
			}
			o := newOwn(t, service, 5, args...)
			b := o.bed(t)
			b.do("CREATE TABLE u (id INT PRIMARY KEY)")
			// What else an account may be given, to ask more: MariaDB lets everybody XA RECOVER, and MySQL SHOW REPLICAS.
			b.exec(b.admin, map[string]string{"MYSQL": "GRANT XA_RECOVER_ADMIN ON *.* TO 'cdc'@'%'", "MARIADB": "GRANT REPLICATION MASTER ADMIN ON *.* TO 'cdc'@'%'"}[service])
			set := func(c *Config) { c.MaxTTL, c.Settle = 24*time.Hour, time.Second }
			found := b.check(b.feeder(set))
			b.finds(found, cdc.SeverityWarning, "", "kept for 2h0m0s", "24h0m0s", "SET GLOBAL binlog_expire_logs_seconds = 90000")
			b.finds(found, cdc.SeverityWarning, "", "binlog_row_image is NOBLOB", "SET GLOBAL binlog_row_image = FULL")
			want := 2
			if service == "MARIADB" {
				want = 3
				b.finds(found, cdc.SeverityWarning, "", "semi-synchronous", "3s", "SET GLOBAL rpl_semi_sync_master_timeout = 500")
			}
			if len(found) != want {
				t.Errorf("found %q", findings(found))
			}
			own := func(c *Config) { c.ServerID = 5 }
			b.finds(b.check(b.feeder(own)), cdc.SeverityError, "", "server_id 5 is the server's own")

			replica := newOwn(t, service, 77, "--log-slave-updates=ON")
			r := b.on(replica)
			r.follow(o)
			r.awaits("SELECT COUNT(*) FROM "+b.db+".u", "0")
			b.finds(b.check(b.feeder(func(c *Config) { c.ServerID = 77 })), cdc.SeverityError, "", "another reader uses server_id 77")
			tp := b.run(b.feeder(), cdc.Position{})
			b.do("INSERT INTO u VALUES (1)")
			tp.take(1)
			for _, x := range b.check(b.feeder()) {
				if strings.Contains(x.What, "server_id") {
					t.Errorf("while we read: %v", x)
				}
			}
			two := b.feeder(func(c *Config) { c.Hosts = []string{o.addr, replica.addr, "127.0.0.1:1"} })
			b.finds(b.check(two), cdc.SeverityWarning, "", "cannot be read", "127.0.0.1:1")

			b.do(xa("'x'", "INSERT INTO u VALUES (2)")...)
			b.finds(b.check(b.feeder()), cdc.SeverityWarning, "", "1 XA transactions stay prepared", "XA RECOVER")
			b.do("XA ROLLBACK 'x'")
		})
	}
}

// Two kinds of server are no pair.
func TestCheckOfMixedHosts(t *testing.T) {
	b, other := newBed(t, "MYSQL"), newBed(t, "MARIADB")
	b.do("CREATE TABLE u (id INT PRIMARY KEY)")
	f := b.feeder(func(c *Config) { c.Hosts = []string{b.addr, other.addr} })
	b.finds(b.check(f), cdc.SeverityError, "", fmt.Sprintf("%s is MySQL and %s is MariaDB", b.addr, other.addr))
}

// One check lists everything that cannot be known of the tables, before the first event is read (J2).
func TestJ2OneCheckListsEverything(t *testing.T) {
	onBoth(t, func(b *bed) {
		b.do("CREATE TABLE parent (id INT PRIMARY KEY) ENGINE=InnoDB",
			"CREATE TABLE child (id INT PRIMARY KEY, p INT, CONSTRAINT c1 FOREIGN KEY (p) REFERENCES parent(id) ON DELETE CASCADE) ENGINE=InnoDB",
			"CREATE TABLE keyless (d VARCHAR(9) CHARACTER SET dec8)")
		inc, _ := cdc.NewInclude([]string{b.db + ".parent", b.db + ".child", b.db + ".keyless", b.db + ".gone"})
		found := b.check(b.feeder(func(c *Config) { c.Include = inc }))
		b.finds(found, cdc.SeverityWarning, "", b.db+".gone matches no table")
		b.finds(found, cdc.SeverityWarning, "child", "c1", "ON DELETE CASCADE")
		b.finds(found, cdc.SeverityWarning, "keyless", "no primary key", "ALTER TABLE")
		b.finds(found, cdc.SeverityWarning, "keyless", "dec8", "utf8mb4")
		if len(found) != 4 {
			t.Errorf("found %q", findings(found))
		}
	})
}
