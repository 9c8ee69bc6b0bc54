package cdc

import "context"

// Witness is a Feeder that can tell whether a change that was handed over earlier ever happened on the server that is read now. It is
// asked from Handler.Started where a Run goes on at another server, or after a promotion, since the position was saved: a process that
// died may have handed over more than it saved, of which a failover has lost the end.
type Witness interface {
	// Undone returns what tells it of changes as decoded from our own topics: Tx and Position are set. True is also the answer where it
	// is not known: a delete too many does no harm. A nil function: nothing can be told, or nothing can be undone.
	Undone(ctx context.Context) (func(*RowChange) bool, error)
}
