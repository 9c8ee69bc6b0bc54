package memcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"invalidator/sink"
)

const (
	batchKeys  = 1024             // deletes a batch at most: their answers (NF and line end, 4 KiB) fit any socket buffer, so neither side waits for the other to read
	batchBytes = 64 << 10         // bytes of keys of a batch at most, so that a slow link finishes one within Options.Timeout
	idleAfter  = 10 * time.Second // a connection without deletes is closed: another process may wait for its place, or the node has left the ring
	logEvery   = 30 * time.Second // a node that goes on failing is logged this often
)

// link is one connection to a node, used by one goroutine.
type link interface {
	// exchange sends the batch and reads what comes back. answered says how many entries from the front were deleted or not
	// there; a nil error that all were. A *sink.RefusedError says that the next entry is refused, an *answerError that
	// the node answered it with another line. After any error the link is of no more use.
	//
	// A careful exchange asks for an answer a key. An error in one that is not leaves the whole batch unanswered.
	exchange(batch []entry, careful bool) (answered int, err error)
	close()
}

// answerError is a node's line that is neither success nor refusal.
type answerError struct{ line string }

func (e *answerError) Error() string { return fmt.Sprintf("unexpected answer %q", e.line) }

// sender carries one batch at a time from a node's queue to the node, over one connection. It holds entries only while that
// connection stands: where a node has no room for a second connection, the first carries everything.
type sender struct {
	node    *node
	slot    int // of node.mu.slots
	opts    *Options
	open    func(context.Context) (link, error)
	maxKeys int  // a batch
	classic bool // there is no base64 in what it speaks
	log     *slog.Logger

	link  link          // nil while there is none
	pause time.Duration // the last one, unless something was answered since
}

func (c *Client) newSender(n *node, slot int) *sender {
	s := &sender{node: n, slot: slot, opts: &c.opts, log: c.log.With("node", n.addr)}
	switch c.opts.Protocol {
	case Classic:
		s.maxKeys = 1 // each is its own round trip: leave the next one to whichever connection is idle first
		s.classic = true
		s.open = func(ctx context.Context) (link, error) { return newClassicLink(ctx, n.addr, c.dial, c.opts), nil }
	default:
		s.maxKeys = batchKeys
		s.open = func(ctx context.Context) (link, error) { return openMetaLink(ctx, n.addr, c.dial, c.opts.Timeout) }
	}
	return s
}

// run sends batches until ctx ends.
func (s *sender) run(ctx context.Context) {
	defer s.hangUp()
	var batch []entry
	for s.awaitWork(ctx) {
		if s.link == nil {
			signal(s.node.wake) // a sender that has its connection shall not wait for this one's
			link, err := s.open(ctx)
			if err != nil {
				s.failed(ctx, err, nil)
				continue
			}
			s.link = link
		}
		batch = s.node.take(s.slot, batch[:0], s.maxKeys, batchBytes)
		s.deliver(ctx, batch)
		clear(batch) // an idle sender holds no keys
	}
}

// awaitWork returns true when something is queued, false when ctx ends. A connection that idles for idleAfter is closed.
func (s *sender) awaitWork(ctx context.Context) bool {
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	for ctx.Err() == nil {
		if s.node.hasWork() {
			return true
		}
		select {
		case <-s.node.wake:
		case <-idle.C:
			s.hangUp()
		case <-ctx.Done():
		}
	}
	return false
}

// deliver sends the batch and tells the waiters of what was answered. The rest is queued again, to be sent carefully: a quiet
// batch's error line names no key. The connection is closed then, since answers that come late must not be taken for
// another key's.
func (s *sender) deliver(ctx context.Context, batch []entry) {
	batch = s.refuseUnsendable(batch)
	if len(batch) == 0 {
		return
	}
	answered, err := s.link.exchange(batch, slices.ContainsFunc(batch, func(e entry) bool { return e.careful }))
	if err != nil && ctx.Err() != nil {
		return // whatever the reason, nobody is to be told any more
	}
	rest := batch[answered:]
	if answered > 0 {
		s.pause = 0
		s.settle(batch[:answered], rest, "")
	}
	if err == nil {
		s.succeeded()
		return
	}
	var refused *sink.RefusedError
	if errors.As(err, &refused) {
		s.settle(rest[:1], rest[1:], refused.Answer)
		rest = rest[1:]
	}
	s.failed(ctx, err, rest)
}

// refuseUnsendable answers for the node where a key must not be written to a socket: it would be cut short, read as several
// commands, or delete another key.
func (s *sender) refuseUnsendable(batch []entry) []entry {
	good := batch[:0]
	for _, e := range batch {
		var err error
		if e.base64, err = s.check(e.key); err == nil {
			good = append(good, e)
			continue
		}
		s.settle([]entry{e}, batch, "not sent: "+err.Error())
	}
	return good
}

// check says how a key goes over the wire, or why it cannot.
func (s *sender) check(key string) (inBase64 bool, err error) {
	if inBase64, err = sink.CheckMetaKey(key); s.classic && inBase64 && err == nil {
		return false, errNotClassic
	}
	return inBase64, err
}

var errNotClassic = errors.New("the classic protocol has no way to write a space or a control byte in a key")

// settle frees the room of what was answered and tells its waiters: of success, where refusal is empty.
func (s *sender) settle(done, rest []entry, refusal string) {
	s.node.settle(s.slot, done, rest)
	for _, e := range done {
		c := sink.Copy{Node: s.node.addr, Key: e.key}
		if refusal == "" {
			e.waiter.Acked(c, nil)
		} else {
			e.waiter.Acked(c, &sink.RefusedError{Copy: c, Answer: refusal})
		}
	}
}

// succeeded notes that the whole batch was answered in order.
func (s *sender) succeeded() {
	if s.node.attempted(s.slot, nil, 0) {
		s.log.Info("node answers again")
	}
}

// failed closes the connection, gives back what had no answer, and pauses: longer each time, until something is answered.
func (s *sender) failed(ctx context.Context, err error, rest []entry) {
	s.hangUp()
	if s.node.attempted(s.slot, err, len(rest)) {
		s.log.Warn("node does not answer its deletes; they are kept and sent again", "err", err)
	}
	if len(rest) > 0 {
		var answer *answerError
		s.node.giveBack(s.slot, rest, errors.As(err, &answer))
	}
	s.pause = min(max(2*s.pause, s.opts.BackoffMin), s.opts.BackoffMax)
	timer := time.NewTimer(s.pause/2 + rand.N(s.pause/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s *sender) hangUp() {
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
}
