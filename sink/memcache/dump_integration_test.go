//go:build integration

package memcache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/sink/memcachetest"
)

// idle is the address of a memcached of the test's own whose crawler idles.
func idle(t testing.TB, args ...string) string {
	t.Helper()
	addr := memcachetest.StartProcess(t, args...).Addr
	memcachetest.AwaitIdle(t, addr)
	return addr
}

func TestMemcachedDump(t *testing.T)          { dumps(t, idle(t), idle(t, "-C")) }
func TestMemcachedStats(t *testing.T)         { statsTell(t, idle(t), idle(t, "-C")) }
func TestMemcachedMark(t *testing.T)          { marks(t, idle(t), idle(t, "-C")) }
func TestMemcachedDeletesIf(t *testing.T)     { deletesIf(t, idle(t)) }
func TestMemcachedDeletesManyIf(t *testing.T) { deletesManyIf(t, idle(t)) }

func TestMemcachedThatCanNeverBeDumped(t *testing.T) {
	neverDumps(t, memcachetest.StartProcess(t, "-X").Addr, "-X")
	neverDumps(t, memcachetest.StartProcess(t, "-o", "no_lru_crawler").Addr, "lru_crawler enable")
}

// A proxy has no dump, and no figures of its node.
func TestNutcrackerCanNeverBeDumped(t *testing.T) {
	node := memcachetest.StartProcess(t)
	proxy := memcachetest.StartProxy(t, node.Addr)
	for _, opts := range []Options{{}, {Protocol: Classic}} {
		c := asker(opts)
		var never *sink.NoDumpError
		if _, err := dumped(t, c, proxy.Addr); !errors.As(err, &never) || never.Node != proxy.Addr || !strings.Contains(never.Why, "proxy") {
			t.Errorf("Dump: %v", err)
		}
		if _, err := c.Stats(t.Context(), proxy.Addr); !errors.As(err, &never) {
			t.Errorf("Stats: %v", err)
		}
	}
}

func TestMemcachedDumpWithTLSAndTokens(t *testing.T) {
	cert := memcachetest.NewCertificate(t)
	token := []string{"-Y", memcachetest.TokenFile(t, "invalidator", "secret")}
	for name, tc := range map[string]struct {
		args []string
		opts Options
	}{
		"TLS":            {cert.Args(), Options{TLS: cert.Trust()}},
		"a token":        {token, Options{User: "invalidator", Password: func() string { return "secret" }}},
		"TLS, and token": {append(cert.Args(), token...), Options{TLS: cert.Trust(), User: "invalidator", Password: func() string { return "secret" }}},
	} {
		t.Run(name, func(t *testing.T) {
			node := memcachetest.StartProcess(t, tc.args...)
			keys := names("a-key-of-some-length:", 20_000)
			newReaderOver(t, node.Addr, tc.opts).fill(keys)
			c, _ := start(t, tc.opts)
			mark, err := c.Mark(t.Context(), node.Addr, "mark")
			if err != nil {
				t.Fatal(err)
			}
			got := dumpWhenIdle(t, c, node.Addr)
			if len(got) != len(keys)+1 || got["mark"] != mark {
				t.Fatalf("%d keys, want %d; the mark is %d, want %d", len(got), len(keys)+1, got["mark"], mark)
			}
			w := make(acks, len(keys)+1)
			for _, key := range keys {
				if got[key] >= mark {
					t.Fatalf("%s: %d, the mark is %d", key, got[key], mark)
				}
				deleteIf(t, c, node.Addr, key, got[key], 0, w)
			}
			w.want(t, len(keys))
			if st, err := c.Stats(t.Context(), node.Addr); err != nil || st.CurrItems != 1 {
				t.Errorf("then %+v, %v", st, err)
			}
		})
	}
}

// dumpWhenIdle dumps when the crawler lets it. On a machine that does much else it may not keep up, and is tried again.
func dumpWhenIdle(t *testing.T, c *Client, addr string) (got map[string]uint64) {
	t.Helper()
	for end := time.Now().Add(6 * deadline); ; {
		var err error
		var busy *sink.BusyError
		var void *sink.VoidError
		switch got, err = dumped(t, c, addr); {
		case err == nil:
			return got
		case !errors.As(err, &busy) && !errors.As(err, &void) || time.Now().After(end):
			t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// settled returns when the node may be dumped.
func settled(t testing.TB, c *Client, addr string) {
	t.Helper()
	for end := time.Now().Add(deadline); ; {
		l, before, err := c.askStats(t.Context(), addr)
		if err == nil {
			_, err = l.lookAgain(t.Context(), before)
			l.close()
		}
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// While clients read, write, and the hash table grows: whatever is there from beginning to end of a dump is in it. (No dump is asked
// for while it does, or is about to.)
func TestMemcachedDumpMissesNothing(t *testing.T) {
	addr := idle(t, "-m", "256")
	keys := names("stays:", 50_000)
	newReader(t, addr).fill(keys)
	var load sync.WaitGroup
	var stop atomic.Bool
	defer load.Wait()
	defer stop.Store(true)
	load.Go(func() { // from 50,000 items to 250,000: the table has 2^16 buckets, and in the end 2^18
		r := newReader(t, addr)
		for i := 0; i < 40 && !stop.Load(); i++ {
			r.fill(names(fmt.Sprintf("comes:%d:", i), 5000))
		}
	})
	load.Go(func() {
		for r := newReader(t, addr); !stop.Load(); {
			r.there(keys[:1000])
		}
	})
	c := asker(Options{})
	for i := range 5 {
		got := dumpWhenIdle(t, c, addr)
		for _, key := range keys {
			if got[key] == 0 {
				t.Fatalf("dump %d of %d keys misses %s", i, len(got), key)
			}
		}
	}
}

// fillMany writes n items of the pool.
func fillMany(t testing.TB, addr, prefix string, n int) {
	t.Helper()
	for r, i := newReader(t, addr), 0; i < n; i += 10_000 {
		r.fill(names(fmt.Sprintf("%s%d:", prefix, i/10_000), min(10_000, n-i)))
	}
}

// A node that crashes, or stops, in the middle of a dump.
func TestMemcachedFailsWithinADump(t *testing.T) {
	for name, tc := range map[string]struct {
		fail   func(*memcachetest.Process)
		reason string
	}{
		"crash": {func(p *memcachetest.Process) { p.Kill() }, "reading"},
		"stop":  {func(p *memcachetest.Process) { p.Stall() }, "nothing came for"},
	} {
		t.Run(name, func(t *testing.T) {
			node := memcachetest.StartProcess(t, "-m", "256")
			memcachetest.AwaitIdle(t, node.Addr)
			fillMany(t, node.Addr, feed, feeds*10_000)
			settled(t, asker(Options{}), node.Addr)
			keys := 0
			err := asker(Options{}).Dump(t.Context(), node.Addr, func([]byte, uint64) {
				if keys++; keys == 1000 {
					tc.fail(node)
				}
			})
			var void *sink.VoidError
			if !errors.As(err, &void) || !strings.Contains(err.Error(), tc.reason) || keys == feeds*10_000 {
				t.Errorf("after %d keys: %v", keys, err)
			}
		})
	}
}

// clients measure the longest time that any of them has waited for an answer, on connections on every thread of a node.
type clients struct {
	stop  atomic.Bool
	mu    sync.Mutex
	since map[*person]time.Time // who waits now
	worst time.Duration
	asked map[*person]int
	all   sync.WaitGroup
}

// clientsOf begins. Each refills a key of the pool that is flushed, and asks for one of another.
func clientsOf(t *testing.T, addr string) *clients {
	t.Helper()
	cs := &clients{since: make(map[*person]time.Time), asked: make(map[*person]int)}
	var people []*person
	for range 8 { // of a node with four threads
		p := newPerson(t, addr)
		people, cs.asked[p] = append(people, p), 0
	}
	for i, p := range people {
		cs.all.Go(func() {
			for n := i; !cs.stop.Load(); n += 8 {
				<-time.After(time.Millisecond) // most of the machine is the flush's
				cs.note(p, true)
				p.ask(fmt.Sprintf("ms %s%d:%d 1\r\nx", feed, n%feeds, n%10_000))
				p.ask(fmt.Sprintf("mg other:%d s", n%10_000))
				cs.note(p, false)
			}
		})
	}
	return cs
}

func (cs *clients) note(p *person, waits bool) {
	now := time.Now()
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if waits {
		cs.since[p] = now
		return
	}
	cs.worst = max(cs.worst, now.Sub(cs.since[p]))
	cs.asked[p]++
	delete(cs.since, p)
}

// waiting is for how long somebody waits now.
func (cs *clients) waiting() (longest time.Duration) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, since := range cs.since {
		longest = max(longest, time.Since(since))
	}
	return longest
}

// answered is how often each of them was.
func (cs *clients) answered() map[*person]int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return maps.Clone(cs.asked)
}

// awaitAnswers waits until each of them is answered ten times more.
func (cs *clients) awaitAnswers(t *testing.T) {
	t.Helper()
	before := cs.answered()
	eventually(t, "each client is answered ten times more", func() bool {
		now := cs.answered()
		return !slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(p *person) bool { return now[p] < before[p]+10 })
	})
}

// end returns the longest wait, and how many were measured.
func (cs *clients) end() (worst time.Duration, asked int) {
	cs.stop.Store(true)
	cs.all.Wait()
	for _, n := range cs.asked {
		asked += n
	}
	return cs.worst, asked
}

// The pool that is flushed: with keys so long, 34 MB of a dump, which is more than is kept of one and in sockets.
var feed = "feed:" + strings.Repeat("x", 100) + ":"

const feeds = 20 // times 10,000 keys

// mayWait is how long a client may wait while a pool is flushed at full speed.
const mayWait = 100 * time.Millisecond

// A flush at full speed blocks no client, also while who is told its dump pauses: up to 1.6.18 a client that asks for a key in the part of the
// hash table that is being written would wait as long. What blocks a client does so each time, and a busy machine does not: so the best of
// five counts, and where clients wait for longer without a dump, twice that.
func TestMemcachedsClientsDoNotWaitForAFlush(t *testing.T) {
	addr := idle(t, "-m", "256", "-t", "4")
	c, _ := start(t, Options{})
	const pause = 2 * time.Second
	for name, during := range map[string]func(t *testing.T){
		"that dumps": func(t *testing.T) {
			if keys, err := pausingDump(t, c, addr, 0); err != nil { // not to keep up is no block either
				t.Logf("%d keys: %v", keys, err)
			}
		},
		"whose dump is told to who pauses": func(t *testing.T) {
			var void *sink.VoidError
			if keys, err := pausingDump(t, c, addr, pause); !errors.As(err, &void) || !strings.Contains(err.Error(), "keep up") {
				t.Errorf("%d keys, %v", keys, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			newPerson(t, addr).ask("flush_all")
			fillMany(t, addr, feed, 50_000)
			seen := dumpWhenIdle(t, c, addr)
			measure := func(during func(*testing.T)) time.Duration {
				fillMany(t, addr, feed, feeds*10_000)
				cs, deletes := clientsOf(t, addr), flushAgain(t, c, addr, seen)
				during(t)
				n := deletes()
				worst, asked := cs.end()
				t.Logf("%d deletes; %d questions of clients, the longest took %s", n, asked, worst)
				return worst
			}
			for range 5 {
				usual := measure(func(*testing.T) { <-time.After(pause) })
				if worst := measure(during); worst < max(mayWait, min(2*usual, pause)) {
					return
				}
			}
			t.Error("clients wait for a flush, each time")
		})
	}
	t.Run("whose dump is told to who stands: the dump is let go, and each client is answered", func(t *testing.T) {
		newPerson(t, addr).ask("flush_all")
		fillMany(t, addr, feed, 50_000)
		seen := dumpWhenIdle(t, c, addr)
		fillMany(t, addr, feed, feeds*10_000)
		cs, deletes := clientsOf(t, addr), flushAgain(t, c, addr, seen)
		var void *sink.VoidError
		keys, err := dumpTold(t, c, addr, func(n int) {
			if n > 1 {
				return
			}
			eventually(t, "nobody reads, and the node dumps no more", func() bool {
				st, err := c.Stats(t.Context(), addr)
				return err == nil && !st.Running
			})
			cs.awaitAnswers(t)
		})
		n := deletes()
		worst, asked := cs.end()
		t.Logf("%d deletes; %d questions of clients, the longest took %s", n, asked, worst)
		if !errors.As(err, &void) || keys >= feeds*10_000 {
			t.Errorf("%d keys, %v", keys, err)
		}
	})
	t.Run("what blocks them shows", func(t *testing.T) {
		fillMany(t, addr, feed, feeds*10_000)
		release := stuckDump(t, addr)
		cs := clientsOf(t, addr)
		eventually(t, "a client waits", func() bool { return cs.waiting() > mayWait })
		release()
		if worst, _ := cs.end(); worst < mayWait {
			t.Errorf("nobody reads a dump, and the longest wait was %s", worst)
		}
	})
}

// pausingDump is one that is told to who pauses after each 50,000 keys.
func pausingDump(t *testing.T, c *Client, addr string, pause time.Duration) (keys int, err error) {
	t.Helper()
	return dumpTold(t, c, addr, func(n int) {
		if n%50_000 == 1 {
			<-time.After(pause)
		}
	})
}

// dumpTold is one whose keys are told by their numbers, from 1, when the crawler lets it.
func dumpTold(t *testing.T, c *Client, addr string, told func(n int)) (keys int, err error) {
	t.Helper()
	eventually(t, "the crawler idles", func() bool {
		err = c.Dump(t.Context(), addr, func([]byte, uint64) {
			keys++
			told(keys)
		})
		var busy *sink.BusyError
		return !errors.As(err, &busy)
	})
	return keys, err
}

// While nobody reads somebody else's dump, no second one is asked for.
func TestMemcachedIsAskedForNoSecondDump(t *testing.T) {
	addr := idle(t, "-m", "256")
	fillMany(t, addr, feed, feeds*10_000)
	defer stuckDump(t, addr)()
	p := newPerson(t, addr)
	for range 8 { // twice as many connections as there are threads: one that hangs would show
		var busy *sink.BusyError
		if err := asker(Options{}).Dump(t.Context(), addr, func([]byte, uint64) {}); !errors.As(err, &busy) {
			t.Errorf("a dump beside another: %v", err)
		}
		if got := p.ask("mn"); got != "MN" {
			t.Error(got)
		}
	}
}

// stuckDump begins a dump that nobody reads, until release. The hash table does not grow then.
func stuckDump(t *testing.T, addr string) (release func()) {
	t.Helper()
	c := asker(Options{})
	settled(t, c, addr)
	conn := newPerson(t, addr).conn.(*net.TCPConn)
	if err := conn.SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprint(conn, "lru_crawler metadump hash\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the crawler is at work", func() bool {
		st, err := c.Stats(t.Context(), addr)
		return err == nil && st.Running
	})
	return func() { conn.Close() }
}

// flushAgain deletes at full speed what was seen, again and again, until it is asked how many deletes that were.
func flushAgain(t *testing.T, c *Client, addr string, seen map[string]uint64) (end func() int64) {
	var n atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var flush sync.WaitGroup
	flush.Go(func() {
		for {
			for key, cas := range seen {
				if err := c.DeleteIf(ctx, sink.Copy{Node: addr, Key: key}, cas, 0, dropped{}); err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				n.Add(1)
			}
		}
	})
	return func() int64 {
		cancel()
		flush.Wait()
		return n.Load()
	}
}

// BenchmarkMemcachedDump is of a million keys.
func BenchmarkMemcachedDump(b *testing.B) {
	const keys = 1_000_000
	addr := idle(b, "-m", "512")
	fillMany(b, addr, "user:", keys)
	settled(b, asker(Options{}), addr)
	benchmarkDump(b, addr, keys)
}
