package memcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"invalidator/sink"
)

const (
	batchKeys  = 1024             // deletes a batch at most: their answers (NF and line end, 4 KiB) fit any socket buffer, so neither side waits for the other to read
	batchBytes = 64 << 10         // key text of a batch at most, so that a slow link finishes one within Options.Timeout
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

// sender carries one batch at a time from a node's queue to the node, over one connection.
type sender struct {
	node    *node
	slot    int // of node.mu.slots
	opts    *Options
	open    func(context.Context) (link, error)
	maxKeys int // a batch
	log     *slog.Logger

	link  link          // nil while there is none
	pause time.Duration // the last one, unless something was answered since
}

func (c *Client) newSender(n *node, slot int) *sender {
	s := &sender{node: n, slot: slot, opts: &c.opts, log: c.log.With("node", n.addr)}
	switch c.opts.Protocol {
	case Classic:
		s.maxKeys = 1 // each is its own round trip: leave the next one to whichever connection is idle first
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
	var buf []entry
	for {
		buf = s.node.take(s.slot, buf[:0], s.maxKeys, batchBytes)
		if len(buf) == 0 {
			select {
			case <-s.node.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if !s.deliver(ctx, buf) {
			return
		}
		clear(buf) // an idle sender holds no keys
	}
}

// deliver sends the batch until every key of it has its answer. It returns false when ctx ends first.
//
// A batch that failed is sent again carefully, on a fresh connection: a quiet batch's error line names no key, and answers
// that came late must not be taken for another key's.
func (s *sender) deliver(ctx context.Context, batch []entry) bool {
	batch = s.refuseUnsendable(batch)
	for careful := false; len(batch) > 0; {
		answered, sent, err := s.attempt(ctx, batch, careful)
		if ctx.Err() != nil && err != nil {
			return false // whatever the reason, nobody is to be told of it any more
		}
		if answered > 0 {
			s.pause = 0
			s.settle(batch[:answered], batch[answered:], "")
			batch = batch[answered:]
		}
		if err == nil {
			s.succeeded()
			continue
		}
		careful = careful || sent
		s.hangUp()
		if refused := (*sink.RefusedError)(nil); errors.As(err, &refused) {
			s.settle(batch[:1], batch[1:], refused.Answer) // its waiter reports it
			batch = batch[1:]
		} else {
			s.failed(err, len(batch), sent)
			deferFirst(batch, err)
		}
		if !s.backOff(ctx) {
			return false
		}
	}
	return true
}

// deferFirst puts the key that was answered with an error behind the others: a proxy may fail on it alone.
func deferFirst(batch []entry, err error) {
	if answer := (*answerError)(nil); len(batch) > 0 && errors.As(err, &answer) {
		first := batch[0]
		copy(batch, batch[1:])
		batch[len(batch)-1] = first
	}
}

// attempt makes sure that there is a connection, and sends the batch on it.
func (s *sender) attempt(ctx context.Context, batch []entry, careful bool) (answered int, sent bool, err error) {
	if s.link == nil {
		if s.link, err = s.open(ctx); err != nil {
			s.link = nil
			return 0, false, err
		}
	}
	answered, err = s.link.exchange(batch, careful)
	return answered, true, err
}

// refuseUnsendable answers for the node where a key must not be written to a socket: it would be cut short, read as several
// commands, or delete another key.
func (s *sender) refuseUnsendable(batch []entry) []entry {
	good := batch[:0]
	for _, e := range batch {
		err := sink.CheckKey(e.key)
		if err == nil {
			good = append(good, e)
			continue
		}
		s.settle([]entry{e}, batch, "not sent: "+err.Error())
	}
	return good
}

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

// failed notes an attempt that left deletes unanswered.
func (s *sender) failed(err error, unanswered int, sent bool) {
	again := 0
	if sent {
		again = unanswered
	}
	if s.node.attempted(s.slot, err, again) {
		s.log.Warn("node does not answer its deletes; they are kept and sent again", "err", err, "unanswered", unanswered)
	}
}

// backOff pauses, longer each time until something is answered. It returns false when ctx ends first.
func (s *sender) backOff(ctx context.Context) bool {
	s.pause = min(max(2*s.pause, s.opts.BackoffMin), s.opts.BackoffMax)
	timer := time.NewTimer(s.pause/2 + rand.N(s.pause/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *sender) hangUp() {
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
}
