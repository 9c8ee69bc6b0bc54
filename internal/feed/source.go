package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/gap"
)

// source is a Source with what outlives a run of it. Only the goroutine that leads it touches it, but for gaps and findings.
type source struct {
	Source
	opts     *Options
	log      *slog.Logger
	metrics  sourceMetrics
	limits   map[string]int // topic -> most bytes of a record, where the topic's own limit turned out to be too high
	gaps     trouble        // by id
	findings trouble        // by their text, and what a run stands for by aboutRun
	feeding  atomic.Bool
	joined   atomic.Bool // the group of its feeders has this process
	leads    atomic.Bool
	stalled  atomic.Bool // Kafka has acknowledged nothing for stallAfter

	unsettled atomic.Bool // a gap that stops nothing is accepted and not closed

	// Of one time of leadership:
	term       *changelog.Term
	generation int64                   // of the positions that are saved in it
	at         changelog.SavedPosition // where the last run came to
	stops      []*gap.Case             // gaps that stopped it and are not closed, as the last run found them
	reported   string                  // the error that was last told; empty when the source has fed since
}

// lead feeds the source for as long as this process leads it.
func (s *source) lead(ctx context.Context, t *changelog.Term) {
	s.term, s.generation, s.at, s.stops, s.reported = t, 0, changelog.SavedPosition{}, nil, ""
	switch t.Previous {
	case "":
		s.log.Info("this process leads the source: nobody has before")
	case s.opts.Self:
		s.log.Info("this process leads the source again")
	default:
		s.log.Info("this process took the source over", "from", t.Previous)
	}
	s.metrics.leader.Set(1)
	s.leads.Store(true)
	var aside sync.WaitGroup
	aside.Go(func() { s.checkLoop(ctx) })
	aside.Go(func() { s.watchGaps(ctx) })
	s.supervise(ctx)
	aside.Wait()
	s.gaps.clear()
	s.findings.clear()
	s.leads.Store(false)
	s.metrics.standsBy()
	if errors.Is(context.Cause(ctx), changelog.ErrNotLeader) {
		s.log.Warn("this process no longer leads the source, and stands by")
	} else {
		s.log.Info("this process gives the source up, since it ends: another may lead it")
	}
}

// waits says why the source is not served here, a line each.
func (s *source) waits() []string {
	switch wrong := append(s.gaps.all(), s.findings.all()...); {
	case len(wrong) > 0:
		return wrong
	case !s.joined.Load():
		return []string{fmt.Sprintf("source %s: the group of its feeders has not taken this process in (are the brokers up?)", s.Name)}
	case s.leads.Load() && !s.feeding.Load():
		return []string{fmt.Sprintf("source %s: this process leads it and does not feed it yet (the log says what it waits for)", s.Name)}
	case s.stalled.Load():
		return []string{fmt.Sprintf("source %s: Kafka acknowledges nothing (are enough replicas in sync?)", s.Name)}
	}
	return nil
}

// kafka reaches the brokers, with this source's log.
func (s *source) kafka() changelog.Options {
	o := s.opts.Kafka
	o.Log = s.log
	return o
}

func (s *source) supervise(ctx context.Context) {
	var wait time.Duration
	s.metrics.state.Set(stateStarting) // and then what the last run came to, until one feeds
	for {
		begin := time.Now()
		progress, err := s.run(ctx)
		if ctx.Err() == nil && errors.Is(err, changelog.ErrNotLeader) {
			<-ctx.Done() // it is told in a moment
			err = nil
		}
		if ctx.Err() != nil {
			if err != nil {
				s.log.Warn("stopping the source: what is not saved is sent again by the next start", "error", err)
			}
			return
		}
		s.metrics.failures.Inc()
		if errors.Is(err, cdc.ErrGap) {
			if err = s.stand(ctx, err); err == nil || ctx.Err() != nil {
				continue // the gap is passed, or perhaps there is none any more
			}
		}
		s.learnLimit(err)
		if progress && time.Since(begin) > steadyAfter { // two readers that cut each other both get on a little
			wait = 0
		}
		wait = s.report(err, wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// report tells an error when it is new, and returns how long to wait after it.
func (s *source) report(err error, last time.Duration) time.Duration {
	first, most, state, level := retryFirst, retryMost, float64(stateWaiting), slog.LevelWarn
	if standing(err) {
		first, most, state, level = standFirst, standMost, stateStanding, slog.LevelError
		s.findings.set(aboutRun, fmt.Sprintf("source %s stands: %v", s.Name, err))
	}
	s.metrics.state.Set(state)
	wait := min(max(first, 2*last), most)
	if text := err.Error(); text != s.reported {
		s.reported = text
		s.log.Log(context.Background(), level, "the source stands still and is tried again", "error", err, "in", wait)
	}
	return wait
}

// standing reports whether a person must act before a source can go on.
func standing(err error) bool {
	var known interface{ Retryable() bool }
	if errors.As(err, &known) {
		return !known.Retryable()
	}
	var enc *envelope.EncodeError
	return errors.As(err, &enc)
}

// aboutRun is the run's own line among the findings.
const aboutRun = "the run"

// recovered ends the trouble that was told.
func (s *source) recovered() {
	s.findings.remove(aboutRun)
	if s.reported != "" {
		s.reported = ""
		s.log.Info("the source feeds again")
	}
}

// leastLimit ends the halving: a topic that refuses even this has another trouble.
const leastLimit = 1 << 10

// learnLimit halves what a topic is sent, once it has refused a record although its settings allow it: some brokers do not
// show their limit, and settings change. The next run writes larger rows slim, from the saved position, so that nothing is
// skipped and no row's records change their order.
func (s *source) learnLimit(err error) {
	var refused *refusedError
	if !errors.As(err, &refused) || refused.limit/2 < leastLimit {
		return
	}
	s.limits[refused.Topic] = refused.limit / 2
	s.log.Warn("the topic refuses records that its max.message.bytes allows: larger ones are written with their key and mapped columns alone",
		"topic", refused.Topic, "bytes", refused.Bytes, "limit", refused.limit, "new_limit", refused.limit/2)
}

// refusedError is a record too large for its topic, and the limit under which it was written.
type refusedError struct {
	*changelog.ProduceError
	limit int
}

// Retryable reports whether a lower limit is left to be tried.
func (e *refusedError) Retryable() bool { return e.limit/2 >= leastLimit }

func (e *refusedError) Unwrap() error { return e.ProduceError }
