package pipeline

import (
	"context"
	"slices"
	"time"

	"invalidator/sink"
	"invalidator/sink/registry"
)

const (
	// clocksDiffer is by how much the clocks of two hosts may.
	clocksDiffer = 15 * time.Second
	// lineWide is how far from what it notes a journal line's second may be.
	lineWide = 2 * time.Second
)

// RingFlusher has flushed what a change of the ring makes stale and no row gives: pools whose keys are underivable, of shards that were promoted, and
// what nodes gained while a record was seen by nobody.
type RingFlusher interface {
	// Flush writes the requests that follow from v for who had acted on these epochs, and returns nil when every in-sync replica has them. It is called
	// from a goroutine of each partition, and may block until ctx ends. An error, ctx's included, leaves open which were written. Writing them twice is
	// harmless: their ids are the same, from every partition.
	Flush(ctx context.Context, acted []int64, v *registry.View) error
}

// ringSight is what a partition has seen of the ring; its goroutine's own.
type ringSight struct {
	view   *registry.View // that was looked at last
	seen   *sink.Topology // of it
	epochs []int64        // of all records whose debts are in the ledger, or in that of earlier owners
	backTo int64          // the epoch of a registry that went back, as far as that was acted on; 0: it did not
	flush  *ringFlush     // that is under way; nil: none is
}

// ringFlush is the asking for what follows from a view.
type ringFlush struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when err is set
	err    error
}

// lookAtRing acts on ring records that are new, whether they are the newest or not, before the next record is taken. From then on the partition issues under
// view, or a later one.
//
// The order is the proof that nothing is lost: first the debt, then the least epoch that a next owner may issue under, then what was acted on. A state record
// reads them the other way round, so that one that has acted on a record has its debt, and no owner who finds that issues under less. What was issued under
// view before it was acted on, by a pass or by an owner that died, is in the debt as well: of the journal all epochs count.
func (p *partition) lookAtRing(ctx context.Context) {
	p.flushAsked()
	issued, _ := p.journal.greatest() // before the view: what others issue meanwhile is no registry that went back
	today := p.w.opts.Snapshots.Current()
	v := today.View
	if v != p.ring.view {
		p.ring.view = v
		p.w.confirmed.see(v)
	}
	if v.Topology == p.ring.seen {
		return
	}
	p.ring.seen = v.Topology
	epochs, epoch := v.Epochs(), v.Topology.Epoch()
	news := slices.DeleteFunc(slices.Clone(epochs), func(e int64) bool { return slices.Contains(p.ring.epochs, e) })
	back := epoch < issued && epoch != p.ring.backTo
	if len(news) > 0 || back {
		a, since := before(p.ring.epochs, news), time.Time{}
		if back {
			a, p.ring.backTo = issued, epoch // whose records are lost: everything has moved, at any time
		} else {
			since = p.movedSince(v, a, epoch)
		}
		p.ledger.openAgain(debtID{KindEpoch, epochName(a, epoch)}, p.movedRanges(v, a, epoch, since), nil, today)
	}
	p.ring.epochs = epochs
	p.journal.issuesUnder(epoch)
	switch {
	case len(news) > 0 || back:
		p.askForFlush(ctx, v)
	case p.ring.flush == nil:
		p.onEpochs(epochs)
	}
	p.w.speakTo(v.Topology)
}

// before is the greatest epoch acted on that is below all new ones; where there is none, the least of the new ones.
func before(acted, news []int64) int64 {
	if len(news) == 0 {
		return 0
	}
	a := news[0]
	for _, e := range acted {
		if e < news[0] {
			a = e
		}
	}
	return a
}

// movedSince is from when on what was issued may have been issued under records of at most a though a later one was written, or so shortly before that a copy
// which a node of them got may yet have been carried on, or filled. Zero: from any time.
func (p *partition) movedSince(v *registry.View, a, b int64) time.Time {
	at := p.heldUpTo(v, a)
	if at.IsZero() {
		at = writtenAfter(v, a, b)
	}
	return p.mayLackSince(at)
}

// mayLackSince is from when on what was issued may be missing on a copy, if all was well at a time, and nothing is known of what came after. Zero: from any time.
func (p *partition) mayLackSince(at time.Time) time.Time {
	if at.IsZero() {
		return at
	}
	return at.Add(-p.w.opts.mayLack())
}

// mayLack is how long before all was well a round must have been issued for its copies to be sure.
func (o *Options) mayLack() time.Duration {
	return max(o.Window, o.Settle+o.MaxLag+lateBy) + clocksDiffer + lineWide
}

// heldUpTo is the latest moment at which etcd is known to have held a record of an epoch of at most a: to this worker, or to any that issued something. Zero:
// it is not known. A file says nothing of the clients' hosts, which have files of their own.
func (p *partition) heldUpTo(v *registry.View, a int64) time.Time {
	if v.Local {
		return time.Time{}
	}
	at := p.w.confirmed.upTo(a)
	if by := p.journal.confirmed(a); by.After(at) {
		at = by
	}
	return at
}

// writtenAfter is a moment before any record above a was written, by the records' own words. Zero: it is not known.
func writtenAfter(v *registry.View, a, b int64) (at time.Time) {
	records, whole := v.Between(a+1, b)
	if !whole {
		return at
	}
	for _, r := range records {
		if r.At.IsZero() {
			return time.Time{}
		}
		if at.IsZero() || r.At.Before(at) {
			at = r.At
		}
	}
	return at.Add(-clocksDiffer)
}

// movedRanges are the offsets of which something was issued at since or later, by anybody, and those that are in flight. Where a primary is none any more, since is
// no later than what may be missing of it: what it acknowledged just before it died may not have reached its replica, however late that was promoted.
func (p *partition) movedRanges(v *registry.View, a, b int64, since time.Time) spans {
	for _, node := range p.w.moves.of(v, epochName(a, b)).Former() {
		if at := p.mayLackSince(p.missedSince(node)); !at.IsZero() && at.Before(since) {
			since = at
		}
	}
	ranges := append(p.journal.between(since, endOfTime), [2]int64{p.live.mark(), p.live.window.next})
	return joined(ranges)
}

// missedSince is when a node that owes something was missed first, or, where it was never heard since the partition came, when the last owner issued something last:
// it may have died with that one, and not be missed yet. Zero: it is not missed.
func (p *partition) missedSince(node string) (at time.Time) {
	if d, owes := p.ledger.of(debtID{KindNode, node}); owes {
		at = d.since
	}
	if !p.restored.IsZero() && (at.IsZero() || p.restored.Before(at)) && !p.w.heardSince(node, p.began) {
		at = p.restored
	}
	return at
}

// endOfTime is later than anything that a journal has.
var endOfTime = time.Unix(1<<40, 0)

// askForFlush asks for what v makes stale and no row gives; when it has been asked for, the epochs have been acted on. Deletes go on meanwhile: a crash before
// has the next owner act on v again.
func (p *partition) askForFlush(ctx context.Context, v *registry.View) {
	if f := p.ring.flush; f != nil {
		f.cancel() // this one asks for all that it does
		<-f.done
		p.ring.flush = nil
	}
	if p.w.opts.RingFlusher == nil {
		p.onEpochs(p.ring.epochs)
		return
	}
	acted, _ := p.acted.get()
	ctx, cancel := context.WithCancel(ctx)
	f := &ringFlush{cancel: cancel, done: make(chan struct{})}
	p.ring.flush = f
	go func() { // waited for by askForFlush, or by stopFlush
		defer rouse(p.wake)
		defer close(f.done)
		f.err = p.insist(ctx, p.taken.Load(), "asking for flushes after a change of the ring", func() error { return p.w.opts.RingFlusher.Flush(ctx, acted, v) })
	}()
}

// flushAsked notes what has been asked for.
func (p *partition) flushAsked() {
	f := p.ring.flush
	if f == nil {
		return
	}
	select {
	case <-f.done:
	default:
		return
	}
	f.cancel()
	if p.ring.flush = nil; f.err == nil {
		p.onEpochs(p.ring.epochs)
	}
}

// stopFlush ends what is being asked for. What was not acted on is, by the next owner.
func (p *partition) stopFlush() {
	if f := p.ring.flush; f != nil {
		f.cancel()
		<-f.done
	}
}
