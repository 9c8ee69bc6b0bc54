package main

import (
	"os"
	"os/signal"
	"syscall"

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
	hup, ignore := hangups()
	defer ignore()
	w := &app.Worker{Config: cfg, Log: e.log, Registry: obs.NewRegistry(), Hup: hup}
	return w.Run(e.ctx)
}

// hangups are SIGHUPs: the mappings folder is read again at each. Several at once are one.
func hangups() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
