package stories

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"invalidator/sink"
)

// node is a cache node. Its mutex guards all but its name: a flush asks it from goroutines of its own.
type node struct {
	name string

	mu      sync.Mutex
	items   map[string]item
	lease   map[string]int // by text: who may fill it
	cas     uint64
	sets    uint64
	pid     int64
	started time.Time
	down    bool            // nobody listens
	frozen  bool            // its process stands still; what is sent to it waits on its sockets
	mute    bool            // it does what it is told, and its answers do not come through
	dead    bool            // it will never be back
	refuses map[string]bool // texts
	sockets []string        // texts to delete, which nobody awaits any more
}

// item is what a node holds under a text: a version of its row.
type item struct {
	value int
	cas   uint64
}

// addNode makes a node, before the story begins.
func (s *stage) addNode(name string) {
	if s.nodes[name] == nil {
		s.nodes[name] = &node{name: name, items: map[string]item{}, lease: map[string]int{}, refuses: map[string]bool{}, pid: int64(100 + len(s.nodes)), started: time.Now()}
	}
}

// change has do act on the node.
func (n *node) change(do func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	do()
}

func (n *node) set(text string, value int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.lease, text)
	if value == gone {
		delete(n.items, text)
		return
	}
	n.cas++
	n.sets++
	n.items[text] = item{value, n.cas}
}

func (n *node) get(text string) (value int, has bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	it, has := n.items[text]
	return it.value, has
}

// away reports whether nothing that is sent to it is done.
func (n *node) away() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down || n.frozen
}

// silent reports whether it answers nothing.
func (n *node) silent() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.down || n.frozen || n.mute
}

// empty starts it anew.
func (n *node) empty() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.items)
	clear(n.lease)
	n.sockets, n.cas, n.sets, n.pid, n.started = nil, 0, 0, n.pid+1000, time.Now()
}

// op is one delete, or one question (no key), from a worker to a node.
type op struct {
	sink.Copy
	cas     uint64 // of a flush: the copy goes if it still has it; 0: whatever it has
	w       sink.Waiter
	issued  time.Time
	carried bool // the node has done it
	err     error
}

// link is how a worker speaks to nodes: which are on the live path, and what is under way to them. It does as sink/memcache does, in the story's time.
type link struct {
	s      *stage
	worker string
	told   func(node string, on bool)

	// The story's goroutine's own.
	cut    map[string]bool
	silent map[string]time.Time // since when nothing comes from a node

	mu     sync.Mutex
	dead   bool                 // its process is
	off    map[string]time.Time // since when
	used   map[string]time.Time
	ops    []*op
	probes map[string][]sink.Waiter // of nodes that are off
}

func newLink(s *stage, worker string) *link {
	return &link{s: s, worker: worker, told: func(string, bool) {}, cut: map[string]bool{}, silent: map[string]time.Time{}, off: map[string]time.Time{},
		used: map[string]time.Time{}, probes: map[string][]sink.Waiter{}}
}

// Delete implements sink.Deleter. Of the lanes' bounds it has none: a node whose queue is full is a sentence of its own.
func (l *link) Delete(_ context.Context, _ sink.Lane, c sink.Copy, w sink.Waiter) error {
	return l.send(&op{Copy: c, w: w})
}

// MarkStale implements sink.Deleter; no story has a mapping that marks.
func (l *link) MarkStale(ctx context.Context, lane sink.Lane, c sink.Copy, _ time.Duration, w sink.Waiter) error {
	return l.Delete(ctx, lane, c, w)
}

func (l *link) send(o *op) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch _, off := l.off[o.Node]; {
	case l.dead:
		return nil
	case off:
		return &sink.OffError{Node: o.Node, Why: "the story says so"}
	}
	o.issued, l.used[o.Node] = time.Now(), time.Now()
	l.ops = append(l.ops, o)
	return nil
}

// Probe implements sink.Deleter.
func (l *link) Probe(node string, w sink.Waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch _, off := l.off[node]; {
	case l.dead:
		return
	case off:
		l.probes[node] = append(l.probes[node], w)
		return
	}
	l.used[node] = time.Now()
	l.ops = append(l.ops, &op{Copy: sink.Copy{Node: node}, w: w, issued: time.Now()})
}

// tick moves what is under way, and takes nodes off the live path, or puts them back.
func (l *link) tick() {
	l.mu.Lock()
	ops := slices.Clone(l.ops)
	l.mu.Unlock()
	for _, o := range ops {
		l.move(o)
	}
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(l.s.nodes)) {
		n := l.s.nodes[name]
		l.mu.Lock()
		since, off := l.off[n.name]
		late := slices.ContainsFunc(l.ops, func(o *op) bool { return o.Node == n.name && now.Sub(o.issued) > maxLag })
		watched := !l.used[n.name].IsZero() && now.Sub(l.used[n.name]) < time.Minute
		l.mu.Unlock()
		answers := l.whole(n) && !n.silent()
		if answers {
			delete(l.silent, n.name)
		} else if l.silent[n.name].IsZero() {
			l.silent[n.name] = now
		}
		switch {
		case !off && (late || watched && !answers && now.Sub(l.silent[n.name]) > maxLag):
			l.turnOff(n, "it does not answer")
		case off && answers && now.Sub(since) >= step:
			l.turnOn(n)
		}
	}
}

// whole reports whether what is sent comes to a node.
func (l *link) whole(n *node) bool { return !l.cut[n.name] && !l.s.apart[n.name] }

// move has a node do what it was sent, and answer.
func (l *link) move(o *op) {
	n := l.s.nodes[o.Node]
	if !l.whole(n) || n.away() {
		return
	}
	if !o.carried {
		o.carried = true
		o.err = l.s.carryOut(n, o, l.worker)
	}
	if n.silent() {
		return
	}
	l.mu.Lock()
	i := slices.Index(l.ops, o)
	if i >= 0 {
		l.ops = slices.Delete(l.ops, i, i+1)
	}
	l.mu.Unlock()
	if i >= 0 {
		o.w.Acked(o.Copy, o.err)
	}
}

// carryOut does what a node was sent.
func (s *stage) carryOut(n *node, o *op, who string) error {
	if o.Key == "" {
		return nil
	}
	n.mu.Lock()
	refused := n.refuses[o.Key]
	it, has := n.items[o.Key]
	n.mu.Unlock()
	switch {
	case refused:
		s.tell("%s refuses %s", nameOf(n.name), s.show(o.Key))
		return &sink.RefusedError{Copy: o.Copy, Answer: "CLIENT_ERROR the story says so"}
	case o.cas != 0 && has && it.cas != o.cas:
		return &sink.ChangedError{Copy: o.Copy}
	}
	s.put(n, o.Key, gone, "deleted by "+who)
	return nil
}

// turnOff takes a node off the live path. What lies on the sockets of one that is frozen is done when it goes on.
func (l *link) turnOff(n *node, why string) {
	l.mu.Lock()
	l.off[n.name] = time.Now()
	var lost []*op
	l.ops = slices.DeleteFunc(l.ops, func(o *op) bool {
		if o.Node == n.name {
			lost = append(lost, o)
		}
		return o.Node == n.name
	})
	for _, o := range lost {
		if o.Key == "" {
			l.probes[n.name] = append(l.probes[n.name], o.w)
		}
	}
	l.mu.Unlock()
	l.s.tell("%s has %s off the live path: %s; %d are lost", l.worker, nameOf(n.name), why, len(lost))
	for _, o := range lost {
		if o.Key == "" {
			continue
		}
		if !o.carried && o.cas == 0 {
			n.change(func() {
				if n.frozen {
					n.sockets = append(n.sockets, o.Key)
				}
			})
		}
		o.w.Acked(o.Copy, &sink.OffError{Node: n.name, Why: why})
	}
	l.told(n.name, false)
}

// full takes a node off the live path for which there is no room.
func (l *link) full(n *node) {
	l.mu.Lock()
	_, off := l.off[n.name]
	l.mu.Unlock()
	if !off {
		l.turnOff(n, "its queue is full")
	}
}

func (l *link) turnOn(n *node) {
	l.mu.Lock()
	delete(l.off, n.name)
	probes := l.probes[n.name]
	delete(l.probes, n.name)
	l.mu.Unlock()
	l.s.tell("%s has %s on the live path again", l.worker, nameOf(n.name))
	l.told(n.name, true)
	for _, w := range probes {
		w.Acked(sink.Copy{Node: n.name}, nil)
	}
}

// busy says what is under way, or which nodes are off, of those that are not dead. Empty: nothing.
func (l *link) busy() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.ops {
		if !l.s.nodes[o.Node].dead {
			return "deletes are under way to " + nameOf(o.Node)
		}
	}
	for name := range l.off {
		if !l.s.nodes[name].dead {
			return l.worker + " has " + nameOf(name) + " off the live path"
		}
	}
	return ""
}

var errAway = errors.New("the node does not answer")

// Stats implements flush.Nodes.
func (l *link) Stats(_ context.Context, name string) (sink.NodeStats, error) {
	n, err := l.reach(name)
	if err != nil {
		return sink.NodeStats{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return sink.NodeStats{Pid: n.pid, Start: n.started.Unix(), CmdSet: n.sets, CurrItems: uint64(len(n.items)), CAS: true}, nil
}

// Mark implements flush.Nodes.
func (l *link) Mark(_ context.Context, name, _ string) (uint64, error) {
	n, err := l.reach(name)
	if err != nil {
		return 0, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cas++
	return n.cas, nil
}

// Dump implements flush.Nodes.
func (l *link) Dump(_ context.Context, name string, each func(key []byte, cas uint64)) error {
	n, err := l.reach(name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for text, it := range n.items {
		each([]byte(text), it.cas)
	}
	return nil
}

// DeleteIf implements flush.Nodes.
func (l *link) DeleteIf(_ context.Context, c sink.Copy, cas uint64, _ time.Duration, w sink.Waiter) error {
	return l.send(&op{Copy: c, cas: cas, w: w})
}

// reach gives a node that answers. It is asked from any goroutine.
func (l *link) reach(name string) (*node, error) {
	l.mu.Lock()
	_, off := l.off[name]
	dead := l.dead
	l.mu.Unlock()
	n := l.s.nodes[name]
	if off || dead || n.silent() {
		return nil, errAway
	}
	return n, nil
}

// die ends what the worker's process says to nodes.
func (l *link) die() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead, l.ops, l.probes = true, nil, map[string][]sink.Waiter{}
}
