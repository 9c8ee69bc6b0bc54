package feed

import (
	"sync"
	"time"

	"invalidator/internal/changelog"
)

const (
	// maxPooled bounds the memory of a parcel that is kept for reuse, in bytes: a rare large row must not stay.
	maxPooled = 64 << 10

	// firstMemory is what a parcel begins with: a row of some columns.
	firstMemory = 1 << 10
)

// parcel is a record on its way. It is used again once it is acknowledged.
type parcel struct {
	out    changelog.Outgoing
	table  *table
	number uint64 // by flight
	memory []byte // that the record is encoded into
}

// fill puts a record into the parcel that was encoded into its memory, or outgrew it and brings its own.
func (p *parcel) fill(t *table, key, value []byte) {
	p.table = t
	p.out.Topic, p.out.Key, p.out.Value = t.topic, key, value
	if p.size() > cap(p.memory) {
		p.memory = value[:0]
	}
}

func (p *parcel) size() int { return len(p.out.Key) + len(p.out.Value) }

// parcels are those of one run that nobody uses. Its goroutine takes, and the producer's give back.
type parcels struct {
	sent func(*parcel, error) // what each parcel's answer goes to

	own []*parcel // of the goroutine that takes

	mu   sync.Mutex
	back []*parcel
}

// take gives a parcel that is not on its way. The lock is taken once for all that came back since.
func (p *parcels) take() *parcel {
	if len(p.own) == 0 {
		p.mu.Lock()
		p.own, p.back = p.back, p.own
		p.mu.Unlock()
	}
	if n := len(p.own) - 1; n >= 0 {
		x := p.own[n]
		p.own[n], p.own = nil, p.own[:n]
		return x
	}
	x := &parcel{memory: make([]byte, 0, firstMemory)}
	x.out.Done = func(err error) { p.sent(x, err) }
	return x
}

// giveBack takes a parcel whose record is acknowledged.
func (p *parcels) giveBack(x *parcel) {
	if cap(x.memory) > maxPooled {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.back) < maxSpare {
		p.back = append(p.back, x)
	}
}

// maxSpare bounds the parcels that came back and wait: some megabytes.
const maxSpare = 1 << 12

// clockChanges is how many changes of a transaction share a reading of the clock, which costs as much as writing a small row.
const clockChanges = 16

// clock tells when a change is handled. It is read for each transaction, after each wait, and after some changes.
type clock struct {
	at   time.Time
	left int
}

func (c *clock) now() time.Time {
	if c.left == 0 {
		c.at, c.left = time.Now(), clockChanges
	}
	c.left--
	return c.at
}

// stop makes the next call of now read the clock.
func (c *clock) stop() { c.left = 0 }
