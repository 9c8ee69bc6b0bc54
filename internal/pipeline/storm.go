package pipeline

import (
	"cmp"
	"sync/atomic"
	"time"

	"invalidator/cdc"
	"invalidator/mapping"
	"invalidator/sink"
)

// defaultPace is taken where Options.Storm has none.
const defaultPace = 5000

// smallRows is how many rows of a transaction draw on the part of a pool's rate that is kept for small ones.
const smallRows = 16

// storms are the settings of all pools under one set of mappings.
type storms struct {
	mapper  mapping.Mapper
	own     map[string]mapping.Storm // of pools that have some
	fleet   mapping.Storm            // of all others
	least   int64                    // no row that stands before this in its transaction is a storm's by that; -1: none is
	limited bool                     // some pool has a rate
}

// hasStorms is a Mapper whose pools may have settings of their own.
type hasStorms interface {
	Storms(fleet mapping.Storm) map[string]mapping.Storm
}

func stormsOf(m mapping.Mapper, fleet mapping.Storm) *storms {
	fleet.Pace, fleet.Lane = cmp.Or(fleet.Pace, defaultPace), cmp.Or(fleet.Lane, mapping.LaneStorm)
	s := &storms{mapper: m, fleet: fleet, least: -1}
	if own, ok := m.(hasStorms); ok {
		s.own = own.Storms(fleet)
	}
	s.see(fleet)
	for _, o := range s.own {
		s.see(o)
	}
	return s
}

func (s *storms) see(o mapping.Storm) {
	if rows := int64(o.Rows); rows > 0 && (s.least < 0 || rows < s.least) {
		s.least = rows
	}
	s.limited = s.limited || o.Rate > 0
}

func (s *storms) of(pool string) mapping.Storm {
	if o, ok := s.own[pool]; ok {
		return o
	}
	return s.fleet
}

// storms are today's settings. Any goroutine may ask.
func (w *Worker) storms() *storms {
	m := w.opts.Snapshots.Current().Mapper
	if s := w.weather.Load(); s != nil && s.mapper == m {
		return s
	}
	s := stormsOf(m, w.opts.Storm)
	w.weather.Store(s)
	return s
}

// weather keeps the last storms.
type weather = atomic.Pointer[storms]

// share is a partition's part of a rate of the fleet.
func (w *Worker) share(pool string, fleet int) float64 {
	of := 1
	if w.opts.Shares != nil {
		of = max(w.opts.Shares(pool), 1)
	}
	return float64(fleet) / float64(of)
}

// stormLane is the lane of a pool's storm.
func (w *Worker) stormLane(pool string) sink.Lane {
	switch w.storms().of(pool).Lane {
	case mapping.LaneDebts:
		return sink.Debts
	case mapping.LaneReplay:
		return sink.Replay
	}
	return sink.Storm
}

// sorter says of each key of the live path whether it is deleted now, or owed by its pool. It is the partition's goroutine's.
type sorter struct {
	tx      []byte // the last record's transaction
	row     int64  // how many of it were met here, less one
	buckets map[string]*bucket
	pools   []sorted // of one record
}

type sorted struct {
	pool string
	kind string // KindStorm or KindPool: its keys are owed; empty: they are issued
}

// place is a row's place in its transaction, from 0, or a lower bound of it: where the record does not say it, the rows of the transaction
// that came one after another are counted.
func (s *sorter) place(row *cdc.RowChange) int64 {
	if row.Tx == "" || row.Tx != string(s.tx) {
		s.tx, s.row = append(s.tx[:0], row.Tx...), 0
	} else {
		s.row++
	}
	return max(row.Ordinal, s.row)
}

// owesInstead takes out those of a record's keys that are not issued now, after the debt of their pool has its offset.
func (p *partition) owesInstead(offset int64, written time.Time, row *cdc.RowChange, keys []mapping.Key, today *Snapshot) []mapping.Key {
	s, storms, held := &p.sorter, p.w.storms(), p.w.held.Load()
	place := s.place(row)
	if len(*held) == 0 && !storms.limited && (storms.least < 0 || place < storms.least) {
		return keys
	}
	if written.IsZero() {
		written = time.Now()
	}
	s.pools = s.pools[:0]
	kept := keys[:0]
	for i, k := range keys {
		pool := k.Template.Pool
		kind, met := "", false
		for _, o := range s.pools {
			if met = o.pool == pool; met {
				kind = o.kind
				break
			}
		}
		if !met {
			kind = p.sort(storms.of(pool), pool, place, written, keysOf(keys[i:], pool), *held)
			s.pools = append(s.pools, sorted{pool, kind})
			p.putOff(kind, pool, offset, written, today)
		}
		if kind == "" {
			kept = append(kept, k)
			continue
		}
		p.w.metrics.deferred.WithLabelValues(pool, kind).Inc()
	}
	return kept
}

// keysOf counts the keys of a pool.
func keysOf(keys []mapping.Key, pool string) (n int) {
	for i := range keys {
		if keys[i].Template.Pool == pool {
			n++
		}
	}
	return n
}

// sort says what owes n keys of a pool of one row; empty: nothing does.
func (p *partition) sort(o mapping.Storm, pool string, place int64, written time.Time, n int, held held) string {
	if o.Rows > 0 && place >= int64(o.Rows) {
		return KindStorm
	}
	if o.Rate > 0 {
		b := p.sorter.buckets[pool]
		if b == nil {
			b = &bucket{}
			if p.sorter.buckets == nil {
				p.sorter.buckets = map[string]*bucket{}
			}
			p.sorter.buckets[pool] = b
		}
		if !b.take(written, p.w.share(pool, o.Rate), place < smallRows, float64(n)) {
			return KindStorm
		}
	}
	if _, is := held[pool]; is {
		return KindPool
	}
	return ""
}

// putOff has a pool owe an offset, before the record is taken.
func (p *partition) putOff(kind, pool string, offset int64, written time.Time, today *Snapshot) {
	lane := sink.Debts
	switch kind {
	case "":
		return
	case KindStorm:
		lane = sink.Storm
		p.ledger.stretch(pool, offset, written, today)
	case KindPool:
		p.ledger.openAt(debtID{KindPool, pool}, offset, written, "", today)
	}
	p.journal.note(time.Now(), today, lane, offset) // it would have been issued under this
}

// bucket is what a pool may have deleted at once in one partition: two token buckets, of which one is for small transactions and is filled
// first. Each holds half a second of the rate. Its clock is that of the records.
type bucket struct {
	small, large float64
	at           time.Time
}

// take reports whether n keys may go now. What is left of either may be overdrawn once, so that a row with many keys is no storm by itself.
func (b *bucket) take(at time.Time, rate float64, small bool, n float64) bool {
	half := max(rate/2, 1)
	if b.at.IsZero() {
		b.at, b.small, b.large = at, half, half
	}
	if d := at.Sub(b.at); d > 0 {
		b.at = at
		more := rate * d.Seconds()
		filled := min(b.small+more, half)
		b.large = min(b.large+more-(filled-b.small), half)
		b.small = filled
	}
	switch {
	case small && b.small > 0:
		b.small -= n
	case b.large > 0:
		b.large -= n
	default:
		return false
	}
	return true
}

// pacer paces the passes over one pool's storm in one partition, one after another. A pass that has used its part up rests until there is
// enough to read the log again for. It is used by the goroutine that leads the pass.
type pacer struct {
	w      *Worker
	pool   string
	tokens float64
	at     time.Time
	rests  bool
}

const (
	// readFor is how many keys a pass rests for at least, so that it does not fetch a megabyte for each.
	readFor = 64
	// restMost is how long it rests before it looks whether the pace is another.
	restMost = time.Second
)

// ready reports whether the next record may be issued.
func (p *pacer) ready() bool {
	rate, now := p.rate(), time.Now()
	full := max(rate, readFor)
	if p.at.IsZero() {
		p.tokens = rate
	} else {
		p.tokens = min(p.tokens+rate*now.Sub(p.at).Seconds(), full)
	}
	p.at = now
	if p.rests {
		p.rests = p.tokens < full-1e-6
	} else {
		p.rests = p.tokens <= 0
	}
	return !p.rests
}

// until is when it is to be asked again.
func (p *pacer) until() time.Time {
	rate := p.rate()
	wait := (max(rate, readFor) - p.tokens) / rate
	return time.Now().Add(min(time.Duration(wait*float64(time.Second))+time.Millisecond, restMost))
}

func (p *pacer) spend(keys int) { p.tokens -= float64(keys) }

func (p *pacer) rate() float64 { return p.w.share(p.pool, max(p.w.storms().of(p.pool).Pace, 1)) }
