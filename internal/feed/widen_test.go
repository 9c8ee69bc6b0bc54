package feed

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc"
)

// widened is a fake feeder that is told what was included, and tells its lag.
type widened struct {
	*fakeFeeder
	mu      sync.Mutex
	earlier []string // which of users and orders were, at each Widen
	lag     cdc.Lag
	away    error
}

func (w *widened) Widen(earlier *cdc.Include) {
	w.mu.Lock()
	defer w.mu.Unlock()
	said := ""
	for _, t := range []string{"users", "orders"} {
		if earlier.Match("shop", t) {
			said += t + " "
		}
	}
	if earlier == nil {
		said = "the same"
	}
	w.earlier = append(w.earlier, said)
}

func (w *widened) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.earlier[len(w.earlier)-1]
}

func (w *widened) Lag(context.Context, cdc.Position) (cdc.Lag, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lag, w.away
}

// A source that includes more than before tells its feeder so until a position is saved: a crash before tells again.
func TestAWidenedIncludeIsToldUntilAPositionIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		start := func(f *fakeFeeder, include ...string) (*widened, func() error) {
			w := &widened{fakeFeeder: f}
			s := shop(w)
			s.Include = include
			stop := b.start(s)
			time.Sleep(5 * time.Second)
			return w, stop
		}
		f := newFakeFeeder()
		w, stop := start(f, "shop.users")
		f.commit()
		time.Sleep(time.Second)
		if w.last() != "the same" {
			t.Errorf("a new source included %q before", w.last())
		}
		_ = stop()
		for range 2 { // nothing is saved in the first round
			w, stop := start(f, "shop.users", "shop.orders")
			if w.last() != "users " {
				t.Errorf("told %q, want users alone", w.last())
			}
			_ = stop()
		}
		_, stop = start(f, "shop.users", "shop.orders")
		f.commit()
		time.Sleep(time.Second)
		_ = stop()
		if w, stop = start(f, "shop.users", "shop.orders"); w.last() != "the same" {
			t.Errorf("told %q after a position was saved", w.last())
		}
		_ = stop()
	})
}

// What the source says of its lag is shown, and stays where it cannot be asked.
func TestLagIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		m, err := NewMetrics(reg)
		if err != nil {
			t.Fatal(err)
		}
		b, f := newBench(t), newFakeFeeder()
		b.metrics = m
		w := &widened{fakeFeeder: f, lag: cdc.Lag{Bytes: 7, Retained: 8, Safe: 9}}
		b.start(shop(w))
		f.commit()
		time.Sleep(2 * lagEvery)
		w.mu.Lock()
		w.lag, w.away = cdc.Lag{}, errors.New("connection refused")
		w.mu.Unlock()
		time.Sleep(2 * lagEvery)
		got := gathered(t, reg)
		for name, want := range map[string]float64{"lag": 7, "retained": 8, "safe": 9} {
			if n := got["invalidator_feed_"+name+"_bytes source=shop"]; n != want {
				t.Errorf("%s is %v, want %v", name, n, want)
			}
		}
	})
}
