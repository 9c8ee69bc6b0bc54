package memcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
)

// wire is the far side of a client in a synctest bubble: what its nodes do is set by the test, and no socket is opened.
type wire struct {
	mu    sync.Mutex
	nodes map[string]*wireNode
}

// wireNode is one node there. The zero value answers at once.
type wireNode struct {
	ip      netip.Addr    // that a connection leads to
	names   []netip.Addr  // that its name has
	dead    bool          // nothing is answered, and connecting takes until its time is up
	refuse  bool          // connecting fails at once
	delay   time.Duration // of each answer
	open    int           // connections
	opened  int           // connections that ever were
	tries   int           // connects, those that failed too
	most    int           // connections at once
	asked   int           // exchanges, without those of a connect
	part    int           // so many of a batch are answered, and then the connection fails; 0: all
	stuck   string        // a key whose exchange is never answered
	errs    lines         // keys whose deletes are answered with a line of their own
	written [][]string    // the keys of each exchange that was answered
}

type lines map[string]string

func (w *wire) set(addr string, f func(n *wireNode)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.node(addr))
}

func (w *wire) node(addr string) *wireNode {
	if w.nodes == nil {
		w.nodes = make(map[string]*wireNode)
	}
	if w.nodes[addr] == nil {
		w.nodes[addr] = new(wireNode)
	}
	return w.nodes[addr]
}

func (w *wire) get(addr string) wireNode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.node(addr)
}

// client is one whose far side is the wire.
func (w *wire) client(opts Options) *Client {
	c := New(opts, discard)
	c.open = w.open
	c.lookup = func(ctx context.Context, name string) ([]netip.Addr, error) { return w.get(name).names, nil }
	return c
}

// open is Client.open's stand-in.
func (w *wire) open(ctx context.Context, addr string) (link, error) {
	w.set(addr, func(n *wireNode) { n.tries++ })
	n := w.get(addr)
	switch {
	case n.refuse:
		return nil, errors.New("connection refused")
	case n.dead:
		if !sleep(ctx, time.Second) {
			return nil, ctx.Err()
		}
		return nil, errors.New("i/o timeout")
	}
	w.set(addr, func(n *wireNode) { n.open++; n.opened++; n.most = max(n.most, n.open) })
	return &wireLink{wire: w, addr: addr, ctx: ctx, ip: n.ip}, nil
}

type wireLink struct {
	wire *wire
	addr string
	ctx  context.Context // its end closes the connection
	ip   netip.Addr
}

func (l *wireLink) exchange(batch []entry, careful bool) (int, error) {
	n := l.wire.get(l.addr)
	l.wire.set(l.addr, func(n *wireNode) { n.asked++ })
	if n.dead {
		n.delay = time.Second
	}
	if n.delay > 0 && !sleep(l.ctx, n.delay) {
		return 0, net.ErrClosed
	}
	if now := l.wire.get(l.addr); n.dead || now.refuse {
		return 0, errors.New("i/o timeout")
	}
	var keys []string
	for i, e := range batch {
		if line, ok := n.errs[e.key]; ok {
			if !careful {
				i = 0
			}
			l.wire.set(l.addr, func(n *wireNode) { n.written = append(n.written, keys[:i]) })
			return i, &answerError{line}
		}
		keys = append(keys, e.key)
		if n.stuck == e.key {
			sleep(l.ctx, time.Hour)
			return 0, net.ErrClosed
		}
	}
	if n.part > 0 && n.part < len(batch) {
		return n.part, errors.New("connection reset")
	}
	l.wire.set(l.addr, func(n *wireNode) { n.written = append(n.written, keys) })
	return len(batch), nil
}

func (l *wireLink) classic() bool      { return false }
func (l *wireLink) remote() netip.Addr { return l.ip }
func (l *wireLink) close()             { l.wire.set(l.addr, func(n *wireNode) { n.open-- }) }

// turn is what OnOff told.
type turn struct {
	node string
	on   bool
	at   time.Duration // since the start
}

// bubble runs f beside a client whose far side is the wire.
func bubble(t *testing.T, opts Options, f func(t *testing.T, c *Client, w *wire, turns func() []turn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := new(wire)
		c := w.client(opts)
		var mu sync.Mutex
		var turns []turn
		began := time.Now()
		c.OnOff(func(node string, on bool) {
			mu.Lock()
			defer mu.Unlock()
			turns = append(turns, turn{node, on, time.Since(began)})
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		f(t, c, w, func() []turn {
			mu.Lock()
			defer mu.Unlock()
			return append([]turn(nil), turns...)
		})
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
		for addr, n := range w.nodes {
			if n.open != 0 {
				t.Errorf("%d connections to %s are left", n.open, addr)
			}
		}
	})
}

// wantOff takes n answers that the node went off, each once.
func (a acks) wantOff(t *testing.T, n int, why string) {
	t.Helper()
	for range n {
		select {
		case got := <-a:
			checkOff(t, got.err, got.Node, why)
		default:
			t.Fatalf("a waiter was not told")
		}
	}
	a.none(t)
}

func checkOff(t *testing.T, err error, node, why string) {
	t.Helper()
	var off *sink.OffError
	if !errors.As(err, &off) || off.Node != node || !strings.Contains(off.Why, why) {
		t.Fatalf("got %v, want that %s is off: %s", err, node, why)
	}
}

var discard = slog.New(slog.DiscardHandler)

const lag = 2 * time.Second

// Each reason that takes a node off, with a delete in each lane and on the socket: all are told once, and what is asked of the node
// afterwards is refused until it is back.
func TestGoingOff(t *testing.T) {
	for name, tc := range map[string]struct {
		opts  Options
		bring func(t *testing.T, c *Client, w *wire, told acks) // it off
		lanes []sink.Lane
		why   string
		after time.Duration
	}{
		"a live delete finds no room": {
			opts:  Options{QueueBytes: 8000},
			bring: func(t *testing.T, c *Client, w *wire, told acks) { fillLane(t, c, sink.Live, "n:1") },
			lanes: []sink.Lane{sink.Live, sink.Backlog, sink.Urgent, sink.Debts, sink.Storm, sink.Replay, sink.Flush},
			why:   "its queue is full (8000 bytes)",
		},
		"the oldest live delete is too old": {
			bring: func(t *testing.T, c *Client, w *wire, told acks) {},
			lanes: []sink.Lane{sink.Live}, why: "its oldest delete is older than 2s; the latest error: i/o timeout", after: lag,
		},
		"nothing is answered": {
			bring: func(t *testing.T, c *Client, w *wire, told acks) { w.set("n:1", func(n *wireNode) { n.refuse = true }) },
			lanes: []sink.Lane{sink.Debts, sink.Flush}, why: "it has answered nothing for 2s; the latest error: connection refused", after: lag,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, tc.opts, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
				w.set("n:1", func(n *wireNode) { n.dead = true })
				told := make(acks, 100)
				for _, l := range tc.lanes {
					for i := range 3 {
						if err := c.Delete(t.Context(), l, sink.Copy{Node: "n:1", Key: fmt.Sprint(l, i)}, told); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(time.Millisecond) // the first are on a socket, or connecting
				}
				began := time.Now()
				tc.bring(t, c, w, told)
				time.Sleep(tc.after - time.Since(began) - time.Duration(len(tc.lanes))*time.Millisecond - time.Millisecond)
				if synctest.Wait(); tc.after > 0 {
					if told.none(t); len(turns()) > 0 {
						t.Fatal("it went off too early", turns())
					}
				}
				time.Sleep(time.Duration(len(tc.lanes)+3) * time.Millisecond)
				synctest.Wait()
				told.wantOff(t, 3*len(tc.lanes), tc.why)
				if got := turns(); len(got) != 1 || got[0].on || got[0].node != "n:1" {
					t.Fatalf("turns: %+v", got)
				}
				for l := range sink.Lanes {
					checkOff(t, c.Delete(t.Context(), sink.Lane(l), sink.Copy{Node: "n:1", Key: "k"}, told), "n:1", tc.why)
					checkOff(t, c.MarkStale(t.Context(), sink.Lane(l), sink.Copy{Node: "n:1", Key: "k"}, time.Minute, told), "n:1", tc.why)
				}
				if st := c.Nodes()[0]; st.On || st.Queued != 0 || st.QueuedBytes != 0 || !strings.Contains(st.Why, tc.why) || st.Turned.IsZero() || c.budget.held.Load() != 0 {
					t.Errorf("state: %+v, %d bytes held", st, c.budget.held.Load())
				}
				c.Probe("n:1", told)
				time.Sleep(time.Minute)
				synctest.Wait()
				told.none(t)
				w.set("n:1", func(n *wireNode) { n.dead, n.refuse, n.delay = false, false, 0 })
				time.Sleep(4 * time.Second)
				synctest.Wait()
				told.want(t, 1) // the probe
				if got := turns(); len(got) != 2 || !got[1].on || !c.Nodes()[0].On {
					t.Fatalf("turns: %+v", got)
				}
				deleteAll(t, c, "n:1", []string{"k"}).want(t, 1)
			})
		})
	}
}

// One exchange hangs while the node answers others: what hangs may not wait for ever, in no lane.
func TestGoingOffForWhatIsOnASocket(t *testing.T) {
	for l := range sink.Lanes {
		bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
			w.set("n:1", func(n *wireNode) { n.stuck = "stuck" })
			stuck := deleteIn(t, c, sink.Lane(l), "n:1", []string{"stuck"})
			for i := range 19 {
				time.Sleep(100 * time.Millisecond)
				deleteAll(t, c, "n:1", []string{fmt.Sprint(i)}).want(t, 1)
			}
			if stuck.none(t); len(turns()) > 0 {
				t.Fatal("it went off too early")
			}
			time.Sleep(101 * time.Millisecond)
			synctest.Wait()
			stuck.wantOff(t, 1, "its oldest delete is older than 2s")
		})
	}
}

// fillLane deletes until the node is off.
func fillLane(t *testing.T, c *Client, l sink.Lane, node string) {
	t.Helper()
	var left dropped
	for i := range 10_000 {
		if err := c.Delete(t.Context(), l, sink.Copy{Node: node, Key: fmt.Sprint("fill", i)}, left); err != nil {
			checkOff(t, err, node, "")
			return
		}
	}
	t.Fatal("the node took 10,000 deletes")
}

// dropped is a Waiter that nobody asks.
type dropped struct{}

func (dropped) Acked(sink.Copy, error) {}

// The death of a node that idles is seen for as long after its last delete as its client is to watch it, also after its connections were closed; later it is not.
func TestDeathOfAnIdleNode(t *testing.T) {
	for _, c := range []struct {
		watch, dies time.Duration
		seen        bool
	}{
		{0, watchMin - 10*time.Second, true},
		{0, watchMin + 10*time.Second, false},
		{5 * time.Minute, 5*time.Minute - 10*time.Second, true},
		{5 * time.Minute, 5*time.Minute + 10*time.Second, false},
	} {
		t.Run(fmt.Sprint(c.watch, " ", c.dies), func(t *testing.T) {
			bubble(t, Options{Watch: c.watch}, func(t *testing.T, client *Client, w *wire, turns func() []turn) {
				mustDelete(t, client, sink.Live, "a:1", "k", dropped{})
				time.Sleep(c.dies)
				w.set("a:1", func(n *wireNode) { n.dead = true })
				time.Sleep(10 * time.Second)
				if got := turns(); (len(got) == 1) != c.seen {
					t.Errorf("turns: %+v", got)
				}
			})
		})
	}
}
