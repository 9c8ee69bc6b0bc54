package flush

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"invalidator/sink"
)

// lookAgain is how often all is looked at where nothing is due.
const lookAgain = 10 * time.Second

// term is one time of a conductor. All of it but busy and the meter is one goroutine's.
type term struct {
	*Conductor
	topics  Log
	changed <-chan struct{} // closed when topics has other orders
	book    *book
	meter   *meter
	guards  map[string]*guard // of the job that was worked on last, and of those that are held
	busy    atomic.Bool
	found   *candidates // nil while there is no job
	pace    pacer
	awaits  awaited
}

// today are the nodes that clients use.
func (t *term) today() (nodes []string) {
	r := t.o.View().Topology.Record()
	add := func(shards []sink.Shard) {
		for _, s := range shards {
			nodes = append(nodes, s.Primary.Addr)
			for _, replica := range s.Replicas {
				nodes = append(nodes, replica.Addr)
			}
		}
	}
	add(r.Shards)
	if r.Previous != nil {
		add(r.Previous.Shards)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// open reads what there is, and what earlier terms have told of it.
func (t *term) open(ctx context.Context) error {
	t.refresh()
	since := t.book.oldest()
	if since.IsZero() {
		return nil
	}
	return t.topics.Past(ctx, since, t.book.told)
}

// refresh takes in what is new on the control topic.
func (t *term) refresh() {
	if t.changed != nil {
		select {
		case <-t.changed:
		default:
			t.book.lapse(time.Now())
			return
		}
	}
	t.changed = t.topics.Changed()
	requests, jobs := t.topics.Orders()
	now := time.Now()
	t.book.update(requests, jobs, now)
	t.book.lapse(now)
	if t.book.knows(t.awaits.job) {
		t.awaits = awaited{}
	}
	if busy := len(t.book.requests) > 0; t.busy.Swap(busy) != busy && busy {
		rouse(t.meter.wake)
	}
}

// work does what is due until ctx ends.
func (t *term) work(ctx context.Context) error {
	for {
		t.refresh()
		if err := t.tellDue(ctx); err != nil {
			return err
		}
		u, at := t.pick(time.Now(), nil)
		t.unwatch(u)
		t.show(u)
		var err error
		switch {
		case u == nil:
			err = t.wait(ctx, at)
		case u.job == nil:
			err = t.beginJob(ctx, u)
		default:
			err = t.step(ctx, u.job)
		}
		if err != nil {
			return err
		}
	}
}

// wait waits until a time, or until something was asked for.
func (t *term) wait(ctx context.Context, at time.Time) error {
	if len(t.book.jobs) == 0 {
		t.letGo()
	}
	pause := lookAgain
	if !at.IsZero() {
		pause = min(pause, time.Until(at))
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.changed:
	case <-time.After(pause):
	}
	return nil
}

// letGo gives the memory of candidates back.
func (t *term) letGo() {
	if t.found != nil {
		t.found.close()
		t.found = nil
	}
}

// pick is what is to be done next, of all that can be; nil: nothing before at. A job that is visited goes on, but for what overtakes it.
func (t *term) pick(now time.Time, working *visit) (next *unit, at time.Time) {
	_, measured := t.meter.limit() // once, so that what goes first is not passed by between two looks
	for _, u := range t.book.units() {
		var can bool
		var when time.Time
		switch {
		case working != nil && u.job == working.j:
			can = true
		case u.job == nil:
			can, when = t.canBegin(&u, now, measured)
		default:
			can, when = t.canStep(u.job, now)
			can = can && (working == nil || t.overtakes(u.job, now, working))
		}
		if can {
			return &u, now
		}
		if !when.IsZero() && (at.IsZero() || when.Before(at)) {
			at = when
		}
	}
	return nil, at
}

// canStep says whether a job can go on, or when.
func (t *term) canStep(j *job, now time.Time) (can bool, at time.Time) {
	if j.run == nil {
		j.run = newRun(j, now.Add(t.o.Settle))
	}
	r := j.run
	switch {
	case r.held && !t.guards[j.ID].belowFor(now, j.refill()):
		return false, now.Add(guardEvery)
	case !r.started:
		return !now.Before(r.notBefore), r.notBefore
	}
	nodes := t.sight(j).list()
	if j.over(nodes) || j.ready(nodes, now) != "" {
		return true, now
	}
	return false, j.wakes(nodes)
}

// sight is what a job's round is about under today's view.
func (t *term) sight(j *job) *sight {
	v, r := t.o.View(), j.run
	if s := r.sight; s != nil && s.view.Topology == v.Topology && r.of == [2]int64{r.since, int64(len(j.answers))} {
		return s
	}
	s := scopeOf(j.answers, j.Epoch).under(v, t.o.Pools())
	if r.since > 0 {
		s.only = gainsSince(v, r.since)
	}
	r.sight, r.of = s, [2]int64{r.since, int64(len(j.answers))}
	return s
}

// step does one thing of a job: it begins a round, flushes one node, or ends a round.
func (t *term) step(ctx context.Context, j *job) error {
	r, s := j.run, t.sight(j)
	nodes := s.list()
	switch {
	case !r.started:
		return t.beginRound(ctx, j, nodes)
	case j.over(nodes):
		return t.endRound(ctx, j)
	}
	r.held = false
	return t.visit(ctx, j, s, j.ready(nodes, time.Now()))
}

// beginRound takes the marks, of the nodes that answer: what is filled from now on stays.
func (t *term) beginRound(ctx context.Context, j *job, nodes []string) error {
	r := j.run
	r.start(time.Now(), t.o.View().Topology.Epoch())
	t.log.Info("a round of a flush begins", "job", j.ID, "round", r.round, "nodes", len(nodes))
	if !j.DryRun {
		t.markAll(ctx, j, nodes)
	}
	return ctx.Err()
}

// endRound goes on with another one, or ends the job.
func (t *term) endRound(ctx context.Context, j *job) error {
	v := t.o.View()
	if notBefore, since, more := t.o.again(j, v, time.Now()); more {
		j.run.next(notBefore, since)
		return nil
	}
	return t.finish(ctx, j)
}
