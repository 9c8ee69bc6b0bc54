package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/control"
	"invalidator/internal/flush"
	"invalidator/mapping"
	"invalidator/replay"
)

// flushes is a worker's part in flushes: it conducts them while that is its work, and asks for what a change of the ring makes necessary.
type flushes struct {
	*flush.Conductor
	ring *flush.Ring
}

// newFlushes makes the parts; Run of the conductor starts it. set gives the mappings in force, holds asks the broker whether a work partition is this worker's.
func (w *Worker) newFlushes(self string, topics flushTopics, nodes flush.Nodes, ring watchedRing, set func() *mapping.Set, holds func(ctx context.Context, work int32) error) (*flushes, error) {
	c, work := w.Config, changelog.WorkPartition(flush.WorkName)
	conductor, err := flush.New(flush.Options{
		Worker: self, Work: work, Open: topics.open, Nodes: nodes, View: ring.View,
		Holds: func(ctx context.Context) error { return holds(ctx, work) },
		Pools: func() []string { return claimed(set()) },

		Prometheus: c.Replay.Flush.Prometheus.Reveal(), Pace: int64(c.Replay.Flush.Pace), Refill: c.Replay.Flush.Refill,
		Settle: c.Cache.Settle, MaxTTL: c.Cache.MaxTTL, Lag: c.Cache.Ring.Lag, Window: c.Replay.Window,
		Log: w.Log, Registerer: w.Registry,
	})
	if err != nil {
		return nil, err
	}
	by := newFlusher(topics.out, topics.names.Control).by
	return &flushes{conductor, flush.NewRing(by, func() []mapping.Underived { return set().Underived() }, topics.ask)}, nil
}

// claimed are the pools that mapping files claim.
func claimed(s *mapping.Set) (pools []string) {
	for _, f := range s.Files() {
		pools = append(pools, f.Pools...)
		pools = append(pools, f.Underivable...)
	}
	return pools
}

// flushTopics are the control and the status topic, as flushes need them.
type flushTopics struct {
	kafka changelog.Options
	names changelog.Names
	out   *changelog.Writer
	state *control.State // of the control topic, which a follower keeps up to date
}

const (
	// requestTimeout bounds the writing of a request that a partition waits for, so that a broker that is away is told.
	requestTimeout = 10 * time.Second
	// freshEvery is how often it is asked whether the control topic was read since a conductor's term began.
	freshEvery = 100 * time.Millisecond
)

// ask writes a request. The worker that conducts mostly asks for the same, so that a promotion's flush does not wait for a look.
func (t flushTopics) ask(ctx context.Context, r replay.Request) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	value, err := replay.Encode(r)
	if err != nil {
		return err
	}
	return t.write(ctx, r.ID, value)
}

// write appends to the control topic, and has this worker see it.
func (t flushTopics) write(ctx context.Context, id string, value []byte) error {
	if err := t.out.Write(ctx, t.names.Control, id, value); err != nil {
		return err
	}
	t.state.LookSoon()
	return nil
}

// open is flush.Options.Open. What an earlier conductor wrote is there when it returns: its claim ended before this one's began.
func (t flushTopics) open(ctx context.Context) (flush.Log, error) {
	began := time.Now()
	t.state.LookSoon()
	for t.state.AsOf().Before(began) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(freshEvery):
		}
	}
	cl, err := t.kafka.Client()
	if err != nil {
		return nil, err
	}
	past, err := changelog.OpenLog(t.kafka)
	if err != nil {
		cl.Close()
		return nil, err
	}
	return &flushLog{t, cl, past}, nil
}

// flushLog implements flush.Log.
type flushLog struct {
	flushTopics
	cl   *kgo.Client
	past *changelog.Log
}

func (l *flushLog) Close() {
	l.past.Close()
	l.cl.Close()
}

func (l *flushLog) Changed() <-chan struct{} { return l.state.Changed() }

func (l *flushLog) Orders() (requests []flush.Asked, jobs []flush.Begun) {
	for _, r := range l.state.Requests() {
		if r.Action != replay.Flush {
			continue
		}
		asked := flush.Asked{Request: r.Request, Offset: r.Offset, Taken: r.Taken}
		if by, is := l.state.CancelOf(r.ID); is {
			asked.Cancelled = strings.Join(slices.DeleteFunc([]string{cmp.Or(by.By, "somebody"), by.Reason}, func(s string) bool { return s == "" }), ": ")
		}
		_, asked.Paused = l.state.Paused(r.ID)
		requests = append(requests, asked)
	}
	for _, j := range l.state.Jobs() {
		jobs = append(jobs, flush.Begun{Job: j.Job, Offset: j.Offset, Taken: j.Taken})
	}
	return requests, jobs
}

func (l *flushLog) Past(ctx context.Context, since time.Time, each func(replay.Record)) error {
	adm, status := kadm.NewClient(l.cl), changelog.Partition{Topic: l.names.Status}
	begins, err := adm.ListOffsetsAfterMilli(ctx, max(0, since.UnixMilli()), status.Topic)
	if err = cmp.Or(err, begins.Error()); err != nil {
		return fmt.Errorf("asking where topic %s stood at %s: %w", status.Topic, since.Format(time.RFC3339), err)
	}
	from, _ := begins.Lookup(status.Topic, status.Number)
	take := func(rs []changelog.Record) error {
		for _, r := range rs {
			if record, err := replay.DecodeStatus(r.Value); err == nil { // others are for others
				each(record)
			}
		}
		return nil
	}
	err = l.past.Read(ctx, status, max(from.Offset, 0), math.MaxInt64, take)
	for behind := (*changelog.LogStartError)(nil); errors.As(err, &behind); { // what retention has taken is too old to count
		err = l.past.Read(ctx, status, behind.Start, math.MaxInt64, take)
	}
	return err
}

func (l *flushLog) Write(ctx context.Context, r replay.Record) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	value, err := replay.Encode(r)
	if err != nil {
		return err
	}
	switch r := r.(type) {
	case replay.Job:
		return l.write(ctx, r.ID, value)
	case replay.Progress:
		return l.out.Write(ctx, l.names.Status, r.ID, value)
	case replay.Result:
		return l.out.Write(ctx, l.names.Status, r.ID, value)
	}
	return fmt.Errorf("a flush has no record %T", r)
}
