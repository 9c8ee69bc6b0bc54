//go:build integration

package mysql

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"invalidator/cdc"
)

// pair is a primary and its replica, and a feeder that knows both.
type pair struct {
	a, b   *bed
	oa, ob *own
	f      *Feeder
}

func newPair(t *testing.T, service string, args ...string) *pair {
	p := &pair{oa: newOwn(t, service, 1, args...), ob: newOwn(t, service, 2, args...)}
	p.a = p.oa.bed(t)
	p.b = p.a.on(p.ob)
	p.b.follow(p.oa)
	p.a.do("CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1)")
	p.caughtUp(1)
	p.f = p.a.feeder(func(c *Config) { c.Hosts = []string{p.oa.addr, p.ob.addr} })
	return p
}

// caughtUp waits until the replica has a row.
func (p *pair) caughtUp(id int) {
	p.b.Helper()
	p.b.awaits(fmt.Sprintf("SELECT id FROM %s.u WHERE id=%d", p.b.db, id), fmt.Sprint(id))
}

// The replica has everything: the source goes on there, and nothing is lost.
func TestFailoverToACompleteReplica(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(strings.ToLower(service), func(t *testing.T) {
			p := newPair(t, service, "--log-slave-updates=ON")
			tp := p.a.run(p.f, cdc.Position{})
			p.a.do("INSERT INTO u VALUES (2)")
			p.a.wants(tp.take(1), "u c - {id=2}")
			at := tp.last()
			tp.stop()
			p.a.do("INSERT INTO u VALUES (3)")
			p.caughtUp(3)
			p.oa.kill(t)

			p.b.exec(p.b.admin, "STOP SLAVE", "RESET SLAVE ALL", "INSERT INTO "+p.b.db+".u VALUES (4)")
			again := p.a.run(p.f, at)
			p.a.wants(again.take(2), "u c - {id=3}", "u c - {id=4}")
			if again.last().ServerUUID == at.ServerUUID {
				t.Errorf("still the position of %s", at.ServerUUID)
			}
			again.stop()
			last := p.a.run(p.f, again.last())
			p.b.exec(p.b.admin, "INSERT INTO "+p.b.db+".u VALUES (5)")
			p.a.wants(last.take(1), "u c - {id=5}")
		})
	}
}

// gapOf runs the feeder, which must find a gap.
func (b *bed) gapOf(f *Feeder, from cdc.Position) (*cdc.SourceError, *cdc.GapError) {
	b.Helper()
	e := b.fails(f, from)
	gap, ok := errors.AsType[*cdc.GapError](e)
	if !ok || e.Retry || e.Hint == "" || e.At != from {
		b.Fatalf("%s: got %v, want a gap from %v", b.service, e, from)
	}
	return e, gap
}

// undone gives the keys of the changes that a gap says never happened.
func undone(gap *cdc.GapError, changes []*cdc.RowChange) (ids []string) {
	for _, c := range changes {
		if gap.Undone != nil && gap.Undone(c) {
			ids = append(ids, c.After[0].S)
		}
	}
	return ids
}

// The replica lacks our last transactions: readers may have cached what never happened.
func TestFailoverThatLosesTransactions(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(strings.ToLower(service), func(t *testing.T) {
			p := newPair(t, service, "--log-slave-updates=ON")
			tp := p.a.run(p.f, cdc.Position{})
			p.a.do("INSERT INTO u VALUES (2)")
			p.caughtUp(2)
			p.b.exec(p.b.admin, "STOP SLAVE")
			tp.take(1)
			before := tp.last()
			p.a.do("INSERT INTO u VALUES (3)", "INSERT INTO u VALUES (4)")
			seen := tp.take(3)
			at := tp.last()
			tp.stop()
			p.oa.kill(t)

			// It is a replica still: it may be told the rest.
			if e := p.b.fails(p.f, at); !e.Retry || errors.Is(e, cdc.ErrGap) || !strings.Contains(e.Error(), "has not come as far") {
				t.Fatalf("a replica that is behind gives %v", e)
			}
			// It is the primary: what it lacks has never happened.
			p.b.exec(p.b.admin, "RESET SLAVE ALL", "INSERT INTO "+p.b.db+".u VALUES (5)")
			e, gap := p.b.gapOf(p.f, at)
			if ids := undone(gap, seen); !slices.Equal(ids, []string{"3", "4"}) || gap.UndoneText == "" || !strings.Contains(e.Error(), gap.UndoneText) {
				t.Errorf("undone are %v of %q, in %v", ids, gap.UndoneText, e)
			}
			// A process that died before it saved them left a position that the server has: that is no gap, and they are undone all the same.
			fresh := p.a.feeder(func(c *Config) { c.Hosts = []string{p.oa.addr, p.ob.addr} })
			early := p.b.run(fresh, before)
			p.b.wants(early.take(1), "u c - {id=5}")
			tell, err := fresh.Undone(t.Context())
			if err != nil || tell == nil {
				t.Fatal(err)
			}
			if ids := undone(&cdc.GapError{Undone: tell}, seen); !slices.Equal(ids, []string{"3", "4"}) {
				t.Errorf("undone are %v", ids)
			}
			early.stop()

			// The log goes on from its end there, and only when it is told to.
			p.b.gapOf(p.f, at)
			next, err := p.f.Restart(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p.b.exec(p.b.admin, "INSERT INTO "+p.b.db+".u VALUES (6)")
			p.b.wants(p.b.run(p.f, next).take(1), "u c - {id=6}")
		})
	}
}

// A replica that has not come as far is waited for, and another host is read meanwhile.
func TestReplicaThatIsBehind(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(strings.ToLower(service), func(t *testing.T) {
			p := newPair(t, service, "--log-slave-updates=ON")
			p.b.exec(p.b.admin, "STOP SLAVE")
			tp := p.a.run(p.f, cdc.Position{})
			p.a.do("INSERT INTO u VALUES (2)")
			tp.take(1)
			tp.stop()
			replicaOnly := p.a.feeder(func(c *Config) { c.Hosts = []string{p.ob.addr} })
			if e := p.b.fails(replicaOnly, tp.last()); !e.Retry || errors.Is(e, cdc.ErrGap) {
				t.Fatalf("got %v", e)
			}
			p.a.do("INSERT INTO u VALUES (3)")
			replicaFirst := p.a.feeder(func(c *Config) { c.Hosts = []string{p.ob.addr, p.oa.addr} })
			again := p.a.run(replicaFirst, tp.last())
			p.a.wants(again.take(1), "u c - {id=3}")
			if again.last().ServerUUID != tp.last().ServerUUID {
				t.Error("it reads the replica")
			}
			again.stop()
			p.b.exec(p.b.admin, "START SLAVE")
			p.b.wants(p.b.run(replicaOnly, tp.last()).take(1), "u c - {id=3}")
		})
	}
}

// What another host has purged is no gap while the one that has it may come back; and a replica that keeps what it replicates to
// itself is not read at all.
func TestHostsThatCannotServe(t *testing.T) {
	p := newPair(t, "MYSQL", "--log-slave-updates=ON")
	tp := p.a.run(p.f, cdc.Position{})
	p.a.do("INSERT INTO u VALUES (2)")
	tp.take(1)
	tp.stop()
	p.a.do("INSERT INTO u VALUES (3)")
	p.caughtUp(3)
	p.b.exec(p.b.admin, "STOP SLAVE", "RESET SLAVE ALL", "FLUSH BINARY LOGS", "PURGE BINARY LOGS BEFORE NOW() + INTERVAL 1 DAY")
	p.oa.kill(t)
	if e := p.b.fails(p.f, tp.last()); !e.Retry || errors.Is(e, cdc.ErrGap) || !strings.Contains(e.Error(), "has purged") {
		t.Errorf("while the primary may come back: %v", e)
	}
	p.f.unserved = p.f.unserved.Add(-hostPatience)
	if _, gap := p.b.gapOf(p.f, tp.last()); gap.Undone != nil {
		t.Error("nothing of it is undone")
	}
	p.oa.start(t)
	p.a.wants(p.a.run(p.f, tp.last()).take(1), "u c - {id=3}")
	p.a.finds(p.a.check(p.f), cdc.SeverityError, "", p.oa.addr+" and "+p.ob.addr+" may all be written")
}

// A replica that does not log what it replicates (C9).
func TestC9ReplicaWithoutALog(t *testing.T) {
	for _, service := range []string{"MYSQL", "MARIADB"} {
		t.Run(strings.ToLower(service), func(t *testing.T) {
			p := newPair(t, service, "--log-slave-updates=OFF")
			replica := p.b.feeder(func(c *Config) { c.Hosts = []string{p.ob.addr} })
			if e := p.b.fails(replica, cdc.Position{}); e.Retry || errors.Is(e, cdc.ErrGap) || !strings.Contains(e.Hint, "log_replica_updates=ON") {
				t.Errorf("got %v", e)
			}
			found := p.b.check(replica)
			if !slices.ContainsFunc(found, func(x cdc.Finding) bool {
				return x.Severity == cdc.SeverityError && strings.Contains(x.What, "does not log what it replicates") && x.Hint != ""
			}) {
				t.Errorf("found %q", findings(found))
			}
			tp := p.a.run(p.a.feeder(func(c *Config) { c.Hosts = []string{p.ob.addr, p.oa.addr} }), cdc.Position{})
			p.a.do("INSERT INTO u VALUES (2)")
			p.a.wants(tp.take(1), "u c - {id=2}")
		})
	}
}

// MariaDB: a second server writes in the same domain, and there is another domain (E4).
func TestE4TwoServersInOneDomain(t *testing.T) {
	p := newPair(t, "MARIADB", "--log-slave-updates=ON")
	tp := p.a.run(p.f, cdc.Position{})
	p.a.do("INSERT INTO u VALUES (2)", "SET SESSION gtid_domain_id=7", "INSERT INTO u VALUES (3)", "SET SESSION gtid_domain_id=0")
	p.a.wants(tp.take(2), "u c - {id=2}", "u c - {id=3}")
	at := tp.last()
	tp.stop()
	p.caughtUp(3)
	p.b.exec(p.b.admin, "STOP SLAVE", "RESET SLAVE ALL", "USE "+p.b.db, "INSERT INTO u VALUES (4)", "SET SESSION gtid_domain_id=7", "INSERT INTO u VALUES (5)")
	replica := p.b.feeder(func(c *Config) { c.Hosts = []string{p.ob.addr} })
	again := p.b.run(replica, at)
	p.b.wants(again.take(2), "u c - {id=4}", "u c - {id=5}")
	set := strings.Split(again.last().GTIDSet, ",")
	if len(set) != 2 || !strings.HasPrefix(set[0], "0-2-") || !strings.HasPrefix(set[1], "7-2-") {
		t.Errorf("the position is %v, want one entry a domain, of server 2", set)
	}
	again.stop()
	p.b.exec(p.b.admin, "INSERT INTO u VALUES (6)")
	p.b.wants(p.b.run(replica, again.last()).take(1), "u c - {id=6}")
}
