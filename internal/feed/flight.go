package feed

import (
	"context"
	"sync"
	"time"

	"invalidator/cdc"
)

// maxInFlight bounds the bytes of a source's records that are sent and not acknowledged: some 100 ms of a fast source.
// What a row costs beside its bytes is bounded with it by maxRecords.
const maxInFlight = 16 << 20

// maxRecords bounds their number: tables of tiny rows.
const maxRecords = 1 << 16

// flight holds what one run of a source has sent: the tracker, under a lock, and the bounds.
type flight struct {
	mu      sync.Mutex
	t       tracker
	records int
	bytes   int
	moved   time.Time // when the oldest record was last acknowledged, or the first was sent after none was under way

	// changed wakes the one goroutine that waits in reserve or drain; one token is enough, since it looks again.
	changed chan struct{}
}

func newFlight() *flight { return &flight{changed: make(chan struct{}, 1)} }

// reserve waits until a record of n bytes may be sent, and numbers it. A record above the bound goes alone.
func (f *flight) reserve(ctx context.Context, n int) (uint64, error) {
	for {
		if number, ok := f.tryReserve(n); ok {
			return number, nil
		}
		if err := f.wait(ctx); err != nil {
			return 0, err
		}
	}
}

func (f *flight) tryReserve(n int) (uint64, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.t.full() || f.records >= maxRecords || f.records > 0 && f.bytes+n > maxInFlight {
		return 0, false
	}
	if f.t.idle() {
		f.moved = time.Now()
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
	before := f.t.first
	moved := f.t.ack(number)
	if f.t.first > before {
		f.moved = time.Now()
	}
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

// load returns the bytes under way, and for how long the oldest record has waited.
func (f *flight) load() (bytes int, waited time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.t.idle() {
		waited = time.Since(f.moved)
	}
	return f.bytes, waited
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
