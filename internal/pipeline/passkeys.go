package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

// ErrNoMappings is a set of mappings that stands nowhere any more.
var ErrNoMappings = errors.New("this set of mappings stands nowhere any more")

// Archive gives the sets of mappings that were in force.
type Archive interface {
	// Mapper gives a set by its fingerprint. It may wait for a broker. An error that wraps ErrNoMappings: nobody has it; any other: it is to
	// be asked again. It is called from several goroutines.
	Mapper(ctx context.Context, fingerprint string) (mapping.Mapper, error)
}

// reader maps records under one set of mappings, in room of its own.
type reader struct {
	mapper  mapping.Mapper
	decoder *envelope.Decoder
	scratch envelope.Scratch
	result  mapping.Result
}

func newReader(s *Source, m mapping.Mapper) *reader { return &reader{mapper: m, decoder: s.decoder(m)} }

// readers are of today's mappings, and of those under which the journal says that offsets of a pass were issued.
type readers struct {
	today  *reader
	issued []issued
	by     map[string]*reader // by fingerprint; nil: nobody has that set
	now    []*reader          // of one record
}

// newReaders asks for the sets. What was issued under one that nobody has cannot be mapped: a gap.
func (ps *pass) newReaders(ctx context.Context) (*readers, error) {
	today := ps.p.w.opts.Snapshots.Current().Mapper
	rs := &readers{today: newReader(ps.p.source, today), issued: ps.p.journal.mappings(ps.from, ps.to), by: map[string]*reader{}}
	for _, set := range rs.issued {
		if _, have := rs.by[set.mappings]; have || set.mappings == today.Fingerprint() {
			continue
		}
		m, err := ps.p.w.opts.Archive.Mapper(ctx, set.mappings)
		switch {
		case errors.Is(err, ErrNoMappings):
			if err := ps.lostSet(ctx, rs.issued, set.mappings); err != nil {
				return nil, err
			}
			rs.by[set.mappings] = nil
		case err != nil:
			return nil, fmt.Errorf("asking for the mappings %s: %w", set.mappings, err)
		default:
			rs.by[set.mappings] = newReader(ps.p.source, m)
		}
	}
	return rs, nil
}

// lostSet makes durable that what was issued under a set cannot be issued again. A pass that is tried again, and the next one, meet the same
// loss: it is recorded once, since each time may be a flush of its pools.
func (ps *pass) lostSet(ctx context.Context, sets []issued, mappings string) error {
	lost := issued{lowest: math.MaxInt64, highest: -1, mappings: mappings}
	for _, s := range sets {
		if s.mappings == mappings {
			lost.lowest, lost.highest = min(lost.lowest, max(s.lowest, ps.from)), max(lost.highest, min(s.highest, ps.to-1))
		}
	}
	if ps.id.kind == payReplays {
		ps.taken[0].counts.lost += ps.spans.in(lost.lowest, lost.highest+1)
		return nil
	}
	l := &ps.p.lost
	l.Lock()
	defer l.Unlock()
	if had, ok := l.sets[mappings]; ok && had.lowest <= lost.lowest && lost.highest <= had.highest {
		return nil
	}
	err := ps.p.gap(ctx, changelog.Loss{Partition: ps.p.id, From: lost.lowest, To: lost.highest + 1,
		Why: "what was issued under the mappings " + mappings + " cannot be issued again: that set stands nowhere any more"})
	if err != nil {
		return err
	}
	if had, ok := l.sets[mappings]; ok {
		lost.lowest, lost.highest = min(lost.lowest, had.lowest), max(lost.highest, had.highest)
	}
	if l.sets == nil {
		l.sets = map[string]issued{}
	}
	l.sets[mappings] = lost
	return nil
}

// lostSets are the sets of mappings that stand nowhere any more, and what of a partition was recorded as lost with them. It is locked over the
// recording: two passes may meet the same.
type lostSets struct {
	sync.Mutex
	sets map[string]issued // by fingerprint
}

// at gives the readers for a record: today's first.
func (rs *readers) at(s *Source, offset int64, today mapping.Mapper) []*reader {
	if rs.today.mapper != today {
		rs.by[rs.today.mapper.Fingerprint()] = rs.today
		rs.today = newReader(s, today)
	}
	rs.now = append(rs.now[:0], rs.today)
	for _, set := range rs.issued {
		if offset < set.lowest || offset > set.highest || set.mappings == today.Fingerprint() {
			continue
		}
		if r := rs.by[set.mappings]; r != nil && !slices.Contains(rs.now, r) {
			rs.now = append(rs.now, r)
		}
	}
	return rs.now
}

// handle issues the first round of what a record owes under the pass's debts.
func (ps *pass) handle(ctx context.Context, r *changelog.Record) error {
	if !slices.ContainsFunc(ps.taken, func(d debt) bool { return d.has(r.Offset) }) {
		ps.track.window.take(r.Offset, nil)
		return nil
	}
	today := ps.p.w.opts.Snapshots.Current()
	readers := ps.readers.at(ps.p.source, r.Offset, today.Mapper)
	if ps.stayed(r, readers, today) {
		ps.track.window.take(r.Offset, nil)
		return nil
	}
	c := &change{t: ps.track, offset: r.Offset, snapshot: today, rounds: plainRounds, lane: sink.Lane(sink.Lanes)}
	if ps.pacer != nil {
		c.stale = ps.p.w.storms().of(ps.id.of).Stale
	}
	for _, rd := range readers {
		row, err := ps.decode(ctx, rd, r)
		if err != nil {
			return err
		}
		if row == nil {
			continue
		}
		rd.result.Reset()
		rd.mapper.Keys(row, &rd.result)
		if rd == ps.readers.today {
			ps.stillStopped(r, row, rd.result.Skipped, today)
		}
		c.age, c.timed = ageOf(row, r)
		own := mapping.CloneKeys(ps.owed(c, row, rd.result.Keys, r.Time))
		c.keys = append(c.keys, own...)
		c.requests = append(c.requests, requestsOf(own, row, r.Key)...)
	}
	if len(c.keys) == 0 || ps.dry {
		ps.track.window.take(r.Offset, nil)
		return nil
	}
	ps.spare--
	if ps.pacer != nil {
		ps.pacer.spend(len(c.keys))
	}
	ps.track.window.take(r.Offset, c)
	return ps.track.issue(ctx, c, today)
}

// decode reads a record; nil is one that is no change, or that was parked when it was met first. A schema's registry that is away is waited
// for, and the rounds of what was issued go on.
func (ps *pass) decode(ctx context.Context, rd *reader, r *changelog.Record) (*cdc.RowChange, error) {
	rec := envelope.Record{Topic: ps.p.id.Topic, Key: r.Key, Value: r.Value, Headers: r.Headers}
	for pause := time.Duration(0); ; {
		row, ignored, err := rd.decoder.DecodeInto(ctx, rec, &rd.scratch)
		switch {
		case err == nil && ignored == "":
			return row, nil
		case !retryable(err):
			if err != nil {
				ps.p.w.metrics.undecodable.Inc()
			}
			return nil, ctx.Err()
		}
		if pause == 0 {
			ps.p.w.log.Error("waiting for the schema registry: what is owed from here on is not paid until this record can be decoded",
				"source", ps.p.source.Name, "topic", ps.p.id.Topic, "partition", ps.p.id.Number, "offset", r.Offset, "error", err)
		}
		pause = min(max(2*pause, retryMin), retryMax)
		ps.leave()
		if err := ps.wait(ctx, time.Now().Add(pause), never); err != nil {
			return nil, err
		}
		if err := ps.enter(ctx); err != nil {
			return nil, err
		}
	}
}

// owed keeps those of a record's keys that are issued: a debt that the pass took covers one of their copies, and no other pass reaches
// them all. c's lane becomes the highest of theirs.
func (ps *pass) owed(c *change, row *cdc.RowChange, keys []mapping.Key, written time.Time) []mapping.Key {
	today, kept := c.snapshot, keys[:0]
	for _, k := range keys {
		if slices.ContainsFunc(c.keys, func(o mapping.Key) bool {
			return o.Text == k.Text && o.Template.StaleFor == k.Template.StaleFor && o.Template.Action == k.Template.Action && o.Template.Hot >= k.Template.Hot
		}) {
			continue // another set of mappings gave it too, with no fewer copies
		}
		hot := max(k.Template.Hot, today.View.Hot.Copies(k.Text))
		if ps.p.checkWire(longestWire(today, k.Text, hot), k.Template) != nil {
			continue // no node can hold it
		}
		ps.copies = today.View.Topology.AppendCopies(ps.copies[:0], k.Text, hot)
		lane, rank := sink.Lane(sink.Lanes), -1
		ps.again = ps.again[:0]
		for i := range ps.taken {
			d := &ps.taken[i]
			if !ps.covers(d, c, row, &k, hot, written) {
				continue
			}
			lane, rank = min(lane, ps.p.w.laneOf(d, today.View.Topology)), max(rank, d.rank())
			if d.again() {
				ps.again = append(ps.again, &d.counts)
			}
		}
		if rank < 0 {
			continue
		}
		if ps.leaves(rank, c.offset, &k, written, today) {
			ps.countOwed()
			continue
		}
		ps.count(len(ps.copies))
		c.lane = min(c.lane, lane)
		kept = append(kept, k)
	}
	return kept
}

// covers reports whether a debt that it took has the delete of a key, whose copies are ps.copies.
func (ps *pass) covers(d *debt, c *change, row *cdc.RowChange, k *mapping.Key, hot int, written time.Time) bool {
	switch d.kind {
	case KindNode:
		return d.coversCopy(c.offset, ps.copies)
	case KindEpoch:
		return d.has(c.offset) && d.moves.moved(k.Text, hot)
	case KindReplay:
		return d.has(c.offset) && d.target(k, ps.copies, hot, row, c.offset, written, c.snapshot)
	}
	return d.covers(c.offset, k)
}

// leaves reports whether a key is not issued here, since another pass reaches all its copies, or its pool is paused and owes it now.
func (ps *pass) leaves(rank int, offset int64, k *mapping.Key, written time.Time, today *Snapshot) bool {
	if ps.p.ledger.left(rank, offset, k) {
		return true
	}
	if ps.pacer != nil || !ps.p.w.holds(k.Template.Pool) {
		return false
	}
	// It was paused meanwhile, or its debt begins later.
	if !ps.dry && ps.p.ledger.openAt(debtID{KindPool, k.Template.Pool}, offset, written, "", today) {
		rouse(ps.p.wake)
	}
	return true
}

// count counts a key that is issued, or would be, for the debts of what is done again that cover it.
func (ps *pass) count(copies int) {
	for _, n := range ps.again {
		n.keys++
		n.copies += int64(copies)
	}
	if len(ps.again) > 0 && !ps.dry {
		ps.p.w.metrics.again.WithLabelValues(ps.taken[0].kind).Inc()
	}
}

func (ps *pass) countOwed() {
	for _, n := range ps.again {
		n.owed++
	}
}
