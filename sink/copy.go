package sink

import (
	"context"
	"fmt"
	"time"
)

// Copy is one place that may hold a key's value.
type Copy struct {
	Node string // host:port, as the ring record writes it
	Key  string // the bytes that the node holds: key_prefix and #n included
}

// Waiter is told once for each copy that a Deleter took.
type Waiter interface {
	// Acked is called from a node's goroutine and must not block. A nil error: the node acknowledged (deleted, marked stale, or had
	// none).
	// A *RefusedError: the node will never take this key; the caller parks it.
	Acked(c Copy, err error)
}

// Deleter deletes copies, or marks them stale. The pipeline declares what it needs of the wire here; sink/memcache implements it.
type Deleter interface {
	// Delete queues c for its node and returns; it waits only while that node's queue is full, until ctx ends. A nil error
	// promises one call of w.Acked, unless the Deleter is closed first. A node that does not answer is tried again with
	// back-off until it does; a delete that is already on a socket is never taken to stand for a later one.
	Delete(ctx context.Context, c Copy, w Waiter) error
	// MarkStale is Delete, but leaves a copy that is there marked stale, for at most ttl: the first reader is told to refill it,
	// others may serve it meanwhile. A copy that is not there stays so. It voids every lease, as a delete does: a fill under one
	// that was taken before is refused. What cannot be marked is deleted: where a node cannot do so, and for a ttl that is not
	// within MinStale and MaxStale; parts of a second are cut off.
	MarkStale(ctx context.Context, c Copy, ttl time.Duration, w Waiter) error
}

// The bounds of how long a stale copy is left. None at all would be an item that never expires; and what is stale for longer than
// a reader takes to refill it only hides that nobody does.
const (
	MinStale = time.Second
	MaxStale = time.Minute
)

// RefusedError is a node's answer that no retry can change: the key itself is refused.
type RefusedError struct {
	Copy   Copy
	Answer string // the node's line
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("node %s refuses key %q: %s", e.Copy.Node, e.Copy.Key, e.Answer)
}
