package memcache

import (
	"time"
	"unsafe"

	"invalidator/sink"
)

// entry is one delete, or stale mark, on its way to a node.
type entry struct {
	key     string
	waiter  sink.Waiter
	also    *joined // the waiters of deletes that go as this one
	since   int64   // when it was queued, and in other lanes than Live first written, Unix ns
	joined  uint32  // how many also are
	lane    sink.Lane
	stale   uint8 // seconds that the item is left as stale; 0: it is deleted
	careful bool  // it was on a socket before, without an answer
	base64  bool  // the key has to be sent in base64
	bad     bool  // no command can carry the key

	compares bool // waiter is its comparison: another CAS value's item stays
}

// joined is one more waiter of an entry.
type joined struct {
	waiter sink.Waiter
	next   *joined
}

// What an entry and a further waiter hold of a node's queue, in bytes, beside the key.
const (
	entrySize  = int(unsafe.Sizeof(entry{}))
	joinedSize = int(unsafe.Sizeof(joined{}))
)

func newEntry(l sink.Lane, key string, stale uint8, w sink.Waiter) entry {
	e := entry{key: key, waiter: w, lane: l, stale: stale, since: time.Now().UnixNano()}
	var err error
	e.base64, err = sink.CheckMetaKey(key)
	e.bad = err != nil
	return e
}

// staleSeconds is for how long an item is left as stale; 0: it is deleted.
func staleSeconds(ttl time.Duration) uint8 {
	if ttl < sink.MinStale || ttl > sink.MaxStale {
		return 0
	}
	return uint8(ttl / time.Second)
}

// size is what an entry holds of a node's queue, in bytes.
func (e *entry) size() int {
	size := len(e.key) + entrySize + int(e.joined)*joinedSize
	if e.compares {
		size += comparisonSize
	}
	return size
}

// deletes is how many deletes go as this one.
func (e *entry) deletes() int { return 1 + int(e.joined) }

// join lets a later delete of the same copy go as this one, which is not written yet. A mark and a delete are a delete, of two
// marks the shorter counts.
func (e *entry) join(later *entry) {
	e.also = &joined{waiter: later.waiter, next: e.also}
	e.joined++
	e.stale = min(e.stale, later.stale) // a delete's is 0
}

// tell calls every waiter.
func (e *entry) tell(node string, err error) {
	c := sink.Copy{Node: node, Key: e.key}
	e.waiter.Acked(c, err)
	for j := e.also; j != nil; j = j.next {
		j.waiter.Acked(c, err)
	}
}

// refuse tells every waiter that the key will never be taken.
func (e *entry) refuse(node, answer string) {
	e.tell(node, &sink.RefusedError{Copy: sink.Copy{Node: node, Key: e.key}, Answer: answer})
}
