package demo

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"invalidator/cdc"
)

// generator stands in for a database: tables in memory, and a log of their committed changes, which it feeds as the real
// feeders feed theirs. The rows go through the real feed, envelopes and change topics.
type generator struct {
	kind      string // mysql, mariadb or postgres: whose changes these look like
	connector cdc.Connector
	id        string
	columns   map[*table]*cdc.Columns

	mu struct {
		sync.Mutex
		tables map[*table][]row // in the order of ids
		log    []transaction    // all of it: a demo's few thousand rows
		grown  chan struct{}    // closed and replaced with each transaction
	}
}

type transaction struct {
	at      time.Time
	changes []change
}

var (
	_ database   = (*generator)(nil)
	_ cdc.Feeder = (*generator)(nil)
)

func newGenerator(kind string, connector cdc.Connector, id string) *generator {
	g := &generator{kind: kind, connector: connector, id: id, columns: map[*table]*cdc.Columns{}}
	for _, t := range tables {
		list := make([]cdc.Column, len(t.columns))
		for i, c := range t.columns {
			list[i] = cdc.Column{Name: c.name, Type: c.mysql, Key: i == 0}
			if connector == cdc.Postgres {
				list[i].Type = c.postgres
			}
		}
		g.columns[t] = cdc.NewColumns(list)
	}
	g.mu.tables = map[*table][]row{}
	g.mu.grown = make(chan struct{})
	return g
}

func (g *generator) name() string       { return g.kind }
func (g *generator) about() string      { return "" }
func (g *generator) sourceName() string { return "demo-" + g.id + "-" + g.kind }

func (g *generator) source() string {
	if g.connector == cdc.Postgres {
		return fmt.Sprintf("{name: %s, type: postgres, hosts: [generator:1], database: demo_%s, user: demo, include: [public.*]}", g.sourceName(), g.id)
	}
	return fmt.Sprintf("{name: %s, type: mysql, hosts: [generator:1], user: demo, include: [demo_%s.*]}", g.sourceName(), g.id)
}

func (g *generator) exec(_ context.Context, writes ...write) (sent time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	sent = time.Now()
	t := transaction{at: sent.UTC().Truncate(time.Microsecond)}
	for _, w := range writes {
		rows := g.mu.tables[w.table]
		changes := w.changes(rows)
		for _, c := range changes {
			if c.before != nil {
				rows = slices.DeleteFunc(rows, func(r row) bool { return r[0] == c.before[0] })
			}
			if c.after != nil {
				rows = append(rows, c.after)
			}
		}
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.id(), b.id()) })
		g.mu.tables[w.table] = rows
		t.changes = append(t.changes, changes...)
	}
	g.mu.log = append(g.mu.log, t)
	close(g.mu.grown)
	g.mu.grown = make(chan struct{})
	return sent, nil
}

func (g *generator) rows(_ context.Context, t *table, from, to uint64) ([]row, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []row
	for _, r := range g.mu.tables[t] {
		if id := r.id(); id >= from && id <= to {
			out = append(out, slices.Clone(r))
		}
	}
	return out, nil
}

func (g *generator) remove(context.Context) error { return nil }

// Check implements cdc.Feeder.
func (g *generator) Check(context.Context) ([]cdc.Finding, error) { return nil, nil }

// Confirm implements cdc.Feeder.
func (g *generator) Confirm(cdc.Position) {}

// Restart implements cdc.Feeder. The log is in memory and never has a gap.
func (g *generator) Restart(context.Context) (cdc.Position, error) {
	end, _ := g.end()
	return g.position(end), nil
}

// Run implements cdc.Feeder. A position is the number of transactions before it.
func (g *generator) Run(ctx context.Context, from cdc.Position, out cdc.Handler) error {
	next := int(from.Pos)
	if from.IsZero() {
		next, _ = g.end()
	}
	if err := out.Started(ctx, g.position(next)); err != nil {
		return err
	}
	for ctx.Err() == nil {
		end, grown := g.end()
		if next == end {
			select {
			case <-grown:
			case <-ctx.Done():
			}
			continue
		}
		if err := g.feed(ctx, next, out); err != nil {
			return err
		}
		next++
	}
	return nil
}

func (g *generator) end() (int, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.mu.log), g.mu.grown
}

func (g *generator) position(n int) cdc.Position {
	return cdc.Position{File: "generator", Pos: uint64(n)}
}

func (g *generator) feed(ctx context.Context, n int, out cdc.Handler) error {
	g.mu.Lock()
	t := g.mu.log[n]
	g.mu.Unlock()
	for i, c := range t.changes {
		if err := out.Change(ctx, g.rowChange(c, n, i, t.at)); err != nil {
			return err
		}
	}
	return out.Committed(ctx, g.position(n+1), t.at)
}

// rowChange is what a real feeder makes of the change: whole images of both states.
func (g *generator) rowChange(c change, n, ordinal int, at time.Time) *cdc.RowChange {
	out := &cdc.RowChange{
		Source: g.sourceName(), Connector: g.connector,
		TableID: cdc.TableID{Schema: "demo_" + g.id, Table: c.table.name},
		Op:      cdc.Update, Columns: g.columns[c.table], KeyColumns: []string{c.table.columns[0].name},
		Before: values(c.table, c.before), After: values(c.table, c.after),
		CommitTime: at, Position: g.position(n), Tx: fmt.Sprint(n), Ordinal: int64(ordinal),
	}
	if g.connector == cdc.Postgres {
		out.TableID = cdc.TableID{Database: "demo_" + g.id, Schema: "public", Table: c.table.name}
	}
	switch {
	case c.before == nil:
		out.Op = cdc.Insert
	case c.after == nil:
		out.Op = cdc.Delete
	}
	return out
}

func values(t *table, r row) cdc.Row {
	if r == nil {
		return nil
	}
	out := make(cdc.Row, len(r))
	for i, text := range r {
		out[i] = cdc.Value{Kind: t.columns[i].kind, S: text}
	}
	return out
}

// generatorFor gives a source its generator in place of the feeder of its type.
func generatorFor(databases []database, name string, _ *slog.Logger) (cdc.Feeder, error) {
	for _, d := range databases {
		if g, ok := d.(*generator); ok && g.sourceName() == name {
			return g, nil
		}
	}
	return nil, fmt.Errorf("no generator stands in for source %q", name)
}
