package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
)

// stallAfter is how long the oldest record may wait for its acknowledgement before that is told.
const stallAfter = 10 * time.Second

// watchEvery is how often a run looks whether Kafka answers.
const watchEvery = time.Second

// steadyAfter is how long a run must last to begin the back-off anew, and to count as a recovery where it had no position
// to save: an idle source.
const steadyAfter = 15 * time.Second

var (
	errEnded     = errors.New("the run has ended")
	errByItself  = errors.New("the feeder stopped by itself")
	errOvertaken = errors.New("another process has fed the source meanwhile: going on from where it came to")
)

// run is one run of one source: a cdc.Handler. A new run begins with a new producer, so that nothing of an old one is
// left to be waited for.
type run struct {
	*source
	producer *changelog.Producer
	flight   *flight
	fail     context.CancelCauseFunc // ends the run with an error
	started  chan struct{}           // closed by Started

	// Handler's goroutine only:
	tables  map[cdc.TableID]*table
	last    *table
	encoder envelope.Encoder
	clock   clock
	parcels parcels

	connector cdc.Connector // of the last change

	// Whoever saves: Started, then saveLoop, then finish.
	fed      *changelog.Fed // of the source, where it has to be written anew: see widen
	stale    []string
	saved    cdc.Position
	progress bool

	saving atomic.Pointer[time.Time] // since when a position is on its way; nil: none is
}

// table is where the changes of a table go.
type table struct {
	id    cdc.TableID
	topic string
	limit int // bytes of a record's key and value
}

// run feeds the source from its saved position until ctx ends or something fails. It reports whether the position moved.
func (s *source) run(ctx context.Context) (progress bool, err error) {
	state, err := s.opts.State.Load(ctx)
	if ctx.Err() != nil {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	from, err := state.LoadPosition(s.Name)
	if err != nil {
		return false, err
	}
	// After the load and not before it: see nextGeneration.
	if err := s.term.Confirm(ctx); err != nil {
		return false, err
	}
	if s.generation == 0 || from.Generation > s.generation {
		s.generation = nextGeneration(from.Generation, s.term.Generation)
		s.metrics.generation.Set(float64(s.generation))
	}
	s.at = from
	s.findStops(ctx, state)
	producer, err := changelog.OpenProducer(s.opts.Kafka, s.opts.Topics, maxRecords)
	if err != nil {
		return false, err
	}
	defer producer.Close()

	grace, ungrace := withGrace(ctx, graceTime)
	defer ungrace()
	rctx, fail := context.WithCancelCause(ctx)
	defer fail(errEnded)
	r := &run{
		source: s, producer: producer, flight: newFlight(), fail: fail,
		started:   make(chan struct{}),
		tables:    make(map[cdc.TableID]*table),
		connector: s.Connector,
		saved:     from.Position,
		stale:     from.Stale,
	}
	r.parcels.sent = r.sent
	if from.Found && from.Generation != s.generation {
		r.stale = append(r.stale, changelog.PositionKey(s.Name, from.Generation))
	}

	if err := r.widen(state); err != nil {
		return false, err
	}
	if err := r.remember(state, from); err != nil {
		return false, err
	}

	var aside sync.WaitGroup
	aside.Go(func() { r.saveLoop(rctx, grace) })
	aside.Go(func() { r.lagLoop(rctx) })
	aside.Go(func() { r.watchLoop(rctx) })
	err = s.Feeder.Run(rctx, from.Position, r)
	s.feeding.Store(false)
	switch cause := context.Cause(rctx); {
	case ctx.Err() != nil:
		err = nil // what a feeder says when it is told to end
	case cause != nil:
		err = cause // we ended it
	case err == nil:
		err = errByItself
	}
	fail(errEnded)
	aside.Wait()
	s.stalled.Store(false)
	err = r.finish(ctx, grace, err)
	if r.saved != s.at.Position {
		s.at.Position, s.at.Saved = r.saved, time.Now()
	}
	if errors.Is(err, cdc.ErrGap) {
		err = r.judge(ctx, err)
	}
	return r.progress, err
}

// judge returns the error of a gap, or another where it is not sure to be one. It begins at the saved position, so that what was
// handed over behind that, and is not acknowledged, would be in it. And where another process saved a position of the source
// after we read where to start, the source may have moved on over our start, which is no gap.
func (r *run) judge(ctx context.Context, gap error) error {
	if !r.flight.idle() {
		return fmt.Errorf("records before a gap are not acknowledged, and are read again: %v", gap)
	}
	state, err := r.opts.State.Load(ctx)
	if err != nil {
		return fmt.Errorf("asking whether a gap is one (%v): %w", gap, err)
	}
	now, err := state.LoadPosition(r.Name)
	switch {
	case err != nil:
		return fmt.Errorf("asking whether a gap is one (%v): %w", gap, err)
	case now.Position != r.saved:
		return errOvertaken
	}
	return gap
}

// finish waits for what was sent and saves the position a last time. The feeder has returned, so nothing is confirmed.
func (r *run) finish(ctx, grace context.Context, err error) error {
	var failed *changelog.ProduceError
	if !errors.As(err, &failed) {
		limit, cancel := context.WithTimeout(grace, drainTime)
		defer cancel()
		if derr := r.flight.drain(limit); derr != nil && ctx.Err() != nil {
			err = fmt.Errorf("waiting for acknowledgements: %w", derr)
		}
	}
	if _, serr := r.save(grace); err == nil {
		err = serr
	}
	return err
}

// withGrace returns a context that ends d after ctx does.
func withGrace(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	grace, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(d):
			cancel()
		case <-grace.Done():
		}
	})
	return grace, func() { unhook(); cancel() }
}

// nextGeneration is higher than highest, which was found on the state topic, and than that of every leader before: by whole
// steps of 1<<20 a leader, plus the generation of the leaders' group in the rest.
//
// Two leaders, the earlier A with group generation a and the later B with b > a. Where B finds A's position, it takes the step
// above. Where it does not (A has saved none yet), B finds at least what A found, so that its step is no lower, and in the same
// step b > a decides. So B's is higher, whatever they read when. A leader that was stopped before it read, and then finds B's
// position, would take the step above B's: hence Confirm comes after the load, and refuses A, since the group has moved on.
// The group's generation rises for as long as the group exists, which Confirm's commit sees to; it would have to turn round
// 1<<20 times between two such leaders to deceive. A step is one leader, so that an int64 holds eight thousand milliards of
// them. Generations from before there were leaders are small, and lie below the first step.
func nextGeneration(highest int64, group int32) int64 {
	const step = 1 << 20
	return (highest/step+1)*step + int64(group)%step
}

// widen tells the feeder which tables were fed up to the saved position. That it has others now is written down with the first
// position that is saved: by then the feeder has told which of them join (Handler.Joined), so that a crash before it tells again.
func (r *run) widen(state *changelog.State) error {
	fed, found, err := state.LoadFed(r.Name, "")
	if err != nil {
		return err
	}
	w, ok := r.Feeder.(cdc.Widener)
	if ok {
		w.Widen(nil)
	}
	if r.saved.IsZero() || slices.Equal(fed.Include, r.Include) {
		return nil
	}
	if !found { // fed by a version that did not say
		fed = changelog.Fed{Source: r.Name, From: r.saved, At: time.Now().UTC()}
	}
	if ok && len(fed.Include) > 0 {
		earlier, err := cdc.NewInclude(fed.Include)
		if err != nil {
			return fmt.Errorf("what source %s included before: %w", r.Name, err)
		}
		w.Widen(earlier)
	}
	fed.Include = r.Include
	r.fed = &fed
	return nil
}

// Started saves the position of a new source before anything of it is read, and from where its tables are fed before that:
// wherever there is a position, there is that.
func (r *run) Started(ctx context.Context, p cdc.Position) error {
	if r.saved.IsZero() {
		r.fed = &changelog.Fed{Source: r.Name, From: p, At: time.Now().UTC(), Include: r.Include}
		r.flight.commit(p, time.Time{})
		if _, err := r.save(ctx); err != nil {
			return err
		}
	} else if err := r.moved(ctx, p); err != nil {
		return err
	}
	r.metrics.state.Set(stateFeeding)
	r.feeding.Store(true)
	close(r.started)
	return nil
}

// Change writes a row change as one record, or as two where its key changed.
func (r *run) Change(ctx context.Context, c *cdc.RowChange) error {
	r.connector = c.Connector
	first, second := envelope.Split(c)
	if err := r.write(ctx, first); err != nil || second == nil {
		return err
	}
	return r.write(ctx, second)
}

// Committed puts the position behind what was sent.
func (r *run) Committed(_ context.Context, p cdc.Position, at time.Time) error {
	r.flight.commit(p, at)
	r.clock.stop()
	return nil
}

func (r *run) write(ctx context.Context, c *cdc.RowChange) error {
	t, err := r.table(ctx, c)
	if err != nil {
		return err
	}
	p, at := r.parcels.take(), r.clock.now()
	key, value, err := r.encoder.Encode(c, envelope.Options{MaxBytes: t.limit, Keep: r.Keep, At: at}, p.memory)
	if err != nil {
		return err
	}
	p.fill(t, key, value)
	var waited bool
	if p.number, waited, err = r.flight.reserve(ctx, p.size()); err != nil {
		return err
	}
	if waited {
		r.clock.stop()
		at = r.clock.now()
	}
	p.out.At = at
	r.producer.Produce(&p.out)
	return nil
}

// sent takes the answer to a parcel, on a goroutine of the producer's.
func (r *run) sent(p *parcel, err error) {
	if err != nil {
		r.fail(p.table.refusal(err))
		return
	}
	r.metrics.records.Inc()
	r.metrics.bytes.Add(float64(p.size()))
	if m, moved := r.flight.acked(p.number, p.size()); moved && !m.at.IsZero() {
		r.metrics.ack.Observe(time.Since(m.at).Seconds())
	}
	r.parcels.giveBack(p)
}

func (t *table) refusal(err error) error {
	var pe *changelog.ProduceError
	if errors.As(err, &pe) && pe.TooLarge() {
		return &refusedError{pe, t.limit}
	}
	return err
}

// table finds where a change goes. The topic is made at the first sight of the table in this run.
func (r *run) table(ctx context.Context, c *cdc.RowChange) (*table, error) {
	if r.last != nil && r.last.id == c.TableID {
		return r.last, nil
	}
	t := r.tables[c.TableID]
	if t == nil {
		name := changelog.ChangeTopic(r.TopicPrefix, c.Schema, c.TableID.Table)
		if c.Op == cdc.Message {
			name = changelog.MessageTopic(r.TopicPrefix)
		}
		topic, err := r.producer.Ensure(ctx, name, r.limits)
		if err != nil {
			return nil, err
		}
		for _, f := range topic.Findings {
			r.log.Warn("a change topic is not as it should be", "finding", f.String())
		}
		limit := topic.MaxRecord
		if r.MaxRecord > 0 {
			limit = min(limit, r.MaxRecord)
		}
		t = &table{c.TableID, topic.Name, limit}
		r.tables[c.TableID] = t
	}
	r.last = t
	return t, nil
}

func (r *run) saveLoop(ctx, grace context.Context) {
	select {
	case <-r.started:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(r.opts.SaveEvery)
	defer tick.Stop()
	begin := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		saved, err := r.save(grace)
		if err != nil {
			r.fail(err)
			return
		}
		if saved != nil {
			r.Feeder.Confirm(*saved)
		}
		// That a run began says little where a record of it is refused each time.
		if saved != nil || time.Since(begin) > steadyAfter {
			r.recovered()
			r.healed(grace)
		}
	}
}

// save writes the safe position where it moved, and returns it. Everything before a safe position is acknowledged (see
// tracker.ack), so a start from what is saved here skips nothing, and the source may forget what lies before it.
func (r *run) save(ctx context.Context) (*cdc.Position, error) {
	m, ok := r.flight.safe()
	if !ok {
		return nil, nil
	}
	if m.pos == r.saved {
		r.showSaved(m) // an idle source's time goes on while its position stands
		return nil, nil
	}
	begin := time.Now()
	r.saving.Store(&begin)
	defer r.saving.Store(nil)
	if r.fed != nil {
		if err := r.opts.State.PutFed(ctx, *r.fed); err != nil {
			return nil, fmt.Errorf("writing from where source %s is fed: %w", r.Name, err)
		}
		r.fed = nil
	}
	if err := r.opts.State.PutPosition(ctx, r.Name, r.generation, m.pos); err != nil {
		return nil, fmt.Errorf("saving the position of source %s: %w", r.Name, err)
	}
	r.saved, r.progress = m.pos, true
	r.showSaved(m)
	if len(r.stale) > 0 {
		if err := r.opts.State.Remove(ctx, r.stale...); err != nil {
			return nil, fmt.Errorf("removing older positions of source %s: %w", r.Name, err)
		}
		r.stale = nil
	}
	return &m.pos, nil
}

func (r *run) showSaved(m mark) {
	if !m.at.IsZero() {
		r.metrics.saved.Set(float64(m.at.UnixMicro()) / 1e6)
	}
}

// watchLoop tells, once, when Kafka has not acknowledged a record or a position for long: the source waits meanwhile.
func (r *run) watchLoop(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		bytes, waited := r.flight.load()
		if since := r.saving.Load(); since != nil {
			waited = max(waited, time.Since(*since))
		}
		r.metrics.inFlight.Set(float64(bytes))
		switch told := r.stalled.Load(); {
		case waited >= stallAfter && !told:
			r.stalled.Store(true)
			r.metrics.state.Set(stateWaiting)
			r.log.Warn("Kafka acknowledges nothing: the source waits (are the brokers up, and enough replicas in sync?)",
				"for", waited.Round(time.Second), "bytes", bytes)
		case waited < stallAfter && told:
			r.stalled.Store(false)
			r.metrics.state.Set(stateFeeding)
			r.log.Info("Kafka acknowledges again")
		}
	}
}
