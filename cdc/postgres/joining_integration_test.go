//go:build integration

package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
)

// lookOften makes a feeder look at the catalogue often.
func lookOften(f *Feeder) *Feeder {
	f.timing.look, f.timing.gauge = 50*time.Millisecond, 50*time.Millisecond
	return f
}

func (r *run) joinsBecome(want string) {
	r.t.Helper()
	got := ""
	r.db.eventually("joined: "+want, func() bool {
		if now := r.joins(); now != "" {
			got = strings.Trim(got+","+now, ",")
		}
		return got == want
	})
}

// A table that is made while the source is fed joins without a restart: with a word where rows were written before, and
// without one where none ever was.
func TestTablesJoinWhileFeeding(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := lookOften(d.feeder("public.*"))
	r := d.start(f, cdc.Position{})
	d.exec("CREATE TABLE fresh (id int PRIMARY KEY)")
	d.eventually("fresh is published", func() bool { return d.published(f.cfg.Publication) == "fresh,u" })
	d.exec("INSERT INTO fresh VALUES (1)")
	same(t, shown(r.caughtUp()), "c fresh - {id=1}")
	same(t, r.joins(), "")

	d.exec("BEGIN", "CREATE TABLE filled (id int PRIMARY KEY)", "INSERT INTO filled VALUES (1)", "COMMIT")
	r.joinsBecome("public.filled")
	d.exec("INSERT INTO filled VALUES (2)")
	same(t, shown(r.caughtUp()), "c filled - {id=2}")

	d.exec("BEGIN", "CREATE TABLE emptied (id int PRIMARY KEY)", "INSERT INTO emptied VALUES (1)", "COMMIT", "TRUNCATE emptied")
	r.joinsBecome("public.emptied")
	same(t, r.losses(), "")
	r.stop()
}

// The position from which a table is fed is the end of the transaction that added it: what was committed before is not seen,
// also of a transaction that was open then, and everything after is.
func TestJoinedPosition(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE v (id int PRIMARY KEY)")
	saved := d.start(d.feeder("public.u"), cdc.Position{}).stop()
	other := d.connect(d.name)
	defer other.Close(context.Background())
	if _, err := other.Exec(t.Context(), "BEGIN; INSERT INTO v VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	d.slotIsFree(d.config().Slot)
	f := lookOften(d.feeder("public.u", "public.v"))
	r := d.start(f, saved)
	d.exec("INSERT INTO v VALUES (2)")
	if _, err := other.Exec(t.Context(), "INSERT INTO v VALUES (3); COMMIT"); err != nil {
		t.Fatal(err)
	}
	before := d.text("SELECT pg_current_wal_insert_lsn()::text")
	d.eventually("v is published", func() bool { return d.published(f.cfg.Publication) == "u,v" })
	d.exec("INSERT INTO v VALUES (4)")
	same(t, shown(r.caughtUp()), "c v - {id=4}")
	if len(r.joined) != 1 || r.joined[0].table != "public.v" {
		t.Fatalf("joined: %+v", r.joined)
	}
	at, _ := parseLSN(r.joined[0].at.LSN)
	from, _ := parseLSN(before)
	if at <= from || r.joined[0].at.SystemID == "" || r.joined[0].at.Timeline != 1 {
		t.Errorf("fed from %+v, the rows before ended at %s", r.joined[0].at, before)
	}
	r.stop()

	// The word stands in the log: who starts from before it hears it again, and who starts behind it does not.
	r = d.start(d.feeder("public.u", "public.v"), r.position())
	r.caughtUp()
	same(t, r.joins(), "")
	r.stop()
}

// A table that joins at a start is told of once, after a crash before its word was written down too.
func TestJoinedIsToldAfterACrash(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE v (id int PRIMARY KEY)", "INSERT INTO v VALUES (1)")
	saved := d.start(d.feeder("public.u"), cdc.Position{}, unconfirmed).stop()
	for range 2 { // the first of them saves nothing
		d.slotIsFree(d.config().Slot)
		r := d.start(d.feeder("public.*"), saved, unconfirmed)
		r.caughtUp()
		same(t, r.joins(), "public.v")
		r.stop()
	}
}

// A table that is included again, or that another source of the same publication feeds already, joins: what was committed
// in between was not fed.
func TestJoinedByInclude(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE v (id int PRIMARY KEY)")
	at := d.start(d.feeder("public.*"), cdc.Position{}).stop()
	slot := d.config().Slot
	for _, step := range []struct{ include, joined string }{{"public.u", ""}, {"public.*", "public.v"}, {"public.*", ""}} {
		d.slotIsFree(slot)
		d.exec("INSERT INTO v SELECT coalesce(max(id), 0) + 1 FROM v")
		r := d.start(d.feeder(step.include), at)
		r.caughtUp()
		same(t, r.joins(), step.joined)
		at = r.stop()
	}
	other := d.config("public.u")
	other.Slot += "_other"
	at = d.start(newFeeder(t, other), cdc.Position{}).stop()
	d.slotIsFree(other.Slot)
	other.Include = d.config("public.*").Include
	r := d.start(newFeeder(t, other), at)
	r.caughtUp()
	same(t, r.joins(), "public.v")
	r.stop()
}

// TRUNCATE of several tables, by CASCADE too, is a change of each; the stream goes on.
func TestC6Truncate(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE parent (id serial PRIMARY KEY)", "CREATE TABLE child (id int PRIMARY KEY, p int REFERENCES parent)",
		"CREATE TABLE part (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10)",
		"CREATE TABLE other (id int PRIMARY KEY REFERENCES parent)")
	r := d.start(d.feeder("public.parent", "public.child", "public.part*"), cdc.Position{})
	d.exec("TRUNCATE parent CASCADE", "TRUNCATE child RESTART IDENTITY", "TRUNCATE part", "INSERT INTO parent VALUES (1)")
	changes := r.caughtUp()
	got := strings.Split(shown(changes), "\n")
	if len(got) != 5 || !strings.Contains(shown(changes[:2]), "t parent") || !strings.Contains(shown(changes[:2]), "t child") {
		t.Fatalf("got %q", got)
	}
	if changes[0].Tx != changes[1].Tx || changes[0].Ordinal == changes[1].Ordinal {
		t.Errorf("%+v and %+v are of one statement", changes[0], changes[1])
	}
	same(t, shown(changes[2:]), "t child - -\nt part_1 - -\nc parent - {id=1}")
	r.stop()

	f := d.feeder("public.parent")
	d.exec("DROP PUBLICATION "+f.cfg.Publication, "CREATE PUBLICATION "+f.cfg.Publication+" FOR TABLE parent WITH (publish = 'insert, update, delete')")
	wantFinding(t, d.check(f), cdc.SeverityWarning, "", "does not send truncates")
}

// What Postgres does not log is seen by the next look: every row of the name is gone.
func TestC7PartitionsAndSwaps(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)",
		"CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10)", "CREATE TABLE p_2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
		"CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO p VALUES (1), (11)", "INSERT INTO u VALUES (1)")
	f := lookOften(d.feeder("public.p", "public.p_*", "public.u"))
	r := d.start(f, cdc.Position{})
	r.streaming()

	d.exec("ALTER TABLE p DETACH PARTITION p_1")
	r.becomes("t p_1 - -")
	d.exec("INSERT INTO p_1 VALUES (2)") // it is listed by itself too
	same(t, shown(r.caughtUp()), "c p_1 - {id=2}")
	d.exec("DROP TABLE p_2")
	r.becomes("t p_2 - -")
	d.exec("CREATE TABLE p_3 PARTITION OF p FOR VALUES FROM (20) TO (30)", "INSERT INTO p VALUES (21)")
	same(t, shown(r.caughtUp()), "c p_3 - {id=21}")
	d.exec("ALTER TABLE p ATTACH PARTITION p_1 FOR VALUES FROM (0) TO (10)")
	r.becomes("t p_1 - -")
	same(t, r.joins(), "")

	d.exec("CREATE TABLE u_new (id int PRIMARY KEY)", "INSERT INTO u_new VALUES (2)")
	d.exec("BEGIN", "ALTER TABLE u RENAME TO u_old", "ALTER TABLE u_new RENAME TO u", "COMMIT")
	r.becomes("t u - -")
	r.joinsBecome("public.u")
	d.exec("UPDATE u SET id = 3")
	same(t, shown(r.caughtUp()), "u u {id=2} {id=3}")
	r.stop()
}

// becomes waits for changes, behind whatever came before.
func (r *run) becomes(want string) {
	r.t.Helper()
	var got []*cdc.RowChange
	r.db.eventually("changes: "+want, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		got = append(got, r.changes...)
		r.changes = nil
		return strings.HasSuffix(shown(got), want) // a look in the middle of an ALTER can tell of it twice
	})
}

// Where both tables of a swap are fed, the log itself shows it at once: another relation under a known name.
func TestC7SwapIsSeenInTheLog(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE u_new (id int PRIMARY KEY)")
	r := d.start(d.feeder("public.u*"), cdc.Position{})
	d.exec("INSERT INTO u VALUES (1)", "INSERT INTO u_new VALUES (2)",
		"BEGIN", "ALTER TABLE u RENAME TO u_old", "ALTER TABLE u_new RENAME TO u", "COMMIT", "INSERT INTO u VALUES (3)", "INSERT INTO u_old VALUES (4)")
	same(t, shown(r.caughtUp()), "c u - {id=1}\nc u_new - {id=2}\nt u_new - -\nt u - -\nc u - {id=3}\nt u - -\nc u_old - {id=4}")
	r.stop()
}

// A swap or drop while the feeder is down is found out at the next start.
func TestC7WhileDown(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE v (id int PRIMARY KEY)", "CREATE TABLE w (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
	f := d.feeder("public.*")
	saved := d.start(f, cdc.Position{}).stop()
	d.exec("BEGIN", "ALTER TABLE u RENAME TO x", "ALTER TABLE w RENAME TO u", "ALTER TABLE x RENAME TO w", "COMMIT", "DROP TABLE v", "CREATE TABLE v (id int PRIMARY KEY)")
	d.slotIsFree(f.cfg.Slot)
	r := d.start(f, saved)
	same(t, shown(r.caughtUp()), "t u - -\nt w - -\nt v - -")
	same(t, r.joins(), "") // nothing was written to the new v before it joined
	d.exec("INSERT INTO v VALUES (1)")
	same(t, shown(r.caughtUp()), "c v - {id=1}")
	r.stop()
}

// What happens to the tables of somebody else's publication is told beside the log.
func TestC7ForeignPublication(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)", "CREATE TABLE v (id int PRIMARY KEY)", "CREATE TABLE w (id int PRIMARY KEY)",
		"INSERT INTO v VALUES (1)", "INSERT INTO w VALUES (1)")
	f := lookOften(d.feeder("public.*"))
	d.exec("CREATE PUBLICATION " + f.cfg.Publication + " FOR TABLE u")
	r := d.start(f, cdc.Position{})
	r.streaming()
	d.exec("ALTER PUBLICATION " + f.cfg.Publication + " ADD TABLE v")
	r.joinsBecome("public.v")
	d.exec("CREATE TABLE x (id int PRIMARY KEY)")
	other := d.connect(d.name)
	defer other.Close(context.Background())
	if _, err := other.Exec(t.Context(), "BEGIN; INSERT INTO x VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	d.exec("ALTER PUBLICATION " + f.cfg.Publication + " ADD TABLE x")
	looked := f.Status().At
	d.eventually("it was looked at often", func() bool { return f.Status().At.After(looked.Add(10 * f.timing.look)) })
	same(t, r.joins(), "") // not while a transaction is open that had written to it
	if _, err := other.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	r.joinsBecome("public.x")
	d.exec("DROP TABLE u")
	d.eventually("the loss is told", func() bool { return r.losses() == "public.u" })
	same(t, r.joins(), "")
	r.caughtUp()
	saved := r.stop()

	d.exec("ALTER PUBLICATION " + f.cfg.Publication + " ADD TABLE w")
	d.slotIsFree(f.cfg.Slot)
	r = d.start(f, saved)
	r.joinsBecome("public.w")
	saved = r.stop()
	d.slotIsFree(f.cfg.Slot)
	r = d.start(f, saved) // a word once said is not said again
	r.caughtUp()
	same(t, r.joins(), "")
	r.stop()
}

// Where a partitioned table is published as a whole, a partition that leaves it, or comes with rows, is seen; one that is
// made is none of that.
func TestC7ForeignPublicationViaRoot(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (10)", "INSERT INTO p VALUES (1)")
	f := lookOften(d.feeder("public.p"))
	d.exec("CREATE PUBLICATION " + f.cfg.Publication + " FOR TABLE p WITH (publish_via_partition_root)")
	r := d.start(f, cdc.Position{})
	r.streaming()
	d.exec("CREATE TABLE p_2 PARTITION OF p FOR VALUES FROM (10) TO (20)", "INSERT INTO p VALUES (11)")
	same(t, shown(r.caughtUp()), "c p - {id=11}")
	looked := f.Status().At
	d.eventually("it was looked at often", func() bool { return f.Status().At.After(looked.Add(10 * f.timing.look)) })
	same(t, r.losses(), "")
	d.exec("ALTER TABLE p DETACH PARTITION p_1")
	d.eventually("the loss is told", func() bool { return r.losses() == "public.p" })
	d.exec("ALTER TABLE p ATTACH PARTITION p_1 FOR VALUES FROM (0) TO (10)")
	d.eventually("the loss is told", func() bool { return r.losses() == "public.p" })
	same(t, r.joins(), "")
	r.stop()
}

// Within one look: a table that was dropped and made anew is fed again, and told of; a column that is gone, a table that is
// not found, and one that is not in the publication are warned of.
func TestD4TableMadeAnew(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY, x int)", "CREATE TABLE w (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
	kept := &logs{}
	f := lookOften(newLoggedFeeder(t, d.config("public.u", "public.w"), kept))
	r := d.start(f, cdc.Position{})
	d.exec("INSERT INTO u VALUES (2)")
	same(t, shown(r.caughtUp()), "c u - {id=2 x=NULL}")

	d.exec("DROP TABLE u", "CREATE TABLE u (id int PRIMARY KEY, x int)", "INSERT INTO u VALUES (1)")
	r.becomes("t u - -")
	r.joinsBecome("public.u")
	d.exec("UPDATE u SET x = 1")
	same(t, shown(r.caughtUp()), "u u - {id=1 x=1}")

	d.exec("ALTER TABLE u RENAME COLUMN id TO uid", "DELETE FROM u")
	same(t, shown(r.caughtUp()), "d u {uid=1} -")
	d.eventually("the column is warned of", func() bool { return kept.hold("column is gone", "public.u", "column=id") })

	d.exec("ALTER TABLE w RENAME TO renamed")
	r.becomes("t w - -")
	d.eventually("the table is warned of", func() bool { return kept.hold("no table matches", "public.w") })

	d.exec("ALTER PUBLICATION " + f.cfg.Publication + " DROP TABLE u")
	d.eventually("the table is warned of and added", func() bool {
		return kept.hold("public.u is not in publication") && d.published(f.cfg.Publication) == "renamed,u"
	})
	r.joinsBecome("public.u")
	r.stop()
}

// A publication that is dropped while it is read is a gap within one look, or at the next change, in each version; it is
// not made anew until the gap is accepted.
func TestD4PublicationDropped(t *testing.T) {
	for _, version := range []int{15, 18} {
		t.Run(fmt.Sprint(version), func(t *testing.T) {
			d := newDBOf(t, version)
			d.exec("CREATE TABLE u (id int PRIMARY KEY)")
			f := lookOften(d.feeder("public.u"))
			r := d.start(f, cdc.Position{})
			r.streaming()
			d.exec("INSERT INTO u VALUES (1)")
			same(t, shown(r.caughtUp()), "c u - {id=1}")
			d.exec("DROP PUBLICATION "+f.cfg.Publication, "INSERT INTO u VALUES (2)")
			select {
			case err := <-r.ended:
				t.Log(err)
				wantError(t, err, true, false, f.cfg.Publication, "gap accept")
			case <-time.After(patience):
				t.Fatal("it was not noticed")
			}
			same(t, d.text("SELECT count(*)::text FROM pg_publication"), "0")
			r = d.restarted(f)
			d.exec("INSERT INTO u VALUES (3)")
			same(t, shown(r.caughtUp()), "c u - {id=3}")
			r.stop()
		})
	}
}

// Quoted, reserved and mixed-case names work everywhere, are matched exactly, and a schema is part of a name. A pattern that
// chooses nothing is reported.
func TestD7Names(t *testing.T) {
	d := newDB(t)
	d.exec(`CREATE SCHEMA "My-Schema"`, `CREATE TABLE "My-Schema"."User ""Table"" 1" ("Id" int PRIMARY KEY, "or'der" text)`, `CREATE SCHEMA a`, `CREATE SCHEMA b`,
		`CREATE TABLE a.u (id int PRIMARY KEY)`, `CREATE TABLE b.u (id int PRIMARY KEY)`,
		`CREATE TABLE a."U" (id int PRIMARY KEY)`, `CREATE TABLE a."p.q" (id int PRIMARY KEY) PARTITION BY RANGE (id)`,
		`CREATE TABLE a."p.q 1" PARTITION OF a."p.q" FOR VALUES FROM (0) TO (9)`)
	cfg := d.config(`My-Schema.User "Table" 1`, "a.u", "a.p.q*", "A.U")
	cfg.Publication = `Pub "of" '` + d.name + `'`
	f := newFeeder(t, cfg)
	r := d.start(f, cdc.Position{})
	d.exec(`INSERT INTO "My-Schema"."User ""Table"" 1" VALUES (1, 'x')`, `UPDATE "My-Schema"."User ""Table"" 1" SET "Id" = 2`,
		`INSERT INTO a.u VALUES (1)`, `INSERT INTO b.u VALUES (1)`, `INSERT INTO a."U" VALUES (1)`, `INSERT INTO a."p.q" VALUES (1)`)
	same(t, shown(r.caughtUp()), `c User "Table" 1 - {Id=1 or'der=x}`+"\n"+`u User "Table" 1 {Id=1} {Id=2 or'der=x}`+"\nc u - {id=1}\nc p.q 1 - {id=1}")
	r.stop()
	found := d.check(f)
	wantFinding(t, found, cdc.SeverityWarning, "", `include pattern "A.U" chooses no table`)
	for _, x := range found {
		if x.Severity == cdc.SeverityError {
			t.Error(x)
		}
	}
	cfg.Slot = "Slot"
	if _, err := New(cfg, f.log); err == nil || !strings.Contains(err.Error(), `slot "Slot"`) {
		t.Errorf("a slot's name in upper case: %v", err)
	}
}
