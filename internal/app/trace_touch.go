package app

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"invalidator/internal/changelog"
	"invalidator/sink"
)

// touch adds something that happened in the window, or after it: what was owed in it may have been paid since.
func (t *tracer) touch(x TraceTouch) {
	if x.At = x.At.UTC(); !x.At.Before(t.q.Since.Add(-traceBefore)) {
		t.out.Touched = append(t.out.Touched, x)
	}
}

// ringChanges tells of ring records that came in the window and under which the key has other places.
func (t *tracer) ringChanges() {
	for i, r := range t.state.rings {
		if i == 0 {
			continue
		}
		was := t.state.rings[i-1]
		var what []string
		for n, text := range t.places.texts {
			a, b := was.copies(text), r.copies(text)
			if !slices.EqualFunc(a, b, func(x, y TraceCopy) bool { return x.Node == y.Node && x.Role == y.Role && x.Key == y.Key }) {
				whose := ""
				if n > 0 {
					whose = sink.Show(text) + ": "
				}
				what = append(what, whose+placesText(a)+" -> "+placesText(b))
			}
		}
		if len(what) > 0 {
			t.touch(TraceTouch{At: r.Seen, Kind: "ring", ID: fmt.Sprint(r.Epoch), By: r.By, What: fmt.Sprintf("ring record of epoch %d: %s", r.Epoch, strings.Join(what, "; "))})
		}
	}
}

func placesText(copies []TraceCopy) string {
	texts := make([]string, len(copies))
	for i, c := range copies {
		texts[i] = c.Role + " " + c.Node
	}
	return strings.Join(texts, ", ")
}

// pauses notes whether the pool is paused now.
func (t *tracer) pauses() {
	p, known := t.state.pauses[t.pool]
	t.out.Paused = known && p.Paused
	is := func(x TraceTouch) bool { return x.Kind == "pause" && x.At.Equal(p.At.UTC()) }
	if t.out.Paused && !slices.ContainsFunc(t.out.Touched, is) { // it was before the window
		t.out.Touched = append(t.out.Touched, TraceTouch{At: p.At.UTC(), Kind: "pause", ID: t.pool, What: "pool " + t.pool + " is paused", By: p.By, Reason: p.Reason})
	}
}

// parked looks for dead letters of what was read.
func (t *tracer) parked(ctx context.Context) error {
	d, err := changelog.OpenDeadLetters(t.kafka, t.names)
	if err != nil {
		return err
	}
	defer d.Close()
	_, err = d.List(ctx, t.q.Since.Add(-traceBefore), func(p *changelog.Parked) bool {
		part := t.part(p.From)
		if part == nil {
			return false
		}
		refused := t.places.wires[string(p.Key)] && p.Value == nil // a node's: the key alone
		own := slices.IndexFunc(t.seen, func(c *TraceChange) bool {
			return c.Topic == p.From.Topic && c.Partition == p.From.Number && c.Offset == p.Offset
		})
		decision := ""
		if p.Decision != nil {
			decision = string(p.Decision.Outcome)
		}
		switch {
		case own >= 0:
			t.seen[own].Parked = append(t.seen[own].Parked, TraceParked{ID: p.ID(), At: p.At.UTC(), Reason: p.Reason, Decision: decision, mine: refused || undecoded(p)})
		case refused:
			t.touch(TraceTouch{At: p.At, Kind: "parked", ID: p.ID(), What: "a node refuses the key: " + p.Reason})
		case part.from <= p.Offset && p.Offset < part.to && p.Decision == nil:
			t.count("of topic "+p.From.Topic+" that were parked (invalidator deadletter list)", fmt.Sprintf("%s, offset %d: %s", p.From, p.Offset, p.Reason))
		}
		return false
	})
	return err
}

// undecoded reports whether a record was parked whole, rather than for one of its keys.
func undecoded(p *changelog.Parked) bool { return strings.HasPrefix(p.Reason, "decoding a record") }

// parks reports whether the delete of the key itself is what was parked.
func (t *tracer) parks(c *TraceChange) bool {
	if slices.ContainsFunc(c.Parked, func(p TraceParked) bool { return p.mine }) {
		return true
	}
	_, err := sink.CheckMetaKey(t.state.prefix() + t.places.texts[len(t.places.texts)-1])
	return err != nil && len(c.Parked) > 0
}
