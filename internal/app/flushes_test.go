package app

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/gap"
	"invalidator/internal/obs"
	"invalidator/replay"
	"invalidator/sink/memcachetest"
)

const flushedMapping = `version: 1
team: web
pools: [user]
underivable: [feed, page]
readers: meta
on_promotion: {page: stale}
mappings:
  - {name: user, table: shop.users, keys: ["user:{id}"]}
`

// flushBench is a fleet of workers on a fake Kafka, and nodes a to c.
type flushBench struct {
	t     *testing.T
	dir   string
	conf  *config.Config
	nodes map[string]*memcachetest.Server
	log   syncBuffer
	out   *changelog.Writer
	names changelog.Names
}

func newFlushBench(t *testing.T) *flushBench {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	b := &flushBench{t: t, dir: t.TempDir(), nodes: map[string]*memcachetest.Server{}, names: changelog.NamesFor("")}
	for _, node := range []string{"a", "b", "c"} {
		b.nodes[node] = memcachetest.Start(t)
		for _, key := range []string{"user:1", "feed:1", "page:1"} {
			b.nodes[node].Set(key, "old")
		}
	}
	b.ring(1, "a", "b")
	b.conf = parse(t, b.dir, fmt.Sprintf("kafka: {brokers: [%q]}\ncache: {settle: 50ms, ring: {file: ring.json, lag: 100ms}}\nreplay: {window: 100ms, flush: {refill: 1s}}\n"+
		"sources: [{name: users, topics: {pattern: 'dbz\\..*'}, first_start: latest}]\n", cluster.ListenAddrs()[0]))
	write(t, b.dir, "mappings.d/web.yaml", flushedMapping)
	if b.out, err = changelog.OpenWriter(b.kafka()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.out.Close)
	return b
}

func (b *flushBench) kafka() changelog.Options {
	return changelog.Options{Brokers: b.conf.Kafka.Brokers}
}

// ring publishes a record of one shard.
func (b *flushBench) ring(epoch int, primary, replica string) {
	b.t.Helper()
	replaceFile(b.t, filepath.Join(b.dir, "ring.json"), fmt.Sprintf(`{"epoch":%d,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[{"addr":%q,"zone":"b"}]}]}`,
		epoch, b.nodes[primary].Addr(), b.nodes[replica].Addr()))
}

// start runs a worker until stop, or the test's end.
func (b *flushBench) start() (stop func()) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(b.t.Context())
	done, started := make(chan error, 1), make(chan struct{})
	w := &Worker{Config: b.conf, Log: slog.New(slog.NewTextHandler(&b.log, nil)), Registry: obs.NewRegistry(), Started: func() { close(started) }}
	go func() { done <- w.Run(ctx) }()
	over := false
	stop = func() {
		if over {
			return
		}
		over = true
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}
	b.t.Cleanup(stop)
	select {
	case <-started:
	case <-time.After(20 * time.Second):
		b.t.Fatalf("the worker did not start: %s", b.log.String())
	}
	return stop
}

// works waits until a partition is worked on: one that nobody has had before has acted on the ring that it finds.
func (b *flushBench) works() {
	b.t.Helper()
	keys, err := changelog.OpenKeyWriter(b.kafka(), b.names.Keys)
	if err != nil {
		b.t.Fatal(err)
	}
	defer keys.Close()
	b.nodes["a"].Set("user:probe", "old")
	if _, err := keys.Write(b.t.Context(), changelog.SentKeys{Keys: []string{"user:probe"}, By: "test"}, nil); err != nil {
		b.t.Fatal(err)
	}
	waitFor(b.t, "a key that was sent to be deleted", func() bool { _, there := b.nodes["a"].Get("user:probe"); return !there })
}

func (b *flushBench) ask(r replay.Request) {
	b.t.Helper()
	r.At, r.By = time.Now(), "ann@ops"
	value, err := replay.Encode(r)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.out.Write(b.t.Context(), b.names.Control, r.ID, value); err != nil {
		b.t.Fatal(err)
	}
}

// said are the records of the control topic and of the status topic.
func (b *flushBench) said() (control, status []replay.Record) {
	b.t.Helper()
	for topic, to := range map[string]*[]replay.Record{b.names.Control: &control, b.names.Status: &status} {
		decode := replay.DecodeControl
		if to == &status {
			decode = replay.DecodeStatus
		}
		_, _, err := changelog.ReadNewest(b.t.Context(), b.kafka(), func(t string) bool { return t == topic }, 1000, func(_ string, r changelog.TopicRecord) error {
			if record, err := decode(r.Value); err == nil {
				*to = append(*to, record)
			}
			return nil
		})
		if err != nil {
			b.t.Fatal(err)
		}
	}
	return control, status
}

// done waits for the result of a request.
func (b *flushBench) done(id string) replay.Result {
	b.t.Helper()
	var found replay.Result
	waitFor(b.t, "the result of "+id, func() bool {
		_, status := b.said()
		for _, s := range status {
			if r, is := s.(replay.Result); is && r.ID == id {
				found = r
				return true
			}
		}
		return false
	})
	if !found.Clean || found.Error != "" {
		b.t.Fatalf("%+v", found)
	}
	return found
}

// holds are the keys that a node has of some.
func (b *flushBench) holds(node string) string {
	var list []string
	for _, key := range []string{"feed:1", "page:1", "user:1"} {
		if _, there := b.nodes[node].Get(key); there {
			list = append(list, key)
		}
	}
	return strings.Join(list, " ")
}

func (b *flushBench) expect(want map[string]string) {
	b.t.Helper()
	for node, keys := range want {
		if got := b.holds(node); got != keys {
			b.t.Errorf("node %s holds %q, want %q", node, got, keys)
		}
	}
}

// What a person asks for is done by a fleet that is not up yet when it is asked, and a second worker does not do it again.
func TestAFlushThatAPersonAsksFor(t *testing.T) {
	b := newFlushBench(t)
	stop := b.start()
	stop() // it has made the topics
	b.ask(replay.Request{ID: "f1", Action: replay.Flush, Target: replay.Target{Pool: "user"}})
	b.start()
	if r := b.done("f1"); r.Copies != 2 || r.Keys != 1 {
		t.Errorf("%+v", r)
	}
	b.expect(map[string]string{"a": "feed:1 page:1", "b": "feed:1 page:1", "c": "feed:1 page:1 user:1"}) // c is no node of the ring
	b.nodes["a"].Set("user:1", "new")
	b.start()
	b.ask(replay.Request{ID: "f2", Action: replay.Flush, Target: replay.Target{Node: b.nodes["b"].Addr()}})
	b.done("f2")
	b.expect(map[string]string{"a": "feed:1 page:1 user:1", "b": ""})
	control, _ := b.said()
	jobs := 0
	for _, r := range control {
		if _, is := r.(replay.Job); is {
			jobs++
		}
	}
	if jobs != 2 {
		t.Errorf("%d jobs", jobs)
	}
}

// The pools whose keys no row gives are flushed on a shard that has another primary, as their mapping file says it; others are the log's.
func TestAPromotionIsFlushed(t *testing.T) {
	b := newFlushBench(t)
	b.start()
	b.works()
	b.ring(2, "b", "a")
	waitFor(t, "the flush", func() bool { return b.holds("a") == "page:1 user:1" && b.holds("b") == "page:1 user:1" })
	for _, node := range []string{"a", "b"} {
		waitFor(t, "the stale mark", func() bool { return strings.Contains(mg(t, b.nodes[node].Addr(), "page:1"), " X") })
	}
	b.expect(map[string]string{"c": "feed:1 page:1 user:1"})
	want := []string{"promotion/2/s/feed", "promotion/2/s/page"}
	control, _ := b.said()
	var got []string
	for _, r := range control {
		if q, is := r.(replay.Request); is && !slices.Contains(got, q.ID) {
			got = append(got, q.ID)
			if q.Cause == nil || q.Cause.What != replay.Promotion || q.Cause.Epoch != 2 || q.Target.Shard != "s" || q.Stale != (q.Target.Pool == "page") {
				t.Errorf("%+v %+v", q, q.Cause)
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("asked for %q, want %q", got, want)
	}
}

// Behind a record that nobody saw, what a node gained is flushed: of pools that somebody claims.
func TestWhatANodeGainedIsFlushed(t *testing.T) {
	b := newFlushBench(t)
	b.nodes["c"].Set("theirs:1", "old")
	b.start()
	b.works()
	b.ring(3, "a", "c")
	waitFor(t, "the flush", func() bool { return b.holds("c") == "" })
	b.expect(map[string]string{"a": "feed:1 page:1 user:1", "b": "feed:1 page:1 user:1"})
	if _, there := b.nodes["c"].Get("theirs:1"); !there {
		t.Error("a key of nobody's is gone")
	}
	b.done("gained/3")
}

// What a gap's decision asks for is done.
func TestAGapIsAnsweredByAFlush(t *testing.T) {
	b := newFlushBench(t)
	b.start()
	book, err := gap.OpenBook(b.kafka(), b.names, "w")
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	c, err := book.Record(t.Context(), gap.Gap{ID: "dbz.shop.users/0/500", Source: "users", Why: "away", Pools: []string{"user"},
		Range: &replay.Range{Topic: "dbz.shop.users", From: 100, To: 500}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := book.Settle(t.Context(), c, "ann@ops", true); err != nil {
		t.Fatal(err)
	}
	b.done("dbz.shop.users/0/500/user")
	b.expect(map[string]string{"a": "feed:1 page:1", "b": "feed:1 page:1"})
}
