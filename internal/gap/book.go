package gap

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"invalidator/cdc"
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
			if longer := sameKind(all, g); longer != nil {
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
		g.Seen = known.Seen
		if repeats && !known.Until.IsZero() { // it has become longer since
			g.Until = known.Until
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

// sameKind is the open gap that a loss makes longer; nil: none is.
func sameKind(all []*Case, g Gap) *Case {
	i := slices.IndexFunc(all, func(c *Case) bool {
		return c.State() == Open && !c.Stops && !g.Stops && c.Range == nil && g.Range == nil && c.Source == g.Source &&
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
	longer := c.Gap
	longer.Until, longer.Pools = to, union(c.Pools, g.Pools)
	if same(longer, c.Gap) {
		return nil
	}
	c.Gap = longer
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

// Accept writes a decision. A gap that has one already keeps it.
func (b *Book) Accept(ctx context.Context, c *Case, by string, flush bool) error {
	if c.Acceptance != nil {
		return nil
	}
	a := Acceptance{V: version, ID: c.ID, By: by, At: time.Now().UTC(), Flush: flush}
	if err := b.put(ctx, acceptedPrefix, c.ID, a); err != nil {
		return err
	}
	c.Acceptance = &a
	return b.event(ctx, "gap.accepted", c.ID, map[string]string{"by": by, "flush": fmt.Sprint(flush)})
}

// Await returns the decision about a gap, as soon as there is one and it is asked for: each every. ok is false where ctx or
// the patience ended first.
func (b *Book) Await(ctx context.Context, id string, every, patience time.Duration) (a Acceptance, ok bool, err error) {
	ask, err := b.state.Follow(key(acceptedPrefix, id))
	if err != nil {
		return a, false, err
	}
	defer ask.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	enough := time.NewTimer(patience)
	defer enough.Stop()
	for {
		value, found, err := ask.Get(ctx)
		if err != nil {
			return a, false, err
		}
		if found {
			if a, err = decode[Acceptance]("an acceptance", value); err != nil {
				return a, false, fmt.Errorf("gap %s: %w", id, err)
			}
			return a, true, nil
		}
		select {
		case <-ctx.Done():
			return a, false, nil
		case <-enough.C:
			return a, false, nil
		case <-tick.C:
		}
	}
}

// AskFlush asks on the control topic for a flush of each pool, and returns the requests' ids. They follow from the gap, from
// to, where the source goes on, and from the pool: asking again after a crash is the same request, and asking for a longer
// gap is another one, since a flush asked for before to would leave what changed between.
func (b *Book) AskFlush(ctx context.Context, g *Gap, to cdc.Position, pools []string, by string) (ids []string, err error) {
	id := g.ID
	if !to.IsZero() {
		id += "/" + strings.TrimPrefix(FeederID("", to), "/")
	}
	for _, pool := range pools {
		r := replay.Request{
			ID: id + "/" + pool, At: time.Now().UTC(), By: by, Action: replay.Flush, Target: replay.Target{Pool: pool},
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
// Done again it is harmless.
func (b *Book) Settle(ctx context.Context, c *Case, by string, flush bool) error {
	if c.State() == Closed {
		return nil
	}
	if err := b.Accept(ctx, c, by, flush); err != nil {
		return err
	}
	p := Passage{Begun: time.Now().UTC()}
	if c.Acceptance.Flush {
		var err error
		if p.Requests, err = b.AskFlush(ctx, &c.Gap, cdc.Position{}, c.Pools, c.Acceptance.By); err != nil {
			return err
		}
	}
	p.Done = time.Now().UTC()
	return b.Pass(ctx, c, p)
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
