package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/obs"
	"invalidator/sink/memcachetest"
)

// A worker ends within ten seconds of SIGTERM and without an error, whatever is away by then: it finishes what it can and commits it.
func TestWorkerDrains(t *testing.T) {
	for _, tc := range []struct {
		name     string
		deadNode bool // takes connections and never answers
		noKafka  bool // is gone when the signal comes
		max      time.Duration
	}{
		{"everything answers", false, false, 4 * time.Second},
		{"a node is dead", true, false, 8 * time.Second},
		{"kafka is gone", false, true, 9 * time.Second},
		{"both", true, true, 9500 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "dbz.shop.users"))
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			node := memcachetest.Start(t)
			node.Set("user:1", "stale")
			addr := node.Addr()
			if tc.deadNode {
				addr = listen(t)
			}
			dir := t.TempDir()
			write(t, dir, "ring.json", fmt.Sprintf(`{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[]}]}`, addr))
			c := parse(t, dir, fmt.Sprintf("kafka: {brokers: [%q]}\ncache: {ring: {file: ring.json}}\nsources: [{name: users, topics: {pattern: 'dbz\\..*'}, first_start: earliest}]\n", cluster.ListenAddrs()[0]))
			write(t, dir, "mappings.d/users.yaml", usersMapping)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			w := &Worker{Config: c, Log: quiet, Registry: obs.NewRegistry()}
			go func() { done <- w.Run(ctx) }()

			cl, err := kgo.NewClient(kgo.SeedBrokers(cluster.ListenAddrs()...))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			const change = `{"before":null,"after":{"id":1},"source":{"connector":"mysql","name":"users","db":"shop","table":"users"},"op":"c"}`
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "dbz.shop.users", Key: []byte(`{"id":1}`), Value: []byte(change)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the change to be issued", func() bool { return counter(t, w, "invalidator_worker_copies_total") > 0 })
			if tc.noKafka {
				cluster.Close()
			}
			began := time.Now()
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > tc.max {
				t.Errorf("took %s, want at most %s", took, tc.max)
			} else {
				t.Logf("took %s", took)
			}
			if _, stale := node.Get("user:1"); stale != tc.deadNode {
				t.Errorf("the key is still there: %v", stale)
			}
		})
	}
}

const usersMapping = "version: 1\nteam: profiles\ncontact: '#p'\npools: [user]\nmappings:\n  - name: user\n    table: shop.users\n    keys: ['user:{id}']\n"

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second)
	for !cond() {
		select {
		case <-limit:
			t.Fatalf("waited 20 s for %s", what)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// counter is a counter's value in the worker's registry.
func counter(t *testing.T, w *Worker, name string) float64 {
	t.Helper()
	families, err := w.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}
