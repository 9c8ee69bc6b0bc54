//go:build integration

package flush

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/memcache"
	"invalidator/sink/memcachetest"
	"invalidator/sink/registry"
)

// real is a fleet of one conductor on memcached processes.
type real struct {
	*testing.T
	addrs  []string
	topics *fakeTopics
	o      Options
}

// newReal starts two nodes of one shard, each with these arguments.
func newReal(t *testing.T, args ...string) *real {
	t.Helper()
	r := &real{T: t, topics: &fakeTopics{changed: make(chan struct{})}}
	record := &sink.Record{Epoch: 1, Kind: sink.KindPoints160, Shards: []sink.Shard{{ID: "s0", Weight: 1}}}
	for i := range 2 {
		addr := memcachetest.StartProcess(t, args...).Addr
		r.addrs = append(r.addrs, addr)
		if i == 0 {
			record.Shards[0].Primary.Addr = addr
		} else {
			record.Shards[0].Replicas = []sink.Replica{{Addr: addr}}
		}
	}
	topology, err := sink.NewTopology(record)
	if err != nil {
		t.Fatal(err)
	}
	view := &registry.View{Topology: topology, Sights: []registry.Sight{{Record: record, Seen: time.Now()}}}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	client := memcache.New(memcache.Options{}, quiet)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); client.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	r.o = Options{
		Worker: "w1", Work: 7, Open: r.topics.open, Nodes: client, View: func() *registry.View { return view }, Pools: func() []string { return []string{"user", "feed"} },
		Holds: func(context.Context) error { return nil }, Settle: 50 * time.Millisecond, Lag: time.Minute, Window: 30 * time.Second, Refill: time.Second, Log: quiet,
	}
	return r
}

// start has a conductor work until stop.
func (r *real) start() (stop func()) {
	r.Helper()
	r.o.Registerer = prometheus.NewRegistry()
	c, err := New(r.o)
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	c.Claim([]int32{7})
	return func() { cancel(); <-done }
}

func (r *real) ask(q replay.Request) {
	q.By, q.At, q.Action = "ann@ops", time.Now(), replay.Flush
	r.topics.append(&r.topics.control, q)
}

// await waits for a condition, for two minutes at most.
func (r *real) await(what string, is func() bool) {
	r.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.Fatalf("waited for %s; the status topic: %+v", what, r.statuses())
		}
	}
}

func (r *real) statuses() (all []replay.Record) { return (&rig{topics: r.topics}).statuses() }

func (r *real) await1(id string) (found replay.Result) {
	r.Helper()
	r.await("the result of "+id, func() (ok bool) {
		found, ok = (&rig{topics: r.topics}).result(id)
		return ok
	})
	return found
}

// set stores keys on every node.
func (r *real) set(value string, keys []string) {
	r.Helper()
	for _, addr := range r.addrs {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			r.Fatal(err)
		}
		w := bufio.NewWriterSize(conn, 1<<20)
		for _, key := range keys {
			fmt.Fprintf(w, "ms %s %d q\r\n%s\r\n", key, len(value), value)
		}
		fmt.Fprint(w, "mn\r\n")
		if err := w.Flush(); err != nil {
			r.Fatal(err)
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || line != "MN\r\n" {
			r.Fatalf("%q %v", line, err)
		}
		conn.Close()
	}
}

// values asks a node, in the classic protocol, what it has of keys: how many of each value.
func (r *real) values(addr string, keys []string) map[string]int {
	r.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		r.Fatal(err)
	}
	defer conn.Close()
	in, counts := bufio.NewReader(conn), map[string]int{}
	for chunk := range slices.Chunk(keys, 100) {
		fmt.Fprintf(conn, "get %s\r\n", strings.Join(chunk, " "))
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				r.Fatal(err)
			}
			if line == "END\r\n" {
				break
			}
			value, err := in.ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "VALUE ") {
				r.Fatalf("%q %v", line, err)
			}
			counts[strings.TrimSpace(value)]++
		}
	}
	return counts
}

// Only the pool's keys go, of 200,000 on each node; what is filled after the mark stays, and a conductor that dies in the middle is gone on with.
func TestFlushOfRealNodes(t *testing.T) {
	const n = 100_000
	r := newReal(t)
	user, feed := keys("user", n), keys("feed", n)
	r.set("old", user)
	r.set("old", feed)
	stop := r.start()
	r.ask(replay.Request{ID: "f1", Target: replay.Target{Pool: "user"}, Options: replay.Options{Slices: 12, Pace: 60_000, Refill: 1, MaxLoad: "10000000"}})
	parts := func() (done int, copies int64) {
		for _, s := range r.statuses() {
			if p, is := s.(replay.Progress); is && p.Done {
				done, copies = done+1, copies+p.Copies
			}
		}
		return done, copies
	}
	r.await("a part to be done", func() bool { done, _ := parts(); return done > 0 })
	filled := user[:1000]
	r.set("new", filled)
	r.await("some parts to be done", func() bool { done, _ := parts(); return done > 2 })
	stop()
	if _, ended := (&rig{topics: r.topics}).result("f1"); ended {
		t.Fatal("it has ended: nobody is left to go on")
	}
	left := 0
	for _, addr := range r.addrs {
		left += r.values(addr, user)["old"]
	}
	if left == 0 || left == 2*n {
		t.Fatalf("%d copies are left: it is not in the middle", left)
	}
	told, _ := parts()
	// What is filled from now on is behind the first conductor's marks, and before the second's: it stays where it was done.
	defer r.start()()
	res := r.await1("f1")
	if !res.Clean {
		t.Fatalf("%+v", res)
	}
	jobs := 0
	for _, on := range r.topics.control {
		if _, is := on.Record.(replay.Job); is {
			jobs++
		}
	}
	if done, _ := parts(); jobs != 1 || done != 12 || told >= done {
		t.Errorf("%d jobs, %d parts done, %d of them by the first conductor", jobs, done, told)
	}
	kept := 0
	for _, addr := range r.addrs {
		got := r.values(addr, user)
		if got["old"] > 0 {
			t.Errorf("%d old copies are left on %s", got["old"], addr)
		}
		kept += got["new"]
		if got := r.values(addr, feed); got["old"] != n {
			t.Errorf("%d keys of the other pool are left on %s", got["old"], addr)
		}
	}
	if kept == 0 {
		t.Error("nothing of what was filled has stayed")
	}
}

// What is filled after the job began stays on every node, whenever that is visited.
func TestRefillsStayOnRealNodes(t *testing.T) {
	const n = 20_000
	r := newReal(t)
	user := keys("user", n)
	r.set("old", user)
	defer r.start()()
	r.ask(replay.Request{ID: "f1", Target: replay.Target{Pool: "user"}, Options: replay.Options{Slices: 8, Pace: 30_000, Refill: 1, MaxLoad: "10000000"}})
	r.await("the first deletes", func() bool { return r.values(r.addrs[0], user)["old"] < n })
	filled := user[:5000]
	r.set("new", filled)
	if res := r.await1("f1"); !res.Clean || res.Kept == 0 {
		t.Fatalf("%+v", res)
	}
	for _, addr := range r.addrs {
		if got := r.values(addr, user); got["new"] != len(filled) || got["old"] > 0 {
			t.Errorf("%s holds %v", addr, got)
		}
	}
}

// Of nodes without CAS nothing can be compared; a node without a crawler, or that refuses dumps, ends it with an error.
func TestFlushOfRealNodesThatAreRunOtherwise(t *testing.T) {
	t.Run("-C", func(t *testing.T) {
		r := newReal(t, "-C")
		user, feed := keys("user", 5000), keys("feed", 5000)
		r.set("old", user)
		r.set("old", feed)
		defer r.start()()
		r.ask(replay.Request{ID: "f1", Target: replay.Target{Pool: "user"}, Options: replay.Options{Slices: 1, MaxLoad: "10000000"}})
		if res := r.await1("f1"); !res.Clean || res.Copies != 10_000 {
			t.Errorf("%+v", res)
		}
		for _, addr := range r.addrs {
			if u, f := r.values(addr, user), r.values(addr, feed); len(u) > 0 || f["old"] != 5000 {
				t.Errorf("%s holds %v and %v", addr, u, f)
			}
		}
	})
	for _, args := range [][]string{{"-X"}, {"-o", "no_lru_crawler"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			r := newReal(t, args...)
			r.set("old", keys("user", 10))
			defer r.start()()
			r.ask(replay.Request{ID: "f1", Target: replay.Target{Pool: "user"}, Options: replay.Options{MaxLoad: "10000000"}})
			res := r.await1("f1")
			if res.Clean || strings.Count(res.Error, "cannot dump its keys") != 2 || !strings.Contains(res.Error, r.addrs[0]) {
				t.Errorf("%+v", res)
			}
		})
	}
}

// Memory does not follow what a node holds: 100,000 keys of the pool through an arena of 1 MiB.
func TestMemoryIsBoundedOnRealNodes(t *testing.T) {
	const n = 100_000
	r := newReal(t)
	user := keys("user", n)
	r.set("x", user)
	r.o.Arena = 1 << 20
	defer r.start()()
	began := time.Now()
	r.ask(replay.Request{ID: "f1", Target: replay.Target{Node: r.addrs[0]}, Options: replay.Options{Slices: 1, Pace: 10_000_000, Refill: 1, MaxLoad: "10000000"}})
	res := r.await1("f1")
	if !res.Clean || res.Copies != n {
		t.Fatalf("%+v", res)
	}
	t.Logf("%d copies in %s", res.Copies, time.Since(began).Round(time.Millisecond))
	if got := r.values(r.addrs[0], user); len(got) > 0 {
		t.Errorf("%v are left", got)
	}
	if got := r.values(r.addrs[1], user); got["x"] != n {
		t.Errorf("the other node holds %v", got)
	}
}
