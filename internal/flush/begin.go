package flush

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"invalidator/replay"
)

const (
	// viewPatience is how long a request waits for the ring record that it is about: workers see it within a second of each other, and the state topic has it.
	viewPatience = 30 * time.Second
	// measurePatience is how long a request that names no limit waits for a first look at the load.
	measurePatience = 10 * time.Second
	// awaitPatience is how long a job that was written may take to be seen on the topic. It was made again if it takes longer; else the same one is written twice, which
	// counts once.
	awaitPatience = time.Minute
)

// awaited is a job that was written, and that the topic has not shown yet. Its zero value is none.
type awaited struct {
	job     string
	written time.Time
}

// canBegin leaves out of a group what has to wait, and says whether anything is left. measured: the load of this moment is known.
func (t *term) canBegin(u *unit, now time.Time, measured bool) (can bool, at time.Time) {
	if until := t.awaits.written.Add(awaitPatience); t.awaits.job != "" && now.Before(until) {
		return false, until
	}
	later := func(when time.Time) {
		if at.IsZero() || when.Before(at) {
			at = when
		}
	}
	epoch := t.o.View().Topology.Epoch()
	u.group = slices.DeleteFunc(u.group, func(r *request) bool {
		seen, wait := r.seen.Add(viewPatience), r.epoch() > epoch
		if !wait && !r.DryRun && u.limit == "" && !measured {
			seen, wait = r.seen.Add(measurePatience), true
		}
		if !wait || !now.Before(seen) {
			return false
		}
		later(minTime(seen, now.Add(time.Second)))
		return true
	})
	return len(u.group) > 0, at
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// beginJob writes a job down, or refuses what cannot be done.
func (t *term) beginJob(ctx context.Context, u *unit) error {
	v, now := t.o.View(), time.Now()
	o := u.options()
	_, limit, err := t.loadOf(o.MaxLoad)
	s := scopeOf(u.group, v.Topology.Epoch()).under(v, t.o.Pools())
	nodes := len(s.list())
	if err == nil && nodes == 0 && u.class != gained {
		err = fmt.Errorf("no ring record of the last %s names %s (invalidator ring show)", t.o.MaxTTL, target(u.group))
	}
	if err != nil || nodes == 0 {
		for _, r := range u.group {
			t.book.refuse(r, err)
		}
		return nil
	}
	o.Pace, o.Refill = cmp.Or(o.Pace, t.o.Pace), cmp.Or(o.Refill, int64(t.o.Refill/time.Second))
	id := u.group[0].ID
	for t.book.knows(id) {
		id += "+"
	}
	job := replay.Job{
		ID: id, At: now.UTC(), Worker: t.o.Worker, Scope: u.group[0].Target, Answers: ids(u.group), DryRun: u.group[0].DryRun,
		Options: o, Epoch: v.Topology.Epoch(), Limit: limit, Parts: partsOf(o.Slices, s.share(), nodes),
	}
	if err := t.topics.Write(ctx, job); err != nil {
		return fmt.Errorf("beginning a flush: %w", err)
	}
	t.awaits = awaited{job.ID, now}
	t.log.Info("a flush begins", "job", job.ID, "of", target(u.group), "answers", len(job.Answers), "nodes", nodes, "parts_a_node", job.Parts, "limit", job.Limit, "dry_run", job.DryRun)
	return nil
}

// loadOf is what a limit measures, and its number; where no limit is said, the nodes' counters and twice what they were.
func (t *term) loadOf(maxLoad string) (s signal, most float64, err error) {
	if maxLoad == "" {
		most, _ = t.meter.limit()
		return t.meter.load, most, nil
	}
	l, err := ParseLimit(maxLoad)
	if err != nil {
		return nil, 0, err
	}
	s, err = t.o.signalOf(l.Expr, t.meter.load)
	return s, l.Max, err
}
