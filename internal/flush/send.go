package flush

import (
	"context"
	"errors"
	"sync"
	"time"

	"invalidator/sink"
)

const (
	lookEvery = time.Second      // at the load and the orders, while a part is deleted
	tellEvery = 2 * time.Second  // how far a part is
	yieldAt   = time.Minute      // a job whose load stays above its limit for so long lets others go on
	sayWait   = 3 * time.Second  // why it waits, in the log
	tellWait  = 10 * time.Second // and on the status topic, again and again
	// smallPart is how many copies are deleted without another look at what the last ones did: too few for a database to notice.
	smallPart = 1000
)

// tally counts what became of copies.
type tally struct {
	keys    int64 // of copies, those that readers ask first
	copies  int64 // that were deleted, marked stale, or not there any more
	kept    int64 // that stay: they were filled since
	refused int64 // that stay: the node does not take them
}

func (r *run) add(t tally) {
	r.keys, r.copies, r.kept, r.refused = r.keys+t.keys, r.copies+t.copies, r.kept+t.kept, r.refused+t.refused
}

// counter counts answers. It is a sink.Waiter of each copy that was sent.
type counter struct {
	primary func(wire string) bool

	mu struct {
		sync.Mutex
		tally
		left   int   // that are not answered
		sample error // of what was refused
		off    error // the node went off
		done   chan struct{}
	}
}

// sent counts a copy that is about to be sent.
func (c *counter) sent(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.left += n
}

// Acked implements sink.Waiter.
func (c *counter) Acked(cp sink.Copy, err error) {
	first := err == nil && c.primary(cp.Key)
	c.mu.Lock()
	defer c.mu.Unlock()
	var changed *sink.ChangedError
	var off *sink.OffError
	switch {
	case err == nil:
		c.mu.copies++
		if first {
			c.mu.keys++
		}
	case errors.As(err, &changed):
		c.mu.kept++
	case errors.As(err, &off):
		c.mu.off = err
	default:
		c.mu.refused++
		c.mu.sample = err
	}
	if c.mu.left--; c.mu.left == 0 && c.mu.done != nil {
		close(c.mu.done)
		c.mu.done = nil
	}
}

// answered is closed when all that was sent is answered.
func (c *counter) answered() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := make(chan struct{})
	if c.mu.left == 0 {
		close(done)
	} else {
		c.mu.done = done
	}
	return done
}

// soFar is what was answered, one of the refusals, and whether the node went off.
func (c *counter) soFar() (done tally, sample, off error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.tally, c.mu.sample, c.mu.off
}

// send deletes candidates of a part at the job's pace, and stands still while the load is above its limit. It returns when all are answered.
func (v *visit) send(ctx context.Context, part int, list []uint32) (tally, error) {
	c := &counter{primary: func(wire string) bool { return v.s.primaryCopy(v.node, []byte(wire)) }}
	var staleFor time.Duration
	if v.j.Stale {
		staleFor = staleTime(v.j.StaleFor)
	}
	looked, told := time.Now(), time.Now()
	v.pace.set(v.j.Pace)
	for _, at := range list {
		if now := time.Now(); now.Sub(looked) >= lookEvery {
			looked = now
			if err := v.goesOn(ctx); err != nil {
				return tally{}, err
			}
			if now.Sub(told) >= tellEvery {
				told = now
				done, _, _ := c.soFar()
				if err := v.tellPart(ctx, part, done, false); err != nil {
					return tally{}, err
				}
			}
		}
		if err := v.pace.wait(ctx); err != nil {
			return tally{}, err
		}
		found := v.term.found.at(at)
		c.sent(1)
		if err := v.o.Nodes.DeleteIf(ctx, sink.Copy{Node: v.node, Key: string(found.wire)}, found.cas, staleFor, c); err != nil {
			return tally{}, err
		}
	}
	select {
	case <-c.answered():
	case <-ctx.Done():
		return tally{}, ctx.Err()
	}
	return v.outcome(c)
}

// outcome is what became of all that was sent.
func (v *visit) outcome(c *counter) (tally, error) {
	done, sample, off := c.soFar()
	if off != nil {
		return tally{}, off
	}
	if sample != nil {
		v.j.run.sample = sample
	}
	for outcome, n := range map[string]int64{keysDeleted: done.copies, keysKept: done.kept, keysRefused: done.refused} {
		v.metrics.keys.WithLabelValues(outcome).Add(float64(n))
	}
	return done, nil
}

// goesOn returns when the load is below its limit; errPreempted where another job goes first.
func (v *visit) goesOn(ctx context.Context) error {
	for {
		if v.preempted() {
			return errPreempted
		}
		since, why := v.guard.below()
		if !since.IsZero() {
			return nil
		}
		if err := v.waitsFor(ctx, why, time.Now().Add(guardEvery)); err != nil {
			return err
		}
	}
}

// awaitLoad returns when the next copies may be deleted: the first of a job when the load is below its limit, others when it was so for the job's refill since the last.
func (v *visit) awaitLoad(ctx context.Context, copies int) error {
	r := v.j.run
	if r.opened && r.passed+int64(copies) <= smallPart {
		r.passed += int64(copies)
		return nil
	}
	for began := time.Now(); ; {
		if v.preempted() {
			return errPreempted
		}
		now := time.Now()
		since, why := v.guard.below()
		if !since.IsZero() {
			open := since
			if r.opened {
				open = later(since, r.ended).Add(v.j.refill())
			}
			if !now.Before(open) {
				r.opened, r.passed = true, int64(copies)
				return nil
			}
			if err := v.waitsFor(ctx, "", open); err != nil {
				return err
			}
			continue
		}
		if now.Sub(began) >= yieldAt && v.another(v.j) {
			r.held = true
			return errPreempted
		}
		if err := v.waitsFor(ctx, why, now.Add(guardEvery)); err != nil {
			return err
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// waitsFor waits until a time, or until something is asked for, at most a second. A reason that stands is told.
func (v *visit) waitsFor(ctx context.Context, why string, until time.Time) error {
	w, now := &v.j.run.waits, time.Now()
	if kind := waitKind(why); kind != w.kind {
		if kind == "" && w.said {
			v.log.Info("a flush goes on", "job", v.j.ID)
		}
		*w = waits{kind: kind, since: now}
	}
	if stood := now.Sub(w.since); why != "" && stood >= sayWait {
		if !w.said {
			w.said = true
			v.log.Warn("a flush waits", "job", v.j.ID, "node", v.node, "why", why)
		}
		if stood >= tellWait && now.Sub(w.told) >= tellWait {
			w.told = now
			if err := v.tellWaits(ctx, why); err != nil {
				return err
			}
		}
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-v.changed:
	case <-time.After(min(until.Sub(now), lookEvery)):
	}
	return nil
}

// waitKind tells reasons apart that have other numbers only.
func waitKind(why string) string { return why[:min(len(why), len("the load is"))] }

// another says whether anything but a job could go on.
func (t *term) another(j *job) bool {
	now := time.Now()
	for _, u := range t.book.units() {
		if u.job == j {
			continue
		}
		can := false
		if u.job == nil {
			can, _ = t.canBegin(&u, now)
		} else {
			can, _ = t.canStep(u.job, now)
		}
		if can {
			return true
		}
	}
	return false
}

// watch has a guard look at the job's load.
func (t *term) watch(ctx context.Context, j *job) *guard {
	t.metrics.limit.Set(j.Limit)
	if g := t.guards[j.ID]; g != nil {
		return g
	}
	s, _, err := t.loadOf(j.MaxLoad)
	if err != nil { // this worker cannot ask for it, though the one that began the job could
		s = func(context.Context) (float64, error) { return 0, err }
	}
	inner, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	g := &guard{signal: s, limit: j.Limit, told: t.metrics.load.Set, stop: func() { stop(); <-over }}
	go func() {
		defer close(over)
		g.run(inner)
	}()
	t.guards[j.ID] = g
	return g
}

// unwatch ends the guards that are not needed any more: of jobs that are over, and of others than the next one that are not held.
func (t *term) unwatch(next *unit) {
	for id, g := range t.guards {
		if j := t.book.jobs[id]; j == nil || (next == nil || next.job != j) && !j.run.held {
			g.stop()
			delete(t.guards, id)
		}
	}
}

// unwatchAll ends all.
func (t *term) unwatchAll() {
	for id, g := range t.guards {
		g.stop()
		delete(t.guards, id)
	}
}

// staleTime is for how long a copy is marked stale.
func staleTime(seconds int64) time.Duration {
	if seconds == 0 {
		return defaultStale
	}
	return time.Duration(seconds) * time.Second
}

const defaultStale = 30 * time.Second

// pacer spreads copies over time.
type pacer struct {
	every time.Duration
	next  time.Time
}

// burst is how much of a second may go at once.
const burst = 20 * time.Millisecond

// set has so many a second pass from now on.
func (p *pacer) set(perSecond int64) { p.every = time.Second / time.Duration(max(perSecond, 1)) }

// wait returns when the next one may pass.
func (p *pacer) wait(ctx context.Context) error {
	now := time.Now()
	if p.next.Before(now.Add(-burst)) {
		p.next = now.Add(-burst)
	}
	p.next = p.next.Add(p.every)
	early := p.next.Sub(now)
	if early < burst/2 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(early):
		return nil
	}
}
