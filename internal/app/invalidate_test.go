package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/gap"
	"invalidator/internal/obs"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/sink/memcachetest"
)

const sentMapping = "version: 1\nteam: profiles\npools: [user]\nunderivable: [feed]\nmappings:\n  - name: user\n    table: shop.users\n    keys: ['user:{id}', {key: 'user:hot:{id}', hot: 2}]\n"

// sentBench is a worker on a fake Kafka, and two nodes of one shard.
type sentBench struct {
	t       *testing.T
	conf    *config.Config
	admin   string // host:port of the worker's listener
	primary *memcachetest.Server
	replica *memcachetest.Server // nil: it takes connections and never answers
	log     syncBuffer
}

// newSentBench starts a worker. more is lines of its configuration.
func newSentBench(t *testing.T, deadReplica bool, more string) *sentBench {
	t.Helper()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	b := &sentBench{t: t, primary: memcachetest.Start(t), admin: freePort(t)}
	replica := ""
	if deadReplica {
		replica = listen(t)
	} else {
		b.replica = memcachetest.Start(t)
		replica = b.replica.Addr()
	}
	dir := t.TempDir()
	write(t, dir, "ring.json", fmt.Sprintf(`{"epoch":7,"kind":"points160","key_prefix":"app:","shards":[{"id":"s00","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[{"addr":%q,"zone":"b"}]}]}`,
		b.primary.Addr(), replica))
	b.conf = parse(t, dir, fmt.Sprintf("kafka: {brokers: [%q]}\ncache: {settle: 20ms, ring: {file: ring.json}, node: {max_lag: 200ms, timeout: 100ms}}\n"+
		"sources: [{name: users, topics: {pattern: 'dbz\\..*'}, first_start: latest}]\n%s", cluster.ListenAddrs()[0], strings.ReplaceAll(more, "ADMIN", b.admin)))
	write(t, dir, "mappings.d/users.yaml", sentMapping)
	ctx, cancel := context.WithCancel(t.Context())
	done, started := make(chan error, 1), make(chan struct{})
	w := &Worker{Config: b.conf, Log: slog.New(slog.NewTextHandler(&b.log, nil)), Registry: obs.NewRegistry(), Started: func() { close(started) }}
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-started:
	case <-time.After(20 * time.Second):
		t.Fatalf("the worker did not start: %s", b.log.String())
	}
	waitFor(t, "the mapping file on the state topic", func() bool {
		i, err := OpenInvalidator(t.Context(), b.conf, quiet)
		return err == nil && len(i.rules.set.Files()) == 1
	})
	return b
}

// freePort is an address of this machine where nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (b *sentBench) invalidator() *Invalidator {
	b.t.Helper()
	i, err := OpenInvalidator(b.t.Context(), b.conf, quiet)
	if err != nil {
		b.t.Fatal(err)
	}
	return i
}

// send writes keys and waits for the workers.
func (b *sentBench) send(keys ...string) []Owing {
	b.t.Helper()
	i := b.invalidator()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	defer cancel()
	written, err := i.Write(ctx, changelog.SentKeys{Keys: keys, By: "ann@ops"}, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	owed, err := i.Wait(ctx, written, func(_, _ int64, err error) {
		if err != nil {
			b.t.Error(err)
		}
	})
	if err != nil {
		b.t.Fatalf("%v: %s", err, b.log.String())
	}
	return owed
}

func wantGone(t *testing.T, s *memcachetest.Server, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if _, there := s.Get(key); there {
			t.Errorf("%s: %s is still there", s.Addr(), key)
		}
	}
}

// A worker that has never seen the topic of keys reads it from its beginning, and when it has passed what was sent every copy is gone: of the primary, of the
// replica, and the hot ones that the pool's templates declare.
func TestInvalidateIsDeletedOnEveryCopy(t *testing.T) {
	b := newSentBench(t, false, "")
	all := []string{"app:user:1", "app:user:1#1", "app:user:1#2", "app:feed:1", "app:nobody:1"}
	for _, key := range append(all, "app:user:2") {
		b.primary.Set(key, "stale")
		b.replica.Set(key, "stale")
	}
	if owed := b.send("user:1", "feed:1", "nobody:1"); len(owed) > 0 {
		t.Errorf("owed %+v", owed)
	}
	wantGone(t, b.primary, all...)
	wantGone(t, b.replica, all...)
	if _, there := b.primary.Get("app:user:2"); !there {
		t.Error("another key went too")
	}
}

// A node that is away owes what was sent, and the wait tells so.
func TestInvalidateTellsWhatIsOwed(t *testing.T) {
	b := newSentBench(t, true, "")
	b.primary.Set("app:user:1", "stale")
	owed := b.send("user:1")
	if len(owed) != 1 || owed[0].Owes != pipeline.KindNode || owed[0].Records != 1 || !owed[0].Open || owed[0].Since.IsZero() {
		t.Errorf("owed %+v", owed)
	}
	wantGone(t, b.primary, "app:user:1")
}

// Keys are looked at before anything is written: by the fleet's mapping files, its ring's prefix and the nodes' protocol.
func TestKeysAreChecked(t *testing.T) {
	f, problems := mapping.Parse("f.yaml", []byte("version: 1\nteam: t\npools: [user]\nunderivable: [feed]\nreaders: meta\nbinary_keys: base64\n"+
		"mappings:\n  - {name: m, table: a.b, keys: ['user:{id}']}\n"))
	if f == nil {
		t.Fatal(problems)
	}
	set, _ := mapping.NewSet([]*mapping.File{f})
	h, problems := mapping.Parse("h.yaml", []byte("version: 1\nteam: h\npools: [hot]\nmappings:\n  - {name: m, table: a.b, keys: [{key: 'hot:{id}', hot: 8}]}\n"))
	if h == nil {
		t.Fatal(problems)
	}
	hot, _ := mapping.NewSet([]*mapping.File{h})
	empty, _ := mapping.NewSet(nil)
	long := strings.Repeat("k", 241) // with user: and app: 250 bytes
	for _, c := range []struct {
		name  string
		rules keyRules
		keys  []string
		want  CheckedKeys
	}{
		{"good ones, each once", keyRules{set, "app:", "meta"}, []string{"user:1", "feed:1", "user:1", "user:a b", "user:" + long}, CheckedKeys{Keys: []string{"user:1", "feed:1", "user:a b", "user:" + long}}},
		{"bad ones", keyRules{set, "app:", "meta"}, []string{"user:1", "", "usr:a b", "user:" + long + "k"}, CheckedKeys{Keys: []string{"user:1"}, Problems: []KeyProblem{
			{1, "", "it is empty"}, {2, "usr:a b", "a space or a control character"},
			{3, "user:" + long + "k", `with the ring's key_prefix "app:" it is 251 bytes long, the limit is 250`}}}},
		{"no room for hot copies behind the prefix", keyRules{hot, "app:", "meta"}, []string{"hot:" + strings.Repeat("k", 240), "hot:" + strings.Repeat("k", 241)}, CheckedKeys{
			Keys: []string{"hot:" + strings.Repeat("k", 240)}, Problems: []KeyProblem{{1, "hot:" + strings.Repeat("k", 241),
				`with the ring's key_prefix "app:" and the names of its pool's 8 hot copies it is 251 bytes long, the limit is 250`}}}},
		{"the classic protocol", keyRules{set, "", "classic"}, []string{"user:a b"}, CheckedKeys{Problems: []KeyProblem{{0, "user:a b",
			"it has a space or a control byte, and the nodes are spoken to in the classic protocol, which cannot say it (cache.protocol)"}}}},
		{"pools of nobody", keyRules{set, "app:", "meta"}, []string{"usr:1", "usr:2", "app:user:1", "zzzzzzzz"}, CheckedKeys{
			Keys: []string{"usr:1", "usr:2", "app:user:1", "zzzzzzzz"}, Unclaimed: []UnclaimedPool{
				{"app", "", 1, `leave the ring's key_prefix "app:" out`}, {"usr", "user", 2, ""}, {"zzzzzzzz", "", 1, ""}}}},
		{"no file", keyRules{empty, "", "meta"}, []string{"user:1"}, CheckedKeys{Keys: []string{"user:1"}, Unclaimed: []UnclaimedPool{{"user", "", 1, "no mapping file is in force"}}}},
	} {
		if diff := cmp.Diff(c.want, c.rules.check(c.keys)); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
	for u, want := range map[UnclaimedPool]string{
		{Pool: "usr", Nearest: "user"}:  `pool "usr" is none of the fleet's: did you mean "user"?`,
		{Pool: "z"}:                     `pool "z" is none of the fleet's`,
		{Pool: "app", Hint: "leave it"}: `pool "app" is none of the fleet's: leave it`,
	} {
		if u.String() != want {
			t.Errorf("%s, want %s", u, want)
		}
	}
}

// Without a broker, and without a fleet, the reason is told; nothing waits.
func TestInvalidateWithoutAFleet(t *testing.T) {
	if _, err := OpenInvalidator(t.Context(), &config.Config{}, quiet); err == nil || !strings.Contains(err.Error(), "kafka.brokers") {
		t.Errorf("no broker: %v", err)
	}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	c := &config.Config{Kafka: config.Kafka{Brokers: cluster.ListenAddrs(), Group: "g"}}
	if _, err := OpenInvalidator(t.Context(), c, quiet); err == nil || !strings.Contains(err.Error(), "run makes it") {
		t.Errorf("no topic: %v", err)
	}
}

// A wait ends with its context while no worker runs.
func TestWaitForNoWorker(t *testing.T) {
	b := newPauseBench(t)
	i, err := OpenInvalidator(t.Context(), b.conf, quiet)
	if err != nil {
		t.Fatal(err)
	}
	written, err := i.Write(t.Context(), changelog.SentKeys{Keys: []string{"user:1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	looks := 0
	if _, err := i.Wait(ctx, written, func(passed, all int64, err error) {
		if looks++; passed != 0 || all != 1 || err != nil {
			t.Errorf("%d of %d, %v", passed, all, err)
		}
	}); !errors.Is(err, context.DeadlineExceeded) || looks == 0 {
		t.Errorf("%v after %d looks", err, looks)
	}
}

// The topic of keys is read by every worker, beside the sources and from its beginning; no source can have it, nor its format, and explain reads it.
func TestKeysAreASource(t *testing.T) {
	c := parse(t, t.TempDir(), "kafka: {topic_prefix: inv}\nsources: [{name: shop, type: mysql, hosts: [a:1], user: u, include: [a.b], first_start: latest}]")
	sources, starts, err := readsOf(c)
	if err != nil || len(sources) != 2 || len(starts) != 2 {
		t.Fatalf("%d sources, %d starts, %v", len(sources), len(starts), err)
	}
	keys, start := sources[1], starts[1]
	if keys.Name != "inv.keys" || keys.Decode.Format != envelope.Keys || start.At != "earliest" || !start.Pattern.MatchString("inv.keys") ||
		slices.ContainsFunc([]string{"inv.keysx", "invxkeys", "a.inv.keys", "shop.a.b"}, start.Pattern.MatchString) {
		t.Errorf("%+v from %s", keys, start.At)
	}
	if s := pipeline.SourceOf(sources, "inv.keys"); s != keys {
		t.Errorf("the topic is read as %+v", s)
	}
	if d, err := DecodingOf(c, "inv.keys"); err != nil || d.Format != envelope.Keys {
		t.Errorf("explain reads it as %+v, %v", d, err)
	}
	if d, err := DecodingOf(c, "shop.a.b"); err != nil || d.Format == envelope.Keys {
		t.Errorf("explain reads another as %+v, %v", d, err)
	}
	if _, _, err := readsOf(parse(t, t.TempDir(), "kafka: {brokers: [a:1]}")); err == nil {
		t.Error("without a source nothing would be deleted")
	}
}

// What is lost of the topic of keys may have been a key of any pool.
func TestLostKeysConcernEveryPool(t *testing.T) {
	c := parse(t, t.TempDir(), "sources: [{name: shop, type: mysql, hosts: [a:1], user: u, include: [a.b]}]")
	f, _ := mapping.Parse("f.yaml", []byte(sentMapping))
	set, _ := mapping.NewSet([]*mapping.File{f})
	m := &mappings{state: mappingsState{set: set}}
	g := gapRecorder{config: c, mappings: m}
	record := gap.Gap{Source: "invalidator.keys"}
	if on := g.concern(&record, "invalidator.keys"); on != "" || !slices.Equal(record.Pools, []string{"feed", "user"}) {
		t.Errorf("pools %q, on_gap %q", record.Pools, on)
	}
}
