package gap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/replay"
)

// Patience is longer than accepting takes, which is three records: a gap that stops nothing and is not closed that long after it
// was accepted is finished by whoever finds it. And a flush for losses of a kind is asked for this often at most.
const Patience = time.Minute

// AskFlush asks on the control topic for a flush of each pool, and returns the requests' ids. They follow from the gap, from
// to, where the source goes on, and from the pool: asking again after a crash is the same request, and asking for a longer
// gap is another one, since a flush asked for before to would leave what changed between.
func (b *Book) AskFlush(ctx context.Context, g *Gap, to cdc.Position, pools []string, by string) (ids []string, err error) {
	id := g.ID
	if !to.IsZero() {
		id += FeederID("", to)
	}
	return b.ask(ctx, g, id, pools, by)
}

func (b *Book) ask(ctx context.Context, g *Gap, id string, pools []string, by string) (ids []string, err error) {
	for _, pool := range pools {
		r := replay.Request{
			ID: id + "/" + pool, At: time.Now().UTC(), By: by, Action: replay.Flush, Target: replay.Target{Pool: pool},
			Cause: &replay.Cause{What: replay.LostLog, Source: g.Source, Tables: g.Tables, Committed: g.Time, Gap: g.ID},
		}
		value, err := replay.Encode(r)
		if err != nil {
			return nil, err
		}
		if err := b.out.Write(ctx, b.names.Control, r.ID, value); err != nil {
			return nil, err
		}
		ids = append(ids, r.ID)
	}
	return ids, nil
}

// Pass writes what was done of a gap. Once p.Done is set it is closed, and told on the status topic.
func (b *Book) Pass(ctx context.Context, c *Case, p Passage) error {
	p.V, p.ID = version, c.ID
	if err := b.put(ctx, passedPrefix, c.ID, p); err != nil {
		return err
	}
	c.Passage = &p
	if p.Done.IsZero() {
		return nil
	}
	detail := map[string]string{"requests": strings.Join(p.Requests, " "), "reissued": fmt.Sprint(p.Reissued), "note": p.Note}
	maps.DeleteFunc(detail, func(_, v string) bool { return v == "" || v == "0" })
	return b.event(ctx, "gap.closed", c.ID, detail)
}

// Settle does what accepting a gap that stops nothing needs: the decision, the requests where flush is set, and its end.
// Done again it is harmless. What is lost while it runs makes the gap longer than what is passed, so that it is accepted and not
// closed, and is settled again.
func (b *Book) Settle(ctx context.Context, c *Case, by string, flush bool) error {
	if c.State() == Closed {
		return nil
	}
	if err := b.Accept(ctx, c, by, flush); err != nil {
		return err
	}
	p := Passage{Begun: time.Now().UTC(), Times: c.Times}
	if c.Acceptance.Flush {
		id := c.ID
		if c.Times > 1 { // a flush that was asked for earlier leaves what was lost since
			id += FeederID("", c.Until, strconv.FormatInt(c.Times, 10))
		}
		var err error
		if p.Requests, err = b.ask(ctx, &c.Gap, id, c.Pools, c.Acceptance.By); err != nil {
			return err
		}
	}
	p.Done = time.Now().UTC()
	return b.Pass(ctx, c, p)
}

// Flush writes down a loss that stops nothing where nobody has to decide: it is accepted, and a flush of its pools asked for. All
// losses of its tables for its reason that this process meets are one gap, for which a flush is asked each Patience at most: between
// two it is accepted and not closed, and whoever finds that it is Late settles it. So a session that logs statements all
// day leaves one record and a request a minute. Another process has a record of its own: of two writers of one, a paused
// one could take back what the other has written.
func (b *Book) Flush(ctx context.Context, g Gap) (*Case, error) {
	g.Writer = b.self
	c, err := b.recordIn(ctx, g, true, func(c *Case) bool { return c.Writer == b.self })
	if err != nil || c.State() == Closed {
		return c, err
	}
	if err := b.Accept(ctx, c, OnGap, true); err != nil {
		return nil, err
	}
	if c.Passage != nil && time.Since(c.Passage.Begun) < Patience {
		return c, nil
	}
	return c, b.Settle(ctx, c, OnGap, true)
}

// Late reports whether a gap that stops nothing was accepted and is still to be settled by whoever finds it: who accepted it has died
// before it asked for the flush, or rows were lost again since one was asked for.
func (c *Case) Late(now time.Time) bool {
	if c.Stops || c.State() != Accepted {
		return false
	}
	last := c.Acceptance.At
	if c.Passage != nil && c.Passage.Begun.After(last) {
		last = c.Passage.Begun
	}
	return now.Sub(last) > Patience
}

// SettleLate settles the gaps that are Late, and returns them. Several processes may do so at once: their requests have the same ids,
// and the first one of an id counts.
func (b *Book) SettleLate(ctx context.Context) (done []*Case, err error) {
	all, err := b.Load(ctx)
	if bad := (*changelog.RecordError)(nil); err != nil && !errors.As(err, &bad) {
		return nil, err
	}
	var errs []error
	for _, c := range all { // what cannot be read is told by whoever lists gaps
		if !c.Late(time.Now()) {
			continue
		}
		if err := b.Settle(ctx, c, c.Acceptance.By, c.Acceptance.Flush); err != nil {
			errs = append(errs, fmt.Errorf("gap %s: %w", c.ID, err))
			continue
		}
		done = append(done, c)
	}
	return done, errors.Join(errs...)
}

// Forget removes the gaps that have been closed for longer than Keep.
func (b *Book) Forget(ctx context.Context) error {
	all, err := b.Load(ctx)
	if err != nil {
		return err
	}
	if old := outdated(all, time.Now()); len(old) > 0 {
		return b.state.Remove(ctx, old...)
	}
	return nil
}
