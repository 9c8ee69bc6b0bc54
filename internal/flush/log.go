package flush

import (
	"context"
	"time"

	"invalidator/replay"
	"invalidator/sink"
)

// WorkName is the work whose partition's owner conducts: changelog.WorkPartition of it.
const WorkName = "flush"

// Asked is a request to flush, as the control topic has it.
type Asked struct {
	replay.Request
	Offset    int64
	Taken     time.Time // when the broker took it
	Cancelled string    // who has cancelled it; empty: nobody
	Paused    bool
}

// Begun is a job, as the control topic has it.
type Begun struct {
	replay.Job
	Offset int64
	Taken  time.Time
}

// Log is what a conductor reads and writes, for one of its terms. Its methods are called by one goroutine. After an error the term ends, and the next one opens another Log.
type Log interface {
	// Orders are the requests to flush and the jobs that the control topic has, in its order, the first of each id. They are as of Open, or later: what Write has
	// appended may be missing for some seconds.
	Orders() (requests []Asked, jobs []Begun)
	// Changed is closed when Orders may be others. Take it before Orders.
	Changed() <-chan struct{}
	// Past hands over what the status topic says since a time: each replay.Progress of a job, and each replay.Result, in order.
	Past(ctx context.Context, since time.Time, each func(replay.Record)) error
	// Write appends a replay.Job to the control topic, a replay.Progress or replay.Result to the status topic. A nil error: every in-sync replica has it. After any
	// other it is not known whether it was written.
	Write(ctx context.Context, r replay.Record) error
	Close()
}

// Nodes is what a conductor needs of the wire. sink/memcache implements it.
type Nodes interface {
	// Stats asks a node for its figures. Its error is a *sink.NoDumpError where what answers can never be dumped; any other is about this attempt.
	Stats(ctx context.Context, node string) (sink.NodeStats, error)
	// Mark stores an item under key and returns its CAS value: what was written before has a lower one. 0: nothing can be compared there.
	Mark(ctx context.Context, node, key string) (cas uint64, err error)
	// Dump calls f for every key that the node holds. f must not wait for anything. The error is nil only after a clean end; else a *sink.BusyError, a *sink.NoDumpError, a
	// *sink.VoidError, or another about this attempt. It returns soon after ctx has ended.
	Dump(ctx context.Context, node string, f func(key []byte, cas uint64)) error
	// DeleteIf deletes a copy in lane sink.Flush, or marks it stale for staleFor where that is not 0, if it still has that CAS value (0: whatever it has). w is told as by
	// sink.Deleter.Delete, and a *sink.ChangedError where the copy has another value, and stays.
	DeleteIf(ctx context.Context, c sink.Copy, cas uint64, staleFor time.Duration, w sink.Waiter) error
}
