package feed

import (
	"context"
	"sync"
	"time"

	"invalidator/cdc"
)

// maxInFlight bounds the bytes of a source's records that are sent and not acknowledged. A feeder that catches up always has so many
// under way: the fewer they are, the sooner their memory is used again, while it is still near the processor. Where a broker
// takes 10 ms to acknowledge, these are 200 MB a second, more than a source gives. What a row costs beside its bytes is
// bounded with it by maxRecords.
const maxInFlight = 2 << 20

// maxRecords bounds their number: tables of tiny rows.
const maxRecords = 1 << 16

// flight holds what one run of a source has sent: the tracker, under a lock, and the bounds.
type flight struct {
	mu      sync.Mutex
	t       tracker
	records int
	bytes   int

	// As load saw it last:
	oldest uint64
	since  time.Time // since when that is the oldest

	// changed wakes the one goroutine that waits in reserve or drain; one token is enough, since it looks again.
	changed chan struct{}
}

func newFlight() *flight { return &flight{changed: make(chan struct{}, 1)} }

// reserve waits until a record of n bytes may be sent, and numbers it. A record above the bound goes alone.
func (f *flight) reserve(ctx context.Context, n int) (number uint64, waited bool, err error) {
	for {
		if number, ok := f.tryReserve(n); ok {
			return number, waited, nil
		}
		waited = true
		if err := f.wait(ctx); err != nil {
			return 0, waited, err
		}
	}
}

func (f *flight) tryReserve(n int) (uint64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.t.full() || f.records >= maxRecords || f.records > 0 && f.bytes+n > maxInFlight {
		return 0, false
	}
	f.records++
	f.bytes += n
	return f.t.send(), true
}

// acked takes the acknowledgement of a record of n bytes. Where the safe position moved, it returns its mark.
func (f *flight) acked(number uint64, n int) (mark, bool) {
	f.mu.Lock()
	f.records--
	f.bytes -= n
	moved := f.t.ack(number)
	m := f.t.safe
	f.mu.Unlock()

	select {
	case f.changed <- struct{}{}:
	default:
	}
	return m, moved
}

func (f *flight) commit(p cdc.Position, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.t.commit(p, at)
}

// safe returns the position up to which everything is acknowledged.
func (f *flight) safe() (mark, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.t.safe, f.t.anySafe
}

// load returns the bytes under way, and for how long the oldest record has waited, as far as calls of load have seen it: it
// is called again and again, so that no clock is read for each record.
func (f *flight) load() (bytes int, waited time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.t.idle() || f.since.IsZero() || f.t.first != f.oldest {
		f.oldest, f.since = f.t.first, time.Now()
	}
	return f.bytes, time.Since(f.since)
}

// idle reports whether every record is acknowledged.
func (f *flight) idle() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.t.idle()
}

// drain waits until every record is acknowledged.
func (f *flight) drain(ctx context.Context) error {
	for {
		if f.idle() {
			return nil
		}
		if err := f.wait(ctx); err != nil {
			return err
		}
	}
}

func (f *flight) wait(ctx context.Context) error {
	select {
	case <-f.changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
