package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/gap"
)

const (
	// acceptEvery is how often a source that stands asks whether its gap was accepted.
	acceptEvery = 2 * time.Second
	// watchGapsEvery is how often it is asked whether gaps that stop nothing were answered.
	watchGapsEvery = 30 * time.Second
)

// stand writes down a gap that no run can go over, waits until it is accepted, and passes it. It returns nil when the source
// should run again: behind the gap, or, after standMost without a decision, from where it stands, since the log may be there
// again: the source was pointed at another server, or its own came back. Nothing else ever moves a source over a gap.
func (s *source) stand(ctx context.Context, cause error) error {
	s.metrics.state.Set(stateStanding)
	var lost *cdc.GapError
	errors.As(cause, &lost)
	c, err := s.opts.Gaps.Record(ctx, s.describe(cause, lost), false)
	if err != nil {
		return fmt.Errorf("writing down a gap (%w): %w", cause, err)
	}
	s.gaps.set(c.ID, s.stands(&c.Gap))
	s.metrics.gaps.Set(float64(s.gaps.len()))
	if text := cause.Error(); text != s.reported && !s.OnGapFlush {
		s.reported = text
		s.log.Error("changes are lost: the source stands until somebody accepts that", "gap", c.ID, "command", "invalidator gap accept "+c.ID,
			"error", cause, "tables", tablesText(c.Tables), "pools", c.Pools)
	}
	switch {
	case s.OnGapFlush:
		if err := s.opts.Gaps.Accept(ctx, c, gap.OnGap, true); err != nil {
			return err
		}
	default:
		a, ok, err := s.opts.Gaps.Await(ctx, c.ID, acceptEvery, standMost)
		if err != nil || !ok {
			return err
		}
		c.Acceptance = &a
	}
	return s.pass(ctx, c, lost)
}

// describe is the gap of an error. It begins where the last run came to, which is what the next would start from.
func (s *source) describe(cause error, lost *cdc.GapError) gap.Gap {
	g := gap.Gap{
		ID: gap.FeederID(s.Name, s.at.Position), Source: s.Name, Stops: true, From: s.at.Position, Why: cause.Error(),
	}
	var se *cdc.SourceError
	if errors.As(cause, &se) {
		g.Why, g.Hint = se.Err.Error(), se.Hint
	}
	if lost != nil {
		g.Why, g.Tables, g.Undone = lost.Err.Error(), gap.TableNames(lost.Tables), lost.UndoneText
	}
	g.Pools = s.pools(g.Tables)
	return g
}

func (s *source) pools(tables []string) []string {
	if s.Pools == nil {
		return nil
	}
	return s.Pools(tables)
}

func (s *source) stands(g *gap.Gap) string {
	return fmt.Sprintf("source %s: gap %s: %s (invalidator gap accept %s)", s.Name, g.ID, g.Why, g.ID)
}

func tablesText(tables []string) any {
	if len(tables) == 0 {
		return "all of the source"
	}
	return tables
}

// pass goes over an accepted gap. The steps are in this order so that a crash between any two loses nothing:
//
//   - before Restart, nothing has changed: the next leader meets the gap, finds it accepted, and begins here;
//   - after Restart, the saved position is still the gap's beginning, and the source now refuses it all the more. The next
//     leader meets the same gap, and Restart gives it a later position: what was committed between belongs to the gap;
//   - a flush that was asked for then does not cover what changed between its to and the later one. So a request's id has to
//     in it, and the later passage asks anew;
//   - undone records that were written again are written once more, which deletes their keys once more;
//   - the position is saved last of what matters, and under our generation: once it is there, the flushes are asked for and the
//     records are acknowledged. A later leader starts behind the gap;
//   - before the passage is marked as done, a leader finds the saved position to be the passage's, and marks it (findStops).
//
// A leader that was stopped in here and wakes when another has passed the gap fails at Confirm, or saves under the lower
// generation. Stopped just between Confirm and Restart it may take a slot from under its successor, which then meets another
// gap and says so: nothing is lost unseen.
func (s *source) pass(ctx context.Context, c *gap.Case, lost *cdc.GapError) error {
	if err := s.term.Confirm(ctx); err != nil {
		return err
	}
	to, err := s.Feeder.Restart(ctx)
	if err != nil {
		return fmt.Errorf("going on behind gap %s: %w", c.ID, err)
	}
	if to.IsZero() {
		return fmt.Errorf("going on behind gap %s: the source does not say where it stands now", c.ID)
	}
	p := gap.Passage{To: to, Begun: time.Now().UTC()}
	if err := s.opts.Gaps.Pass(ctx, c, p); err != nil {
		return err
	}
	if c.Acceptance.Flush {
		pools := slices.Concat(c.Pools, s.pools(c.Tables)) // by the mappings as they were, and as they are
		slices.Sort(pools)
		if p.Requests, err = s.opts.Gaps.AskFlush(ctx, &c.Gap, to, slices.Compact(pools), c.Acceptance.By); err != nil {
			return err
		}
	}
	if lost != nil && lost.Undone != nil {
		if p.Reissued, err = s.reissue(ctx, c.ID, 0, lost.Undone); err != nil {
			return fmt.Errorf("writing again what the server no longer has (%s): %w", lost.UndoneText, err)
		}
	}
	if err := s.opts.State.PutPosition(ctx, s.Name, s.generation, to); err != nil {
		return fmt.Errorf("saving the position of source %s behind gap %s: %w", s.Name, c.ID, err)
	}
	p.Done = time.Now().UTC()
	if err := s.opts.Gaps.Pass(ctx, c, p); err != nil {
		return err
	}
	s.closed(c)
	s.reported = ""
	s.log.Warn("a gap is passed: the source goes on behind it", "gap", c.ID, "why", c.Why, "accepted_by", c.Acceptance.By,
		"flush", c.Acceptance.Flush, "requests", p.Requests, "reissued", p.Reissued)
	return nil
}

func (s *source) closed(c *gap.Case) {
	s.gaps.remove(c.ID)
	s.metrics.gaps.Set(float64(s.gaps.len()))
}

// findStops looks for gaps that stopped this source and are not closed. One that a leader passed, and died before it could
// say so, is closed: the saved position is where the source was to go on.
func (s *source) findStops(ctx context.Context, state *changelog.State) {
	s.stops = nil
	all, err := gap.List(state)
	if err != nil {
		s.log.Error("reading the gaps that stand: what cannot be read is not closed by itself", "error", err)
	}
	for _, c := range all {
		if c.Source != s.Name || !c.Stops || c.State() == gap.Closed {
			continue
		}
		if p := c.Passage; p != nil && p.To == s.at.Position {
			p.Done = time.Now().UTC()
			if err := s.opts.Gaps.Pass(ctx, c, *p); err != nil {
				s.log.Warn("closing a gap that was passed", "gap", c.ID, "error", err)
			}
			s.closed(c)
			continue
		}
		s.stops = append(s.stops, c)
	}
}

// healed closes gaps that stopped the source and do not any more, since it has gone on from where they began.
func (s *source) healed(ctx context.Context) {
	for len(s.stops) > 0 {
		c := s.stops[0]
		now := time.Now().UTC()
		p := gap.Passage{Note: "the source went on from there after all: nothing was lost", Begun: now, Done: now}
		if err := s.opts.Gaps.Pass(ctx, c, p); err != nil {
			s.log.Warn("closing a gap that is none any more", "gap", c.ID, "error", err)
			return // it is tried again
		}
		s.stops = s.stops[1:]
		s.closed(c)
		s.log.Info("a gap is none any more: the source went on from where it began", "gap", c.ID)
	}
}

// watchGaps shows gaps of the source that stop nothing until they are answered, which may happen anywhere.
func (s *source) watchGaps(ctx context.Context) {
	tick := time.NewTicker(watchGapsEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		if first || s.gaps.len() > 0 || s.unsettled.Load() {
			s.lookAtGaps(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *source) lookAtGaps(ctx context.Context) {
	all, err := s.opts.Gaps.Load(ctx)
	if err != nil && len(all) == 0 {
		return // who writes one tells
	}
	open, unsettled := map[string]bool{}, false
	for _, c := range all {
		if c.Source != s.Name || c.State() == gap.Closed || c.Range != nil { // a worker's is the worker's
			continue
		}
		if c.Late(time.Now()) && s.opts.Gaps.Settle(ctx, c, c.Acceptance.By, c.Acceptance.Flush) == nil {
			continue
		}
		open[c.ID] = true
		switch {
		case c.Stops:
		case c.State() == gap.Accepted:
			unsettled = true
		default:
			s.gaps.set(c.ID, s.stands(&c.Gap))
		}
	}
	s.unsettled.Store(unsettled)
	s.gaps.keep(func(id string) bool {
		c := gap.Find(all, id)
		return c == nil || c.Stops || open[id] // what came since, and what stops the source, is not judged here
	})
	s.metrics.gaps.Set(float64(s.gaps.len()))
}
