package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a primary and a replica, and a job over them.
type world struct {
	primary, replica *memcachetest.Server
	job              *job
	built            atomic.Int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{primary: memcachetest.Start(t), replica: memcachetest.Start(t)}
	record, err := sink.ParseRecord("ring.json", fmt.Appendf(nil, `{"epoch":1,"kind":"points160","key_prefix":"shop/",
		"shards":[{"id":"s0","primary":{"addr":%q},"replicas":[{"addr":%q}]}]}`, w.primary.Addr(), w.replica.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	ring, err := sink.NewTopology(record)
	if err != nil {
		t.Fatal(err)
	}
	w.job = &job{ring: ring, lease: time.Minute, ttl: time.Hour, log: slog.New(slog.DiscardHandler), build: func(_ context.Context, r request) (string, error) {
		w.built.Add(1)
		return "new", nil
	}}
	return w
}

// want says what each node must hold; empty for nothing.
func (w *world) want(t *testing.T, primary, replica string) {
	t.Helper()
	for node, want := range map[*memcachetest.Server]string{w.primary: primary, w.replica: replica} {
		if got, there := node.Get("shop/home:de"); got != want || there != (want != "") {
			t.Errorf("a node holds %q (%v), want %q", got, there, want)
		}
	}
}

// From the topic, as the service writes it, to every copy; two requests of a key are answered once.
func TestJobAnswersTheTopic(t *testing.T) {
	w, c := newWorld(t), changelogtest.Start(t)
	const binary = "home:a b\x00\xff"
	w.job.pool = "home"
	refresher, err := changelog.OpenRefresher(c.Options, c.Names.Refresh)
	if err != nil {
		t.Fatal(err)
	}
	defer refresher.Close()
	for _, r := range []changelog.RefreshRequest{
		{V: 1, Key: "home:de", Pool: "home"}, {V: 1, Key: "home:de", Pool: "home"}, {V: 2, Key: "home:de", Pool: "home"}, {V: 1, Key: "user:1", Pool: "user"},
		{V: 1, Key: binary, KeyBase64: sink.Base64(binary), Pool: "home"},
	} {
		written := make(chan error)
		refresher.Request(t.Context(), r, func(err error) { written <- err })
		if err := <-written; err != nil {
			t.Fatal(err)
		}
	}
	cl, err := c.Options.Client(kgo.ConsumerGroup("jobs"), kgo.ConsumeTopics(c.Names.Refresh), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.job.run(ctx, cl) }()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && w.replica.Len() < 2; {
		<-time.After(10 * time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	w.want(t, "new", "new")
	if n := w.primary.Len(); n != 2 || w.built.Load() != 2 {
		t.Errorf("%d keys and %d builds, want 2", n, w.built.Load())
	}
	for _, node := range []*memcachetest.Server{w.primary, w.replica} {
		if got, _ := node.Get("shop/" + binary); got != "new" {
			t.Errorf("a node holds %q", got)
		}
	}
}

// A change that commits while the value is built voids the lease: the old value is not stored.
func TestChangeDuringTheBuild(t *testing.T) {
	w := newWorld(t)
	w.job.build = func(ctx context.Context, r request) (string, error) {
		tell(t, w.primary, "md shop/home:de")
		return "old", nil
	}
	if err := w.job.refresh(t.Context(), request{V: 1, Key: "home:de"}); err != nil {
		t.Error(err)
	}
	w.want(t, "", "old") // its delete at the replica comes too, in its time
}

// Where a reader was faster nothing is built; where it was so at one node alone, the other is filled.
func TestReaderWasFaster(t *testing.T) {
	w := newWorld(t)
	w.primary.Set("shop/home:de", "a reader's")
	if err := w.job.refresh(t.Context(), request{V: 1, Key: "home:de"}); err != nil {
		t.Error(err)
	}
	w.want(t, "a reader's", "new")
	if err := w.job.refresh(t.Context(), request{V: 1, Key: "home:de"}); err != nil || w.built.Load() != 1 {
		t.Errorf("built %d times, want once: %v", w.built.Load(), err)
	}
}

// A stale value is replaced, and stays where building fails; a lease on nothing is given back then.
func TestBuildFails(t *testing.T) {
	w := newWorld(t)
	w.primary.Set("shop/home:de", "old")
	tell(t, w.primary, "md shop/home:de I T30")
	good := w.job.build
	broken := errors.New("the database is away")
	w.job.build = func(context.Context, request) (string, error) { return "", broken }
	if err := w.job.refresh(t.Context(), request{V: 1, Key: "home:de"}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	w.want(t, "old", "")
	tell(t, w.primary, "md shop/home:de I T30")
	w.job.build = good
	if err := w.job.refresh(t.Context(), request{V: 1, Key: "home:de"}); err != nil {
		t.Error(err)
	}
	w.want(t, "new", "new")
}

// A lease on a key that is sent in base64 is given back as one.
func TestBuildOfABinaryKeyFails(t *testing.T) {
	w := newWorld(t)
	broken := errors.New("the database is away")
	w.job.build = func(context.Context, request) (string, error) { return "", broken }
	if err := w.job.refresh(t.Context(), request{V: 1, Key: "home:a b"}); !errors.Is(err, broken) || w.primary.Len()+w.replica.Len() != 0 {
		t.Errorf("%d leases are left, %v", w.primary.Len()+w.replica.Len(), err)
	}
	if err := w.job.refresh(t.Context(), request{V: 1, Key: "home:" + strings.Repeat("x", 200) + " "}); err == nil {
		t.Error("a key that no node can hold was rebuilt")
	}
}

// A node that is away holds up no other.
func TestNodeIsAway(t *testing.T) {
	w := newWorld(t)
	w.primary.Close()
	if err := w.job.refresh(t.Context(), request{V: 1, Key: "home:de"}); err == nil {
		t.Error("want an error that names the node")
	}
	if got, _ := w.replica.Get("shop/home:de"); got != "new" {
		t.Errorf("the replica holds %q", got)
	}
}

// tell sends a node a command that it must take.
func tell(t *testing.T, node *memcachetest.Server, command string) {
	t.Helper()
	l, err := dial(t.Context(), sink.Copy{Node: node.Addr(), Key: "any"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if answer, err := l.ask("%s", command); answer != "HD" || err != nil {
		t.Fatalf("%s: %s, %v", command, answer, err)
	}
}
