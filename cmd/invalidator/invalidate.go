package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"invalidator/internal/app"
	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/sink"
)

const (
	// askAbove is how many keys are deleted without asking.
	askAbove = 1000
	// maxKeyLine bounds a line of standard input, in bytes: more than any key, so that one that is too long is named as such.
	maxKeyLine = 1 << 20
	// shownProblems is how many keys, and pools, are named that something is wrong with.
	shownProblems = 20
	// shownProblem is how much of a key is shown that something is wrong with, in bytes.
	shownProblem = 300
)

type invalidateCmd struct {
	configFlag
	Keys    []string      `arg:"" help:"Keys as clients name them; - reads them from standard input, a key a line."`
	Base64  bool          `help:"The keys are given in base64, as key_base64 shows them." name:"base64"`
	Reason  string        `help:"Why, for the record."`
	By      string        `help:"Who does it; default: this user and host." placeholder:"NAME"`
	Force   bool          `help:"Also keys of pools that no mapping file in force claims."`
	Yes     bool          `help:"Do not ask, however many keys there are (over 1000 it asks, and without a terminal it refuses)."`
	Wait    bool          `help:"Return when the workers have passed them: each is deleted on every copy, or owed by a node that is away, a paused pool or a storm, which is told."`
	Timeout time.Duration `help:"With --wait: give up after so long; 0: never." default:"0s"`
	DryRun  bool          `help:"Look at the keys, say what would be done, and do nothing."`
	JSON    bool          `help:"One JSON object: what was done." name:"json"`
}

// invalidateJSON is the stable form of what was done.
type invalidateJSON struct {
	Keys      int                `json:"keys"`
	Records   int                `json:"records"`
	At        []app.WrittenRange `json:"at"`        // where they lie on the log
	Unclaimed []string           `json:"unclaimed"` // pools of some of them, which no mapping file in force claims
	DryRun    bool               `json:"dry_run,omitempty"`
	Waited    bool               `json:"waited,omitempty"`
	Owed      []app.Owing        `json:"owed,omitempty"` // of them, when the workers had passed them
}

// Run writes the keys to the log. Nothing is written while something is wrong with any of them.
func (c invalidateCmd) Run(e *env) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	if len(c.Reason) > app.MaxReason || len(c.By) > app.MaxReason {
		return misuse{fmt.Errorf("--reason and --by have at most %d bytes", app.MaxReason)}
	}
	keys, lines, err := c.read(e.stdin)
	if err != nil {
		return misuse{err}
	}
	i, err := app.OpenInvalidator(e.ctx, cfg, e.log)
	if err != nil {
		return err
	}
	checked := i.Check(keys)
	if err := c.refuse(e, checked, lines); err != nil {
		return misuse{err}
	}
	out := invalidateJSON{Keys: len(checked.Keys), At: []app.WrittenRange{}, Unclaimed: []string{}, DryRun: c.DryRun}
	for _, u := range checked.Unclaimed {
		out.Unclaimed = append(out.Unclaimed, u.Pool)
	}
	if !c.DryRun {
		if err := c.ask(e, len(checked.Keys), isTerminal(e.stdin) && isTerminal(e.stderr)); err != nil {
			return err
		}
		if err := c.write(e, i, checked.Keys, &out); err != nil {
			return err
		}
	}
	if c.JSON {
		return writeJSON(e.stdout, out)
	}
	c.print(e.stdout, out)
	return nil
}

// read returns the keys, and where each stands on standard input: its line, or 0 for an argument. Empty lines are none.
func (c invalidateCmd) read(stdin io.Reader) (keys []string, lines []int, err error) {
	add := func(given string, line int) error {
		key := given
		if c.Base64 {
			b, err := base64.StdEncoding.DecodeString(given)
			if err != nil {
				return fmt.Errorf("%skey %q is not in base64: %w", lineText(line), given, err)
			}
			key = string(b)
		}
		keys, lines = append(keys, key), append(lines, line)
		return nil
	}
	if !slices.Contains(c.Keys, "-") {
		for _, k := range c.Keys {
			if err := add(k, 0); err != nil {
				return nil, nil, err
			}
		}
		return keys, lines, nil
	}
	if len(c.Keys) > 1 {
		return nil, nil, errors.New("- stands alone: it reads all keys from standard input")
	}
	in := bufio.NewScanner(stdin)
	in.Buffer(nil, maxKeyLine)
	n := 0
	for in.Scan() {
		if n++; in.Text() == "" {
			continue
		}
		if err := add(in.Text(), n); err != nil {
			return nil, nil, err
		}
	}
	if err := in.Err(); err != nil {
		return nil, nil, fmt.Errorf("reading line %d of standard input: %w", n+1, err)
	}
	if len(keys) == 0 {
		return nil, nil, errors.New("there is no key on standard input")
	}
	return keys, lines, nil
}

func lineText(line int) string {
	if line == 0 {
		return ""
	}
	return fmt.Sprintf("line %d: ", line)
}

// refuse names what is wrong with keys, and says why nothing is done; nil where something is.
func (c invalidateCmd) refuse(e *env, checked app.CheckedKeys, lines []int) error {
	for n, p := range checked.Problems {
		if n == shownProblems {
			fmt.Fprintf(e.stderr, "invalidator: and %d keys more\n", len(checked.Problems)-n)
			break
		}
		fmt.Fprintf(e.stderr, "invalidator: %skey %s: %s\n", lineText(lines[p.At]), shownShort(p.Key), p.What)
	}
	for n, u := range checked.Unclaimed {
		if n == shownProblems {
			fmt.Fprintf(e.stderr, "invalidator: and %d pools more\n", len(checked.Unclaimed)-n)
			break
		}
		fmt.Fprintf(e.stderr, "invalidator: %s (%s)\n", u, many(int64(u.Keys), "key", "keys"))
	}
	switch bad := int64(len(checked.Problems)); {
	case bad > 0:
		return fmt.Errorf("memcached cannot hold %s: nothing is deleted", many(bad, "key", "keys"))
	case len(checked.Unclaimed) > 0 && !c.Force:
		return errors.New("nothing is deleted: --force deletes keys of pools that no mapping file in force claims all the same")
	}
	return nil
}

// shownShort is a key as a terminal may show it, cut where it is far too long.
func shownShort(key string) string {
	if len(key) > shownProblem {
		return sink.Show(key[:shownProblem]) + "…"
	}
	return sink.Show(key)
}

// ask asks whether so many keys are to be deleted, on a terminal. Elsewhere nobody can be asked.
func (c invalidateCmd) ask(e *env, keys int, terminal bool) error {
	switch {
	case c.Yes || keys <= askAbove:
		return nil
	case !terminal:
		return misuse{fmt.Errorf("%d keys are more than %d: say --yes", keys, askAbove)}
	}
	fmt.Fprintf(e.stderr, "%d keys are deleted on every copy, and read from the database again. Go on? [y/N] ", keys)
	answer, _ := bufio.NewReader(e.stdin).ReadString('\n') // without an answer: no
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was deleted")
	}
	return nil
}

// write writes the keys, and waits for the workers where it is to.
func (c invalidateCmd) write(e *env, i *app.Invalidator, keys []string, out *invalidateJSON) error {
	by := c.By
	if by == "" {
		by = person()
	}
	p := newProgress(e.stderr, isTerminal(e.stderr))
	written, err := i.Write(e.ctx, changelog.SentKeys{Keys: keys, By: by, Reason: c.Reason}, func(n int) { p.step("written", int64(n), int64(len(keys)), "keys") })
	p.end()
	if err != nil {
		return fmt.Errorf("%w (%d of %d keys are known to be written; all of them again is harmless)", err, written.Keys, len(keys))
	}
	out.Records, out.At = written.Records, app.WrittenRanges(written)
	if !c.Wait {
		return nil
	}
	ctx := e.ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	out.Owed, err = i.Wait(ctx, written, func(passed, all int64, err error) {
		if err != nil {
			p.trouble(err.Error())
			return
		}
		p.step("passed by the workers", passed, all, "records")
	})
	p.end()
	if err != nil {
		return fmt.Errorf("%s written, and not all of them passed by the workers: %w (does a worker run? invalidator status tells)", many(int64(len(keys)), "key is", "keys are"), err)
	}
	out.Waited = true
	return nil
}

func (c invalidateCmd) print(w io.Writer, out invalidateJSON) {
	keys := many(int64(out.Keys), "key", "keys")
	switch {
	case out.DryRun:
		fmt.Fprintf(w, "would delete %s on every copy\n", keys)
	case !out.Waited:
		fmt.Fprintf(w, "%s in %s on the log: the workers delete every copy of them as they come there (--wait waits for it)\n", keys, many(int64(out.Records), "record", "records"))
	case len(out.Owed) == 0:
		fmt.Fprintf(w, "%s deleted on every copy\n", many(int64(out.Keys), "key is", "keys are"))
	default:
		fmt.Fprintf(w, "%s passed by the workers; of %s this is still owed:\n", many(int64(out.Keys), "key is", "keys are"), many(int64(out.Records), "record", "records"))
		for _, o := range out.Owed {
			what := "it is being paid"
			switch {
			case o.Open && o.Owes == pipeline.KindNode:
				what = "it does not answer, and is paid when it does"
			case o.Open && o.Owes == pipeline.KindPool:
				what = "it is paused: invalidator resume pool " + o.Name
			}
			fmt.Fprintf(w, "  %s %s: %s, %s\n", o.Owes, o.Name, many(o.Records, "record", "records"), what)
		}
	}
}
