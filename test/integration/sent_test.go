//go:build integration

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

const sentMapping = `version: 1
team: web
pools: [home]
underivable: [feed]
mappings:
  - name: outbox
    tables: [MYSQL.cache_outbox, public.cache_outbox]
    keys: [{raw: "{cache_key}", when: op == 'insert'}]
`

// TestKeysThatWritersSend: keys in rows of an outbox and in logical messages are deleted on every copy when they are committed,
// those of a transaction that is rolled back are not, and those that may not be sent are parked, while what follows goes on.
func TestKeysThatWritersSend(t *testing.T) {
	t.Parallel()
	my, pg := harness.NewDatabase(t, harness.MySQL), harness.NewDatabase(t, harness.Postgres)
	my.Do(t, "CREATE TABLE cache_outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, cache_key VARCHAR(300))")
	pg.Do(t, "CREATE TABLE cache_outbox (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, cache_key TEXT)")
	nodes := harness.StartNodes(t, 2)
	p := harness.New(t, harness.Options{
		Databases: []*harness.Database{my, pg}, Record: sink.Record{Shards: shards(nodes)}, Settle: 100 * time.Millisecond,
		Mappings: map[string]string{
			"web.yaml":   strings.Replace(sentMapping, "MYSQL", my.Schema, 1),
			"users.yaml": "version: 1\nteam: profiles\npools: [user]\nmappings: [{name: u, table: nowhere.users, keys: ['user:{id}']}]\n",
		},
	})
	fleet := []*harness.Process{p.Feed(), p.Work(), p.Work()}
	p.AwaitFeeding(my, pg)

	gone := []string{"feed:m1", "home:m2", "feed:m9", "feed:p1", "home:p2", "feed:l1", "user:l2", "feed:l7", "feed:p9", "feed:l9"}
	stay := []string{"user:m3", "nobody:m4", "feed:m6", "user:p3", "nobody:p4", "feed:p6", "nobody:l3", "feed:l5", "feed:l6"}
	for _, n := range nodes {
		if err := n.SetAll(append(slices.Clone(gone), stay...), "old"); err != nil {
			t.Fatal(err)
		}
	}
	for db, m := range map[*harness.Database]string{my: "m", pg: "p"} {
		row := func(key string) string { return "INSERT INTO cache_outbox (cache_key) VALUES ('" + key + "')" }
		db.Do(t, row("feed:"+m+"1"), row("home:"+m+"2"), row("user:"+m+"3"), row("nobody:"+m+"4"), row("feed:"+m+" 5"), row("feed:"+strings.Repeat(m, 260)))
		rollBack(t, db, row("feed:"+m+"6"))
		db.Do(t, row("feed:"+m+"9"))
	}
	message := func(transactional bool, prefix, content string) string {
		return fmt.Sprintf("SELECT pg_logical_emit_message(%t, '%s', %s)", transactional, prefix, content)
	}
	pg.Do(t, message(true, "cache", "'feed:l1'"), message(true, "cache", "'user:l2'"), message(true, "cache", "'nobody:l3'"),
		message(true, "cache", `'\xff0001'::bytea`), message(true, "cache", `convert_to('feed:', 'UTF8') || '\x00'::bytea`), message(true, "others", "'feed:l5'"))
	rollBack(t, pg, message(true, "cache", "'feed:l6'"))
	rollBack(t, pg, message(false, "cache", "'feed:l7'")) // it belongs to no transaction
	pg.Do(t, message(true, "cache", "'feed:l9'"))
	p.AwaitFed(my, pg)
	p.AwaitDelivered()
	check := func(gone, stay []string) {
		t.Helper()
		for _, n := range nodes {
			left, err := n.Present(append(slices.Clone(gone), stay...))
			if err != nil || !slices.Equal(left, stay) {
				t.Errorf("%s has %q, want %q: %v", n.Addr, left, stay, err)
			}
		}
	}
	check(gone, stay)

	var want []string
	for _, schema := range []string{my.Schema, pg.Schema} {
		const of = ", mapping outbox (web.yaml:8), template {cache_key}: "
		nobody := "table " + schema + ".cache_outbox, column cache_key" + of + "the key's pool is not one of the file's"
		want = append(want, nobody, nobody, "table "+schema+".cache_outbox"+of+"a space or a control character", "table "+schema+".cache_outbox"+of+"over 250 bytes with its copy suffix")
	}
	const sent = "a logical message with the prefix cache and the key "
	want = append(want, sent+`"nobody:l3": the key's pool is not one of any file's`, sent+`"\xff\x00\x01": the key's pool is not one of any file's`,
		sent+`"feed:\x00": a space or a control character`)
	slices.Sort(want)
	parked := func() {
		t.Helper()
		if got := parkedReasons(t, p); !slices.Equal(got, want) {
			t.Errorf("parked are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	parked()

	// An outbox that is swept deletes nothing more.
	if err := nodes[0].SetAll(gone, "new"); err != nil {
		t.Fatal(err)
	}
	if err := nodes[1].SetAll(gone, "new"); err != nil {
		t.Fatal(err)
	}
	for _, db := range []*harness.Database{my, pg} {
		db.Do(t, "DELETE FROM cache_outbox")
	}
	p.AwaitFed(my, pg)
	p.AwaitDelivered()
	check(nil, append(slices.Clone(gone), stay...))
	parked()
	for _, f := range fleet {
		f.Terminate()
	}
}

func rollBack(t *testing.T, db *harness.Database, statement string) {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
}

// parkedReasons says why each record that is parked now was. One that was parked twice, since a partition moved, counts once.
func parkedReasons(t *testing.T, p *harness.Pipeline) (reasons []string) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.ConsumeTopics(changelog.NamesFor(p.Config.Kafka.TopicPrefix).DeadLetter))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	n, seen := p.Parked(), map[string]bool{}
	for read := int64(0); read < n; {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d parked records were read of %d: %q", read, n, reasons)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			read++
			headers := map[string]string{}
			for _, h := range r.Headers {
				headers[h.Key] = string(h.Value)
			}
			place := strings.Join([]string{headers[changelog.HeaderTopic], headers[changelog.HeaderPartition], headers[changelog.HeaderOffset]}, "/")
			if !seen[place] {
				seen[place] = true
				reasons = append(reasons, strings.ReplaceAll(headers[changelog.HeaderReason], p.Dir+"/mappings.d/", ""))
			}
		})
	}
	slices.Sort(reasons)
	return reasons
}
