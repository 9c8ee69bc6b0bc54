package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"invalidator/cdc/envelope"
	"invalidator/mapping"
	"invalidator/sink"
)

type explainCmd struct {
	Mappings  string `help:"The folder of mapping files." default:"mappings.d" type:"existingdir"`
	Ring      string `help:"The ring record as a JSON file; without it no copies are shown." type:"existingfile"`
	Hot       string `help:"Hot keys as a JSON file; with --ring." type:"existingfile"`
	Snapshots bool   `help:"Map the rows of snapshots (op r) too."`
	JSON      bool   `help:"One JSON object a line and record." name:"json"`
	File      string `arg:"" optional:"" default:"-" help:"Change records, one a line: the bare value, or an object with topic, key and payload. - is standard input."`
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
}

type explainedKey struct {
	Key      string      `json:"key"`
	Pool     string      `json:"pool"`
	Team     string      `json:"team"`
	Mapping  string      `json:"mapping"`
	Template string      `json:"template"`
	Action   string      `json:"action"`
	Copies   []sink.Copy `json:"copies"`
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
	x, failed, err := c.explainer(e)
	if err != nil {
		return err
	}
	in := e.stdin
	if c.File != "-" {
		f, err := os.Open(c.File)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), maxExplainLine)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		out := x.explain(line)
		failed = failed || out.Error != ""
		if err := c.print(e.stdout, out); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", c.File, err)
	}
	if failed {
		return errFailed
	}
	return nil
}

type explainer struct {
	set      *mapping.Set
	decoder  *envelope.Decoder
	topology *sink.Topology // nil without a ring
	hot      *sink.HotKeys
}

func (c explainCmd) explainer(e *env) (*explainer, bool, error) {
	set, problems, err := mapping.Load(c.Mappings)
	if err != nil {
		return nil, false, err
	}
	failed := false
	for _, p := range problems {
		fmt.Fprintln(e.stderr, p)
		failed = failed || p.Severity == mapping.SeverityError
	}
	x := &explainer{set: set}
	x.decoder, err = envelope.NewDecoder(envelope.Config{Select: set.Columns, Snapshots: c.Snapshots})
	if err != nil {
		return nil, false, err
	}
	if c.Ring != "" {
		x.topology, x.hot, err = readRing(c.Ring, c.Hot)
	} else if c.Hot != "" {
		err = fmt.Errorf("--hot needs --ring")
	}
	return x, failed, err
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

func (x *explainer) explain(line []byte) explained {
	out := explained{Keys: []explainedKey{}, Skipped: []explainedNot{}}
	rec := record(line)
	out.Topic = rec.Topic
	row, ignored, err := x.decoder.Decode(rec)
	switch {
	case err != nil:
		out.Error = err.Error()
		return out
	case ignored != "":
		out.Ignored = ignored
		return out
	}
	if row.Table != "" {
		out.Table = row.TableID.String()
	}
	out.Op = row.Op.String()
	var result mapping.Result
	x.set.Keys(row, &result)
	for _, k := range result.Keys {
		t := k.Template
		out.Keys = append(out.Keys, explainedKey{k.Text, t.Pool, t.Team, t.Mapping, t.Text, string(t.Action), x.copies(k)})
	}
	for _, s := range result.Skipped {
		out.Skipped = append(out.Skipped, explainedNot{s.Template.Mapping, s.Template.Text, reason(s)})
	}
	return out
}

// reason begins with one of mapping's closed set of words, and says the rest for a person.
func reason(s mapping.Skip) string {
	r := fmt.Sprintf("%s: column %s of the %s image", s.Reason, s.Column, s.Image)
	if s.Detail != "" {
		r += ": " + s.Detail
	}
	return r
}

func (x *explainer) copies(k mapping.Key) []sink.Copy {
	if x.topology == nil {
		return []sink.Copy{}
	}
	return x.topology.AppendCopies(nil, k.Text, max(k.Template.Hot, x.hot.Copies(k.Text)))
}

func (c explainCmd) print(w io.Writer, out explained) error {
	if c.JSON {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(out)
	}
	var b strings.Builder
	switch {
	case out.Error != "":
		fmt.Fprintf(&b, "error: %s\n", out.Error)
	case out.Ignored != "":
		fmt.Fprintf(&b, "%s: ignored, %s\n", out.Topic, out.Ignored)
	default:
		fmt.Fprintln(&b, strings.TrimSpace(out.Table+" "+opName(out.Op)))
	}
	for _, k := range out.Keys {
		fmt.Fprintf(&b, "  %s %-32s %s, mapping %s: %s\n", k.Action, k.Key, k.Team, k.Mapping, k.Template)
		for _, cp := range k.Copies {
			fmt.Fprintf(&b, "      %-21s %s\n", cp.Node, cp.Key)
		}
	}
	for _, s := range out.Skipped {
		fmt.Fprintf(&b, "  skipped %s (%s): %s\n", s.Template, s.Mapping, s.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
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
	case "r":
		return "snapshot row"
	case "x":
		return "tombstone"
	}
	return op
}
