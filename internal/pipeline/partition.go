package pipeline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

const (
	// maxInFlight bounds the changes that one partition holds, most of them waiting out settle: at 1 s of settle it is also
	// the most changes a second of one partition. A change with its keys takes some 300 bytes, so 10 MB a partition.
	maxInFlight = 32 << 10
	// takeAtOnce bounds the records taken between two looks at what was acknowledged.
	takeAtOnce = 512
	// A partition's fetches stop above pauseBytes of records that wait, and go on below resumeBytes.
	pauseBytes  = 2 << 20
	resumeBytes = 1 << 20
)

// partition is one partition's goroutine and what it shares with the group's poll loop and with the nodes' goroutines.
type partition struct {
	id      changelog.Partition
	source  *Source
	w       *Worker
	decoder *envelope.Decoder
	mapper  mapping.Mapper // of decoder

	// The goroutine's own.
	window  window
	later   queue     // in the order of due: all wait the same settle after an acknowledgement
	acked   []*change // what settle took last, for its room
	owed    refreshes
	scratch envelope.Scratch
	result  mapping.Result
	copies  []sink.Copy
	retry   time.Time     // no record is taken before: the first that waits could not be decoded
	pause   time.Duration // between the last two tries
	waits   waiting

	mark     atomic.Int64  // the watermark
	draining atomic.Bool   // take no more records
	wake     chan struct{} // 1: something below changed
	cancel   context.CancelFunc
	done     chan struct{} // closed when run has returned

	mu struct { // guards what other goroutines add to
		sync.Mutex
		pending []changelog.Record
		bytes   int // of pending
		paused  bool
		acked   []*change
		refused []refusal
		written []request // or not: their err says
	}
}

type refusal struct {
	c   *change
	cp  sink.Copy
	err error
}

func newPartition(w *Worker, s *Source, id changelog.Partition, start int64) *partition {
	p := &partition{id: id, source: s, w: w, wake: make(chan struct{}, 1), done: make(chan struct{})}
	p.window.next = start
	p.mark.Store(start)
	return p
}

// run takes records, issues their rounds and moves the watermark until ctx ends, until it is drained, or until the nodes' client
// is closed: then no acknowledgement comes any more.
func (p *partition) run(ctx context.Context) {
	defer close(p.done)
	p.w.metrics.partitions.Inc()
	defer p.w.metrics.partitions.Dec()
	defer p.ended()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.settle(ctx)
		more, err := p.step(ctx)
		p.mark.Store(p.window.mark())
		if err != nil || ctx.Err() != nil || p.draining.Load() && p.window.inFlight() == 0 {
			return
		}
		if more {
			continue
		}
		timer.Reset(p.idle())
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// idle is how long there is nothing to do, if nothing comes.
func (p *partition) idle() time.Duration {
	d := time.Hour
	if p.later.len() > 0 {
		d = time.Until(p.later.front().due)
	}
	if !p.retry.IsZero() && !p.closed() { // what opens it rouses the partition
		d = min(d, time.Until(p.retry))
	}
	if len(p.owed.failed) > 0 {
		d = min(d, time.Until(p.owed.again))
	}
	return d
}

// step issues the rounds that are due or, where none is, takes records. It reports whether there was anything to do; after an error
// what it was doing is not safe, and the watermark never passes it.
func (p *partition) step(ctx context.Context) (more bool, err error) {
	if more, err = p.issueDue(ctx); more || err != nil {
		return more, err
	}
	return p.take(ctx)
}

// settle moves acknowledged changes on: to their next round, to their refresh requests, or to the finished.
func (p *partition) settle(ctx context.Context) {
	p.mu.Lock()
	acked, refused, written := p.mu.acked, p.mu.refused, p.mu.written
	p.mu.acked, p.mu.refused, p.mu.written = p.acked[:0], nil, nil
	p.mu.Unlock()
	for _, r := range refused {
		rec := changelog.Record{Offset: r.c.offset, Key: []byte(r.cp.Key)}
		if p.park(ctx, rec, "refused", r.err) == nil {
			r.c.down()
		}
	}
	now := time.Now()
	for _, c := range acked {
		p.w.observe(c, now)
		switch {
		case c.round < c.rounds:
			c.due = now.Add(p.w.opts.Settle)
			p.later.push(c)
		case len(c.requests) > 0:
			p.askFor(ctx, c)
		default:
			c.finished = true
		}
	}
	clear(acked)
	p.acked = acked
	for _, r := range written {
		p.answered(r)
	}
	p.askAgain(ctx)
}

// issueDue issues the rounds that are due, and reports whether there were any.
func (p *partition) issueDue(ctx context.Context) (any bool, err error) {
	for now := time.Now(); p.later.len() > 0 && !p.later.front().due.After(now); any = true {
		c := p.later.front()
		p.later.pop()
		if err := p.issue(ctx, c, p.w.opts.Snapshots.Current()); err != nil {
			return true, err
		}
	}
	return any, nil
}

// closed reports whether no record may be taken until something is acknowledged, or ever.
func (p *partition) closed() bool { return p.draining.Load() || p.window.inFlight() >= maxInFlight }

// take handles some of the records that wait, and reports whether it did.
func (p *partition) take(ctx context.Context) (any bool, err error) {
	if p.closed() || time.Now().Before(p.retry) {
		return false, nil
	}
	p.retry = time.Time{}
	records := p.next()
	defer clear(records) // they lie in the room of what waits
	defer p.scratch.Reset()
	for i := range records {
		err := p.handle(ctx, &records[i])
		var not *notYet
		if errors.As(err, &not) {
			p.wait(records[i:], not)
			return false, nil
		}
		if err != nil {
			return true, err
		}
		p.pause = 0
		p.goesOn()
	}
	return len(records) > 0, nil
}

// next takes records off the pending ones.
func (p *partition) next() []changelog.Record {
	p.mu.Lock()
	n := min(len(p.mu.pending), takeAtOnce)
	out := p.mu.pending[:n:n]
	if p.mu.pending = p.mu.pending[n:]; len(p.mu.pending) == 0 {
		p.mu.pending = nil
	}
	for i := range out {
		p.mu.bytes -= recordBytes(&out[i])
	}
	resume := p.mu.paused && p.mu.bytes < resumeBytes
	if resume {
		p.mu.paused = false
	}
	p.mu.Unlock()
	if resume {
		p.w.group.Resume(p.id)
	}
	return out
}

// add is called by the group's poll loop.
func (p *partition) add(rs []changelog.Record) {
	p.mu.Lock()
	p.mu.pending = append(p.mu.pending, rs...)
	for i := range rs {
		p.mu.bytes += recordBytes(&rs[i])
	}
	pause := !p.mu.paused && p.mu.bytes > pauseBytes
	if pause {
		p.mu.paused = true
	}
	p.mu.Unlock()
	if pause {
		p.w.group.Pause(p.id)
	}
	p.rouse()
}

// recordBytes is what a record weighs in memory: its bytes and some for itself, so that empty ones are bounded too.
func recordBytes(r *changelog.Record) int {
	n := len(r.Key) + len(r.Value) + 96
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value) + 40
	}
	return n
}

func (p *partition) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// acknowledged is called when the last copy of a round is, mostly from a node's goroutine.
func (p *partition) acknowledged(c *change) {
	p.mu.Lock()
	p.mu.acked = append(p.mu.acked, c)
	p.mu.Unlock()
	p.rouse()
}

// refuse is called from a node's goroutine.
func (p *partition) refuse(c *change, cp sink.Copy, err error) {
	p.mu.Lock()
	p.mu.refused = append(p.mu.refused, refusal{c, cp, err})
	p.mu.Unlock()
	p.rouse()
}

func (p *partition) issue(ctx context.Context, c *change, today *Snapshot) error {
	copies, err := c.issue(ctx, p.w.opts.Deleter, today, p.copies)
	p.copies = copies[:0]
	p.w.metrics.copies.Add(float64(len(copies)))
	return err
}
