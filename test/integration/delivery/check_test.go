//go:build integration

package delivery

import (
	"context"
	"fmt"
)

// stale is a copy that differs from its row.
type stale struct {
	key       *key
	node      *node
	name      string
	has, want string
}

func (s stale) String() string {
	return fmt.Sprintf("%s (%s), key %s\n    is cached:   %s\n    row renders: %s", s.node.name, s.node.Addr, s.name, s.has, s.want)
}

// check compares every copy that may be, of every key on every node, with its row. Nothing may write or fill meanwhile.
func (w *world) check() (checked, present int, found []stale) {
	w.t.Helper()
	for _, k := range w.keys {
		want, err := w.render(context.Background(), k)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, name := range k.names(w.hot.copies(k.text, true)) {
			for _, n := range w.nodes {
				hit, err := n.Get(name)
				if err != nil {
					w.t.Fatalf("reading %s of %s: %v", name, n.name, err)
				}
				checked++
				if !hit.Found {
					continue
				}
				if hit.Value != want && w.unseen(n, name) {
					continue
				}
				present++
				if hit.Value != want {
					found = append(found, stale{k, n, name, hit.Value, want})
				}
			}
		}
	}
	return checked, present, found
}

// report fails the test with the stories of stale copies.
func (w *world) report(found []stale) {
	w.t.Helper()
	const stories = 5
	for _, s := range found[:min(stories, len(found))] {
		w.t.Errorf("a stale copy: %s\n%s%s", s, w.places(s.name), w.trail.story(s))
	}
	if more := len(found) - stories; more > 0 {
		w.t.Errorf("and %d stale copies more:", more)
		for _, s := range found[stories:] {
			w.t.Logf("%s %s: %s, want %s", s.node.name, s.name, s.has, s.want)
		}
	}
}
