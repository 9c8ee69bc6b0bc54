package pipeline

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/internal/changelog"
	"invalidator/sink"
)

// track issues the rounds of changes of one partition: those that are in flight in the order of their offsets, those that wait for their
// next round in the order in which that is due, and what was acknowledged. The live path of a partition is one, a pass is one.
//
// One goroutine leads it; the nodes' goroutines and the refresher's hand back what they have done with.
type track struct {
	p        *partition
	budget   *budget       // window's changes are of it
	yields   bool          // it lets others run between its changes
	observes bool          // how fresh its changes are
	wake     chan struct{} // 1: mu has something new

	window window
	later  queue     // in the order of due: all wait the same settle after an acknowledgement
	spare  []*change // what settle took last, for its room
	owed   refreshes
	copies []sink.Copy // of one round

	pool     string // of observer
	observer prometheus.Observer

	mu struct { // guards what other goroutines add to
		sync.Mutex
		acked   []*change
		refused []refusal
		written []request // or not: their err says
	}
}

type refusal struct {
	c   *change
	cp  sink.Copy
	err error
}

func newTrack(p *partition, b *budget, wake chan struct{}, start int64) *track {
	return &track{p: p, budget: b, wake: wake, window: window{next: start}}
}

// settle moves acknowledged changes on: to their next round, to their refresh requests, or to the finished.
func (t *track) settle(ctx context.Context) {
	t.mu.Lock()
	acked, refused, written := t.mu.acked, t.mu.refused, t.mu.written
	t.mu.acked, t.mu.refused, t.mu.written = t.spare[:0], nil, nil
	t.mu.Unlock()
	for _, r := range refused {
		rec := changelog.Record{Offset: r.c.offset, Key: []byte(r.cp.Key)}
		if t.p.park(ctx, rec, "refused", r.err) == nil {
			r.c.down()
		}
	}
	if len(acked) > 0 {
		t.advance(ctx, acked)
		clear(acked)
	}
	t.spare = acked
	for _, r := range written {
		t.answered(r)
	}
	t.askAgain(ctx)
}

func (t *track) advance(ctx context.Context, acked []*change) {
	now, today := time.Now(), t.p.w.opts.Snapshots.Current()
	for _, c := range acked {
		t.p.journal.note(now, today, c.lane, c.offset)
	}
	// What a round counts under is read after it was noted: who acts on a later record of the ring than this finds it in the journal.
	today = t.p.w.opts.Snapshots.Current()
	rounds := t.p.w.rounds(today, now)
	for i, c := range acked {
		t.letOthersRun(i)
		if t.p.w.observe(c, now); c.round == 1 {
			t.freshenedBy(c, c.due.Add(-t.p.w.opts.Settle))
		}
		c.rounds = max(c.rounds, rounds)
		if c.under != today.View.Topology { // it may have passed by who owns the key now
			c.rounds = max(c.rounds, c.round+1)
		}
		switch {
		case c.round < c.rounds && !t.enough(c, today):
			t.later.push(c)
		case len(c.requests) > 0:
			t.askFor(ctx, c)
		default:
			c.finished = true
		}
	}
}

// enough reports whether one round was: it was issued so long after the change that no reader can have read the old row and still be
// about to fill, and nobody has carried values from copy to copy since.
func (t *track) enough(c *change, today *Snapshot) bool {
	if !c.late || c.round != 1 || c.rounds != plainRounds || c.under != today.View.Topology || today.View.Carrying(c.issued, t.p.w.opts.Settle) {
		return false
	}
	t.p.w.metrics.late.Inc()
	return true
}

// issueDue issues the rounds that are due, and reports whether there were any.
func (t *track) issueDue(ctx context.Context) (any bool, err error) {
	n := 0
	for now := time.Now(); t.later.len() > 0 && !t.later.front().due.After(now); any = true {
		t.letOthersRun(n)
		n++
		c := t.later.front()
		t.later.pop()
		if err := t.issue(ctx, c, t.p.w.opts.Snapshots.Current()); err != nil {
			return true, err
		}
	}
	return any, nil
}

// letOthersRun is called for the i-th of many.
func (t *track) letOthersRun(i int) {
	if t.yields && i%yieldEvery == yieldEvery-1 {
		runtime.Gosched()
	}
}

// issue issues the next round of a change.
func (t *track) issue(ctx context.Context, c *change, today *Snapshot) error {
	now := time.Now() // reading the clock costs as much as a key's hash
	t.p.journal.note(now, today, c.lane, c.offset)
	copies, err := c.issue(ctx, t.p.w.opts.Deleter, today, now, t.copies)
	t.copies = copies[:0]
	t.p.w.metrics.copies.Add(float64(len(copies)))
	return err
}

// idle is how long there is nothing to do, if nothing comes; at most limit.
func (t *track) idle(limit time.Duration) time.Duration {
	if t.later.len() > 0 {
		limit = min(limit, time.Until(t.later.front().due))
	}
	if len(t.owed.failed) > 0 {
		limit = min(limit, time.Until(t.owed.again))
	}
	return limit
}

// mark is the window's, and gives back the room of what is finished.
func (t *track) mark() int64 {
	held := t.window.inFlight()
	mark := t.window.mark()
	t.budget.give(held - t.window.inFlight())
	return mark
}

// end gives back the room of what is left. What other goroutines hand back after that is left alone.
func (t *track) end() { t.budget.give(t.window.inFlight()) }

// acknowledged is called when the last copy of a round is, mostly from a node's goroutine.
func (t *track) acknowledged(c *change) {
	t.mu.Lock()
	c.due = time.Now().Add(t.p.w.opts.Settle) // under the lock, so that later is in order
	t.mu.acked = append(t.mu.acked, c)
	t.mu.Unlock()
	rouse(t.wake)
}

// refuse is called from a node's goroutine.
func (t *track) refuse(c *change, cp sink.Copy, err error) {
	t.mu.Lock()
	t.mu.refused = append(t.mu.refused, refusal{c, cp, err})
	t.mu.Unlock()
	rouse(t.wake)
}
