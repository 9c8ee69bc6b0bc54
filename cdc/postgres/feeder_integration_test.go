//go:build integration

package postgres

import (
	"testing"

	"invalidator/cdc"
)

// Changes of committed transactions come with their images; what was rolled back, or is not included, does not.
func TestStream(t *testing.T) {
	for _, server := range []string{"POSTGRES", "POSTGRES17"} {
		t.Run(server, func(t *testing.T) {
			d := newDBOn(t, server)
			d.exec(
				"CREATE TABLE users (id bigint PRIMARY KEY, email text)",
				"CREATE TABLE other (id int PRIMARY KEY)")
			r := d.start(d.feeder("public.users"), cdc.Position{})
			d.exec(
				"INSERT INTO users VALUES (1, 'a@x.test'), (2, NULL)",
				"BEGIN", "INSERT INTO users VALUES (3, 'c@x.test')", "ROLLBACK",
				"INSERT INTO other VALUES (1)",
				"UPDATE users SET email = 'b@x.test' WHERE id = 1",
				"BEGIN", "SAVEPOINT s", "INSERT INTO users VALUES (4, 'd')", "ROLLBACK TO s", "UPDATE users SET id = 43 WHERE id = 2", "COMMIT",
				"DELETE FROM users WHERE id = 1")
			changes := r.caughtUp()
			same(t, shown(changes), `c users - {id=1 email=a@x.test}
c users - {id=2 email=NULL}
u users - {id=1 email=b@x.test}
u users {id=2} {id=43 email=NULL}
d users {id=1} -`)
			first, second := changes[0], changes[1]
			if first.Ordinal != 0 || second.Ordinal != 1 || first.Tx != second.Tx || first.Tx == changes[2].Tx {
				t.Errorf("transactions and ordinals: %v %v, %v %v", first.Tx, first.Ordinal, second.Tx, second.Ordinal)
			}
			if first.Source != "t" || first.Database != d.name || first.Schema != "public" || first.CommitTime.IsZero() {
				t.Errorf("source %q, table %+v, commit time %v", first.Source, first.TableID, first.CommitTime)
			}
			r.stop()
		})
	}
}

// A Run goes on where the last one's saved position ended: nothing is lost, and nothing that was saved comes again.
func TestResume(t *testing.T) {
	d := newDB(t)
	d.exec("CREATE TABLE u (id int PRIMARY KEY)")
	f := d.feeder("public.u")
	r := d.start(f, cdc.Position{})
	d.exec("INSERT INTO u VALUES (1)", "INSERT INTO u VALUES (2)")
	same(t, shown(r.caughtUp()), "c u - {id=1}\nc u - {id=2}")
	saved := r.stop()
	d.exec("INSERT INTO u VALUES (3)")
	r = d.start(f, saved)
	d.exec("INSERT INTO u VALUES (4)")
	same(t, shown(r.caughtUp()), "c u - {id=3}\nc u - {id=4}")
	if r.started != saved {
		t.Errorf("started at %+v, saved was %+v", r.started, saved)
	}
	r.stop()
}
