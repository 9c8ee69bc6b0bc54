//go:build integration

package feed

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/gap"
	"invalidator/test/integration/services"
)

// The real broker: a table is fed, the process stops and starts, and every row is there once; a row over the topic's limit
// comes slim.
func TestRealFeed(t *testing.T) {
	prefix := fmt.Sprintf("t%d", time.Now().UnixNano())
	kafka := changelog.Options{Brokers: []string{services.Addr("KAFKA")}}
	cl, err := kafka.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	adm := kadm.NewClient(cl)
	settings := changelog.Settings{Prefix: prefix}
	if _, err := changelog.EnsureTopics(t.Context(), adm, settings.Own()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeTopics(t, adm, prefix) })

	f := newFakeFeeder()
	const rows = 20000
	commit := func(from, to int) {
		for i := from; i < to; i++ {
			f.commit(insert(strconv.Itoa(i)))
		}
	}
	commit(0, rows/2)
	large := make([]byte, 2<<20)
	rand.NewChaCha8([32]byte{}).Read(large)
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	feed := func(until uint64) {
		store, err := changelog.OpenState(kafka, changelog.NamesFor(prefix).State)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		gaps, err := gap.OpenBook(kafka, changelog.NamesFor(prefix), "test")
		if err != nil {
			t.Fatal(err)
		}
		defer gaps.Close()
		fd, err := New(Options{
			Kafka: kafka, Topics: settings, State: store, Gaps: gaps, Group: prefix, Self: "test", Metrics: metrics, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
			Sources: []Source{{Name: "shop", TopicPrefix: prefix, Feeder: f, Keep: func(cdc.TableID) []string { return []string{"email"} }}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				if _, confirmed := f.seen(); len(confirmed) > 0 && slices.Max(confirmed) >= until {
					cancel()
				}
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Millisecond):
				}
			}
		}()
		if err := fd.Run(ctx); err != nil {
			t.Fatal(err)
		}
	}
	feed(2)
	commit(rows/2, rows)
	f.commit(change(cdc.Insert, nil, user("large", "large@x.test", fmt.Sprintf("%x", large))))
	feed(rows + 2)
	t.Logf("%d rows in %s", rows, time.Since(begin))

	topic := changelog.ChangeTopic(prefix, "shop", "users")
	seen, slim := map[string]bool{}, "" // a row may come twice where a stop did not wait for its acknowledgement
	consumer, err := kafka.Client(kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer consumer.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for len(seen) < rows+1 {
		fs := consumer.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%d rows of %d: %v", len(seen), rows+1, err)
		}
		for _, r := range fs.Records() {
			seen[string(r.Key)] = true
			if strings.Contains(string(r.Key), "large") {
				slim = string(r.Value)
			}
		}
	}
	if !strings.Contains(slim, `"slim":true`) || !strings.Contains(slim, "large@x.test") || len(slim) > 10_000 {
		t.Errorf("the large row: %.500s", slim)
	}
}

func removeTopics(t *testing.T, adm *kadm.Client, prefix string) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		t.Error(err)
	}
	names := slices.DeleteFunc(topics.Names(), func(n string) bool { return !strings.HasPrefix(n, prefix) })
	if _, err := adm.DeleteTopics(ctx, names...); err != nil {
		t.Error(err)
	}
}
