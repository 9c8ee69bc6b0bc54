package main

import (
	"errors"
	"io"
	"time"

	"invalidator/cdc"
	"invalidator/internal/app"
)

type statusCmd struct {
	configFlag
	Watch bool `help:"Look again every 2 s, until interrupted." short:"w"`
	JSON  bool `help:"One JSON object a line: the processes, what is owed, the partitions, paused pools, replays and flushes, gaps, parked records, then what is found." name:"json"`
}

// Validate refuses flags that contradict each other, before the command runs.
func (c statusCmd) Validate() error {
	if c.Watch && c.JSON {
		return errors.New("--watch and --json exclude each other: a script asks again by itself")
	}
	return nil
}

// Run shows the fleet: its processes, what is owed, how far it is, what runs, and fails if something needs a person.
func (c statusCmd) Run(e *env) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	r, err := app.OpenFleet(e.ctx, cfg, e.log)
	if err != nil {
		return err
	}
	defer r.Close()
	fleet, err := r.Read(e.ctx)
	if err != nil {
		return err
	}
	switch {
	case c.Watch:
		fleet = watchFleet(e, r, fleet)
	case c.JSON:
		err = fleetAsJSON(e.stdout, fleet)
	default:
		err = fleetForPeople(e.stdout, fleet, time.Now())
	}
	if err != nil {
		return err
	}
	if needsPerson(fleet) > 0 {
		return errFailed
	}
	return nil
}

// needsPerson is how many of the findings do.
func needsPerson(fleet app.Fleet) (n int) {
	for _, f := range fleet.Findings {
		if f.Severity == string(cdc.SeverityError) {
			n++
		}
	}
	return n
}

func fleetAsJSON(w io.Writer, fleet app.Fleet) error {
	var lines []any
	for _, p := range fleet.Processes {
		lines = append(lines, p)
	}
	for _, o := range fleet.Owing {
		lines = append(lines, o)
	}
	for _, l := range fleet.Lags {
		lines = append(lines, l)
	}
	for _, p := range fleet.Paused {
		lines = append(lines, pauseJSON(p))
	}
	for _, x := range fleet.Works {
		lines = append(lines, x)
	}
	for _, g := range fleet.Gaps {
		lines = append(lines, gapJSON{g.State(), g})
	}
	if fleet.Parked.Records > 0 {
		lines = append(lines, fleet.Parked)
	}
	for _, f := range fleet.Findings {
		lines = append(lines, f)
	}
	for _, line := range lines {
		if err := writeJSON(w, line); err != nil {
			return err
		}
	}
	return nil
}
