//go:build bench

package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

const (
	trafficTick   = 10 * time.Millisecond // changes are produced in so many steps
	probers       = 4                     // probes at a time
	probeEvery    = time.Millisecond      // a probe looks for its key
	probePatience = 30 * time.Second
	firstProbe    = 1 << 30 // id: traffic has lower ones
)

// traffic is changes that come all the time, and among them probes: keys that are set on every node that they belong to, and then changed.
type traffic struct {
	cl     *kgo.Client
	owners func(key string) []*harness.Node
	next   int          // id
	ids    atomic.Int64 // of probes
	end    func()

	mu     sync.Mutex // guards what follows
	probes []probe    // that have ended
	failed error
}

// probe is how long a change took until every copy of its key was gone.
type probe struct {
	at   time.Time
	took time.Duration
}

// newTraffic begins it, of rate changes a second, of rows from an id on. It goes on until stop is called, or the test ends.
func newTraffic(t *testing.T, topic string, first, rate int, owners func(key string) []*harness.Node) *traffic {
	t.Helper()
	l := &traffic{owners: owners, next: first}
	l.ids.Store(firstProbe)
	var err error
	l.cl, err = kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(1<<16), kgo.ProducerLinger(0))
	if err != nil {
		t.Fatal(err)
	}
	rate /= shrink(t)
	var stops []func()
	stops = append(stops, background(func(ctx context.Context) { l.write(ctx, rate) }))
	for range probers {
		stops = append(stops, background(l.probe))
	}
	l.end = sync.OnceFunc(func() {
		for _, stop := range stops {
			stop()
		}
		l.cl.Close()
	})
	t.Cleanup(l.end)
	return l
}

func (l *traffic) stop() { l.end() }

// write produces so many changes a second. Where that is more than the machine can do, what is behind follows at once.
func (l *traffic) write(ctx context.Context, rate int) {
	tick := time.NewTicker(trafficTick)
	defer tick.Stop()
	began := time.Now()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := time.Now()
		for due := int(now.Sub(began).Seconds() * float64(rate)); n < due; n++ {
			l.produce(l.next+n, now)
		}
	}
}

func (l *traffic) produce(id int, at time.Time) {
	r := &kgo.Record{Key: fmt.Appendf(nil, `{"id":%d}`, id), Value: userChange(id, at), Timestamp: at}
	l.cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
		if err != nil {
			l.fail(fmt.Errorf("producing: %w", err))
		}
	})
}

// probe makes one after the other.
func (l *traffic) probe(ctx context.Context) {
	for ctx.Err() == nil {
		id := int(l.ids.Add(1))
		p, err := l.probeOne(id)
		if err != nil {
			l.fail(err)
			return
		}
		l.mu.Lock()
		l.probes = append(l.probes, p)
		l.mu.Unlock()
	}
}

func (l *traffic) probeOne(id int) (probe, error) {
	key, _ := userKeys(id)
	nodes := l.owners(key)
	for _, n := range nodes {
		if err := n.Set(key, "v"); err != nil {
			return probe{}, fmt.Errorf("setting a probe: %w", err)
		}
	}
	p := probe{at: time.Now()}
	l.produce(id, p.at)
	for _, n := range nodes {
		for {
			h, err := n.Get(key)
			if err != nil {
				return probe{}, fmt.Errorf("looking for a probe: %w", err)
			}
			if p.took = time.Since(p.at); !h.Found {
				break
			}
			if p.took > probePatience {
				return probe{}, fmt.Errorf("%s is on %s %s after its change", key, n.Addr, p.took)
			}
			<-time.After(probeEvery)
		}
	}
	return p, nil
}

func (l *traffic) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = errors.Join(l.failed, err)
}

// since are the probes that began at a time or later and have ended.
func (l *traffic) since(at time.Time) []probe {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.probes), func(p probe) bool { return p.at.Before(at) })
}

// awaitFresh waits until the worker keeps up.
func (l *traffic) awaitFresh(t *testing.T) {
	t.Helper()
	harness.Await(t, "the worker to keep up", func() (bool, string) {
		last := l.since(time.Now().Add(-time.Second))
		if len(last) < keptUp {
			return false, fmt.Sprintf("%d probes ended in the last second", len(last))
		}
		slow := slices.MaxFunc(last[len(last)-keptUp:], func(a, b probe) int { return int(a.took - b.took) })
		return slow.took <= keepsUp, fmt.Sprintf("one of the last probes took %s", slow.took)
	})
}

// p99 is the 99th percentile, in ms, of the probes that began between two times. It waits for those that have not ended.
func (l *traffic) p99(t *testing.T, from, to time.Time) float64 {
	t.Helper()
	harness.Await(t, "the probes to end", func() (bool, string) { return len(l.since(to)) >= 2*probers, "" })
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		t.Fatal(l.failed)
	}
	var took []time.Duration
	for _, p := range l.probes {
		if !p.at.Before(from) && !p.at.After(to) {
			took = append(took, p.took)
		}
	}
	if len(took) == 0 {
		t.Fatal("no probe began in that time")
	}
	slices.Sort(took)
	t.Logf("%d probes", len(took))
	return float64(took[int(0.99*float64(len(took)-1))].Microseconds()) / 1000
}
