package sink

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Copy is one place that may hold a key's value.
type Copy struct {
	Node string // host:port, as the ring record writes it
	Key  string // the bytes that the node holds: key_prefix and #n included
}

// Lane is a class of deletes with a bound of its own in each node's queue. Lower lanes are served first, but each that waits gets its
// part of every batch.
type Lane uint8

// Live never waits for room: where there is none, the node leaves the live path. The others wait.
const (
	Live    Lane = iota // changes as they come
	Backlog             // live too, for a partition that is behind: nothing of it is fresh, so it may wait
	Urgent              // promotions, and debts of a shard's primary
	Debts               // other debts
	Storm               // mass updates, at their pool's pace
	Replay              // replays by hand
	Flush
	Lanes int = iota // how many there are
)

var laneNames = [Lanes]string{
	Live: "live", Backlog: "backlog", Urgent: "urgent", Debts: "debts", Storm: "storm", Replay: "replay", Flush: "flush",
}

// String is the lane's name, in records and metrics.
func (l Lane) String() string { return laneNames[l] }

// ParseLane is String's inverse.
func ParseLane(name string) (l Lane, ok bool) {
	i := slices.Index(laneNames[:], name)
	return Lane(max(i, 0)), i >= 0
}

// Waiter is told once for each copy that a Deleter took.
type Waiter interface {
	// Acked is called from a node's goroutine and must not block. A nil error: the node acknowledged (deleted, marked stale, or had
	// none).
	// A *RefusedError: the node will never take this key; the caller parks it.
	// A *OffError: the node left the live path with the delete unanswered, and nobody sends it again; the caller owes it.
	Acked(c Copy, err error)
}

// Deleter deletes copies, or marks them stale. The pipeline declares what it needs of the wire here; sink/memcache implements it.
type Deleter interface {
	// Delete queues c for its node and returns. Its error is a *OffError where the node is off the live path, which a Live delete that
	// finds no room brings about; in the other lanes it waits for room until ctx ends (its error), or the node goes off. A nil error
	// promises one call of w.Acked, unless the Deleter is closed first. An attempt that fails is made again while the node is on. A
	// delete that is already on a socket is never taken to stand for a later one; with one that is not yet written it may go as one.
	Delete(ctx context.Context, l Lane, c Copy, w Waiter) error
	// MarkStale is Delete, but leaves a copy that is there marked stale, for at most ttl: the first reader is told to refill it,
	// others may serve it meanwhile. A copy that is not there stays so. It voids every lease, as a delete does: a fill under one
	// that was taken before is refused. What cannot be marked is deleted: where a node cannot do so, and for a ttl that is not
	// within MinStale and MaxStale; parts of a second are cut off.
	MarkStale(ctx context.Context, l Lane, c Copy, ttl time.Duration, w Waiter) error
	// Probe calls w.Acked(Copy{Node: node}, nil) once, when the node has answered something that it was asked after this call: soon
	// where it is on, else when it is back. A *OffError in place of nil: it is off, and no ring record names it any more, so
	// nobody asks it on; who needs the answer calls again when one does. It may be called under the caller's locks: it neither waits nor calls back at once.
	Probe(node string, w Waiter)
}

// OffError says that a node is off the live path.
type OffError struct {
	Node string
	Why  string // its queue is full; its oldest delete is older than node.max_lag, with the latest error
}

func (e *OffError) Error() string {
	return fmt.Sprintf("node %s is off the live path: %s", e.Node, e.Why)
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

// ChangedError says that a copy holds another value than the delete was meant for: it was filled since, and stays.
type ChangedError struct {
	Copy Copy
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("key %q on node %s has changed since it was looked at: it stays", e.Copy.Key, e.Copy.Node)
}
