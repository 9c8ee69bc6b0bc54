package registry

import (
	"log/slog"
	"sync"
	"sync/atomic"
)

// board is where a watcher puts its views up: the part of Watcher that all of them share.
type board struct {
	log   *slog.Logger
	view  atomic.Pointer[View]
	ready chan struct{} // closed with the first view

	mu      sync.Mutex
	changed chan struct{} // guarded by mu; closed and replaced with each view
}

func newBoard(log *slog.Logger) *board {
	return &board{log: log, ready: make(chan struct{}), changed: make(chan struct{})}
}

func (b *board) Ready() <-chan struct{} { return b.ready }

func (b *board) View() *View { return b.view.Load() }

func (b *board) Changed() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// publish is called by the watcher's Run alone.
func (b *board) publish(v View) {
	old := b.view.Swap(&v)
	if old == nil || old.Topology.Epoch() != v.Topology.Epoch() {
		b.log.Info("registry: a ring record is in use", "epoch", v.Topology.Epoch(), "nodes", len(v.Topology.Nodes()),
			"resizing", v.Topology.HasPrevious())
	}
	if old == nil {
		close(b.ready)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.changed)
	b.changed = make(chan struct{})
}
