package feed

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/gap"
)

// Lost writes down a loss, and tells the workers that every row of its tables may have changed: a truncate of each. It
// returns when the gap is durable. The truncates are numbered before the position that follows, so that it is not saved
// before they are acknowledged.
func (r *run) Lost(ctx context.Context, l cdc.Loss) error {
	tables, err := r.expand(ctx, l.Tables)
	if err != nil {
		return fmt.Errorf("asking which tables a loss is about (%s): %w", l.Why, err)
	}
	names := gap.TableNames(l.Tables)
	g := gap.Gap{
		ID: gap.FeederID(r.Name, l.At, append([]string{l.Tx}, names...)...), Source: r.Name, From: l.At, Tx: l.Tx, Time: l.Time.UTC(),
		Tables: names, Pools: r.pools(names), Why: l.Why, Hint: l.Hint,
	}
	if l.Time.IsZero() {
		g.Time = l.Time
	}
	if err := r.writeDown(ctx, g, "changes are lost, and the source goes on: every row of these tables counts as changed"); err != nil {
		return err
	}
	r.metrics.losses.Inc()
	for _, t := range tables {
		err := r.write(ctx, &cdc.RowChange{
			Source: r.Name, Connector: r.connector, TableID: t, Op: cdc.Truncate, CommitTime: l.Time, Position: l.At, Tx: l.Tx,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Joined writes down from where tables are fed. Where mappings name them, what was committed in them before is a gap of those
// mappings' pools: copies that were filled before may be stale for as long as they live.
func (r *run) Joined(ctx context.Context, tables []cdc.TableID, p cdc.Position) error {
	names := gap.TableNames(tables)
	fed := make([]changelog.Fed, len(names))
	for i, t := range names {
		fed[i] = changelog.Fed{Source: r.Name, Table: t, From: p, At: time.Now().UTC()}
	}
	if err := r.opts.State.PutFed(ctx, fed...); err != nil {
		return fmt.Errorf("writing from where tables of source %s are fed: %w", r.Name, err)
	}
	pools := r.pools(names)
	if len(pools) == 0 {
		r.log.Info("tables are fed from now on", "tables", names)
		return nil
	}
	g := gap.Gap{
		ID: gap.FeederID(r.Name, p, append([]string{"joined"}, names...)...), Source: r.Name, Until: p, Tables: names, Pools: pools,
		Why:  "the tables were not fed before: what was committed in them until now was not seen",
		Hint: "flush their pools, or wait until what was filled before has expired",
	}
	return r.writeDown(ctx, g, "tables are fed from now on, and were not before")
}

// writeDown makes a gap that stops nothing durable, with what on_gap asks for, and shows it.
func (r *run) writeDown(ctx context.Context, g gap.Gap, what string) error {
	// A loss that was closed and is met again lies between the saved position and where the last run came to: a flush that
	// was asked for when it was first met came after it.
	var c *gap.Case
	var err error
	if r.OnGapFlush {
		c, err = r.opts.Gaps.Flush(ctx, g)
	} else {
		c, err = r.opts.Gaps.Record(ctx, g, true)
	}
	if err != nil {
		return fmt.Errorf("writing down a gap (%s): %w", g.Why, err)
	}
	switch c.State() {
	case gap.Open:
		r.gaps.set(c.ID, r.stands(&c.Gap))
		r.metrics.gaps.Set(float64(r.gaps.len()))
	case gap.Accepted:
		r.unsettled.Store(true)
	}
	level := slog.LevelError
	if c.Times&(c.Times-1) != 0 { // each loss of a day would hide all else: it is told at 1, 2, 4, 8, …
		level = slog.LevelDebug
	}
	r.log.Log(ctx, level, what, "gap", c.ID, "why", c.Why, "hint", c.Hint, "tables", c.Tables, "pools", c.Pools, "times", max(c.Times, 1), "state", string(c.State()),
		"command", "invalidator gap accept "+c.ID)
	return nil
}

// expand lists the tables of those that are named by their schema alone.
func (r *run) expand(ctx context.Context, tables []cdc.TableID) (all []cdc.TableID, err error) {
	for _, t := range tables {
		if t.Table != "" {
			all = append(all, t)
			continue
		}
		if r.Tables == nil {
			continue
		}
		more, err := r.Tables(ctx, t.Schema)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}
