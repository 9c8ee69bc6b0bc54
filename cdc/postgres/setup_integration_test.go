//go:build integration

package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
)

func (d *db) published(publication string) string {
	d.t.Helper()
	return d.text("SELECT coalesce(string_agg(tablename, ',' ORDER BY tablename), '') FROM pg_publication_tables WHERE pubname = $1", publication)
}

// The feeder publishes what is included and can be, never all tables; a table whose own updates would fail is left out
// (see C4), and one that appears later is added at the next start.
func TestPublicationIsMade(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE nokey (id int)", "CREATE TABLE nothing (id int PRIMARY KEY)",
		"ALTER TABLE nothing REPLICA IDENTITY NOTHING", "CREATE TABLE late (id int PRIMARY KEY DEFERRABLE)",
		"CREATE UNLOGGED TABLE light (id int PRIMARY KEY)", "CREATE SCHEMA x", "CREATE TABLE x.other (id int PRIMARY KEY)")
	f := d.feeder("public.*")
	r := d.start(f, cdc.Position{})
	same(t, d.published(f.cfg.Publication), "a")
	d.exec("INSERT INTO nokey VALUES (1)", "UPDATE nokey SET id = 2", "DELETE FROM nokey", "INSERT INTO nothing VALUES (1)", "DELETE FROM nothing")
	saved := r.stop()

	d.exec("CREATE TABLE b (id int PRIMARY KEY)", "ALTER TABLE nokey REPLICA IDENTITY FULL")
	r = d.start(f, saved)
	same(t, d.published(f.cfg.Publication), "a,b,nokey")
	d.exec("INSERT INTO b VALUES (1)")
	same(t, shown(r.caughtUp()), "c b - {id=1}")
	r.stop()
}

// Feeders that share a publication each find their tables in it, though they make it at the same time.
func TestPublicationIsShared(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
	var feeders []*Feeder
	ended := make(chan error, 2)
	for _, table := range []string{"a", "b"} {
		cfg := d.config("public." + table)
		cfg.Slot += "_" + table
		f := newFeeder(t, cfg)
		feeders = append(feeders, f)
		go func() { ended <- f.Run(context.Background(), cdc.Position{}, refusing{errStreamEnded}) }()
	}
	for range feeders {
		if err := <-ended; err != errStreamEnded {
			t.Error(err)
		}
	}
	same(t, d.published(feeders[0].cfg.Publication), "a,b")
}

// A table that stays locked (a VACUUM, an index being built) holds up neither the others nor the start.
func TestLockedTableHoldsUpNobody(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE v (id int PRIMARY KEY)")
	r := d.start(d.feeder("public.u"), cdc.Position{})
	from := r.stop()
	other := d.connect(d.name)
	defer other.Close(context.Background())
	if _, err := other.Exec(t.Context(), "BEGIN; LOCK TABLE v IN SHARE UPDATE EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	d.eventually("the slot is free", func() bool {
		return d.text("SELECT active::text FROM pg_replication_slots WHERE database = $1", d.name) == "false"
	})
	r = d.start(d.feeder("public.u", "public.v"), from)
	d.exec("INSERT INTO u VALUES (1)")
	same(t, shown(r.caughtUp()), "c u - {id=1}")
	r.stop()
}

// A publication of somebody else's is read and never altered, at a start and in a look; Check and the log say which tables
// are missing.
func TestF10ForeignPublicationIsLeftAlone(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
	kept := &logs{}
	f := lookOften(newLoggedFeeder(t, d.config("public.b", "public.a"), kept))
	d.exec("CREATE PUBLICATION " + f.cfg.Publication + " FOR TABLE a")
	r := d.start(f, cdc.Position{})
	d.eventually("a look was taken", func() bool {
		return !f.Status().At.IsZero() && kept.hold("missing from the publication", "public.b", "ADD TABLE")
	})
	d.exec("INSERT INTO b VALUES (1)", "INSERT INTO a VALUES (2)")
	same(t, shown(r.caughtUp()), "c a - {id=2}")
	same(t, d.published(f.cfg.Publication), "a")
	r.stop()
	wantFinding(t, d.check(f), cdc.SeverityError, "public.b", "ADD TABLE ONLY \"public\".\"b\"")
}

// A partitioned table is published with the partitions to come; its changes carry the partitions' names.
func TestPartitions(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
	r := d.start(d.feeder("public.p", "public.p_*"), cdc.Position{})
	d.exec("CREATE TABLE p_2 PARTITION OF p FOR VALUES FROM (10) TO (20)", "INSERT INTO p VALUES (1), (11)", "UPDATE p SET id = 12 WHERE id = 1")
	same(t, shown(r.caughtUp()), "c p_1 - {id=1}\nc p_2 - {id=11}\nd p_1 {id=1} -\nc p_2 - {id=12}")
	r.stop()
	findings := d.check(d.feeder("public.p"))
	wantFinding(t, findings, cdc.SeverityError, "public.p", "public.p_*")
}

// A partitioned table's own replica identity is not its partitions': only a primary key is.
func TestPartitionsWithoutIdentity(t *testing.T) {
	d := newDB(t)
	d.exec(
		"CREATE TABLE p (id int) PARTITION BY RANGE (id)", "ALTER TABLE p REPLICA IDENTITY FULL",
		"CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
		"CREATE TABLE p_2 PARTITION OF p FOR VALUES FROM (10) TO (20)", "ALTER TABLE p_2 REPLICA IDENTITY FULL")
	f := d.feeder("public.*")
	r := d.start(f, cdc.Position{})
	same(t, d.published(f.cfg.Publication), "p_2")
	d.exec("INSERT INTO p VALUES (1), (11)", "DELETE FROM p")
	same(t, shown(r.caughtUp()), "c p_2 - {id=11}\nd p_2 {id=11} -")
	r.stop()
}

// A publication of somebody else's may send a partition's changes as the partitioned table's.
func TestPublicationViaRoot(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10)")
	f := d.feeder("public.p")
	d.exec("CREATE PUBLICATION " + f.cfg.Publication + " FOR TABLE p WITH (publish_via_partition_root)")
	r := d.start(f, cdc.Position{})
	d.exec("INSERT INTO p VALUES (1)")
	same(t, shown(r.caughtUp()), "c p - {id=1}")
	r.stop()
	for _, found := range d.check(f) {
		if found.Severity == cdc.SeverityError {
			t.Error(found)
		}
	}
	wantFinding(t, d.check(d.feeder("public.p_1")), cdc.SeverityWarning, "public.p_1", "under the name")
}

// Run ends at once while the slot's making waits for an open transaction, and no half-made slot stays.
func TestStopWhileSlotIsMade(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	other := d.connect(d.name)
	defer other.Close(context.Background())
	if _, err := other.Exec(context.Background(), "BEGIN; INSERT INTO u VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	f := d.feeder("public.u")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx, cdc.Position{}, refusing{errors.New("started")}) }()
	d.eventually("the slot is being made", func() bool {
		return d.text("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1", f.cfg.Slot) == "1"
	})
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(3 * time.Second):
		t.Fatal("Run did not end")
	}
	d.eventually("the half-made slot is gone", func() bool {
		return d.text("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1", f.cfg.Slot) == "0"
	})
}

// What keeps a feeder from starting is one clear line.
func TestRefusals(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	role := d.name + "_r"
	d.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'right'")
	t.Cleanup(func() { d.exec("DROP OWNED BY "+role, "DROP ROLE "+role) })
	as := func(change func(*Config)) *Feeder {
		cfg := d.config("public.u")
		cfg.User, cfg.Password = role, saying("right")
		change(&cfg)
		return newFeeder(t, cfg)
	}
	wantError(t, d.fails(as(func(c *Config) { c.Password = saying("wrong") }), cdc.Position{}), false, false, "password authentication failed", "check user and password")
	wantError(t, d.fails(as(func(c *Config) { c.Database = "nowhere" }), cdc.Position{}), false, false, `database "nowhere" does not exist`, "check the source's database")
	wantError(t, d.fails(as(func(c *Config) { c.Hosts = []string{"127.0.0.1:1"} }), cdc.Position{}), false, true, "connection refused")
	wantError(t, d.fails(as(func(c *Config) {}), cdc.Position{}), false, false, "ALTER ROLE", "REPLICATION")
	d.exec("ALTER ROLE " + role + " REPLICATION")
	wantError(t, d.fails(as(func(c *Config) {}), cdc.Position{}), false, false, "creating publication", `CREATE PUBLICATION "pub_`+d.name+`" FOR TABLE ONLY "public"."u"`)
	wantError(t, d.fails(as(func(c *Config) { c.Include, _ = cdc.NewInclude([]string{"public.nowhere"}) }), cdc.Position{}), false, false, "include list")

	d.start(d.feeder("public.u"), cdc.Position{}).stop()
	cfg := d.config("public.u")
	cfg.Database = "postgres"
	wantError(t, d.fails(newFeeder(t, cfg), cdc.Position{}), false, false, "belongs to database "+d.name)
}

func wantError(t *testing.T, err error, gap, retry bool, texts ...string) {
	t.Helper()
	var s *cdc.SourceError
	if !errors.As(err, &s) {
		t.Fatalf("%T: %v", err, err)
	}
	if errors.Is(err, cdc.ErrGap) != gap || s.Retryable() != retry {
		t.Errorf("gap %v, retryable %v: %v", errors.Is(err, cdc.ErrGap), s.Retryable(), err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("%q is not in: %v", text, err)
		}
	}
}

func wantNoFinding(t *testing.T, findings []cdc.Finding, table string) {
	t.Helper()
	for _, f := range findings {
		if f.Table == table {
			t.Errorf("of table %q: %v", table, f)
		}
	}
}

func wantFinding(t *testing.T, findings []cdc.Finding, severity cdc.Severity, table, text string) {
	t.Helper()
	for _, f := range findings {
		if f.Severity == severity && f.Table == table && strings.Contains(f.String(), text) {
			return
		}
	}
	t.Errorf("no %s of table %q with %q in:", severity, table, text)
	for _, f := range findings {
		t.Log(f)
	}
}

// A publication that a feeder of another role made is read as it is.
func TestPublicationOfAnotherRole(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.*")
	saved := d.start(f, cdc.Position{}).stop()
	role := d.name + "_r"
	d.exec("CREATE ROLE "+role+" LOGIN REPLICATION PASSWORD 'right'", "CREATE TABLE v (id int PRIMARY KEY)")
	t.Cleanup(func() { d.exec("DROP OWNED BY "+role, "DROP ROLE "+role) })
	cfg := f.cfg
	cfg.User, cfg.Password = role, saying("right")
	d.slotIsFree(cfg.Slot)
	second := newFeeder(t, cfg)
	r := d.start(second, saved)
	d.exec("INSERT INTO u VALUES (1)")
	same(t, shown(r.caughtUp()), "c u - {id=1}")
	r.stop()
	same(t, d.published(cfg.Publication), "u")
	found := d.check(second)
	wantFinding(t, found, cdc.SeverityWarning, "", "OWNER TO")
	wantFinding(t, found, cdc.SeverityError, "public.v", "ADD TABLE")
}

// A role with REPLICATION, CREATE on the database and membership in the tables' owner is enough.
func TestLeastPrivileges(t *testing.T) {
	d := newDB(t)
	owner, role := d.name+"_o", d.name+"_r"
	d.exec(
		"CREATE ROLE "+owner, "CREATE ROLE "+role+" LOGIN REPLICATION PASSWORD 'right' IN ROLE "+owner,
		"GRANT CREATE ON DATABASE "+d.name+" TO "+role,
		"CREATE TABLE u (id int PRIMARY KEY)", "ALTER TABLE u OWNER TO "+owner)
	t.Cleanup(func() { d.exec("DROP OWNED BY "+owner+", "+role, "DROP ROLE "+owner, "DROP ROLE "+role) })
	cfg := d.config("public.*")
	cfg.User, cfg.Password = role, saying("right")
	f := newFeeder(t, cfg)
	for _, found := range d.check(f) {
		if found.Severity == cdc.SeverityError {
			t.Error(found)
		}
	}
	r := d.start(lookOften(f), cdc.Position{}, unconfirmed) // the slot stays while the successor starts
	d.exec("INSERT INTO u VALUES (1)")
	same(t, shown(r.caughtUp()), "c u - {id=1}")
	d.exec("BEGIN", "CREATE TABLE v (id int PRIMARY KEY)", "ALTER TABLE v OWNER TO "+owner, "INSERT INTO v VALUES (1)", "COMMIT")
	r.joinsBecome("public.v")
	r.streaming()
	successor := newFeeder(t, cfg)
	next := d.start(successor, r.position())
	wantError(t, <-r.ended, false, true)
	next.stop()
	d.slotIsFree(cfg.Slot)
	if _, err := successor.Restart(t.Context()); err != nil {
		t.Error(err)
	}
}
