package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"invalidator/internal/app"
	"invalidator/internal/obs"
	"invalidator/internal/ui"
)

type runCmd struct {
	configFlag
	DryRun bool   `help:"Delete nothing and connect to no node: count and sample what would be deleted, in a consumer group of its own (<group>.dry-run)."`
	From   string `help:"With --dry-run: begin anew at latest, earliest, a time like 2026-11-30T10:00:00Z, or so long ago (2h). Default: where it stopped; the first time, latest."`
	JSON   bool   `help:"With --dry-run: one JSON object a line." name:"json"`
}

// Run works until a signal, drains and commits.
func (c runCmd) Run(e *env) error {
	from, err := c.from(time.Now())
	if err != nil {
		return misuse{err}
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	hup, ignore := hangups()
	defer ignore()
	if c.DryRun {
		told := func(x any) error { return dryForPeople(e.stdout, x) }
		if c.JSON {
			told = func(x any) error { return writeJSON(e.stdout, x) }
		}
		return (&app.DryRun{Config: cfg, Log: e.log, From: from, Hup: hup, Told: told}).Run(e.ctx)
	}
	w := &app.Worker{Config: cfg, Log: e.log, Registry: obs.NewRegistry(), Hup: hup}
	show, letGo := pageOf(e, cfg)
	defer letGo()
	w.Page = show
	return w.Run(e.ctx)
}

// from is --from as the group takes it.
func (c runCmd) from(now time.Time) (string, error) {
	if !c.DryRun && (c.From != "" || c.JSON) {
		return "", fmt.Errorf("--from and --json are for --dry-run (a worker goes on where its group stopped; see first_start of a source)")
	}
	switch from := strings.ToLower(c.From); from {
	case "", "latest", "earliest":
		return from, nil
	}
	if d, err := time.ParseDuration(c.From); err == nil && d > 0 {
		return now.Add(-d).UTC().Format(time.RFC3339), nil
	}
	if t, err := time.Parse(time.RFC3339, c.From); err == nil {
		return t.UTC().Format(time.RFC3339), nil
	}
	return "", fmt.Errorf("--from %q is not latest, earliest, a time like 2026-11-30T10:00:00Z, or so long ago as 2h", c.From)
}

// dryForPeople shows a sample in a line, and a sum in some.
func dryForPeople(w io.Writer, x any) error {
	var b strings.Builder
	p := ui.New(w)
	switch x := x.(type) {
	case app.DrySample:
		copies := make([]string, len(x.Copies))
		for i, cp := range x.Copies {
			copies[i] = cp.Node
			if cp.Key != x.Key {
				copies[i] += "=" + plain(cp.Key)
			}
		}
		from := x.Team + "/" + x.Mapping
		if x.Mapping == "" {
			from = x.Template // somebody sent it
		}
		fmt.Fprintf(&b, "would %s %s  %s\n", x.Action, p.Bold(plain(x.Key)), p.Faint(fmt.Sprintf("on %s, by %s, for %s/%d at %d",
			strings.Join(copies, ", "), from, x.Topic, x.Partition, x.Offset)))
	case app.DrySummary:
		title := "so far"
		if x.Final {
			title = "at the end"
		}
		fmt.Fprintf(&b, "\n%s\n", p.Bold(fmt.Sprintf("%s, after %s: %s, %s, %s; no node was touched", title, span(x.At.Sub(x.Since)),
			many(x.Changes, "change", "changes"), many(x.Keys, "key", "keys"), many(x.Copies, "copy", "copies"))))
		for _, part := range []struct {
			name string
			of   []app.DryTally
		}{{"POOL", x.Pools}, {"MAPPING", x.Mappings}, {"NODE", x.Nodes}} {
			if err := dryTable(&b, part.name, part.of); err != nil {
				return err
			}
		}
		for _, odd := range []struct {
			n    int64
			what string
		}{{x.Parked, "record that would be a dead letter (the log says why)"}, {x.Gaps, "gap: what the log no longer has"}, {x.Flushes, "flush that an emptied table would ask for"}} {
			if odd.n > 0 {
				fmt.Fprintf(&b, "%s: %d\n", p.Bad(odd.what), odd.n)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// dryRows is how many rows of a table are for people; JSON has all.
const dryRows = 20

func dryTable(w io.Writer, name string, of []app.DryTally) error {
	if len(of) == 0 {
		return nil
	}
	rows := [][]string{{name, "KEYS", "COPIES"}}
	for i, t := range of {
		if i == dryRows {
			rows = append(rows, []string{fmt.Sprintf("and %d more", len(of)-i), "", ""})
			break
		}
		rows = append(rows, []string{t.Name, fmt.Sprint(t.Keys), fmt.Sprint(t.Copies)})
	}
	return table(w, rows, 1, 2)
}

// plain is a key as a terminal may show it.
func plain(key string) string {
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }) {
		return fmt.Sprintf("%q", key)
	}
	return key
}

func many(n int64, one, more string) string {
	if n == 1 {
		more = one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// hangups are SIGHUPs: the mappings folder is read again at each. Several at once are one.
func hangups() (<-chan os.Signal, func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c, func() { signal.Stop(c) }
}
