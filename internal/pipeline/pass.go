package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"invalidator/internal/changelog"
	"invalidator/sink"
)

const (
	// maxPassFlight bounds the changes that one pass holds, most of them waiting out settle.
	maxPassFlight = 8 << 10
	// maxPassesFlight bounds those of all passes of a worker, but for those of changes of the ring.
	maxPassesFlight = 64 << 10
	// maxMoveFlight and maxMovesFlight are those of changes of the ring, which have bounds of their own: each time that they are reached is a settle more
	// until the promotion of a zone is replayed. They are some 50 MB then.
	maxMoveFlight  = 20 << 10
	maxMovesFlight = 160 << 10
)

// Log is the log behind what a partition has read, which passes read again.
type Log interface {
	// Read hands over the records of [from, to), in order, which may be kept, and returns nil when there are no more below to. each may
	// block; its error ends the reading and is returned. A *changelog.LogStartError: the log begins after the next record, also where
	// retention overtakes the reader. After any other error it is to be tried again. What was handed over before an error counts.
	// Several partitions may be read at once.
	Read(ctx context.Context, p changelog.Partition, from, to int64, each func([]changelog.Record) error) error
}

// pass reads a range of the partition's log again and issues each key that its debts cover, on every copy: a reader may have carried what
// one node holds to another.
type pass struct {
	p        *partition
	id       passID
	taken    []debt // as they were when it began: what happens to one after that is not paid by it
	lane     sink.Lane
	from, to int64
	spans    spans // of [from, to), what is read
	dry      bool  // of a replay: it counts what it would issue
	track    *track
	wake     chan struct{}
	readers  *readers
	copies   []sink.Copy // of one key
	moved    movedCells  // of changes of the ring
	again    []*counts   // of the debts that cover it, where it is done again
	most     int         // changes that it holds
	spare    int         // reserved of the track's budget
	slots    *slots      // of passes of its kind
	holds    bool        // one of them
	pacer    *pacer      // of a storm's; nil: it goes as fast as the nodes do
	paid     int64       // the mark up to which the ledger was told
	read     []readTo    // in the order of offsets, above the mark

	stop context.CancelFunc
	done chan struct{} // closed when err is set
	err  error
}

// readTo says when about the records below an offset were written.
type readTo struct {
	offset  int64
	written time.Time
}

func (p *partition) beginPass(ctx context.Context, id passID, taken []debt) *pass {
	ctx, cancel := context.WithCancel(ctx)
	wake := make(chan struct{}, 1)
	ps := &pass{p: p, id: id, taken: taken, lane: p.lane(taken), from: taken[0].from, to: taken[0].to, wake: wake, most: maxPassFlight, slots: p.w.slots, stop: cancel, done: make(chan struct{})}
	budget := p.w.passing
	switch id.kind {
	case payStorms:
		ps.slots, ps.pacer = p.w.stormSlots, p.pacer(id.of)
	case payEpochs:
		ps.slots, budget, ps.most = p.w.epochSlots, p.w.moving, maxMoveFlight
		view := p.w.opts.Snapshots.Current().View
		for i := range taken {
			taken[i].moves = p.w.moves.of(view, taken[i].name)
		}
	case payReplays:
		ps.slots, ps.dry = p.w.replaySlots, taken[0].order.DryRun
	}
	for i := range taken {
		ps.from, ps.to = min(ps.from, taken[i].from), max(ps.to, taken[i].to)
		ps.spans = append(ps.spans, taken[i].spans.from(taken[i].from)...)
	}
	if ps.spans = joined(ps.spans); !taken[0].again() {
		ps.spans = spans{{ps.from, ps.to}}
	}
	ps.paid = ps.from
	ps.track = newTrack(p, budget, wake, ps.from)
	ps.track.observes = id.kind == payDebts || id.kind == payStorms
	ps.track.yields = ps.lane != sink.Urgent // which is stale for whoever reads, as live changes are
	p.w.metrics.passes.WithLabelValues(id.kind.String()).Inc()
	p.w.running.begin(ps)
	go func() {
		defer p.w.running.end(ps)
		defer p.w.metrics.passes.WithLabelValues(id.kind.String()).Dec()
		defer rouse(p.wake)
		defer close(ps.done)
		defer cancel()
		ps.err = ps.run(ctx)
		ps.leave()
		ps.track.budget.give(ps.spare)
		ps.track.end()
	}()
	return ps
}

// errPaid ends a pass that has nothing left to pay: its debts are paid, or are others by now.
var errPaid = errors.New("nothing is left to pay")

// run reads, and returns when everything that it issued has had its rounds. After an error its mark stands in the ledger.
func (ps *pass) run(ctx context.Context) error {
	err := ps.readLog(ctx)
	if err == nil {
		ps.leave()
		ps.track.window.next = ps.to
		for err == nil {
			err = ps.wait(ctx, time.Now().Add(time.Hour), never)
		}
	}
	if errors.Is(err, errPaid) {
		return nil
	}
	return err
}

func never() bool { return false }

// errPaced ends a reading whose pool has used its part of the pace up: what was fetched is not held meanwhile.
var errPaced = errors.New("the pool's pace")

// readLog issues the first round of all that is owed, and the later ones that are due meanwhile.
func (ps *pass) readLog(ctx context.Context) (err error) {
	if ps.readers, err = ps.newReaders(ctx); err != nil {
		return err
	}
	start := ps.from // of the log, as far as is known
	for _, s := range ps.spans {
		if s[0] = max(s[0], start); s[0] >= s[1] {
			continue
		}
		ps.track.window.next = s[0] // nothing of what lies between is owed
		if start, err = ps.readSpan(ctx, s[0], s[1]); err != nil {
			return err
		}
	}
	return nil
}

// readSpan is readLog of [from, to). Where the log begins after from it tells where, which may be after to.
func (ps *pass) readSpan(ctx context.Context, from, to int64) (begins int64, err error) {
	for begins = from; from < to; {
		if err := ps.enter(ctx); err != nil {
			return begins, err
		}
		err := ps.p.w.opts.Past.Read(ctx, ps.p.id, from, to, func(rs []changelog.Record) error { return ps.records(ctx, rs) })
		next := max(ps.track.window.next, from)
		if errors.Is(err, errPaced) {
			if err := ps.rest(ctx); err != nil {
				return begins, err
			}
			from = next
			continue
		}
		var start *changelog.LogStartError
		if !errors.As(err, &start) {
			return begins, err
		}
		if start.Start <= next {
			return begins, fmt.Errorf("reading from %d on: %w", next, err)
		}
		begins = min(start.Start, ps.to)
		if err := ps.lost(ctx, next, begins); err != nil {
			return begins, err
		}
		from = min(begins, to)
		ps.track.window.next = from
	}
	return begins, nil
}

// rest waits until the pool's pace lets the pass go on.
func (ps *pass) rest(ctx context.Context) error {
	ps.leave()
	for !ps.pacer.ready() {
		if err := ps.wait(ctx, ps.pacer.until(), never); err != nil {
			return err
		}
	}
	return nil
}

// lost makes durable that the log no longer holds what was owed, before the debt's from passes it. What a replay asks for is no debt of anybody: it tells that
// in its result.
func (ps *pass) lost(ctx context.Context, from, to int64) error {
	if ps.id.kind == payReplays {
		ps.taken[0].counts.lost += ps.spans.in(from, to)
		return nil
	}
	return ps.p.gap(ctx, changelog.Loss{Partition: ps.p.id, From: from, To: to, Why: "a debt is older than the topic keeps records: " + ps.names()})
}

// names says whose debts it pays.
func (ps *pass) names() string {
	text := ps.taken[0].kind + " " + ps.taken[0].name
	if n := len(ps.taken); n > 1 {
		text += fmt.Sprintf(" and %d more", n-1)
	}
	return text
}

// records issues what is owed of some records.
func (ps *pass) records(ctx context.Context, rs []changelog.Record) error {
	if len(rs) > 0 {
		last := &rs[len(rs)-1]
		if ps.pacer == nil {
			ps.p.ledger.reach(ps.taken, last.Offset+1)
		}
		ps.read = append(ps.read, readTo{last.Offset + 1, last.Time})
	}
	for i := range rs {
		for !ps.room() {
			ps.leave()
			if err := ps.wait(ctx, time.Now().Add(time.Hour), ps.room); err != nil {
				return err
			}
			if err := ps.enter(ctx); err != nil {
				return err
			}
		}
		if ps.pacer != nil {
			if !ps.pacer.ready() {
				return errPaced
			}
			ps.p.ledger.reach(ps.taken, rs[i].Offset+1)
		}
		if err := ps.handle(ctx, &rs[i]); err != nil {
			return err
		}
		ps.track.letOthersRun(i)
		if i%takeAtOnce == takeAtOnce-1 || i == len(rs)-1 {
			if err := ps.turn(ctx); err != nil {
				return err
			}
		}
	}
	if ps.id.kind == payReplays || ps.lane != sink.Urgent && ps.slots.hurried() {
		ps.leave()
		return ps.enter(ctx)
	}
	return ctx.Err()
}

// takes reports whether it pays a debt. It may be called from any goroutine: which debts they are does not change, while the pass counts in them.
func (ps *pass) takes(id debtID) bool {
	for i := range ps.taken {
		if ps.taken[i].debtID == id {
			return true
		}
	}
	return false
}

// turn settles what was acknowledged, issues what is due and pays what is finished.
func (ps *pass) turn(ctx context.Context) error {
	ps.track.settle(ctx)
	if _, err := ps.track.issueDue(ctx); err != nil {
		return err
	}
	mark := ps.track.mark()
	if mark > ps.paid {
		ps.paid = mark
		if left := ps.p.ledger.pay(ps.taken, mark, ps.writtenAt(mark)); left == 0 || mark >= ps.to { // a storm's debt may have grown: that is the next pass's
			return errPaid
		}
	}
	return ctx.Err()
}

// writtenAt is about when the record at mark was written.
func (ps *pass) writtenAt(mark int64) (at time.Time) {
	n := 0
	for n < len(ps.read) && ps.read[n].offset <= mark {
		at = ps.read[n].written
		n++
	}
	ps.read = ps.read[n:]
	return at
}

// wait leads the track until enough says so, or the time has come. A pass that waits holds no slot.
func (ps *pass) wait(ctx context.Context, until time.Time, enough func() bool) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if err := ps.turn(ctx); err != nil || enough() || !time.Now().Before(until) {
			return err
		}
		timer.Reset(ps.track.idle(time.Until(until)))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ps.wake:
		case <-timer.C:
		}
	}
}

// reserved is how much room a pass takes at once.
const reserved = 64

// room reserves room for one more change, and reports whether there is.
func (ps *pass) room() bool {
	if ps.track.window.inFlight() >= ps.most {
		return false
	}
	if ps.spare == 0 {
		ps.spare = ps.track.budget.take(reserved, ps.wake)
	}
	return ps.spare > 0
}

func (ps *pass) enter(ctx context.Context) error {
	if ps.holds {
		return nil
	}
	err := ps.slots.take(ctx, ps.lane == sink.Urgent)
	ps.holds = err == nil
	return err
}

func (ps *pass) leave() {
	if ps.holds {
		ps.holds = false
		ps.slots.give()
	}
}
