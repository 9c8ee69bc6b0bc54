package memcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"invalidator/internal/obs/obstest"
	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deadline is how long a test waits for what must happen.
const deadline = 10 * time.Second

// quick is what a test sets to see many retries in little time.
var quick = Options{Timeout: 100 * time.Millisecond, BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond}

type ack struct {
	sink.Copy
	err error
}

// acks is a Waiter that keeps what it is told.
type acks chan ack

func (a acks) Acked(c sink.Copy, err error) { a <- ack{c, err} }

// want waits for n acknowledgements and fails on a refused one. A key that was acknowledged twice fails too.
func (a acks) want(t *testing.T, n int) {
	t.Helper()
	seen := make(map[sink.Copy]bool)
	for range n {
		got := a.next(t)
		if got.err != nil {
			t.Fatalf("%s on %s: %v", got.Key, got.Node, got.err)
		}
		if seen[got.Copy] {
			t.Fatalf("%s on %s was acknowledged twice", got.Key, got.Node)
		}
		seen[got.Copy] = true
	}
	a.none(t)
}

func (a acks) next(t *testing.T) ack {
	t.Helper()
	select {
	case got := <-a:
		return got
	case <-time.After(deadline):
		t.Fatal("no acknowledgement came")
		return ack{}
	}
}

func (a acks) none(t *testing.T) {
	t.Helper()
	select {
	case got := <-a:
		t.Fatalf("%q on %s was acknowledged: %v", got.Key, got.Node, got.err)
	default:
	}
}

// start runs a client until the test ends. Where the test does not say after how much lag a node goes off, none does.
func start(t testing.TB, opts Options) (*Client, *obstest.Log) {
	t.Helper()
	setDefault(&opts.MaxLag, time.Hour)
	logged := new(obstest.Log)
	c := New(opts, slog.New(slog.NewTextHandler(logged, nil)))
	run(t, c)
	return c, logged
}

func run(t testing.TB, c *Client) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(deadline); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %s", what, deadline)
		}
		<-time.After(time.Millisecond)
	}
}

// fill stores keys k0 … on the server and returns all of their names, and as many that are not there.
func fill(s *memcachetest.Server, n int) (keys []string) {
	for i := range n {
		s.Set(fmt.Sprintf("user:%d", i), "old")
		keys = append(keys, fmt.Sprintf("user:%d", i), fmt.Sprintf("absent:%d", i))
	}
	return keys
}

func deleteAll(t *testing.T, c *Client, node string, keys []string) acks {
	t.Helper()
	return deleteIn(t, c, sink.Live, node, keys)
}

func deleteIn(t *testing.T, c *Client, l sink.Lane, node string, keys []string) acks {
	t.Helper()
	w := make(acks, 2*len(keys)+1)
	for _, key := range keys {
		if err := c.Delete(t.Context(), l, sink.Copy{Node: node, Key: key}, w); err != nil {
			t.Fatalf("Delete(%s): %v", key, err)
		}
	}
	return w
}

// bothProtocols runs a test on each.
func bothProtocols(t *testing.T, opts Options, f func(t *testing.T, opts Options)) {
	for _, p := range []Protocol{Meta, Classic} {
		t.Run(string(p), func(t *testing.T) {
			opts.Protocol = p
			f(t, opts)
		})
	}
}

func TestDelete(t *testing.T) {
	bothProtocols(t, Options{}, func(t *testing.T, opts Options) {
		a, b := memcachetest.Start(t), memcachetest.Start(t)
		c, _ := start(t, opts)
		onA := deleteAll(t, c, a.Addr(), fill(a, 3000))
		onB := deleteAll(t, c, b.Addr(), fill(b, 100))
		onA.want(t, 6000)
		onB.want(t, 200)
		if n := a.Len() + b.Len(); n != 0 {
			t.Errorf("%d keys are still there", n)
		}
		for _, st := range c.Nodes() {
			if st.Queued != 0 || st.QueuedBytes != 0 || !st.OldestSince.IsZero() || !st.Connected || st.LastError != "" || st.LastAck.IsZero() {
				t.Errorf("state of a node that owes nothing: %+v", st)
			}
		}
	})
}

func TestDeleteBeforeRunWaitsInTheQueue(t *testing.T) {
	node := memcachetest.Start(t)
	c := New(Options{}, slog.New(slog.DiscardHandler))
	w := deleteAll(t, c, node.Addr(), fill(node, 10))
	if st := c.Nodes()[0]; st.Queued != 20 || st.OldestSince.IsZero() || st.Connected {
		t.Errorf("state before Run: %+v", st)
	}
	run(t, c)
	w.want(t, 20)
}

func TestH1_KeysThatNoCommandCanCarryNeverReachTheWire(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		node := memcachetest.Start(t)
		node.Set("good", "old")
		c, _ := start(t, opts)
		long := strings.Repeat("k", 250)
		bad := []string{"", long + "k", strings.Repeat("q", 300), "good " + long[:182]}
		if opts.Protocol == Classic { // meta has base64 for them
			bad = append(bad, "a b", "a\tb", "a\r\nflush_all\r\n", "good\x00x", "a\x7f")
		}
		w := make(acks, 100)
		for _, key := range append(bad, "good", long) {
			if err := c.Delete(t.Context(), sink.Live, sink.Copy{Node: node.Addr(), Key: key}, w); err != nil {
				t.Fatal(err)
			}
		}
		refused := make(map[string]bool)
		for range len(bad) + 2 {
			got := w.next(t)
			var refusal *sink.RefusedError
			if errors.As(got.err, &refusal) {
				refused[refusal.Copy.Key] = true
			} else if got.Key != "good" && got.Key != long {
				t.Errorf("%q: %v", got.Key, got.err)
			}
		}
		for _, key := range bad {
			if !refused[key] {
				t.Errorf("%q was not refused", key)
			}
		}
		if _, there := node.Get("good"); there {
			t.Error("a good key in the same batch was not deleted")
		}
	})
}

func TestH2_UTF8KeysGoAsTheyAre(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		node := memcachetest.Start(t)
		c, _ := start(t, opts)
		nfc, nfd := "u:Zo\u00eb", "u:Zoe\u0308"
		node.Set(nfc, "old")
		node.Set(nfd, "old")
		deleteAll(t, c, node.Addr(), []string{nfc}).want(t, 1)
		if _, there := node.Get(nfd); !there {
			t.Error("the decomposed form is another key, and was deleted too")
		}
		emoji := strings.Repeat("\U0001F600", 83)
		if got := deleteAll(t, c, node.Addr(), []string{emoji}).next(t); got.err == nil {
			t.Error("83 characters of 332 bytes were not refused: the limit counts bytes")
		}
	})
}

func TestH3_ConnectionsAreCapped(t *testing.T) {
	bothProtocols(t, Options{ConnsPerNode: 3}, func(t *testing.T, opts Options) {
		node := memcachetest.Start(t)
		c, _ := start(t, opts)
		keys := fill(node, 1000)
		w := make(acks, len(keys)+1)
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				for _, key := range keys[i*10 : i*10+10] {
					if err := c.Delete(t.Context(), sink.Live, sink.Copy{Node: node.Addr(), Key: key}, w); err != nil {
						t.Error(err)
					}
				}
			})
		}
		callers.Wait()
		w.want(t, len(keys))
		if _, total := node.Conns(); total > 3 {
			t.Errorf("%d connections were made, the cap is 3", total)
		}
	})
}

func TestH5_ADeadNodeSlowsNoOther(t *testing.T) {
	bothProtocols(t, Options{QueueBytes: 1 << 20, MaxLag: 10 * time.Second}, func(t *testing.T, opts Options) {
		dead, alive := memcachetest.Start(t), memcachetest.Start(t)
		dead.Intercept(func(int, string) memcachetest.Reply { return memcachetest.Reply{Then: memcachetest.Stall} })
		c, _ := start(t, opts)
		owed := deleteAll(t, c, dead.Addr(), fill(dead, 500))
		began := time.Now()
		for i := range 200 { // one at a time: a wait for the dead node's timeout (1 s) would show in any of them
			deleteAll(t, c, alive.Addr(), []string{fmt.Sprint("k", i)}).want(t, 1)
		}
		if took := time.Since(began); took > opts.Timeout+time.Second {
			t.Errorf("200 round trips to a node that answers took %s", took)
		}
		owed.none(t)
		for _, st := range c.Nodes() {
			if owes := st.Node == dead.Addr(); owes != (st.Queued == 1000) || owes == st.OldestSince.IsZero() {
				t.Errorf("state: %+v", st)
			}
		}
	})
}

func TestALaneIsFullThenDrains(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		opts.QueueBytes = 500 * lowerPart
		node := memcachetest.Start(t)
		node.Intercept(func(int, string) memcachetest.Reply { return memcachetest.Reply{Then: memcachetest.Hangup} })
		c, _ := start(t, opts)
		w := make(acks, 1000)
		full := 0
		for err := error(nil); err == nil; full++ {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err = c.Delete(ctx, sink.Debts, sink.Copy{Node: node.Addr(), Key: fmt.Sprint("k", full)}, w)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
		}
		if st := c.Nodes()[0]; full < 3 || st.QueuedBytes > 500 || st.LaneBytes[sink.Debts] != st.QueuedBytes {
			t.Fatalf("the lane of 500 bytes took %d deletes: %+v", full-1, st)
		}
		waiting := make(chan error)
		go func() {
			waiting <- c.Delete(t.Context(), sink.Debts, sink.Copy{Node: node.Addr(), Key: "last"}, w)
		}()
		deleteIn(t, c, sink.Replay, node.Addr(), []string{"another lane has room"})
		node.Intercept(nil)
		if err := <-waiting; err != nil {
			t.Fatal(err)
		}
		w.want(t, full)
	})
}

func TestAKeyLargerThanItsLaneIsTakenAlone(t *testing.T) {
	opts := quick
	opts.QueueBytes, opts.TotalBytes = 10, 10
	node := memcachetest.Start(t)
	c, _ := start(t, opts)
	deleteIn(t, c, sink.Debts, node.Addr(), fill(node, 20)).want(t, 40)
	for i := range 20 {
		deleteAll(t, c, node.Addr(), []string{fmt.Sprint("live", i)}).want(t, 1)
	}
}

func TestEndWhileRetrying(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		opts.QueueBytes = 500 * lowerPart
		refusing, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		refusing.Close()
		stalling := memcachetest.Start(t)
		stalling.Intercept(func(int, string) memcachetest.Reply { return memcachetest.Reply{Then: memcachetest.Stall} })
		opts.Timeout, opts.MaxLag = time.Hour, time.Hour // only the end of Run can end an exchange
		for _, addr := range []string{refusing.Addr().String(), stalling.Addr()} {
			c := New(opts, slog.New(slog.DiscardHandler))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- c.Run(ctx) }()
			w := make(acks, 100)
			blocked := make(chan error)
			go func() {
				for i := 0; ; i++ {
					if err := c.Delete(t.Context(), sink.Debts, sink.Copy{Node: addr, Key: fmt.Sprint("k", i)}, w); err != nil {
						blocked <- err
						return
					}
				}
			}()
			eventually(t, "the queue is full", func() bool {
				nodes := c.Nodes()
				return len(nodes) == 1 && nodes[0].QueuedBytes > 400
			})
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
			if err := <-blocked; !errors.Is(err, ErrClosed) {
				t.Errorf("a Delete that waited for room ended with %v", err)
			}
			w.none(t)
		}
	})
}
