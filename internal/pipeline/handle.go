package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

// handle takes one record: it decodes and maps it, parks what cannot be, and issues the first round. After an error the record
// is not safe, and the watermark does not pass it: a *notYet says that it must be handled again, any other that the partition
// ends.
func (p *partition) handle(ctx context.Context, r *changelog.Record) error {
	m := p.w.metrics
	today := p.w.opts.Snapshots.Current()
	if p.decoder == nil || p.mapper != today.Mapper {
		p.mapper, p.decoder = today.Mapper, p.source.decoder(today.Mapper)
	}
	row, ignored, err := p.decode(ctx, r)
	switch {
	case retryable(err):
		return &notYet{err}
	case err != nil:
		if err := p.park(ctx, *r, "undecodable", err); err != nil {
			return err
		}
		p.live.window.take(r.Offset, nil)
		return nil
	case ignored != "":
		m.ignored.WithLabelValues(ignored).Inc()
		p.live.window.take(r.Offset, nil)
		return nil
	}
	m.changes.Inc()
	p.result.Reset()
	today.Mapper.Keys(row, &p.result)
	p.unclaimed(row, r.Offset)
	if err := p.tell(ctx, r, row); err != nil {
		return err
	}
	p.stops(r, row, p.result.Skipped, today)
	if err := p.emptied(ctx, r, row); err != nil {
		return err
	}
	now := time.Now()
	p.places.note(now, r.Offset, today, p.result.Keys)
	c := p.newChange(r, row, today, now)
	if c.keys, err = p.checked(today); err != nil {
		if err := p.park(ctx, *r, "bad_key", err); err != nil {
			return err
		}
	}
	m.keys.Add(float64(len(c.keys)))
	if c.keys = p.owesInstead(r.Offset, r.Time, row, c.keys, today); len(c.keys) == 0 {
		p.live.window.take(r.Offset, nil)
		return nil
	}
	if p.w.opts.Observer != nil {
		c.row = row
	}
	c.requests = requestsOf(c.keys, row, r.Key)
	p.live.window.take(r.Offset, c)
	return p.live.issue(ctx, c, today)
}

// newChange is a change of the live path. What is old when it is taken may wait for room at its nodes: nothing of it is fresh.
func (p *partition) newChange(r *changelog.Record, row *cdc.RowChange, today *Snapshot, now time.Time) *change {
	c := &change{t: p.live, offset: r.Offset, snapshot: today, rounds: plainRounds}
	c.age, c.timed = ageOf(row, r)
	o := &p.w.opts
	if !r.Time.IsZero() && now.Sub(r.Time) > o.MaxLag {
		c.lane = sink.Backlog
	}
	latest := now.Add(-o.Settle - lateBy)
	c.late = !r.Time.IsZero() && r.Time.Before(latest) && !row.CommitTime.IsZero() && row.CommitTime.Before(latest)
	return c
}

// decode reads a record into the partition's own memory, where it is good until the next. An observer keeps rows: it gets its own.
func (p *partition) decode(ctx context.Context, r *changelog.Record) (*cdc.RowChange, string, error) {
	rec := envelope.Record{Topic: p.id.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	if p.w.opts.Observer != nil {
		return p.decoder.DecodeContext(ctx, rec)
	}
	return p.decoder.DecodeInto(ctx, rec, &p.scratch)
}

// tell counts and names what gave no key, and what did in shadow, and parks a record with a key that is refused.
func (p *partition) tell(ctx context.Context, r *changelog.Record, row *cdc.RowChange) error {
	m, at := p.w.metrics, place{p.source.Name, row.Connector, row.TableID, p.id, r.Offset}
	var refused []error
	var kind string // of the first
	for i := range p.result.Skipped {
		s := &p.result.Skipped[i]
		m.skipped.WithLabelValues(s.Template.Pool, string(s.Reason)).Inc()
		if row.Op == cdc.Tomb && s.Reason == mapping.SkipAbsent {
			continue // a tombstone has its key alone; the delete before it had the row
		}
		p.w.reports.skip(s, at)
		if !refuses(s, row) {
			continue
		}
		if refused = append(refused, refusedKey(s, row)); len(refused) == 1 {
			kind = string(s.Reason)
		}
	}
	if len(refused) > 0 {
		if err := p.park(ctx, *r, kind, errors.Join(refused...)); err != nil {
			return err
		}
	}
	for i := range p.result.Undecided {
		u := &p.result.Undecided[i]
		m.undecided.WithLabelValues(u.Template.Pool, u.Template.Mapping).Inc()
		p.w.reports.undecided(u, at)
	}
	for _, k := range p.result.Shadow {
		m.shadow.WithLabelValues(k.Template.Pool, k.Template.Mapping).Inc()
		p.w.reports.shadow(k, at)
	}
	return nil
}

// notYet is a record that cannot be decoded for now, through no fault of its own.
type notYet struct{ err error }

func (e *notYet) Error() string { return e.err.Error() }
func (e *notYet) Unwrap() error { return e.err }

func retryable(err error) bool {
	var r interface{ Retryable() bool }
	return errors.As(err, &r) && r.Retryable()
}

// checked returns the change's own copies of the keys that memcached can hold, with the ring's prefix and the longest suffix; the
// error names those that it cannot. The keys in p.result are good for one record only.
func (p *partition) checked(s *Snapshot) ([]mapping.Key, error) {
	keys := p.result.Keys[:0]
	var bad error
	for _, k := range p.result.Keys {
		hot := max(k.Template.Hot, s.View.Hot.Copies(k.Text))
		if err := p.checkWire(longestWire(s, k.Text, hot), k.Template); err != nil {
			bad = errors.Join(bad, fmt.Errorf("mapping %s, template %s: %w", k.Template.Mapping, k.Template.Text, err))
			continue
		}
		keys = append(keys, k)
	}
	return mapping.CloneKeys(keys), bad
}

// checkWire says why no copy can be deleted under this text: memcached cannot hold it as the template's clients write keys, or the
// nodes' protocol cannot say it.
func (p *partition) checkWire(wire string, t *mapping.Template) error {
	if !t.Base64 {
		return sink.CheckKey(wire)
	}
	inBase64, err := sink.CheckMetaKey(wire)
	if inBase64 && err == nil && p.w.opts.Classic {
		return &sink.KeyError{Key: wire, Problem: "it has a space or a control byte, and the nodes are spoken to in the classic protocol, which cannot say it (cache.protocol)"}
	}
	return err
}

// longestWire is the longest text of a key on the wire. It makes no new text where there is neither a prefix nor a copy.
func longestWire(s *Snapshot, key string, hot int) string {
	wire := s.View.Topology.KeyPrefix() + key
	if hot > 0 {
		wire += "#" + strconv.Itoa(hot)
	}
	return wire
}

// refuses reports whether a skip leaves out a key that was there and is refused, rather than one that nothing gave: what memcached
// cannot hold, and what a writer sent and nobody may have sent. Of a message there is nothing else.
func refuses(s *mapping.Skip, row *cdc.RowChange) bool {
	return !s.Template.Shadow && (s.Reason == mapping.SkipBadKey || s.Reason == mapping.SkipPool || row.Op == cdc.Message)
}

// shownKey is how much of a key that a writer sent is shown, in bytes.
const shownKey = 300

func refusedKey(s *mapping.Skip, row *cdc.RowChange) error {
	if row.Op == cdc.Message {
		return fmt.Errorf("%s with the prefix %s and the key %q: %s", s.Template.Text, row.Prefix, row.Content[:min(len(row.Content), shownKey)], s.Detail)
	}
	if row.Op == cdc.Keys {
		return refusedSent(s)
	}
	column := ""
	if s.Column != "" { // it is what the key came from, and of a bad key it may be several
		column = ", column " + s.Column
	}
	return fmt.Errorf("table %s%s, mapping %s (%s:%d), template %s: %s",
		row.TableID, column, s.Template.Mapping, s.Template.File, s.Template.Line, s.Template.Text, s.Detail)
}

// How long it is until what failed is tried again.
const (
	insistMin = 100 * time.Millisecond
	insistMax = 5 * time.Second
)

// park puts a record on the dead-letter topic, and tries until it is there or ctx ends: the partition stands still rather
// than pass a record that is nowhere.
func (p *partition) park(ctx context.Context, r changelog.Record, kind string, why error) error {
	err := p.insist(ctx, r.Offset, "parking a record", func() error { return p.w.opts.Parker.ParkFrom(ctx, p.id, r, why.Error()) })
	if err != nil {
		return err
	}
	p.w.metrics.parked.WithLabelValues(kind).Inc()
	p.w.log.Warn("parked a record on the dead-letter topic", "topic", p.id.Topic, "partition", p.id.Number, "offset", r.Offset, "kind", kind,
		"why", sink.LoggedReason{Err: why, Public: "(invalidator deadletter show)"})
	return nil
}

// insist tries until it works or ctx ends, and tells of each try that fails.
func (p *partition) insist(ctx context.Context, offset int64, what string, try func() error) error {
	for backoff := insistMin; ; backoff = min(2*backoff, insistMax) {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		p.w.log.Error(what+"; nothing goes past this until it works", "topic", p.id.Topic, "partition", p.id.Number, "offset", offset, "error", err)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(backoff):
		}
	}
}
