//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/sink/memcachetest"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

const (
	g8Records    = 10_000
	g8Partitions = 6
	g8Slow       = 200 * time.Millisecond // what each batch of deletes takes
	g8Pace       = 2 * time.Millisecond   // between two records
	g8Pause      = 9 * time.Second        // longer than the session
	g8Third      = 5 * time.Second        // how long the third member stays
)

// G8: two members with slow deletes; a third comes and goes while 10,000 records flow; one is stopped beyond its session and goes on.
// Every key is deleted, no commit goes back, and none passes a record whose two rounds are not done.
func TestG8(t *testing.T) {
	g := newG8(t)
	a, b := g.work(), g.work()
	g.awaitMembers(2)

	var parts sync.WaitGroup
	defer parts.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	parts.Go(func() { g.watchCommits(ctx) })
	produced := make(chan struct{})
	parts.Go(func() {
		defer close(produced)
		g.produce(ctx)
	})
	parts.Go(func() {
		a.Pause()
		defer a.Continue()
		await(ctx, g8Pause)
	})
	for done := false; !done; {
		c := g.work()
		harness.Await(t, "the third to start", func() (bool, string) { return strings.Contains(c.Log(), "worker started"), c.Log() })
		await(ctx, g8Third)
		c.Terminate()
		select {
		case <-produced:
			done = true
		default:
		}
	}
	harness.Await(t, "every record committed", g.allCommitted)
	cancel()
	parts.Wait()
	for i := range g8Records {
		for _, n := range g.nodes {
			if _, ok := n.server.Get(g8Key(i)); ok {
				t.Fatalf("key %s is still at %s", g8Key(i), n.server.Addr())
			}
		}
	}
	a.Terminate()
	b.Terminate()
}

// A topic that is removed and made again under a running worker is read from its beginning, and the loss is named.
func TestG8TopicMadeAgain(t *testing.T) {
	g := newG8(t)
	w := g.work()
	g.awaitMembers(1)
	g.produceRange(t.Context(), 0, 300)
	harness.Await(t, "every record committed", g.allCommitted)

	if _, err := g.adm.DeleteTopics(t.Context(), g.topic); err != nil {
		t.Fatal(err)
	}
	harness.Await(t, "the topic to be made again", func() (bool, string) {
		if err := g.makeTopic(); err != nil {
			return false, err.Error()
		}
		return true, ""
	})
	g.open()
	g.produceRange(t.Context(), 300, 900)
	harness.Await(t, "the new topic's records committed", g.allCommitted)
	for i := range 900 {
		if _, ok := g.nodes[0].server.Get(g8Key(i)); ok {
			t.Fatalf("key %s is still there", g8Key(i))
		}
	}
	if log := w.Log(); !strings.Contains(log, "a gap: records of the log were lost") {
		t.Error("the loss was not named")
	}
	w.Terminate()
}

// g8 is a topic that somebody else feeds, and two nodes that are slow.
type g8 struct {
	t     *testing.T
	id    string
	topic string
	file  string
	adm   *kadm.Client
	cl    *kgo.Client
	nodes []*slowNode

	mu   sync.Mutex
	keys map[int32][]string // by partition, in the order of offsets
}

func newG8(t *testing.T) *g8 {
	g := &g8{t: t, id: fmt.Sprintf("g8-%x", time.Now().UnixNano()), keys: map[int32][]string{}}
	g.topic = g.id + ".shop.users"
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "mappings.d"), 0o755); err != nil {
		t.Fatal(err)
	}
	g.nodes = []*slowNode{startSlow(t), startSlow(t)}
	write("mappings.d/users.yaml", "version: 1\nteam: profiles\ncontact: '#p'\npools: [user]\nmappings:\n  - name: user\n    table: shop.users\n    keys: ['user:{id}']\n")
	write("ring.json", fmt.Sprintf(`{"epoch":1,"kind":"points160","shards":[{"id":"s0","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[{"addr":%q,"zone":"b"}]}]}`,
		g.nodes[0].server.Addr(), g.nodes[1].server.Addr()))
	write("c.yaml", fmt.Sprintf("kafka: {brokers: [%q], group: %s, topic_prefix: %s-own}\ncache: {settle: 300ms, ring: {file: ring.json}}\nmappings: {dir: mappings.d}\n"+
		"sources: [{name: users, topics: {pattern: '%s\\..*'}, first_start: earliest}]\n", services.Addr("KAFKA"), g.id, g.id, g.id))
	g.file = filepath.Join(dir, "c.yaml")
	g.open()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if topics, err := g.adm.ListTopics(ctx); err == nil {
			for _, name := range topics.Names() {
				if strings.HasPrefix(name, g.id) {
					g.adm.DeleteTopics(ctx, name)
				}
			}
		}
		g.adm.DeleteGroups(ctx, g.id)
		g.cl.Close()
	})
	if err := g.makeTopic(); err != nil {
		t.Fatal(err)
	}
	return g
}

// open makes the client anew: one that stood before a topic was made again does not write to it.
func (g *g8) open() {
	if g.cl != nil {
		g.cl.Close()
	}
	var err error
	if g.cl, err = kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA"))); err != nil {
		g.t.Fatal(err)
	}
	g.adm = kadm.NewClient(g.cl)
}

func (g *g8) makeTopic() error {
	_, err := changelog.EnsureTopics(g.t.Context(), g.adm, []changelog.TopicSpec{changelog.Settings{Partitions: g8Partitions}.Change(g.topic)})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys = map[int32][]string{}
	return err
}

func (g *g8) work() *harness.Process { return harness.Start(g.t, "run", "run", "--config", g.file) }

func (g *g8) awaitMembers(n int) {
	harness.Await(g.t, fmt.Sprintf("%d members", n), func() (bool, string) {
		groups, err := g.adm.DescribeGroups(g.t.Context(), g.id)
		if err != nil {
			return false, err.Error()
		}
		d := groups[g.id]
		owned := len(d.AssignedPartitions()[g.topic])
		return d.State == "Stable" && len(d.Members) == n && owned == g8Partitions, fmt.Sprintf("%s, %d members with %d partitions", d.State, len(d.Members), owned)
	})
}

func g8Key(i int) string { return "user:" + strconv.Itoa(i) }

func (g *g8) produce(ctx context.Context) { g.produceRange(ctx, 0, g8Records) }

// produceRange fills the copies of each key and produces its change after that.
func (g *g8) produceRange(ctx context.Context, from, to int) {
	tick := time.NewTicker(g8Pace)
	defer tick.Stop()
	for i := from; i < to; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, n := range g.nodes {
			n.server.Set(g8Key(i), "stale")
		}
		value := fmt.Sprintf(`{"before":null,"after":{"id":%d},"source":{"connector":"mysql","name":"users","db":"shop","table":"users","ts_ms":%d},"op":"c","ts_ms":%d}`, i, time.Now().UnixMilli(), time.Now().UnixMilli())
		r := g.cl.ProduceSync(ctx, &kgo.Record{Topic: g.topic, Key: fmt.Appendf(nil, `{"id":%d}`, i), Value: []byte(value)})
		if err := r.FirstErr(); err != nil {
			if ctx.Err() == nil {
				g.t.Errorf("producing: %v", err)
			}
			return
		}
		g.mu.Lock()
		g.keys[r[0].Record.Partition] = append(g.keys[r[0].Record.Partition], g8Key(i))
		g.mu.Unlock()
	}
}

// watchCommits checks every commit that it sees: it never goes back, and what lies below has been deleted twice at each node.
func (g *g8) watchCommits(ctx context.Context) {
	checked := map[int32]int64{}
	for await(ctx, 50*time.Millisecond) {
		committed, err := g.adm.FetchOffsets(ctx, g.id)
		if err != nil {
			continue
		}
		for p := range int32(g8Partitions) {
			c, ok := committed.Lookup(g.topic, p)
			if !ok {
				continue
			}
			if c.At < checked[p] {
				g.t.Errorf("partition %d: the commit went back from %d to %d", p, checked[p], c.At)
			}
			for ; checked[p] < c.At; checked[p]++ {
				g.checkDone(p, checked[p])
			}
		}
	}
}

func (g *g8) checkDone(p int32, offset int64) {
	g.mu.Lock()
	keys := g.keys[p]
	g.mu.Unlock()
	if offset >= int64(len(keys)) {
		return // its producer has not noted it yet, though a worker is done with it
	}
	for _, n := range g.nodes {
		if times := n.deleted(keys[offset]); times < 2 {
			g.t.Errorf("partition %d, offset %d is committed, and %s was deleted %d times at %s", p, offset, keys[offset], times, n.server.Addr())
		}
	}
}

func (g *g8) allCommitted() (bool, string) {
	ends, err := g.adm.ListEndOffsets(g.t.Context(), g.topic)
	if err != nil {
		return false, err.Error()
	}
	committed, err := g.adm.FetchOffsets(g.t.Context(), g.id)
	if err != nil {
		return false, err.Error()
	}
	var behind []string
	ends.Each(func(e kadm.ListedOffset) {
		if c, ok := committed.Lookup(e.Topic, e.Partition); !ok || c.At != e.Offset {
			behind = append(behind, fmt.Sprintf("%d: %d of %d", e.Partition, c.At, e.Offset))
		}
	})
	return len(behind) == 0, strings.Join(behind, ", ")
}

// slowNode takes g8Slow for every batch, and counts the deletes of each key.
type slowNode struct {
	server *memcachetest.Server
	mu     sync.Mutex
	counts map[string]int
}

func startSlow(t *testing.T) *slowNode {
	n := &slowNode{server: memcachetest.Start(t), counts: map[string]int{}}
	n.server.Intercept(func(_ int, line string) memcachetest.Reply {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "md" {
			n.mu.Lock()
			n.counts[f[1]]++
			n.mu.Unlock()
		} else if len(f) == 1 && f[0] == "mn" {
			await(t.Context(), g8Slow)
		}
		return memcachetest.Reply{}
	})
	return n
}

func (n *slowNode) deleted(key string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.counts[key]
}

// await waits for d, and reports false where ctx ended first.
func await(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
