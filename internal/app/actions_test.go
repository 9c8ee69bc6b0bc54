package app

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/obs"
	"invalidator/sink/memcachetest"
)

const actionsMapping = `version: 1
team: web
pools: [user, page, home]
underivable: [feed]
readers: meta
mappings:
  - name: user
    table: shop.users
    keys:
      - user:{id}
      - {key: "page:{id}", action: stale, stale_for: 35s}
      - {key: "home:{id}", action: refresh}
      - {key: "user:shadow:{id}", shadow: true}
`

// Each action from the topic to the nodes and to the refresh topic, and a key that a writer sent.
func TestActionsEndToEnd(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, changelog.ChangeTopic("shop", "shop", "users"), changelog.MessageTopic("shop")))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	node := memcachetest.Start(t)
	for _, key := range []string{"user:1", "page:1", "home:1", "user:shadow:1", "feed:42"} {
		node.Set(key, "old")
	}
	dir := t.TempDir()
	write(t, dir, "ring.json", fmt.Sprintf(`{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[]}]}`, node.Addr()))
	c := parse(t, dir, fmt.Sprintf("kafka: {brokers: [%q]}\ncache: {settle: 200ms, ring: {file: ring.json}}\nsources: [{name: shop, type: postgres, hosts: [a:1], database: shop, user: u, include: [shop.*], first_start: earliest}]\n", cluster.ListenAddrs()[0]))
	write(t, dir, "mappings.d/web.yaml", actionsMapping)
	w := &Worker{Config: c, Log: quiet, Registry: obs.NewRegistry()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()

	cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...), kgo.ConsumeTopics(changelog.NamesFor("").Refresh), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	columns := cdc.NewColumns([]cdc.Column{{Name: "id", Type: "bigint", Key: true}})
	row := cdc.Row{{Kind: cdc.Integer, S: "1"}}
	for topic, change := range map[string]*cdc.RowChange{
		changelog.ChangeTopic("shop", "shop", "users"): {TableID: cdc.TableID{Database: "shop", Schema: "shop", Table: "users"}, Op: cdc.Update, Columns: columns, Before: row, After: row},
		changelog.MessageTopic("shop"):                 {Op: cdc.Message, Prefix: "cache", Content: []byte("feed:42")},
	} {
		change.Source, change.Connector, change.CommitTime = "shop", cdc.Postgres, time.Now()
		key, value, err := envelope.Encode(change, envelope.Options{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Key: key, Value: value}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}

	limit, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	fetches := cl.PollRecords(limit, 1)
	if fetches.NumRecords() == 0 {
		t.Fatalf("no refresh request came: %v", fetches.Err())
	}
	var got changelog.RefreshRequest
	if err := json.Unmarshal(fetches.Records()[0].Value, &got); err != nil {
		t.Fatal(err)
	}
	if got.V != 1 || got.Key != "home:1" || got.Table != "shop.users" || string(got.Row) != `{"id":1}` || got.Reason != "update" || time.Since(got.Committed) > time.Minute {
		t.Errorf("the request: %+v", got)
	}
	waitFor(t, "the writer's key to be deleted", func() bool { _, there := node.Get("feed:42"); return !there })
	for key, want := range map[string]string{"user:1": `EN`, "home:1": `EN`, "page:1": `HD s3 t3\d X W`, "user:shadow:1": `HD s3 t-1`} {
		if got := mg(t, node.Addr(), key); !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("%s: the node says %q, want %q", key, got, want)
		}
	}
}

// mg asks a node for a key's size and time, and shows what flags it has.
func mg(t *testing.T, addr, key string) string {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(conn, "mg %s s t\r\n", key)
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}
