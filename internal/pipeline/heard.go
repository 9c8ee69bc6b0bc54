package pipeline

import (
	"maps"
	"sync"
	"time"

	"invalidator/sink"
	"invalidator/sink/registry"
)

// heldEpochs remembers when etcd last held a ring record of each epoch, by the views that this worker has had.
type heldEpochs struct {
	keep time.Duration // as long as the journal is

	mu sync.Mutex // a leaf
	at map[int64]time.Time
}

// see takes in a view.
func (h *heldEpochs) see(v *registry.View) {
	if v.Local || v.Confirmed.IsZero() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	epoch := v.Topology.Epoch()
	if !v.Confirmed.After(h.at[epoch]) {
		return
	}
	if _, known := h.at[epoch]; !known { // what is older than the journal says no more than that does
		maps.DeleteFunc(h.at, func(_ int64, at time.Time) bool { return v.Confirmed.Sub(at) > h.keep })
	}
	h.at[epoch] = v.Confirmed
}

// upTo is the latest moment at which etcd held a record of an epoch of at most a.
func (h *heldEpochs) upTo(a int64) (at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for epoch, held := range h.at {
		if epoch <= a && held.After(at) {
			at = held
		}
	}
	return at
}

// ears are when nodes were last heard of.
type ears struct {
	mu      sync.Mutex           // a leaf
	heard   map[string]time.Time // by node: when it was asked what it has answered last
	asked   map[string]time.Time // of those that have not answered yet
	further map[string]bool      // of these: somebody asked again
}

func newEars() ears {
	return ears{heard: map[string]time.Time{}, asked: map[string]time.Time{}, further: map[string]bool{}}
}

// speakTo asks all nodes of a topology for an answer, so that one which goes off is missed, though nothing is deleted there.
func (w *Worker) speakTo(t *sink.Topology) {
	w.ears.mu.Lock()
	maps.DeleteFunc(w.ears.heard, func(node string, _ time.Time) bool { return !t.Names(node) })
	w.ears.mu.Unlock()
	for _, n := range t.Nodes() {
		w.speak(n)
	}
}

func (w *Worker) speak(node string) {
	e := &w.ears
	e.mu.Lock()
	_, waits := e.asked[node]
	if waits {
		e.further[node] = true
	} else {
		e.asked[node] = time.Now()
	}
	e.mu.Unlock()
	if !waits {
		w.opts.Deleter.Probe(node, listener{w})
	}
}

// heardSince reports whether a node has answered what it was asked at a time or later.
func (w *Worker) heardSince(node string, at time.Time) bool {
	w.ears.mu.Lock()
	defer w.ears.mu.Unlock()
	heard, has := w.ears.heard[node]
	return has && !heard.Before(at)
}

// listener notes a node's answer.
type listener struct{ w *Worker }

// Acked implements sink.Waiter.
func (l listener) Acked(c sink.Copy, err error) {
	e := &l.w.ears
	e.mu.Lock()
	again := e.further[c.Node] && err == nil // else nobody names it any more
	if err == nil {
		e.heard[c.Node] = e.asked[c.Node]
	}
	delete(e.asked, c.Node)
	delete(e.further, c.Node)
	e.mu.Unlock()
	if again {
		l.w.speak(c.Node)
	}
}
