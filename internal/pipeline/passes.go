package pipeline

import (
	"context"
	"errors"
	"slices"
	"time"

	"invalidator/sink"
)

// passKind is what a pass pays.
type passKind int

const (
	payDebts   passKind = iota // of nodes, pools and templates
	payStorms                  // of one pool's storm
	payEpochs                  // of changes of the ring
	payReplays                 // of one replay by hand
	passKinds  = int(iota)
)

func passOf(kind string) passKind {
	switch kind {
	case KindStorm:
		return payStorms
	case KindEpoch:
		return payEpochs
	case KindReplay:
		return payReplays
	}
	return payDebts
}

func (k passKind) String() string { return [...]string{"debts", "storms", "epochs", "replays"}[k] }

// passID names a pass: a partition has at most one of each. A storm's is its pool's alone, so that a pool with a slow pace holds no other up; a replay's is
// its request's.
type passID struct {
	kind passKind
	of   string // a storm's pool, a replay's id
}

func passFor(id debtID) passID {
	switch kind := passOf(id.kind); kind {
	case payStorms, payReplays:
		return passID{kind, id.name}
	default:
		return passID{kind: kind}
	}
}

func (i passID) pays(id debtID) bool { return passFor(id) == i }

// gather is how long a pass waits after a debt was closed: nodes that were cut off together come back together.
const gather = 100 * time.Millisecond

// passes are those of one partition, led by its goroutine.
type passes struct {
	running map[passID]*pass
	failed  map[passID]failure // of those whose last pass failed
	after   time.Time          // no pass begins before
	pacers  map[string]*pacer  // by pool
	seen    int64              // of ledger.closings
	urged   bool               // a running pass was looked at since
}

// failure is how long it is until the next try.
type failure struct {
	pause time.Duration
	again time.Time
}

// pay begins the passes that are due, and ends those that are done, or must begin anew.
func (p *partition) pay(ctx context.Context) {
	ps, now := &p.passes, time.Now()
	if n := p.ledger.closings.Load(); n != ps.seen {
		ps.seen, ps.urged, ps.after = n, true, now.Add(gather)
	}
	for id, r := range ps.running {
		select {
		case <-r.done:
			delete(ps.running, id)
			p.passEnded(id, r)
		default:
			if id.kind == payStorms && p.w.holds(id.of) || ps.urged && p.overtaken(id, r) { // it goes on from its mark, when the pool does
				r.stop()
			}
		}
	}
	ps.urged = false
	if p.draining.Load() || now.Before(ps.after) {
		return
	}
	for _, id := range p.duePasses() {
		if now.Before(ps.failed[id].again) {
			continue
		}
		if taken := p.toPay(id); len(taken) > 0 {
			if ps.running == nil {
				ps.running = map[passID]*pass{}
			}
			ps.running[id] = p.beginPass(ctx, id, taken)
		}
	}
}

// toPay are the debts that a pass takes, as they are now.
func (p *partition) toPay(id passID) []debt {
	ds := p.ledger.closed(id.pays)
	if id.kind == payEpochs {
		return latest(ds)
	}
	return ds
}

// nearby is how many records before the latest debt of an epoch another may begin that is paid with it.
const nearby = 64 << 10

// latest are those of the debts of epochs that begin last: a promotion that comes while hours are paid for an earlier record does not wait for them.
func latest(ds []debt) []debt {
	last := int64(0)
	for i := range ds {
		last = max(last, ds[i].from)
	}
	return slices.DeleteFunc(ds, func(d debt) bool { return d.from < last-nearby })
}

// overtaken reports whether a pass is to begin anew, since there is something now that goes before what it pays.
func (p *partition) overtaken(id passID, r *pass) bool {
	switch id.kind {
	case payDebts:
		return r.lane != sink.Urgent && p.lane(p.ledger.closed(id.pays)) == sink.Urgent
	case payEpochs:
		ds := p.toPay(id)
		return len(ds) > 0 && !slices.ContainsFunc(ds, func(d debt) bool { return r.takes(d.debtID) })
	}
	return false
}

// duePasses are those that have something to pay and do not run.
func (p *partition) duePasses() (ids []passID) {
	for _, kind := range []passKind{payEpochs, payDebts} {
		id := passID{kind: kind}
		if _, runs := p.passes.running[id]; !runs && p.ledger.due[kind].Load() > 0 {
			ids = append(ids, id)
		}
	}
	if p.ledger.due[payStorms].Load()+p.ledger.due[payReplays].Load() == 0 {
		return ids
	}
	for _, d := range p.ledger.closed(func(id debtID) bool { return id.kind == KindStorm || id.kind == KindReplay }) {
		id := passFor(d.debtID)
		if _, runs := p.passes.running[id]; !runs && !(d.kind == KindStorm && p.w.holds(d.name)) {
			ids = append(ids, id)
		}
	}
	return ids
}

// passEnded takes the end of a pass. One that failed is followed by another after a pause, from its mark.
func (p *partition) passEnded(id passID, r *pass) {
	ps := &p.passes
	if r.err == nil || errors.Is(r.err, context.Canceled) {
		delete(ps.failed, id)
		return
	}
	pause := min(max(2*ps.failed[id].pause, retryMin), retryMax)
	if ps.failed == nil {
		ps.failed = map[passID]failure{}
	}
	ps.failed[id] = failure{pause, time.Now().Add(pause)}
	p.w.log.Error("paying what is owed; tried again", "topic", p.id.Topic, "partition", p.id.Number, "pays", id.kind.String(), "of", id.of,
		"from", r.from, "to", r.to, "again_in", pause, "error", r.err)
}

// lane is the highest of what debts go to.
func (p *partition) lane(ds []debt) sink.Lane {
	topology, lane := p.w.opts.Snapshots.Current().View.Topology, sink.Lane(sink.Lanes)
	for i := range ds {
		lane = min(lane, p.w.laneOf(&ds[i], topology))
	}
	return lane
}

// laneOf is the lane of a debt's deletes: a primary's go with promotions, since its readers have nothing else.
func (w *Worker) laneOf(d *debt, t *sink.Topology) sink.Lane {
	switch {
	case d.kind == KindStorm:
		return w.stormLane(d.name)
	case d.kind == KindReplay:
		return sink.Replay
	case d.kind == KindEpoch, d.kind == KindNode && t.IsPrimary(d.name):
		return sink.Urgent
	}
	return sink.Debts
}

// passesIdle is how long no pass is to begin.
func (p *partition) passesIdle() time.Duration {
	d := time.Hour
	if p.draining.Load() {
		return d
	}
	for _, id := range p.duePasses() {
		d = min(d, max(time.Until(p.passes.after), time.Until(p.passes.failed[id].again)))
	}
	return d
}

// stop ends the passes and waits for them. Their marks are in the ledger.
func (ps *passes) stop() {
	for _, r := range ps.running {
		r.stop()
		<-r.done
	}
}

// pacer is the one of a pool. No two passes of a pool run at once.
func (p *partition) pacer(pool string) *pacer {
	if p.passes.pacers == nil {
		p.passes.pacers = map[string]*pacer{}
	}
	if p.passes.pacers[pool] == nil {
		p.passes.pacers[pool] = &pacer{w: p.w, pool: pool}
	}
	return p.passes.pacers[pool]
}
