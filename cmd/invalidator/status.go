package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"invalidator/cdc"
	"invalidator/internal/app"
	"invalidator/internal/ui"
)

type statusCmd struct {
	configFlag
	JSON bool `help:"One JSON object a line: the processes, what is owed, the partitions, paused pools, then what is found." name:"json"`
}

// Run shows the fleet: its processes, what is owed, how far it is, what runs, and fails if something needs a person.
func (c statusCmd) Run(e *env) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	fleet, err := app.ReadFleet(e.ctx, cfg, e.log)
	if err != nil {
		return err
	}
	if c.JSON {
		err = fleetAsJSON(e.stdout, fleet)
	} else {
		err = fleetForPeople(e.stdout, fleet, time.Now())
	}
	if err != nil {
		return err
	}
	for _, f := range fleet.Findings {
		if f.Severity == string(cdc.SeverityError) {
			return errFailed
		}
	}
	return nil
}

func fleetAsJSON(w io.Writer, fleet app.Fleet) error {
	for _, p := range fleet.Processes {
		if err := writeJSON(w, p); err != nil {
			return err
		}
	}
	for _, o := range fleet.Owing {
		if err := writeJSON(w, o); err != nil {
			return err
		}
	}
	for _, l := range fleet.Lags {
		if err := writeJSON(w, l); err != nil {
			return err
		}
	}
	for _, p := range fleet.Paused {
		if err := writeJSON(w, pauseJSON(p)); err != nil {
			return err
		}
	}
	for _, f := range fleet.Findings {
		if err := writeJSON(w, f); err != nil {
			return err
		}
	}
	return nil
}

// statusRows is how many rows of each part are for people; JSON has all.
const statusRows = 20

// fleetForPeople shows the processes, what is owed, which logs are behind, what runs, and below them what is found. Durations are of each process's own clock.
func fleetForPeople(w io.Writer, fleet app.Fleet, now time.Time) error {
	var b strings.Builder
	paint := ui.New(w)
	for _, part := range []struct {
		rows    [][]string
		numbers []int
		none    string // in place of a table that has its heading alone
	}{
		{processRows(fleet), nil, ""},
		{owingRows(fleet, now), []int{1, 2, 3}, "nothing is owed"},
		{lagRows(fleet), []int{1, 2, 3}, caughtUp(fleet)},
		{offRows(fleet), []int{2}, ""},
		{payingRows(fleet), []int{3, 4}, ""},
	} {
		rows := part.rows
		if len(rows) == 1 && part.none == "" {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		if len(rows) == 1 {
			b.WriteString(part.none + "\n")
			continue
		}
		left := len(rows) - 1 - statusRows
		if left > 0 {
			rows = rows[:1+statusRows]
		}
		var t strings.Builder
		if err := table(&t, rows, part.numbers...); err != nil {
			return err
		}
		heading, body, _ := strings.Cut(t.String(), "\n")
		b.WriteString(paint.Bold(heading) + "\n" + body)
		if left > 0 {
			fmt.Fprintf(&b, "and %d more (--json has all)\n", left)
		}
	}
	if len(fleet.Paused)+len(fleet.Findings) > 0 && b.Len() > 0 {
		b.WriteString("\n")
	}
	for _, p := range fleet.Paused {
		fmt.Fprintf(&b, "paused: pool %s, %s\n", p.Pool, pausedText(p))
	}
	for _, f := range fleet.Findings {
		severity := paint.Faint(f.Severity)
		if f.Severity == string(cdc.SeverityError) {
			severity = paint.Bad(f.Severity)
		}
		fmt.Fprintf(&b, "%s: %s: %s\n", severity, f.Where, f.What)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func processRows(fleet app.Fleet) [][]string {
	rows := [][]string{{"PROCESS", "ROLE", "STATE", "UP", "RING", "MAPPINGS", "IN FORCE", "VERSION"}}
	for _, p := range fleet.Processes {
		state, ring := "up", "-"
		switch {
		case p.Lost:
			state = "lost"
		case len(p.Mappings.Failing) > 0:
			state = "failing"
		}
		if p.Ring != nil {
			ring = fmt.Sprint(p.Ring.Epoch)
		}
		rows = append(rows, []string{p.ID, p.Role, state, span(p.At.Sub(p.Started)), ring, p.Mappings.Fingerprint, span(p.At.Sub(p.Mappings.Since)), p.Version})
	}
	return rows
}

// owingRows are what is owed, and how that stands. A part that cannot be summed up is among the findings.
func owingRows(fleet app.Fleet, now time.Time) [][]string {
	rows := [][]string{{"OWES DELETES", "PARTITIONS", "RECORDS", "SINCE", "STATE", "PAID IN"}}
	open := map[string]string{"node": "off", "template": "stopped", "pool": "paused"}
	for _, o := range fleet.Owing {
		state, left := "is being paid", "?"
		if o.Open {
			state, left = open[o.Owes], "-"
		}
		if o.Left > 0 {
			left = "about " + span(time.Duration(o.Left)*time.Second)
		}
		rows = append(rows, []string{o.Owes + " " + o.Name, fmt.Sprint(o.Partitions), fmt.Sprint(o.Records), span(now.Sub(o.Since)), state, left})
	}
	return rows
}

// lagRows are the topics that have partitions behind their end, those that are most behind first.
func lagRows(fleet app.Fleet) [][]string {
	type topic struct {
		name                   string
		partitions, all, worst int64
		at                     int32
	}
	byName := map[string]*topic{}
	var topics []*topic
	for _, l := range fleet.Lags {
		t := byName[l.Topic]
		if t == nil {
			t = &topic{name: l.Topic}
			byName[l.Topic], topics = t, append(topics, t)
		}
		t.partitions++
		t.all += l.Lag
		if l.Lag > t.worst {
			t.worst, t.at = l.Lag, l.Partition
		}
	}
	slices.SortStableFunc(topics, func(a, b *topic) int { return cmp.Compare(b.all, a.all) })
	rows := [][]string{{"TOPIC BEHIND", "PARTITIONS", "RECORDS", "AT MOST", "IN PARTITION"}}
	for _, t := range topics {
		if t.all > 0 {
			rows = append(rows, []string{t.name, fmt.Sprint(t.partitions), fmt.Sprint(t.all), fmt.Sprint(t.worst), fmt.Sprint(t.at)})
		}
	}
	return rows
}

// caughtUp says that no partition is behind; empty where there is none.
func caughtUp(fleet app.Fleet) string {
	topics := map[string]bool{}
	for _, l := range fleet.Lags {
		topics[l.Topic] = true
	}
	if len(topics) == 0 {
		return ""
	}
	return fmt.Sprintf("no log is behind: %s of %s", count(len(fleet.Lags), "partition"), count(len(topics), "topic"))
}

func offRows(fleet app.Fleet) [][]string {
	rows := [][]string{{"NODE OFF", "FOR WORKER", "SINCE", "WHY"}}
	for _, p := range fleet.Processes {
		for _, n := range p.Off {
			rows = append(rows, []string{n.Node, p.ID, span(p.At.Sub(n.Since)), n.Why})
		}
	}
	return rows
}

func payingRows(fleet app.Fleet) [][]string {
	rows := [][]string{{"PASS PAYS", "BY WORKER", "PARTITION", "FROM", "TO"}}
	for _, p := range fleet.Processes {
		for _, r := range p.Paying {
			rows = append(rows, []string{r.Whose, p.ID, fmt.Sprintf("%s/%d", r.Topic, r.Partition), fmt.Sprint(r.From), fmt.Sprint(r.To)})
		}
	}
	return rows
}

// span is a duration in its one greatest unit: 59s, 12m, 5h, 9d.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours())/24)
}
