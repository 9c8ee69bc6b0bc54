package memcache

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// isDelete tells the commands that carry a key's delete from probes.
func isDelete(line string) bool {
	return strings.HasPrefix(line, "md ") || strings.HasPrefix(line, "delete ")
}

// faultOn lets the nth delete on the node, counted from 1 over all connections, meet the fault once.
func faultOn(node *memcachetest.Server, nth int64, fault memcachetest.Reply) {
	var deletes atomic.Int64
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if isDelete(line) && deletes.Add(1) == nth {
			return fault
		}
		return memcachetest.Reply{}
	})
}

// TestFaults makes each fault happen in the middle of a batch: no key may be called done that is still there, and every key
// is gone in the end.
func TestFaults(t *testing.T) {
	answer := func(text string) memcachetest.Reply {
		return memcachetest.Reply{Text: text, Then: memcachetest.Skip}
	}
	for name, fault := range map[string]memcachetest.Reply{
		"H4 no answer before the timeout":     {Then: memcachetest.Stall},
		"H7 connection closed":                {Then: memcachetest.Hangup},
		"H7 half a line, then closed":         {Text: "N", Then: memcachetest.Hangup},
		"H7 a success cut off, then closed":   {Text: "MN", Then: memcachetest.Hangup},
		"H7 half a line, then nothing":        {Text: "HD", Then: memcachetest.Stall},
		"H7 SERVER_ERROR":                     answer("SERVER_ERROR out of memory\r\n"),
		"H7 CLIENT_ERROR that is no refusal":  answer("CLIENT_ERROR unauthenticated\r\n"),
		"H7 ERROR":                            answer("ERROR\r\n"),
		"H7 an empty line":                    answer("\r\n"),
		"H7 another protocol's line":          answer("END\r\n"),
		"H7 an error line, then closed":       {Text: "SERVER_ERROR shutting down\r\n", Then: memcachetest.Hangup},
		"a line longer than any answer":       answer(strings.Repeat("x", 10_000) + "\r\n"),
		"more answers than there are deletes": answer(strings.Repeat("NF\r\n", 300)),
	} {
		t.Run(name, func(t *testing.T) {
			bothProtocols(t, quick, func(t *testing.T, opts Options) {
				node := memcachetest.Start(t)
				keys := fill(node, 100)
				c, _ := start(t, opts)
				faultOn(node, 50, fault)
				w := deleteAll(t, c, node.Addr(), keys)
				w.want(t, len(keys))
				if n := node.Len(); n != 0 {
					t.Errorf("%d keys were called deleted and are still there", n)
				}
				if st := c.Nodes()[0]; opts.Protocol == Meta && st.Retried == 0 {
					t.Errorf("nothing was sent again: %+v", st)
				}
			})
		})
	}
}

// A node that fails again, and again, while the batch is sent carefully.
func TestH7_FaultsWhileSendingAgain(t *testing.T) {
	for _, text := range []string{"SERVER_ERROR out of memory\r\n", "ERROR\r\n", "\r\n", "N", "MN\r\n"} {
		t.Run(fmt.Sprintf("%q", text), func(t *testing.T) {
			node := memcachetest.Start(t)
			keys := fill(node, 50)
			var quiet, careful atomic.Int64
			node.Intercept(func(_ int, line string) memcachetest.Reply {
				switch {
				case strings.HasSuffix(line, " q") && quiet.Add(1) == 20:
					return memcachetest.Reply{Text: "ERROR\r\n", Then: memcachetest.Skip}
				case isDelete(line) && !strings.HasSuffix(line, " q") && careful.Add(1)%7 == 0 && careful.Load() < 70:
					return memcachetest.Reply{Text: text, Then: memcachetest.Hangup}
				}
				return memcachetest.Reply{}
			})
			opts := quick
			opts.ConnsPerNode = 1
			c := New(opts, slog.New(slog.DiscardHandler))
			w := deleteAll(t, c, node.Addr(), keys) // before Run: one batch
			run(t, c)
			w.want(t, len(keys))
			if n := node.Len(); n != 0 || careful.Load() < 70 {
				t.Errorf("%d keys were called deleted and are still there; %d careful deletes", n, careful.Load())
			}
		})
	}
}

func TestH4_ALateAnswerIsNobodys(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		opts.ConnsPerNode = 1
		node := memcachetest.Start(t)
		keys := fill(node, 50)
		late := make(chan struct{})
		node.Intercept(func(conn int, line string) memcachetest.Reply {
			if conn == 1 && isDelete(line) {
				<-late // the node stops for a while, as under SIGSTOP, and then answers what it was asked
			}
			return memcachetest.Reply{}
		})
		c, _ := start(t, opts)
		w := deleteAll(t, c, node.Addr(), keys)
		eventually(t, "another connection", func() bool { _, total := node.Conns(); return total > 1 })
		close(late)
		w.want(t, len(keys))
		if n := node.Len(); n != 0 {
			t.Errorf("%d keys are still there", n)
		}
	})
}

// shortConn fails its first long write half-way.
type shortConn struct {
	net.Conn
	failed *atomic.Bool
}

func (c shortConn) Write(p []byte) (int, error) {
	if len(p) < 20 || c.failed.Swap(true) {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:len(p)/2])
	return n, errors.New("broken pipe")
}

func TestH4_ShortWrite(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		node := memcachetest.Start(t)
		keys := fill(node, 100)
		var failed atomic.Bool
		c := New(opts, slog.New(slog.DiscardHandler))
		c.dial.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return shortConn{conn, &failed}, err
		}
		run(t, c)
		keys = append(keys, "a-key-that-is-long-enough-for-a-write-to-be-cut")
		deleteAll(t, c, node.Addr(), keys).want(t, len(keys))
		if n := node.Len(); n != 0 || !failed.Load() {
			t.Errorf("%d keys are still there; a write was cut: %v", n, failed.Load())
		}
	})
}

func TestH7_OneKeyThatAlwaysFailsHoldsUpNoOther(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		node := memcachetest.Start(t)
		keys := fill(node, 20)
		var mended atomic.Bool
		node.Intercept(func(_ int, line string) memcachetest.Reply {
			if !mended.Load() && strings.Contains(line, "user:3") {
				return memcachetest.Reply{Text: "SERVER_ERROR backend failure\r\n", Then: memcachetest.Skip}
			}
			return memcachetest.Reply{}
		})
		c, _ := start(t, opts)
		w := deleteAll(t, c, node.Addr(), keys)
		for range len(keys) - 1 {
			if got := w.next(t); got.err != nil || got.Key == "user:3" {
				t.Fatalf("%s: %v", got.Key, got.err)
			}
		}
		eventually(t, "it is tried again", func() bool { return c.Nodes()[0].Retried > 3 })
		w.none(t)
		mended.Store(true)
		w.want(t, 1)
	})
}

func TestH7_RefusedByTheNode(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		const line = "CLIENT_ERROR bad command line format"
		node := memcachetest.Start(t)
		keys := fill(node, 20)
		node.Intercept(func(_ int, got string) memcachetest.Reply { // a proxy with a limit of its own, say
			if strings.Contains(got, "user:3") || strings.Contains(got, "user:7") {
				return memcachetest.Reply{Text: line + "\r\n", Then: memcachetest.Skip}
			}
			return memcachetest.Reply{}
		})
		c, _ := start(t, opts)
		w := deleteAll(t, c, node.Addr(), keys)
		for range keys {
			got := w.next(t)
			var refusal *sink.RefusedError
			refused := errors.As(got.err, &refusal) && refusal.Copy == got.Copy && strings.Contains(refusal.Answer, line)
			if _, there := node.Get(got.Key); refused != (got.Key == "user:3" || got.Key == "user:7") || there != refused {
				t.Errorf("%s: there %v, %v", got.Key, there, got.err)
			}
		}
	})
}

func TestH3_TooManyOpenConnections(t *testing.T) {
	node := memcachetest.Start(t)
	keys := fill(node, 20)
	node.Intercept(func(conn int, _ string) memcachetest.Reply {
		if conn < 5 {
			return memcachetest.Reply{Text: "ERROR Too many open connections\r\n", Then: memcachetest.Hangup}
		}
		return memcachetest.Reply{}
	})
	c, logged := start(t, quick)
	deleteAll(t, c, node.Addr(), keys).want(t, len(keys))
	if !strings.Contains(logged.String(), "Too many open connections") || strings.Contains(logged.String(), "classic") || c.Nodes()[0].Protocol != Meta {
		t.Errorf("the log does not say why:\n%s", logged)
	}
}

// Some servers answer `HD ` with a blank, and a proxy may not know the q flag: both are success.
func TestH10_TrailingBlankAndNoQuietMode(t *testing.T) {
	node := memcachetest.Start(t)
	keys := fill(node, 50)
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if !isDelete(line) {
			return memcachetest.Reply{Text: "MN \r\n", Then: memcachetest.Skip}
		}
		if _, there := node.Get(strings.Fields(line)[1]); there {
			return memcachetest.Reply{Text: "HD \r\n", Then: memcachetest.Serve} // the server's own answer is silence, under q
		}
		return memcachetest.Reply{}
	})
	c, _ := start(t, Options{})
	deleteAll(t, c, node.Addr(), keys).want(t, len(keys))
	if st := c.Nodes()[0]; st.Retried != 0 || node.Len() != 0 {
		t.Errorf("%d keys left, %+v", node.Len(), st)
	}
}

func TestNodeRefusesConnectionsThenComesBack(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		node := memcachetest.Start(t)
		addr := node.Addr()
		c, logged := start(t, opts)
		deleteAll(t, c, addr, []string{"before"}).want(t, 1)
		node.Close()
		w := deleteAll(t, c, addr, fill(node, 100))
		eventually(t, "a refused connection", func() bool { return strings.Contains(c.Nodes()[0].LastError, "refused") })
		back, err := memcachetest.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(back.Close)
		w.want(t, 200)
		eventually(t, "the recovery is logged", func() bool { return strings.Contains(logged.String(), "answers again") })
	})
}

// A name is resolved at each connection (H9 of the node's identity: the address it had is not kept).
func TestH9_AMovedNodeIsFoundAtItsNewAddress(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		old, moved := memcachetest.Start(t), memcachetest.Start(t)
		var at atomic.Value
		at.Store(old.Addr())
		c := New(opts, slog.New(slog.DiscardHandler))
		c.dial.dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr != "mc1.test:11211" {
				t.Errorf("dialling %s, not the name", addr)
			}
			return new(net.Dialer).DialContext(ctx, network, at.Load().(string))
		}
		run(t, c)
		deleteAll(t, c, "mc1.test:11211", fill(old, 10)).want(t, 20)
		at.Store(moved.Addr())
		old.Close()
		deleteAll(t, c, "mc1.test:11211", fill(moved, 10)).want(t, 20)
		if moved.Len() != 0 {
			t.Errorf("%d keys are still there", moved.Len())
		}
	})
}

// A reader may refill between the two: the first delete, already on a socket, must not stand for the second.
func TestADeleteOnASocketDoesNotStandForALaterOne(t *testing.T) {
	bothProtocols(t, Options{}, func(t *testing.T, opts Options) {
		node := memcachetest.Start(t)
		arrived, release := make(chan struct{}), make(chan struct{})
		var stuck atomic.Bool
		node.Intercept(func(_ int, line string) memcachetest.Reply {
			if isDelete(line) && !stuck.Swap(true) {
				close(arrived)
				<-release
			}
			return memcachetest.Reply{}
		})
		c, _ := start(t, opts)
		w := deleteAll(t, c, node.Addr(), []string{"k"})
		<-arrived
		later := deleteAll(t, c, node.Addr(), []string{"k"})
		later.want(t, 1) // on the second connection, while the first delete is stuck
		node.Set("k", "refilled")
		close(release)
		w.want(t, 1)
		node.Set("k", "refilled again")
		deleteAll(t, c, node.Addr(), []string{"k"}).want(t, 1)
		if _, there := node.Get("k"); there {
			t.Error("the last delete was taken for an earlier one")
		}
	})
}

func TestTLS(t *testing.T) {
	bothProtocols(t, Options{}, func(t *testing.T, opts Options) {
		node := memcachetest.Start(t)
		certs := httptest.NewTLSServer(nil)
		t.Cleanup(certs.Close)
		l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: certs.TLS.Certificates})
		if err != nil {
			t.Fatal(err)
		}
		var proxied sync.WaitGroup
		t.Cleanup(proxied.Wait)
		t.Cleanup(func() { l.Close() })
		proxied.Go(func() {
			for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
				proxied.Go(func() { pipe(conn, node.Addr()) })
			}
		})
		opts.TLS = certs.Client().Transport.(*http.Transport).TLSClientConfig
		c, _ := start(t, opts)
		deleteAll(t, c, l.Addr().String(), fill(node, 10)).want(t, 20)
		if node.Len() != 0 {
			t.Errorf("%d keys are still there", node.Len())
		}
	})
}

// pipe joins a connection with one to addr until the client closes it.
func pipe(client net.Conn, addr string) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() { io.Copy(client, server) })
	io.Copy(server, client)
	server.Close()
	back.Wait()
}

func TestBackOffDoublesUpToItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sender{node: loneNode(1), log: slog.New(slog.DiscardHandler), opts: &Options{BackoffMin: 50 * time.Millisecond, BackoffMax: 2 * time.Second}}
		for _, want := range []int{50, 100, 200, 400, 800, 1600, 2000, 2000} {
			began := time.Now()
			s.failed(t.Context(), io.EOF)
			if took, most := time.Since(began), time.Duration(want)*time.Millisecond; took < most/2 || took > most {
				t.Errorf("paused %s, want %s to %s", took, most/2, most)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if s.failed(ctx, io.EOF); time.Since(began) > 0 {
			t.Error("paused though its context has ended")
		}
	})
}

// fakeLink answers everything.
type fakeLink struct{ open *atomic.Int64 }

func (l fakeLink) exchange(batch []entry, _ bool) (int, error) { return len(batch), nil }
func (l fakeLink) classic() bool                               { return false }
func (l fakeLink) remote() netip.Addr                          { return netip.Addr{} }
func (l fakeLink) close()                                      { l.open.Add(-1) }

// loneNode is a node without a keeper.
func loneNode(senders int) *node {
	return New(Options{ConnsPerNode: senders}, slog.New(slog.DiscardHandler)).newNode("n")
}

func pushOne(t *testing.T, n *node, key string, w sink.Waiter) {
	t.Helper()
	e := newEntry(sink.Live, key, 0, w)
	if room, err := n.push(&e); room != nil || err != nil {
		t.Fatal("no room", err)
	}
}

func TestAnIdleConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		w := make(acks, 10)
		n := loneNode(1)
		s := &sender{node: n, log: slog.New(slog.DiscardHandler), open: func(context.Context) (link, error) {
			open.Add(1)
			return fakeLink{&open}, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		go s.run(ctx)
		for range 3 { // used before the time is up, it stays; after that, the next delete opens another
			for range 3 {
				pushOne(t, n, "k", w)
				time.Sleep(idleAfter - time.Second)
				if synctest.Wait(); open.Load() != 1 || len(w) != 1 {
					t.Fatalf("%d connections and %d answers, want 1 each", open.Load(), len(w))
				}
				<-w
			}
			time.Sleep(2 * time.Second)
			if synctest.Wait(); open.Load() != 0 {
				t.Fatal("the connection is still open")
			}
		}
		cancel()
		synctest.Wait()
	})
}

// A node may have room for one connection only: what the other sender holds must not wait for it.
func TestH3_OneConnectionCarriesEverything(t *testing.T) {
	node := memcachetest.Start(t)
	keys := fill(node, 500)
	node.Intercept(func(conn int, line string) memcachetest.Reply {
		if conn > 1 {
			return memcachetest.Reply{Text: "ERROR Too many open connections\r\n", Then: memcachetest.Hangup}
		}
		return memcachetest.Reply{}
	})
	c, _ := start(t, quick)
	for i := range 20 {
		deleteAll(t, c, node.Addr(), keys[i*50:i*50+50]).want(t, 50)
	}
	if n := node.Len(); n != 0 {
		t.Errorf("%d keys are still there", n)
	}
}

// A connection that is slow to come holds up nothing that another one can carry.
func TestASlowConnectHoldsUpNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int64
		n, w, log := loneNode(2), make(acks, 10), slog.New(slog.DiscardHandler)
		ctx, cancel := context.WithCancel(t.Context())
		slow := &sender{node: n, slot: 0, log: log, opts: &quick, open: func(ctx context.Context) (link, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		good := &sender{node: n, slot: 1, log: log, opts: &quick, open: func(context.Context) (link, error) {
			return fakeLink{&open}, nil
		}}
		go slow.run(ctx)
		synctest.Wait() // it is the first to wait for work
		go good.run(ctx)
		for range 5 {
			synctest.Wait()
			pushOne(t, n, "k", w)
			if synctest.Wait(); len(w) != 1 {
				t.Fatal("the delete waits for the slow connection")
			}
			<-w
		}
		cancel()
		synctest.Wait()
	})
}
