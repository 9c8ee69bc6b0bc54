package feed

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/cdc"
)

// says fails the test unless a feed gives exactly one reason that contains want; none where want is empty.
func (b *bench) says(f *Feed, want string) {
	b.t.Helper()
	switch got := f.Waits(); {
	case want == "" && len(got) > 0:
		b.t.Errorf("it says %q and serves", got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		b.t.Errorf("it says %q, want %q", got, want)
	}
}

// A feeder serves while it leads and feeds, or stands by for who does; whatever keeps it from that is said.
func TestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		whole := b.Options
		var net cut
		net.away.Store(true)
		b.Options.Dial = net.dialer(whole.Dial)
		b.start(shop(f))
		first := b.feed
		time.Sleep(time.Minute)
		b.says(first, "source shop: the group of its feeders has not taken this process in")
		net.away.Store(false)
		time.Sleep(30 * time.Second)
		b.says(first, "")

		fault := b.Fault(produceFault("", kerr.NotEnoughReplicas))
		f.commit(insert("1"))
		time.Sleep(time.Minute)
		b.says(first, "source shop: Kafka acknowledges nothing")
		fault.Remove()
		time.Sleep(30 * time.Second)
		b.says(first, "")

		b.Options = whole
		b.start(shop(f))
		second := b.feed
		time.Sleep(5 * time.Second)
		b.says(first, "")
		b.says(second, "")
		net.away.Store(true) // for longer than a session
		time.Sleep(time.Minute)
		b.says(first, "the group of its feeders has not taken this process in")
		b.says(second, "")
	})
}

// A source that this process leads and does not feed is said, by the reason where a person must act.
func TestWaitsForASource(t *testing.T) {
	for _, tc := range []struct {
		err  *cdc.SourceError
		want string
	}{
		{&cdc.SourceError{Source: "shop", Err: errors.New("refused"), Hint: "check the network", Retry: true}, "source shop: this process leads it and does not feed it"},
		{&cdc.SourceError{Source: "shop", Err: errors.New("no right"), Hint: "grant it"}, "source shop stands: "},
	} {
		synctest.Test(t, func(t *testing.T) {
			b, f := newBench(t), newFakeFeeder()
			f.set(tc.err)
			b.start(shop(f))
			time.Sleep(time.Minute)
			b.says(b.feed, tc.want)
			f.set(nil)
			time.Sleep(2 * time.Minute)
			b.says(b.feed, "")
		})
	}
}

// Who stands by shows nothing of the time when it led: an alert would stand on it.
func TestStandingByShowsNoLimit(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	s := m.of("shop")
	is := func(when string, want float64) {
		t.Helper()
		if got := gathered(t, reg)["invalidator_feed_safe_bytes source=shop"]; got != want {
			t.Errorf("%s it shows %v, want %v", when, got, want)
		}
	}
	is("before it leads", noLimit)
	s.safe.Set(1 << 20)
	is("while it leads", 1<<20)
	s.standsBy()
	is("when it has led", noLimit)
}
