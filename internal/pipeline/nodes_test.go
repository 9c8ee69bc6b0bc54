package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

// fakeNodes acknowledges everything at once, but for the nodes that are held, and those that are off the live path.
type fakeNodes struct {
	refuse atomic.Bool
	told   func(node string, on bool)

	mu     sync.Mutex
	held   map[string]bool
	off    map[string]bool
	seen   []string
	lanes  []string // of seen
	waits  []wait
	probes map[string][]sink.Waiter // of nodes that are off
}

type wait struct {
	node string
	end  func(error)
}

func newFakeNodes() *fakeNodes {
	return &fakeNodes{held: map[string]bool{}, off: map[string]bool{}, probes: map[string][]sink.Waiter{}, told: func(string, bool) {}}
}

func (n *fakeNodes) Delete(_ context.Context, l sink.Lane, c sink.Copy, w sink.Waiter) error {
	return n.see("", l, c, w)
}

func (n *fakeNodes) MarkStale(_ context.Context, l sink.Lane, c sink.Copy, ttl time.Duration, w sink.Waiter) error {
	return n.see(" stale "+ttl.String(), l, c, w)
}

func (n *fakeNodes) Probe(node string, w sink.Waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name := strings.TrimSuffix(node, ":1"); n.off[name] {
		n.probes[name] = append(n.probes[name], w)
		return
	}
	go w.Acked(sink.Copy{Node: node}, nil)
}

func (n *fakeNodes) see(what string, l sink.Lane, c sink.Copy, w sink.Waiter) error {
	node := strings.TrimSuffix(c.Node, ":1")
	var err error
	if n.refuse.Load() {
		err = &sink.RefusedError{Copy: c, Answer: "CLIENT_ERROR"}
	}
	n.mu.Lock()
	if n.off[node] {
		n.mu.Unlock()
		return &sink.OffError{Node: c.Node, Why: "the test says so"}
	}
	n.seen = append(n.seen, node+" "+c.Key+what)
	n.lanes = append(n.lanes, l.String())
	held := n.held[node]
	if held {
		n.waits = append(n.waits, wait{node, func(why error) {
			if why == nil {
				why = err
			}
			w.Acked(c, why)
		}})
	}
	n.mu.Unlock()
	if !held {
		w.Acked(c, err)
	}
	return nil
}

// hold keeps a node's answers back, or lets those that it kept back, and all others, go.
func (n *fakeNodes) hold(node string, on bool) {
	n.mu.Lock()
	n.held[node] = on
	waits := n.waits
	n.waits = nil
	n.mu.Unlock()
	for _, w := range waits {
		w.end(nil)
	}
}

// turn takes a node off the live path, as the client does, or puts it back.
func (n *fakeNodes) turn(node string, on bool) {
	n.mu.Lock()
	n.off[node] = !on
	var lost []wait
	var probes []sink.Waiter
	if on {
		probes = n.probes[node]
		delete(n.probes, node)
	} else {
		n.held[node] = false
		n.waits = slices.DeleteFunc(n.waits, func(w wait) bool {
			if w.node == node {
				lost = append(lost, w)
			}
			return w.node == node
		})
	}
	n.mu.Unlock()
	for _, w := range lost {
		w.end(fmt.Errorf("deleting: %w", &sink.OffError{Node: node + ":1", Why: "the test says so"}))
	}
	n.told(node+":1", on)
	for _, w := range probes {
		w.Acked(sink.Copy{Node: node + ":1"}, nil)
	}
}

// take returns the distinct deletes and stale marks since the last take, sorted.
func (n *fakeNodes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := n.seen
	n.seen, n.lanes = nil, nil
	slices.Sort(out)
	return slices.Compact(out)
}

// laneOf is the lane of a delete since the last take; empty for one that there was not.
func (n *fakeNodes) laneOf(what string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.Index(n.seen, what); i >= 0 {
		return n.lanes[i]
	}
	return ""
}

// count is how often there was a delete since the last take.
func (n *fakeNodes) count(what string) (times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.seen {
		if s == what {
			times++
		}
	}
	return times
}

// fakeLog is a partition's log.
type fakeLog struct {
	mu      sync.Mutex
	records []changelog.Record
	start   int64         // nothing below is left
	fail    int           // so many reads more
	reads   []string      // "from-to"
	batch   int           // records handed over at once; 0: all
	hold    chan struct{} // closed: reads go on; nil: nothing holds them
}

func (l *fakeLog) add(r changelog.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.records); n > 0 && l.records[n-1].Offset >= r.Offset {
		return // it came before
	}
	l.records = append(l.records, r)
}

func (l *fakeLog) Read(ctx context.Context, p changelog.Partition, from, to int64, each func([]changelog.Record) error) error {
	l.mu.Lock()
	l.reads = append(l.reads, fmt.Sprintf("%d-%d", from, to))
	hold := l.hold
	l.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.mu.Lock()
	start, fail := l.start, l.fail > 0
	if fail {
		l.fail--
	}
	var rs []changelog.Record
	for _, r := range l.records {
		if r.Offset >= from && r.Offset < to {
			rs = append(rs, r)
		}
	}
	batch := max(l.batch, 1)
	if l.batch == 0 {
		batch = max(len(rs), 1)
	}
	l.mu.Unlock()
	if fail {
		return errors.New("the broker is away")
	}
	if start > from {
		return &changelog.LogStartError{Partition: p, Start: start}
	}
	for some := range slices.Chunk(rs, batch) {
		if err := each(some); err != nil {
			return fmt.Errorf("reading: %w", err)
		}
	}
	return ctx.Err()
}

// fakeArchive has sets of mappings by fingerprint.
type fakeArchive struct {
	mu   sync.Mutex
	sets map[string]mapping.Mapper
	fail int // so many times more
}

func (a *fakeArchive) Mapper(_ context.Context, fingerprint string) (mapping.Mapper, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fail > 0 {
		a.fail--
		return nil, errors.New("the broker is away")
	}
	if m := a.sets[fingerprint]; m != nil {
		return m, nil
	}
	return nil, fmt.Errorf("%s: %w", fingerprint, ErrNoMappings)
}
