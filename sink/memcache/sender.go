package memcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"invalidator/sink"
)

const (
	batchKeys  = 1024             // deletes a batch at most: their answers (NF and line end, 4 KiB) fit any socket buffer, so neither side waits for the other to read
	batchBytes = 64 << 10         // bytes of keys of a batch at most, so that a slow link finishes one within Options.Timeout
	idleAfter  = time.Minute      // a connection without deletes is closed: another process may wait for its place, or the node has left the ring
	logEvery   = 30 * time.Second // a node that goes on failing is logged this often
)

// link is one connection to a node, used by one goroutine.
type link interface {
	// exchange sends the batch and reads what comes back. answered says how many entries from the front were deleted or not
	// there; a nil error that all were. A *sink.RefusedError says that the next entry is refused, an *answerError that
	// the node answered it with another line. After any error the link is of no more use.
	//
	// A careful exchange asks for an answer a key. An error in one that is not leaves the whole batch unanswered. An empty batch asks
	// whether the node answers.
	exchange(batch []entry, careful bool) (answered int, err error)
	classic() bool      // there is no base64 in what it speaks, and one entry is a round trip
	remote() netip.Addr // the address that it leads to; the zero Addr: not known
	close()
}

// answerError is a node's line that is neither success nor refusal.
type answerError struct{ line string }

func (e *answerError) Error() string { return fmt.Sprintf("unexpected answer %q", e.line) }

// sender carries one batch at a time from a node's queue to the node, over one connection, while the node is on. It holds entries
// only while that connection stands: where a node has no room for a second connection, the first carries everything.
type sender struct {
	node *node
	slot int // of node.mu.slots
	opts *Options
	open func(context.Context) (link, error)
	log  *slog.Logger

	link  link          // nil while there is none
	used  time.Time     // when it last carried a delete
	pause time.Duration // the last one, unless something was answered since
}

func (c *Client) newSender(n *node, slot int) *sender {
	return &sender{node: n, slot: slot, opts: &c.opts, log: n.log, open: func(ctx context.Context) (link, error) {
		return n.connect(ctx)
	}}
}

// run sends batches until ctx ends.
func (s *sender) run(ctx context.Context) {
	defer s.hangUp()
	var b batch
	for s.used = time.Now(); s.awaitWork(ctx); {
		if s.link != nil && s.node.moved(s.link.remote()) {
			s.hangUp()
		}
		if s.link == nil {
			signal(s.node.wake) // a sender that has its connection shall not wait for this one's
			s.node.trying()
			link, err := s.open(ctx)
			if err != nil {
				if ctx.Err() == nil {
					s.failed(ctx, err)
				}
				continue
			}
			s.link = link
			s.used = time.Now()
		}
		maxKeys, classic := batchKeys, s.link.classic()
		if classic {
			maxKeys = 1 // each is its own round trip: leave the next one to whichever connection is idle first
		}
		if s.node.take(s.slot, &b, maxKeys, batchBytes, classic) {
			s.deliver(ctx, &b)
		}
		b.reset()
	}
}

// awaitWork returns true when there is something to send, false when ctx ends. A connection that idles for idleAfter is closed.
func (s *sender) awaitWork(ctx context.Context) bool {
	idle := time.NewTimer(time.Until(s.used.Add(idleAfter)))
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
// another key's. Where the node has gone off meanwhile its keeper tells the waiters, and nobody here.
func (s *sender) deliver(ctx context.Context, b *batch) {
	s.refuse(b.refused)
	if len(b.entries) == 0 && !b.asks {
		return
	}
	if len(b.entries) > 0 {
		s.used = time.Now()
	}
	careful := slices.ContainsFunc(b.entries, func(e entry) bool { return e.careful })
	answered, err := s.link.exchange(b.entries, careful)
	if err != nil && ctx.Err() != nil {
		return // the node has gone off, or rests and has the batch given back, or nobody is to be told any more
	}
	if answered > 0 || err == nil {
		s.pause = 0
		probes, ok := s.node.settle(s.slot, answered, err == nil)
		if !ok {
			return
		}
		for i := range b.entries[:answered] {
			b.entries[i].tell(s.node.addr, nil)
		}
		for _, w := range probes {
			w.Acked(sink.Copy{Node: s.node.addr}, nil)
		}
	}
	if err == nil {
		s.succeeded()
		return
	}
	if careful || s.link.classic() {
		err = s.giveUp(b.entries[answered:], err)
	}
	var refused *sink.RefusedError
	if errors.As(err, &refused) {
		if !s.node.settleRefused(s.slot) {
			return
		}
		b.entries[answered].refuse(s.node.addr, refused.Answer)
	}
	s.failed(ctx, err)
}

// giveUp makes a refusal of an answer to the first of left alone, where that key is one to refuse.
func (s *sender) giveUp(left []entry, err error) error {
	var answer *answerError
	if len(left) == 0 || !errors.As(err, &answer) {
		return err
	}
	refuse, first := s.node.refuses(left[0].key, answer.line)
	if !refuse {
		return err
	}
	refused := &sink.RefusedError{Copy: sink.Copy{Node: s.node.addr, Key: left[0].key}, Answer: answer.line}
	if first {
		s.log.Error("node answers a key with an error each time, and deletes others: it is refused until it is deleted, or not asked for, for "+forgetsAfter.String(), "key", sink.LoggedKey(refused.Copy.Key), "err", sink.LoggedError(refused))
	}
	return refused
}

// refuse answers for the node where a key must not be written to a socket: it would be cut short, read as several commands, or
// delete another key.
func (s *sender) refuse(refused []entry) {
	for i := range refused {
		e := &refused[i]
		_, err := sink.CheckMetaKey(e.key)
		if err == nil {
			err = errNotClassic
		}
		e.refuse(s.node.addr, "not sent: "+err.Error())
	}
}

var errNotClassic = errors.New("the classic protocol has no way to write a space or a control byte in a key")

// succeeded notes that the whole batch was answered in order.
func (s *sender) succeeded() {
	if s.node.attempted(s.slot, nil) {
		s.log.Info("node answers again")
	}
}

// failed closes the connection, gives back what had no answer, and pauses: longer each time, until something is answered.
func (s *sender) failed(ctx context.Context, err error) {
	s.hangUp()
	if s.node.attempted(s.slot, err) {
		s.log.Warn("node does not answer its deletes; they are kept and sent again", "err", err)
	}
	var answer *answerError
	s.node.giveBack(s.slot, errors.As(err, &answer))
	s.pause = min(max(2*s.pause, s.opts.BackoffMin), s.opts.BackoffMax)
	sleep(ctx, jitter(s.pause))
}

func (s *sender) hangUp() {
	if s.link != nil {
		s.link.close()
		s.link = nil
	}
}
