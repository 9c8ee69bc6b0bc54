package memcache

import (
	"sync"
	"sync/atomic"
)

// budget is what the queues of all nodes may hold together.
type budget struct {
	limit int64        // bytes
	held  atomic.Int64 //
	low   atomic.Bool  // somebody waits for room

	mu struct {
		sync.Mutex
		room chan struct{} // closed when room appears; nil when nobody waits for it
	}
}

// waitingPart is the part, in quarters, that lanes which wait for room may fill: the rest is for Live, which does not.
const waitingPart = 3

// reserve takes size bytes, unless more than limit would be held. The first entry is taken whatever its size.
func (b *budget) reserve(size int, limit int64) bool {
	for {
		held := b.held.Load()
		if held > 0 && held+int64(size) > limit {
			return false
		}
		if b.held.CompareAndSwap(held, held+int64(size)) {
			return true
		}
	}
}

// forWaiting is the limit of the lanes that wait for room.
func (b *budget) forWaiting() int64 { return b.limit / 4 * waitingPart }

// release gives bytes back.
func (b *budget) release(size int) {
	b.held.Add(-int64(size))
	if b.low.Load() {
		b.wake()
	}
}

func (b *budget) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.room != nil {
		close(b.mu.room)
		b.mu.room = nil
	}
	b.low.Store(false)
}

// awaitRoom returns what the next release closes. Who calls it looks once more for room before waiting: a release that came
// earlier closes nothing.
func (b *budget) awaitRoom() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.room == nil {
		b.mu.room = make(chan struct{})
	}
	b.low.Store(true)
	return b.mu.room
}
