package flush

import (
	"slices"
	"testing"
	"time"

	"invalidator/replay"
)

// TestNodesThatMoveItems: what a node has moved in its memory looks filled, and is deleted all the same. It is dumped again only where nobody knows what that is.
func TestNodesThatMoveItems(t *testing.T) {
	duringDeletes := func(do func(n *fakeNode)) func(r *rig) {
		return func(r *rig) {
			left := 5
			r.nodes.node("b:1").deleted = func(string) {
				if left--; left == 0 {
					r.nodes.change("b:1", do)
				}
			}
		}
	}
	for name, story := range map[string]struct {
		moves func(r *rig)
		dumps int // of it
		kept  int64
		left  string // of the pool, there
	}{
		"while it is deleted from: what had another CAS value then is deleted again": {duringDeletes((*fakeNode).move), 1, 0, ""},
		"what was filled meanwhile goes with it": {
			duringDeletes(func(n *fakeNode) {
				n.move()
				n.cas++
				n.items["user:filled"] = item{n.cas, "new", 0} // not by the name of what was found
				for key := range n.items {
					if key != markKey && key != "user:filled" {
						n.cas++
						n.items[key] = item{n.cas, "new", 0}
					}
				}
			}), 1, 0, " user:filled=new"},
		"others' items": {duringDeletes(func(n *fakeNode) { n.moved++ }), 1, 0, ""},
		"while it is dumped, and none that looks filled": {
			func(r *rig) {
				once(r.nodes.node("b:1"), func(show func() error) error {
					r.nodes.change("b:1", func(n *fakeNode) { n.moved++ })
					return show()
				})
			}, 1, 0, ""},
		"while it is dumped, and some look filled": {
			func(r *rig) {
				once(r.nodes.node("b:1"), func(show func() error) error {
					r.nodes.change("b:1", (*fakeNode).move)
					return show()
				})
			}, 2, 0, ""},
		"more than are remembered": {
			func(r *rig) {
				r.o.Arena = 4 * remembered
				duringDeletes((*fakeNode).move)(r)
			}, 2, 0, ""},
		"nothing: what was filled stays": {
			duringDeletes(func(n *fakeNode) {
				for key := range n.items {
					if key != markKey {
						n.cas++
						n.items[key] = item{n.cas, "new", 0}
					}
				}
			}), 1, 15, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.nodes.fill("a:1 b:1 c:1", "old", append(keys("user", 20), "feed:1")...)
				story.moves(r)
				r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) { q.Slices = 1 })
				r.start()
				res := r.done("f1")
				if n := len(slices.DeleteFunc(r.nodes.dumps(), func(node string) bool { return node != "b:1" })); n != story.dumps || res.Kept < story.kept {
					r.Errorf("%d dumps, want %d; %d kept, want %d", n, story.dumps, res.Kept, story.kept)
				}
				if story.kept > 0 {
					if n := len(r.nodes.holds("b:1")); n < int(story.kept) {
						r.Errorf("it holds %d", n)
					}
					return
				}
				feed := "old"
				if story.left != "" {
					feed = "new"
				}
				r.expect(map[string]string{"b": "feed:1=" + feed + story.left})
				if got := r.metric("keys_total", keysKept); got != float64(res.Kept) {
					r.Errorf("the metric has %v kept, the result %d", got, res.Kept)
				}
			})
		})
	}
}

// TestABusyCrawler: a node is flushed as soon as its crawler is at rest, however long that was at work, and why it waits is told now and then.
func TestABusyCrawler(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.nodes.fill("b:1", "old", "user:1")
		r.nodes.node("b:1").running = true
		r.ask("f1", replay.Target{Node: "b:1"}, func(q *replay.Request) { q.MaxLoad = "1000" })
		r.start()
		r.after(time.Minute)
		if n := len(r.waits()); n < 5 || n > 15 {
			r.Errorf("it was told %d times that it waits", n)
		}
		r.nodes.change("b:1", func(n *fakeNode) { n.running = false })
		at := time.Now()
		r.done("f1")
		if late := r.nodes.deletes()[0].Sub(at); late > asideMin {
			r.Errorf("the delete came %s after it was at rest", late)
		}
	})
}
