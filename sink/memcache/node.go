package memcache

import (
	"cmp"
	"slices"
	"sync"
	"time"
	"unsafe"

	"invalidator/sink"
)

// entry is one delete, or stale mark, on its way to a node.
type entry struct {
	key     string
	waiter  sink.Waiter
	since   int64 // when it was queued, Unix ns
	careful bool  // it was on a socket before, without an answer
	base64  bool  // the key has to be sent in base64
	stale   uint8 // seconds that the item is left as stale; 0: it is deleted
}

// size is what an entry holds of a node's queue, in bytes.
func (e entry) size() int { return len(e.key) + int(unsafe.Sizeof(e)) }

// node is one memcached: its queue, and what is known of it. Its senders take from the queue; an entry counts against the
// bound until it is answered.
type node struct {
	addr  string
	limit int           // bytes
	wake  chan struct{} // holds one signal: mu.queue is not empty

	mu struct {
		sync.Mutex
		queue []entry // queue[head:] waits for a sender
		head  int
		count int           // entries without an answer, here or at a sender
		bytes int           // their size
		room  chan struct{} // closed when room appears; nil when nobody waits for it

		slots     []slot // one a sender
		lastAck   time.Time
		lastError string
		logged    time.Time // when a failure was last logged
		failing   bool      // no success has been logged since
		acked     uint64
		retried   uint64
	}
}

// slot is what a node knows of one of its senders.
type slot struct {
	oldest    int64 // when the oldest entry it holds was queued, Unix ns; zero when it holds none
	connected bool
}

// keptQueue is how many entries of room an empty queue keeps (640 KB); what an outage made it grow beyond is given back.
const keptQueue = 16384

func newNode(addr string, senders, limit int) *node {
	n := &node{addr: addr, limit: limit, wake: make(chan struct{}, 1)}
	n.mu.slots = make([]slot, senders)
	return n
}

// push queues a delete. Where the queue is full it does not, and returns a channel that is closed when there is room.
// An entry larger than the bound is taken when it is alone.
func (n *node) push(key string, stale uint8, w sink.Waiter) (full <-chan struct{}) {
	if full := n.enqueue(entry{key: key, waiter: w, since: time.Now().UnixNano(), stale: stale}); full != nil {
		return full
	}
	signal(n.wake)
	return nil
}

func (n *node) enqueue(e entry) (full <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.count > 0 && n.mu.bytes+e.size() > n.limit {
		if n.mu.room == nil {
			n.mu.room = make(chan struct{})
		}
		return n.mu.room
	}
	if len(n.mu.queue) == cap(n.mu.queue) && n.mu.head > len(n.mu.queue)/2 {
		left := copy(n.mu.queue, n.mu.queue[n.mu.head:]) // use again the room of what was taken, instead of growing
		clear(n.mu.queue[left:])
		n.mu.queue, n.mu.head = n.mu.queue[:left], 0
	}
	n.mu.queue = append(n.mu.queue, e)
	n.mu.count++
	n.mu.bytes += e.size()
	return nil
}

// take appends what is queued to batch, up to maxKeys entries and, but for the first, maxBytes of key text.
func (n *node) take(slot int, batch []entry, maxKeys, maxBytes int) []entry {
	batch, more := n.dequeue(slot, batch, maxKeys, maxBytes)
	if more {
		signal(n.wake) // for another sender
	}
	return batch
}

func (n *node) dequeue(slot int, batch []entry, maxKeys, maxBytes int) (_ []entry, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	head := n.mu.head
	for bytes := 0; head < len(n.mu.queue) && len(batch) < maxKeys; head++ {
		e := n.mu.queue[head]
		if bytes += len(e.key); bytes > maxBytes && len(batch) > 0 {
			break
		}
		batch = append(batch, e)
	}
	clear(n.mu.queue[n.mu.head:head])
	n.mu.head = head
	n.mu.slots[slot].oldest = oldest(batch)
	if head < len(n.mu.queue) {
		return batch, true
	}
	n.mu.queue, n.mu.head = n.mu.queue[:0], 0
	if cap(n.mu.queue) > keptQueue {
		n.mu.queue = nil
	}
	return batch, false
}

// hasWork says whether an entry waits for a sender.
func (n *node) hasWork() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.head < len(n.mu.queue)
}

// giveBack queues again what a sender took and had no answer for: in front, but behind all others the first entry where that
// one was answered with an error: a proxy may fail on it alone. If that is a stale mark, and the error was surely its own, it
// becomes a delete: a proxy may not know marks.
func (n *node) giveBack(slot int, batch []entry, firstFailed bool) {
	if firstFailed && batch[0].careful {
		batch[0].stale = 0
	}
	for i := range batch {
		batch[i].careful = true
	}
	n.requeue(slot, batch, firstFailed)
	signal(n.wake) // for another sender, while this one pauses
}

func (n *node) requeue(slot int, batch []entry, firstFailed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.slots[slot].oldest = 0
	if firstFailed {
		n.mu.queue = append(n.mu.queue, batch[0])
		batch = batch[1:]
	}
	n.mu.queue = slices.Insert(n.mu.queue, n.mu.head, batch...)
}

// settle notes that a sender has had answers for done, and is left with rest.
func (n *node) settle(slot int, done, rest []entry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range done {
		n.mu.bytes -= e.size()
	}
	n.mu.count -= len(done)
	n.mu.acked += uint64(len(done))
	n.mu.lastAck = time.Now()
	n.mu.slots[slot].oldest = oldest(rest)
	if n.mu.room != nil {
		close(n.mu.room)
		n.mu.room = nil
	}
}

// attempted notes how a sender's latest attempt ended, and how many deletes have to be sent again. It says whether the log
// should have it: a failure at once, then every logEvery; a success when it is the first after such a line.
func (n *node) attempted(slot int, err error, again int) (log bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.slots[slot].connected = err == nil
	n.mu.retried += uint64(again)
	if err == nil {
		log, n.mu.failing, n.mu.lastError = n.mu.failing, false, ""
		return log
	}
	n.mu.lastError = err.Error()
	if time.Since(n.mu.logged) < logEvery {
		return false
	}
	n.mu.logged, n.mu.failing = time.Now(), true
	return true
}

// oldest returns when the oldest entry was queued, in Unix ns; zero when there is none. What was sent again is no
// longer in order.
func oldest(batch []entry) int64 {
	if len(batch) == 0 {
		return 0
	}
	return slices.MinFunc(batch, func(a, b entry) int { return cmp.Compare(a.since, b.since) }).since
}

func (n *node) state() NodeState {
	n.mu.Lock()
	defer n.mu.Unlock()
	st := NodeState{
		Node:        n.addr,
		Queued:      n.mu.count,
		QueuedBytes: n.mu.bytes,
		LastAck:     n.mu.lastAck,
		LastError:   n.mu.lastError,
		Acked:       n.mu.acked,
		Retried:     n.mu.retried,
	}
	since := oldest(n.mu.queue[n.mu.head:])
	for _, s := range n.mu.slots {
		st.Connected = st.Connected || s.connected
		if s.oldest != 0 && (since == 0 || s.oldest < since) {
			since = s.oldest
		}
	}
	if since != 0 {
		st.OldestSince = time.Unix(0, since)
	}
	return st
}
