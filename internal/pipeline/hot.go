package pipeline

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"invalidator/sink"
)

// hotWork deletes all copies of hot keys that are new, or changed: before somebody saw that, its deletes went to fewer copies, and no range
// of the log says which. Each partition wants it for itself, at its own sight and at its first after another owner's; a run serves all
// that want it when it begins.
type hotWork struct {
	w    *Worker
	stop context.CancelFunc
	do   func(func(context.Context)) // starts a goroutine that stop ends

	wg sync.WaitGroup
	mu struct { // a leaf
		sync.Mutex
		tasks map[string]*hotTask // by key
	}
}

// hotTask is the runs of one key, one after the other.
type hotTask struct {
	next []*hotWant // who wants a run that has not begun
}

// hotWant is what one partition wants at one sight of the registry.
type hotWant struct {
	p        *partition
	revision int64        // that it has acted on when left is 0
	left     atomic.Int64 // keys
}

func newHotWork(w *Worker) *hotWork {
	ctx, cancel := context.WithCancel(context.Background())
	h := &hotWork{w: w, stop: cancel}
	h.do = func(f func(context.Context)) { h.wg.Go(func() { f(ctx) }) }
	h.mu.tasks = map[string]*hotTask{}
	return h
}

// close ends what runs. What is not done is wanted by the partitions' next owners.
func (h *hotWork) close() {
	h.stop()
	h.wg.Wait()
}

// want has keys deleted on all copies, in runs that begin after now.
func (h *hotWork) want(v *hotWant, keys []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, key := range keys {
		t := h.mu.tasks[key]
		if t == nil {
			t = &hotTask{}
			h.mu.tasks[key] = t
			h.do(func(ctx context.Context) { h.run(ctx, key, t) })
		}
		t.next = append(t.next, v)
	}
	h.w.metrics.hotKeys.Set(float64(len(h.mu.tasks)))
}

// run serves one key until nobody wants it any more.
func (h *hotWork) run(ctx context.Context, key string, t *hotTask) {
	for {
		select { // all partitions see it within moments
		case <-ctx.Done():
			return
		case <-time.After(gather):
		}
		h.mu.Lock()
		served := t.next
		t.next = nil
		if len(served) == 0 {
			delete(h.mu.tasks, key)
			h.w.metrics.hotKeys.Set(float64(len(h.mu.tasks)))
		}
		h.mu.Unlock()
		if len(served) == 0 || h.delete(ctx, key) != nil {
			return
		}
		for _, v := range served {
			if v.left.Add(-1) == 0 {
				rouse(v.p.wake)
			}
		}
	}
}

// delete deletes all copies of a key, in as many rounds as a change gets. A node that is off is waited for, and then all rounds are done
// again: who has no offset to owe keeps a list of its own.
func (h *hotWork) delete(ctx context.Context, key string) error {
	for round := 0; ; {
		today := h.w.opts.Snapshots.Current()
		copies := today.View.Topology.AppendCopies(nil, key, today.View.Hot.Copies(key))
		off, err := h.round(ctx, copies)
		if err != nil {
			return err
		}
		if len(off) > 0 {
			for _, node := range off {
				if err := h.await(ctx, node); err != nil {
					return err
				}
			}
			round = 0
			continue
		}
		if round++; round >= h.w.rounds(today, time.Now()) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(h.w.opts.Settle):
		}
	}
}

// round deletes copies and waits until all have answered, or are off: these nodes it returns.
func (h *hotWork) round(ctx context.Context, copies []sink.Copy) (off []string, err error) {
	r := &hotRound{h: h, done: make(chan struct{})}
	r.left.Store(int64(len(copies)) + 1)
	for _, c := range copies {
		switch err := h.w.opts.Deleter.Delete(ctx, sink.Urgent, c, r); {
		case err == nil:
		case isOff(err):
			r.Acked(c, err)
		default:
			return nil, err
		}
	}
	h.w.metrics.copies.Add(float64(len(copies)))
	r.Acked(sink.Copy{}, nil)
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-r.done:
		return r.off, nil
	}
}

// hotRound is one round's Waiter.
type hotRound struct {
	h    *hotWork
	left atomic.Int64
	done chan struct{}
	mu   sync.Mutex
	off  []string
}

// Acked implements sink.Waiter.
func (r *hotRound) Acked(c sink.Copy, err error) {
	switch {
	case err == nil:
	case isOff(err):
		r.mu.Lock()
		if !slices.Contains(r.off, c.Node) {
			r.off = append(r.off, c.Node)
		}
		r.mu.Unlock()
	default:
		r.h.w.log.Error("a node refuses a copy of a hot key", "node", c.Node, "key", sink.LoggedKey(c.Key), "error", sink.LoggedError(err))
	}
	if r.left.Add(-1) == 0 {
		close(r.done)
	}
}

// await waits until a node answers, or is of no ring any more.
func (h *hotWork) await(ctx context.Context, node string) error {
	var answered hotAnswer // nil: it is not asked
	for {
		changed := h.w.opts.Snapshots.Changed()
		if !h.w.opts.Snapshots.Current().View.Topology.Names(node) {
			return nil
		}
		if answered == nil {
			answered = make(hotAnswer, 1)
			h.w.opts.Deleter.Probe(node, answered)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-answered:
			if err == nil {
				return nil
			}
			answered = nil // the client has seen a view in which nothing names the node
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-changed:
			}
		case <-changed:
		}
	}
}

// hotAnswer takes what comes of asking a node, once.
type hotAnswer chan error

// Acked implements sink.Waiter.
func (a hotAnswer) Acked(_ sink.Copy, err error) { a <- err }

// hotSight is what a partition has seen of the hot keys; its goroutine's own.
type hotSight struct {
	seen  *sink.HotKeys // all of it is acted on, or wanted
	wants []*hotWant    // in order
	acted atomic.Int64  // the registry's revision
}

// look wants the copies of keys deleted that are new since the last sight, and notes what has been acted on. From here on the partition
// issues under hot, or later.
func (s *hotSight) look(p *partition, hot *sink.HotKeys) {
	if hot != s.seen {
		keys := newHotKeys(s.seen, hot, s.acted.Load())
		s.seen = hot
		v := &hotWant{p: p, revision: hot.Revision()}
		v.left.Store(int64(len(keys)))
		s.wants = append(s.wants, v)
		p.w.hot.want(v, keys)
	}
	for len(s.wants) > 0 && s.wants[0].left.Load() == 0 {
		if s.acted.Load() != s.wants[0].revision {
			s.acted.Store(s.wants[0].revision)
			p.revision.Add(1)
		}
		s.wants = slices.Delete(s.wants, 0, 1)
	}
}

// newHotKeys are the keys that came, left or changed: since was, or where that is not known, after a revision.
func newHotKeys(was, is *sink.HotKeys, after int64) (keys []string) {
	var known map[string]sink.HotEntry
	if was != nil {
		known = map[string]sink.HotEntry{}
		for key, e := range was.Entries {
			known[key] = e
		}
	}
	for key, e := range is.Entries {
		switch k, have := known[key]; {
		case was == nil && e.Revision <= after:
		case have && e.Revision == k.Revision && e.Most <= k.Most:
		default:
			keys = append(keys, key)
		}
	}
	return keys
}
