package memcache

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"invalidator/sink"
)

// node is one memcached: its queue, whether it is on the live path, and what is known of it. Its keeper (keeper.go) is a goroutine
// that lives as long as the client; its senders take from the queue while it is on. An entry counts against the bounds until
// it is answered, or the node goes off.
type node struct {
	addr   string
	client *Client
	log    *slog.Logger
	wake   chan struct{} // holds one signal: there is something to send

	mu struct {
		sync.Mutex
		lanes   [sink.Lanes]lane
		turn    int  // the lane that had its part of a batch last
		batches uint // that were taken
		slots   []slot
		probes  []sink.Waiter // that wait for something that is asked after them
		ping    bool          // the node idles, and an MN is due
		crowded bool          // a Backlog delete has found no room since that was last asked

		on      bool
		off     chan struct{} // closed when the node goes off; another each time that it is on
		turned  time.Time     // when it went on, or off
		back    time.Time     // when it was back on; zero: it was never off
		why     string        // why it is off, or was the last time
		stay    time.Duration // how long it stays off at least
		leaving [][]entry     // whose waiters are to be told that it is off

		unnamed   bool // no ring record names it
		endProbes bool // whoever waits for an answer is to be told so, when the node is off

		tried     int64     // the first attempt since the latest answer, Unix ns; zero: none
		answered  time.Time // when it last answered anything
		used      time.Time // when a delete or a probe was last asked for
		pace      pace
		suspects  suspects
		addrs     []netip.Addr // what the node's name was last found to have; nil: not looked up since the latest connection
		protocol  Protocol     // of the latest connection
		lastAck   time.Time
		lastError string
		logged    time.Time // when a failure was last logged
		failing   bool      // no success has been logged since
		acked     uint64
		retried   uint64
	}
}

// slot is what a node knows of one of its senders.
type slot struct {
	busy      bool    // an exchange is under way, and the node has been on since it began
	held      []entry // what of it has no answer yet; the sender's own, and read by nobody else but under the lock
	probes    []sink.Waiter
	ping      bool
	oldest    int64 // when the oldest entry of held was queued, Unix ns; zero when there is none
	connected bool
}

func (c *Client) newNode(addr string) *node {
	n := &node{addr: addr, client: c, log: c.log.With("node", addr), wake: make(chan struct{}, 1)}
	n.mu.slots = make([]slot, c.opts.ConnsPerNode)
	for l := range n.mu.lanes {
		n.mu.lanes[l].limit = c.opts.QueueBytes / lowerPart
	}
	n.mu.lanes[sink.Live].limit = c.opts.QueueBytes
	n.mu.on, n.mu.off, n.mu.turned = true, make(chan struct{}), time.Now()
	return n
}

// lowerPart is what part of Options.QueueBytes each lane but Live may hold, and what part of each batch is the lower lanes' while they wait.
const lowerPart = 8

// push queues a delete. Where there is no room it does not: it returns what is closed when there may be, or an error where the
// node is off, or goes off for it.
func (n *node) push(e *entry) (room <-chan struct{}, err error) {
	size, b := e.size(), &n.client.budget
	if e.lane == sink.Live {
		for !b.reserve(size, b.limit) {
			n.client.shed(size)
		}
	} else if !b.reserve(size, b.forWaiting()) {
		room := b.awaitRoom()
		if !b.reserve(size, b.forWaiting()) {
			return room, n.offError()
		}
	}
	used, room, err := n.enqueue(e)
	if used < size {
		b.release(size - used)
	}
	if used > 0 {
		signal(n.wake)
	}
	return room, err
}

// enqueue returns how many bytes of the bounds the entry holds: 0 where it is not queued.
func (n *node) enqueue(e *entry) (used int, room <-chan struct{}, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.mu.on {
		return 0, nil, n.offLocked()
	}
	l := &n.mu.lanes[e.lane]
	idle := n.idle()
	used, ok := l.add(e)
	switch {
	case ok && idle:
		n.mu.pace.start(time.Unix(0, e.since))
		fallthrough
	case ok:
		n.mu.used = time.Unix(0, e.since)
		return used, nil, nil
	case e.lane == sink.Live:
		n.turnOff(fmt.Sprintf("its queue is full (%d bytes)", l.limit))
		return 0, nil, n.offLocked()
	}
	n.mu.crowded = n.mu.crowded || e.lane == sink.Backlog
	return 0, l.awaitRoom(), nil
}

// idle says whether no delete is without an answer. It is called under the lock.
func (n *node) idle() bool {
	for l := range n.mu.lanes { // by index: a lane is large
		if n.mu.lanes[l].count > 0 {
			return false
		}
	}
	return true
}

// offError is nil while the node is on.
func (n *node) offError() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.on {
		return nil
	}
	return n.offLocked()
}

func (n *node) offLocked() *sink.OffError { return &sink.OffError{Node: n.addr, Why: n.mu.why} }

// probe has w told when the node has answered something that is asked from now on.
func (n *node) probe(w sink.Waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.probes = append(n.mu.probes, w)
	n.mu.used = time.Now()
	signal(n.wake)
}

// hasWork says whether a sender has something to do.
func (n *node) hasWork() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.on && (len(n.mu.probes) > 0 || n.mu.ping || n.waits())
}

// waits says whether an entry waits for a sender. It is called under the lock.
func (n *node) waits() bool {
	for l := range n.mu.lanes {
		if n.mu.lanes[l].waits() {
			return true
		}
	}
	return false
}

// batch is what a sender takes at once.
type batch struct {
	entries []entry
	refused []entry // that must not be written
	bytes   int     // of the keys of entries
	asks    bool    // a probe, or the keeper, waits for an answer too
}

func (b *batch) full(maxKeys, maxBytes int, next *entry) bool {
	return len(b.entries)+len(b.refused) >= maxKeys || len(b.entries) > 0 && b.bytes+len(next.key) > maxBytes
}

// reset lets the keys go: an idle sender holds none.
func (b *batch) reset() {
	clear(b.entries)
	clear(b.refused)
	*b = batch{entries: b.entries[:0], refused: b.refused[:0]}
}

// take puts what waits into b: up to maxKeys entries and, but for the first, maxBytes of key text. ok is false where nothing is to be
// sent. While lower lanes wait, an eighth is theirs, by turns.
func (n *node) take(slot int, b *batch, maxKeys, maxBytes int, classic bool) (ok bool) {
	ok, more := n.dequeue(slot, b, maxKeys, maxBytes, classic)
	if more {
		signal(n.wake) // for another sender
	}
	return ok
}

func (n *node) dequeue(slot int, b *batch, maxKeys, maxBytes int, classic bool) (ok, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.mu.on {
		return false, false
	}
	if turn, ok := n.lower(); ok {
		n.mu.batches++
		keys, bytes := maxKeys-maxKeys/lowerPart, maxBytes-maxBytes/lowerPart
		if maxKeys < lowerPart { // too few to be shared out: some batches are theirs
			keys = maxKeys
			if n.mu.batches%lowerPart == 0 {
				keys = 0
			}
		}
		n.fill(b, keys, bytes, classic)
		if keys < maxKeys {
			n.mu.turn = turn
			n.fillFrom(turn, b, maxKeys, maxBytes, classic)
		}
	}
	n.fill(b, maxKeys, maxBytes, classic)
	s := &n.mu.slots[slot]
	s.probes, n.mu.probes = n.mu.probes, nil
	s.ping, n.mu.ping = n.mu.ping, false
	b.asks = len(s.probes) > 0 || s.ping
	if ok = len(b.entries) > 0 || b.asks; ok {
		s.busy, s.held, s.oldest = true, b.entries, oldest(b.entries)
		n.try()
	}
	if len(b.refused) > 0 {
		n.finish(b.refused)
	}
	return ok || len(b.refused) > 0, n.waits()
}

// lower returns the lane whose turn it is, of those that wait behind another. It is called under the lock.
func (n *node) lower() (turn int, ok bool) {
	first := 0
	for first < sink.Lanes && !n.mu.lanes[first].waits() {
		first++
	}
	for i := range sink.Lanes {
		if l := (n.mu.turn + 1 + i) % sink.Lanes; l > first && n.mu.lanes[l].waits() {
			return l, true
		}
	}
	return 0, false
}

func (n *node) fill(b *batch, maxKeys, maxBytes int, classic bool) {
	for l := range n.mu.lanes {
		n.fillFrom(l, b, maxKeys, maxBytes, classic)
	}
}

// fillFrom takes of one lane. Entries of other lanes than Live have waited for room, so that their age counts from when they are
// first written.
func (n *node) fillFrom(l int, b *batch, maxKeys, maxBytes int, classic bool) {
	now := time.Now().UnixNano()
	for lane := &n.mu.lanes[l]; lane.waits(); lane.pop() {
		e := lane.first()
		if b.full(maxKeys, maxBytes, e) {
			return
		}
		if e.bad || e.base64 && classic {
			b.refused = append(b.refused, *e)
			continue
		}
		b.bytes += len(e.key)
		b.entries = append(b.entries, *e)
		if e.lane != sink.Live && !e.careful {
			b.entries[len(b.entries)-1].since = now
		}
	}
}

// finish frees the room of what was answered. It is called under the lock.
func (n *node) finish(done []entry) {
	size, deletes := 0, 0
	for i := range done {
		e := &done[i]
		n.mu.lanes[e.lane].answered(e)
		size += e.size()
		deletes += e.deletes()
	}
	n.client.budget.release(size)
	n.mu.acked += uint64(deletes)
	now := time.Now()
	n.mu.lastAck = now
	n.mu.pace.add(now, deletes, n.idle())
}

// settle notes that a sender has had answers for done, the first of what it holds. It returns false where the node has gone off
// since: their waiters are told by the keeper then. last ends the exchange; the probes that went with it are answered too then.
func (n *node) settle(slot int, done int, last bool) (probes []sink.Waiter, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &n.mu.slots[slot]
	if !s.busy {
		return nil, false
	}
	n.mu.suspects.succeeded(s.held[:done])
	n.hears(s, done)
	if last {
		probes = s.probes
		*s = s.ended()
	}
	return probes, true
}

// settleRefused is settle of one that the node refuses.
func (n *node) settleRefused(slot int) (ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &n.mu.slots[slot]
	if s.busy {
		n.hears(s, 1)
	}
	return s.busy
}

// hears notes that a sender has had answers. It is called under the lock.
func (n *node) hears(s *slot, done int) {
	n.mu.tried, n.mu.answered = 0, time.Now()
	if done > 0 {
		n.finish(s.held[:done])
		s.held = s.held[done:]
		s.oldest = oldest(s.held)
	}
}

// ended is a slot after an exchange.
func (s slot) ended() slot { return slot{connected: s.connected} }

// giveBack queues again what a sender took and had no answer for: in front, but behind all others the first entry where that
// one was answered with an error: a proxy may fail on it alone. If that is a stale mark, or compares, and the error was surely its own,
// it becomes a plain delete: a proxy may not know these.
func (n *node) giveBack(slot int, firstFailed bool) {
	n.requeue(slot, firstFailed)
	signal(n.wake) // for another sender, while this one pauses
}

func (n *node) requeue(slot int, firstFailed bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := &n.mu.slots[slot]
	if !s.busy {
		return
	}
	back := s.held
	n.mu.probes = append(s.probes, n.mu.probes...)
	n.mu.ping = n.mu.ping || s.ping
	*s = s.ended()
	n.mu.retried += uint64(len(back))
	for i := range back {
		if i == 0 && firstFailed && back[0].careful {
			back[0].plain()
		}
		back[i].again()
	}
	if firstFailed && len(back) > 0 {
		n.mu.lanes[back[0].lane].append(back[0])
		back = back[1:]
	}
	for l := range n.mu.lanes {
		var mine []entry
		for i := range back {
			if int(back[i].lane) == l {
				mine = append(mine, back[i])
			}
		}
		if mine != nil {
			n.mu.lanes[l].again = append(mine, n.mu.lanes[l].again...)
		}
	}
}

// try notes an attempt. It is called under the lock.
func (n *node) try() {
	if n.mu.tried == 0 {
		n.mu.tried = time.Now().UnixNano()
	}
}

// trying notes an attempt.
func (n *node) trying() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.try()
}

// attempted notes how a sender's latest attempt ended. It says whether the log should have it: a failure at once, then every
// logEvery; a success when it is the first after such a line.
func (n *node) attempted(slot int, err error) (log bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mu.slots[slot].connected = err == nil
	return n.noteLocked(err)
}

func (n *node) noteLocked(err error) (log bool) {
	if err == nil {
		log, n.mu.failing, n.mu.lastError = n.mu.failing, false, ""
		return log
	}
	n.mu.lastError = err.Error()
	if time.Since(n.mu.logged) < logEvery {
		return false
	}
	n.mu.logged, n.mu.failing = time.Now(), true
	return true
}
