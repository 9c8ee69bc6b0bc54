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
	"invalidator/internal/pipeline"
	"invalidator/internal/ui"
)

// statusRows is how many rows of each part are for people; JSON has all.
const statusRows = 20

// fleetForPeople shows the processes, what is owed, which logs are behind, what runs, below them what is found, and last whether that needs a person: what stands
// nearest to where one types next. Durations are of each process's own clock.
func fleetForPeople(w io.Writer, fleet app.Fleet, now time.Time) error {
	s := screen{paint: ui.New(w), width: terminalWidth(w)}
	blocks := append(s.tables(fleet, now), s.findings(fleet), s.verdict(fleet))
	blocks = slices.DeleteFunc(blocks, func(b string) bool { return b == "" })
	_, err := io.WriteString(w, strings.Join(blocks, "\n"))
	return err
}

// screen makes the text of a fleet: blocks of whole lines.
type screen struct {
	paint *ui.Printer
	width int // columns; 0: as many as it needs
}

func (s screen) tables(fleet app.Fleet, now time.Time) (blocks []string) {
	for _, part := range []struct {
		rows    [][]string
		numbers []int
		none    string // in place of a table that has its heading alone
	}{
		{processRows(fleet), nil, ""},
		{owingRows(fleet, now), []int{1, 2, 3}, "nothing is owed"},
		{lagRows(fleet), []int{1, 2, 3, 4}, caughtUp(fleet)},
		{workRows(fleet.Works, now), []int{2, 3, 4}, ""},
		{offRows(fleet), []int{2}, ""},
		{payingRows(fleet), []int{3, 4}, ""},
	} {
		rows := part.rows
		if len(rows) == 1 {
			if part.none != "" {
				blocks = append(blocks, part.none+"\n")
			}
			continue
		}
		left := len(rows) - 1 - statusRows
		if left > 0 {
			rows = rows[:1+statusRows]
		}
		block := tableText(s.paint, rows, s.width, part.numbers...)
		if left > 0 {
			block += fmt.Sprintf("and %d more (--json has all)\n", left)
		}
		blocks = append(blocks, block)
	}
	return blocks
}

// findings are the paused pools, then what was found: the worst last, which is nearest to the verdict.
func (s screen) findings(fleet app.Fleet) string {
	var b strings.Builder
	for _, p := range fleet.Paused {
		fmt.Fprintf(&b, "paused: pool %s, %s\n", p.Pool, pausedText(p))
	}
	order := []string{string(cdc.SeverityWarning), string(cdc.SeverityError)} // notes first
	found := slices.Clone(fleet.Findings)
	slices.SortStableFunc(found, func(a, b app.Finding) int {
		return cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity))
	})
	if left := len(found) - statusRows; left > 0 {
		fmt.Fprintf(&b, "%d more, milder ones, are left out (--json has all)\n", left)
		found = found[left:]
	}
	for _, f := range found {
		severity := s.paint.Faint(f.Severity)
		if f.Severity == string(cdc.SeverityError) {
			severity = s.paint.Bad(f.Severity)
		}
		fmt.Fprintf(&b, "%s: %s: %s\n", severity, f.Where, f.What)
	}
	return b.String()
}

// verdict is the line that says at once how it stands.
func (s screen) verdict(fleet app.Fleet) string {
	errors, warnings := needsPerson(fleet), 0
	for _, f := range fleet.Findings {
		if f.Severity == string(cdc.SeverityWarning) {
			warnings++
		}
	}
	switch {
	case errors == 1:
		return s.paint.Bad("1 thing needs a person") + "\n"
	case errors > 1:
		return s.paint.Bad(fmt.Sprintf("%d things need a person", errors)) + "\n"
	case warnings > 0:
		return s.paint.Good("nothing needs a person") + fmt.Sprintf(" (%s)\n", count(warnings, "warning"))
	}
	return s.paint.Good("all is well") + "\n"
}

// processRows are the processes, those with a fault first.
func processRows(fleet app.Fleet) [][]string {
	rows := [][]string{{"PROCESS", "ROLE", "STATE", "UP", "RING", "MAPPINGS", "IN FORCE", "VERSION"}}
	faulty := func(p app.Process) bool { return p.Lost || len(p.Mappings.Failing) > 0 }
	for _, p := range slices.SortedStableFunc(slices.Values(fleet.Processes), func(a, b app.Process) int {
		switch {
		case faulty(a) == faulty(b):
			return 0
		case faulty(a):
			return -1
		}
		return 1
	}) {
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

// owingRows are what is owed, and how that stands. A part that cannot be summed up is among the findings, and what is issued again among the works.
func owingRows(fleet app.Fleet, now time.Time) [][]string {
	rows := [][]string{{"OWES DELETES", "PARTITIONS", "RECORDS", "SINCE", "STATE", "PAID IN"}}
	open := map[string]string{pipeline.KindNode: "off", pipeline.KindTemplate: "stopped", pipeline.KindPool: "paused"}
	for _, o := range fleet.Owing {
		if o.Owes == pipeline.KindEpoch || o.Owes == pipeline.KindReplay {
			continue
		}
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

// lagRows are the topics that have partitions behind their end: those whose first unfinished record is the oldest first, then those that are most behind.
func lagRows(fleet app.Fleet) [][]string {
	type topic struct {
		name, source                string
		partitions, all, worst, age int64
		at                          int32
	}
	byName := map[string]*topic{}
	var topics []*topic
	for _, l := range fleet.Lags {
		t := byName[l.Topic]
		if t == nil {
			t = &topic{name: l.Topic, source: cmp.Or(l.Source, "-")}
			byName[l.Topic], topics = t, append(topics, t)
		}
		t.partitions++
		t.all += l.Lag
		if l.Age > t.age || l.Age == t.age && l.Lag > t.worst {
			t.worst, t.at = l.Lag, l.Partition
		}
		t.age = max(t.age, l.Age)
	}
	slices.SortStableFunc(topics, func(a, b *topic) int { return cmp.Or(cmp.Compare(b.age, a.age), cmp.Compare(b.all, a.all)) })
	rows := [][]string{{"TOPIC BEHIND", "PARTITIONS", "RECORDS", "OLDEST", "AT MOST", "IN PARTITION", "SOURCE"}}
	for _, t := range topics {
		if t.all > 0 {
			rows = append(rows, []string{t.name, fmt.Sprint(t.partitions), fmt.Sprint(t.all), ageText(t.age), fmt.Sprint(t.worst), fmt.Sprint(t.at), t.source})
		}
	}
	return rows
}

// ageText is how old a partition's first unfinished record is.
func ageText(seconds int64) string {
	if seconds == 0 {
		return "<10s"
	}
	return span(time.Duration(seconds) * time.Second)
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

// offRows are the nodes that are off, and payingRows the passes that run. What a process that is lost said last of them is old: others have its partitions.
func offRows(fleet app.Fleet) [][]string {
	rows := [][]string{{"NODE OFF", "FOR WORKER", "SINCE", "WHY"}}
	for _, p := range present(fleet) {
		for _, n := range p.Off {
			rows = append(rows, []string{n.Node, p.ID, span(p.At.Sub(n.Since)), n.Why})
		}
	}
	return rows
}

func payingRows(fleet app.Fleet) [][]string {
	rows := [][]string{{"PASS PAYS", "BY WORKER", "PARTITION", "FROM", "TO"}}
	for _, p := range present(fleet) {
		for _, r := range p.Paying {
			rows = append(rows, []string{r.Whose, p.ID, fmt.Sprintf("%s/%d", r.Topic, r.Partition), fmt.Sprint(r.From), fmt.Sprint(r.To)})
		}
	}
	return rows
}

// present are the processes that are not lost.
func present(fleet app.Fleet) (all []app.Process) {
	for _, p := range fleet.Processes {
		if !p.Lost {
			all = append(all, p)
		}
	}
	return all
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
