package app

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/obs"
	"invalidator/sink/memcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// parse loads a configuration from text; its files lie in dir.
func parse(t *testing.T, dir, text string) *config.Config {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "mappings.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(filepath.Join(dir, "c.yaml"), []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A source that we feed is read from every topic that its feeder makes; one that Debezium feeds from those that the pattern
// matches whole, whatever the order of its alternatives.
func TestTopicsOf(t *testing.T) {
	c := parse(t, t.TempDir(), `
sources:
  - {name: shop, type: mysql, hosts: [a:1], user: u, include: [shop.*]}
  - {name: orders, topics: {pattern: 'dbz|dbz\.orders|dbz\.orders\..*'}, first_start: latest}
`)
	sources, starts, err := topicsOf(c)
	if err != nil {
		t.Fatal(err)
	}
	for topic, want := range map[string]string{
		"shop.shop.users": "shop", "shop.my.shop.users.v2": "shop", changelog.ChangeTopic("shop", strings.Repeat("店", 64), "u"): "shop",
		"dbz": "orders", "dbz.orders": "orders", "dbz.orders.public.o": "orders", "xdbz.orders": "", "other.shop.users": "",
	} {
		got := ""
		for _, s := range sources {
			if s.Pattern.MatchString(topic) {
				got += s.Name
			}
		}
		if got != want {
			t.Errorf("topic %s is read as source %q, want %q", topic, got, want)
		}
	}
	if starts[0].At != "earliest" || starts[1].At != "latest" || sources[1].Decode.Format != envelope.Format("debezium") {
		t.Errorf("starts %v, format %q", starts, sources[1].Decode.Format)
	}
}

// A worker that read our own topics would park what it cannot read, read that, and park it again.
func TestOwnTopicsAreNoChangeTopics(t *testing.T) {
	for name, text := range map[string]string{
		"everything": "sources: [{name: all, topics: {pattern: '.*'}, first_start: latest}]",
		"inside":     "kafka: {topic_prefix: shop.own}\nsources: [{name: shop, type: mysql, hosts: [a:1], user: u, include: [a.b]}]",
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := topicsOf(parse(t, t.TempDir(), text)); err == nil || !strings.Contains(err.Error(), "our own topic") {
				t.Errorf("got %v", err)
			}
		})
	}
	if _, _, err := topicsOf(parse(t, t.TempDir(), "sources: [{name: invalidator, type: mysql, hosts: [a:1], user: u, include: [a.b]}]")); err != nil {
		t.Errorf("a source may be called as our own topics are: %v", err)
	}
}

func TestOptionsFromConfig(t *testing.T) {
	c := parse(t, t.TempDir(), `
kafka: {brokers: [k:1], sasl: {mechanism: plain, user: u, password: p}, topic_prefix: inv, partitions: 3, replication: 2}
cache: {max_ttl: 2h, protocol: classic, node: {connections: 5, queue: 1MiB, timeout: 3s, max_lag: 4s, user: u, password: p, not_found: verify}}
replay: {window: 5m}
`)
	said := cmp.Comparer(func(a, b func() string) bool { return a() == b() }) // of passwords
	k, err := kafkaOptions(c.Kafka, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (changelog.Options{Brokers: []string{"k:1"}, SASL: changelog.SASL{Mechanism: changelog.Plain, User: "u", Password: func() string { return "p" }}}); !cmp.Equal(k, want, said) {
		t.Error(cmp.Diff(want, k, said))
	}
	nodes, err := memcacheOptions(c)
	if err != nil {
		t.Fatal(err)
	}
	if want := (memcache.Options{
		Protocol: memcache.Classic, ConnsPerNode: 5, QueueBytes: 1 << 20, Timeout: 3 * time.Second, MaxLag: 4 * time.Second, Watch: 5*time.Minute + watchBeyond,
		User: "u", Password: func() string { return "p" }, VerifyNotFound: true,
	}); !cmp.Equal(nodes, want, said) {
		t.Error(cmp.Diff(want, nodes, said))
	}
	c.Cache.Node.TLS = &config.TLS{ServerName: "mc"}
	if nodes, err := memcacheOptions(c); err != nil || nodes.TLS == nil || nodes.TLS.ServerName != "mc" {
		t.Errorf("TLS: %+v, %v", nodes.TLS, err)
	}
	c.Cache.Node.TLS = &config.TLS{CA: "/no/such/file"}
	if _, err := memcacheOptions(c); err == nil || !strings.Contains(err.Error(), "cache.node.tls.ca") {
		t.Errorf("a missing CA of nodes: %v", err)
	}
	if want := (changelog.Settings{Prefix: "inv", Partitions: 3, Replication: 2, MaxTTL: 2 * time.Hour}); topicSettings(c) != want {
		t.Error(cmp.Diff(want, topicSettings(c)))
	}
	if _, err := kafkaOptions(config.Kafka{}, nil); err == nil || !strings.Contains(err.Error(), "kafka.brokers") {
		t.Errorf("no broker: %v", err)
	}
	if _, err := kafkaOptions(config.Kafka{Brokers: []string{"k:1"}, TLS: &config.TLS{CA: "/no/such/file"}}, nil); err == nil || !strings.Contains(err.Error(), "kafka.tls.ca") {
		t.Errorf("a missing CA: %v", err)
	}
}

// SIGTERM ends a worker at once and without an error while it waits for what is away; a wrong configuration ends it by itself.
func TestWorkerEnds(t *testing.T) {
	silent := listen(t) // takes connections and says nothing
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	broker := cluster.ListenAddrs()[0]
	const source = "sources: [{name: shop, type: mysql, hosts: [a:1], user: u, include: [a.b]}]\n"
	ring := `{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":"127.0.0.1:1","zone":"a"},"replicas":[]}]}`
	for _, tc := range []struct{ name, text, want string }{
		{"etcd is away", source + "kafka: {brokers: ['127.0.0.1:1']}\ncache: {ring: {etcd: {endpoints: ['127.0.0.1:1']}}}", ""},
		{"etcd hangs", source + "kafka: {brokers: ['127.0.0.1:1']}\ncache: {ring: {etcd: {endpoints: ['" + silent + "']}}}", ""},
		{"kafka is away", source + "kafka: {brokers: ['127.0.0.1:1']}\ncache: {ring: {file: ring.json}}", ""},
		{"kafka hangs", source + "kafka: {brokers: ['" + silent + "']}\ncache: {ring: {file: ring.json}}", ""},
		{"no ring file, and none that was last good", source + "kafka: {brokers: ['" + broker + "']}\ncache: {ring: {file: none.json}}", "none.json"},
		{"no ring file, and a broker that may have the last good one is away", source + "kafka: {brokers: ['127.0.0.1:1']}\ncache: {ring: {file: none.json}}", ""},
		{"no source", "kafka: {brokers: ['127.0.0.1:1']}\ncache: {ring: {file: ring.json}}", "no source is configured"},
		{"no broker", source + "cache: {ring: {file: ring.json}}", "no broker is named"},
		{"no ring", source + "kafka: {brokers: ['127.0.0.1:1']}", "no ring is configured"},
		{"admin port taken", source + "kafka: {brokers: ['127.0.0.1:1']}\ncache: {ring: {file: ring.json}}\nadmin: {listen: '" + silent + "'}", "admin.listen"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := parse(t, dir, tc.text)
			if err := os.WriteFile(filepath.Join(dir, "ring.json"), []byte(ring), 0o644); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- (&Worker{Config: c, Log: quiet, Registry: obs.NewRegistry()}).Run(ctx) }()
			if tc.want == "" {
				select {
				case err := <-done:
					t.Fatalf("ended by itself: %v", err)
				case <-time.After(500 * time.Millisecond):
				}
				cancel()
			}
			select {
			case err := <-done:
				if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
					t.Errorf("got %v, want %q", err, tc.want)
				}
			case <-time.After(5 * time.Second):
				t.Error("did not end within 5 s")
			}
		})
	}
}

// listen takes connections and never answers.
func listen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}
