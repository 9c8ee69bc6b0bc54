//go:build bench

package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"invalidator/internal/changelog"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/test/integration/harness"
)

const (
	crawledKeys = 10_000_000 // on the node
	flushedKeys = 1_000_000  // of them, of the pool that is flushed
	crawledMB   = "3000"     // that the node may take
	fillAtOnce  = 50_000     // keys

	// flushRate is how many changes a second come meanwhile, with keys that are all the node's: a fourth of liveRate, and more than its part of that would be in any fleet.
	flushRate = 5_000

	crawlerGoal = 0.7 // of the crawler's own speed
	flushGoal   = 100 // MB
	clientGoal  = 100 // ms, that a client of the node waits for an answer
)

// feeds are the mappings of a pool that no row gives, beside users.
const feeds = `
version: 1
team: feeds
contact: "#feeds"
underivable: [feed]
`

// flushed is how fast a pool of a million keys is flushed on a node of ten million, as fast as it goes: all keys of the node a second, from when the round begins to the result, against those
// that a reader sees who has the node dump them and throws them away. Changes come meanwhile, for everybody.
func flushed(t *testing.T) {
	node := harness.StartNodes(t, 1, "-m", crawledMB)[0]
	id := harness.Unique()
	topic := id + "-dbz.shop.users"
	p := harness.New(t, harness.Options{
		ID: id, Settle: time.Second,
		Mappings: map[string]string{"users.yaml": fmt.Sprintf(users, "shop.users"), "feeds.yaml": feeds},
		Record:   sink.Record{Shards: []sink.Shard{{ID: "s000", Weight: 1, Primary: sink.Node{Addr: node.Addr}}}},
		Sources:  fmt.Sprintf("  - {name: users, topics: {pattern: '%s'}, first_start: earliest}\n", strings.ReplaceAll(topic, ".", `\.`)),
	})
	p.CreateTopic(topic, runPartitions)
	produceUsers(t, topic, 1000)
	worker := p.Work()
	p.AwaitDone(topic)
	told := listen(t, p)
	n, pool := size(t, crawledKeys), size(t, flushedKeys)
	fill(t, node, n, pool)
	load := newTraffic(t, topic, 1000, flushRate, func(string) []*harness.Node { return []*harness.Node{node} })
	defer load.stop()
	load.awaitFresh(t)
	asks := newClients(t, node, func(i int) string {
		key, _ := crawled(i%n, n/pool)
		return key
	})
	steady := time.Now()
	asks.awaitSteady(t)
	report(t, plain("flush.client_slowest_ms.before", asks.slowest(t, steady, time.Now()), "ms"))

	before, all := dumpAndDiscard(t, node)
	if all < n {
		t.Fatalf("the node has %d keys, want %d: nothing was measured", all, n)
	}
	report(t, plain("flush.rss_mb.before", peak(t, worker.Pid()), "MB"))
	stopProfile := profile(t, "flush", worker.Pid())
	asked := time.Now()
	askFlush(t, p)
	result := flushResult(t, told)
	stopProfile()
	began := roundBegan(t, worker)
	if !result.Clean {
		t.Fatalf("the flush ended as %+v: nothing was measured", result)
	}
	p99, slowest := load.p99(t, asked, result.At), asks.slowest(t, asked, result.At)
	after, rest := dumpAndDiscard(t, node) // the machine's speed may have changed meanwhile
	load.stop()
	asks.end()
	for line := range strings.Lines(worker.Log()) {
		if strings.Contains(line, "job=bench") {
			t.Log(strings.TrimSpace(line)) // where its time went
		}
	}

	crawler, ours := float64(all+rest)/(before+after).Seconds(), float64(all)/result.At.Sub(began).Seconds()
	report(t, plain("flush.s", result.At.Sub(asked).Seconds(), "s"))
	report(t, plain("flush.dumps", float64(strings.Count(worker.Log(), "a node was dumped")), "dumps"))
	report(t, plain("flush.crawler_keys_per_s", crawler, "keys/s"))
	report(t, plain("flush.keys_per_s", ours, "keys/s"))
	report(t, atLeast("flush.vs_crawler", ours/crawler, "x", crawlerGoal))
	report(t, atMost("flush.rss_mb", peak(t, worker.Pid()), "MB", flushGoal))
	report(t, atMost("flush.p99_ms", p99, "ms", liveP99Goal))
	report(t, atMost("flush.client_slowest_ms", slowest, "ms", clientGoal))
	report(t, atMost("flush.left_keys", float64(left(t, node, n, pool)), "keys", 0))
	worker.Terminate()
}

// fill sets n keys, of which so many are of the pool.
func fill(t *testing.T, node *harness.Node, n, pool int) {
	t.Helper()
	keys := make([]string, 0, fillAtOnce)
	for i := range n {
		key, _ := crawled(i, n/pool)
		if keys = append(keys, key); len(keys) == fillAtOnce || i == n-1 {
			if err := node.SetAll(keys, strings.Repeat("v", 30)); err != nil {
				t.Fatal(err)
			}
			keys = keys[:0]
		}
	}
}

// left is how many keys of the pool are still there. Nobody has set any since.
func left(t *testing.T, node *harness.Node, n, pool int) (count int) {
	t.Helper()
	var keys []string
	for i := range n {
		if key, feed := crawled(i, n/pool); feed {
			keys = append(keys, key)
		}
	}
	there, err := node.Present(keys)
	if err != nil {
		t.Fatal(err)
	}
	return len(there)
}

// crawled is the i-th key of the node. Every so many are of the pool that is flushed.
func crawled(i, every int) (key string, feed bool) {
	if i%every == 0 {
		return fmt.Sprintf("feed:home:%d:v3", 10_000_000+i), true
	}
	return fmt.Sprintf("profile:%d:en:v3", 10_000_000+i), false
}

// askFlush asks for one that waits for nothing: in one part, at no pace, and above no load.
func askFlush(t *testing.T, p *harness.Pipeline) {
	t.Helper()
	value, err := replay.Encode(replay.Request{
		ID: "bench", At: time.Now().UTC(), By: "bench", Action: replay.Flush, Target: replay.Target{Pool: "feed"},
		Options: replay.Options{Pace: 1_000_000_000, Slices: 1, Refill: 1, MaxLoad: "1000000000"},
	})
	if err != nil {
		t.Fatal(err)
	}
	p.Write(changelog.NamesFor(p.Config.Kafka.TopicPrefix).Control, "bench", string(value))
}

func flushResult(t *testing.T, told *ear) (result replay.Result) {
	t.Helper()
	harness.AwaitProgress(t, "the end of the flush", func() (ok bool, state string) {
		told.each(func(r replay.Record) {
			switch r := r.(type) {
			case replay.Result:
				if r.ID == "bench" {
					result, ok = r, true
				}
			case replay.Progress:
				line, _ := json.Marshal(r)
				state = string(line)
			}
		})
		return ok, state
	})
	return result
}

// roundBegan is when the worker began to flush, once the request was a job and settle had passed.
func roundBegan(t *testing.T, worker *harness.Process) time.Time {
	t.Helper()
	for line := range strings.Lines(worker.Log()) {
		if stamp, of, _ := strings.Cut(line, " "); strings.Contains(of, "a round of a flush begins") {
			at, err := time.Parse("time="+time.RFC3339Nano, stamp)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
	}
	t.Fatal("the worker's log does not say when the round began")
	return time.Time{}
}

// dumpAndDiscard is how long a node takes to dump its keys to who throws them away, and how many they are. It waits until the node's crawler is done with what it does for the
// node itself, which is more after a flush.
func dumpAndDiscard(t *testing.T, node *harness.Node) (took time.Duration, keys int) {
	t.Helper()
	harness.Await(t, "the crawler of "+node.Addr+" to be at rest", func() (ok bool, state string) {
		took, keys, ok = tryDump(t, node)
		return ok, "it is busy"
	})
	return took, keys
}

func tryDump(t *testing.T, node *harness.Node) (took time.Duration, keys int, ok bool) {
	t.Helper()
	c, err := net.Dial("tcp", node.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	if err := c.SetDeadline(began.Add(harness.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("lru_crawler metadump hash\r\n")); err != nil {
		t.Fatal(err)
	}
	const mark = "END\r\n"
	buf, kept := make([]byte, len(mark)+1<<20), 0 // what may be the beginning of mark is kept
	for {
		n, err := c.Read(buf[kept:])
		if err != nil {
			t.Fatalf("reading a dump: %v", err)
		}
		got := buf[:kept+n]
		if keys == 0 && bytes.HasPrefix(got, []byte("BUSY")) {
			return 0, 0, false
		}
		keys += bytes.Count(got[kept:], []byte("\n"))
		if bytes.HasSuffix(got, []byte(mark)) {
			return time.Since(began), keys - 1, true
		}
		kept = copy(buf, got[max(0, len(got)-len(mark)):])
	}
}
