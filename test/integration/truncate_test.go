//go:build integration

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// emptiedMapping is of one database: its pools begin with the kind's name.
const emptiedMapping = `version: 1
team: KIND
pools: [KIND-user, KIND-child, KIND-config, KIND-staging]
mappings:
  - {name: user, table: SCHEMA.users, keys: ["KIND-user:{id}", "KIND-config:all"]}
  - {name: child, table: SCHEMA.children, keys: ["KIND-child:{id}"]}
  - {name: staging, table: SCHEMA.staging, on_truncate: ignore, keys: ["KIND-staging:{id}"]}
`

// TestC6TruncateOnRealServers: a TRUNCATE on each database, and one that Debezium tells of as text, deletes the key that needs no row on
// every copy and leaves a request for each pool on the control topic, whose keys are flushed then; one that is ignored, or of a table that nobody maps, leaves none.
func TestC6TruncateOnRealServers(t *testing.T) {
	t.Parallel()
	var dbs []*harness.Database
	mappings, id := map[string]string{}, harness.Unique()
	file := func(kind, schema string) {
		mappings[kind+".yaml"] = strings.NewReplacer("KIND", kind, "SCHEMA", schema).Replace(emptiedMapping)
	}
	for _, kind := range harness.Kinds {
		db := harness.NewDatabase(t, kind)
		for _, table := range []string{"users", "staging", "others"} {
			db.Do(t, "CREATE TABLE "+table+" (id INT PRIMARY KEY)", "INSERT INTO "+table+" VALUES (1)")
		}
		child := "CREATE TABLE children (id INT PRIMARY KEY)"
		if kind == harness.Postgres {
			child = "CREATE TABLE children (id INT PRIMARY KEY, parent INT REFERENCES users)"
		}
		db.Do(t, child)
		file(string(kind), db.Schema)
		dbs = append(dbs, db)
	}
	file("dbz", "elsewhere")
	nodes := harness.StartNodes(t, 2)
	p := harness.New(t, harness.Options{
		ID: id, Databases: dbs, Record: sink.Record{Shards: shards(nodes)}, Settle: 50 * time.Millisecond, Mappings: mappings,
		Sources: fmt.Sprintf("  - {name: %s-d, topics: {pattern: '%[1]s-dbz(\\..*)?'}, first_start: earliest}\n", id),
	})
	schemaChanges := id + "-dbz"
	p.CreateTopic(schemaChanges, 1)
	fleet := []*harness.Process{p.Feed(), p.Work(), p.Work()}
	p.AwaitFeeding(dbs...)

	var gone, stay []string
	want := map[string][]string{} // pool -> tables
	for _, kind := range []string{"mysql", "mariadb", "postgres", "dbz"} {
		gone = append(gone, kind+"-config:all")
		stay = append(stay, kind+"-user:1", kind+"-child:1", kind+"-staging:1")
	}
	for _, n := range nodes {
		if err := n.SetAll(slices.Concat(gone, stay), "old"); err != nil {
			t.Fatal(err)
		}
	}
	for _, db := range dbs {
		db.Do(t, "TRUNCATE TABLE staging", "TRUNCATE others")
		want[string(db.Kind)+"-user"] = []string{db.Schema + ".users"}
		if db.Kind == harness.Postgres {
			db.Do(t, "TRUNCATE users RESTART IDENTITY CASCADE")
			want["postgres-child"] = []string{"public.children"}
		} else {
			db.Do(t, "/* a job */ truncate `"+db.Schema+"`.users")
		}
	}
	for _, ddl := range []string{"TRUNCATE staging", "/* x */ truncate `users`", "DROP TABLE others"} {
		p.Write(schemaChanges, `{"databaseName":"elsewhere"}`, fmt.Sprintf(
			`{"source":{"connector":"mysql","name":"%s-d","db":"elsewhere","table":null,"snapshot":"false"},"databaseName":"elsewhere","ddl":%q,"tableChanges":[]}`, id, ddl))
	}
	want["dbz-user"] = []string{"elsewhere.users"}
	p.AwaitFed(dbs...)
	p.AwaitDelivered()

	got := map[string][]string{}
	seen := map[string]bool{} // a request of an id that was there before is none
	for _, r := range askedFor(t, p) {
		if r.Action != replay.Flush || r.Cause == nil || r.Cause.What != replay.Truncate || time.Since(r.At) > time.Hour {
			t.Errorf("request %+v, cause %+v", r, r.Cause)
		} else if !seen[r.ID] {
			got[r.Target.Pool] = append(got[r.Target.Pool], r.Cause.Tables...)
		}
		seen[r.ID] = true
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("flushes are asked for of %v, want %v", got, want)
	}
	for id := range seen {
		awaitAnswer(t, p, id)
	}
	for pool := range want {
		gone = append(gone, pool+":1")
	}
	stay = slices.DeleteFunc(stay, func(key string) bool { return slices.Contains(gone, key) })
	for _, n := range nodes {
		left, err := n.Present(slices.Concat(gone, stay))
		if err != nil || !slices.Equal(left, stay) {
			t.Errorf("%s has %q, want %q: %v", n.Addr, left, stay, err)
		}
	}
	if n := p.Parked(); n != 0 {
		t.Errorf("%d records are parked", n)
	}
	for _, f := range fleet {
		f.Terminate()
	}
}

// askedFor are the requests on the control topic, as far as it reaches now.
func askedFor(t *testing.T, p *harness.Pipeline) (all []replay.Request) {
	t.Helper()
	topic := changelog.NamesFor(p.Config.Kafka.TopicPrefix).Control
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for read := int64(0); read < end.Offset; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("%d of %d records were read: %v", read, end.Offset, err)
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			read++
			r, err := replay.DecodeControl(rec.Value)
			if err != nil {
				t.Fatal(err)
			}
			if q, is := r.(replay.Request); is {
				all = append(all, q)
			}
		})
	}
	return all
}

// awaitAnswer waits until a request was done, whole.
func awaitAnswer(t *testing.T, p *harness.Pipeline, id string) {
	t.Helper()
	harness.Await(t, "the end of "+id, func() (bool, string) {
		said, err := p.Said(t.Context())
		if err != nil {
			return false, err.Error()
		}
		for _, s := range said {
			if r, err := replay.DecodeStatus([]byte(s)); err != nil {
				t.Fatalf("%s: %v", s, err)
			} else if end, is := r.(replay.Result); is && end.ID == id {
				if !end.Clean {
					t.Errorf("it ended as %+v", end)
				}
				return true, ""
			}
		}
		return false, strings.Join(said[max(0, len(said)-3):], "\n")
	})
}
