//go:build integration

package postgres

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"invalidator/cdc"
)

// What an update tells of the old row depends on the table's replica identity, also where its key changes; Check says which old
// values can never be known.
func TestC1C3OldRowsByIdentity(t *testing.T) {
	d := newDB(t)
	d.exec(
		"CREATE TABLE def (id int PRIMARY KEY, email text)",
		"CREATE TABLE whole (id int PRIMARY KEY, email text)", "ALTER TABLE whole REPLICA IDENTITY FULL",
		"CREATE TABLE ix (id int PRIMARY KEY, email text NOT NULL UNIQUE)", "ALTER TABLE ix REPLICA IDENTITY USING INDEX ix_email_key",
		"CREATE TABLE keyless (a int, b text)", "ALTER TABLE keyless REPLICA IDENTITY FULL")
	r := d.start(d.feeder("public.*"), cdc.Position{})
	for _, table := range []string{"def", "whole", "ix"} {
		d.exec(
			"INSERT INTO "+table+" VALUES (42, 'a')",
			"UPDATE "+table+" SET email = 'b'",
			"UPDATE "+table+" SET id = 43",
			"DELETE FROM "+table)
	}
	d.exec("INSERT INTO keyless VALUES (1, 'x')", "UPDATE keyless SET b = NULL", "DELETE FROM keyless")
	changes := r.caughtUp()
	same(t, shown(changes), `c def - {id=42 email=a}
u def - {id=42 email=b}
u def {id=42} {id=43 email=b}
d def {id=43} -
c whole - {id=42 email=a}
u whole {id=42 email=a} {id=42 email=b}
u whole {id=42 email=b} {id=43 email=b}
d whole {id=43 email=b} -
c ix - {id=42 email=a}
u ix {email=a} {id=42 email=b}
u ix - {id=43 email=b}
d ix {email=b} -
c keyless - {a=1 b=x}
u keyless {a=1 b=x} {a=1 b=NULL}
d keyless {a=1 b=NULL} -`)
	for i, want := range map[int]string{0: "id", 4: "id", 8: "email", 12: ""} {
		if got := strings.Join(changes[i].KeyColumns, ","); got != want {
			t.Errorf("key of %s is %q, want %q", changes[i].Table, got, want)
		}
	}
	r.stop()
	found := d.check(r.feeder)
	for _, table := range []string{"public.def", "public.ix"} {
		wantFinding(t, found, cdc.SeverityWarning, table, "old values of other columns can never be known")
	}
	wantNoFinding(t, found, "public.whole")
}

// A table whose old rows are known in part is named when the feeder starts, one whose identity is whole is not.
func TestC3StartWarnsOfTheIdentity(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE def (id int PRIMARY KEY, email text)",
		"CREATE TABLE ix (id int PRIMARY KEY, email text NOT NULL UNIQUE)", "ALTER TABLE ix REPLICA IDENTITY USING INDEX ix_email_key",
		"CREATE TABLE whole (id int PRIMARY KEY, email text)", "ALTER TABLE whole REPLICA IDENTITY FULL")
	var log bytes.Buffer
	f := d.feeder("public.*")
	f.log = slog.New(slog.NewTextHandler(&log, nil))
	d.start(f, cdc.Position{}).stop()
	want := `level=WARN msg="the old values of columns outside of the replica identity can never be known, nor large values that an update left alone" tables="public.def, public.ix" hint="ALTER TABLE … REPLICA IDENTITY FULL`
	if n := strings.Count(log.String(), want); n != 1 {
		t.Errorf("said %d times in\n%s", n, log.String())
	}
}

// A large value that an update left alone is in the log only under REPLICA IDENTITY FULL.
func TestB4UnchangedToast(t *testing.T) {
	d := newDB(t)
	d.exec(
		"CREATE TABLE doc (id int PRIMARY KEY, slug text, body text)",
		"ALTER TABLE doc ALTER COLUMN slug SET STORAGE EXTERNAL",
		"INSERT INTO doc SELECT 1, string_agg(md5(i::text), ''), NULL FROM generate_series(1, 300) i")
	slug := d.text("SELECT slug FROM doc")
	r := d.start(d.feeder("public.doc"), cdc.Position{})
	d.exec("UPDATE doc SET body = 'x'", "UPDATE doc SET id = 2")
	same(t, shown(r.caughtUp()), "u doc - {id=1 body=x}\nu doc {id=1} {id=2 body=x}")
	d.exec("ALTER TABLE doc REPLICA IDENTITY FULL", "UPDATE doc SET body = 'y'")
	same(t, shown(r.caughtUp()), "u doc {id=2 slug="+slug+" body=x} {id=2 slug="+slug+" body=y}")
	r.stop()
}

// Deletes that a foreign key makes are in the log like others.
func TestC5Cascade(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE parent (id int PRIMARY KEY)", "CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent ON DELETE CASCADE)",
		"INSERT INTO parent VALUES (1)", "INSERT INTO child VALUES (10, 1), (11, 1)")
	r := d.start(d.feeder("public.child"), cdc.Position{})
	d.exec("DELETE FROM parent")
	same(t, shown(r.caughtUp()), "d child {id=10} -\nd child {id=11} -")
	r.stop()
}

// A writer's own messages come in their transaction, or at once where they belong to none.
func TestLogicalMessages(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	r := d.start(d.feeder("public.u"), cdc.Position{})
	d.exec(
		"BEGIN", "INSERT INTO u VALUES (1)", "SELECT pg_logical_emit_message(true, 'cache', 'feed:42')", "COMMIT",
		"BEGIN", "SELECT pg_logical_emit_message(true, 'cache', 'never')", "ROLLBACK",
		"SELECT pg_logical_emit_message(false, 'other', '\\x00ff'::bytea)")
	changes := r.caughtUp()
	if len(changes) != 3 {
		t.Fatalf("got\n%s", shown(changes))
	}
	inside, outside := changes[1], changes[2]
	if inside.Op != cdc.Message || inside.Prefix != "cache" || string(inside.Content) != "feed:42" || inside.Tx != changes[0].Tx || inside.Ordinal != 1 {
		t.Errorf("in a transaction: %+v", inside)
	}
	if outside.Op != cdc.Message || outside.Prefix != "other" || string(outside.Content) != "\x00\xff" || outside.Tx != "" || outside.Position.LSN == "" {
		t.Errorf("in none: %+v", outside)
	}
	r.stop()
}

// A table that is altered while it is read keeps its rows right, and its old Columns are left alone.
func TestD1AlterInMidStream(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY, a text)")
	r := d.start(d.feeder("public.u"), cdc.Position{})
	d.exec(
		"INSERT INTO u VALUES (1, 'x')",
		"ALTER TABLE u ADD c numeric(6,2) DEFAULT 1", "INSERT INTO u VALUES (2, 'y', 2.5)",
		"ALTER TABLE u DROP a", "UPDATE u SET c = 3 WHERE id = 1",
		"ALTER TABLE u RENAME id TO uid", "DELETE FROM u WHERE uid = 2",
		"BEGIN", "INSERT INTO u VALUES (3, 0)", "ALTER TABLE u ALTER c TYPE text", "INSERT INTO u VALUES (4, 'z')", "COMMIT",
		"ANALYZE u", "INSERT INTO u VALUES (5, 'same layout')")
	changes := r.caughtUp()
	same(t, shown(changes), `c u - {id=1 a=x}
c u - {id=2 a=y c=2.50}
u u - {id=1 c=3.00}
d u {uid=2} -
c u - {uid=3 c=0.00}
c u - {uid=4 c=z}
c u - {uid=5 c=same layout}`)
	if changes[0].Columns == changes[1].Columns || changes[5].Columns != changes[6].Columns {
		t.Error("Columns must be new exactly where the layout is")
	}
	r.stop()
}
