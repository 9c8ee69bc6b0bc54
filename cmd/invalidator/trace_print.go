package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"invalidator/internal/app"
	"invalidator/internal/ui"
	"invalidator/sink"
)

// traceShown is how many changes are shown to people, the newest; JSON has all.
const traceShown = 30

// traceEntry is a line of the timeline, with lines below it.
type traceEntry struct {
	at, to time.Time // to: it was between the two; zero: at that moment
	after  time.Time // it cannot have been before, whatever the width of at; zero: nothing says so
	kind   string
	text   string
	below  []string
}

// traceForPeople shows where the key is, what happened in the order of time, what cannot be known, and last the answer.
func traceForPeople(w io.Writer, t *app.Trace) error {
	var b strings.Builder
	paint := ui.New(w)
	traceHead(&b, paint, t)
	changes := t.Changes
	earlier := t.Earlier
	if n := len(changes) - traceShown; n > 0 {
		changes, earlier = changes[n:], earlier+int64(n)
	}
	if earlier > 0 {
		fmt.Fprintf(&b, "%s before these %s (--json has more)\n", many(earlier, "change", "changes"), many(int64(len(changes)), "change", "changes"))
	}
	entries := traceEntries(t, changes, earlier)
	traceTimeline(&b, paint, entries, t)
	if len(entries) > 0 {
		b.WriteString("\n")
	}
	for i, c := range changes {
		fmt.Fprintf(&b, "#%d %s\n", i+1, traceEnd(paint, c))
	}
	for _, what := range t.Unknown {
		fmt.Fprintf(&b, "%s %s\n", paint.Faint("not known:"), what)
	}
	word := t.Verdict.Word
	switch app.TraceState(word) {
	case app.TraceDeleted:
		word = paint.Good(word)
	case app.TraceLater, app.TraceShadow, app.TraceFlush, "nothing":
		word = paint.Bold(word)
	default:
		word = paint.Bad(word)
	}
	fmt.Fprintf(&b, "%s %s: %s\n", paint.Bold("verdict:"), word, t.Verdict.Text)
	_, err := io.WriteString(w, b.String())
	return err
}

// traceHead says whose the key is, where its copies are, and what was read.
func traceHead(b *strings.Builder, paint *ui.Printer, t *app.Trace) {
	key := shownText(t.Key, t.KeyBase64)
	whose := "in no pool that a mapping file claims"
	if t.Team != "" {
		whose = fmt.Sprintf("pool %s of team %s", t.Pool, t.Team)
		if t.Contact != "" {
			whose += " (" + t.Contact + ")"
		}
	}
	if t.Underivable {
		whose += ", whose keys no row gives"
	}
	if t.Paused {
		whose += ", " + paint.Bad("paused")
	}
	fmt.Fprintf(b, "%s: %s", paint.Bold(key), whose)
	if t.HotOf != "" {
		fmt.Fprintf(b, "; a hot copy of %s", plain(t.HotOf))
	}
	if t.Ring != nil {
		fmt.Fprintf(b, "; shard %s, hash %d, ring record %d", t.Ring.Shard, t.Ring.Hash, t.Ring.Epoch)
	}
	b.WriteString("\n")
	for _, c := range t.Copies {
		role := c.Role
		if !c.Today {
			role = fmt.Sprintf("%s until ring record %d was replaced", c.Role, c.Epochs[0])
		}
		fmt.Fprintf(b, "  %-21s %s  %s\n", c.Node, shownText(c.Key, c.KeyBase64), paint.Faint(role))
	}
	r := t.Read
	of := ""
	if r.Stopped {
		of = fmt.Sprintf(" of %d", r.Of)
	}
	fmt.Fprintf(b, "from %s to %s UTC: %s%s read, of %s in %s\n\n", t.Since.Format(time.DateTime), t.Until.Format(time.DateTime), many(r.Records, "record", "records"), of,
		many(int64(r.Partitions), "partition", "partitions"), many(int64(r.Topics), "topic", "topics"))
}

// shownText is a key as people see it elsewhere.
func shownText(text, inBase64 string) string {
	if inBase64 == "" {
		return text
	}
	raw, err := (ringLocateCmd{Base64: true}).key(inBase64)
	if err != nil {
		return text
	}
	return sink.Show(raw)
}

// traceEntries puts all that happened in order.
func traceEntries(t *app.Trace, changes []*app.TraceChange, earlier int64) []traceEntry {
	var all []traceEntry
	for i, c := range changes {
		all = append(all, changeEntries(fmt.Sprintf("#%d", i+1), c)...)
	}
	for _, x := range t.Touched {
		if earlier > 0 && len(changes) > 0 && x.At.Before(traceStart(changes[0])) {
			continue
		}
		text := x.What
		if x.Kind == "replay" || x.Kind == "flush" {
			text = x.ID + ": " + text
		}
		if x.By != "" {
			text += ", by " + x.By
		}
		if x.Reason != "" {
			text += ": " + x.Reason
		}
		all = append(all, traceEntry{at: x.At, kind: x.Kind, text: text})
	}
	slices.SortStableFunc(all, func(a, b traceEntry) int { return a.place().Compare(b.place()) })
	return all
}

// place is where an entry stands in the timeline.
func (e traceEntry) place() time.Time {
	if e.at.Before(e.after) && e.after.Before(e.to) {
		return e.after
	}
	return e.at
}

func traceStart(c *app.TraceChange) time.Time {
	if c.Committed.IsZero() {
		return c.Written
	}
	return c.Committed
}

// changeEntries are a change's: its commit, where it came into the log, and when it was issued.
func changeEntries(number string, c *app.TraceChange) (all []traceEntry) {
	first := traceEntry{at: traceStart(c), kind: "change", text: number + " " + changeText(c)}
	for _, by := range c.By {
		first.below = append(first.below, traceBy(by))
	}
	all = append(all, first)
	where := fmt.Sprintf("%s topic %s, partition %d, offset %d", number, c.Topic, c.Partition, c.Offset)
	if !c.Committed.IsZero() {
		where += fmt.Sprintf(", %s after the commit", c.Written.Sub(c.Committed).Round(time.Millisecond))
	}
	if c.Again != "" {
		where += "; written again: " + c.Again
	}
	all = append(all, traceEntry{at: c.Written, kind: "log", text: where})
	for _, x := range c.Issued {
		e := traceEntry{at: x.From, to: x.To, after: c.Written, kind: "issued", text: fmt.Sprintf("%s in lane %s, under ring record %d and mappings %s", number, x.Lane, x.Epoch, x.Mappings)}
		switch {
		case c.State == app.TraceMissed, !c.Redone.IsZero() && !x.Maybe:
			e.kind, e.text = "passed", e.text+": without this key"
		case x.Maybe:
			e.kind, e.text = "again", e.text+": a pass went over it, or it was put off for one"
		}
		if x.Until.After(x.To) {
			e.text += "; the journal has it until " + x.Until.UTC().Format(time.TimeOnly)
		}
		all = append(all, e)
	}
	return all
}

func changeText(c *app.TraceChange) string {
	text := strings.TrimSpace(c.Table + " " + opName(c.Op))
	if c.Op == "k" {
		text = "the key was sent"
	}
	if c.Sent != nil && c.Sent.By != "" {
		text += ", by " + c.Sent.By
	}
	if c.Sent != nil && c.Sent.Reason != "" {
		text += ": " + c.Sent.Reason
	}
	if c.Sent == nil {
		text += ", source " + c.Source
	}
	at := placeText(c.Position)
	if c.Tx != "" && c.Tx != at {
		at = strings.TrimSuffix(fmt.Sprintf("%s (%s)", c.Tx, at), " ()")
	}
	if at != "" {
		text += " at " + at
	}
	return text
}

func traceBy(by app.TraceTemplate) string {
	text := fmt.Sprintf("%s: %s by %s/%s", by.Action, by.Template, by.Team, by.Mapping)
	if by.Mapping == "" {
		text = fmt.Sprintf("%s: %s", by.Action, by.Template)
	}
	switch {
	case by.Shadow:
		text += ", in shadow: nothing is done"
	case !by.Today:
		text += ", which today's mappings have no more"
	}
	return text
}

// traceEnd says what became of a change.
func traceEnd(paint *ui.Printer, c *app.TraceChange) string {
	text := paint.Bold(string(c.State))
	var more []string
	for _, o := range c.Owed {
		more = append(more, o.String())
	}
	for _, l := range c.Late {
		what := "node " + l.Node + " was off, and was paid"
		if !l.Paid.IsZero() {
			what += " by " + l.Paid.UTC().Format(time.TimeOnly)
		}
		more = append(more, what)
	}
	for _, p := range c.Parked {
		more = append(more, strings.TrimSuffix(fmt.Sprintf("its record is the dead letter %s (%s) %s", p.ID, oneLine(p.Reason), p.Decision), " "))
	}
	if len(c.Replays) > 0 {
		more = append(more, "issued again by replay "+strings.Join(c.Replays, ", "))
	}
	if !c.Finished && c.Behind > 0 {
		more = append(more, fmt.Sprintf("the workers are %s before its end", many(c.Behind, "record", "records")))
	}
	if len(more) > 0 {
		text += ": " + strings.Join(more, "; ")
	}
	return text
}

// traceTimeline writes entries below each other, with the day where there are several.
func traceTimeline(b *strings.Builder, paint *ui.Printer, entries []traceEntry, t *app.Trace) {
	day, width := "", 0
	for _, e := range entries {
		width = max(width, len(traceWhen(e)))
	}
	for _, e := range entries {
		if d := e.at.UTC().Format(time.DateOnly); d != cmp.Or(day, t.Since.Format(time.DateOnly)) {
			fmt.Fprintf(b, "%s\n", paint.Faint(d))
			day = d
		}
		fmt.Fprintf(b, "%-*s  %-8s %s\n", width, traceWhen(e), e.kind, e.text)
		for _, line := range e.below {
			fmt.Fprintf(b, "%-*s  %-8s    %s\n", width, "", "", line)
		}
	}
}

func traceWhen(e traceEntry) string {
	if e.to.IsZero() {
		return e.at.UTC().Format("15:04:05.000")
	}
	return e.at.UTC().Format(time.TimeOnly) + " to " + e.to.UTC().Format(time.TimeOnly)
}
