package gap

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"invalidator/internal/changelog"
	"invalidator/replay"
)

// Book writes gaps. Every call may be repeated; what it returned nil for is on every in-sync replica. It waits for a broker
// that is away until its context ends. It is safe for concurrent use.
type Book struct {
	state *changelog.StateStore
	out   *changelog.Writer
	names changelog.Names
	self  string // who writes, on the status topic
}

// OpenBook makes a book over the service's own topics, which must exist. self names this process to people.
func OpenBook(o changelog.Options, names changelog.Names, self string) (*Book, error) {
	state, err := changelog.OpenState(o, names.State)
	if err != nil {
		return nil, err
	}
	out, err := changelog.OpenWriter(o)
	if err != nil {
		state.Close()
		return nil, err
	}
	return &Book{state, out, names, self}, nil
}

// Close lets go of the connections.
func (b *Book) Close() {
	b.state.Close()
	b.out.Close()
}

// Load returns all gaps, by when they were first seen. Where the error is of records alone, those that can be read are there (see
// List).
func (b *Book) Load(ctx context.Context) ([]*Case, error) {
	st, err := b.state.Load(ctx)
	if err != nil {
		return nil, err
	}
	return List(st)
}

// Record writes down a gap and tells of it on the status topic, and returns it as it stands now. g.ID is what FeederID or
// WorkerID gave. A gap of that id that is not closed is the same one: it keeps when it was first seen, what was decided, and
// is written only where something of it has changed. repeats says what a closed one of that id means: true, that the same
// loss was met again on the way to a later position, and nothing is new; false, that this is another gap.
//
// A loss that stops nothing belongs to an open gap of the same source, tables and reason: that one is made longer, so that
// a session that logs statements for a day is one gap. Whoever accepts it does so after the loss, and so is the flush.
func (b *Book) Record(ctx context.Context, g Gap, repeats bool) (*Case, error) {
	return b.recordIn(ctx, g, repeats, isOpen)
}

// recordIn is Record, with what says to which gaps of its kind a loss may belong.
func (b *Book) recordIn(ctx context.Context, g Gap, repeats bool, joins func(*Case) bool) (*Case, error) {
	st, err := b.state.Load(ctx)
	if err != nil {
		return nil, err
	}
	all, bad := list(st)
	g.V, g.Pools = version, union(nil, g.Pools)
	if g.Seen.IsZero() {
		g.Seen = time.Now().UTC()
	}
	id := g.ID
	for n := 1; ; n++ {
		g.ID = numbered(id, n)
		if err := bad[g.ID]; err != nil { // whether it is closed is not known
			return nil, err
		}
		known := Find(all, g.ID)
		switch {
		case known == nil:
			if longer := sameKind(all, g, joins); longer != nil {
				return longer, b.lengthen(ctx, longer, g)
			}
			return &Case{Gap: g}, b.record(ctx, g)
		case known.From != g.From || known.Tx != g.Tx || repeats && !slices.Equal(known.Tables, g.Tables):
			continue // an id is a short hash, and another loss has it
		case known.State() == Closed && repeats:
			return known, nil
		case known.State() == Closed:
			continue
		}
		g.Seen, g.Writer = known.Seen, known.Writer
		if repeats && !known.Until.IsZero() { // it has become longer since
			g.Until, g.Last, g.Times = known.Until, known.Last, known.Times
		}
		// What must be flushed is never less than what somebody may have accepted.
		g.Pools = union(known.Pools, g.Pools)
		if same(g, known.Gap) {
			return known, nil
		}
		known.Gap = g
		return known, b.record(ctx, g)
	}
}

func isOpen(c *Case) bool { return c.State() == Open }

// sameKind is the gap that a loss makes longer; nil: none is.
func sameKind(all []*Case, g Gap, joins func(*Case) bool) *Case {
	i := slices.IndexFunc(all, func(c *Case) bool {
		return joins(c) && !c.Stops && !g.Stops && c.Range == nil && g.Range == nil && c.Source == g.Source &&
			c.From.IsZero() == g.From.IsZero() && slices.Equal(c.Tables, g.Tables) && c.Why == g.Why
	})
	if i < 0 {
		return nil
	}
	return all[i]
}

// lengthen makes a gap reach to where a loss is. It was told on the status topic when it began.
func (b *Book) lengthen(ctx context.Context, c *Case, g Gap) error {
	to := g.Until
	if to.IsZero() {
		to = g.From
	}
	c.Until, c.Pools, c.Last, c.Times = to, union(c.Pools, g.Pools), time.Now().UTC(), max(c.Times, 1)+1
	return b.put(ctx, prefix, c.ID, c.Gap)
}

func union(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

func same(a, b Gap) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

func (b *Book) record(ctx context.Context, g Gap) error {
	if err := b.put(ctx, prefix, g.ID, g); err != nil {
		return err
	}
	told := replay.Gap{
		ID: g.ID, At: time.Now().UTC(), Source: g.Source, Why: g.Why, Range: g.Range, From: g.From, To: g.Until,
		Tables: g.Tables, Pools: g.Pools,
	}
	value, err := replay.Encode(told)
	if err != nil { // a gap at the log's beginning has no place in that record
		return b.event(ctx, "gap.open", g.ID, map[string]string{"why": g.Why})
	}
	return b.out.Write(ctx, b.names.Status, g.ID, value)
}

func (b *Book) put(ctx context.Context, prefix, id string, v any) error {
	value, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding the gap %s: %w", id, err)
	}
	return b.state.Put(ctx, key(prefix, id), value)
}

func (b *Book) event(ctx context.Context, what, about string, detail map[string]string) error {
	value, err := replay.Encode(replay.Event{At: time.Now().UTC(), Worker: b.self, What: what, About: about, Detail: detail})
	if err != nil {
		return err
	}
	return b.out.Write(ctx, b.names.Status, about, value)
}
