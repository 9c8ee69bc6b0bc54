//go:build integration

package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
)

func (d *db) check(f *Feeder) []cdc.Finding {
	d.t.Helper()
	findings, err := f.Check(context.Background())
	if err != nil {
		d.t.Fatal(err)
	}
	return findings
}

// Check names every table that cannot be fed whole, before anything is made.
func TestCheckTables(t *testing.T) {
	d := newDB(t)
	d.exec(
		"CREATE TABLE a (id int PRIMARY KEY, email text)",
		"CREATE TABLE whole (id int PRIMARY KEY)", "ALTER TABLE whole REPLICA IDENTITY FULL",
		"CREATE TABLE nokey (id int)",
		"CREATE TABLE nothing (id int PRIMARY KEY)", "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
		"CREATE UNLOGGED TABLE light (id int PRIMARY KEY)",
		"CREATE TABLE made (id int PRIMARY KEY, first text, full_name text GENERATED ALWAYS AS (first || '!') STORED)")
	f := d.feeder("public.*")
	found := d.check(f)
	wantFinding(t, found, cdc.SeverityWarning, "public.a", `ALTER TABLE "public"."a" REPLICA IDENTITY FULL`)
	wantFinding(t, found, cdc.SeverityError, "public.nokey", "primary key")
	wantFinding(t, found, cdc.SeverityError, "public.nothing", "NOTHING")
	wantFinding(t, found, cdc.SeverityError, "public.light", "unlogged")
	wantFinding(t, found, cdc.SeverityWarning, "public.made", "column full_name")
	wantFinding(t, found, cdc.SeverityWarning, "", "max_slot_wal_keep_size")
	if i := slices.IndexFunc(found, func(x cdc.Finding) bool { return x.Table == "public.whole" }); i >= 0 {
		t.Errorf("of a table with a whole identity: %v", found[i])
	}
	if !slices.IsSortedFunc(found, func(a, b cdc.Finding) int { return rank(a.Severity) - rank(b.Severity) }) {
		t.Error("the mildest must come last")
	}
	same(t, d.text("SELECT (SELECT count(*) FROM pg_publication) + (SELECT count(*) FROM pg_replication_slots WHERE database = current_database()) || ''"), "0")

	d.start(f, cdc.Position{}).stop()
	wantFinding(t, d.check(f), cdc.SeverityWarning, "public.made", "column full_name")
	wantFinding(t, d.check(d.feeder("nowhere.*")), cdc.SeverityError, "", "include list")
}

// Tables that a publication breaks are listed, those that we do not feed too; a publication of ours never holds one.
func TestC4NoReplicaIdentity(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE nokey (a int)", "CREATE TABLE nothing (id int PRIMARY KEY)", "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
		"CREATE SCHEMA ext", "CREATE TABLE ext.nokey (a int)", "INSERT INTO nokey VALUES (1)", "INSERT INTO nothing VALUES (1)")
	f := d.feeder("public.*")
	found := d.check(f)
	for _, table := range []string{"public.nokey", "public.nothing"} {
		wantFinding(t, found, cdc.SeverityError, table, "55000")
	}
	wantNoFinding(t, found, "ext.nokey")
	r := d.start(f, cdc.Position{})
	same(t, d.published(f.cfg.Publication), "u")
	same(t, d.text("SELECT bool_or(puballtables)::text FROM pg_publication"), "false")
	d.exec("DELETE FROM nokey", "DELETE FROM nothing", "INSERT INTO nokey VALUES (1)")
	r.stop()

	all := d.config("public.*")
	all.Publication = "all_" + d.name
	d.exec("CREATE PUBLICATION " + all.Publication + " FOR ALL TABLES")
	if _, err := d.conn.Exec(t.Context(), "DELETE FROM nokey"); !isState(err, stateNotInPrerequisite) {
		t.Errorf("got %v", err)
	}
	found = d.check(newFeeder(t, all))
	for _, table := range []string{"public.nokey", "public.nothing", "ext.nokey"} {
		wantFinding(t, found, cdc.SeverityError, table, "fail now")
	}
}

// A row filter and a column list are named and refused, by check and by a source that begins, or accepted where the configuration
// says so. An update that crosses the filter comes as an insert or a delete, with its key. A source that is fed already goes on.
func TestC10PartialPublication(t *testing.T) {
	d := newDB(t)
	d.exec(
		"CREATE TABLE u (id int PRIMARY KEY, region text NOT NULL, email text)", "CREATE UNIQUE INDEX ui ON u (id, region)",
		"ALTER TABLE u REPLICA IDENTITY USING INDEX ui", "CREATE TABLE nokey (id int)",
		"INSERT INTO u VALUES (1, 'eu', 'a'), (2, 'us', 'b')")
	f := d.feeder("public.*")
	d.exec("CREATE PUBLICATION " + f.cfg.Publication + " FOR TABLE u (id, region) WHERE (region = 'eu'), nokey WITH (publish = 'insert, update, delete')")
	found := d.check(f)
	wantFinding(t, found, cdc.SeverityError, "public.u", "filter lets through: (region = 'eu'::text)")
	wantFinding(t, found, cdc.SeverityError, "public.u", "column email: publication")
	wantFinding(t, found, cdc.SeverityError, "public.nokey", "fail now")
	wantFinding(t, found, cdc.SeverityWarning, "", "does not send truncates")
	allowing := f.cfg
	allowing.AllowPartial = true
	found = d.check(newFeeder(t, allowing))
	wantFinding(t, found, cdc.SeverityWarning, "public.u", "filter")
	wantFinding(t, found, cdc.SeverityWarning, "public.u", "column email: publication")

	err := d.fails(f, cdc.Position{})
	wantError(t, err, false, false, "public.u only the rows that its filter lets through, (region = 'eu'::text); of public.u no column email")
	if slots := d.text("SELECT count(*)::text FROM pg_replication_slots WHERE slot_name = $1", f.cfg.Slot); slots != "0" {
		t.Errorf("%s slots of a source that was refused", slots)
	}
	r := d.start(newFeeder(t, allowing), cdc.Position{})
	d.exec("UPDATE u SET region = 'us' WHERE id = 1", "UPDATE u SET region = 'as' WHERE id = 2", "UPDATE u SET region = 'eu' WHERE id = 2", "UPDATE u SET email = 'c' WHERE id = 2")
	same(t, shown(r.caughtUp()), "d u {id=1 region=eu} -\nc u - {id=2 region=eu}\nu u - {id=2 region=eu}")
	at := r.stop()
	r = d.start(f, at)
	d.exec("UPDATE u SET region = 'us' WHERE id = 2")
	same(t, shown(r.caughtUp()), "d u {id=2 region=eu} -")
	r.stop()

	d.exec("DROP PUBLICATION "+f.cfg.Publication, "CREATE PUBLICATION "+f.cfg.Publication+" FOR TABLE u WITH (publish = 'insert, update')")
	found = d.check(f)
	wantFinding(t, found, cdc.SeverityError, "", "does not send deletes")
	d.slotIsFree(f.cfg.Slot)
	d.exec("DROP PUBLICATION "+f.cfg.Publication, "SELECT pg_drop_replication_slot('"+f.cfg.Slot+"')", "SELECT pg_create_logical_replication_slot('"+f.cfg.Slot+"', 'test_decoding')")
	wantFinding(t, d.check(f), cdc.SeverityError, "", `plugin "test_decoding"`)
	d.exec("SELECT pg_drop_replication_slot('"+f.cfg.Slot+"')", "SELECT pg_create_logical_replication_slot('"+f.cfg.Slot+"', 'pgoutput')")
	wantFinding(t, d.check(f), cdc.SeverityError, "", "does not exist, but slot")
}

const generatedTable = "CREATE TABLE u (id int PRIMARY KEY, first text, last text, full_name text GENERATED ALWAYS AS (first || last) STORED)"

// A generated column is in no change before 18, and Check says so of the publication as it stands, not the log of every row.
func TestB5GeneratedColumns(t *testing.T) {
	for _, server := range []string{"POSTGRES", "POSTGRES17"} {
		t.Run(server, func(t *testing.T) {
			d := newDBOn(t, server)
			d.exec(generatedTable)
			f := d.feeder("public.u")
			wantFinding(t, d.check(f), cdc.SeverityWarning, "public.u", "column full_name: it is generated")
			r := d.start(f, cdc.Position{})
			wantFinding(t, d.check(f), cdc.SeverityWarning, "public.u", "column full_name: it is generated")
			d.exec("INSERT INTO u VALUES (1, 'a', 'b')", "ALTER TABLE u REPLICA IDENTITY FULL", "UPDATE u SET first = 'x'")
			same(t, shown(r.caughtUp()), "c u - {id=1 first=a last=b}\nu u {id=1 first=a last=b} {id=1 first=x last=b}")
			r.stop()
		})
	}
}

// From 18 on our own publication sends stored generated columns. A table whose FULL identity, or a partition's, takes in one that
// is not sent is left out by name, and its application goes on. Another's publication that holds it stops the application.
func TestB5GeneratedColumnsOfEighteen(t *testing.T) {
	d := newServer(t, 18).db("postgres")
	d.exec(generatedTable, "ALTER TABLE u REPLICA IDENTITY FULL",
		"CREATE TABLE virtual (id int PRIMARY KEY, a int, b int GENERATED ALWAYS AS (a + 1) VIRTUAL)", "ALTER TABLE virtual REPLICA IDENTITY FULL",
		"CREATE TABLE keyed (id int PRIMARY KEY, a int, b int GENERATED ALWAYS AS (a + 1) VIRTUAL) PARTITION BY LIST (id)", "ALTER TABLE keyed REPLICA IDENTITY FULL",
		"CREATE TABLE keyed_1 PARTITION OF keyed FOR VALUES IN (1)",
		"CREATE TABLE parts (id int PRIMARY KEY, a int, b int GENERATED ALWAYS AS (a + 1) VIRTUAL) PARTITION BY LIST (id)",
		"CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1)", "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES IN (2)", "ALTER TABLE parts_1 REPLICA IDENTITY FULL",
		"INSERT INTO virtual VALUES (1)", "INSERT INTO parts VALUES (1), (2)", "INSERT INTO keyed VALUES (1)")
	stopped := map[string]string{"public.virtual": "column b", "public.parts": "column public.parts_1.b", "public.parts_1": "column b"}
	f := d.feeder("public.*")
	found := d.check(f)
	for table, column := range stopped {
		wantFinding(t, found, cdc.SeverityError, table, column+" is not published")
	}
	r := d.start(f, cdc.Position{})
	same(t, d.published(f.cfg.Publication), "keyed_1,parts_2,u")
	d.exec("INSERT INTO u VALUES (1, 'a', 'b')", "UPDATE u SET last = 'c'", "UPDATE virtual SET a = 2", "UPDATE parts SET a = 2", "UPDATE keyed SET a = 2")
	same(t, shown(r.caughtUp()), "c u - {id=1 first=a last=b full_name=ab}\nu u {id=1 first=a last=b full_name=ab} {id=1 first=a last=c full_name=ac}\n"+
		"u parts_2 - {id=2 a=2}\nu keyed_1 - {id=1 a=2}")
	d.exec("CREATE TABLE later (id int PRIMARY KEY, a int, b int GENERATED ALWAYS AS (a + 1) VIRTUAL)", "ALTER TABLE later REPLICA IDENTITY FULL", "INSERT INTO later VALUES (1)")
	at := r.stop()
	r = d.start(f, at)
	d.exec("UPDATE later SET a = 2")
	same(t, shown(r.caughtUp()), "")
	r.stop()
	wantNoFinding(t, d.check(f), "public.u")

	other := f.cfg
	other.Publication, other.Include = "none", d.config("public.u").Include
	d.exec("CREATE PUBLICATION none FOR TABLE u, virtual, parts WITH (publish_generated_columns = none)")
	found = d.check(newFeeder(t, other))
	wantFinding(t, found, cdc.SeverityError, "public.u", "publish_generated_columns = stored")
	for _, table := range []string{"public.u", "public.virtual", "public.parts_1"} { // parts_1 by parts
		wantFinding(t, found, cdc.SeverityError, table, "fail now")
	}
	for _, table := range []string{"u", "virtual", "parts_1"} {
		if _, err := d.conn.Exec(t.Context(), "DELETE FROM "+table); !isState(err, "42P10") {
			t.Errorf("%s: got %v", table, err)
		}
	}
	d.exec("DELETE FROM parts_2")
}

// One check lists everything that can never be known, each with its column, before anything is read.
func TestJ2WhatCannotBeKnown(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY, email text, secret text, made text GENERATED ALWAYS AS (email || '!') STORED)", "CREATE TABLE nokey (a int)")
	f := d.feeder("public.u", "public.nokey", "public.nowhere")
	d.exec("CREATE PUBLICATION " + f.cfg.Publication + " FOR TABLE u (id, email)")
	found := d.check(f)
	wantFinding(t, found, cdc.SeverityError, "public.u", "column secret: publication")
	wantFinding(t, found, cdc.SeverityWarning, "public.u", "column made: it is generated")
	wantFinding(t, found, cdc.SeverityWarning, "public.u", "old values of other columns can never be known")
	wantFinding(t, found, cdc.SeverityError, "public.nokey", "replica identity")
	wantFinding(t, found, cdc.SeverityWarning, "", `"public.nowhere" chooses no table`)
	for _, x := range found {
		if x.Hint == "" || x.What == "" || x.Source != "t" {
			t.Errorf("%+v", x)
		}
	}
	tables, err := f.Describe(t.Context(), f.cfg.Include)
	if err != nil || len(tables) != 2 {
		t.Fatal(tables, err)
	}
	u := tables[1]
	if u.Column("email").OldUnsent.What == "" || u.Column("secret").Unsent.What == "" || u.Column("made").Unsent.What == "" || u.Column("nowhere") != nil {
		t.Errorf("described: %+v", u)
	}
	same(t, d.slots(f.cfg.Slot), "0")
}

// What the server's settings and what else runs there can do to the source.
func TestCheckServer(t *testing.T) {
	s := newServer(t, 18, "max_slot_wal_keep_size = '64MB'", "wal_keep_size = 0", "idle_replication_slot_timeout = '1h'", "max_prepared_transactions = 2", "max_replication_slots = 2",
		"synchronous_standby_names = 'late'", "synchronous_commit = local")
	d := s.db("postgres")
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE UNLOGGED TABLE light (id int PRIMARY KEY)",
		"CREATE FOREIGN DATA WRAPPER w", "CREATE SERVER far FOREIGN DATA WRAPPER w", "CREATE FOREIGN TABLE elsewhere (id int) SERVER far",
		"BEGIN", "INSERT INTO u VALUES (1)", "PREPARE TRANSACTION 'for''gotten'")
	f := d.feeder("public.*")
	l, skew, err := (&checker{f: f}).askLoad(t.Context(), d.conn, 0)
	if err != nil || len(l.PreparedNames) != 1 || l.PreparedNames[0] != "'for''gotten'" || time.Since(l.PreparedSince) > time.Minute || skew != 0 || l.OpenBy != 0 {
		t.Errorf("%+v, skew %v, %v", l, skew, err)
	}
	d.exec("ROLLBACK PREPARED " + l.PreparedNames[0])
	found := d.check(f)
	wantFinding(t, found, cdc.SeverityWarning, "", "idle_replication_slot_timeout is 1h0m0s")
	wantFinding(t, found, cdc.SeverityError, "public.light", "unlogged")
	wantFinding(t, found, cdc.SeverityError, "public.elsewhere", "foreign table")
	for _, x := range found {
		if x.Table == "" && x.Severity == cdc.SeverityError {
			t.Error(x)
		}
	}
	r := d.start(f, cdc.Position{})
	r.streaming()
	d.exec("ALTER SYSTEM SET synchronous_commit = on", "SELECT pg_reload_conf()")
	d.eventually("the wait is found", func() bool {
		return slices.ContainsFunc(d.check(f), func(x cdc.Finding) bool {
			return strings.Contains(x.What, "commits wait for synchronous standbys (late")
		})
	})
	d.exec("ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")

	cfg := f.cfg
	cfg.Slot = "second"
	d.exec("SELECT pg_create_logical_replication_slot('second', 'pgoutput')")
	d.readSlot(newFeeder(t, cfg), "another")
	wantFinding(t, d.check(f), cdc.SeverityWarning, "", "slot second (pid "+d.reader("second")+", role postgres, application another) reads publication")
	cfg.Slot = "third"
	wantFinding(t, d.check(newFeeder(t, cfg)), cdc.SeverityError, "", "all 2 replication slots are taken")
	r.stop()

	standby := s.standby(d)
	d.eventually("the standby streams", func() bool {
		return d.text("SELECT count(*)::text FROM pg_stat_replication WHERE application_name = 'standby'") == "1"
	})
	wantFinding(t, d.check(f), cdc.SeverityWarning, "", "synchronized_standby_slots is empty")
	cfg.Slot = "second"
	wantFinding(t, d.check(newFeeder(t, cfg)), cdc.SeverityWarning, "", "ALTER_REPLICATION_SLOT second (FAILOVER true)")
	cfg.Hosts, cfg.Standby = []string{standby.addr}, true
	standby.set("hot_standby_feedback = off")
	sd := standby.db("postgres")
	sd.exec("SELECT pg_reload_conf()")
	sd.eventually("the setting is found", func() bool {
		return slices.ContainsFunc(sd.check(newFeeder(t, cfg)), func(x cdc.Finding) bool { return strings.Contains(x.What, "clean-up") })
	})
}

// Check says what a role may not do, and the statement that mends it.
func TestCheckPrivileges(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	role := d.name + "_r"
	d.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'right'")
	t.Cleanup(func() { d.exec("DROP OWNED BY "+role, "DROP ROLE "+role) })
	cfg := d.config("public.u")
	cfg.User, cfg.Password = role, saying("right")
	found := d.check(newFeeder(t, cfg))
	wantFinding(t, found, cdc.SeverityError, "", "ALTER ROLE")
	wantFinding(t, found, cdc.SeverityError, "", "CREATE PUBLICATION")

	cfg.Password = saying("wrong")
	_, err := newFeeder(t, cfg).Check(context.Background())
	wantError(t, err, false, false, "password authentication failed")
}
