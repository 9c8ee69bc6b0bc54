package memcache

import (
	"slices"
	"strings"
	"time"

	"invalidator/sink"
)

// NodeState is what a node owes and how it answers, for metrics and status.
type NodeState struct {
	Node        string
	On          bool            // it is on the live path
	Turned      time.Time       // since when it is so
	Why         string          // why it is off; while it is on, why it last was, or empty
	Queued      int             // deletes without an answer, queued or on a socket
	QueuedBytes int             // what they hold of the bounds
	LaneBytes   [sink.Lanes]int // the same by lane
	OldestSince time.Time       // when the oldest of them was queued (on a socket, in other lanes than Live: written); zero when there is none
	LastAck     time.Time       // when a delete was last answered; zero before the first
	LastError   string          // why the latest attempt failed; empty once a later one has not
	Connected   bool            // at least one connection has had its latest answer in order
	Protocol    Protocol        // of the latest connection; Classic where the node knows no other, though Meta is configured. Empty before the first
	Acked       uint64          // deletes answered since the start, refusals included
	Retried     uint64          // deletes that had to be sent again, counted each time
}

// Nodes returns the state of every node, by address. One that nobody names is left out while it holds nothing.
func (c *Client) Nodes() []NodeState {
	var states []NodeState
	for _, n := range c.all() {
		if st := n.state(); st.Queued > 0 || n.isNamed() {
			states = append(states, st)
		}
	}
	slices.SortFunc(states, func(a, b NodeState) int { return strings.Compare(a.Node, b.Node) })
	return states
}

func (n *node) state() NodeState {
	n.mu.Lock()
	defer n.mu.Unlock()
	st := NodeState{
		Node:      n.addr,
		On:        n.mu.on,
		Turned:    n.mu.turned,
		Why:       n.mu.why,
		LastAck:   n.mu.lastAck,
		LastError: n.mu.lastError,
		Protocol:  n.mu.protocol,
		Acked:     n.mu.acked,
		Retried:   n.mu.retried,
	}
	var since int64
	older := func(t int64) {
		if t != 0 && (since == 0 || t < since) {
			since = t
		}
	}
	for i := range n.mu.lanes {
		l := &n.mu.lanes[i]
		st.Queued += l.count
		st.QueuedBytes += l.bytes
		st.LaneBytes[i] = l.bytes
		older(l.oldest())
	}
	for _, s := range n.mu.slots {
		st.Connected = st.Connected || s.connected
		older(s.oldest)
	}
	if since != 0 {
		st.OldestSince = time.Unix(0, since)
	}
	return st
}
