package pipeline

import (
	"context"
	"sync"
	"time"
)

// roomBytes is how many bytes of records may wait in all partitions of a worker when it fetches more. What is fetched at once comes on top, unpacked.
const roomBytes = 12 << 20

// Partitions that stand still hold their room, and are not fetched while they have enough: so where nothing is worked off for roomWait the others go on,
// fetch by fetch, and after roomMost in any case.
const (
	roomWait = 100 * time.Millisecond
	roomMost = time.Second
)

// room bounds the bytes of records that wait in all partitions of a worker together: more are fetched when there is room again. What waits in a
// partition that stands still (for a schema registry, for the ring, or for its end) does not count: it is bounded by itself, and holds up nobody.
type room struct {
	limit int
	mu    sync.Mutex
	bytes int
	freed uint64        // bytes since the start
	free  chan struct{} // closed when there is room again; nil: nobody waits
}

// add counts bytes that wait from now on, or, below 0, no more.
func (r *room) add(n int) {
	if n == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n < 0 {
		r.freed += uint64(-n)
	}
	if r.bytes += n; r.bytes <= r.limit && r.free != nil {
		close(r.free)
		r.free = nil
	}
}

// await waits until there is room, at most as long as something is worked off, or until ctx ends.
func (r *room) await(ctx context.Context) {
	free, freed := r.full()
	if free == nil {
		return
	}
	tick := time.NewTicker(roomWait)
	defer tick.Stop()
	for range roomMost / roomWait {
		select {
		case <-ctx.Done():
			return
		case <-free:
			return
		case <-tick.C:
		}
		was := freed
		if free, freed = r.full(); free == nil || freed == was {
			return
		}
	}
}

// full is nil while there is room, else it is closed when there is again. freed is how many bytes were worked off so far.
func (r *room) full() (free <-chan struct{}, freed uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bytes <= r.limit {
		return nil, r.freed
	}
	if r.free == nil {
		r.free = make(chan struct{})
	}
	return r.free, r.freed
}

// AwaitRoom waits for a moment while the worker has enough records.
func (w *Worker) AwaitRoom(ctx context.Context) { w.room.await(ctx) }

// weigh counts bytes of the partition that wait, or no more. It is called under p.mu.
func (p *partition) weigh(bytes int) {
	p.mu.bytes += bytes
	if !p.mu.stuck {
		p.w.room.add(bytes)
	}
}

// stick takes what waits out of the worker's room, or has it count again.
func (p *partition) stick(stuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.stuck == stuck {
		return
	}
	if p.mu.stuck = stuck; stuck {
		p.w.room.add(-p.mu.bytes)
	} else {
		p.w.room.add(p.mu.bytes)
	}
}
