package memcache

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// H9: the old address goes on answering, as a node does that was taken out of service but runs. Within the time of one look-up deletes go to
// the new one.
func TestH9_AConnectionToAnAddressThatTheNameHasNoLonger(t *testing.T) {
	before, after := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	bubble(t, Options{ConnsPerNode: 1}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		const node = "mc1.test:11211"
		set := func(at netip.Addr, has ...netip.Addr) {
			w.set(node, func(n *wireNode) { n.ip = at })
			w.set("mc1.test", func(n *wireNode) { n.names = has })
		}
		opened := func(want int) {
			t.Helper()
			deleteAll(t, c, node, []string{"k"}).want(t, 1)
			if n := w.get(node); n.opened != want || n.open != 1 {
				t.Errorf("%d connections were made, %d are open; want %d, 1", n.opened, n.open, want)
			}
		}
		set(before, before)
		opened(1)
		time.Sleep(resolveEvery + time.Second)
		opened(1)
		set(before, after, before) // one address more: what stands may stay
		time.Sleep(resolveEvery)
		opened(1)
		set(after, after)
		opened(1) // not looked up yet
		time.Sleep(resolveEvery)
		opened(2)
		set(before) // the look-up finds nothing: what was found counts
		time.Sleep(resolveEvery + time.Second)
		opened(2)
		if len(turns()) > 0 {
			t.Errorf("turns: %v", turns())
		}
	})
}

func TestHostName(t *testing.T) {
	for addr, want := range map[string]string{
		"mc1.test:11211": "mc1.test", "localhost:1": "localhost", "10.0.0.1:11211": "", "[::1]:11211": "", "[fe80::1%eth0]:11211": "", "no port": "",
	} {
		if got := hostName(addr); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}

// Each address of a name is tried; an IPv6 literal is one.
func TestH9_SeveralAddressesAndIPv6(t *testing.T) {
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Fatal(err)
	}
	six := l.Addr().String()
	l.Close()
	node, err := memcachetest.Listen(six)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Close)
	c, _ := start(t, quick)
	deleteAll(t, c, six, fill(node, 10)).want(t, 20)

	four := memcachetest.Start(t)
	_, port, err := net.SplitHostPort(four.Addr())
	if err != nil {
		t.Fatal(err)
	}
	deleteAll(t, c, "localhost:"+port, fill(four, 10)).want(t, 20) // where it has ::1 too, nobody listens there
	if n := node.Len() + four.Len(); n != 0 {
		t.Errorf("%d keys are still there", n)
	}
}

// A name that cannot be resolved is a node that does not answer.
func TestANameThatNobodyHas(t *testing.T) {
	opts := quick
	opts.MaxLag = 200 * time.Millisecond
	c := New(opts, discard)
	c.dial.dial = func(_ context.Context, _, addr string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: addr, IsNotFound: true}}
	}
	run(t, c)
	checkOff(t, deleteAll(t, c, "nobody.test:1", []string{"k"}).next(t).err, "nobody.test:1", "no such host")
}

func TestToken(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		node := memcachetest.Start(t)
		keys := fill(node, 10)
		node.RequireToken("invalidator", "secret")
		opts.User, opts.Password, opts.MaxLag = "invalidator", func() string { return "wrong" }, 300*time.Millisecond
		refused, _ := start(t, opts)
		checkOff(t, deleteAll(t, refused, node.Addr(), keys[:1]).next(t).err, node.Addr(), ErrAuth.Error())
		opts.Password = func() string { return "secret" }
		c, logged := start(t, opts)
		deleteAll(t, c, node.Addr(), keys).want(t, len(keys))
		if node.Len() != 0 || strings.Contains(logged.String(), "secret") {
			t.Errorf("%d keys are left; the log:\n%s", node.Len(), logged)
		}
	})
}

// What a node may do to the first command: none of it is a login.
func TestTokenFaults(t *testing.T) {
	for name, reply := range map[string]memcachetest.Reply{
		"hangs up":       {Then: memcachetest.Hangup},
		"says nothing":   {Then: memcachetest.Stall},
		"half a line":    {Text: "STORE", Then: memcachetest.Hangup},
		"another answer": {Text: "ERROR\r\n", Then: memcachetest.Stall},
		"never ends":     {Text: strings.Repeat("x", 5000), Then: memcachetest.Stall},
	} {
		t.Run(name, func(t *testing.T) {
			node := memcachetest.Start(t)
			node.Intercept(func(_ int, line string) memcachetest.Reply {
				if isDelete(line) {
					t.Error("a delete was sent")
				}
				return reply
			})
			opts := quick
			opts.User, opts.Password, opts.MaxLag = "u", func() string { return "p" }, 300*time.Millisecond
			c, _ := start(t, opts)
			checkOff(t, deleteAll(t, c, node.Addr(), []string{"k"}).next(t).err, node.Addr(), "authenticating")
		})
	}
}

// The token leaves nothing on a node that does not want one.
func TestTokenWhereNoneIsWanted(t *testing.T) {
	node := memcachetest.Start(t)
	opts := quick
	opts.User, opts.Password = "u", func() string { return "p" }
	c, _ := start(t, opts)
	deleteAll(t, c, node.Addr(), fill(node, 3)).want(t, 6)
	if node.Len() != 0 {
		t.Error("the password is in the cache")
	}
}

// Connections are bounded for each worker and node by themselves, so that 50 workers and 400 nodes have 2 x 50 to a node and 2 x 400 to a
// worker at most: one worker with 400 nodes, and 50 workers with the same 2, all of them busy at once; of those
// none is left a minute after the last delete.
func TestConnectionsAreBounded(t *testing.T) {
	for _, tc := range []struct{ workers, nodes int }{{1, 400}, {50, 2}} {
		synctest.Test(t, func(t *testing.T) {
			w := new(wire)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, tc.workers)
			addr := func(n int) string {
				return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 11211).String()
			}
			var clients []*Client
			for range tc.workers {
				c := w.client(Options{})
				clients = append(clients, c)
				go func() { ended <- c.Run(ctx) }()
			}
			for n := range tc.nodes {
				w.set(addr(n), func(n *wireNode) { n.delay = 100 * time.Millisecond })
			}
			for i := range 3 {
				for _, c := range clients {
					for n := range tc.nodes {
						mustDelete(t, c, sink.Live, addr(n), strings.Repeat("k", i+1), dropped{})
					}
				}
				time.Sleep(50 * time.Millisecond)
			}
			synctest.Wait()
			all := 0
			for n := range tc.nodes {
				got := w.get(addr(n))
				if got.open > 2*tc.workers || got.most > 2*tc.workers || got.open < tc.workers {
					t.Errorf("%d workers have %d connections to node %d, and had %d", tc.workers, got.open, n, got.most)
				}
				all += got.open
			}
			if most := 2 * tc.workers * tc.nodes; all > most || all < most/2 {
				t.Errorf("%d connections, want at most %d, and not many fewer", all, most)
			}
			if tc.workers > 1 {
				time.Sleep(idleAfter + 2*watchEvery)
				synctest.Wait()
			}
			for n := range tc.nodes {
				if got := w.get(addr(n)); got.open > 0 && tc.workers > 1 {
					t.Errorf("%d connections to node %d are left a minute after the last delete", got.open, n)
				}
			}
			cancel()
			for range tc.workers {
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		})
	}
}
