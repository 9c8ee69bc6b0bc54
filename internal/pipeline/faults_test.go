package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/sink"
)

// A client that is closed ends the partition: it neither issues the same round twice, which would count one acknowledgement for
// two copies, nor turns in circles, and the watermark stays.
func TestClosedClientEndsThePartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		nodes := &closingNodes{Deleter: r.nodes}
		r.w.opts.Deleter = nodes
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("1", "a@x.test", "a@x.test"))
		synctest.Wait()
		nodes.closed.Store(true)
		time.Sleep(10 * settle)
		synctest.Wait()
		if n := nodes.refused.Load(); n != 1 {
			t.Errorf("%d deletes were tried on a closed client, want 1", n)
		}
		r.wantMark(t, 0)
		r.w.Drain(t.Context()) // returns at once: nothing can be finished any more
	})
}

// A node that never answers, and whose queue is full, holds up neither a revoke nor a drain beyond its limit.
func TestFullNodeQueueEndsWithTheRevoke(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(*rig)
		max  time.Duration
	}{
		{"revoke", func(r *rig) { r.w.Revoke([]changelog.Partition{users}) }, 0},
		{"drain", func(r *rig) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			r.w.Drain(ctx)
		}, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.w.opts.Deleter = fullNodes{}
				r.w.Assign(users, 0, changelog.Restored{})
				r.send(0, update("1", "a@x.test", "a@x.test"))
				synctest.Wait()
				began := time.Now()
				tc.end(r)
				if took := time.Since(began); took > tc.max {
					t.Errorf("took %s, want at most %s", took, tc.max)
				}
			})
		})
	}
}

// A partition that comes back starts where it is told, whatever it was doing before, and old acknowledgements do not move it.
func TestAssignedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.nodes.hold("n1", true)
		r.w.Assign(users, 100, changelog.Restored{})
		r.send(100, update("1", "a@x.test", "a@x.test"))
		synctest.Wait()
		r.w.Assign(users, 0, changelog.Restored{})
		r.send(0, update("2", "a@x.test", "a@x.test"))
		synctest.Wait()
		r.wantMark(t, 0)
		r.nodes.hold("n1", false) // the old change's deletes are answered too
		time.Sleep(3 * settle)
		synctest.Wait()
		r.wantMark(t, 1)
	})
}

// What waits in memory for all partitions together is bounded: each partition's share is the smaller, the more there are.
func TestWhatWaitsIsSharedOut(t *testing.T) {
	r := newRig(t)
	for owned, want := range map[int64]int{0: 8 << 20, 1: 8 << 20, 24: 2 << 20, 256: 192 << 10, 10000: 64 << 10} {
		r.w.owned.Store(owned)
		if got := r.w.mayWait(); got != want {
			t.Errorf("%d partitions: %d bytes, want %d", owned, got, want)
		}
	}
	r.w.owned.Store(256)
	p, err := newPartition(r.w, r.w.opts.Sources[0], users, 0, changelog.Restored{})
	if err != nil {
		t.Fatal(err)
	}
	p.add([]changelog.Record{{Value: make([]byte, 192<<10)}})
	if !r.group.paused.Load() {
		t.Error("its fetches go on beyond its share")
	}
	p.next(1)
	if r.group.paused.Load() {
		t.Error("its fetches do not go on")
	}
}

// Fetches that were stopped go on, however the stopping and the going on meet.
func TestFetchesNeverStayStopped(t *testing.T) {
	r := newRig(t)
	big := make([]byte, pauseBytes)
	p, err := newPartition(r.w, r.w.opts.Sources[0], users, 0, changelog.Restored{})
	if err != nil {
		t.Fatal(err)
	}
	for range 5000 {
		var wg sync.WaitGroup
		wg.Go(func() { p.add([]changelog.Record{{Value: big}}) })
		wg.Go(func() {
			for p.waiting() == 0 {
				runtime.Gosched()
			}
			p.next(1)
		})
		wg.Wait()
		if r.group.paused.Load() {
			t.Fatal("nothing waits, and nothing is fetched")
		}
	}
}

// A gap that could not be recorded is an error, so that nothing is committed past it.
func TestLossThatIsNotRecorded(t *testing.T) {
	r := newRig(t)
	r.w.opts.Gaps = failingGaps{}
	if err := r.w.Lost(t.Context(), changelog.Loss{Partition: users, From: 1, To: 2}); err == nil {
		t.Error("want an error")
	}
}

// Two workers cannot share a metrics registry; the second says so instead of ending the process.
func TestMetricsRegisteredTwice(t *testing.T) {
	r := newRig(t)
	opts := r.w.opts
	opts.Registerer = prometheus.NewRegistry()
	if _, err := New(opts); err != nil {
		t.Fatal(err)
	}
	if _, err := New(opts); !errors.As(err, new(prometheus.AlreadyRegisteredError)) {
		t.Errorf("got %v", err)
	}
}

// closingNodes are a client that can be closed.
type closingNodes struct {
	sink.Deleter
	closed  atomic.Bool
	refused atomic.Int64
}

func (n *closingNodes) Delete(ctx context.Context, lane sink.Lane, c sink.Copy, w sink.Waiter) error {
	if n.closed.Load() {
		n.refused.Add(1)
		return errors.New("closed")
	}
	return n.Deleter.Delete(ctx, lane, c, w)
}

type fullNodes struct{}

func (fullNodes) Delete(ctx context.Context, _ sink.Lane, _ sink.Copy, _ sink.Waiter) error {
	<-ctx.Done()
	return ctx.Err()
}

func (fullNodes) MarkStale(ctx context.Context, lane sink.Lane, c sink.Copy, _ time.Duration, w sink.Waiter) error {
	return fullNodes{}.Delete(ctx, lane, c, w)
}

func (fullNodes) Probe(string, sink.Waiter) {}

type failingGaps struct{}

func (failingGaps) Record(context.Context, string, changelog.Loss) error { return errors.New("away") }

// instantNodes acknowledges at once, and keeps nothing.
type instantNodes struct{}

func (instantNodes) Delete(_ context.Context, _ sink.Lane, c sink.Copy, w sink.Waiter) error {
	w.Acked(c, nil)
	return nil
}

func (n instantNodes) MarkStale(ctx context.Context, lane sink.Lane, c sink.Copy, _ time.Duration, w sink.Waiter) error {
	return n.Delete(ctx, lane, c, w)
}

func (instantNodes) Probe(node string, w sink.Waiter) { w.Acked(sink.Copy{Node: node}, nil) }

// BenchmarkPartition takes a record from its arrival to the end of its second round: two keys on two nodes, eight deletes.
func BenchmarkPartition(b *testing.B) {
	r := newRig(b)
	r.w.opts.Deleter = instantNodes{}
	r.w.opts.Settle = 50 * time.Millisecond
	r.w.opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil))
	const different = 1024
	records := make([]changelog.Record, different)
	for i := range records {
		key, value, err := envelope.Encode(update(fmt.Sprint(i), "a@x.test", "a@x.test"), envelope.Options{}, nil)
		if err != nil {
			b.Fatal(err)
		}
		records[i] = changelog.Record{Key: key, Value: value}
	}
	r.w.Assign(users, 0, changelog.Restored{})
	p := r.w.partition(users)
	b.ReportAllocs()
	b.ResetTimer()
	for sent := int64(0); sent < int64(b.N); {
		n := min(int64(different), int64(b.N)-sent)
		batch := make([]changelog.Record, n)
		for i := range batch {
			batch[i] = records[i]
			batch[i].Offset = sent + int64(i)
		}
		sent += n
		for r.group.paused.Load() {
			time.Sleep(time.Millisecond)
		}
		r.w.Records(users, batch)
	}
	for p.mark.Load() < int64(b.N) {
		time.Sleep(time.Millisecond)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
}
