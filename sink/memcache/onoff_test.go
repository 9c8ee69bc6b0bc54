package memcache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/sink"
)

func mustDelete(t *testing.T, c *Client, l sink.Lane, node, key string, w sink.Waiter) {
	t.Helper()
	if err := c.Delete(t.Context(), l, sink.Copy{Node: node, Key: key}, w); err != nil {
		t.Fatalf("Delete(%s) on %s: %v", key, node, err)
	}
}

// Where all queues together hold their bound it is the fullest that leaves, whoever asks for room.
func TestTheFullestLeaves(t *testing.T) {
	bubble(t, Options{TotalBytes: 4000, MaxLag: time.Hour}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		for _, n := range []string{"a:1", "b:1", "c:1"} {
			w.set(n, func(n *wireNode) { n.dead = true })
		}
		left, stay := make(acks, 100), make(acks, 100)
		for i := range 30 {
			mustDelete(t, c, sink.Debts, "a:1", fmt.Sprint("key", i), left)
		}
		for i := range 10 {
			mustDelete(t, c, sink.Live, "b:1", fmt.Sprint("key", i), stay)
		}
		for i := 0; len(turns()) == 0 && i < 100; i++ {
			mustDelete(t, c, sink.Live, "c:1", fmt.Sprint("key", i), dropped{})
			synctest.Wait()
		}
		if got := turns(); len(got) != 1 || got[0].node != "a:1" || got[0].on {
			t.Fatalf("turns: %+v", got)
		}
		left.wantOff(t, 30, "the queues of all nodes hold their bound (4000 bytes), and its own holds most")
		stay.none(t)
		if held := int64(c.Nodes()[1].QueuedBytes + c.Nodes()[2].QueuedBytes); held > 4000 || c.budget.held.Load() != held {
			t.Errorf("the queues hold %d bytes, %d are counted", held, c.budget.held.Load())
		}
	})
}

// Lanes other than Live wait for room, of the lane and of all nodes: until it comes, the context ends, the node goes off, or the client is
// closed.
func TestWaitingForRoom(t *testing.T) {
	for name, opts := range map[string]Options{
		"in the lane":      {QueueBytes: 400 * lowerPart, MaxLag: 9 * time.Hour},
		"in all the queue": {TotalBytes: 400, MaxLag: 9 * time.Hour},
	} {
		for l := sink.Backlog; int(l) < sink.Lanes; l++ {
			t.Run(fmt.Sprint(name, " ", l), func(t *testing.T) {
				bubble(t, opts, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
					w.set("n:1", func(n *wireNode) { n.delay = time.Hour })
					told := make(acks, 100)
					ended := make(chan error, 1)
					wait := func(ctx context.Context) {
						t.Helper()
						go func() {
							for i := 0; ; i++ {
								if err := c.Delete(ctx, l, sink.Copy{Node: "n:1", Key: fmt.Sprint("key", i)}, told); err != nil {
									ended <- err
									return
								}
							}
						}()
						synctest.Wait()
						if len(ended) > 0 {
							t.Fatal("it does not wait", <-ended)
						}
					}
					ctx, cancel := context.WithCancel(t.Context())
					wait(ctx)
					cancel()
					if err := <-ended; !errors.Is(err, context.Canceled) {
						t.Fatal(err)
					}
					wait(t.Context())
					queued := c.Nodes()[0].Queued
					time.Sleep(time.Hour) // one batch is answered
					if synctest.Wait(); len(told) == 0 || c.Nodes()[0].Queued == 0 || len(ended) > 0 {
						t.Fatalf("%d answers for %d, %d queued, %d ended", len(told), queued, c.Nodes()[0].Queued, len(ended))
					}
					c.node("n:1").leave("the test wants it")
					checkOff(t, <-ended, "n:1", "the test wants it")
				})
			})
		}
	}
}

// A live delete never waits: not for its lane, which others fill, nor for the queues of all nodes.
func TestLiveNeverWaits(t *testing.T) {
	bubble(t, Options{QueueBytes: 8000, TotalBytes: 16_000, MaxLag: time.Hour}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		began := time.Now()
		for n := range 20 {
			addr := fmt.Sprintf("n%d:1", n)
			w.set(addr, func(n *wireNode) { n.delay = time.Hour })
			fillLane(t, c, sink.Live, addr)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it waited %s", took)
		}
	})
}

// A node that answers less than a quarter of what the median of at least three does holds up no backlog.
func TestAStragglerLeavesForTheBacklog(t *testing.T) {
	for name, tc := range map[string]struct {
		nodes int
		slow  time.Duration // of the first; the others answer a batch in 10 ms
		lane  sink.Lane
		off   bool
	}{
		"a straggler":                   {3, 100 * time.Millisecond, sink.Backlog, true},
		"slow, and no straggler":        {3, 30 * time.Millisecond, sink.Backlog, false},
		"of two nodes none is":          {2, 100 * time.Millisecond, sink.Backlog, false},
		"debts wait for it, no backlog": {3, 100 * time.Millisecond, sink.Debts, false},
		"all of them slow":              {5, 10 * time.Millisecond, sink.Backlog, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{QueueBytes: 3000 * lowerPart, ConnsPerNode: 1}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				var readers sync.WaitGroup
				for n := range tc.nodes {
					addr := fmt.Sprintf("n%d:1", n)
					w.set(addr, func(wn *wireNode) {
						wn.delay = 10 * time.Millisecond
						if n == 0 {
							wn.delay = tc.slow
						}
					})
					readers.Go(func() {
						for i := 0; c.Delete(ctx, tc.lane, sink.Copy{Node: addr, Key: fmt.Sprint("key", i)}, dropped{}) == nil; i++ {
						}
					})
				}
				readers.Wait()
				switch got := turns(); {
				case !tc.off && len(got) > 0:
					t.Errorf("turns: %+v", got)
				case tc.off && (len(got) == 0 || got[0].on || got[0].node != "n0:1" || got[0].at < paceWindow || got[0].at > 3*paceWindow):
					t.Errorf("turns: %+v", got)
				}
			})
		})
	}
}

// The first time a node is back as soon as it answers; when it goes off again within a minute it stays off, longer each time.
func TestANodeThatFlapsStaysOff(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		mustDelete(t, c, sink.Live, "n:1", "first", dropped{})
		off := func() (stayed time.Duration) {
			t.Helper()
			before := len(turns())
			c.node("n:1").leave("the test wants it")
			for len(turns()) < before+2 {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			got := turns()
			return got[before+1].at - got[before].at
		}
		for i, want := range []time.Duration{0, 1, 2, 4, 8, 16, 30, 30} {
			if got := off(); got.Truncate(100*time.Millisecond) != want*time.Second {
				t.Errorf("time %d: it stayed off for %s, want %s", i, got, want*time.Second)
			}
			time.Sleep(59 * time.Second)
		}
		time.Sleep(2 * time.Second)
		if got := off(); got > 100*time.Millisecond {
			t.Errorf("after a calm minute it stayed off for %s", got)
		}
	})
}

// A node that was spoken to within the last minute is known to be away without a delete.
func TestAnIdleNodeIsAskedForAnMN(t *testing.T) {
	for name, tc := range map[string]struct {
		dies time.Duration // after its last delete
		off  bool
	}{"within a minute": {50 * time.Second, true}, "after more": {70 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
				deleteAll(t, c, "n:1", []string{"k"}).want(t, 1)
				time.Sleep(tc.dies)
				synctest.Wait()
				if n := w.get("n:1"); n.asked < 40 || n.asked > 70 || len(turns()) > 0 || tc.off != (n.open > 0) {
					t.Errorf("%d exchanges, %d connections; turns %v", n.asked, n.open, turns())
				}
				w.set("n:1", func(n *wireNode) { n.dead = true })
				time.Sleep(lag + 2*watchEvery)
				if synctest.Wait(); tc.off != (len(turns()) == 1) {
					t.Errorf("turns: %v", turns())
				}
			})
		})
	}
}

func TestProbe(t *testing.T) {
	bubble(t, Options{ConnsPerNode: 1}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		probed := make(acks, 10)
		c.Probe("n:1", probed) // of a node that was never met
		probed.want(t, 1)

		w.set("n:1", func(n *wireNode) { n.delay = time.Second })
		mustDelete(t, c, sink.Live, "n:1", "k", dropped{})
		time.Sleep(time.Millisecond)
		c.Probe("n:1", probed) // while an exchange is under way, whose answer says nothing of what comes after the call
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		probed.none(t)
		time.Sleep(time.Second)
		synctest.Wait()
		probed.want(t, 1)

		time.Sleep(2 * time.Minute)
		w.set("n:1", func(n *wireNode) { n.delay, n.refuse = 0, true })
		c.Probe("n:1", probed) // it waits, and so the node goes off
		time.Sleep(lag + watchEvery)
		if synctest.Wait(); len(turns()) != 1 {
			t.Fatalf("turns: %v", turns())
		}
		c.Probe("n:1", probed)
		time.Sleep(time.Minute)
		synctest.Wait()
		probed.none(t)
		w.set("n:1", func(n *wireNode) { n.refuse = false })
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for range 2 {
			if got := <-probed; got.err != nil || got.Copy != (sink.Copy{Node: "n:1"}) {
				t.Errorf("told %+v", got)
			}
		}
		probed.none(t)
	})
}

// ledger counts what each delete was told.
type ledger struct {
	open *atomic.Int64 // of the node: accepted, and not told
	told atomic.Int64
	off  atomic.Bool
}

func (l *ledger) Acked(_ sink.Copy, err error) {
	l.off.Store(err != nil)
	l.told.Add(1)
	l.open.Add(-1)
}

// Whatever nodes do, named or not, each accepted delete is told once: that it was answered, or that its node went off. When OnOff tells of the latter
// nobody is left to be told.
func TestEachDeleteIsToldOnce(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 6))
			w := new(wire)
			c := w.client(Options{QueueBytes: 20_000, TotalBytes: 60_000, MaxLag: 300 * time.Millisecond})
			open := make(map[string]*atomic.Int64)
			for n := range 4 {
				open[fmt.Sprintf("n%d:1", n)] = new(atomic.Int64)
			}
			var offs atomic.Int64
			c.OnOff(func(node string, on bool) {
				if offs.Add(1); open[node].Load() > 0 {
					t.Errorf("seed %d: %d deletes were not told when %s turned %v", seed, open[node].Load(), node, on)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- c.Run(ctx) }()
			var all []*ledger
			probes, probed := 0, make(acks, 1000)
			for range 3000 {
				addr := fmt.Sprintf("n%d:1", rng.IntN(4))
				switch rng.IntN(100) {
				case 0:
					w.set(addr, func(n *wireNode) { *n = wireNode{open: n.open, dead: true} })
				case 1:
					w.set(addr, func(n *wireNode) { *n = wireNode{open: n.open, refuse: true} })
				case 2:
					w.set(addr, func(n *wireNode) {
						*n = wireNode{open: n.open, delay: time.Duration(rng.IntN(400)) * time.Millisecond}
					})
				case 3:
					w.set(addr, func(n *wireNode) { *n = wireNode{open: n.open, part: rng.IntN(5)} })
				case 4, 5, 6:
					w.set(addr, func(n *wireNode) { *n = wireNode{open: n.open} })
				case 7:
					probes++
					c.Probe(addr, probed)
				case 9:
					c.Retain(func(string) bool { return rng.IntN(2) == 0 })
				case 8:
					time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
				}
				l := &ledger{open: open[addr]}
				short, stop := context.WithTimeout(ctx, 10*time.Millisecond)
				err := c.Delete(short, sink.Lane(rng.IntN(sink.Lanes)), sink.Copy{Node: addr, Key: fmt.Sprint("k", rng.IntN(50))}, l)
				stop()
				if err == nil {
					l.open.Add(1) // it may have been told before
					all = append(all, l)
				}
			}
			for addr := range open {
				w.set(addr, func(n *wireNode) { *n = wireNode{open: n.open} })
			}
			c.Retain(everybody)
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(probed) != probes {
				t.Errorf("seed %d: %d probes were told %d times", seed, probes, len(probed))
			}
			off := 0
			for i, l := range all {
				if n := l.told.Load(); n != 1 {
					t.Fatalf("seed %d: delete %d was told %d times", seed, i, n)
				}
				if l.off.Load() {
					off++
				}
			}
			if held := c.budget.held.Load(); held != 0 {
				t.Errorf("seed %d: %d bytes are still counted", seed, held)
			}
			for _, st := range c.Nodes() {
				if !st.On || st.Queued != 0 || st.QueuedBytes != 0 {
					t.Errorf("seed %d: state in the end: %+v", seed, st)
				}
			}
			if off == 0 || off == len(all) || offs.Load() < 4 {
				t.Errorf("seed %d: %d of %d deletes were told that their node was off, in %d turns: it shows little", seed, off, len(all), offs.Load())
			}
			cancel()
			<-ended
		})
	}
}

// A probe is not lost to the attempt that carried it: neither to one that fails, nor to one that the node's going off ends.
func TestAProbeOutlivesItsAttempt(t *testing.T) {
	bubble(t, Options{}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		probed := make(acks, 10)
		deleteAll(t, c, "n:1", []string{"k"}).want(t, 1)
		w.set("n:1", func(n *wireNode) { n.delay = 100 * time.Millisecond })
		c.Probe("n:1", probed)
		time.Sleep(50 * time.Millisecond)
		w.set("n:1", func(n *wireNode) { n.refuse = true })
		time.Sleep(time.Second)
		synctest.Wait()
		probed.none(t)
		w.set("n:1", func(n *wireNode) { n.delay, n.refuse = 0, false })
		time.Sleep(lag)
		synctest.Wait()
		if probed.want(t, 1); len(turns()) > 0 {
			t.Fatalf("turns: %v", turns())
		}
		w.set("n:1", func(n *wireNode) { n.delay = time.Hour })
		c.Probe("n:1", probed)
		time.Sleep(lag + watchEvery)
		synctest.Wait()
		if probed.none(t); len(turns()) != 2 {
			t.Fatalf("turns: %v", turns()) // it connects, and then does not answer
		}
		w.set("n:1", func(n *wireNode) { n.delay = 0 })
		time.Sleep(lag + 2*watchEvery)
		synctest.Wait()
		probed.want(t, 1)
	})
}

// What has waited for room is not old when its turn comes: a node that deletes more slowly than a backlog is read stays on.
func TestABacklogMayWait(t *testing.T) {
	for l, off := range map[sink.Lane]bool{sink.Live: true, sink.Backlog: false, sink.Debts: false, sink.Storm: false} {
		bubble(t, Options{ConnsPerNode: 1, QueueBytes: 64 << 20}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
			w.set("n:1", func(n *wireNode) { n.delay = 900 * time.Millisecond })
			for i := range 8 * batchKeys {
				mustDelete(t, c, l, "n:1", fmt.Sprint("key", i), dropped{})
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if left := c.Nodes()[0].Queued; off != (len(turns()) > 0) || left > 0 {
				t.Errorf("lane %d: turns %v, %d left", l, turns(), left)
			}
		})
	}
}

// A node that holds nothing goes off: who waits for the room of all nodes, to delete there, is told.
func TestWaitingForTheRoomOfOthers(t *testing.T) {
	bubble(t, Options{TotalBytes: 4000, MaxLag: time.Hour}, func(t *testing.T, c *Client, w *wire, turns func() []turn) {
		w.set("full:1", func(n *wireNode) { n.delay = time.Hour })
		w.set("n:1", func(n *wireNode) { n.refuse = true }) // else it may be back before who waits has looked
		for c.budget.held.Load() < 2900 {
			mustDelete(t, c, sink.Debts, "full:1", fmt.Sprint("key", c.budget.held.Load()), dropped{})
		}
		ended := make(chan error, 1)
		go func() {
			ended <- c.Delete(t.Context(), sink.Debts, sink.Copy{Node: "n:1", Key: strings.Repeat("k", 200)}, dropped{})
		}()
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatal("it does not wait", <-ended)
		}
		c.node("n:1").leave("the test wants it")
		synctest.Wait()
		if len(ended) == 0 {
			t.Fatal("it waits on")
		}
		checkOff(t, <-ended, "n:1", "the test wants it")
	})
}
