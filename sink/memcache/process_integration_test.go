//go:build integration

package memcache

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// reader speaks the classic protocol on a socket of its own: what it sees owes nothing to the client under test.
type reader struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func newReader(t testing.TB, addr string) *reader {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &reader{t: t, conn: conn, in: bufio.NewReader(conn)}
}

func (r *reader) line() string {
	r.t.Helper()
	r.conn.SetReadDeadline(time.Now().Add(deadline))
	line, err := r.in.ReadString('\n')
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func (r *reader) fill(keys []string) {
	r.t.Helper()
	var out strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&out, "set %s 0 0 3 noreply\r\nold\r\n", key)
	}
	if _, err := r.conn.Write([]byte(out.String() + "version\r\n")); err != nil {
		r.t.Fatal(err)
	}
	if got := r.line(); !strings.HasPrefix(got, "VERSION") {
		r.t.Fatalf("filling: %s", got)
	}
}

// there counts the keys that the node holds.
func (r *reader) there(keys []string) (n int) {
	r.t.Helper()
	for _, key := range keys {
		fmt.Fprintf(r.conn, "get %s\r\n", key)
		for got := r.line(); got != "END"; got = r.line() {
			if strings.HasPrefix(got, "VALUE") {
				n++
			}
		}
	}
	return n
}

func names(prefix string, n int) (keys []string) {
	for i := range n {
		keys = append(keys, fmt.Sprint(prefix, i))
	}
	return keys
}

func TestMemcachedDeletes(t *testing.T) {
	bothProtocols(t, Options{}, func(t *testing.T, opts Options) {
		node := memcachetest.StartProcess(t)
		r := newReader(t, node.Addr)
		keys := append(names("user:", 2000), "u:Zo\u00eb", "u:Zoe\u0308", strings.Repeat("k", 250))
		r.fill(keys)
		if n := r.there(keys); n != len(keys) {
			t.Fatalf("%d of %d keys are there at the start", n, len(keys))
		}
		c, _ := start(t, opts)
		all := append(names("absent:", 2000), keys...)
		deleteAll(t, c, node.Addr, all).want(t, len(all))
		if n := r.there(keys); n != 0 {
			t.Errorf("%d keys are still there", n)
		}
		if st := c.Nodes()[0]; st.Retried != 0 {
			t.Errorf("state: %+v", st)
		}
	})
}

func TestH4_MemcachedStopsAndGoesOn(t *testing.T) {
	bothProtocols(t, quick, func(t *testing.T, opts Options) {
		node := memcachetest.StartProcess(t)
		r := newReader(t, node.Addr)
		keys := names("k", 100)
		r.fill(keys[:50])
		c, _ := start(t, opts)
		deleteAll(t, c, node.Addr, []string{"warm"}).want(t, 1)
		if err := node.Stall(); err != nil {
			t.Fatal(err)
		}
		w := deleteAll(t, c, node.Addr, keys)
		eventually(t, "several timeouts", func() bool {
			st := c.Nodes()[0]
			return st.Retried > 0 && strings.Contains(st.LastError, "timeout") && time.Since(st.OldestSince) > 5*opts.Timeout
		})
		w.none(t)
		if err := node.Resume(); err != nil {
			t.Fatal(err)
		}
		w.want(t, len(keys))
		if n := r.there(keys); n != 0 {
			t.Errorf("%d keys were called deleted and are still there", n)
		}
	})
}

func TestH3_MemcachedWithFewConnections(t *testing.T) {
	bothProtocols(t, Options{ConnsPerNode: 5, BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond}, func(t *testing.T, opts Options) {
		node := memcachetest.StartProcess(t, "-c", "32", "-t", "1") // it counts files of its own too: 19 connections fit
		r := newReader(t, node.Addr)
		keys := names("k", 4000)
		r.fill(keys)
		var clients sync.WaitGroup
		for i := range 4 { // 20 connections are wanted, 18 are left by the reader: each client finds one
			mine := keys[i*1000 : (i+1)*1000]
			c, _ := start(t, opts)
			w := make(acks, len(mine)+1)
			for j := range 200 {
				clients.Go(func() {
					for _, key := range mine[j*5 : j*5+5] {
						if err := c.Delete(t.Context(), sink.Live, sink.Copy{Node: node.Addr, Key: key}, w); err != nil {
							t.Error(err)
						}
					}
				})
			}
			clients.Go(func() { w.want(t, len(mine)) })
		}
		clients.Wait()
		if n := r.there(keys); n != 0 {
			t.Errorf("%d keys are still there", n)
		}
	})
}

func TestMemcachedMarksStale(t *testing.T)    { markStale(t, memcachetest.StartProcess(t).Addr) }
func TestMemcachedLeaseInFlight(t *testing.T) { leaseInFlight(t, memcachetest.StartProcess(t).Addr) }
func TestMemcachedKeysInBase64(t *testing.T)  { keysInBase64(t, memcachetest.StartProcess(t).Addr) }

func BenchmarkMemcached(b *testing.B) { benchmarkNode(b, memcachetest.StartProcess(b).Addr) }
