package memcache

import (
	"context"

	"invalidator/sink"
)

// Retain says which nodes any ring record names that still counts; until it is called, all are. It is to be called with each new view. Of a node
// that nobody names the connections are closed as soon as nothing is asked of it, and once it is off nothing is sent there: who waits for a Probe
// is told a *sink.OffError then, and by each further call. A delete goes there all the same while it is on. When it is named again it
// is tried again.
func (c *Client) Retain(named func(node string) bool) {
	for _, n := range c.all() {
		n.retain(named(n.addr))
	}
}

func (n *node) retain(named bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.unnamed, n.mu.endProbes = !named, !named
	signal(n.wake) // its keeper may wait for this
}

func (n *node) isNamed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.mu.unnamed
}

// useless says that the node is on, and that nobody names it or asks anything of it.
func (n *node) useless() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.on && n.mu.unnamed && !n.asked()
}

// rest waits until there is something to send, the node is named, or it is off. It has no connection and no sender meanwhile. ok is false where
// ctx has ended.
func (n *node) rest(ctx context.Context) (ok bool) {
	for slot := range n.client.opts.ConnsPerNode {
		n.giveBack(slot, false) // taken while the senders were ended
	}
	off := n.offSignal()
	for !n.hasWork() && !n.isNamed() {
		select {
		case <-n.wake:
		case <-off:
			return true
		case <-ctx.Done():
			return false
		}
	}
	signal(n.wake) // for a sender
	return true
}

// awaitNamed waits until somebody names the node, which is off. ok is false where ctx has ended.
func (n *node) awaitNamed(ctx context.Context) (ok bool) {
	for {
		named, probes, off := n.endProbes()
		for _, w := range probes {
			w.Acked(sink.Copy{Node: n.addr}, off)
		}
		if named {
			return true
		}
		select {
		case <-n.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// endProbes takes out who waits for an answer, once after each time that somebody was to be told that nobody names the node.
func (n *node) endProbes() (named bool, probes []sink.Waiter, off *sink.OffError) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.endProbes {
		n.mu.endProbes = false
		probes, n.mu.probes = n.mu.probes, nil
	}
	return !n.mu.unnamed, probes, &sink.OffError{Node: n.addr, Why: "no ring record names it; " + n.mu.why}
}
