package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/replay"
)

const (
	// A worker takes of an issued window what its journal has from so long before to so long after it: clocks differ, and old lines are a minute
	// wide (docs/REPLAY.md, 4).
	traceIssuedBefore = 17 * time.Second
	traceIssuedAfter  = 75 * time.Second
)

// hear reads what else happened: the control and status topics, the dead letters, and the ring records that came in the window. What cannot be read is told.
func (t *tracer) hear(ctx context.Context) {
	h := &hearing{t: t, asks: map[string]*asked{}, nodes: map[string]*TraceLate{}}
	for _, of := range []struct {
		topic string
		since time.Time
		take  func(value []byte) error
	}{
		{t.names.Control, time.Time{}, h.control}, // what was asked for before the window may have been done in it
		{t.names.Status, t.q.Since.Add(-traceBefore), h.status},
	} {
		var unread int64
		err := changelog.ReadTopic(ctx, t.kafka, of.topic, of.since, false, func(r changelog.TopicRecord) error {
			if of.take(r.Value) != nil {
				unread++
			}
			return nil
		})
		if err != nil {
			t.unknown("what else happened: %v", err)
		}
		if unread > 0 {
			t.unknown("what %s of topic %s say: a newer version of the service wrote them, or something else did", many(unread, "record", "records"), of.topic)
		}
	}
	h.tell()
	t.ringChanges()
	t.pauses()
	if err := t.parked(ctx); err != nil {
		t.unknown("what was parked: %v", err)
	}
}

// hearing is what was heard. It is for one goroutine.
type hearing struct {
	t     *tracer
	asks  map[string]*asked     // by id: requests that concern the key, and jobs that answer them
	order []string              // of asks
	nodes map[string]*TraceLate // those that owe, as was said last
}

// asked is a replay or a flush.
type asked struct {
	request replay.Request // of a change of the ring, which nobody asks for, and of a job: its ID alone
	plan    *replay.Plan
	result  *replay.Result
	ended   bool // it was cancelled

	first, last time.Time // of its progress
	keys        int64
	of          map[string]replay.Progress // the last of each partition, or part and node
}

func (h *hearing) ask(id string) *asked {
	a := h.asks[id]
	if a == nil {
		a = &asked{request: replay.Request{ID: id}, of: map[string]replay.Progress{}}
		h.asks[id] = a
		h.order = append(h.order, id)
	}
	return a
}

// control takes a record of the control topic.
func (h *hearing) control(value []byte) error {
	r, err := replay.DecodeControl(value)
	if err != nil {
		return err
	}
	t := h.t
	switch r := r.(type) {
	case replay.Request:
		switch {
		case r.Action == replay.Replay || r.Action == replay.Flush:
			if _, met := h.asks[r.ID]; !met && t.meant(r.Target) { // the first of an id counts
				h.ask(r.ID).request = r
			}
		case r.Of != "" && h.asks[r.Of] != nil:
			a := h.asks[r.Of]
			a.ended = a.ended || r.Action == replay.Cancel
			t.touch(TraceTouch{At: r.At, Kind: string(a.request.Action), ID: r.Of, What: said(r.Action), By: r.By, Reason: r.Reason})
		}
	case replay.Plan:
		if a := h.asks[r.ID]; a != nil && a.plan == nil && !a.ended {
			a.plan = &r
			if r.Refused == "" && !r.DryRun {
				t.plans = append(t.plans, r)
			}
		}
	case replay.Job:
		if slices.ContainsFunc(r.Answers, func(id string) bool { return h.asks[id] != nil }) && h.asks[r.ID] == nil {
			h.ask(r.ID).request.Target = r.Scope
		}
	}
	return nil
}

// said is an action in the past.
func said(a replay.Action) string {
	switch a {
	case replay.Cancel:
		return "it was cancelled"
	case replay.Pause:
		return "it was paused"
	case replay.Resume:
		return "it was resumed"
	}
	return string(a)
}

// meant reports whether a target takes in the key, under any ring record that is known.
func (t *tracer) meant(target replay.Target) bool {
	switch {
	case target.Pool != "" && target.Pool != t.pool:
		return false
	case target.Shard != "":
		return slices.ContainsFunc(t.state.rings, func(r traceRing) bool {
			return slices.ContainsFunc(t.places.texts, func(text string) bool { _, shard := r.topology.Locate(text); return shard == target.Shard })
		})
	case target.Pool != "":
		return true
	case target.Node != "":
		return t.places.nodes[target.Node]
	case target.Range != nil && len(t.state.rings) > 0:
		newest := t.state.rings[len(t.state.rings)-1]
		return slices.ContainsFunc(t.places.texts, func(text string) bool { hash, _ := newest.topology.Locate(text); return target.Range.Has(hash) })
	case target.Mapping != "":
		return t.ofPool(target.Mapping)
	case target.Gained != 0:
		return slices.ContainsFunc(t.out.Copies, func(c TraceCopy) bool { return c.Epochs[len(c.Epochs)-1] == target.Gained })
	}
	return false
}

// status takes a record of the status topic.
func (h *hearing) status(value []byte) error {
	r, err := replay.DecodeStatus(value)
	if err != nil {
		return err
	}
	switch r := r.(type) {
	case replay.Progress:
		h.progress(r)
	case replay.Result:
		if a := h.asks[r.ID]; a != nil && a.result == nil {
			a.result = &r
		}
	case replay.Event:
		h.event(r)
	case replay.Owed:
		h.owed(r)
	case replay.Gap:
		if slices.Contains(r.Pools, h.t.pool) {
			h.t.touch(TraceTouch{At: r.At, Kind: "gap", ID: r.ID, What: "changes of source " + r.Source + " were lost: " + r.Why})
		}
	}
	return nil
}

func (h *hearing) progress(r replay.Progress) {
	a := h.asks[r.ID]
	if a == nil {
		if !strings.HasPrefix(r.ID, "epoch/") || !h.t.holds(r.Range) {
			return
		}
		a = h.ask(r.ID)
	}
	what := fmt.Sprint(r.Range.Topic, "/", r.Range.Partition)
	if r.Part != nil {
		if !h.t.places.nodes[r.Node] {
			return
		}
		what = fmt.Sprintf("part %s on %s, round %d", r.Part, r.Node, r.Round)
	}
	if a.first.IsZero() || r.At.Before(a.first) {
		a.first = r.At
	}
	if r.At.After(a.last) {
		a.last = r.At
	}
	a.of[what] = r
}

// holds reports whether a change of the key lies in a range.
func (t *tracer) holds(r replay.Range) bool {
	return slices.ContainsFunc(t.seen, func(c *TraceChange) bool {
		return c.Topic == r.Topic && c.Partition == r.Partition && r.From <= c.Offset && c.Offset < r.To
	})
}

func (h *hearing) event(e replay.Event) {
	t := h.t
	kind, _, _ := strings.Cut(e.What, ".")
	switch {
	case kind == "pool" && e.About == t.pool, kind == "storm" && e.About == t.pool:
		if kind == "pool" {
			kind = "pause"
		}
	case kind == "mapping" && t.ofPool(e.About):
	default:
		return
	}
	t.touch(TraceTouch{At: e.At, Kind: kind, ID: e.About, What: eventText(e), By: e.Detail["by"], Reason: e.Detail["reason"]})
}

func eventText(e replay.Event) string {
	what := map[string]string{
		"pool.pause": "pool %s is paused", "pool.resume": "pool %s is resumed", pipeline.EventPaused: "changes of the paused pool %s are owed by a worker from now on",
		pipeline.EventResumed: "a worker has paid what the paused pool %s owed", pipeline.EventStorm: "a storm of pool %s: too many changes to delete them as they come",
		pipeline.EventStormOver: "the storm of pool %s is paid by a worker", pipeline.EventStopped: "mapping %s does not fit its table any more: what it cannot render is owed",
		pipeline.EventMended: "mapping %s is mended, and has paid",
	}[e.What]
	if what == "" {
		return e.What + " " + e.About
	}
	return fmt.Sprintf(what, e.About)
}

// owed takes in what was said of a node that has a copy, and tells where that changes.
func (h *hearing) owed(r replay.Owed) {
	t := h.t
	if r.Group != t.config.Kafka.Group || !t.places.nodes[r.Node] {
		return
	}
	touch := func(at time.Time, format string, args ...any) {
		t.touch(TraceTouch{At: at, Kind: "node", ID: r.Node, What: "node " + r.Node + " " + fmt.Sprintf(format, args...)})
	}
	d := h.nodes[r.Node]
	switch {
	case r.Paid && d != nil:
		d.Paid = r.At
		if d.Back.IsZero() {
			d.Back = r.At
		}
		t.downs = append(t.downs, *d)
		delete(h.nodes, r.Node)
		touch(r.At, "has paid what it owed")
	case r.Paid:
	case d == nil:
		d = &TraceLate{Node: r.Node, Since: r.Since}
		if h.nodes[r.Node] = d; !r.Off {
			d.Back = r.At
			touch(r.Since, "owes deletes")
			return
		}
		touch(r.Since, "is off the live path: what is issued is owed")
	case r.Off && !d.Back.IsZero():
		d.Back = time.Time{}
		touch(r.At, "is off the live path again")
	case !r.Off && d.Back.IsZero():
		d.Back = r.At
		touch(r.At, "answers again, and owes deletes of %s", many(r.Records, "record", "records"))
	}
}

// tell makes touches of what was asked for.
func (h *hearing) tell() {
	t := h.t
	for _, node := range slices.Sorted(maps.Keys(h.nodes)) {
		t.downs = append(t.downs, *h.nodes[node])
	}
	slices.SortStableFunc(t.downs, func(a, b TraceLate) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Node, b.Node)) })
	for _, id := range h.order {
		a := h.asks[id]
		r := a.request
		kind, whose := string(r.Action), r.Target.String()
		switch {
		case r.Action == "" && strings.HasPrefix(id, "epoch/"):
			kind, whose = "ring", "what moved between the epochs "+strings.TrimPrefix(id, "epoch/")
		case r.Action == "":
			kind = "flush"
		default:
			dry := ""
			if r.DryRun {
				dry = " (a dry run: it deletes nothing)"
			}
			t.touch(TraceTouch{At: r.At, Kind: kind, ID: id, What: fmt.Sprintf("%s of %s was asked for%s%s", kind, whose, windowText(r), dry), By: r.By, Reason: r.Reason})
		}
		if p := a.plan; p != nil && p.Refused != "" {
			t.touch(TraceTouch{At: p.At, Kind: kind, ID: id, What: "refused: " + p.Refused})
		}
		done := len(a.of) > 0
		for _, p := range a.of {
			a.keys += p.Keys
			done = done && p.Done
		}
		switch {
		case a.result != nil:
			if a.result.Clean && a.plan != nil && !a.plan.DryRun {
				t.redone[id] = a.result.At
			}
			t.touch(TraceTouch{At: a.result.At, Kind: kind, ID: id, What: resultText(kind, whose, a.result)})
		case !a.first.IsZero():
			end := "not done yet"
			if done {
				end = "and done"
			}
			t.touch(TraceTouch{At: a.last, Kind: kind, ID: id, What: fmt.Sprintf("%s: where the key is, %s deleted since %s, %s", whose, many(a.keys, "key", "keys"), a.first.UTC().Format(time.TimeOnly), end)})
		}
	}
}

func windowText(r replay.Request) string {
	if r.Action != replay.Replay {
		return ""
	}
	to := "on"
	if !r.To.IsZero() {
		to = "to " + r.To.UTC().Format(time.DateTime)
	}
	return fmt.Sprintf(", %s from %s %s", r.Window, r.From.UTC().Format(time.DateTime), to)
}

func resultText(kind, whose string, r *replay.Result) string {
	what := fmt.Sprintf("%s of %s is done: %s, %s", kind, whose, many(r.Keys, "key", "keys"), many(r.Copies, "copy", "copies"))
	switch {
	case r.Error != "":
		what = fmt.Sprintf("%s of %s failed: %s", kind, whose, r.Error)
	case !r.Clean:
		what += "; not all of it (see invalidator " + kind + " status)"
	}
	return what
}

// replays notes which replays by hand take the change in.
func (t *tracer) replays(c *TraceChange, topicID string) {
	for i := range t.plans {
		p := &t.plans[i]
		for _, r := range p.Ranges {
			if r.Topic != c.Topic || r.Partition != c.Partition || r.TopicID != "" && topicID != "" && r.TopicID != topicID || c.Offset < r.From || c.Offset >= r.To {
				continue
			}
			issued := slices.ContainsFunc(c.Issued, func(x TraceIssue) bool {
				return !x.From.After(p.To.Add(traceIssuedAfter)) && !x.Until.Before(p.From.Add(-traceIssuedBefore))
			})
			committed := p.Window == replay.Committed && (c.Committed.IsZero() || !c.Committed.Before(p.From) && !c.Committed.After(p.To))
			if issued || committed {
				c.Replays = append(c.Replays, p.ID)
			}
		}
	}
}
