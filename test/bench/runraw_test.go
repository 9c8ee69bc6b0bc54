//go:build bench

package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

const (
	rawConns    = 2    // a node, as many as a worker has
	rawBatch    = 1024 // deletes, as many as a worker's
	rawWarmUp   = 20   // one batch in so many is sent before the clock starts
	loopWorkers = 16   // goroutines of the plain loop, and its idle connections a node
)

// raw is the limit: franz-go consuming the backlog and discarding it, and then the same number of copies deleted by the bare wire, with the
// connections and batches of a worker. In deletes a second.
func (b *runBench) raw(t *testing.T) float64 {
	t.Helper()
	consumed := b.discard(t)
	b.prepare(t, emptied, 0)
	deleted := b.bareWire(t)
	report(t, plain("run.raw_consume_records_per_s", float64(b.n)/consumed.Seconds(), "records/s"))
	report(t, plain("run.raw_wire_deletes_per_s", float64(b.n*copiesEach)/deleted.Seconds(), "deletes/s"))
	return float64(b.n*copiesEach) / (consumed + deleted).Seconds()
}

// discard is how long the backlog takes to be read, from the first records to the last.
func (b *runBench) discard(t *testing.T) time.Duration {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.ConsumeTopics(b.topic),
		kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxBytes(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var begin time.Time
	first, n := 0, 0
	for n < b.n {
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		n += cl.PollFetches(ctx).NumRecords()
		cancel()
		if t.Context().Err() != nil {
			t.Fatal("the test ended while a backlog was read")
		}
		if begin.IsZero() && n > 0 {
			begin, first = time.Now(), n
		}
	}
	return time.Duration(float64(time.Since(begin)) * float64(n) / float64(max(1, n-first)))
}

// bareWire is how long all copies take to be deleted by quiet deletes that stand ready in memory.
func (b *runBench) bareWire(t *testing.T) time.Duration {
	t.Helper()
	type link struct {
		c       net.Conn
		r       *bufio.Reader
		batches []string
	}
	var links []*link
	for i, keys := range b.copies(b.n) {
		for part := range rawConns {
			c, err := net.Dial("tcp", b.nodes[i].Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			l := &link{c: c, r: bufio.NewReader(c)}
			for from := part * rawBatch; from < len(keys); from += rawConns * rawBatch {
				var batch strings.Builder
				for _, k := range keys[from:min(len(keys), from+rawBatch)] {
					batch.WriteString("md " + k + " q\r\n")
				}
				l.batches = append(l.batches, batch.String()+"mn\r\n")
			}
			links = append(links, l)
		}
	}
	send := func(l *link, batches []string) error {
		for _, batch := range batches {
			if _, err := l.c.Write([]byte(batch)); err != nil {
				return err
			}
			for {
				line, err := l.r.ReadSlice('\n')
				if err != nil {
					return err
				}
				if string(line) == "MN\r\n" {
					break
				}
			}
		}
		return nil
	}
	run := func(part func(*link) []string) time.Duration {
		var eg errgroup.Group
		begin := time.Now()
		for _, l := range links {
			eg.Go(func() error { return send(l, part(l)) })
		}
		if err := eg.Wait(); err != nil {
			t.Fatal(err)
		}
		return time.Since(begin)
	}
	run(func(l *link) []string { return l.batches[:len(l.batches)/rawWarmUp] })
	return run(func(l *link) []string { return l.batches })
}

// plainLoop is what teams write: a consumer loop that decodes each record into maps, renders its keys, deletes each copy with gomemcache by 16
// goroutines, and commits after each batch. In deletes a second, of a part of the backlog.
func (b *runBench) plainLoop(t *testing.T, keys string) float64 {
	t.Helper()
	n := b.n / plainPart
	b.prepare(t, keys, b.n)
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.ConsumerGroup(b.p.ID+"."+harness.Unique()), kgo.ConsumeTopics(b.topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	clients := make([]*memcache.Client, len(b.nodes))
	for i, node := range b.nodes {
		clients[i] = memcache.New(node.Addr)
		clients[i].MaxIdleConns = loopWorkers
		defer clients[i].Close()
	}
	var failed atomic.Pointer[error]
	fail := func(err error) { failed.CompareAndSwap(nil, &err) }
	done := meter(t, b.nodes, n*copiesEach)
	stop := background(func(ctx context.Context) {
		for ctx.Err() == nil {
			if err := b.plainBatch(ctx, cl, clients); err != nil && ctx.Err() == nil {
				fail(err)
				return
			}
		}
	})
	rate := done()
	stop()
	if err := failed.Load(); err != nil {
		t.Fatal(*err)
	}
	return rate
}

type plainCopy struct {
	client *memcache.Client
	key    string
}

func (b *runBench) plainBatch(ctx context.Context, cl *kgo.Client, clients []*memcache.Client) error {
	fs := cl.PollFetches(ctx)
	if err := fs.Err(); err != nil {
		return err
	}
	copies := make(chan plainCopy, loopWorkers)
	var eg errgroup.Group
	for range loopWorkers {
		eg.Go(func() error {
			var failed error
			for c := range copies {
				if err := c.client.Delete(c.key); err != nil && err != memcache.ErrCacheMiss {
					failed = err
				}
			}
			return failed
		})
	}
	var bad error
	fs.EachRecord(func(r *kgo.Record) {
		var change map[string]any
		if err := json.Unmarshal(r.Value, &change); err != nil {
			bad = err
			return
		}
		keys := map[string]bool{}
		for _, image := range []string{"before", "after"} {
			if row, ok := change[image].(map[string]any); ok {
				keys[fmt.Sprintf("user:%.0f", row["id"])] = true
				keys[fmt.Sprintf("user:by-email:%s", strings.ToLower(row["email"].(string)))] = true
			}
		}
		for k := range keys {
			i := 2 * b.ring.Owner(sink.Hash(k))
			copies <- plainCopy{clients[i], k}
			copies <- plainCopy{clients[i+1], k}
		}
	})
	close(copies)
	if err := eg.Wait(); err != nil {
		return err
	}
	if bad != nil {
		return bad
	}
	return cl.CommitUncommittedOffsets(ctx)
}
