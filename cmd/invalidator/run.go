package main

import (
	"invalidator/internal/app"
	"invalidator/internal/obs"
)

type runCmd struct{ configFlag }

// Run works until a signal, drains and commits.
func (c runCmd) Run(e *env) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	w := &app.Worker{Config: cfg, Log: e.log, Registry: obs.NewRegistry()}
	return w.Run(e.ctx)
}
