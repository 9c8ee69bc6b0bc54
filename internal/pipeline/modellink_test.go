package pipeline

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"invalidator/sink"
)

// modelOp is one delete, or one MN, from a worker to a node.
type modelOp struct {
	node, text string
	w          sink.Waiter
	issued     time.Time
	carried    bool // the node has done it, and its answer is under way

	// Of a change: what it is a round of.
	c     *change
	round int
}

// modelLink is a worker's client: which nodes are on the live path, and what is under way to them. It does as sink/memcache does; what
// happens when is the model's to choose.
type modelLink struct {
	id int
	*world
	worker *Worker
	cut    map[string]bool

	mu     sync.Mutex
	off    map[string]time.Time // since when
	flaps  map[string]time.Time // no earlier on than this
	ops    []*modelOp
	probes map[string][]sink.Waiter // of nodes that are off
	used   map[string]time.Time
}

func newModelLink(id int, w *world) *modelLink {
	return &modelLink{id: id, world: w, cut: map[string]bool{}, off: map[string]time.Time{}, flaps: map[string]time.Time{}, probes: map[string][]sink.Waiter{}, used: map[string]time.Time{}}
}

func (l *modelLink) Delete(_ context.Context, _ sink.Lane, c sink.Copy, w sink.Waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, is := l.off[c.Node]; is {
		return &sink.OffError{Node: c.Node, Why: "the model says so"}
	}
	op := &modelOp{node: c.Node, text: c.Key, w: w, issued: time.Now()}
	if ch, is := w.(*change); is {
		op.c, op.round = ch, ch.round
	}
	l.ops = append(l.ops, op)
	l.used[c.Node] = time.Now()
	return nil
}

func (l *modelLink) MarkStale(ctx context.Context, lane sink.Lane, c sink.Copy, _ time.Duration, w sink.Waiter) error {
	return l.Delete(ctx, lane, c, w)
}

func (l *modelLink) Probe(node string, w sink.Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, is := l.off[node]; is {
		l.probes[node] = append(l.probes[node], w)
		return
	}
	l.ops = append(l.ops, &modelOp{node: node, w: w, issued: time.Now()})
	l.used[node] = time.Now()
}

func (l *modelLink) underWay() []*modelOp {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.ops)
}

// reaches reports whether something sent now arrives.
func (l *modelLink) reaches(node string) bool { return l.nodes[node].up && !l.cut[node] }

// tick moves what is under way.
func (l *modelLink) tick() {
	for _, op := range l.underWay() {
		if l.r.Float64() < l.quick {
			l.step(op)
		}
	}
	now := time.Now()
	for _, node := range slices.Sorted(maps.Keys(l.nodes)) {
		l.mu.Lock()
		since, off := l.off[node]
		late := slices.ContainsFunc(l.ops, func(op *modelOp) bool { return op.node == node && now.Sub(op.issued) > modelLag })
		watched := !l.used[node].IsZero() && now.Sub(l.used[node]) < time.Minute
		again := l.flaps[node]
		l.mu.Unlock()
		down := watched && !l.reaches(node) && now.Sub(l.nodes[node].seen) > modelLag
		switch {
		case !off && (late || down):
			l.turnOff(node, "it does not answer")
		case off && l.reaches(node) && !now.Before(again) && now.Sub(since) > 50*time.Millisecond && l.r.Float64() < 0.3:
			l.turnOn(node)
		}
	}
}

func (l *modelLink) step(op *modelOp) {
	n := l.nodes[op.node]
	if op.carried {
		if l.faults && l.on["ackloss"] && l.r.Float64() < 0.05 {
			op.carried = false // the connection broke: it is sent again
			return
		}
		if l.take(op) {
			if op.c != nil {
				l.acked(op)
			}
			op.w.Acked(sink.Copy{Node: op.node, Key: op.text}, nil)
		}
		return
	}
	if !l.reaches(op.node) || n.slow && l.r.Float64() < 0.8 {
		return
	}
	if op.text != "" {
		l.put(n, op.text, modelDelete, "deleted")
	}
	op.carried = true
}

// take removes an op, and reports whether it was there.
func (l *modelLink) take(op *modelOp) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.ops, op)
	if i < 0 {
		return false
	}
	l.ops = slices.Delete(l.ops, i, i+1)
	return true
}

// turnOff takes a node off the live path. What was under way may still be carried out, just then.
func (l *modelLink) turnOff(node, why string) {
	l.mu.Lock()
	l.off[node] = time.Now()
	var lost []*modelOp
	l.ops = slices.DeleteFunc(l.ops, func(op *modelOp) bool {
		if op.node == node {
			lost = append(lost, op)
		}
		return op.node == node
	})
	l.mu.Unlock()
	l.tell("w%d: %s goes off (%s), %d lost", l.id, node, why, len(lost))
	for _, op := range lost {
		if op.text == "" {
			l.mu.Lock()
			l.probes[node] = append(l.probes[node], op.w)
			l.mu.Unlock()
			continue
		}
		if !op.carried && l.reaches(node) && l.r.IntN(2) == 0 {
			l.put(l.nodes[node], op.text, modelDelete, "deleted, and nobody knows")
		}
		op.w.Acked(sink.Copy{Node: node, Key: op.text}, &sink.OffError{Node: node, Why: why})
	}
	l.worker.NodeTurned(node, false)
}

func (l *modelLink) turnOn(node string) {
	l.mu.Lock()
	delete(l.off, node)
	probes := l.probes[node]
	delete(l.probes, node)
	l.mu.Unlock()
	l.tell("w%d: %s is on again", l.id, node)
	first := l.r.IntN(2) == 0
	if first {
		l.worker.NodeTurned(node, true)
	}
	for _, w := range probes {
		w.Acked(sink.Copy{Node: node}, nil)
	}
	if !first {
		l.worker.NodeTurned(node, true)
	}
}

// full is a queue without room: the node goes off at once, and is back soon.
func (l *modelLink) full(node string) {
	l.mu.Lock()
	_, off := l.off[node]
	l.flaps[node] = time.Now().Add(l.upTo(time.Second))
	l.mu.Unlock()
	if !off {
		l.turnOff(node, "its queue is full")
	}
}

// unrest says what is under way, and which nodes are off; empty for nothing.
func (l *modelLink) unrest() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	off := 0
	for node := range l.off {
		if !l.nodes[node].dead {
			off++
		}
	}
	if len(l.ops) == 0 && off == 0 {
		return ""
	}
	return fmt.Sprintf("w%d has %d deletes under way, and off are %v", l.id, len(l.ops), l.off)
}
