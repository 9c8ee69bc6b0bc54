package flush

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/replay"
	"invalidator/sink"
)

// once has a node's dump do something the first time.
func once(n *fakeNode, do func(show func() error) error) {
	done := false
	n.dump = func(show func() error) error {
		if done {
			return show()
		}
		done = true
		return do(show)
	}
}

// TestNodesThatFail: whatever keeps a node from it, the others go on, and it is done when it can be.
func TestNodesThatFail(t *testing.T) {
	void := func(node string) error {
		return &sink.VoidError{Node: node, Err: errors.New("its reader paused")}
	}
	for name, story := range map[string]struct {
		breaks func(r *rig, n *fakeNode)
		mend   func(r *rig, n *fakeNode) // after a minute; nil: it mends itself
		told   string                    // on the status topic, why it waits; empty: nothing
	}{
		"a node that does not answer": {
			func(_ *rig, n *fakeNode) { n.down = errors.New("connection refused") }, func(_ *rig, n *fakeNode) { n.down = nil }, "connection refused"},
		"a node whose crawler is at work": {
			func(_ *rig, n *fakeNode) { n.running = true }, func(_ *rig, n *fakeNode) { n.running = false }, "its LRU crawler is at work"},
		"a dump that is refused, since another one is quicker": {
			func(_ *rig, n *fakeNode) {
				once(n, func(func() error) error { return &sink.BusyError{Node: "b:1"} })
			}, nil, ""},
		"a dump that ends in the middle": {
			func(_ *rig, n *fakeNode) {
				once(n, func(show func() error) error { show(); return void("b:1") })
			}, nil, ""},
		"a dump that always ends in the middle": {
			func(_ *rig, n *fakeNode) {
				n.dump = func(show func() error) error { show(); return void("b:1") }
			}, func(_ *rig, n *fakeNode) { n.dump = nil }, "its reader paused"},
		"a node that takes no mark": {
			func(_ *rig, n *fakeNode) { n.unset = errors.New("out of memory storing object") }, func(_ *rig, n *fakeNode) { n.unset = nil }, "setting a mark: out of memory"},
		"a node that does not answer after its dump": {
			func(r *rig, n *fakeNode) {
				once(n, func(show func() error) error {
					err := show()
					r.nodes.change("b:1", func(n *fakeNode) { n.down = errors.New("connection reset") })
					return err
				})
			}, func(_ *rig, n *fakeNode) { n.down = nil }, "connection reset"},
		"a client that takes no deletes": {
			func(_ *rig, n *fakeNode) { n.closed = errors.New("the client is closed") }, func(_ *rig, n *fakeNode) { n.closed = nil }, "the client is closed"},
		"a node that goes off before its deletes": {
			func(_ *rig, n *fakeNode) { n.off = true }, func(_ *rig, n *fakeNode) { n.off = false }, "off the live path"},
		"a node that goes off in the middle of them": {
			func(r *rig, n *fakeNode) {
				left := 5
				n.deleted = func(string) {
					if left--; left == 0 {
						r.nodes.change("b:1", func(n *fakeNode) { n.off, n.deleted = true, nil })
					}
				}
			}, func(_ *rig, n *fakeNode) { n.off = false }, "off the live path"},
		"a node that is restarted while it is dumped": {
			func(r *rig, n *fakeNode) {
				once(n, func(show func() error) error {
					err := show()
					r.nodes.change("b:1", func(n *fakeNode) { n.pid++ })
					return err
				})
			}, nil, ""},
		"a node that is restarted while it is deleted from": {
			func(r *rig, n *fakeNode) {
				left := 5
				n.deleted = func(string) {
					if left--; left == 0 {
						r.nodes.change("b:1", func(n *fakeNode) { n.pid++ })
					}
				}
			}, nil, ""},
		"a node that moves its items before it is dumped": {
			func(r *rig, n *fakeNode) {
				once(n, func(show func() error) error {
					r.nodes.change("b:1", (*fakeNode).move)
					return show()
				})
			}, nil, ""},
		"a node that moves its items whenever it is dumped": {
			func(r *rig, n *fakeNode) {
				n.dump = func(show func() error) error {
					r.nodes.change("b:1", (*fakeNode).move)
					return show()
				}
			}, nil, ""},
		"a node that moves its items while it is deleted from": {
			func(r *rig, n *fakeNode) {
				left := 5
				n.deleted = func(string) {
					if left--; left == 0 {
						r.nodes.change("b:1", (*fakeNode).move)
					}
				}
			}, nil, ""},
		"a node that is restarted after its mark": {
			func(r *rig, _ *fakeNode) {
				once(r.nodes.node("a:1"), func(show func() error) error {
					r.nodes.change("b:1", func(n *fakeNode) { n.pid, n.cas = n.pid+1, 0 })
					r.nodes.fill("b:1", "old", keys("user", 20)...) // of low CAS values again, as of a restart with its memory
					return show()
				})
			}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.nodes.fill("a:1 b:1 c:1", "old", append(keys("user", 20), "feed:1")...)
				story.breaks(r, r.nodes.node("b:1"))
				r.ask("f1", replay.Target{Pool: "user"})
				r.start()
				r.after(time.Minute)
				r.expect(map[string]string{"a": "feed:1=old", "c": "feed:1=old"})
				_, ended := r.result("f1")
				if ended != (story.mend == nil) {
					r.Errorf("it has ended: %v", ended)
				}
				if waits := strings.Join(r.waits(), "\n"); !strings.Contains(waits, story.told) || story.told == "" && waits != "" {
					r.Errorf("why it waits: %q", waits)
				}
				if story.mend != nil {
					r.nodes.change("b:1", func(n *fakeNode) { story.mend(r, n) })
				}
				r.done("f1")
				r.expect(map[string]string{"b": "feed:1=old"})
				if n := len(r.nodes.dumps()); n > 20 {
					r.Errorf("%d dumps: it is tried without a pause", n)
				}
			})
		})
	}
}

// TestANodeThatIsRestartedKeepsWhatWasFilledThere: with a mark of its own.
func TestANodeThatIsRestartedKeepsWhatWasFilledThere(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1 b:1", "old", keys("user", 5)...)
		once(r.nodes.node("b:1"), func(show func() error) error {
			err := show()
			r.nodes.change("b:1", func(n *fakeNode) { n.pid, n.cas, n.items = n.pid+1, 0, map[string]item{} })
			return err
		})
		n, again := r.nodes.node("b:1"), 0
		first := n.dump
		n.dump = func(show func() error) error {
			if again++; again == 2 {
				r.nodes.fill("b:1", "new", "user:1")
			}
			return first(show)
		}
		r.ask("f1", replay.Target{Pool: "user"})
		r.start()
		r.done("f1")
		r.expect(map[string]string{"b": "user:1=new"})
	})
}

// TestANodeThatCanNeverBeDumped: the others are done, and the result names it. The gap stays open.
func TestANodeThatCanNeverBeDumped(t *testing.T) {
	for _, where := range []string{"stats", "dump"} {
		t.Run(where, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.nodes.fill("a:1 b:1 c:1", "old", "user:1")
				for _, node := range []string{"a:1", "c:1"} {
					never := &sink.NoDumpError{Node: node, Why: "it runs with -X (start it without)"}
					if where == "stats" {
						r.nodes.node(node).down = never
					} else {
						r.nodes.node(node).dump = func(func() error) error { return never }
					}
				}
				r.ask("f1", replay.Target{Pool: "user"})
				r.start()
				res := r.await("f1")
				r.expect(map[string]string{"a": "user:1=old", "b": "", "c": "user:1=old"})
				want := "node a:1 cannot dump its keys: it runs with -X (start it without); node c:1 cannot dump its keys: it runs with -X (start it without)"
				if res.Clean || res.Error != want {
					r.Errorf("%+v", res)
				}
			})
		})
	}
}

// TestAKeyThatANodeRefuses: it stays, and the result says so.
func TestAKeyThatANodeRefuses(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1", "old", "user:1", "user:2")
		r.nodes.node("a:1").refuses = map[string]bool{"user:2": true}
		r.ask("f1", replay.Target{Pool: "user"})
		r.start()
		res := r.await("f1")
		r.expect(map[string]string{"a": "user:2=old"})
		if res.Clean || res.Copies != 1 || res.Error != `1 copies were refused by their nodes, and stay: node a:1 refuses key "user:2": CLIENT_ERROR` {
			r.Errorf("%+v", res)
		}
	})
}

// TestANodeThatLeavesTheRing: nobody reads what it holds.
func TestANodeThatLeavesTheRing(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.node("b:1").down = errors.New("connection refused")
		r.ask("f1", replay.Target{Pool: "user"})
		r.start()
		r.after(time.Minute)
		if _, ended := r.result("f1"); ended {
			r.Fatal("it has ended")
		}
		r.see(viewOf(r.T, ringRecord(9, "s0 a", "s1 c")))
		r.done("f1")
	})
}

// TestWhatCannotBeDoneIsRefused: with what mends it.
func TestWhatCannotBeDoneIsRefused(t *testing.T) {
	for why, ask := range map[string]func(r *rig){
		"no ring record of the last 24h0m0s names node z:1 (invalidator ring show)": func(r *rig) { r.ask("f1", replay.Target{Node: "z:1"}) },
		"does not end in a number above 0": func(r *rig) {
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad = "reads<many" })
		},
		"set replay.flush.prometheus": func(r *rig) {
			r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.MaxLoad = "sum(reads)<5" })
		},
	} {
		inBubble(t, func(r *rig) {
			ask(r)
			r.start()
			if res := r.await("f1"); res.Clean || !strings.Contains(res.Error, why) || len(r.jobs()) > 0 {
				r.Errorf("%+v, want %s", res, why)
			}
		})
	}
}

// TestMetricsThatAreThereAlready is two conductors in one process.
func TestMetricsThatAreThereAlready(t *testing.T) {
	o := Options{Registerer: prometheus.NewRegistry()}
	if _, err := New(o); err != nil {
		t.Fatal(err)
	}
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "registering metrics of flushes") {
		t.Error(err)
	}
}

// TestAnswersThatComeLate: a part is done when all of it is answered, and not before.
func TestAnswersThatComeLate(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1", "old", keys("user", 50)...)
		r.nodes.node("a:1").late = 30 * time.Second
		r.ask("f1", replay.Target{Node: "a:1"}, func(q *replay.Request) { q.Slices = 3 })
		r.start()
		for len(r.nodes.deletes()) < 50 {
			r.after(time.Second)
		}
		r.after(25 * time.Second)
		for _, s := range r.statuses() {
			t.Errorf("it says %+v before the node has answered", s)
		}
		if res := r.done("f1"); res.Copies != 50 {
			t.Errorf("%+v", res)
		}
	})
	inBubble(t, func(r *rig) { // and one that goes off meanwhile
		r.nodes.fill("a:1", "old", keys("user", 50)...)
		r.nodes.change("a:1", func(n *fakeNode) {
			n.late, n.deleted = 5*time.Second, func(string) { r.nodes.change("a:1", func(n *fakeNode) { n.off = true }) }
		})
		r.ask("f1", replay.Target{Node: "a:1"}, func(q *replay.Request) { q.Slices = 3 })
		r.start()
		r.after(time.Minute)
		r.nodes.change("a:1", func(n *fakeNode) { n.off, n.deleted = false, nil })
		if _, ended := r.result("f1"); ended {
			t.Error("it has ended, and nothing is deleted")
		}
		r.done("f1")
		r.expect(map[string]string{"a": ""})
	})
	inBubble(t, func(r *rig) { // and a conductor that ends meanwhile
		r.nodes.fill("a:1", "old", keys("user", 50)...)
		r.nodes.node("a:1").late = 30 * time.Second
		r.ask("f1", replay.Target{Node: "a:1"})
		r.start()
		r.after(20 * time.Second)
		began := time.Now()
		r.stop()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %s", took)
		}
		r.after(time.Minute)
	})
}

// TestAPartThatTakesLong is told of while it goes on; and a broker that is away just then ends the term.
func TestAPartThatTakesLong(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1", "old", keys("user", 1000)...)
		failed := false
		r.topics.write = func(record replay.Record) error {
			if p, is := record.(replay.Progress); is && !p.Done && p.Copies > 300 && !failed {
				failed = true
				return errBroker
			}
			return nil
		}
		r.ask("f1", replay.Target{Node: "a:1"}, func(q *replay.Request) { q.Pace, q.Slices = 100, 1 })
		r.start()
		r.done("f1")
		r.expect(map[string]string{"a": ""})
		told := 0
		for _, s := range r.statuses() {
			if p, is := s.(replay.Progress); is && !p.Done {
				told++
			}
		}
		if told < 3 || r.topics.terms() != 2 {
			t.Errorf("told %d times, in %d terms", told, r.topics.terms())
		}
	})
}

// TestWhatANodeHeldHasExpired: a node that is away for longer than a copy lives has nothing left of it.
func TestWhatANodeHeldHasExpired(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.o.MaxTTL = 30 * time.Minute
		r.nodes.node("b:1").down = errors.New("connection refused")
		r.ask("f1", replay.Target{Pool: "user"})
		r.start()
		r.done("f1")
		if took := time.Since(r.begun); took < 31*time.Minute || took > 33*time.Minute {
			t.Errorf("it took %s", took)
		}
	})
}

// TestWhatOnlyTriesAgainStarvesNobody: a promotion of which a node is away is tried again and again, and another flush, each of whose dumps takes longer than that, goes on.
func TestWhatOnlyTriesAgainStarvesNobody(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("b:1 c:1", "old", keys("user", 6000)...)
		r.nodes.node("a:1").down = errors.New("connection refused")
		r.nodes.node("c:1").slow = time.Minute
		r.ask("promotion/1/s0/feed", replay.Target{Pool: "feed", Shard: "s0"}, promoted(1))
		r.ask("f1", replay.Target{Node: "c:1"}, func(q *replay.Request) { q.Slices = 30 })
		r.start()
		r.done("f1")
		r.expect(map[string]string{"c": ""})
		dumps := 0
		for _, node := range r.nodes.dumps() {
			if node == "c:1" {
				dumps++
			}
		}
		if dumps > 3 {
			t.Errorf("%d dumps", dumps)
		}
		r.nodes.change("a:1", func(n *fakeNode) { n.down = nil })
		r.done("promotion/1/s0/feed")
	})
}

// TestANodeThatIsBackOvertakes: as soon as the other flush has done something.
func TestANodeThatIsBackOvertakes(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("a:1 b:1 c:1", "old", append(keys("user", 20_000), keys("feed", 50)...)...)
		r.nodes.node("a:1").down = errors.New("connection refused")
		r.ask("promotion/1/s0/feed", replay.Target{Pool: "feed", Shard: "s0"}, promoted(1))
		r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Slices = 90 })
		r.start()
		r.after(2 * time.Minute)
		r.nodes.change("a:1", func(n *fakeNode) { n.down = nil })
		r.after(time.Minute)
		if _, ended := r.result("f1"); ended {
			t.Fatal("the other flush has ended")
		}
		feed := 0
		for _, key := range r.nodes.holds("a:1") {
			if key[0] == 'f' {
				feed++
			}
		}
		if feed == 50 {
			t.Error("the promotion waits")
		}
		r.done("f1")
		r.done("promotion/1/s0/feed")
	})
}
