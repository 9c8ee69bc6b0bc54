package memcache

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"invalidator/sink"
)

const (
	watchEvery  = time.Second      // a node is looked at this often at least; an idle one is asked for an MN
	watchMin    = time.Minute      // so long after it was last spoken to, at least
	againWithin = time.Minute      // a node that goes off again so soon after it was back stays off for a while
	stayMin     = time.Second      // which is this the first time, doubled by each further one
	stayMax     = 30 * time.Second // up to this
)

// run leads the node until ctx ends: its senders while it is on, unless nobody needs it; when it has gone off, what is to be told, and the
// attempts to reach it again.
func (n *node) run(ctx context.Context) {
	on, cancel := context.WithCancel(ctx)
	for first := link(nil); ; {
		n.serve(on, first, cancel)
		if ctx.Err() != nil {
			return
		}
		if n.offError() == nil {
			if !n.rest(ctx) {
				return
			}
			first = nil
			on, cancel = context.WithCancel(ctx)
			continue
		}
		n.tellOff()
		on, cancel = context.WithCancel(ctx) // of the next time that it is on, and of the connection that proves it
		var ok bool
		if first, ok = n.prove(on); !ok {
			cancel()
			return
		}
		n.turnOn()
		n.log.Info("node is back on the live path")
		n.client.tellTurned(n.addr, true)
	}
}

// serve runs the senders until the node goes off, is of no use, or ctx ends, and returns when they have ended: whatever was answered was
// told. It ends ctx, and so every connection.
// first is a connection that stands, for one of them; nil: there is none.
func (n *node) serve(ctx context.Context, first link, cancel context.CancelFunc) {
	var running sync.WaitGroup
	for i := range n.client.opts.ConnsPerNode {
		s := n.client.newSender(n, i)
		if i == 0 {
			s.link = first
		}
		running.Go(func() { s.run(ctx) })
	}
	if name := hostName(n.addr); name != "" {
		running.Go(func() { n.resolve(ctx, name) })
	}
	n.watch(ctx)
	cancel()
	running.Wait()
}

// watch takes the node off the live path where it must leave it, and returns when it is off, of no use, or ctx has ended.
func (n *node) watch(ctx context.Context) {
	off := n.offSignal()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		next, crowded := n.check(now)
		if crowded {
			n.judge(now)
		}
		if n.useless() {
			return
		}
		timer.Reset(next)
		select {
		case <-off:
			return
		case <-ctx.Done():
			return
		case <-timer.C:
		}
	}
}

func (n *node) offSignal() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.off
}

// check takes the node off where something is overdue, and asks for an MN where one is due. It returns when to look again: what is
// queued after now is not overdue before that. crowded says that a Backlog delete waits for room, or did.
func (n *node) check(now time.Time) (next time.Duration, crowded bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.mu.on {
		return watchEvery, false
	}
	lag := n.client.opts.MaxLag
	next = min(lag, watchEvery)
	overdue := func(since int64, what string) {
		left := time.Unix(0, since).Add(lag).Sub(now)
		switch {
		case since == 0 || !n.mu.on:
		case left > 0:
			next = min(next, left)
		default:
			n.turnOff(n.because(what))
		}
	}
	overdue(n.oldestLive(), fmt.Sprintf("its oldest delete is older than %s", lag))
	if n.asked() {
		overdue(n.mu.tried, fmt.Sprintf("it has answered nothing for %s", lag))
	} else {
		n.mu.tried = 0
	}
	if n.idle() {
		for l := range n.mu.lanes {
			n.mu.lanes[l].trim()
		}
	}
	if n.mu.on && !n.mu.unnamed && n.idle() && now.Sub(n.mu.used) < n.client.opts.Watch && now.Sub(n.mu.answered) >= watchEvery/2 {
		n.mu.ping = true
		signal(n.wake)
	}
	crowded = n.mu.crowded || n.mu.lanes[sink.Backlog].room != nil
	n.mu.crowded = false
	return next, crowded
}

// because is a reason with the latest error. It is called under the lock.
func (n *node) because(what string) string {
	if n.mu.lastError == "" {
		return what
	}
	return what + "; the latest error: " + n.mu.lastError
}

// oldestLive is when the oldest delete of Live, or on a socket, was queued, Unix ns; 0: there is none. It is called under the lock.
func (n *node) oldestLive() int64 {
	since := n.mu.lanes[sink.Live].oldest()
	for i := range n.mu.slots {
		if t := n.mu.slots[i].oldest; t != 0 && (since == 0 || t < since) {
			since = t
		}
	}
	return since
}

// asked says whether anything waits for an answer. It is called under the lock.
func (n *node) asked() bool {
	return !n.idle() || len(n.mu.probes) > 0 || n.mu.ping ||
		slices.ContainsFunc(n.mu.slots, func(s slot) bool { return s.busy })
}

// turnOff takes the node off the live path, with all that waits. It is called under the lock; the keeper tells the waiters.
func (n *node) turnOff(why string) {
	now := time.Now()
	n.mu.stay = stayFor(n.mu.stay, n.mu.back, now)
	n.mu.on, n.mu.why, n.mu.turned = false, why, now
	held := 0
	leave := func(entries []entry) {
		if len(entries) > 0 {
			n.mu.leaving = append(n.mu.leaving, entries)
		}
	}
	for l := range n.mu.lanes {
		held += n.mu.lanes[l].bytes
		again, queue := n.mu.lanes[l].empty()
		leave(again)
		leave(queue)
	}
	for i := range n.mu.slots {
		s := &n.mu.slots[i]
		leave(slices.Clone(s.held)) // the sender uses its own again
		n.mu.probes = append(s.probes, n.mu.probes...)
		*s = slot{}
	}
	n.mu.ping, n.mu.crowded, n.mu.tried = false, false, 0
	n.mu.pace = pace{}
	n.client.budget.release(held) // which wakes who waits there to delete here, though nothing was held
	close(n.mu.off)
}

// stayFor is how long a node stays off at least that goes off now, was back at that time (zero: it was never off), and stayed off for last before.
func stayFor(last time.Duration, back, now time.Time) time.Duration {
	if back.IsZero() || now.Sub(back) >= againWithin {
		return 0
	}
	return min(max(2*last, stayMin), stayMax)
}

// tellOff tells everybody that the node is off.
func (n *node) tellOff() {
	leaving, off := n.takeLeaving()
	deletes := 0
	for _, entries := range leaving {
		for i := range entries {
			deletes += entries[i].deletes()
			entries[i].tell(n.addr, off)
		}
	}
	n.log.Warn("node is off the live path; what is not deleted there is owed", "why", off.Why, "deletes", deletes)
	n.client.tellTurned(n.addr, false)
}

func (n *node) takeLeaving() ([][]entry, *sink.OffError) {
	n.mu.Lock()
	defer n.mu.Unlock()
	leaving := n.mu.leaving
	n.mu.leaving = nil
	return leaving, n.offLocked()
}

// prove connects until an MN is answered, but not before the node has been off for as long as it must, nor while nobody names it. Its
// connection is the first sender's. ok is false where ctx has ended.
func (n *node) prove(ctx context.Context) (_ link, ok bool) {
	if !sleep(ctx, n.stayLeft()) {
		return nil, false
	}
	opts := &n.client.opts
	for pause := opts.BackoffMin; ; pause = min(2*pause, opts.BackoffMax) {
		if !n.awaitNamed(ctx) {
			return nil, false
		}
		l, err := n.connect(ctx)
		if err == nil {
			return l, true
		}
		if ctx.Err() != nil {
			return nil, false
		}
		if n.proved(err) {
			n.log.Warn("node is still off the live path", "err", err)
		}
		if !sleep(ctx, jitter(pause)) {
			return nil, false
		}
	}
}

func (n *node) stayLeft() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Until(n.mu.turned.Add(n.mu.stay))
}

func (n *node) proved(err error) (log bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.noteLocked(err)
}

// turnOn puts the node back on the live path. Everybody was told that it was off.
func (n *node) turnOn() {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	n.mu.on, n.mu.off, n.mu.turned, n.mu.back = true, make(chan struct{}), now, now
	n.mu.answered, n.mu.failing, n.mu.lastError = now, false, ""
	if len(n.mu.probes) > 0 {
		signal(n.wake)
	}
}

// sleep returns true after d, false when ctx ends.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// jitter draws a pause from its upper half.
func jitter(pause time.Duration) time.Duration { return pause/2 + rand.N(pause/2+1) }
