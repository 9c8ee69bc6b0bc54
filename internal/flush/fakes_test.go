package flush

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"invalidator/replay"
	"invalidator/sink"
)

// item is what a node holds under a key.
type item struct {
	cas   uint64
	value string
	stale time.Duration
}

// fakeNode is a memcached as a conductor sees it. What is nil or zero does as it should.
type fakeNode struct {
	pid, start int64
	noCAS      bool
	running    bool // its crawler is at work
	cas        uint64
	items      map[string]item
	moved      uint64  // of them, by the node itself
	sets       float64 // a second
	since      time.Time

	down    error                         // what stats, marks and dumps answer
	unset   error                         // what marks answer
	closed  error                         // what a delete returns
	slow    time.Duration                 // how long a dump takes
	voids   int                           // dumps that end in the middle
	late    time.Duration                 // how long after it a delete is answered
	off     bool                          // deletes are answered with a *sink.OffError
	dump    func(show func() error) error // in place of a dump; show does what it should
	deleted func(key string)              // before a delete is carried out
	refuses map[string]bool               // keys
}

// fakeNodes are the nodes of a fleet. They see that no node is asked for two dumps at once, and that nobody is asked who may not.
type fakeNodes struct {
	t  *testing.T
	mu sync.Mutex

	by      map[string]*fakeNode
	dumping map[string]bool
	asked   []string    // nodes, as they were asked for dumps
	at      []time.Time // of deletes
	marks   []time.Time
}

// marked are when marks were set.
func (f *fakeNodes) marked() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.marks)
}

// deletes are when they were carried out.
func (f *fakeNodes) deletes() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.at)
}

// dumps are the nodes that were asked for one, in order.
func (f *fakeNodes) dumps() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func (f *fakeNodes) node(name string) *fakeNode {
	if f.by[name] == nil {
		f.by[name] = &fakeNode{pid: 100, start: 1, cas: 1, items: map[string]item{}, since: time.Now()}
	}
	return f.by[name]
}

// fill has a reader set keys on nodes.
func (f *fakeNodes) fill(nodes string, value string, keys ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range strings.Fields(nodes) {
		n := f.node(name)
		for _, key := range keys {
			n.cas++
			n.items[key] = item{cas: n.cas, value: value}
		}
	}
}

// holds are the keys of a node, sorted, with their values: "user:1=old".
func (f *fakeNodes) holds(name string) (list []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(f.node(name).items)) {
		it := f.node(name).items[key]
		text := key + "=" + it.value
		if it.stale > 0 {
			text += " stale " + it.stale.String()
		}
		if key != markKey {
			list = append(list, text)
		}
	}
	slices.Sort(list)
	return list
}

// move has a node move its items in its memory, as memcached's slab mover does: their CAS values are new, and nobody wrote them.
func (n *fakeNode) move() {
	for key, it := range n.items {
		n.cas, n.moved = n.cas+1, n.moved+1
		it.cas = n.cas
		n.items[key] = it
	}
}

// change has do act on a node.
func (f *fakeNodes) change(name string, do func(n *fakeNode)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f.node(name))
}

func (f *fakeNodes) Stats(_ context.Context, name string) (sink.NodeStats, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.node(name)
	if n.down != nil {
		return sink.NodeStats{}, n.down
	}
	sets := uint64(n.sets * time.Since(n.since).Seconds())
	return sink.NodeStats{Pid: n.pid, Start: n.start, Running: n.running, Moved: n.moved, CAS: !n.noCAS, CmdSet: sets, CurrItems: uint64(len(n.items))}, nil
}

func (f *fakeNodes) Mark(_ context.Context, name, key string) (uint64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.node(name)
	if err := cmp.Or(n.down, n.unset); err != nil {
		return 0, err
	}
	n.cas++
	n.items[key] = item{cas: n.cas}
	f.marks = append(f.marks, time.Now())
	return n.cas, nil
}

func (f *fakeNodes) Dump(ctx context.Context, name string, each func(key []byte, cas uint64)) error {
	n, err := f.beginDump(name)
	if err != nil {
		return err
	}
	defer f.endDump(name)
	if n.slow > 0 {
		select {
		case <-time.After(n.slow):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	show := func() error {
		f.mu.Lock()
		all := maps.Clone(n.items)
		f.mu.Unlock()
		for key, it := range all {
			if n.noCAS {
				it.cas = 0
			}
			each([]byte(key), it.cas)
		}
		return ctx.Err()
	}
	if n.dump != nil {
		return n.dump(show)
	}
	err = show()
	f.mu.Lock()
	defer f.mu.Unlock()
	if n.voids > 0 {
		n.voids--
		return &sink.VoidError{Node: name, Err: errors.New("its reader paused")}
	}
	return err
}

func (f *fakeNodes) beginDump(name string) (*fakeNode, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dumping[name] {
		f.t.Errorf("node %s is dumped twice at once", name)
	}
	n := f.node(name)
	if n.down != nil {
		return nil, n.down
	}
	f.dumping[name] = true
	f.asked = append(f.asked, name)
	return n, nil
}

// isDumped says whether a node is being dumped.
func (f *fakeNodes) isDumped(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dumping[name]
}

func (f *fakeNodes) endDump(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dumping[name] = false
}

func (f *fakeNodes) DeleteIf(ctx context.Context, c sink.Copy, cas uint64, staleFor time.Duration, w sink.Waiter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	n := f.node(c.Node)
	deleted, off, closed := n.deleted, n.off, n.closed
	f.mu.Unlock()
	if closed != nil {
		return closed
	}
	if off {
		return &sink.OffError{Node: c.Node, Why: "it does not answer"}
	}
	if deleted != nil {
		deleted(c.Key)
	}
	err := f.delete(n, c, cas, staleFor)
	if n.late == 0 {
		w.Acked(c, err)
		return nil
	}
	go func() {
		time.Sleep(n.late)
		w.Acked(c, err)
	}()
	return nil
}

func (f *fakeNodes) delete(n *fakeNode, c sink.Copy, cas uint64, staleFor time.Duration) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = append(f.at, time.Now())
	it, there := n.items[c.Key]
	switch {
	case n.off:
		return &sink.OffError{Node: c.Node, Why: "it went off"}
	case n.refuses[c.Key]:
		return &sink.RefusedError{Copy: c, Answer: "CLIENT_ERROR"}
	case !there:
	case cas != 0 && it.cas != cas:
		return &sink.ChangedError{Copy: c}
	case staleFor > 0:
		n.cas++
		n.items[c.Key] = item{n.cas, it.value, staleFor}
	default:
		delete(n.items, c.Key)
	}
	return nil
}

// fakeTopics are the control and the status topic.
type fakeTopics struct {
	mu      sync.Mutex
	control []onTopic
	status  []onTopic
	changed chan struct{}
	write   func(replay.Record) error // before a record is written; nil: all goes well
	past    func() error              // before what was said is read
	fails   bool                      // the next record
	lose    func(replay.Record) bool  // whether a record that was written is lost
	opened  int
}

type onTopic struct {
	at time.Time
	replay.Record
}

func (f *fakeTopics) append(list *[]onTopic, r replay.Record) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*list = append(*list, onTopic{time.Now(), r})
	if list == &f.control {
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// makeAgain has the control topic removed and made again.
func (f *fakeTopics) makeAgain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.control = nil
	close(f.changed)
	f.changed = make(chan struct{})
}

// failOnce has the next record not be written.
func (f *fakeTopics) failOnce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails = true
}

// terms is how often it was opened.
func (f *fakeTopics) terms() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.opened
}

func (f *fakeTopics) open(context.Context) (Log, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.opened++
	return &fakeLog{f}, nil
}

type fakeLog struct{ *fakeTopics }

func (f *fakeLog) Close() {}

func (f *fakeLog) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

func (f *fakeLog) Orders() (requests []Asked, jobs []Begun) {
	f.mu.Lock()
	defer f.mu.Unlock()
	index, known := map[string]int{}, map[string]bool{}
	for i, on := range f.control {
		switch r := on.Record.(type) {
		case replay.Job:
			jobs = append(jobs, Begun{r, int64(i), on.at})
		case replay.Request:
			of, there := index[r.Of]
			switch {
			case known[r.ID]:
			case r.Action == replay.Flush:
				index[r.ID] = len(requests)
				requests = append(requests, Asked{Request: r, Offset: int64(i), Taken: on.at})
			case !there:
			case r.Action == replay.Cancel:
				requests[of].Cancelled = r.By
			default:
				requests[of].Paused = r.Action == replay.Pause
			}
			known[r.ID] = true
		}
	}
	return requests, jobs
}

func (f *fakeLog) Past(_ context.Context, since time.Time, each func(replay.Record)) error {
	f.mu.Lock()
	all, past := slices.Clone(f.status), f.past
	f.mu.Unlock()
	if past != nil {
		if err := past(); err != nil {
			return err
		}
	}
	for _, on := range all {
		if !on.at.Before(since) {
			each(on.Record)
		}
	}
	return nil
}

func (f *fakeLog) Write(ctx context.Context, r replay.Record) error {
	f.mu.Lock()
	write, fails := f.write, f.fails
	f.fails = false
	f.mu.Unlock()
	if fails {
		return errBroker
	}
	if write != nil {
		if err := write(r); err != nil {
			return err
		}
	}
	if _, err := replay.Encode(r); err != nil {
		return err
	}
	if f.lose != nil && f.lose(r) {
		return nil
	}
	if _, is := r.(replay.Job); is {
		f.append(&f.control, r)
	} else {
		f.append(&f.status, r)
	}
	return ctx.Err()
}
