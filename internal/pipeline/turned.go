package pipeline

import (
	"time"

	"invalidator/sink"
)

// NodeTurned is to be called when a node has gone off the live path, before any Probe of it is answered, and when it is back. It does
// not wait.
//
// A replica has a copier that may be late: a value that its primary took before a delete may reach it after the delete that it lost, or
// after the one that it had. And what a primary acknowledged just before it died may not have reached its replica, which is promoted later. So all
// partitions owe a node what was issued in the time before, also where no delete of theirs was lost.
func (w *Worker) NodeTurned(node string, on bool) {
	now := time.Now()
	w.mu.Lock()
	if on {
		delete(w.mu.off, node)
	} else {
		w.mu.off[node] = now
	}
	w.mu.Unlock()
	for _, p := range w.all() { // one that is assigned in between has it from mu.off too
		p.turned(node, on, now)
	}
}

// turned opens a node's debt of what was issued shortly before at, or later. One that is back has nothing to fear but a copier.
func (p *partition) turned(node string, on bool, at time.Time) {
	s := p.w.opts.Snapshots.Current()
	t := s.View.Topology
	if !t.Names(node) || on && !t.IsReplica(node) {
		return
	}
	if !on && !p.restored.IsZero() && p.restored.Before(at) && !p.w.heardSince(node, p.began) { // it may have died when the last owner did, and nobody saw that
		at = p.restored
	}
	if offset, any := p.journal.lowest(at.Add(-p.w.opts.Window)); any {
		p.journal.note(time.Now(), s, sink.Debts, offset)
		if p.ledger.owe(node, offset, at, s) {
			p.ask(node)
		}
	}
}
