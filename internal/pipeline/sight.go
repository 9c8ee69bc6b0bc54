package pipeline

import (
	"context"
	"time"

	"invalidator/sink/registry"
)

// sightWait is how long a partition waits for the sight that its last owner had of the registry, before it tells of it again.
const sightWait = 30 * time.Second

// begin waits until the ring and the hot keys are at least those that an earlier owner issued under, and asks for what it left. It
// reports whether ctx goes on.
//
// A registry that was restored from a copy may never have as much again. Where it says of itself that what it holds is the newest, and still
// does after sightWait, the partition goes on with that: it is what the clients have. It forgets no node then: the ring record that names it
// may be the one that is lost. So its state goes on saying what was issued under, and its next owner waits too.
func (p *partition) begin(ctx context.Context) bool {
	v, goesOn := p.awaitSight(ctx)
	if !goesOn {
		return false
	}
	if p.fresh {
		p.hot.seen = v.Hot
		p.hot.acted.Store(v.Hot.Revision())
		p.ring.epochs = v.Epochs()
	}
	p.forget(v) // before their nodes are asked: nobody answers
	p.ask(p.ledger.toAsk()...)
	return ctx.Err() == nil
}

func (p *partition) awaitSight(ctx context.Context) (v *registry.View, goesOn bool) {
	began, told := time.Now(), false
	again := time.NewTicker(sightWait)
	defer again.Stop()
	for {
		changed := p.w.opts.Snapshots.Changed()
		if v = p.w.opts.Snapshots.Current().View; p.sees(v) {
			return v, true
		}
		if !told {
			told = true
			p.w.log.Warn("waiting for the ring record and the hot keys that this partition's last owner had: the partition takes no records before", p.sights(v)...)
			p.w.metrics.blind.Inc()
			defer p.w.metrics.blind.Dec()
		}
		select {
		case <-ctx.Done():
			return nil, false
		case <-changed:
			continue
		case <-again.C:
		}
		if v = p.w.opts.Snapshots.Current().View; v.Confirmed.After(began) && !p.sees(v) {
			p.w.log.Error("the registry went back: it holds an older ring record or hot keys than this partition's last owner had (was it restored?). The partition goes on with what it "+
				"holds; publish a ring record of a higher epoch, and flush where other nodes had copies", p.sights(v)...)
			p.w.metrics.wentBack.Inc()
			p.hot.acted.Store(0) // a hot key's revision says nothing any more: all of them are new
			return v, true
		}
		p.w.log.Error("a partition stands still: the ring record and the hot keys that its last owner had are not to be had, and the registry does not say that there are none", p.sights(v)...)
	}
}

// forget removes what nodes owe that no ring record of the last cache.max_ttl names any more: what they held has expired.
func (p *partition) forget(v *registry.View) {
	today := v.Topology
	if today == p.seen || !p.sees(v) {
		return
	}
	p.seen = today
	for _, node := range p.ledger.forget(today.Names) {
		p.w.log.Info("a node left the ring so long ago that what it owes has expired", "node", node, "topic", p.id.Topic, "partition", p.id.Number)
	}
}

// sees reports whether v is at least what an earlier owner issued under.
func (p *partition) sees(v *registry.View) bool {
	return v.Topology.Epoch() >= p.least.Epoch && v.Hot.Covers(p.least.HotRevision)
}

func (p *partition) sights(v *registry.View) []any {
	return []any{"topic", p.id.Topic, "partition", p.id.Number, "epoch", v.Topology.Epoch(), "wants_epoch", p.least.Epoch,
		"hot_revision", v.Hot.Revision(), "wants_hot_revision", p.least.HotRevision, "confirmed", v.Confirmed}
}
