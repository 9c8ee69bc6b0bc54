package pipeline

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

const (
	// maxInFlight bounds the changes that one partition holds, most of them waiting out settle: at 1 s of settle it is also
	// the most changes a second of one partition. A change with its keys takes some 300 bytes, so 10 MB a partition.
	maxInFlight = 32 << 10
	// maxWorkerFlight bounds those of all partitions of a worker.
	maxWorkerFlight = 128 << 10
	// takeAtOnce bounds the records taken between two looks at what was acknowledged.
	takeAtOnce = 512
	// yieldEvery is after how many records a goroutine that is busy lets others run: some tenths of a millisecond. Else a pass has the
	// scheduler's 10 ms, and a live change waits for that at each step of its way. An urgent pass keeps what it has.
	yieldEvery = 32
	// A partition's fetches stop above its share of waitingBytes of records that wait, or above pauseBytes, and go on below half of it. No
	// share is less than leastWaiting.
	waitingBytes = 48 << 20
	pauseBytes   = 8 << 20
	leastWaiting = 64 << 10
)

// partition is one partition's goroutine and what it shares with the group's poll loop, with the nodes' goroutines and with its passes.
type partition struct {
	id      changelog.Partition
	source  *Source
	w       *Worker
	ledger  *ledger
	journal *journal
	places  places
	acted   acted
	least   Sight // nothing is issued under less
	fresh   bool  // nobody issued anything that is committed

	began    time.Time
	restored time.Time // of the last line that earlier owners left; zero: there is none

	live   *track
	behind behind

	// The goroutine's own.
	decoder *envelope.Decoder
	mapper  mapping.Mapper // of decoder
	scratch envelope.Scratch
	result  mapping.Result
	retry   time.Time     // no record is taken before: the first that waits could not be decoded
	pause   time.Duration // between the last two tries
	asks    time.Time     // when nodes are asked again that nobody named; zero: there are none
	waits   waiting
	passes  passes
	sorter  sorter
	wide    wideLook
	stands  []debtID       // what standing knows of it
	seen    *sink.Topology // that debts were looked at under
	hot     hotSight
	ring    ringSight

	reported reported
	ordered  <-chan struct{} // Orders.Changed when they were taken last

	revision atomic.Uint64 // of what is kept beside the watermark
	mark     atomic.Int64  // the watermark
	taken    atomic.Int64  // one past the last record taken
	draining atomic.Bool   // take no more records
	wake     chan struct{} // 1: something below changed
	cancel   context.CancelFunc
	done     chan struct{} // closed when run has returned

	flow flow
	lost lostSets

	mu struct { // guards what other goroutines add to
		sync.Mutex
		pending []changelog.Record
		bytes   int      // of pending
		stuck   bool     // nothing is taken: its bytes are not in the worker's room
		answers []answer // to probes
	}
}

// newPartition makes a partition that goes on where an earlier owner was. Its error is what that left, of which nothing may be passed over.
func newPartition(w *Worker, s *Source, id changelog.Partition, start int64, was changelog.Restored) (*partition, error) {
	state, err := parseState(was.State)
	if err != nil {
		return nil, err
	}
	p := &partition{id: id, source: s, w: w, least: state.Issued, fresh: was.State == nil, began: time.Now(), wake: make(chan struct{}, 1), done: make(chan struct{})}
	p.ledger = newLedger(&p.revision, state.Debts)
	p.journal = newJournal(&p.revision, w.opts.Window, w.opts.MaxTTL)
	p.places.held, p.places.keep = &w.placed, w.opts.mayLack()+placesKept
	p.journal.mu.epoch, p.journal.mu.revision = state.Issued.Epoch, state.Issued.HotRevision
	if err := p.journal.restore(time.Now(), state.Journal, was.Journal); err != nil {
		return nil, err
	}
	p.restored = p.journal.last()
	p.acted.mu.epochs, p.acted.mu.control = state.actedBefore(p.journal), state.Acted.Control
	p.ring.epochs = p.acted.mu.epochs
	p.live = newTrack(p, w.flight, p.wake, start)
	p.live.yields, p.live.observes = true, true
	p.hot.acted.Store(state.Acted.HotRevision)
	p.mark.Store(start)
	p.taken.Store(start)
	return p, nil
}

// run takes records, issues their rounds and moves the watermark until ctx ends, until it is drained, or until the nodes' client
// is closed: then no acknowledgement comes any more.
func (p *partition) run(ctx context.Context) {
	defer close(p.done)
	p.w.metrics.partitions.Inc()
	defer p.w.metrics.partitions.Dec()
	defer p.ended()
	defer p.stick(true)
	defer p.w.standing.leave(p)
	defer p.live.end()
	defer p.places.end()
	p.stick(true)
	if !p.begin(ctx) {
		return
	}
	p.stick(false)
	defer p.passes.stop()
	defer p.stopFlush()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		changed, orders := p.w.opts.Snapshots.Changed(), p.moreOrders()
		p.live.settle(ctx)
		p.look(ctx)
		p.hear()
		if p.w.opts.Orders != nil {
			p.takeOrders(orders)
		}
		p.pay(ctx)
		p.report()
		more, err := p.step(ctx)
		p.taken.Store(p.live.window.next)
		p.mark.Store(p.live.mark())
		p.behind.oldest.Store(int64(p.live.window.oldest()))
		if err != nil || ctx.Err() != nil || p.draining.Load() && p.live.window.inFlight() == 0 {
			return
		}
		if more {
			continue
		}
		timer.Reset(p.idle())
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-changed:
		case <-orders:
		case <-timer.C:
		}
	}
}

// moreOrders is closed when there are orders that were not taken yet.
func (p *partition) moreOrders() <-chan struct{} {
	if p.w.opts.Orders == nil {
		return nil
	}
	return p.w.opts.Orders.Changed()
}

// takeOrder acts on a plan: what it asks for is owed from here on, also by the next owner.
func (p *partition) takeOrder(o Order, ranges [][2]int64) {
	p.ledger.openAgain(debtID{KindReplay, o.ID}, joined(ranges), &o, p.w.opts.Snapshots.Current())
	p.onControl(o.Mark)
}

// cancelOrder ends a replay. What was issued is issued.
func (p *partition) cancelOrder(id string) {
	if p.ledger.remove(debtID{KindReplay, id}) {
		if r := p.passes.running[passID{payReplays, id}]; r != nil {
			r.stop()
		}
	}
}

// idle is how long there is nothing to do, if nothing comes.
func (p *partition) idle() time.Duration {
	d := p.live.idle(time.Hour)
	if !p.retry.IsZero() && !p.closed() { // what opens it rouses the partition
		d = min(d, time.Until(p.retry))
	}
	if !p.asks.IsZero() {
		d = min(d, time.Until(p.asks))
	}
	return p.reportsIdle(min(d, p.passesIdle()))
}

// step issues the rounds that are due or, where none is, takes records. It reports whether there was anything to do; after an error
// what it was doing is not safe, and the watermark never passes it.
func (p *partition) step(ctx context.Context) (more bool, err error) {
	if more, err = p.live.issueDue(ctx); more || err != nil {
		return more, err
	}
	return p.take(ctx)
}

// closed reports whether no record may be taken until something is acknowledged, or ever.
func (p *partition) closed() bool {
	return p.draining.Load() || p.live.window.inFlight() >= maxInFlight
}

// take handles some of the records that wait, and reports whether it did.
func (p *partition) take(ctx context.Context) (any bool, err error) {
	if p.closed() || time.Now().Before(p.retry) {
		return false, nil
	}
	p.retry = time.Time{}
	want := min(p.waiting(), takeAtOnce)
	if want == 0 {
		return false, nil
	}
	room := p.w.flight.take(want, p.wake)
	held := p.live.window.inFlight()
	defer func() { p.w.flight.give(room - (p.live.window.inFlight() - held)) }()
	records := p.next(room)
	defer clear(records) // they lie in the room of what waits
	defer p.scratch.Reset()
	defer p.behind.taking.Store(0)
	for i := range records {
		p.behind.taking.Store(int64(writtenAge(&records[i])))
		err := p.handle(ctx, &records[i])
		var not *notYet
		if errors.As(err, &not) {
			p.wait(records[i:], not)
			return false, nil
		}
		if err != nil {
			return true, err
		}
		p.pause = 0
		p.goesOn()
		p.live.letOthersRun(i)
	}
	return len(records) > 0, nil
}

// waiting is how many records wait.
func (p *partition) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.mu.pending)
}

// next takes up to n records off the pending ones.
func (p *partition) next(n int) []changelog.Record {
	p.mu.Lock()
	n = min(n, len(p.mu.pending))
	out := p.mu.pending[:n:n]
	if p.mu.pending = p.mu.pending[n:]; len(p.mu.pending) == 0 {
		p.mu.pending = nil
	}
	bytes := 0
	for i := range out {
		bytes += recordBytes(&out[i])
	}
	p.weigh(-bytes)
	p.mu.Unlock()
	p.regulate()
	return out
}

// add is called by the group's poll loop.
func (p *partition) add(rs []changelog.Record) {
	p.mu.Lock()
	p.mu.pending = append(p.mu.pending, rs...)
	bytes := 0
	for i := range rs {
		bytes += recordBytes(&rs[i])
	}
	p.weigh(bytes)
	p.mu.Unlock()
	p.regulate()
	rouse(p.wake)
}

// flow is whether a partition is fetched. It is locked over the call that changes it, so that of two goroutines which do, the later
// call is the one that saw the later size.
type flow struct {
	sync.Mutex
	paused bool
}

// mayWait is how many bytes of records may wait of each partition of the worker.
func (w *Worker) mayWait() int {
	return max(leastWaiting, min(pauseBytes, waitingBytes/max(1, int(w.owned.Load()))))
}

// regulate stops and starts the fetches.
func (p *partition) regulate() {
	p.flow.Lock()
	defer p.flow.Unlock()
	p.mu.Lock()
	bytes := p.mu.bytes
	p.mu.Unlock()
	limit := p.w.mayWait()
	switch {
	case !p.flow.paused && bytes > limit:
		p.flow.paused = true
		p.w.group.Pause(p.id)
	case p.flow.paused && bytes < limit/2:
		p.flow.paused = false
		p.w.group.Resume(p.id)
	}
}

// recordBytes is what a record weighs in memory: its bytes and some for itself, so that empty ones are bounded too.
func recordBytes(r *changelog.Record) int {
	n := len(r.Key) + len(r.Value) + 96
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value) + 40
	}
	return n
}

// look takes in what the registry says now.
func (p *partition) look(ctx context.Context) {
	p.release()
	p.lookAtRing(ctx)
	view := p.w.opts.Snapshots.Current().View
	p.hot.look(p, view.Hot)
	p.forget(view)
}

// hear closes the debts of nodes that have answered: what is issued from now on goes to them again.
func (p *partition) hear() {
	p.mu.Lock()
	answers := p.mu.answers
	p.mu.answers = nil
	p.mu.Unlock()
	for _, a := range answers {
		if a.err == nil {
			p.ledger.answered(a.node, p.live.window.next)
			continue
		}
		p.ledger.unasked(a.node) // the client knows no record that names it: ours may be newer
		p.asks = time.Now().Add(retryMax)
	}
	if !p.asks.IsZero() && !time.Now().Before(p.asks) {
		p.asks = time.Time{}
		p.ask(p.ledger.toAsk()...)
	}
}

// owe puts what a node misses of offset in its debt. It is called from any goroutine, before the copy counts as done. Of a node that no record names any
// more, what it held has expired.
func (p *partition) owe(node string, offset int64, lane sink.Lane) {
	now, s := time.Now(), p.w.opts.Snapshots.Current()
	if !s.View.Topology.Names(node) && p.sees(s.View) {
		return
	}
	p.journal.note(now, s, lane, offset)
	if p.ledger.owe(node, offset, now, s) {
		p.ask(node)
	}
}

// ask asks nodes for an answer, after which they are no longer off the live path.
func (p *partition) ask(nodes ...string) {
	for _, n := range nodes {
		p.w.opts.Deleter.Probe(n, prober{p})
	}
}

// answer is what came of asking a node; an error says that it is not asked any more.
type answer struct {
	node string
	err  error
}

// prober hands a node's answer to the partition's goroutine.
type prober struct{ p *partition }

// Acked implements sink.Waiter.
func (a prober) Acked(c sink.Copy, err error) {
	a.p.mu.Lock()
	a.p.mu.answers = append(a.p.mu.answers, answer{c.Node, err})
	a.p.mu.Unlock()
	rouse(a.p.wake)
}
