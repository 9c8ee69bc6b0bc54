//go:build integration

package feed

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/replay"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// gapLine is a line of `invalidator gap list --json`.
type gapLine struct {
	State, ID, Source, Why, Undone string
	Stops                          bool
	Pools                          []string
	Passed                         struct {
		Requests []string
		Reissued int64
	}
}

// gaps are what `invalidator gap list` says.
func gaps(t *testing.T, p *harness.Pipeline) (all []gapLine) {
	t.Helper()
	list := harness.Start(t, "gap-list", "--log-level", "error", "gap", "list", "--json", "--config", p.File)
	if code := list.Wait(); code != 0 {
		t.Fatalf("gap list: exit %d\n%s", code, list.Log())
	}
	for line := range strings.Lines(list.Log()) {
		var g gapLine
		if err := json.Unmarshal([]byte(line), &g); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, g)
	}
	return all
}

func awaitGap(t *testing.T, p *harness.Pipeline, source, state string) (found gapLine) {
	t.Helper()
	harness.Await(t, "an "+state+" gap of "+source, func() (bool, string) {
		all := gaps(t, p)
		for _, g := range all {
			if g.Source == source && g.State == state {
				found = g
			}
		}
		return found.ID != "", fmt.Sprintf("%+v", all)
	})
	return found
}

func accept(t *testing.T, p *harness.Pipeline, args ...string) string {
	t.Helper()
	cmd := harness.Start(t, "gap-accept", append([]string{"gap", "accept", "--config", p.File, "--by", "ann"}, args...)...)
	if code := cmd.Wait(); code != 0 {
		t.Fatalf("gap accept: exit %d\n%s", code, cmd.Log())
	}
	return cmd.Log()
}

// flushes are the requests for a flush on the control topic, as "pool by whom".
func flushes(t *testing.T, p *harness.Pipeline) map[string]string {
	t.Helper()
	all := map[string]string{}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err := changelog.ReadTopic(ctx, changelog.Options{Brokers: []string{p.Kafka}}, changelog.NamesFor(p.Config.Kafka.TopicPrefix).Control,
		time.UnixMilli(0), false, func(r changelog.TopicRecord) error {
			rec, err := replay.DecodeControl(r.Value)
			if q, ok := rec.(replay.Request); ok {
				all[q.ID] = q.Target.Pool + " by " + q.By
			}
			return err
		})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// ready is what /-/ready says.
func ready(t *testing.T, addr string) (int, string) {
	t.Helper()
	resp, err := http.Get("http://" + addr + "/-/ready")
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var body strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := resp.Body.Read(buf)
		body.Write(buf[:n])
		if err != nil {
			return resp.StatusCode, body.String()
		}
	}
}

// dropSlot takes away what a Postgres source reads from.
func dropSlot(t *testing.T, d *harness.Database) {
	t.Helper()
	db, err := sql.Open("pgx", fmt.Sprintf("postgres://cdc:cdc-password@%s/%s", services.Addr("POSTGRES"), d.Name))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("SELECT pg_drop_replication_slot('inv_" + d.Name + "')"); err != nil {
		t.Fatalf("dropping the slot: %v", err)
	}
}

// A slot that somebody dropped: the source stands, loud, until a person accepts it, and goes on behind it. The other source
// is not held up.
func TestAGapStandsUntilItIsAccepted(t *testing.T) {
	var dbs []*harness.Database
	for _, kind := range []harness.Kind{harness.MySQL, harness.Postgres} {
		d := harness.NewDatabase(t, kind)
		d.Do(t, "CREATE TABLE items (id int PRIMARY KEY, note varchar(20))")
		dbs = append(dbs, d)
	}
	d := dbs[1]
	admin := harness.FreeAddr(t)
	p := pipelineOf(t, harness.Options{Databases: dbs, Sources: "admin: {listen: " + admin + "}\n"})
	source := p.Source(harness.Postgres)
	feeder := p.Feed()
	p.AwaitFeeding(dbs...)
	topics := readTopics(t, p)
	insert := func(id int) {
		t.Helper()
		for _, d := range dbs {
			d.Do(t, fmt.Sprintf("INSERT INTO items VALUES (%d, 'x')", id))
		}
	}
	insert(1)
	p.AwaitFed(dbs...)
	if code, text := ready(t, admin); code != http.StatusOK {
		t.Errorf("health %d: %s", code, text)
	}
	feeder.Terminate()
	dropSlot(t, d)
	insert(2)
	feeder = p.Feed()
	g := awaitGap(t, p, source, "open")
	if !g.Stops || len(g.Pools) != 1 || g.Pools[0] != "item" || !strings.HasPrefix(g.ID, source+"/") {
		t.Errorf("%+v", g)
	}
	harness.Await(t, "the gap in health and log", func() (bool, string) {
		code, text := ready(t, admin)
		log := feeder.Log()
		return code == http.StatusServiceUnavailable && strings.Contains(text, "gap accept "+g.ID) && strings.Contains(log, "gap accept "+g.ID), text + log
	})
	p.AwaitFed(dbs[0])

	if text := accept(t, p, g.ID); !strings.Contains(text, "a flush is asked for of item") {
		t.Error(text)
	}
	closed := awaitGap(t, p, source, "closed")
	if asked := flushes(t, p); len(asked) != 1 || len(closed.Passed.Requests) != 1 || asked[closed.Passed.Requests[0]] != "item by ann" {
		t.Errorf("asked for %v: %+v", asked, closed)
	}
	accept(t, p, g.ID) // twice is harmless
	insert(3)
	p.AwaitFed(dbs...)
	seen := map[string]bool{}
	for _, r := range topics.all(t) {
		c := parse(t, r)
		seen[c.Source.Name+"/"+number(c.After["id"])] = true
	}
	for _, want := range []string{p.Source(harness.MySQL) + "/1", p.Source(harness.MySQL) + "/2", p.Source(harness.MySQL) + "/3", source + "/1", source + "/3"} {
		if !seen[want] {
			t.Errorf("%s is not on a topic", want)
		}
	}
	harness.Await(t, "health after the gap", func() (bool, string) {
		code, text := ready(t, admin)
		return code == http.StatusOK, text
	})
	feeder.Terminate()
}

// A server that lacks our last transactions, under on_gap: flush: their records are written again to their place, the flush is
// asked for, and the source goes on, with nobody's help.
func TestUndoneTransactionsAreWrittenAgain(t *testing.T) {
	d := harness.NewDatabase(t, harness.MySQL)
	d.Do(t, "CREATE TABLE items (id int PRIMARY KEY, note varchar(20))")
	p := pipelineOf(t, harness.Options{Databases: []*harness.Database{d}, OnGap: "flush"})
	source := p.Source(harness.MySQL)
	feeder := p.Feed()
	p.AwaitFeeding(d)
	topics := readTopics(t, p)
	d.Do(t, "INSERT INTO items VALUES (1, 'x')")
	p.AwaitFed(d)
	feeder.Terminate()

	// As if another server had made transactions 1 to 3, of which we have read one that wrote a row.
	const gone = "deadbeef-0000-4000-8000-000000000001"
	lost := topics.all(t)[0]
	c := struct {
		Source struct{ GTID string }
	}{}
	if err := json.Unmarshal(lost.Value, &c); err != nil || c.Source.GTID == "" {
		t.Fatalf("%v: %s", err, lost.Value)
	}
	value := strings.ReplaceAll(string(lost.Value), c.Source.GTID, gone+":2")
	p.Write(lost.Topic, `{"id":77}`, value)
	store, err := changelog.OpenState(changelog.Options{Brokers: []string{p.Kafka}}, changelog.NamesFor(p.Config.Kafka.TopicPrefix).State)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	state, err := store.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	saved, err := state.LoadPosition(source)
	if err != nil {
		t.Fatal(err)
	}
	at := cdc.Position{GTIDSet: saved.Position.GTIDSet + "," + gone + ":1-3", ServerUUID: gone}
	if err := store.PutPosition(t.Context(), source, saved.Generation, at); err != nil {
		t.Fatal(err)
	}

	feeder = p.Feed()
	closed := awaitGap(t, p, source, "closed")
	if !strings.Contains(closed.Undone, gone) || closed.Passed.Reissued != 1 || len(closed.Passed.Requests) != 1 {
		t.Errorf("%+v", closed)
	}
	d.Do(t, "INSERT INTO items VALUES (2, 'x')")
	p.AwaitFed(d)
	var again []*kgo.Record
	seen := map[string]bool{}
	for _, r := range topics.all(t) {
		seen[string(r.Key)] = true
		if string(r.Key) == `{"id":77}` {
			again = append(again, r)
		}
	}
	if len(again) != 2 || again[0].Partition != again[1].Partition || string(again[1].Value) != value || !seen[`{"id":2}`] {
		t.Errorf("%d times: %v", len(again), again)
	}
	feeder.Terminate()
}
