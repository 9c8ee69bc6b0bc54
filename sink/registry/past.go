package registry

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"invalidator/sink"
)

// clocksDiffer is by how much the clocks of a cluster manager and a worker may differ.
const clocksDiffer = 15 * time.Second

// Sight is a ring record, and when a worker first had it in sight.
type Sight struct {
	Record *sink.Record
	Seen   time.Time
}

// Options are how long what was in force still counts.
type Options struct {
	MaxTTL time.Duration // the longest expiry that clients set: cache.max_ttl
	Lag    time.Duration // how long a client may take to see a new ring record, or hot key: cache.ring.lag
	// Keep writes a ring record down before it comes into force. It does not wait for long: a record that cannot be written comes into
	// force all the same. It is called by one goroutine at a time. nil: nobody keeps them.
	Keep func(Sight)
}

// stays is how long what clients placed under something lives on after it was replaced, as seen here.
func (o Options) stays() time.Duration { return o.MaxTTL + o.Lag }

// EpochError is a ring record that is not newer than the one in use, and was therefore ignored.
type EpochError struct {
	Source     string
	Epoch, Has int64 // offered, in use
}

func (e *EpochError) Error() string {
	if e.Epoch == e.Has {
		return fmt.Sprintf("%s: the record was changed but its epoch is still %d (raise the epoch with every record)", e.Source, e.Epoch)
	}
	return fmt.Sprintf("%s: epoch %d is older than %d, which is in use (publish a record of a higher epoch)", e.Source, e.Epoch, e.Has)
}

// past is the ring record in force and those before it. Its zero value has none.
type past struct {
	sights   []Sight // by epoch
	topology *sink.Topology
	former   []int64 // the epochs, besides its own, that topology knows
	gained   *gained // under these records
}

func (p *past) today() *Sight {
	if len(p.sights) == 0 {
		return nil
	}
	return &p.sights[len(p.sights)-1]
}

// check says whether a registry's record is the one in force (known), or may come into force; else why not.
func (p *past) check(source string, r *sink.Record) (known bool, err error) {
	t := p.today()
	switch {
	case t == nil || r.Epoch > t.Record.Epoch:
		return false, nil
	case r.Epoch == t.Record.Epoch && same(r, t.Record):
		return true, nil
	}
	return false, &EpochError{source, r.Epoch, t.Record.Epoch}
}

// add takes a sight of any age. Of one that is known the later time counts: what was replaced by it stays longer. It reports whether
// anything changed.
func (p *past) add(s Sight) bool {
	i, known := slices.BinarySearchFunc(p.sights, s.Record.Epoch, func(s Sight, epoch int64) int { return cmp.Compare(s.Record.Epoch, epoch) })
	if !known {
		p.sights = slices.Insert(slices.Clone(p.sights), i, s) // views have the old slice
		return true
	}
	if s.Seen.After(p.sights[i].Seen) && same(s.Record, p.sights[i].Record) {
		p.sights = slices.Clone(p.sights)
		p.sights[i].Seen = s.Seen
		return true
	}
	return false
}

// settle forgets what has expired at now, and makes the topology anew where it has to be.
func (p *past) settle(now time.Time, o Options) error {
	for len(p.sights) > 1 && !now.Before(p.sights[1].Seen.Add(o.stays())) {
		p.sights = slices.Clone(p.sights[1:])
	}
	t := p.today()
	var former []int64
	var records []*sink.Record
	for _, s := range p.sights[:len(p.sights)-1] {
		former, records = append(former, s.Record.Epoch), append(records, s.Record)
	}
	if p.topology != nil && p.topology.Record() == t.Record && slices.Equal(former, p.former) {
		return nil
	}
	topology, err := sink.NewTopology(t.Record, records...)
	if err != nil {
		return err // they were validated when they were read
	}
	p.topology, p.former, p.gained = topology, former, &gained{by: map[int64][]sink.Gain{}}
	return nil
}

// carried is until when clients that had yet to see a newer record may have carried values under one that was replaced. Where epochs were
// skipped, or nothing is known of what was before the first, a record that nobody saw may have had a previous, until the next was written.
func (p *past) carried(o Options) time.Time {
	var last time.Time
	for i, s := range p.sights {
		switch {
		case i > 0 && carries(p.sights[i-1].Record):
			last = s.Seen
		case p.unseenBefore(i):
			last = s.written()
		}
	}
	if last.IsZero() {
		return last
	}
	return last.Add(o.Lag)
}

func carries(r *sink.Record) bool { return r.Previous != nil || r.Seeding() }

// same says that two records are one: both were read, so equal ones are written alike.
func same(a, b *sink.Record) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
