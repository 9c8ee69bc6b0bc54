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
	"invalidator/replay"
)

// listFlags are those of the lists of replays and of flushes.
type listFlags struct {
	configFlag
	Since time.Duration `help:"How far back: what was asked for, or told of, so lately. What is not over is always there." default:"24h" placeholder:"D"`
	JSON  bool          `help:"One JSON object a line." name:"json"`
}

type replayListCmd struct{ listFlags }

type flushListCmd struct{ listFlags }

// Run lists, oldest first. None is no line.
func (c replayListCmd) Run(e *env) error { return c.list(e, app.KindReplay, app.KindEpoch) }

// Run lists, oldest first. None is no line.
func (c flushListCmd) Run(e *env) error { return c.list(e, app.KindFlush) }

func (f listFlags) list(e *env, kinds ...string) error {
	d, err := openDesk(e, f.configFlag)
	if err != nil {
		return err
	}
	defer d.Close()
	now := time.Now()
	all, unread, err := d.Works(e.ctx, now.Add(-f.Since), now)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(w app.Work) bool { return !slices.Contains(kinds, w.Kind) })
	if unread > 0 {
		e.log.Warn("records on the control and status topics that this version cannot read are left out (upgrade it)", "records", unread)
	}
	if f.JSON {
		for _, w := range all {
			if err := writeJSON(e.stdout, w); err != nil {
				return err
			}
		}
		return nil
	}
	return printTable(e.stdout, workRows(all, now), 2, 3, 4)
}

// workRows are a table of works. Why something waits, or was not done, has a column where there is any.
func workRows(all []app.Work, now time.Time) [][]string {
	rows := [][]string{{"ID", "STATE", "DONE", "LEFT", "KEYS", "ASKED", "BY"}}
	why := slices.ContainsFunc(all, func(w app.Work) bool { return w.Why != "" })
	if why {
		rows[0] = append(rows[0], "WHY")
	}
	for _, w := range all {
		row := []string{w.ID, stateText(w), shareText(w), leftText(w), grouped(w.Keys), span(now.Sub(since(w))), askedBy(w)}
		if why {
			row = append(row, w.Why)
		}
		rows = append(rows, row)
	}
	return rows
}

// since is when a work was asked for, or begun.
func since(w app.Work) time.Time {
	if w.At.IsZero() {
		return w.Begun
	}
	return w.At
}

func askedBy(w app.Work) string {
	if w.Kind == app.KindEpoch {
		return "the ring"
	}
	return w.By
}

func stateText(w app.Work) string {
	if w.DryRun {
		return string(w.State) + " (dry)"
	}
	return string(w.State)
}

func shareText(w app.Work) string {
	share, known := w.Share()
	if !known {
		return "-"
	}
	return fmt.Sprintf("%d%%", int(share*100))
}

func leftText(w app.Work) string {
	if w.Left == 0 {
		return "-"
	}
	return span(time.Duration(w.Left) * time.Second)
}

type oneFlags struct {
	configFlag
	ID   string `arg:"" help:"Its id, as list shows it." name:"id"`
	JSON bool   `help:"One JSON object." name:"json"`
}

type replayStatusCmd struct{ oneFlags }

type flushStatusCmd struct{ oneFlags }

// Run shows one replay. It fails where that did not end well.
func (c replayStatusCmd) Run(e *env) error { return c.show(e) }

// Run shows one flush. It fails where that did not end well.
func (c flushStatusCmd) Run(e *env) error { return c.show(e) }

func (f oneFlags) show(e *env) error {
	d, err := openDesk(e, f.configFlag)
	if err != nil {
		return err
	}
	defer d.Close()
	w, err := d.Find(e.ctx, f.ID, time.Now())
	if err != nil {
		return refusedIsMisuse(err)
	}
	if f.JSON {
		err = writeJSON(e.stdout, w)
	} else {
		err = printWork(e.stdout, w, time.Now())
	}
	if err == nil && w.State.Ended() && !w.State.Good() {
		return errFailed
	}
	return err
}

func printWork(out io.Writer, w app.Work, now time.Time) error {
	paint := ui.New(out)
	line := func(name, text string) {
		if text != "" {
			paint.Line("%-9s %s", name, text)
		}
	}
	moment := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return fmt.Sprintf("%s (%s ago)", t.UTC().Format(time.RFC3339), span(now.Sub(t)))
	}
	line("id", w.ID)
	line("what", whatText(w))
	if w.Kind == app.KindReplay {
		line("window", windowText(w.Window, w.From, w.To))
	}
	state := stateText(w)
	if w.State.Ended() && !w.State.Good() {
		state = paint.Bad(state)
	}
	line("state", state)
	line("why", w.Why)
	line("paused", prefixed("by ", w.PausedBy))
	line("cancelled", prefixed("by ", w.CancelledBy))
	line("asked", strings.TrimSuffix(moment(w.At)+prefixed(", by ", w.By)+prefixed(": ", w.Reason), ", "))
	if c := w.Cause; c != nil {
		line("because", causeText(c))
	}
	if !w.State.Ended() && !w.Expires.IsZero() {
		line("expires", w.Expires.UTC().Format(time.RFC3339))
	}
	if w.Job != "" && w.Job != w.ID {
		line("with", w.Job+": one flush answers both")
	}
	line("options", optionsText(w))
	line("begun", moment(w.Begun))
	line("ended", moment(w.Ended))
	if w.All > 0 {
		done := fmt.Sprintf("%s of %s, %s", grouped(w.Done), number(w.All, strings.TrimSuffix(w.Unit, "s"), w.Unit), shareText(w))
		if w.Round > 1 {
			done += fmt.Sprintf(" of round %d", w.Round)
		}
		if w.Left > 0 {
			done += ", about " + leftText(w) + " left"
		}
		line("done", done)
	}
	keys := fmt.Sprintf("%s, %s", number(w.Keys, "key", "keys"), number(w.Copies, "copy", "copies"))
	for _, more := range []struct {
		n    int64
		what string
	}{{w.Kept, "kept"}, {w.Owed, "left to a pool's debt"}} {
		if more.n > 0 {
			keys += fmt.Sprintf(", %s %s", grouped(more.n), more.what)
		}
	}
	line("deleted", keys)
	if w.Lost > 0 {
		line("lost", paint.Bad(number(w.Lost, "record", "records")+" that the log no longer held: flush what they concern"))
	}
	if rows := partRows(w, now); len(rows) > 1 {
		paint.Line("")
		return printTable(out, rows, 1, 2, 3, 4)
	}
	return nil
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

func whatText(w app.Work) string {
	if w.Kind != app.KindEpoch {
		return w.Kind + " of " + w.Target.String()
	}
	text := "what the change of the ring's epoch makes deleted again"
	if len(w.Shards) > 0 {
		text += "; promoted: " + strings.Join(w.Shards, ", ")
	}
	return text
}

func causeText(c *replay.Cause) string {
	text := c.What
	for _, more := range []string{prefixed(" of ", strings.Join(c.Tables, ", ")), prefixed(" ", c.Gap), prefixed(", source ", c.Source)} {
		text += more
	}
	if c.Epoch > 0 {
		text += fmt.Sprintf(" at epoch %d", c.Epoch)
	}
	if c.Record != (replay.Range{}) {
		text += fmt.Sprintf(", %s/%d from %d to %d", c.Record.Topic, c.Record.Partition, c.Record.From, c.Record.To)
	}
	return text
}

func optionsText(w app.Work) string {
	var all []string
	add := func(set bool, format string, args ...any) {
		if set {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	add(w.Pace > 0, "pace %s/s", grouped(w.Pace))
	add(w.Slices > 0, "slices %d", w.Slices)
	add(w.Stale, "stale for %ds", cmp.Or(w.StaleFor, 30))
	add(w.MaxLoad != "", "max load %s", w.MaxLoad)
	add(w.MaxLoad == "" && w.Limit > 0, "max load %s, as measured", grouped(int64(w.Limit)))
	add(w.Refill > 0, "refill %ds", w.Refill)
	return strings.Join(all, ", ")
}

// partsShown is how many partitions, or nodes, are for people; JSON has all.
const partsShown = 20

// partRows are how far the partitions of a replay, or the nodes of a flush, are: those that are not done first.
func partRows(w app.Work, now time.Time) [][]string {
	rows := [][]string{{"PARTITION", "FROM", "AT", "TO", "KEYS", "STATE", "TOLD", "BY"}}
	row := func(p app.WorkPart) []string {
		return []string{fmt.Sprintf("%s/%d", p.Topic, p.Partition), fmt.Sprint(p.From), fmt.Sprint(p.Offset), fmt.Sprint(p.To), grouped(p.Keys), partState(p), span(now.Sub(p.At)), p.Worker}
	}
	parts := slices.Clone(w.Parts)
	if w.Kind == app.KindFlush {
		rows = [][]string{{"NODE", "PART", "KEYS", "COPIES", "KEPT", "STATE", "TOLD", "BY"}}
		row = func(p app.WorkPart) []string {
			return []string{p.Node, p.Part, grouped(p.Keys), grouped(p.Copies), grouped(p.Kept), partState(p), span(now.Sub(p.At)), p.Worker}
		}
		parts = byNode(parts, w.Round)
	}
	slices.SortStableFunc(parts, func(a, b app.WorkPart) int {
		switch {
		case a.Done == b.Done:
			return 0
		case a.Done:
			return 1
		}
		return -1
	})
	for i, p := range parts {
		if i == partsShown {
			return append(rows, []string{fmt.Sprintf("and %d more", len(parts)-i)})
		}
		rows = append(rows, row(p))
	}
	return rows
}

func partState(p app.WorkPart) string {
	state := "running"
	switch {
	case p.Done:
		state = "done"
	case p.Waits != "":
		state = p.Waits
	}
	if p.Lost > 0 {
		state += fmt.Sprintf(", %d lost", p.Lost)
	}
	return state
}

// byNode is a row a node: the part that it told of last in a round, with the keys of all. Parts are in order.
func byNode(parts []app.WorkPart, round int) (nodes []app.WorkPart) {
	for _, p := range parts {
		if p.Round != round {
			continue
		}
		last := len(nodes) - 1
		if last < 0 || nodes[last].Node != p.Node {
			nodes = append(nodes, p)
			continue
		}
		was := nodes[last]
		p.Keys, p.Copies, p.Kept = p.Keys+was.Keys, p.Copies+was.Copies, p.Kept+was.Kept
		nodes[last] = p
	}
	for i := range nodes {
		if n, of, _ := strings.Cut(nodes[i].Part, "/"); n != of {
			nodes[i].Done = false
		}
	}
	return nodes
}

// wordFlags are those of cancel, pause and resume.
type wordFlags struct {
	configFlag
	ID     string `arg:"" help:"The id, as list shows it." name:"id"`
	Reason string `help:"Why, for the record."`
	By     string `help:"Who does it; default: this user and host." placeholder:"NAME"`
}

// say writes a word. done is what is said then, with %s for the id.
func (f wordFlags) say(e *env, action replay.Action, kind string, force, asJSON bool, done string) error {
	d, err := openDesk(e, f.configFlag)
	if err != nil {
		return err
	}
	defer d.Close()
	w, err := d.Say(e.ctx, app.Word{Action: action, Of: f.ID, By: cmp.Or(f.By, person()), Reason: f.Reason, Force: force}, kind, time.Now())
	if err != nil {
		return refusedIsMisuse(err)
	}
	if asJSON {
		return writeJSON(e.stdout, w)
	}
	_, err = fmt.Fprintln(e.stdout, w.ID, strings.ReplaceAll(done, "%s", w.ID))
	return err
}

type replayCancelCmd struct {
	wordFlags
	JSON bool `help:"One JSON object: how it stands then." name:"json"`
}

// Run cancels.
func (c replayCancelCmd) Run(e *env) error {
	return c.say(e, replay.Cancel, app.KindReplay, false, c.JSON, "is cancelled: what is deleted stays so, and nothing more is, but for what is on its way (invalidator replay status %s)")
}
