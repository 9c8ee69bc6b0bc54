package flush

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/replay"
	"invalidator/sink"
)

// TestRandomStories: whatever happens to nodes, conductors, topics and the ring while a pool is flushed, no copy that was there before is left on a node where a client may look for
// it, and no other pool has lost one.
func TestRandomStories(t *testing.T) {
	const stories = 100
	for seed := range uint64(stories) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inBubble(t, func(r *rig) { randomStory(r, rand.New(rand.NewPCG(seed, 7))) })
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		})
	}
}

func randomStory(r *rig, rnd *rand.Rand) {
	names := []string{"a", "b", "c", "d"}
	node := func() string { return names[rnd.IntN(len(names))] + ":1" }
	r.o.Arena = 1 << (10 + rnd.IntN(8))
	old := keys("user", 50+rnd.IntN(300))
	for _, n := range names {
		r.nodes.fill(n+":1", "old", old[:rnd.IntN(len(old))+1]...)
		r.nodes.fill(n+":1", "old", keys("feed", 20)...)
		r.nodes.change(n+":1", func(n *fakeNode) { n.noCAS, n.slow = rnd.IntN(8) == 0, time.Duration(rnd.IntN(3000))*time.Millisecond })
	}
	records := []*sink.Record{r.view.Sights[0].Record}
	fill := func() { r.nodes.fill(node(), "new", old[rnd.IntN(len(old))]) }
	events := []func(){
		fill, fill, fill,
		func() { r.nodes.change(node(), func(n *fakeNode) { n.down = errors.New("connection refused") }) },
		func() { r.nodes.change(node(), func(n *fakeNode) { n.down = nil }) },
		func() { r.nodes.change(node(), func(n *fakeNode) { n.off = true }) },
		func() { r.nodes.change(node(), func(n *fakeNode) { n.off = false }) },
		func() { r.nodes.change(node(), func(n *fakeNode) { n.running = !n.running }) },
		func() { r.nodes.change(node(), func(n *fakeNode) { n.pid++ }) }, // with its memory
		func() {
			name := node()
			r.nodes.change(name, func(n *fakeNode) {
				n.voids = 1 + rnd.IntN(3)
			})
		},
		func() { // a node joins, with a past, or leaves, or a replica is promoted
			if _, ended := r.result("f1"); ended {
				return
			}
			next := ringRecord(records[len(records)-1].Epoch+1, "s0 "+strings.Join(shuffled(rnd, names)[:2], " "), "s1 "+strings.Join(shuffled(rnd, names)[:2], " "))
			records = append(records, next)
			r.see(viewOf(r.T, records...))
		},
		func() { r.stop(); r.start() },
		func() { r.conductor.Claim(nil); r.after(time.Second); r.conductor.Claim([]int32{7}) },
		func() { r.topics.failOnce() },
		func() { r.lost.Store(!r.lost.Load()) },
		func() { r.say(replay.Pause, "f1") },
		func() { r.say(replay.Resume, "f1") },
	}
	r.ask("f1", replay.Target{Pool: "user"}, func(q *replay.Request) {
		q.Slices, q.Pace, q.Refill = 1+rnd.IntN(40), int64(20+rnd.IntN(1000)), int64(1+rnd.IntN(3))
	})
	r.start()
	for range 5 + rnd.IntN(25) {
		r.after(time.Duration(rnd.IntN(6000)) * time.Millisecond)
		events[rnd.IntN(len(events))]()
	}
	for _, n := range names {
		r.nodes.change(n+":1", func(n *fakeNode) { n.down, n.off, n.running = nil, false, false })
	}
	r.lost.Store(false)
	r.say(replay.Resume, "f1")
	r.done("f1")
	for _, n := range names {
		feed := 0
		for _, text := range r.nodes.holds(n + ":1") {
			switch {
			case strings.HasPrefix(text, "feed:"):
				feed++
			case strings.HasSuffix(text, "=old") && slices.ContainsFunc(r.today().Topology.AppendCopies(nil, strings.TrimSuffix(text, "=old"), 0), func(c sink.Copy) bool { return c.Node == n+":1" }):
				r.Errorf("%s holds %s", n, text)
			}
		}
		if feed != 20 {
			r.Errorf("%s has %d keys of the other pool", n, feed)
		}
	}
}

func shuffled(rnd *rand.Rand, names []string) []string {
	out := make([]string, len(names))
	for i, j := range rnd.Perm(len(names)) {
		out[i] = names[j]
	}
	return out
}
