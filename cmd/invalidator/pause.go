package main

import (
	"errors"
	"fmt"
	"time"

	"invalidator/internal/app"
	"invalidator/internal/changelog"
)

type pauseCmd struct {
	Pool pausePoolCmd `cmd:"" help:"Delete no key of a pool until it is resumed: the brake for a bad mapping. What changes meanwhile is owed."`
}

type resumeCmd struct {
	Pool resumePoolCmd `cmd:"" help:"Delete what a paused pool owes, and its keys as they come again."`
}

type pausePoolCmd struct {
	configFlag
	Name   string `arg:"" help:"The pool." name:"pool"`
	Reason string `help:"Why, for whoever finds it paused."`
	By     string `help:"Who does it; default: this user and host." placeholder:"NAME"`
	Force  bool   `help:"Also where no mapping file in force claims the pool."`
	JSON   bool   `help:"One JSON object: what stands then." name:"json"`
}

type resumePoolCmd struct {
	configFlag
	Name   string `arg:"" help:"The pool." name:"pool"`
	Reason string `help:"Why, for the record."`
	By     string `help:"Who does it; default: this user and host." placeholder:"NAME"`
	JSON   bool   `help:"One JSON object: what stands then." name:"json"`
}

// pauseJSON is the stable form of a pause.
type pauseJSON struct {
	Pool   string    `json:"pool"`
	Paused bool      `json:"paused"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Reason string    `json:"reason,omitempty"`
}

// Run pauses. A pool that is paused stays as it was paused first, which is no failure.
func (c pausePoolCmd) Run(e *env) error {
	return setPause(e, c.configFlag, changelog.Pause{Pool: c.Name, Paused: true, By: c.By, Reason: c.Reason}, c.Force, c.JSON)
}

// Run resumes.
func (c resumePoolCmd) Run(e *env) error {
	return setPause(e, c.configFlag, changelog.Pause{Pool: c.Name, By: c.By, Reason: c.Reason}, false, c.JSON)
}

func setPause(e *env, f configFlag, p changelog.Pause, force, asJSON bool) error {
	cfg, err := f.load()
	if err != nil {
		return err
	}
	if p.At = time.Now().UTC(); p.By == "" {
		p.By = person()
	}
	now, err := app.PausePool(e.ctx, cfg, p, force, e.log)
	var bad *app.PoolError
	switch {
	case errors.As(err, &bad):
		return misuse{err}
	case err != nil:
		return err
	case asJSON:
		return writeJSON(e.stdout, pauseJSON(now))
	case !now.Paused:
		fmt.Fprintf(e.stdout, "pool %s is resumed: workers delete its keys again within 2 s, and then what it owes\n", now.Pool)
	case !now.At.Equal(p.At):
		fmt.Fprintf(e.stdout, "pool %s is paused already, %s\n", now.Pool, pausedText(now))
	default:
		fmt.Fprintf(e.stdout, "pool %s is paused: workers delete none of its keys within 2 s; what changes meanwhile is owed until: invalidator resume pool %s\n", now.Pool, now.Pool)
	}
	return nil
}

// pausedText says by whom, when and why.
func pausedText(p changelog.Pause) string {
	text := fmt.Sprintf("by %s since %s", p.By, p.At.UTC().Format(time.DateTime))
	if p.Reason != "" {
		text += ": " + p.Reason
	}
	return text
}
