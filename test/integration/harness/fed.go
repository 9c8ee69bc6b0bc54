package harness

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/jackc/pglogrepl"

	"invalidator/cdc"
	"invalidator/internal/changelog"
)

// AwaitFeeding waits until every source of these databases has a saved position: what is committed from now on is fed.
func (p *Pipeline) AwaitFeeding(dbs ...*Database) {
	p.t.Helper()
	p.awaitPositions("to be fed", dbs, func(*Database, cdc.Position) error { return nil })
}

// AwaitFed waits until the feeders have saved a position behind all that is committed now: the brokers have it then.
func (p *Pipeline) AwaitFed(dbs ...*Database) {
	p.t.Helper()
	ends := map[*Database]string{}
	for _, d := range dbs {
		ends[d] = d.end(p.t)
	}
	p.awaitPositions("to be fed up to now", dbs, func(d *Database, at cdc.Position) error { return d.reached(at, ends[d]) })
}

func (p *Pipeline) awaitPositions(what string, dbs []*Database, reached func(*Database, cdc.Position) error) {
	p.t.Helper()
	names := changelog.NamesFor(p.Config.Kafka.TopicPrefix)
	store, err := changelog.OpenState(changelog.Options{Brokers: []string{p.Kafka}}, names.State)
	if err != nil {
		p.t.Fatal(err)
	}
	defer store.Close()
	AwaitProgress(p.t, "sources "+what, func() (bool, string) {
		ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
		defer cancel()
		state, err := store.Load(ctx)
		if err != nil {
			return false, err.Error()
		}
		for _, d := range dbs {
			saved, err := state.LoadPosition(p.Source(d.Kind))
			if err != nil {
				p.t.Fatal(err)
			}
			if !saved.Found {
				return false, fmt.Sprintf("%s has no position yet", p.Source(d.Kind))
			}
			if err := reached(d, saved.Position); err != nil {
				return false, fmt.Sprintf("%s: %v", p.Source(d.Kind), err)
			}
		}
		return true, ""
	})
}

// end is the end of the server's log.
func (d *Database) end(t testing.TB) string {
	t.Helper()
	ask := map[Kind]string{
		MySQL:    "SELECT @@global.gtid_executed",
		MariaDB:  "SELECT @@global.gtid_binlog_pos",
		Postgres: "SELECT pg_current_wal_lsn()::text",
	}
	var end string
	Await(t, string(d.Kind)+" to say where its log ends", func() (bool, string) { // it may just have been restarted
		err := d.QueryRow(ask[d.Kind]).Scan(&end)
		return err == nil, fmt.Sprint(err)
	})
	return end
}

// reached says why a position does not lie behind end yet.
func (d *Database) reached(at cdc.Position, end string) error {
	if d.Kind == Postgres {
		have, err := pglogrepl.ParseLSN(at.LSN)
		if err != nil {
			return err
		}
		want, err := pglogrepl.ParseLSN(end)
		if err != nil {
			return err
		}
		if have < want {
			return fmt.Errorf("at %s of %s", have, want)
		}
		return nil
	}
	flavor := map[Kind]string{MySQL: mysql.MySQLFlavor, MariaDB: mysql.MariaDBFlavor}[d.Kind]
	have, err := mysql.ParseGTIDSet(flavor, at.GTIDSet)
	if err != nil {
		return err
	}
	want, err := mysql.ParseGTIDSet(flavor, end)
	if err != nil {
		return err
	}
	if !have.Contain(want) {
		return fmt.Errorf("at %s of %s", have, want)
	}
	return nil
}
