package pipeline

import (
	"context"
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
	window window
	later  []*change // in the order of due: all wait the same settle after an acknowledgement
	result mapping.Result
	copies []sink.Copy

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

// run takes records, issues their rounds and moves the watermark until ctx ends, or until it is drained.
func (p *partition) run(ctx context.Context) {
	defer close(p.done)
	p.w.metrics.partitions.Inc()
	defer p.w.metrics.partitions.Dec()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.settle(ctx)
		more := p.issueDue(ctx) || p.take(ctx)
		p.mark.Store(p.window.mark())
		if ctx.Err() != nil || p.draining.Load() && p.window.inFlight() == 0 {
			return
		}
		if more {
			continue
		}
		if len(p.later) > 0 {
			timer.Reset(time.Until(p.later[0].due))
		} else {
			timer.Reset(time.Hour)
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// settle moves acknowledged changes on: to their next round, or to the finished.
func (p *partition) settle(ctx context.Context) {
	p.mu.Lock()
	acked, refused := p.mu.acked, p.mu.refused
	p.mu.acked, p.mu.refused = nil, nil
	p.mu.Unlock()
	for _, r := range refused {
		rec := changelog.Record{Offset: r.c.offset, Key: []byte(r.cp.Key)}
		if p.park(ctx, rec, "refused", r.err) {
			r.c.down()
		}
	}
	now := time.Now()
	for _, c := range acked {
		p.w.observe(c, now)
		if c.round < c.rounds {
			c.due = now.Add(p.w.opts.Settle)
			p.later = append(p.later, c)
		} else {
			c.finished = true
		}
	}
}

// issueDue issues the rounds that are due, and reports whether there were any.
func (p *partition) issueDue(ctx context.Context) bool {
	n, now := 0, time.Now()
	for n < len(p.later) && !p.later[n].due.After(now) {
		if !p.issue(ctx, p.later[n], p.w.opts.Snapshots.Current()) {
			return false
		}
		n++
	}
	if n == 0 {
		return false
	}
	left := copy(p.later, p.later[n:])
	clear(p.later[left:])
	p.later = p.later[:left]
	return true
}

// take handles some of the records that wait, and reports whether it did.
func (p *partition) take(ctx context.Context) bool {
	if p.draining.Load() || p.window.inFlight() >= maxInFlight {
		return false
	}
	records := p.next()
	for i := range records {
		if !p.handle(ctx, &records[i]) {
			return false // ctx has ended: the watermark stays below this record
		}
	}
	return len(records) > 0
}

// next takes records off the pending ones.
func (p *partition) next() []changelog.Record {
	p.mu.Lock()
	n := min(len(p.mu.pending), takeAtOnce)
	out := p.mu.pending[:n:n]
	p.mu.pending = p.mu.pending[n:]
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
func recordBytes(r *changelog.Record) int { return len(r.Key) + len(r.Value) + 96 }

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

func (p *partition) issue(ctx context.Context, c *change, today *Snapshot) bool {
	copies, err := c.issue(ctx, p.w.opts.Deleter, today, p.copies)
	p.copies = copies[:0]
	p.w.metrics.copies.Add(float64(len(copies)))
	return err == nil
}
