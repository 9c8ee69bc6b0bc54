//go:build integration

package postgres

import (
	"context"
	"slices"
	"testing"

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

// A generated column is in no change before 18, and Check says so of the publication as it stands, not the log of every row. What
// 18 changes is in TestB5PreflightOfEighteen.
func TestB5GeneratedColumns(t *testing.T) {
	for _, server := range []string{"POSTGRES", "POSTGRES17"} {
		t.Run(server, func(t *testing.T) {
			d := newDBOn(t, server)
			d.exec("CREATE TABLE u (id int PRIMARY KEY, first text, last text, full_name text GENERATED ALWAYS AS (first||last) STORED)")
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

// Check says what somebody else's publication leaves out (field case C10).
func TestCheckPublication(t *testing.T) {
	d := newDB(t)
	d.exec(
		"CREATE TABLE u (id int PRIMARY KEY, region text NOT NULL, email text)", "CREATE UNIQUE INDEX ui ON u (id, region)",
		"ALTER TABLE u REPLICA IDENTITY USING INDEX ui", "CREATE TABLE nokey (id int)")
	f := d.feeder("public.*")
	d.exec("CREATE PUBLICATION " + f.cfg.Publication + " FOR TABLE u (id, region) WHERE (region = 'eu'), nokey WITH (publish = 'insert, update')")
	found := d.check(f)
	wantFinding(t, found, cdc.SeverityWarning, "public.u", "filter")
	wantFinding(t, found, cdc.SeverityWarning, "public.u", "column email: publication")
	wantFinding(t, found, cdc.SeverityError, "public.nokey", "fail now")
	wantFinding(t, found, cdc.SeverityError, "", "does not send deletes")
	wantFinding(t, found, cdc.SeverityWarning, "", "does not send truncates")

	d.exec("DROP PUBLICATION "+f.cfg.Publication, "SELECT pg_create_logical_replication_slot('"+f.cfg.Slot+"', 'test_decoding')")
	found = d.check(f)
	wantFinding(t, found, cdc.SeverityError, "", `plugin "test_decoding"`)
	wantFinding(t, found, cdc.SeverityError, "", "does not exist, but slot")
}

// Check says what a role may not do, and the statement that mends it.
func TestCheckPrivileges(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	role := d.name + "_r"
	d.exec("CREATE ROLE " + role + " LOGIN PASSWORD 'right'")
	t.Cleanup(func() { d.exec("DROP OWNED BY "+role, "DROP ROLE "+role) })
	cfg := d.config("public.u")
	cfg.User, cfg.Password = role, "right"
	found := d.check(newFeeder(t, cfg))
	wantFinding(t, found, cdc.SeverityError, "", "ALTER ROLE")
	wantFinding(t, found, cdc.SeverityError, "", "CREATE PUBLICATION")

	cfg.Password = "wrong"
	_, err := newFeeder(t, cfg).Check(context.Background())
	wantError(t, err, false, false, "password authentication failed")
}
