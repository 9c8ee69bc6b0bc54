package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/app"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/mapping"
	"invalidator/sink"
)

type explainCmd struct {
	Mappings  mappingsDir `help:"The folder of mapping files; mappings.d, or with --topic the configuration's." placeholder:"DIR"`
	Ring      string      `help:"The ring record as a JSON file; without it no copies are shown." type:"existingfile"`
	Hot       string      `help:"Hot keys as a JSON file; with --ring." type:"existingfile"`
	Snapshots bool        `help:"Map the rows of snapshots (op r) too."`
	JSON      bool        `help:"One JSON object a line and record." name:"json"`

	Topic  string        `help:"Read this topic, by --config, in place of a file." group:"From a topic:"`
	Since  time.Duration `help:"How far back to begin." default:"10m" group:"From a topic:"`
	Follow bool          `help:"Go on with what comes, until interrupted." group:"From a topic:"`
	Config string        `help:"The configuration file: the brokers, and how the topic is read." type:"existingfile" short:"c" group:"From a topic:"`

	Row    string `help:"A change of this table, as schema.table, typed by hand with --before and --after." placeholder:"TABLE" group:"A row typed by hand:"`
	Before string `help:"The row before: '{\"id\": 1}'. Alone: a delete." placeholder:"ROW" group:"A row typed by hand:"`
	After  string `help:"The row after. Alone: an insert. A column that one of both leaves out is equal in both." placeholder:"ROW" group:"A row typed by hand:"`

	File string `arg:"" optional:"" help:"Change records, one a line: the bare value, or an object with topic, key and payload. - or nothing is standard input."`
}

// explained is a line of --json. Its form is stable.
type explained struct {
	Topic   string         `json:"topic"`
	Table   string         `json:"table"`
	Op      string         `json:"op"`
	Keys    []explainedKey `json:"keys"`
	Skipped []explainedNot `json:"skipped"`
	Ignored string         `json:"ignored,omitempty"`
	Error   string         `json:"error,omitempty"`
	Line    int            `json:"line,omitempty"` // of the input, from 1, with error

	Also      []string `json:"also,omitempty"`      // of a truncate: the other tables that it empties
	Flush     []string `json:"flush,omitempty"`     // of a truncate: the pools that it flushes
	Unflushed []string `json:"unflushed,omitempty"` // and those of mappings that ignore it

	Shadow     []explainedKey       `json:"shadow,omitempty"` // keys of templates in shadow: nothing is done with them
	Conditions []explainedCondition `json:"conditions,omitempty"`
	Place      *explainedPlace      `json:"place,omitempty"` // with --topic
}

// explainedCondition is a condition that was false, or could not be decided and so counts as true.
type explainedCondition struct {
	Mapping  string `json:"mapping"`
	Template string `json:"template"`
	When     string `json:"when"`
	Result   string `json:"result"` // false or undecided
	Reason   string `json:"reason,omitempty"`
}

type explainedPlace struct {
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Time      time.Time `json:"time"`
}

type explainedKey struct {
	shownKey
	Pool     string      `json:"pool"`
	Team     string      `json:"team"`
	Mapping  string      `json:"mapping"`
	Template string      `json:"template"`
	Action   string      `json:"action"`
	Copies   []shownCopy `json:"copies"`
}

type explainedNot struct {
	Mapping  string `json:"mapping"`
	Template string `json:"template"`
	Reason   string `json:"reason"`
}

// maxExplainLine bounds a line: the largest record that a topic of ours takes, twice over for JSON inside JSON.
const maxExplainLine = 64 << 20

// Run explains each record in turn; it fails when a record could not be decoded or a mapping file not be loaded.
func (c explainCmd) Run(e *env) error {
	var cfg *config.Config
	if c.Topic != "" {
		var err error
		if cfg, err = (configFlag{c.Config}).load(); err != nil {
			return err
		}
	}
	x, err := c.explainer(e, cfg)
	if err != nil {
		return err
	}
	switch {
	case c.Row != "":
		err = c.row(e, x)
	case c.Topic != "":
		err = c.topic(e, x, cfg)
	default:
		err = c.lines(e, x)
	}
	if err == nil && x.failed {
		return errFailed
	}
	return err
}

// Validate refuses flags that contradict each other, before the command runs.
func (c explainCmd) Validate() error {
	switch {
	case c.Hot != "" && c.Ring == "":
		return errors.New("--hot needs --ring")
	case c.Topic != "" && c.Config == "":
		return errors.New("--topic needs --config, which names the brokers")
	case (c.Topic != "" && c.Row != "") || (c.Topic != "" || c.Row != "") && c.File != "":
		return errors.New("a file, --topic and --row exclude each other")
	case c.Row == "" && (c.Before != "" || c.After != ""):
		return errors.New("--before and --after need --row, the table that they are of")
	}
	return nil
}

func (c explainCmd) row(e *env, x *explainer) error {
	row, err := mapping.ParseRow(c.Row, c.Before, c.After)
	if err != nil {
		return fmt.Errorf("reading the row: %w", err)
	}
	out := newExplained()
	if x.set.Plan(row.Source, row.TableID) == nil {
		out.Table, out.Op, out.Ignored = row.TableID.String(), row.Op.String(), envelope.IgnoredUnmapped
	} else {
		x.change(&out, row)
	}
	return c.print(e.stdout, out)
}

func (c explainCmd) topic(e *env, x *explainer, cfg *config.Config) error {
	since := time.Now().Add(-c.Since)
	return app.ReadTopic(e.ctx, cfg, c.Topic, since, c.Follow, e.log, func(r changelog.TopicRecord) error {
		out := x.explain(e.ctx, envelope.Record{Topic: c.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers})
		out.Place = &explainedPlace{r.Partition, r.Offset, r.Time.UTC()}
		return c.print(e.stdout, out)
	})
}

func (c explainCmd) lines(e *env, x *explainer) error {
	in := e.stdin
	if c.File != "" && c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return misuse{err}
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxExplainLine)
	n := 0
	for lines.Scan() {
		n++
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		out := x.explain(e.ctx, record(line))
		if out.Error != "" {
			out.Line = n
		}
		if err := c.print(e.stdout, out); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading line %d of %s: %w", n+1, cmp.Or(strings.TrimPrefix(c.File, "-"), "standard input"), err)
	}
	return nil
}

type explainer struct {
	set      *mapping.Set
	decoder  *envelope.Decoder
	topology *sink.Topology // nil without a ring
	hot      *sink.HotKeys
	failed   bool // something was wrong that stopped nothing
}

// explainer loads the mappings; cfg is nil but for a topic.
func (c explainCmd) explainer(e *env, cfg *config.Config) (*explainer, error) {
	dir, decode := defaultMappings, envelope.Config{}
	if cfg != nil {
		var err error
		if decode, err = app.DecodingOf(cfg, c.Topic); err != nil {
			return nil, err
		}
		dir = fromHere(cfg.Mappings.Dir)
	}
	set, problems, err := mapping.Load(c.Mappings.or(dir))
	if err != nil {
		return nil, err
	}
	x := &explainer{set: set}
	for _, p := range problems {
		fmt.Fprintln(e.stderr, p)
		x.failed = x.failed || p.Severity == mapping.SeverityError
	}
	decode.Select, decode.Snapshots = set.Columns, c.Snapshots
	if x.decoder, err = envelope.NewDecoder(decode); err != nil {
		return nil, err
	}
	if c.Ring != "" {
		x.topology, x.hot, err = readRing(c.Ring, c.Hot)
	}
	return x, err
}

// record takes a line apart: an object with topic, key and payload as text, or the bare value.
func record(line []byte) envelope.Record {
	var sample struct {
		Topic   *string `json:"topic"`
		Key     *string `json:"key"`
		Payload *string `json:"payload"`
	}
	if err := json.Unmarshal(line, &sample); err != nil || sample.Topic == nil {
		return envelope.Record{Value: line} // the decoder says what is wrong with it
	}
	r := envelope.Record{Topic: *sample.Topic}
	if sample.Key != nil {
		r.Key = []byte(*sample.Key)
	}
	if sample.Payload != nil {
		r.Value = []byte(*sample.Payload)
	}
	return r
}

func newExplained() explained { return explained{Keys: []explainedKey{}, Skipped: []explainedNot{}} }

func (x *explainer) explain(ctx context.Context, rec envelope.Record) explained {
	out := newExplained()
	out.Topic = rec.Topic
	row, ignored, err := x.decoder.DecodeContext(ctx, rec)
	switch {
	case err != nil:
		out.Error, x.failed = err.Error(), true
	case ignored != "":
		out.Ignored = ignored
	default:
		x.change(&out, row)
	}
	return out
}

// change says what becomes of one change.
func (x *explainer) change(out *explained, row *cdc.RowChange) {
	if row.Op == cdc.Truncate {
		all := row.Emptied()
		out.Table, out.Also = all[0], all[1:]
	} else if row.Table != "" {
		out.Table = row.TableID.String()
	}
	out.Op = row.Op.String()
	var result mapping.Result
	x.set.Keys(row, &result)
	for _, k := range result.Keys {
		out.Keys = append(out.Keys, x.key(k))
	}
	for _, k := range result.Shadow {
		out.Shadow = append(out.Shadow, x.key(k))
	}
	out.Flush, out.Unflushed = poolsOf(result.Flush), poolsOf(result.Unflushed)
	for _, s := range result.Skipped {
		out.Skipped = append(out.Skipped, explainedNot{s.Template.Mapping, s.Template.Text, reason(s)})
	}
	for _, t := range result.Unmet {
		out.Conditions = append(out.Conditions, explainedCondition{t.Mapping, t.Text, t.When, "false", ""})
	}
	for _, u := range result.Undecided {
		t := u.Template
		why := fmt.Sprintf("column %s of the %s image: %s", u.Column, u.Image, u.Detail)
		out.Conditions = append(out.Conditions, explainedCondition{t.Mapping, t.Text, t.When, "undecided", why})
	}
}

func poolsOf(list []mapping.Emptied) (pools []string) {
	for _, e := range list {
		pools = append(pools, e.Pool)
	}
	return pools
}

func (x *explainer) key(k mapping.Key) explainedKey {
	t := k.Template
	return explainedKey{showKey(k.Text), t.Pool, t.Team, t.Mapping, t.Text, string(t.Action), x.copies(k)}
}

// reason begins with one of mapping's closed set of words, and says the rest for a person.
func reason(s mapping.Skip) string {
	r := string(s.Reason)
	switch {
	case s.Column != "":
		r += fmt.Sprintf(": column %s of the %s image", s.Column, s.Image)
	case s.Image != "":
		r += fmt.Sprintf(": the %s image", s.Image)
	}
	if s.Detail != "" {
		r += ": " + s.Detail
	}
	return r
}

func (x *explainer) copies(k mapping.Key) []shownCopy {
	if x.topology == nil {
		return []shownCopy{}
	}
	return showCopies(x.topology.AppendCopies(nil, k.Text, max(k.Template.Hot, x.hot.Copies(k.Text))))
}

func (c explainCmd) print(w io.Writer, out explained) error {
	if c.JSON {
		return writeJSON(w, out)
	}
	var b strings.Builder
	if at := out.Place; at != nil {
		fmt.Fprintf(&b, "%d/%d at %s: ", at.Partition, at.Offset, at.Time.Format(time.RFC3339))
	}
	switch {
	case out.Error != "" && out.Line > 0:
		fmt.Fprintf(&b, "line %d: error: %s\n", out.Line, out.Error)
	case out.Error != "":
		fmt.Fprintf(&b, "error: %s\n", out.Error)
	case out.Ignored != "":
		fmt.Fprintf(&b, "%s: ignored, %s\n", cmp.Or(out.Topic, out.Table, "a record"), out.Ignored)
	default:
		fmt.Fprintln(&b, strings.TrimSpace(strings.Join(append([]string{out.Table}, out.Also...), ", ")+" "+opName(out.Op)))
	}
	for _, k := range out.Keys {
		printKey(&b, "", k)
	}
	for _, k := range out.Shadow {
		printKey(&b, "in shadow: ", k)
	}
	for _, pool := range out.Flush {
		fmt.Fprintf(&b, "  flush pool %s: no row says which of its keys are stale\n", pool)
	}
	for _, pool := range out.Unflushed {
		fmt.Fprintf(&b, "  pool %s stays as it is: on_truncate is ignore\n", pool)
	}
	for _, s := range out.Skipped {
		fmt.Fprintf(&b, "  skipped %s (%s): %s\n", s.Template, s.Mapping, s.Reason)
	}
	for _, x := range out.Conditions {
		switch x.Result {
		case "false":
			fmt.Fprintf(&b, "  left out %s (%s): %s is false\n", x.Template, x.Mapping, x.When)
		default:
			fmt.Fprintf(&b, "  counts as true for %s (%s): %s, for it cannot be decided: %s\n", x.Template, x.Mapping, x.When, x.Reason)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func printKey(b *strings.Builder, mark string, k explainedKey) {
	from := fmt.Sprintf("%s, mapping %s: %s", k.Team, k.Mapping, k.Template)
	if k.Mapping == "" { // somebody sent it
		from = strings.TrimPrefix(k.Team+": "+k.Template, ": ")
	}
	fmt.Fprintf(b, "  %s%s %-32s %s\n", mark, k.Action, sink.Show(k.Key), from)
	for _, cp := range k.Copies {
		fmt.Fprintf(b, "      %-21s %s\n", cp.Node, sink.Show(cp.Key))
	}
}

func opName(op string) string {
	switch op {
	case "c":
		return "insert"
	case "u":
		return "update"
	case "d":
		return "delete"
	case "t":
		return "truncate"
	case "m":
		return "message"
	case "k":
		return "keys"
	case "r":
		return "snapshot row"
	case "x":
		return "tombstone"
	}
	return op
}
