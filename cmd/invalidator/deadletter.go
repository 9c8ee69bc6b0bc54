package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"invalidator/internal/app"
	"invalidator/internal/changelog"
)

type deadletterCmd struct {
	List    deadletterListCmd    `cmd:"" help:"List the parked records about which nobody has decided."`
	Show    deadletterShowCmd    `cmd:"" help:"Show one parked record with its bytes."`
	Retry   deadletterRetryCmd   `cmd:"" help:"Write parked records again to where they came from: workers take them as changes."`
	Discard deadletterDiscardCmd `cmd:"" help:"Decide that parked records stay undone."`
}

// deadletterJSON is the stable form of a parked record. Key and value are null where the record has none, text where they are UTF-8, and
// base64 in key_base64 and value_base64 otherwise.
type deadletterJSON struct {
	ID          string              `json:"id"`
	Topic       string              `json:"topic"`
	Partition   int32               `json:"partition"`
	Offset      int64               `json:"offset"`
	Parked      time.Time           `json:"parked"`
	Reason      string              `json:"reason"`
	LeftOut     string              `json:"left_out,omitempty"`
	Key         *string             `json:"key"`
	KeyBase64   []byte              `json:"key_base64,omitempty"`
	Value       *string             `json:"value"`
	ValueBase64 []byte              `json:"value_base64,omitempty"`
	Headers     map[string]string   `json:"headers,omitempty"`
	Decision    *changelog.Decision `json:"decision,omitempty"`
}

func printParkedJSON(w io.Writer, p *changelog.Parked) error {
	out := deadletterJSON{
		ID: p.ID(), Topic: p.From.Topic, Partition: p.From.Number, Offset: p.Offset, Parked: p.At, Reason: p.Reason, LeftOut: p.LeftOut, Decision: p.Decision,
	}
	text := func(b []byte, as **string, raw *[]byte) {
		switch s := string(b); {
		case b == nil:
		case utf8.ValidString(s):
			*as = &s
		default:
			*raw = b
		}
	}
	text(p.Key, &out.Key, &out.KeyBase64)
	text(p.Value, &out.Value, &out.ValueBase64)
	for _, h := range p.Headers {
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		out.Headers[h.Key] = strings.ToValidUTF8(string(h.Value), "\uFFFD")
	}
	return writeJSON(w, out)
}

// parkedFilter chooses parked records.
type parkedFilter struct {
	Topic string        `help:"Only of this topic." placeholder:"TOPIC"`
	Since time.Duration `help:"Only what was parked so lately; default: all that the topic holds." placeholder:"1h"`
}

func (f parkedFilter) from() time.Time {
	if f.Since <= 0 {
		return time.Time{}
	}
	return time.Now().Add(-f.Since)
}

// list reads what the filter lets through.
func (f parkedFilter) list(ctx context.Context, d *changelog.DeadLetters, want func(*changelog.Parked) bool) ([]*changelog.Parked, error) {
	return d.List(ctx, f.from(), func(p *changelog.Parked) bool {
		return (f.Topic == "" || p.From.Topic == f.Topic) && want(p)
	})
}

type deadletterListCmd struct {
	configFlag
	parkedFilter
	All  bool `help:"Those too about which somebody has decided, and who."`
	JSON bool `help:"One JSON object a line and record." name:"json"`
}

// Run lists, oldest first. None is no line.
func (c deadletterListCmd) Run(e *env) error {
	d, err := openDeadLetters(e, c.configFlag)
	if err != nil {
		return err
	}
	defer d.Close()
	all, err := c.list(e.ctx, d, func(p *changelog.Parked) bool {
		if !c.JSON { // a list shows no bytes
			p.Key, p.Value = nil, nil
		}
		return c.All || p.Decision == nil
	})
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	if len(all) > 0 && !c.JSON {
		fmt.Fprintln(w, "ID\tPARKED\tTOPIC\tPARTITION\tOFFSET\tDECISION\tREASON")
	}
	for _, p := range all {
		if c.JSON {
			if err := printParkedJSON(e.stdout, p); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", p.ID(), p.At.Format(time.RFC3339), p.From.Topic, p.From.Number, p.Offset, decisionText(p), oneLine(p.Reason))
	}
	return w.Flush()
}

func decisionText(p *changelog.Parked) string {
	if p.Decision == nil {
		return "none"
	}
	return string(p.Decision.Outcome) + " by " + p.Decision.By
}

// oneLine keeps a row's text from breaking the list.
func oneLine(s string) string {
	const most = 200
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + " …"
	}
	return s
}

type deadletterShowCmd struct {
	configFlag
	ID   string `arg:"" help:"The record's id, as deadletter list shows it."`
	JSON bool   `help:"One JSON object." name:"json"`
}

// Run shows all that is known.
func (c deadletterShowCmd) Run(e *env) error {
	d, err := openDeadLetters(e, c.configFlag)
	if err != nil {
		return err
	}
	defer d.Close()
	found, err := findParked(e.ctx, d, parkedFilter{}, []string{c.ID})
	if err != nil {
		return err
	}
	p := found[0]
	if c.JSON {
		return printParkedJSON(e.stdout, p)
	}
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	line := fieldsTo(w)
	line("id", p.ID())
	line("from", fmt.Sprintf("topic %s, partition %d, offset %d", p.From.Topic, p.From.Number, p.Offset))
	line("parked", p.At.Format(time.RFC3339))
	line("reason", p.Reason)
	line("left out", p.LeftOut)
	if dec := p.Decision; dec != nil {
		line("decision", fmt.Sprintf("%s by %s at %s", dec.Outcome, dec.By, dec.At.Format(time.RFC3339)))
	}
	line("key", bytesText(p.Key))
	line("value", bytesText(p.Value))
	for _, h := range p.Headers {
		line("header", h.Key+": "+bytesText(h.Value))
	}
	return w.Flush()
}

// bytesText is text where it is text, and Go's quoting where it is not.
func bytesText(b []byte) string {
	switch {
	case b == nil:
		return "null"
	case utf8.Valid(b) && !strings.ContainsFunc(string(b), func(r rune) bool { return r < ' ' }):
		return string(b)
	}
	return fmt.Sprintf("%q", b)
}

// decideFlags are those of retry and discard.
type decideFlags struct {
	configFlag
	parkedFilter
	IDs    []string `arg:"" optional:"" name:"id" help:"The records' ids, as deadletter list shows them; none: all that --topic and --since choose."`
	By     string   `help:"Who decides; default: this user and host." placeholder:"NAME"`
	DryRun bool     `help:"Say what would be done, and do nothing."`
	JSON   bool     `help:"One JSON object a line and record, as it stands then." name:"json"`
}

type (
	deadletterRetryCmd   struct{ decideFlags }
	deadletterDiscardCmd struct{ decideFlags }
)

// Run writes records again. One that was decided before stays as it was.
func (c deadletterRetryCmd) Run(e *env) error {
	return c.decide(e, "retry", (*changelog.DeadLetters).Retry)
}

// Run discards records.
func (c deadletterDiscardCmd) Run(e *env) error {
	return c.decide(e, "discard", (*changelog.DeadLetters).Discard)
}

func (c decideFlags) decide(e *env, what string, do func(*changelog.DeadLetters, context.Context, *changelog.Parked, string) error) error {
	if len(c.IDs) == 0 && c.Topic == "" {
		return misuse{fmt.Errorf("which records? name ids, or --topic TOPIC for all of a topic")}
	}
	by := c.By
	if by == "" {
		by = person()
	}
	d, err := openDeadLetters(e, c.configFlag)
	if err != nil {
		return err
	}
	defer d.Close()
	chosen, err := c.choose(e.ctx, d)
	if err != nil {
		return err
	}
	topics := map[string]bool{}
	var failed error
	for _, p := range chosen {
		switch {
		case p.Decision != nil:
		case c.DryRun:
			if !c.JSON {
				fmt.Fprintf(e.stdout, "would %s %s: topic %s, partition %d, offset %d\n", what, p.ID(), p.From.Topic, p.From.Number, p.Offset)
			}
		default:
			ctx, cancel := context.WithTimeout(e.ctx, acceptTimeout)
			err := do(d, ctx, p, by)
			cancel()
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			topics[p.From.Topic] = true
		}
		if c.JSON {
			if err := printParkedJSON(e.stdout, p); err != nil {
				return err
			}
		} else if p.Decision != nil {
			fmt.Fprintf(e.stdout, "%s is %s\n", p.ID(), decisionText(p))
		}
	}
	return errors.Join(failed, c.closeGaps(e, d, slices.Sorted(maps.Keys(topics)), by))
}

func (c decideFlags) choose(ctx context.Context, d *changelog.DeadLetters) ([]*changelog.Parked, error) {
	if len(c.IDs) > 0 {
		return findParked(ctx, d, c.parkedFilter, c.IDs)
	}
	return c.list(ctx, d, func(p *changelog.Parked) bool { return p.Decision == nil })
}

// closeGaps closes the gaps of topics of which no parked record waits for a decision.
func (c decideFlags) closeGaps(e *env, d *changelog.DeadLetters, topics []string, by string) error {
	if len(topics) == 0 {
		return nil
	}
	open := map[string]bool{}
	if _, err := d.List(e.ctx, time.Time{}, func(p *changelog.Parked) bool {
		open[p.From.Topic] = open[p.From.Topic] || p.Decision == nil
		return false
	}); err != nil {
		return err
	}
	topics = slices.DeleteFunc(topics, func(t string) bool { return open[t] })
	if len(topics) == 0 {
		return nil
	}
	book, all, err := openGaps(e, c.configFlag, by)
	if err != nil {
		return err
	}
	defer book.Close()
	ctx, cancel := context.WithTimeout(e.ctx, acceptTimeout)
	defer cancel()
	for _, t := range topics {
		closed, err := app.CloseParkedGap(ctx, book, all, t, by)
		for _, id := range closed {
			if !c.JSON {
				fmt.Fprintf(e.stdout, "gap %s is closed: no parked record of topic %s is left\n", id, t)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findParked returns the records of ids, in their order.
func findParked(ctx context.Context, d *changelog.DeadLetters, f parkedFilter, ids []string) ([]*changelog.Parked, error) {
	all, err := f.list(ctx, d, func(p *changelog.Parked) bool { return slices.Contains(ids, p.ID()) })
	if err != nil {
		return nil, err
	}
	out := make([]*changelog.Parked, len(ids))
	for i, id := range ids {
		at := slices.IndexFunc(all, func(p *changelog.Parked) bool { return p.ID() == id })
		if at < 0 {
			return nil, fmt.Errorf("no parked record %q (see invalidator deadletter list --all)", id)
		}
		out[i] = all[at]
	}
	return out, nil
}

func openDeadLetters(e *env, f configFlag) (*changelog.DeadLetters, error) {
	cfg, err := f.load()
	if err != nil {
		return nil, err
	}
	return app.DeadLetters(e.ctx, cfg, e.log)
}
