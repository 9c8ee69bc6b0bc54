package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/mapping"
)

const (
	// traceAtOnce is how many partitions are read at once, each with an answer of a broker in memory (1 MiB).
	traceAtOnce = 4
	// traceRegistry is how long a schema registry is waited for; then records that need it are counted.
	traceRegistry = 10 * time.Second
)

// read goes over the log until its end as it was, or ctx's. A partition that cannot be read is told, and the others are read.
func (t *tracer) read(ctx context.Context) error {
	past, err := changelog.OpenLog(t.kafka)
	if err != nil {
		return err
	}
	defer past.Close()
	stop := t.tellProgress()
	var eg errgroup.Group
	eg.SetLimit(traceAtOnce)
	for _, p := range t.parts {
		eg.Go(func() error { t.readPart(ctx, past, p); return nil })
	}
	err = eg.Wait()
	stop()
	t.out.Read.Records = t.done.Load()
	if t.out.Read.Stopped = ctx.Err() != nil; t.out.Read.Stopped {
		t.unknown("what the rest of the log holds: the reading was stopped after %d of %d records", t.out.Read.Records, t.out.Read.Of)
	}
	return err
}

// tellProgress tells once a second, until stop is called, which waits for the last word.
func (t *tracer) tellProgress() (stop func()) {
	if t.q.Progress == nil {
		return func() {}
	}
	return inBackground(context.Background(), func(ctx context.Context) {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				t.q.Progress(t.done.Load(), t.out.Read.Of)
			}
		}
	})
}

func (t *tracer) readPart(ctx context.Context, past *changelog.Log, p *tracePart) {
	r := t.newPartReader(p)
	next := p.from
	if p.start > 0 && p.from == p.start && p.from == p.to && !p.kept {
		t.logBegins(p, t.until) // it held records, and is empty now
	}
	for next < p.to {
		err := past.Read(ctx, p.Partition, next, p.to, func(rs []changelog.Record) error {
			for i := range rs {
				if ctx.Err() != nil {
					return ctx.Err()
				}
				r.see(ctx, &rs[i])
			}
			end := rs[len(rs)-1].Offset + 1
			t.done.Add(end - next)
			next = end
			return nil
		})
		var behind *changelog.LogStartError
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			t.done.Add(p.to - next)
			return
		case errors.As(err, &behind) && behind.Start > next: // retention has overtaken us
			t.done.Add(min(behind.Start, p.to) - next)
			next, p.start, r.met = behind.Start, behind.Start, false
		default:
			t.mu.Lock()
			t.unknown("what %s holds from offset %d on: %v", p.Partition, next, err)
			t.mu.Unlock()
			return
		}
	}
}

// partReader decodes and maps one partition's records.
type partReader struct {
	t    *tracer
	p    *tracePart
	sets []*setReader
	met  bool // a record was, since the log's start
}

// setReader is one set of mappings, in room of its own.
type setReader struct {
	set       *mapping.Set
	today     bool
	low, high int64 // offsets that may have been issued under it
	decoder   *envelope.Decoder
	scratch   envelope.Scratch
	result    mapping.Result
}

func (t *tracer) newPartReader(p *tracePart) *partReader {
	r := &partReader{t: t, p: p}
	add := func(set *mapping.Set, today bool, low, high int64) {
		c := p.source.Decode
		c.Select = t.selects(set)
		d, err := envelope.NewDecoder(c)
		if err != nil { // a format that is not known, which the configuration's check has refused
			t.count("of source "+p.source.Name+" whose format is not read", err.Error())
			return
		}
		r.sets = append(r.sets, &setReader{set: set, today: today, low: low, high: high, decoder: d})
	}
	for _, set := range t.sets.today {
		add(set, true, p.from, p.to)
	}
	for _, l := range t.state.of(p.Partition, p.topicID) {
		set := t.sets.by[l.Mappings]
		if set == nil || t.sets.isToday(l.Mappings) {
			continue
		}
		i := slices.IndexFunc(r.sets, func(s *setReader) bool { return s.set == set })
		if i < 0 {
			i = len(r.sets)
			if add(set, false, l.Lanes[0].Lowest, l.Lanes[0].Highest); i == len(r.sets) {
				continue
			}
		}
		for _, lane := range l.Lanes {
			r.sets[i].low, r.sets[i].high = min(r.sets[i].low, lane.Lowest), max(r.sets[i].high, lane.Highest)
		}
	}
	return r
}

// see takes in one record, under today's mappings and those under which it may have been issued.
func (r *partReader) see(ctx context.Context, rec *changelog.Record) {
	t := r.t
	if !r.met {
		if r.met = true; r.p.start > 0 && rec.Offset >= r.p.start && r.p.from <= r.p.start && rec.Time.After(t.q.Since) {
			t.logBegins(r.p, rec.Time)
		}
	}
	var found *TraceChange
	for _, s := range r.sets {
		if rec.Offset < s.low || rec.Offset > s.high {
			continue
		}
		row, ok := r.decode(ctx, s, rec)
		if !ok {
			return
		}
		if row == nil || !t.inWindow(row.CommitTime, rec.Time) {
			continue
		}
		s.result.Reset()
		s.set.Keys(row, &s.result)
		found = r.matches(found, s, rec, row)
		if s.today {
			r.countLeftOut(s, rec, row)
		}
	}
	if found != nil {
		t.keep(found)
	}
}

// inWindow reports whether a change was committed in the window, or written in it.
func (t *tracer) inWindow(committed, written time.Time) bool {
	in := func(at time.Time) bool { return !at.IsZero() && !at.Before(t.q.Since) && !at.After(t.until) }
	return in(committed) || in(written)
}

// decode reads a record; no row is one that is no change. It is false where the record cannot be read, which is counted.
func (r *partReader) decode(ctx context.Context, s *setReader, rec *changelog.Record) (row *cdc.RowChange, ok bool) {
	in := envelope.Record{Topic: r.p.Topic, Key: rec.Key, Value: rec.Value, Headers: rec.Headers}
	where := func(err error) string { return fmt.Sprintf("%s, offset %d: %v", r.p.Partition, rec.Offset, err) }
	for waited := time.Duration(0); ; waited += time.Second {
		row, _, err := s.decoder.DecodeInto(ctx, in, &s.scratch)
		var de *envelope.DecodeError
		switch {
		case err == nil:
			return row, true
		case ctx.Err() != nil:
			return nil, false
		case !errors.As(err, &de) || !de.Retryable():
			r.t.count("of topic "+r.p.Topic+" that cannot be decoded", where(err))
			return nil, false
		case waited >= traceRegistry || r.t.isDeaf(r.p.source.Name, false):
			r.t.isDeaf(r.p.source.Name, true)
			r.t.count("of topic "+r.p.Topic+" whose schema the registry does not give", where(err))
			return nil, false
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-time.After(time.Second):
		}
	}
}

// isDeaf reports whether a source's schema registry is waited for no more; now: it is from now on.
func (t *tracer) isDeaf(source string, now bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deaf[source] = t.deaf[source] || now
	return t.deaf[source]
}

// matches adds the templates of a set that give the key.
func (r *partReader) matches(found *TraceChange, s *setReader, rec *changelog.Record, row *cdc.RowChange) *TraceChange {
	add := func(m *mapping.Template, shadow bool) {
		if found == nil {
			found = changeOf(r.p, rec, row)
		}
		found.by(m, s, shadow)
	}
	for _, k := range s.result.Keys {
		if r.t.means(k.Text) {
			add(k.Template, false)
			r.t.hotter(k.Template.Hot)
		}
	}
	for _, k := range s.result.Shadow {
		if r.t.means(k.Text) {
			add(k.Template, true)
		}
	}
	for _, e := range s.result.Flush {
		if e.Pool == r.t.pool {
			add(e.Template, false)
			found.State = TraceFlush
		}
	}
	return found
}

// changeOf keeps nothing of the record's memory.
func changeOf(p *tracePart, rec *changelog.Record, row *cdc.RowChange) *TraceChange {
	c := &TraceChange{
		Source: p.source.Name, Op: row.Op.String(), Committed: row.CommitTime, Position: row.Position, Tx: strings.Clone(row.Tx),
		Topic: p.Topic, Partition: p.Number, Offset: rec.Offset, Written: rec.Time.UTC(), By: []TraceTemplate{}, Issued: []TraceIssue{},
	}
	for _, text := range []*string{&c.Position.GTIDSet, &c.Position.ServerUUID, &c.Position.File, &c.Position.LSN, &c.Position.SystemID} {
		*text = strings.Clone(*text)
	}
	for _, h := range rec.Headers {
		switch h.Key {
		case changelog.HeaderRetried:
			c.Again = "from the dead letters, where it was " + string(h.Value)
		case changelog.HeaderReissued:
			c.Again = string(h.Value)
		}
	}
	switch {
	case row.Op == cdc.Truncate:
		c.Table = strings.Join(row.Emptied(), ", ")
	case row.Op == cdc.Keys:
		c.Sent = &TraceSent{}
		if json.Unmarshal(rec.Value, c.Sent) != nil { // they are for people: the keys are good all the same
			c.Sent = &TraceSent{}
		}
	case row.Table != "":
		c.Table = row.TableID.String()
	}
	return c
}

// by adds a template, or another set under which it gave the key.
func (c *TraceChange) by(m *mapping.Template, s *setReader, shadow bool) {
	t := TraceTemplate{Team: m.Team, Mapping: m.Mapping, Template: m.Text, Action: string(m.Action), Shadow: shadow}
	i := slices.IndexFunc(c.By, func(o TraceTemplate) bool {
		return o.Team == t.Team && o.Mapping == t.Mapping && o.Template == t.Template && o.Action == t.Action && o.Shadow == t.Shadow
	})
	if i < 0 {
		i = len(c.By)
		c.By = append(c.By, t)
	}
	if fp := s.set.Fingerprint(); !slices.Contains(c.By[i].Mappings, fp) {
		c.By[i].Mappings = append(c.By[i].Mappings, fp)
	}
	c.By[i].Today = c.By[i].Today || s.today
}

// countLeftOut notes what gave no key of the pool: which one it would have been is not known.
func (r *partReader) countLeftOut(s *setReader, rec *changelog.Record, row *cdc.RowChange) {
	where := fmt.Sprintf("%s, offset %d", r.p.Partition, rec.Offset)
	for i := range s.result.Skipped {
		k := &s.result.Skipped[i]
		if !r.t.mayGive(k.Template) || k.Reason == mapping.SkipNull || row.Op == cdc.Tomb && k.Reason == mapping.SkipAbsent {
			continue // there is no such key; the delete before the tombstone had the row
		}
		r.t.count(fmt.Sprintf("of which %s (%s) gave no key: %s", k.Template.Text, k.Template.Owner(), k.Reason), where)
	}
	for _, m := range s.result.Unmet {
		if r.t.mayGive(m) {
			r.t.count(fmt.Sprintf("for which %s (%s) says when: %s, which was false", m.Text, m.Owner(), m.When), where)
		}
	}
	for _, e := range s.result.Unflushed {
		if e.Pool == r.t.pool {
			r.t.count("that emptied a table of the pool: on_truncate is ignore there, and its keys stay until they expire", where)
		}
	}
}

// mayGive reports whether a template may give the key: it begins and ends as the key does.
func (t *tracer) mayGive(m *mapping.Template) bool {
	if m.Pool != t.pool {
		return false
	}
	begin, _, _ := strings.Cut(m.Text, "{")
	end := m.Text[strings.LastIndexByte(m.Text, '}')+1:]
	return strings.HasPrefix(t.base, begin) && strings.HasSuffix(t.base, end)
}

// hotter notes how many hot copies a template that gave the key asks for.
func (t *tracer) hotter(copies int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.most = max(t.most, copies)
}

// keep takes a change in, and lets go of the oldest where they are too many.
func (t *tracer) keep(c *TraceChange) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen = append(t.seen, c); len(t.seen) >= 2*traceChanges {
		t.trim()
	}
}

// trim puts the changes in order and keeps the newest. It is called under the lock, or when nothing is read any more.
func (t *tracer) trim() {
	slices.SortStableFunc(t.seen, byTime)
	if n := len(t.seen) - traceChanges; n > 0 {
		t.left += int64(n)
		t.seen = slices.Delete(t.seen, 0, n)
	}
}

// logBegin is how late the logs of a topic begin.
type logBegin struct {
	partitions int
	last       time.Time
}

// logBegins notes that a partition holds nothing of a part of the window.
func (t *tracer) logBegins(p *tracePart, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.begins[p.Topic]
	if b == nil {
		b = &logBegin{}
		t.begins[p.Topic] = b
	}
	if b.partitions++; at.After(b.last) {
		b.last = at
	}
}
