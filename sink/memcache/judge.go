package memcache

import (
	"fmt"
	"slices"
	"time"
)

const (
	stragglerPart = 4 // of the median: a node that answers less than this part of it is a straggler
	judgedBy      = 3 // nodes, this one included: fewer say nothing
)

// judge takes the node off where it is a straggler: of the last second in which it was busy it answered less than a quarter of
// what the median of the busy nodes did. A Backlog delete waits for its room, and all that is read with it.
func (n *node) judge(now time.Time) {
	own, known := n.rate(now)
	if known < paceWindow {
		return
	}
	var rates []float64
	for _, other := range n.client.all() {
		if rate, known := other.rate(now); known > 0 {
			rates = append(rates, rate)
		}
	}
	if len(rates) < judgedBy {
		return
	}
	slices.Sort(rates)
	if median := rates[len(rates)/2]; own*stragglerPart < median {
		n.leave(fmt.Sprintf("a backlog waits for it: it answers %.0f deletes a second, the median of the busy nodes is %.0f", own, median))
	}
}

func (n *node) rate(now time.Time) (perSecond float64, known time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.pace.rate(now)
}

// leave takes the node off, if it is on.
func (n *node) leave(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.on {
		n.turnOff(n.because(why))
	}
}

// shed makes room for size bytes: it takes the node off whose queue holds most.
func (c *Client) shed(size int) {
	c.shedding.Lock() // one after the other: the first may have made room enough
	defer c.shedding.Unlock()
	if c.budget.held.Load()+int64(size) <= c.budget.limit {
		return
	}
	var fullest *node
	most := 0
	for _, n := range c.all() {
		if held := n.held(); held > most {
			fullest, most = n, held
		}
	}
	if fullest != nil { // else what is held is on its way into a queue
		fullest.leave(fmt.Sprintf("the queues of all nodes hold their bound (%d bytes), and its own holds most", c.budget.limit))
	}
}

// held is what the node's queue holds, in bytes.
func (n *node) held() (bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for l := range n.mu.lanes {
		bytes += n.mu.lanes[l].bytes
	}
	return bytes
}
