package flush

import (
	"context"
	"time"
)

const (
	yieldAt  = time.Minute      // a job whose load stays above its limit for so long lets others go on
	sayWait  = 3 * time.Second  // why it waits, in the log
	tellWait = 10 * time.Second // and on the status topic, again and again
	// smallPart is how many copies are deleted without another look at what the last ones did: too few for a database to notice.
	smallPart = 1000
)

// preempted says whether a visit must let another job go first, or stop.
func (v *visit) preempted() bool {
	v.refresh()
	u, _ := v.pick(time.Now(), v)
	return u == nil || u.job != v.j
}

// overtakes says whether a job that can go on does so between two parts of another's visit, which has to dump its node again then. What only tries again waits until
// that visit has done something, and its node answers; what was held, too: else two jobs might do nothing but dump.
func (t *term) overtakes(j *job, now time.Time, working *visit) bool {
	switch {
	case !j.run.started:
		return true
	case j.run.held:
		return working.parts > 0
	}
	node := j.ready(t.sight(j).list(), now)
	return node == "" || j.place(node).pause == 0 || working.parts > 0 && t.meter.isFree(node)
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

// waitsFor waits until a time, until the load was looked at, or until something is asked for, at most a second. A reason that stands is told.
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
	case <-v.guard.news:
	case <-time.After(min(until.Sub(now), lookEvery)):
	}
	return nil
}

// waitKind tells reasons apart that have other numbers only.
func waitKind(why string) string { return why[:min(len(why), len("the load is"))] }

// another says whether anything but a job could go on.
func (t *term) another(j *job) bool {
	now := time.Now()
	_, measured := t.meter.limit()
	for _, u := range t.book.units() {
		if u.job == j {
			continue
		}
		can := false
		if u.job == nil {
			can, _ = t.canBegin(&u, now, measured)
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
	g := &guard{signal: s, limit: j.Limit, told: t.metrics.load.Set, news: make(chan struct{}, 1), stop: func() { stop(); <-over }}
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
