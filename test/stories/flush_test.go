package stories

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/control"
	"invalidator/internal/flush"
	"invalidator/replay"
)

// flushTopics are the control and the status topic as a conductor of flushes needs them.
type flushTopics struct {
	names changelog.Names
	out   *changelog.Writer
	past  *changelog.Log
	state *control.State
}

// ask writes a request.
func (t *flushTopics) ask(ctx context.Context, r replay.Request) error {
	return t.write(ctx, t.names.Control, r.ID, r)
}

func (t *flushTopics) write(ctx context.Context, topic, key string, r replay.Record) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	value, err := replay.Encode(r)
	if err != nil {
		return err
	}
	return t.out.Write(ctx, topic, key, value)
}

// open waits until all is known that an earlier conductor wrote.
func (t *flushTopics) open(ctx context.Context) (flush.Log, error) {
	for began := time.Now(); t.state.AsOf().Before(began); {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return flushLog{t}, nil
}

// flushLog implements flush.Log.
type flushLog struct{ *flushTopics }

func (l flushLog) Close() {}

func (l flushLog) Changed() <-chan struct{} { return l.state.Changed() }

func (l flushLog) Orders() (requests []flush.Asked, jobs []flush.Begun) {
	for _, r := range l.state.Requests() {
		if r.Action != replay.Flush {
			continue
		}
		asked := flush.Asked{Request: r.Request, Offset: r.Offset, Taken: r.Taken}
		if by, is := l.state.CancelOf(r.ID); is {
			asked.Cancelled = cmp.Or(by.By, "somebody")
		}
		_, asked.Paused = l.state.Paused(r.ID)
		requests = append(requests, asked)
	}
	for _, j := range l.state.Jobs() {
		jobs = append(jobs, flush.Begun{Job: j.Job, Offset: j.Offset, Taken: j.Taken})
	}
	return requests, jobs
}

func (l flushLog) Past(ctx context.Context, since time.Time, each func(replay.Record)) error {
	return l.past.Read(ctx, changelog.Partition{Topic: l.names.Status}, 0, math.MaxInt64, func(rs []changelog.Record) error {
		for _, r := range rs {
			if record, err := replay.DecodeStatus(r.Value); err == nil && !r.Time.Before(since) {
				each(record)
			}
		}
		return nil
	})
}

func (l flushLog) Write(ctx context.Context, r replay.Record) error {
	switch r := r.(type) {
	case replay.Job:
		return l.write(ctx, l.names.Control, r.ID, r)
	case replay.Progress:
		return l.write(ctx, l.names.Status, r.ID, r)
	case replay.Result:
		return l.write(ctx, l.names.Status, r.ID, r)
	}
	return fmt.Errorf("a flush has no record %T", r)
}
