package main

import (
	"errors"
	"fmt"
	"time"

	"invalidator/internal/app"
	"invalidator/replay"
)

type flushCmd struct {
	Pool   flushPoolCmd   `cmd:"" help:"Delete all of a pool's keys, as they are found on the nodes: part by part, while the load allows it."`
	Node   flushNodeCmd   `cmd:"" help:"Delete all keys that a node has, the same way."`
	List   flushListCmd   `cmd:"" help:"List flushes."`
	Status flushStatusCmd `cmd:"" help:"Show how far one is."`
	Pause  flushPauseCmd  `cmd:"" help:"Hold a flush back before its next part."`
	Resume flushResumeCmd `cmd:"" help:"Let it go on."`
	Cancel flushCancelCmd `cmd:"" help:"End a flush where it is."`
}

// loadFlags say how a flush goes.
type loadFlags struct {
	Pace     int64         `help:"Copies a second, of all nodes together; default: what the workers are configured with." placeholder:"N" group:"How it goes:"`
	Slices   int           `help:"Into how many parts all of the ring is cut, at least; default: 32." placeholder:"N" group:"How it goes:"`
	MaxLoad  string        `help:"The load above which it waits: a number (of sets or misses a second, the larger, of all nodes), or a PromQL expression or URL that gives one, < and a number: 'sum(rate(mysql_reads[1m]))<400000'. Default: twice that of the minute before." placeholder:"LIMIT" group:"How it goes:"`
	Refill   time.Duration `help:"For how long the load is below its limit before the next part begins; default: what the workers are configured with." placeholder:"D" group:"How it goes:"`
	Stale    bool          `help:"Mark the keys stale in place of deleting them: one reader refills each, and the others may use it meanwhile. For pools whose readers speak meta." group:"How it goes:"`
	StaleFor time.Duration `help:"With --stale: how long a key that nobody refills may be used, 1s to 60s; default: 30s." placeholder:"D" group:"How it goes:"`
}

// Validate refuses what cannot be meant, before the command runs.
func (f loadFlags) Validate() error {
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"--refill", f.Refill}, {"--stale-for", f.StaleFor}} {
		if d.value < 0 || d.value%time.Second != 0 {
			return fmt.Errorf("%s %s is not a number of seconds, such as 10s", d.flag, d.value)
		}
	}
	switch {
	case f.Pace < 0:
		return fmt.Errorf("--pace %d is not a number of copies a second", f.Pace)
	case f.Slices < 0:
		return fmt.Errorf("--slices %d is not a number of parts", f.Slices)
	case f.StaleFor > 0 && !f.Stale:
		return errors.New("--stale-for is of --stale")
	}
	return nil
}

func (f loadFlags) options() replay.Options {
	return replay.Options{
		Pace: f.Pace, Slices: f.Slices, MaxLoad: f.MaxLoad, Refill: int64(f.Refill / time.Second),
		Stale: f.Stale, StaleFor: int64(f.StaleFor / time.Second),
	}
}

type flushPoolCmd struct {
	configFlag
	Name  string `arg:"" help:"The pool." name:"pool"`
	Shard string `help:"Only what this shard's nodes have of it, as after a promotion." placeholder:"ID"`
	loadFlags
	askFlags
}

type flushNodeCmd struct {
	configFlag
	Name string `arg:"" help:"host:port, as the ring record writes it." name:"node"`
	loadFlags
	askFlags
}

func (c flushPoolCmd) Run(e *env) error {
	return askFlush(e, c.configFlag, replay.Target{Pool: c.Name, Shard: c.Shard}, c.loadFlags, c.askFlags)
}

func (c flushNodeCmd) Run(e *env) error {
	return askFlush(e, c.configFlag, replay.Target{Node: c.Name}, c.loadFlags, c.askFlags)
}

func askFlush(e *env, f configFlag, target replay.Target, l loadFlags, a askFlags) error {
	d, err := openDesk(e, f)
	if err != nil {
		return err
	}
	defer d.Close()
	now := time.Now()
	r := a.request(replay.Flush, target, now)
	r.Options = l.options()
	draft, err := d.Draft(e.ctx, r, now)
	if err != nil {
		return refusedIsMisuse(err)
	}
	if !a.DryRun {
		verb := "Delete"
		if l.Stale {
			verb = "Mark stale"
		}
		if err := a.confirm(e, fmt.Sprintf("%s all keys of %s? Each is read from the database again.", verb, target)); err != nil {
			return err
		}
	}
	return a.ask(e, d, draft, "")
}

type flushPauseCmd struct {
	wordFlags
	JSON bool `help:"One JSON object: how it stands then." name:"json"`
}

type flushResumeCmd struct {
	wordFlags
	JSON bool `help:"One JSON object: how it stands then." name:"json"`
}

type flushCancelCmd struct {
	wordFlags
	Force bool `help:"Also of what a worker asked for, since keys may be stale that nothing else deletes: they may stay so until they expire."`
	JSON  bool `help:"One JSON object: how it stands then." name:"json"`
}

func (c flushPauseCmd) Run(e *env) error {
	return c.say(e, replay.Pause, app.KindFlush, false, c.JSON, "is paused: it begins no further part until: invalidator flush resume %s")
}

func (c flushResumeCmd) Run(e *env) error {
	return c.say(e, replay.Resume, app.KindFlush, false, c.JSON, "goes on: invalidator flush status %s")
}

func (c flushCancelCmd) Run(e *env) error {
	return c.say(e, replay.Cancel, app.KindFlush, c.Force, c.JSON, "is cancelled: what is deleted stays so, and nothing more is, but for what is on its way (invalidator flush status %s)")
}
