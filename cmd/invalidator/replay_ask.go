package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"invalidator/internal/app"
	"invalidator/replay"
)

func openDesk(e *env, f configFlag) (*app.Desk, error) {
	cfg, err := f.load()
	if err != nil {
		return nil, err
	}
	return app.OpenDesk(e.ctx, cfg, e.log)
}

// refusedIsMisuse makes a request that cannot be meant a misuse of the command line.
func refusedIsMisuse(err error) error {
	var refused *app.RefusedRequest
	if errors.As(err, &refused) {
		return misuse{err}
	}
	return err
}

// confirm asks on a terminal, and elsewhere wants --yes.
func (f askFlags) confirm(e *env, question string) error {
	switch {
	case f.Yes:
		return nil
	case !isTerminal(e.stdin) || !isTerminal(e.stderr):
		return misuse{fmt.Errorf("%s Say --yes, or look first: --dry-run", question)}
	}
	fmt.Fprintf(e.stderr, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(e.stdin).ReadString('\n') // without an answer: no
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return errors.New("nothing was asked for")
	}
	return nil
}

// ask writes a request that was checked, says so, and waits for its end where it is to. about is what is known of it beforehand; it may be empty.
func (f askFlags) ask(e *env, d *app.Desk, draft app.Draft, about string) error {
	r := draft.Request
	again, err := d.Ask(e.ctx, r)
	if err != nil {
		return refusedIsMisuse(err)
	}
	if !f.JSON {
		fmt.Fprintln(e.stdout, askedText(r, again, about))
	}
	if draft.Workers == 0 {
		fmt.Fprintf(e.stderr, "no worker runs: it begins when one does (invalidator status)\n")
	}
	if draft.Hint != "" && !f.DryRun {
		fmt.Fprintln(e.stderr, draft.Hint)
	}
	switch {
	case f.Wait:
		return waitFor(e, d, string(r.Action), r.ID, f.JSON)
	case f.JSON:
		w, err := d.Find(e.ctx, r.ID, time.Now())
		if err != nil {
			return err
		}
		return writeJSON(e.stdout, w)
	}
	fmt.Fprintf(e.stdout, "  how far it is:  invalidator %s status %s\n  to end it:      invalidator %s cancel %s\n", r.Action, r.ID, r.Action, r.ID)
	return nil
}

// askedText says what was asked for.
func askedText(r replay.Request, again bool, about string) string {
	var b strings.Builder
	b.WriteString(r.ID)
	if again {
		b.WriteString(" was asked for already: ")
	} else {
		b.WriteString(" is asked for: ")
	}
	b.WriteString(string(r.Action))
	if r.DryRun {
		b.WriteString(" (dry run: nothing is deleted)")
	}
	b.WriteString(" of " + r.Target.String())
	if r.Action == replay.Replay {
		b.WriteString(", " + windowText(r.Window, r.From, r.To))
	}
	if about != "" {
		b.WriteString("; " + about)
	}
	return b.String()
}

func windowText(w replay.Window, from, to time.Time) string {
	text := "what was deleted"
	if w == replay.Committed {
		text = "what was committed, or deleted,"
	}
	text += " since " + from.UTC().Format(time.RFC3339)
	if !to.IsZero() {
		text += " and until " + to.UTC().Format(time.RFC3339)
	}
	return text
}

// waitFor shows how far a work is until it has ended, and fails where it was not done. An interrupt leaves it running.
func waitFor(e *env, d *app.Desk, kind, id string, asJSON bool) error {
	out := e.stderr
	b := newBar(out, isTerminal(out), terminalWidth(out))
	show := b.show
	if asJSON {
		show = func(w app.Work) {
			w.Parts = nil
			if err := writeJSON(e.stdout, w); err != nil {
				e.log.Debug("writing how far it is", "error", err)
			}
		}
	}
	w, err := d.Follow(e.ctx, id, show, func(err error) { b.say("trying again: " + err.Error()) })
	b.end()
	switch {
	case err != nil && e.ctx.Err() != nil:
		fmt.Fprintf(e.stderr, "%s goes on without this terminal\n  how far it is:  invalidator %s status %s\n  to end it:      invalidator %s cancel %s\n", id, kind, id, kind, id)
		return errFailed
	case err != nil:
		return refusedIsMisuse(err)
	}
	if !asJSON {
		if err := endText(e.stdout, w); err != nil {
			return err
		}
	}
	if !w.State.Good() {
		return errFailed
	}
	return nil
}

// endText says in a line how a work ended.
func endText(out io.Writer, w app.Work) error {
	text := fmt.Sprintf("%s is %s", w.ID, w.State)
	if w.Why != "" {
		text += ": " + w.Why
	}
	verb := "deleted"
	switch {
	case w.DryRun:
		verb = "would be deleted"
	case w.Stale:
		verb = "marked stale"
	}
	text += fmt.Sprintf("; %s, %s %s", number(w.Keys, "key", "keys"), number(w.Copies, "copy", "copies"), verb)
	for _, more := range []struct {
		n    int64
		what string
	}{{w.Kept, "kept, as they were filled meanwhile"}, {w.Owed, "left to a paused pool or a storm, which owes them"}} {
		if more.n > 0 {
			text += fmt.Sprintf("; %s %s", number(more.n, "key", "keys"), more.what)
		}
	}
	if w.Lost > 0 {
		text += fmt.Sprintf("; the log no longer held %s", number(w.Lost, "record", "records"))
	}
	if w.DryRun && w.Kind == app.KindFlush && w.Keys > 0 {
		text += fmt.Sprintf("; as many misses, and it takes %s at least", span(time.Duration(w.Takes)*time.Second))
	}
	if took := w.Ended.Sub(w.At); !w.At.IsZero() && took > 0 {
		text += fmt.Sprintf(" (%s)", took.Round(time.Second/10))
	}
	_, err := fmt.Fprintln(out, text)
	return err
}

// number is a count with its thousands apart.
func number(n int64, one, more string) string {
	if n == 1 {
		more = one
	}
	return grouped(n) + " " + more
}

// grouped is 1,234,567.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
