package main

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"invalidator/internal/app"
	"invalidator/replay"
)

type replayCmd struct {
	Shard   replayShardCmd   `cmd:"" help:"Delete again, on every copy, what changed in a window: keys of a shard, as after a promotion."`
	Node    replayNodeCmd    `cmd:"" help:"The same of keys that have a copy on a node."`
	Range   replayRangeCmd   `cmd:"" help:"The same of keys whose hash lies in a range of the ring (ring locate shows hashes)."`
	Pool    replayPoolCmd    `cmd:"" help:"The same of a pool's keys."`
	Mapping replayMappingCmd `cmd:"" help:"The same of a mapping's keys, as after its template was mended."`
	List    replayListCmd    `cmd:"" help:"List replays, and what changes of the ring make done again."`
	Status  replayStatusCmd  `cmd:"" help:"Show how far one is."`
	Cancel  replayCancelCmd  `cmd:"" help:"End a replay where it is."`
}

// askFlags are those of whatever asks the workers for something.
type askFlags struct {
	DryRun  bool          `help:"Have the workers read and count, and delete nothing."`
	Wait    bool          `help:"Show how far it is until it has ended; fail where it was not done. Ctrl-C leaves it running."`
	Reason  string        `help:"Why, for the record."`
	By      string        `help:"Who asks; default: this user and host." placeholder:"NAME"`
	Expires time.Duration `help:"Refuse it where no worker has begun it after so long; default: never." placeholder:"D"`
	ID      string        `help:"Its name: the same request with the same name again is one; default: a new one." name:"id"`
	Yes     bool          `help:"Do not ask." short:"y"`
	JSON    bool          `help:"One JSON object: the request and what became of it; with --wait one each time that something is another." name:"json"`
}

// request is what the flags say of a request.
func (f askFlags) request(action replay.Action, target replay.Target, now time.Time) replay.Request {
	r := replay.Request{
		ID: f.ID, At: now.UTC(), By: cmp.Or(f.By, person()), Reason: f.Reason, Action: action, Target: target, DryRun: f.DryRun,
	}
	if r.ID == "" {
		r.ID = app.NewRequestID(string(action), idName(target))
	}
	if f.Expires != 0 {
		r.Expires = now.Add(f.Expires).UTC()
	}
	return r
}

// idName is a target in an id. A range's numbers are long and say little.
func idName(t replay.Target) string {
	if t.Range != nil {
		return "range"
	}
	return t.String()
}

// windowFlags say which changes are meant.
type windowFlags struct {
	Since  string `help:"What was deleted so lately, whenever it was committed: 30s, 2h. It is what a promotion asks for." placeholder:"D" group:"Window:"`
	From   string `help:"What was committed, or deleted, from then on: a time as 2026-11-30T10:00:00Z, so long ago (2h), or a place in a source's log (a GTID, 0/16B3748, binlog.000003:1234)." placeholder:"T" group:"Window:"`
	To     string `help:"And until then; default: until a worker plans it." placeholder:"T" group:"Window:"`
	Source string `help:"The source in whose log the places are; needed where the configuration has several." placeholder:"NAME" group:"Window:"`
}

// Validate refuses flags that contradict each other, before the command runs.
func (f windowFlags) Validate() error {
	switch {
	case f.Since != "" && (f.From != "" || f.To != ""):
		return errors.New("--since and --from exclude each other: --since is by when it was deleted, --from by when it was committed")
	case f.Since == "" && f.From == "":
		return errors.New("which window? --since 30s, or --from T --to T")
	}
	return nil
}

// set fills a request's window in.
func (f windowFlags) set(e *env, d *app.Desk, r *replay.Request, now time.Time) error {
	if f.Since != "" {
		back, err := time.ParseDuration(f.Since)
		if err != nil || back <= 0 {
			return misuse{fmt.Errorf("--since %q is not so long ago as 30s or 2h", f.Since)}
		}
		r.Window, r.From = replay.Issued, now.Add(-back).UTC()
		return nil
	}
	r.Window = replay.Committed
	var err error
	if r.From, _, err = f.moment(e, d, "--from", f.From, now); err != nil {
		return err
	}
	if f.To != "" {
		_, r.To, err = f.moment(e, d, "--to", f.To, now)
	}
	return err
}

// moment reads a time, or a place in a log, of which the times of changes before and behind it are known.
func (f windowFlags) moment(e *env, d *app.Desk, flag, text string, now time.Time) (from, to time.Time, err error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t.UTC(), t.UTC(), nil
	}
	if back, err := time.ParseDuration(text); err == nil && back >= 0 {
		return now.Add(-back).UTC(), now.Add(-back).UTC(), nil
	}
	place, ok := app.ParsePlace(text)
	if !ok {
		return from, to, misuse{fmt.Errorf("%s %q is not a time like 2026-11-30T10:00:00Z, so long ago as 2h, or a place in a log (a GTID, 0/16B3748, binlog.000003:1234)", flag, text)}
	}
	return d.TimesAt(e.ctx, f.Source, place)
}

type replayShardCmd struct {
	configFlag
	Name string `arg:"" help:"The shard's id." name:"shard"`
	windowFlags
	askFlags
}

type replayNodeCmd struct {
	configFlag
	Name string `arg:"" help:"host:port, as the ring record writes it." name:"node"`
	windowFlags
	askFlags
}

type replayRangeCmd struct {
	configFlag
	Above hash `arg:"" help:"Hashes above this one."`
	UpTo  hash `arg:"" help:"Up to this one; around the ring's end where it is less."`
	windowFlags
	askFlags
}

type replayPoolCmd struct {
	configFlag
	Name string `arg:"" help:"The pool." name:"pool"`
	windowFlags
	askFlags
}

type replayMappingCmd struct {
	configFlag
	Name string `arg:"" help:"The mapping as team/name, or its name alone." name:"mapping"`
	windowFlags
	askFlags
}

func (c replayShardCmd) Run(e *env) error {
	return askReplay(e, c.configFlag, replay.Target{Shard: c.Name}, c.windowFlags, c.askFlags)
}

func (c replayNodeCmd) Run(e *env) error {
	return askReplay(e, c.configFlag, replay.Target{Node: c.Name}, c.windowFlags, c.askFlags)
}

func (c replayRangeCmd) Run(e *env) error {
	return askReplay(e, c.configFlag, replay.Target{Range: &replay.HashRange{From: int64(c.Above), To: int64(c.UpTo)}}, c.windowFlags, c.askFlags)
}

func (c replayPoolCmd) Run(e *env) error {
	return askReplay(e, c.configFlag, replay.Target{Pool: c.Name}, c.windowFlags, c.askFlags)
}

func (c replayMappingCmd) Run(e *env) error {
	return askReplay(e, c.configFlag, replay.Target{Mapping: c.Name}, c.windowFlags, c.askFlags)
}

// askReplayAbove is how many keys are replayed without asking: a promotion's seconds of a shard are below it.
const askReplayAbove = 10_000

func askReplay(e *env, f configFlag, target replay.Target, w windowFlags, a askFlags) error {
	d, err := openDesk(e, f)
	if err != nil {
		return err
	}
	defer d.Close()
	now := time.Now()
	r := a.request(replay.Replay, target, now)
	if err := w.set(e, d, &r, now); err != nil {
		return refusedIsMisuse(err)
	}
	draft, err := d.Draft(e.ctx, r, now)
	if err != nil {
		return refusedIsMisuse(err)
	}
	if draft.Keys > askReplayAbove && !a.DryRun {
		question := fmt.Sprintf("Replay about %s? Each is read from the database again.", number(draft.Keys, "key", "keys"))
		if err := a.confirm(e, question); err != nil {
			return err
		}
	}
	about := fmt.Sprintf("%s lie in the window", number(draft.Records, "record", "records"))
	if draft.Records == 1 {
		about = "1 record lies in the window"
	}
	return a.ask(e, d, draft, about)
}

// hash is a place on the ring: a whole number, which may be below zero.
type hash int64

// minusSign stands for the - of a number below zero on the command line, where a word that begins with - is a flag: see numbersBelowZero.
const minusSign = "\u2212"

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *hash) UnmarshalText(text []byte) error {
	shown := strings.Replace(string(text), minusSign, "-", 1)
	n, err := strconv.ParseInt(shown, 10, 64)
	if err != nil {
		return fmt.Errorf("%q is no hash: a whole number from %d to %d (invalidator ring locate KEY shows a key's)", shown, int64(-1<<63), int64(1<<63-1))
	}
	*h = hash(n)
	return nil
}

// numbersBelowZero has the hashes of replay range be read as such.
func numbersBelowZero(args []string) []string {
	at := -1
	for i, a := range args {
		if a == "range" && i > 0 && args[i-1] == "replay" {
			at = i
		}
	}
	if at < 0 {
		return args
	}
	out := append([]string{}, args...)
	for i := at; i < len(out); i++ {
		if n, below := strings.CutPrefix(out[i], "-"); below && n != "" && strings.Trim(n, "0123456789") == "" {
			out[i] = minusSign + n
		}
	}
	return out
}
