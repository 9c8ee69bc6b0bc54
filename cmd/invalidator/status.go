package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"invalidator/cdc"
	"invalidator/internal/app"
	"invalidator/internal/ui"
)

type statusCmd struct {
	configFlag
	JSON bool `help:"One JSON object a line: the processes, paused pools, then what is found." name:"json"`
}

// Run shows the processes of the fleet, and fails if something needs a person.
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
		err = fleetForPeople(e.stdout, fleet)
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

// fleetForPeople shows a line a process, and below them what is found. Durations are of each process's own clock.
func fleetForPeople(w io.Writer, fleet app.Fleet) error {
	var b strings.Builder
	if len(fleet.Processes) > 0 {
		table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "PROCESS\tROLE\tSTATE\tUP\tRING\tMAPPINGS\tIN FORCE\tVERSION")
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
			fmt.Fprintln(table, strings.Join([]string{p.ID, p.Role, state, span(p.At.Sub(p.Started)), ring, p.Mappings.Fingerprint,
				span(p.At.Sub(p.Mappings.Since)), p.Version}, "\t"))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for _, p := range fleet.Paused {
		fmt.Fprintf(&b, "paused: pool %s, %s\n", p.Pool, pausedText(p))
	}
	paint := ui.New(w)
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
