package pipeline

import (
	"context"
	"errors"
	"time"

	"invalidator/sink"
)

// passKind is what a pass pays.
type passKind int

const (
	payDebts  passKind = iota // of nodes, pools and templates
	payStorms                 // of one pool's storm
	passKinds = int(iota)
)

func passOf(kind string) passKind {
	if kind == KindStorm {
		return payStorms
	}
	return payDebts
}

func (k passKind) String() string { return [...]string{"debts", "storms"}[k] }

// passID names a pass: a partition has at most one of each. A storm's is its pool's alone, so that a pool with a slow pace holds no other up.
type passID struct {
	kind passKind
	pool string // of a storm
}

func passFor(id debtID) passID {
	if id.kind == KindStorm {
		return passID{payStorms, id.name}
	}
	return passID{}
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
			switch {
			case id.kind == payStorms:
				if p.w.holds(id.pool) { // it goes on from its mark when the pool does
					r.stop()
				}
			case ps.urged && r.lane != sink.Urgent && p.lane(p.ledger.closed(id.pays)) == sink.Urgent:
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
		if taken := p.ledger.closed(id.pays); len(taken) > 0 {
			if ps.running == nil {
				ps.running = map[passID]*pass{}
			}
			ps.running[id] = p.beginPass(ctx, id, taken)
		}
	}
}

// duePasses are those that have something to pay and do not run.
func (p *partition) duePasses() (ids []passID) {
	if _, runs := p.passes.running[passID{}]; !runs && p.ledger.due[payDebts].Load() > 0 {
		ids = append(ids, passID{})
	}
	if p.ledger.due[payStorms].Load() == 0 {
		return ids
	}
	for _, d := range p.ledger.closed(func(id debtID) bool { return id.kind == KindStorm }) {
		id := passFor(d.debtID)
		if _, runs := p.passes.running[id]; !runs && !p.w.holds(d.name) {
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
	p.w.log.Error("paying what is owed; tried again", "topic", p.id.Topic, "partition", p.id.Number, "pays", id.kind.String(), "pool", id.pool,
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
	case d.kind == KindNode && t.IsPrimary(d.name):
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
