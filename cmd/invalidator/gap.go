package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"strings"
	"text/tabwriter"
	"time"

	"invalidator/cdc"
	"invalidator/internal/app"
	"invalidator/internal/gap"
)

type gapCmd struct {
	List   gapListCmd   `cmd:"" help:"List the gaps, those that stand and those that were closed in the last 30 days."`
	Show   gapShowCmd   `cmd:"" help:"Show one gap."`
	Accept gapAcceptCmd `cmd:"" help:"Accept that changes are lost: ask for a flush of the pools concerned, and let the source go on."`
}

// gapJSON is the stable form of a gap: its record, with its state.
type gapJSON struct {
	State gap.State `json:"state"`
	*gap.Case
}

type gapListCmd struct {
	configFlag
	JSON bool `help:"One JSON object a line and gap." name:"json"`
}

// Run lists, oldest first. No gap is no line.
func (c gapListCmd) Run(e *env) error {
	all, err := readGaps(e, c.configFlag)
	if err != nil {
		return err
	}
	if c.JSON {
		for _, g := range all {
			if err := printGapJSON(e.stdout, g); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	if len(all) > 0 {
		fmt.Fprintln(w, "ID\tSTATE\tSOURCE\tSEEN\tPOOLS\tWHY")
	}
	for _, g := range all {
		state := string(g.State())
		if g.Stops && g.State() != gap.Closed {
			state += ", the source stands"
		}
		if g.Flush != "" {
			state += ", flush " + g.Flush
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", g.ID, state, g.Source, g.Seen.Format(time.RFC3339), poolsText(g.Pools), g.Why)
	}
	return w.Flush()
}

type gapShowCmd struct {
	configFlag
	ID   string `arg:"" help:"The gap's id, as gap list shows it."`
	JSON bool   `help:"One JSON object." name:"json"`
}

// Run shows all that is known.
func (c gapShowCmd) Run(e *env) error {
	all, err := readGaps(e, c.configFlag)
	if err != nil {
		return err
	}
	g, err := findGap(all, c.ID)
	if err != nil {
		return err
	}
	if c.JSON {
		return printGapJSON(e.stdout, g)
	}
	return printGap(e.stdout, g)
}

type gapAcceptCmd struct {
	configFlag
	ID      string `arg:"" help:"The gap's id, as gap list shows it."`
	NoFlush bool   `help:"Ask for no flush: whatever is stale stays until it expires."`
	By      string `help:"Who decides; default: this user and host." placeholder:"NAME"`
	DryRun  bool   `help:"Say what would be done, and do nothing."`
	JSON    bool   `help:"One JSON object: the gap as it stands then." name:"json"`
}

// Run decides. A gap that was accepted before stays as it was decided then, which is no failure.
func (c gapAcceptCmd) Run(e *env) error {
	by := c.By
	if by == "" {
		by = person()
	}
	book, all, err := openGaps(e, c.configFlag, by)
	if err != nil {
		return err
	}
	defer book.Close()
	g, err := findGap(all, c.ID)
	if err != nil {
		return err
	}
	if !c.DryRun && g.State() != gap.Closed {
		if err := acceptGap(e.ctx, book, g, by, !c.NoFlush); err != nil {
			return err
		}
	}
	if c.JSON {
		return printGapJSON(e.stdout, g)
	}
	fmt.Fprintln(e.stdout, c.outcome(g))
	return nil
}

// acceptTimeout bounds what a person waits for: three records are written.
const acceptTimeout = 20 * time.Second

func acceptGap(ctx context.Context, book *gap.Book, g *gap.Case, by string, flush bool) error {
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	if g.Stops { // the feeder passes it, and asks for the flush then: only it knows where the gap ends
		return book.Accept(ctx, g, by, flush)
	}
	return book.Settle(ctx, g, by, flush)
}

// outcome says what was, or would be, done.
func (c gapAcceptCmd) outcome(g *gap.Case) string {
	flush := !c.NoFlush
	if g.Acceptance != nil {
		flush = g.Acceptance.Flush
	}
	what := "nothing is flushed"
	switch {
	case flush && len(g.Pools) == 0:
		what = "no mapping names its tables: there is nothing to flush"
	case flush:
		what = "a flush is asked for of " + poolsText(g.Pools)
	}
	switch {
	case c.DryRun && g.State() == gap.Open && g.Stops:
		return fmt.Sprintf("would accept %s: %s, and source %s goes on behind it", g.ID, what, g.Source)
	case c.DryRun && g.State() == gap.Open:
		return fmt.Sprintf("would accept %s: %s", g.ID, what)
	case g.State() == gap.Closed && !g.Stops:
		return fmt.Sprintf("%s is closed: %s", g.ID, what)
	case g.State() == gap.Closed:
		return fmt.Sprintf("%s is closed", g.ID)
	}
	return fmt.Sprintf("%s is accepted by %s: %s, and source %s goes on behind it within seconds, where its feeder runs", g.ID, g.Acceptance.By, what, g.Source)
}

func openGaps(e *env, f configFlag, by string) (*gap.Book, []*gap.Case, error) {
	cfg, err := f.load()
	if err != nil {
		return nil, nil, err
	}
	return app.Gaps(e.ctx, cfg, by, e.log)
}

// readGaps returns the gaps, and how it stands with the flushes that they have asked for.
func readGaps(e *env, f configFlag) ([]*gap.Case, error) {
	cfg, err := f.load()
	if err != nil {
		return nil, err
	}
	book, all, err := app.Gaps(e.ctx, cfg, person(), e.log)
	if err != nil {
		return nil, err
	}
	book.Close()
	app.GapFlushes(e.ctx, cfg, all, e.log)
	return all, nil
}

func findGap(all []*gap.Case, id string) (*gap.Case, error) {
	if g := gap.Find(all, id); g != nil {
		return g, nil
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no gap %q: there is none at all", id)
	}
	ids := make([]string, len(all))
	for i, g := range all {
		ids[i] = g.ID
	}
	return nil, fmt.Errorf("no gap %q (there are: %s)", id, strings.Join(ids, ", "))
}

// person is who types, for people.
func person() string {
	name := "somebody"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		name += "@" + host
	}
	return name
}

func printGapJSON(w io.Writer, g *gap.Case) error {
	return writeJSON(w, gapJSON{g.State(), g})
}

func printGap(out io.Writer, g *gap.Case) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := fieldsTo(w)
	line("id", g.ID)
	line("state", string(g.State()))
	line("source", g.Source)
	if g.Stops && g.State() != gap.Closed {
		line("", "it stands until this is accepted: invalidator gap accept "+g.ID)
	}
	line("why", g.Why)
	line("hint", g.Hint)
	line("seen", g.Seen.Format(time.RFC3339))
	if g.Times > 1 {
		line("lost again", fmt.Sprintf("%d times, last at %s", g.Times-1, g.Last.Format(time.RFC3339)))
	}
	if r := g.Range; r != nil {
		from := fmt.Sprint(r.From)
		if r.From < 0 {
			from = "not known"
		}
		line("records", fmt.Sprintf("topic %s, partition %d, from offset %s to before %d", r.Topic, r.Partition, from, r.To))
	}
	line("from", placeText(g.From))
	line("transaction", g.Tx)
	line("to", placeText(g.Until))
	tables := strings.Join(g.Tables, ", ")
	if len(g.Tables) == 0 {
		tables = "all of the source"
	}
	line("tables", tables)
	line("pools", poolsText(g.Pools))
	line("undone", g.Undone)
	if a := g.Acceptance; a != nil {
		line("accepted", fmt.Sprintf("by %s at %s, flush: %t", a.By, a.At.Format(time.RFC3339), a.Flush))
	}
	if p := g.Passage; p != nil {
		line("went on at", placeText(p.To))
		line("asked for", strings.Join(p.Requests, ", "))
		line("flush", flushText(g.Flush))
		if p.Reissued > 0 {
			line("written again", fmt.Sprintf("%d records", p.Reissued))
		}
		line("note", p.Note)
		if !p.Done.IsZero() {
			line("closed", p.Done.Format(time.RFC3339))
		}
	}
	return w.Flush()
}

// flushText says how it stands with the flush that a gap asked for.
func flushText(state string) string {
	if state == "" || state == string(app.WorkDone) {
		return state
	}
	return state + " (invalidator flush list): what it lost may be stale until that is done"
}

// fieldsTo writes a name and what it stands for in a line; nothing where that is empty.
func fieldsTo(w io.Writer) func(name, text string) {
	return func(name, text string) {
		if text != "" {
			fmt.Fprintf(w, "%s\t%s\n", name, text)
		}
	}
}

func poolsText(pools []string) string {
	if len(pools) == 0 {
		return "none: no mapping names its tables"
	}
	return strings.Join(pools, ", ")
}

// placeText is a position on one line.
func placeText(p cdc.Position) string {
	switch {
	case p.LSN != "":
		return p.LSN
	case p.GTIDSet != "":
		return strings.ReplaceAll(p.GTIDSet, "\n", "")
	case p.File != "":
		return fmt.Sprintf("%s:%d", p.File, p.Pos)
	}
	return ""
}
