package feed

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"invalidator/cdc"
)

// Of two leaders the later one's generation is higher, whether it saw a position of the earlier one or only what that one saw.
func TestTheLaterLeadersGenerationIsHigher(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		found := rapid.Int64Range(0, 1<<50).Draw(t, "found")
		a := rapid.Int32Range(1, 1<<20-2).Draw(t, "a's group generation")
		b := rapid.Int32Range(a+1, 1<<20-1).Draw(t, "b's group generation")
		first := nextGeneration(found, a)
		if first <= found {
			t.Errorf("%d after %d", first, found)
		}
		saw := rapid.SampledFrom([]int64{found, first}).Draw(t, "what b found")
		if second := nextGeneration(saw, b); second <= first {
			t.Errorf("%d after %d", second, first)
		}
	})
}

// cut is a network that a test takes away.
type cut struct{ away atomic.Bool }

func (c *cut) dialer(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, host string) (net.Conn, error) {
		if c.away.Load() {
			return nil, errors.New("connection refused")
		}
		conn, err := dial(ctx, network, host)
		return cutConn{conn, c}, err
	}
}

type cutConn struct {
	net.Conn
	*cut
}

func (c cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.away.Load() {
		return 0, errors.New("connection reset")
	}
	return n, err
}

func (c cutConn) Write(b []byte) (int, error) {
	if c.away.Load() {
		return 0, errors.New("connection reset")
	}
	return c.Conn.Write(b)
}

// A leader that is cut off from the brokers for longer than its session: another takes over and gets on; when the first is
// back, it writes what it had again, at worst, and stands by. The position is the second one's.
func TestALeaderThatComesBackTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		whole := b.Options
		var net cut
		b.Options.Dial = net.dialer(whole.Dial)
		first := b.start(shop(f))
		b.Options = whole
		f.commit(insert("1"))
		time.Sleep(5 * time.Second)
		b.start(shop(f))
		time.Sleep(5 * time.Second)
		before := b.saved().Generation
		net.away.Store(true)
		f.commit(insert("2"))
		time.Sleep(10 * time.Second)
		f.commit(insert("3"))
		time.Sleep(time.Second)
		during := b.saved()
		if during.Position.Pos != 4 || during.Generation <= before {
			t.Fatalf("%+v, the generation was %d", during, before)
		}
		if n := len(b.log.With("took the source over")); n != 1 {
			t.Errorf("told %d times", n)
		}
		net.away.Store(false)
		time.Sleep(10 * time.Second)
		if n := len(b.log.With("no longer leads the source")); n != 1 {
			t.Errorf("told %d times", n)
		}
		f.commit(insert("4"))
		time.Sleep(time.Second)
		if p := b.saved(); p.Position.Pos != 5 || p.Generation != during.Generation {
			t.Errorf("%+v", p)
		}
		seen := map[string]bool{}
		for _, r := range b.Records(t, usersTopic) {
			seen[string(r.Key)] = true
		}
		if len(seen) != 4 {
			t.Errorf("%d rows", len(seen))
		}
		if err := first(); err != nil {
			t.Error(err)
		}
	})
}

// A leader whose connection to the source is cut while the brokers cannot be asked begins no run: another may lead, and the two
// would fight for the slot.
func TestNoRunBeginsWithoutBeingSure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		whole := b.Options
		var net cut
		b.Options.Dial = net.dialer(whole.Dial)
		var runs atomic.Int64
		cutSource := make(chan struct{}, 1)
		feeder := feederFunc(func(ctx context.Context, from cdc.Position, out cdc.Handler) error {
			runs.Add(1)
			from.Pos++
			if err := out.Started(ctx, from); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-cutSource:
				return &cdc.SourceError{Source: "shop", Err: errors.New("another reader"), Retry: true}
			}
		})
		b.start(Source{Name: "shop", Feeder: feeder})
		time.Sleep(30 * time.Second)
		net.away.Store(true)
		time.Sleep(time.Minute)
		if n := runs.Load(); n != 1 {
			t.Fatalf("%d runs: one that is under way goes on", n)
		}
		cutSource <- struct{}{}
		time.Sleep(time.Minute)
		if n := runs.Load(); n != 1 {
			t.Errorf("%d runs", n)
		}
		net.away.Store(false)
		time.Sleep(30 * time.Second)
		if n := runs.Load(); n != 2 {
			t.Errorf("%d runs after the brokers were back", n)
		}
	})
}

// Sources of one process are led one by one; a source in trouble keeps no other from being taken over.
func TestTwoProcessesShareWhatAThirdLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		feeders := map[string]*fakeFeeder{}
		var sources []Source
		for _, name := range []string{"one", "two", "three", "four", "five", "six"} {
			feeders[name] = newFakeFeeder()
			sources = append(sources, Source{Name: name, Feeder: feeders[name]})
		}
		first := b.start(sources...)
		time.Sleep(5 * time.Second)
		b.start(sources...)
		b.start(sources...)
		time.Sleep(5 * time.Second)
		if n := len(b.log.With("took the source over")); n != 0 {
			t.Errorf("%d sources were moved because others joined", n)
		}
		if err := first(); err != nil {
			t.Error(err)
		}
		for _, f := range feeders {
			f.commit(insert("1"))
		}
		time.Sleep(5 * time.Second)
		var from []string
		for _, line := range b.log.With("took the source over") {
			_, who, _ := strings.Cut(line, "from=")
			from = append(from, strings.TrimSpace(who))
		}
		if len(from) != len(sources) || len(slices.Compact(from)) != 1 || from[0] != "p1" {
			t.Errorf("taken over from %s", from)
		}
		for name := range feeders {
			if n := len(b.Records(t, name+".shop.users")); n != 1 {
				t.Errorf("%s: %d records", name, n)
			}
		}
	})
}
