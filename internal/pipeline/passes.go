package pipeline

import (
	"context"
	"errors"
	"time"

	"invalidator/sink"
)

// passKind is what a pass pays. A partition has at most one of each.
type passKind int

const (
	payDebts  passKind = iota // of nodes, pools and templates
	payStorms                 // of storms
	passKinds = int(iota)
)

func passOf(kind string) passKind {
	if kind == KindStorm {
		return payStorms
	}
	return payDebts
}

func (k passKind) pays(kind string) bool { return passOf(kind) == k }

func (k passKind) String() string { return [...]string{"debts", "storms"}[k] }

// gather is how long a pass waits after a debt was closed: nodes that were cut off together come back together.
const gather = 100 * time.Millisecond

// passes are those of one partition, led by its goroutine.
type passes struct {
	running [passKinds]*pass
	again   [passKinds]time.Time     // no pass begins before
	pause   [passKinds]time.Duration // after the one that failed last; 0: it did not
	seen    int64                    // of ledger.closings
	urged   bool                     // a running pass was looked at since
}

// pay begins the passes that are due, and ends those that are done, or must begin anew.
func (p *partition) pay(ctx context.Context) {
	ps, now := &p.passes, time.Now()
	if n := p.ledger.closings.Load(); n != ps.seen {
		ps.seen, ps.urged = n, true
		for k := range ps.again {
			if soon := now.Add(gather); ps.again[k].Before(soon) {
				ps.again[k] = soon
			}
		}
	}
	for i := range ps.running {
		k := passKind(i)
		if r := ps.running[k]; r != nil {
			select {
			case <-r.done:
				ps.running[k] = nil
				p.passEnded(k, r)
			default:
				if ps.urged && r.lane != sink.Urgent && p.lane(p.ledger.closed(k.pays)) == sink.Urgent {
					r.stop()
				}
				continue
			}
		}
		if p.ledger.due[k].Load() == 0 || p.draining.Load() || now.Before(ps.again[k]) {
			continue
		}
		if taken := p.ledger.closed(k.pays); len(taken) > 0 {
			ps.running[k] = p.beginPass(ctx, k, taken)
		}
	}
	ps.urged = false
}

// passEnded takes the end of a pass. One that failed is followed by another after a pause, from its mark.
func (p *partition) passEnded(k passKind, r *pass) {
	ps := &p.passes
	if r.err == nil || errors.Is(r.err, context.Canceled) {
		ps.pause[k] = 0
		return
	}
	ps.pause[k] = min(max(2*ps.pause[k], retryMin), retryMax)
	ps.again[k] = time.Now().Add(ps.pause[k])
	p.w.log.Error("paying what is owed; tried again", "topic", p.id.Topic, "partition", p.id.Number, "pays", k.String(), "from", r.from, "to", r.to,
		"again_in", ps.pause[k], "error", r.err)
}

// lane is the highest of what debts go to.
func (p *partition) lane(ds []debt) sink.Lane {
	topology, lane := p.w.opts.Snapshots.Current().View.Topology, sink.Storm
	for i := range ds {
		lane = min(lane, laneOf(&ds[i], topology))
	}
	return lane
}

// laneOf is the lane of a debt's deletes: a primary's go with promotions, since its readers have nothing else.
func laneOf(d *debt, t *sink.Topology) sink.Lane {
	switch {
	case d.kind == KindStorm:
		return sink.Storm
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
	for k, r := range p.passes.running {
		if r == nil && p.ledger.due[k].Load() > 0 {
			d = min(d, time.Until(p.passes.again[k]))
		}
	}
	return d
}

// stop ends the passes and waits for them. Their marks are in the ledger.
func (ps *passes) stop() {
	for _, r := range ps.running {
		if r != nil {
			r.stop()
			<-r.done
		}
	}
}
