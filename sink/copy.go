package sink

import (
	"context"
	"fmt"
)

// Copy is one place that may hold a key's value.
type Copy struct {
	Node string `json:"node"` // host:port, as the ring record writes it
	Key  string `json:"key"`  // the text on the wire: key_prefix and #n included
}

// Waiter is told once for each copy that a Deleter took.
type Waiter interface {
	// Acked is called from a node's goroutine and must not block. A nil error: the node acknowledged (deleted, or had none).
	// A *RefusedError: the node will never take this key; the caller parks it.
	Acked(c Copy, err error)
}

// Deleter deletes copies. The pipeline declares what it needs of the wire here; sink/memcache implements it.
type Deleter interface {
	// Delete queues c for its node and returns; it waits only while that node's queue is full, until ctx ends. A nil error
	// promises one call of w.Acked, unless the Deleter is closed first. A node that does not answer is tried again with
	// back-off until it does; a delete that is already on a socket is never taken to stand for a later one.
	Delete(ctx context.Context, c Copy, w Waiter) error
}

// RefusedError is a node's answer that no retry can change: the key itself is refused.
type RefusedError struct {
	Copy   Copy
	Answer string // the node's line
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("node %s refuses key %q: %s", e.Copy.Node, e.Copy.Key, e.Answer)
}
