package registry

import (
	"context"
	"time"

	"invalidator/sink"
)

// View is one consistent sight of the registry. Immutable.
type View struct {
	Topology  *sink.Topology
	Hot       *sink.HotKeys // never nil; empty where there are none
	Confirmed time.Time     // when the source last confirmed that this is current (etcd: watch progress; file: last read)
}

// Watcher follows one source of ring and hot keys.
type Watcher interface {
	// Run blocks until ctx ends. It returns an error only when the first View cannot be had for a reason that waiting does
	// not mend (a broken file at start); an unreachable etcd is waited for, and reported.
	Run(ctx context.Context) error
	// Ready is closed when View may be called.
	Ready() <-chan struct{}
	// View is the last good view; a single atomic load.
	View() *View
}
