package page

import (
	"context"
	"net/url"
	"strings"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/mapping"
	"invalidator/sink"
)

// play is what was typed into the playground, and what it gives.
type play struct {
	Table, Before, After string // a row
	Record               string // or a change record, in JSON
	File                 string // a mapping text, beside those in force

	Asked    bool
	Wrong    string
	Problems []mapping.Problem // of the text
	Changes  []mapping.Change  // between what is in force and the text
	Keys     []playKey
	Skipped  []string
	Ignored  string // why the change is none
}

type playKey struct {
	Key, Pool, Team, Mapping, Template, Action string
	Copies                                     []copyView
}

// playTimeout bounds the decoding of what was typed.
const playTimeout = 2 * time.Second

func (p *Page) play(form url.Values) *play {
	y := &play{Table: strings.TrimSpace(form.Get("table")), Before: form.Get("before"), After: form.Get("after"), Record: form.Get("record"), File: form.Get("file")}
	if y.Asked = len(form) > 0; !y.Asked {
		return y
	}
	var today *mapping.Set
	if p.s.Mappings != nil {
		today = p.s.Mappings()
	}
	if today == nil {
		y.Wrong = "this process has no mappings in force: ask a worker's page"
		return y
	}
	set := y.set(today)
	if set == nil {
		return y
	}
	row, err := y.row(set)
	switch {
	case err != nil:
		y.Wrong = err.Error()
		return y
	case row == nil:
		return y
	}
	var result mapping.Result
	set.Keys(row, &result)
	for _, k := range result.Keys {
		t := k.Template
		y.Keys = append(y.Keys, playKey{sink.Show(k.Text), t.Pool, t.Team, t.Mapping, t.Text, string(t.Action), p.copies(k)})
	}
	for i := range result.Skipped {
		y.Skipped = append(y.Skipped, result.Skipped[i].String())
	}
	for i := range result.Undecided {
		y.Skipped = append(y.Skipped, "counts as true: "+result.Undecided[i].String())
	}
	return y
}

// set is what is in force, with the text that was typed in place of the file of the same team; nil: the text is no file.
func (y *play) set(today *mapping.Set) *mapping.Set {
	if strings.TrimSpace(y.File) == "" {
		return today
	}
	typed, problems := mapping.Parse("playground.yaml", []byte(y.File))
	y.Problems = problems
	if typed == nil {
		return nil
	}
	files := []*mapping.File{}
	for _, f := range today.Files() {
		if f.Team != typed.Team {
			files = append(files, f)
		}
	}
	set, problems := mapping.NewSet(append(files, typed))
	y.Problems = append(y.Problems, problems...)
	y.Changes = mapping.Diff(today, set)
	for _, problem := range set.Lint() {
		if problem.File == typed.Name {
			y.Problems = append(y.Problems, problem)
		}
	}
	return set
}

// row is the change that was typed; nil: none, or one that is no change.
func (y *play) row(set *mapping.Set) (*cdc.RowChange, error) {
	if record := strings.TrimSpace(y.Record); record != "" {
		d, err := envelope.NewDecoder(envelope.Config{Format: envelope.Auto, Select: set.Columns})
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), playTimeout)
		defer cancel()
		row, ignored, err := d.DecodeContext(ctx, envelope.Record{Value: []byte(record)})
		y.Ignored = ignored
		return row, err
	}
	if y.Table == "" {
		return nil, nil
	}
	return mapping.ParseRow(y.Table, y.Before, y.After)
}

func (p *Page) copies(k mapping.Key) (out []copyView) {
	if p.s.View == nil || p.s.View() == nil {
		return nil
	}
	v := p.s.View()
	for _, c := range v.Topology.AppendCopies(nil, k.Text, max(k.Template.Hot, v.Hot.Copies(k.Text))) {
		out = append(out, copyView{Node: c.Node, Key: sink.Show(c.Key)})
	}
	return out
}
