package pipeline

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

// change is one record that owes deletes, from its first round until its last is acknowledged.
//
// Its track's goroutine owns it, except that node goroutines count down left; whoever brings left to zero hands the
// change back through track.acknowledged.
type change struct {
	t        *track
	offset   int64
	keys     []mapping.Key
	snapshot *Snapshot // under which it was mapped
	lane     sink.Lane
	late     bool           // when it was taken it was so old that one round may be enough
	issued   time.Time      // when the first round was
	under    *sink.Topology // that the last round was issued under
	round    int            // the round that was issued last, from 1
	rounds   int            // how many it gets
	left     atomic.Int64
	stale    time.Duration // copies of keys that are deleted are marked stale for so long; 0: they are deleted
	due      time.Time     // when the next round is issued: settle after the last acknowledgement
	finished bool

	age    age
	timed  bool        // age is of the commit
	fresh  bool        // every copy has acknowledged the first round, or is owed
	missed atomic.Bool // one is owed, or refused

	requests  []changelog.RefreshRequest // written after the last round
	unwritten int                        // of them

	row    *cdc.RowChange // kept only for an observer
	copies []sink.Copy    // the same
}

// A change is deleted twice: a reader may have read the old row just before the commit showed and fill after the first
// round. While somebody carries values from copy to copy (clients from the old owner to the new while previous stands, whoever seeds a
// replica), what such a reader filled may be carried on before the second, which makes a third necessary.
//
// A key that is marked stale is marked in every round, for the same reason: whoever won the refill in the first may have read
// the old row, and its fill takes the mark away. So one change makes at most as many refills as there are rounds, and StaleFor
// counts from the last.
const (
	plainRounds   = 2
	carriedRounds = 3
)

// lateBy is how much longer than settle after a change its first round must be issued for one to be enough: as long as a commit may wait
// for a replica before it shows, and as clocks may differ.
const lateBy = 15 * time.Second

// rounds is how many a change gets that has a round under s now.
func (w *Worker) rounds(s *Snapshot, now time.Time) int {
	if s.View.Carrying(now, w.opts.Settle) {
		return carriedRounds
	}
	return plainRounds
}

// issue queues one round: every copy of every key under the change's own snapshot and under today's, to be deleted or marked
// stale. It returns when all copies are queued or owed, or with ctx's error. A copy that is not sent is in its node's debt before it
// counts as done.
func (c *change) issue(ctx context.Context, d sink.Deleter, today *Snapshot, now time.Time, buf []sink.Copy) ([]sink.Copy, error) {
	c.round++
	c.under = today.View.Topology
	if c.round == 1 {
		c.issued = now
	}
	c.rounds = max(c.rounds, c.t.p.w.rounds(today, now))
	ledger := c.t.p.ledger
	open := ledger.openNodes()
	copies := buf[:0]
	c.left.Store(1) // one more than there are: the round is not complete before the last copy is queued
	for _, k := range c.keys {
		first := len(copies)
		copies = c.appendCopies(copies, k, today)
		c.left.Add(int64(len(copies) - first))
		for _, cp := range copies[first:] {
			if _, is := open[cp.Node]; is && ledger.withhold(cp.Node, c.offset) {
				c.missed.Store(true)
				c.down()
				continue
			}
			err := c.send(ctx, d, cp, cmp.Or(k.Template.StaleFor, c.stale))
			switch {
			case err == nil:
			case isOff(err):
				c.missed.Store(true)
				c.t.p.owe(cp.Node, c.offset, c.lane)
				c.down()
			default:
				return copies, err
			}
		}
	}
	if c.t.p.w.opts.Observer != nil {
		c.copies = append([]sink.Copy(nil), copies...)
	}
	c.down()
	return copies, nil
}

func (c *change) appendCopies(dst []sink.Copy, k mapping.Key, today *Snapshot) []sink.Copy {
	hot := max(k.Template.Hot, c.snapshot.View.Hot.Copies(k.Text), today.View.Hot.Copies(k.Text))
	dst = c.snapshot.View.Topology.AppendCopies(dst, k.Text, hot)
	if today.View.Topology != c.snapshot.View.Topology {
		dst = today.View.Topology.AppendCopies(dst, k.Text, hot)
	}
	return dst
}

// send does what the key's template says: it is the mapping that knows whether the readers heed a stale mark.
func (c *change) send(ctx context.Context, d sink.Deleter, cp sink.Copy, staleFor time.Duration) error {
	if staleFor > 0 {
		return d.MarkStale(ctx, c.lane, cp, staleFor, c)
	}
	return d.Delete(ctx, c.lane, cp, c)
}

// Acked implements sink.Waiter.
func (c *change) Acked(cp sink.Copy, err error) {
	if err != nil {
		c.missed.Store(true)
	}
	switch {
	case err == nil:
	case isOff(err):
		c.t.p.owe(cp.Node, c.offset, c.lane) // before the copy counts as done
	default:
		c.t.refuse(c, cp, err) // parked by the track before the copy counts as done
		return
	}
	c.down()
}

func (c *change) down() {
	if c.left.Add(-1) == 0 {
		c.t.acknowledged(c)
	}
}

// isOff reports whether err says that a node is off the live path.
func isOff(err error) bool {
	if _, is := err.(*sink.OffError); is {
		return true
	}
	var off *sink.OffError
	return errors.As(err, &off)
}
