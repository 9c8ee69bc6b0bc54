package flush

import (
	"context"
	"fmt"
	"time"

	"invalidator/replay"
)

// tellDue writes the results of what has ended without a job.
func (t *term) tellDue(ctx context.Context) error {
	for id, o := range t.book.due {
		r := replay.Result{ID: id, Clean: o.why == nil}
		if o.why != nil {
			r.Error = o.why.Error()
		}
		if err := t.tellResult(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// finish writes a job's result for each of its requests.
func (t *term) finish(ctx context.Context, j *job) error {
	r := j.run
	result := replay.Result{Keys: r.keys, Copies: r.copies, Kept: r.kept, Clean: true}
	if err := r.failed(); err != nil {
		result.Error, result.Clean = err.Error(), false
		t.log.Error("a flush ends and is not done: what made somebody ask for it stands", "job", j.ID, "of", target(j.answers), "error", err)
	} else {
		t.log.Info("a flush is done", "job", j.ID, "of", target(j.answers), "rounds", r.round, "keys", r.keys, "copies", r.copies, "kept", r.kept)
	}
	if j.DryRun {
		result.Seconds = int64(estimate(r.copies, r.parts, j.Options) / time.Second)
	}
	for _, id := range ids(j.answers) {
		result.ID = id
		if err := t.tellResult(ctx, result); err != nil {
			return err
		}
	}
	return nil
}

// tellResult writes a result.
func (t *term) tellResult(ctx context.Context, r replay.Result) error {
	r.At, r.Worker = time.Now().UTC(), t.o.Worker
	if err := t.topics.Write(ctx, r); err != nil {
		return fmt.Errorf("telling what became of a flush: %w", err)
	}
	t.book.end(r.ID)
	kind := resultDone
	if !r.Clean {
		kind = resultFailed
	}
	t.metrics.results.WithLabelValues(kind).Inc()
	return nil
}

// estimate is how long a flush takes at the least: the pace, and what each part waits for the last one's refills.
func estimate(copies, parts int64, o replay.Options) time.Duration {
	took := time.Duration(float64(copies) / float64(max(o.Pace, 1)) * float64(time.Second))
	return took + time.Duration(max(parts-1, 0)*o.Refill)*time.Second
}
