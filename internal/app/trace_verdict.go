package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"invalidator/internal/pipeline"
)

// traceNothing is the verdict's word where no change gave the key.
const traceNothing = "nothing"

// conclude tells what cannot be known, and puts the answer in a line.
func (t *tracer) conclude() {
	for _, topic := range slices.Sorted(maps.Keys(t.begins)) {
		b := t.begins[topic]
		t.unknown("what was written to topic %s before %s: the log of %s begins later than the window, at the latest then", topic,
			b.last.UTC().Format(time.DateTime), many(int64(b.partitions), "partition", "partitions"))
	}
	for _, topic := range slices.Sorted(maps.Keys(t.before)) {
		c := t.before[topic]
		t.unknown("which changes from before the window were issued in it (an earlier --since shows them): so in %s of topic %s, as %s",
			many(c.n, "partition", "partitions"), topic, c.first)
	}
	t.tellCounts()
	slices.Sort(t.state.bad)
	for _, what := range slices.Compact(t.state.bad) {
		t.unknown("all that was issued and is owed: %s", what)
	}
	if t.ended {
		t.unknown("what was written to the log after %s, though it was committed before", t.until.Add(traceAfter).UTC().Format(time.DateTime))
	}
	slices.SortStableFunc(t.out.Touched, func(a, b TraceTouch) int { return a.At.Compare(b.At) })
	t.out.Verdict = t.verdict()
}

// verdict is of the worst state of any change: what is not deleted now comes first.
func (t *tracer) verdict() TraceVerdict {
	of := map[TraceState][]*TraceChange{}
	for _, c := range t.out.Changes {
		of[c.State] = append(of[c.State], c)
	}
	for _, s := range []TraceState{TraceWaits, TraceOwes, TraceParks, TraceMissed, TraceLater, TraceDeleted, TraceFlush, TraceShadow} {
		if list := of[s]; len(list) > 0 {
			return TraceVerdict{Word: string(s), Text: t.verdictOf(s, list)}
		}
	}
	return TraceVerdict{Word: traceNothing, Text: t.nothing()}
}

func (t *tracer) verdictOf(s TraceState, list []*TraceChange) string {
	changes, last := many(int64(len(list)), "change", "changes"), list[len(list)-1]
	at := clock(last.when())
	switch s {
	case TraceWaits:
		return fmt.Sprintf("workers are not done with %s, the last committed at %s%s: until then copies may be stale", changes, at, behindText(last))
	case TraceOwes:
		return fmt.Sprintf("%s not deleted everywhere, the last committed at %s: %s", are(len(list)), at, owedText(list))
	case TraceParks:
		return fmt.Sprintf("the delete of %s is among the dead letters (%s): nothing deletes it until somebody decides (invalidator deadletter)", changes, last.Parked[0].ID)
	case TraceMissed:
		return fmt.Sprintf("the mappings that were in force did not give the key for %s, the last committed at %s, and today's do: nothing deleted it (invalidator invalidate, or replay mapping %s/%s)",
			changes, at, last.By[0].Team, last.By[0].Mapping)
	case TraceLater:
		worst := slices.MaxFunc(list, func(a, b *TraceChange) int { return int(max(-1, min(1, a.lateness()-b.lateness()))) })
		return fmt.Sprintf("every copy is deleted, %s late: %s", changes, worst.lateText())
	case TraceFlush:
		return fmt.Sprintf("no row says whether the key is stale: a table of the pool was emptied at %s, which asks for a flush of the pool", at)
	case TraceShadow:
		return "only templates in shadow give the key: nothing is deleted"
	}
	text := fmt.Sprintf("every copy is deleted, of %s, the last committed at %s", changes, at)
	if first := last.first(); first != nil {
		text += fmt.Sprintf(" and issued %s", between(first.From, first.To))
	}
	return text
}

func are(n int) string {
	if n == 1 {
		return "1 change is"
	}
	return fmt.Sprintf("%d changes are", n)
}

func behindText(c *TraceChange) string {
	if c.Behind <= 1 {
		return ""
	}
	return fmt.Sprintf(" (they are %s behind it)", many(c.Behind, "record", "records"))
}

// owedText names who owes, each once.
func owedText(list []*TraceChange) string {
	var all []string
	for _, c := range list {
		for _, o := range c.Owed {
			if text := o.String(); !slices.Contains(all, text) {
				all = append(all, text)
			}
		}
	}
	return strings.Join(all, "; ")
}

// String says who owes since when, and why.
func (o TraceOwed) String() string {
	since := o.Since.UTC().Format(time.DateTime)
	switch {
	case o.Kind == pipeline.KindNode && o.Open:
		return fmt.Sprintf("node %s is off, and owes since %s", o.Name, since)
	case o.Kind == pipeline.KindNode:
		return fmt.Sprintf("node %s is back, and is being paid what it owes since %s", o.Name, since)
	case o.Kind == pipeline.KindPool && o.Open:
		return fmt.Sprintf("pool %s is paused since %s", o.Name, since)
	case o.Kind == pipeline.KindPool:
		return fmt.Sprintf("pool %s was resumed, and is being paid what it owes since %s", o.Name, since)
	case o.Kind == pipeline.KindStorm:
		return fmt.Sprintf("a storm of pool %s since %s is paid at its pace", o.Name, since)
	case o.Kind == pipeline.KindTemplate:
		return fmt.Sprintf("mapping %s owes since %s", o.Name, since)
	case o.Kind == pipeline.KindEpoch:
		return fmt.Sprintf("the ring changed (epochs %s) at about %s: what moved is being deleted again", o.Name, since)
	case o.Kind == pipeline.KindReplay:
		return fmt.Sprintf("replay %s since %s is on its way", o.Name, since)
	}
	return fmt.Sprintf("%s %s owes since %s", o.Kind, o.Name, since)
}

// lateness is how long after the commit a copy may still have been stale, as far as that is known.
func (c *TraceChange) lateness() time.Duration {
	var last time.Time
	if first := c.first(); first != nil {
		last = first.To
	}
	if c.Redone.After(last) {
		last = c.Redone
	}
	for _, l := range c.Late {
		if l.Paid.After(last) {
			last = l.Paid
		}
	}
	return last.Sub(c.when())
}

func (c *TraceChange) lateText() string {
	var texts []string
	if first := c.first(); !c.Redone.IsZero() {
		texts = append(texts, fmt.Sprintf("committed at %s under mappings that did not give the key, and deleted by a replay that was done at %s", clock(c.when()), clock(c.Redone)))
	} else if first != nil && first.From.Sub(c.when()) > traceSlow {
		texts = append(texts, fmt.Sprintf("committed at %s, written to the log at %s, issued %s", clock(c.when()), clock(c.Written), between(first.From, first.To)))
	} else {
		texts = append(texts, "committed at "+clock(c.when()))
	}
	for _, l := range c.Late {
		switch {
		case l.Paid.IsZero():
			texts = append(texts, fmt.Sprintf("node %s was off from %s on, and owes nothing of it now", l.Node, clock(l.Since)))
		default:
			texts = append(texts, fmt.Sprintf("on node %s, which was off, until %s at the latest", l.Node, clock(l.Paid)))
		}
	}
	return strings.Join(texts, "; ")
}

func (t *tracer) nothing() string {
	text := "no change of the window gave the key"
	switch {
	case t.out.Read.Stopped:
		text += ", as far as the log was read"
	case t.out.Underivable:
		text += ": no row gives keys of pool " + t.pool + "; they are deleted where writers send them, and flushed"
	case len(t.unread) > 0 || len(t.begins) > 0:
		text += ", as far as is known"
	}
	return text
}

// clock is a time of the day; the trace says which day it is.
func clock(at time.Time) string { return at.UTC().Format("15:04:05.000") }

// between is an interval of the journal's.
func between(from, to time.Time) string {
	return "between " + from.UTC().Format(time.TimeOnly) + " and " + to.UTC().Format(time.TimeOnly)
}
