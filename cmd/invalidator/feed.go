package main

import (
	"invalidator/internal/app"
	"invalidator/internal/obs"
)

type feedCmd struct {
	configFlag
	Source []string `help:"Feed only these sources; may be given more than once." placeholder:"NAME"`
}

// Run feeds until a signal, and saves the positions.
func (c feedCmd) Run(e *env) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	hup, ignore := hangups()
	defer ignore()
	f := &app.Feed{Config: cfg, Log: e.log, Registry: obs.NewRegistry(), Hup: hup, Only: c.Source}
	show, letGo := pageOf(e, cfg)
	defer letGo()
	f.Page = show
	return f.Run(e.ctx)
}
