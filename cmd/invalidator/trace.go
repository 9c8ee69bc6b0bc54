package main

import (
	"errors"
	"fmt"
	"time"

	"invalidator/internal/app"
)

type traceCmd struct {
	configFlag
	Key    string `arg:"" help:"The key, as clients name it."`
	Since  string `help:"From when on: so long ago, or a time like 2026-11-30T14:00:00Z." default:"10m"`
	Until  string `help:"Until when, likewise; default: now." placeholder:"TIME"`
	Base64 bool   `help:"The key is given in base64, as key_base64 shows it." name:"base64"`
	JSON   bool   `help:"One JSON object." name:"json"`
}

// Run says what became of a key. It fails where reading the log was stopped before its end.
func (c traceCmd) Run(e *env) error {
	q, err := c.query(time.Now())
	if err != nil {
		return misuse{err}
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	p := newProgress(e.stderr, isTerminal(e.stderr))
	q.Progress = func(read, all int64) {
		p.say(fmt.Sprintf("%d of %d records of the log are read (Ctrl-C shows what was found)", read, all), false)
	}
	t, err := app.TraceKey(e.ctx, cfg, q, e.log)
	p.end()
	var pool *app.PoolError
	switch {
	case errors.As(err, &pool):
		return misuse{err}
	case err != nil:
		return err
	case c.JSON:
		err = writeJSON(e.stdout, t)
	default:
		err = traceForPeople(e.stdout, t)
	}
	if err == nil && t.Read.Stopped {
		return errFailed
	}
	return err
}

func (c traceCmd) query(now time.Time) (q app.TraceQuery, err error) {
	if q.Key, err = (ringLocateCmd{Base64: c.Base64}).key(c.Key); err != nil {
		return q, err
	}
	if q.Since, err = moment("--since", c.Since, now); err != nil {
		return q, err
	}
	if c.Until != "" {
		if q.Until, err = moment("--until", c.Until, now); err != nil {
			return q, err
		}
	}
	switch {
	case q.Key == "":
		return q, errors.New("which key?")
	case q.Since.After(now):
		return q, fmt.Errorf("--since %s is in the future", c.Since)
	case c.Until != "" && !q.Until.After(q.Since):
		return q, fmt.Errorf("--until %s is not after --since %s", c.Until, c.Since)
	}
	return q, nil
}

// moment is a time, or so long before now.
func moment(flag, text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, fmt.Errorf("%s %q is neither so long ago as 10m nor a time like 2026-11-30T14:00:00Z", flag, text)
}
