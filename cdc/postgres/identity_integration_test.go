//go:build integration

package postgres

import (
	"context"
	"testing"

	"invalidator/cdc"
)

// A table that inherits from an included one (INHERITS) is published only where it is included itself: without an identity its
// updates would fail from then on. Its rows are not the mother's in the log.
func TestInheritingTablesAreNotPublished(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE mother (id int PRIMARY KEY, v int)", "CREATE TABLE child () INHERITS (mother)", "INSERT INTO child VALUES (1, 1)")
	f := lookOften(d.feeder("public.mother", "public.late"))
	r := d.start(f, cdc.Position{})
	same(t, d.published(f.cfg.Publication), "mother")
	d.exec("CREATE TABLE late (id int PRIMARY KEY, v int)", "CREATE TABLE late_child () INHERITS (late)")
	d.eventually("late is published", func() bool { return d.published(f.cfg.Publication) == "late,mother" })
	d.exec("INSERT INTO late_child VALUES (1, 1)", "UPDATE late_child SET v = 2", "UPDATE child SET v = 2", "DELETE FROM mother", "INSERT INTO mother VALUES (2, 2)")
	same(t, shown(r.caughtUp()), "c mother - {id=2 v=2}")
	r.stop()

	d.exec("ALTER TABLE child ADD PRIMARY KEY (id)", "CREATE TABLE grandchild (extra int) INHERITS (child)", "INSERT INTO grandchild VALUES (3, 3, 3)")
	f = d.feeder("public.mother", "public.child")
	f.cfg.Publication, f.cfg.Slot = "second", f.cfg.Slot+"_2"
	r = d.start(f, cdc.Position{})
	same(t, d.published("second"), "child,mother")
	d.exec("UPDATE mother SET v = 4", "INSERT INTO child VALUES (4, 4)")
	same(t, shown(r.caughtUp()), "u mother - {id=2 v=4}\nc child - {id=4 v=4}")
	r.stop()
}

// A table whose identity is dropped, or whose name another takes, between the look at it and its lock is not published: the
// application's updates go on.
func TestIdentityIsDroppedWhileATableIsAdded(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE v (id int, CONSTRAINT key PRIMARY KEY (id))", "INSERT INTO v VALUES (1)")
	alter := func(statements string, then func()) {
		t.Helper()
		other := d.connect(d.name)
		defer other.Close(context.Background())
		if _, err := other.Exec(t.Context(), "BEGIN; "+statements); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() { defer close(done); then() }()
		d.eventually("the feeder waits for the lock", func() bool {
			return d.text("SELECT count(*)::text FROM pg_locks WHERE NOT granted AND relation = 'v'::regclass") != "0"
		})
		if _, err := other.Exec(t.Context(), "COMMIT"); err != nil {
			t.Fatal(err)
		}
		<-done
	}
	f := d.feeder("public.u", "public.v")
	var r *run
	alter("ALTER TABLE v DROP CONSTRAINT key", func() { r = d.start(f, cdc.Position{}) })
	same(t, d.published(f.cfg.Publication), "u")
	d.exec("UPDATE v SET id = 2", "INSERT INTO u VALUES (1)")
	same(t, shown(r.caughtUp()), "c u - {id=1}")
	from := r.stop()
	d.eventually("the slot is free", func() bool { return d.reader(f.cfg.Slot) == "" })

	for _, statements := range []string{"ALTER TABLE v DROP CONSTRAINT key", "ALTER TABLE v RENAME TO w; CREATE TABLE v (id int)"} {
		d.exec("ALTER TABLE v ADD CONSTRAINT key PRIMARY KEY (id)")
		alter(statements, func() { r = d.start(d.feeder("public.u", "public.v"), from) })
		same(t, d.published(f.cfg.Publication), "u")
		d.exec("UPDATE v SET id = 3", "INSERT INTO u SELECT max(id) + 1 FROM u")
		if got := shown(r.caughtUp()); got == "" {
			t.Error("nothing is fed")
		}
		from = r.stop()
		d.eventually("the slot is free", func() bool { return d.reader(f.cfg.Slot) == "" })
	}
}
