package pipeline

import (
	"slices"
	"sync"
)

// held are the pools that an operator has paused. It is never changed in place.
type held map[string]struct{}

// Hold says which pools are paused: all of them, each time. What is issued of another pool's keys is not touched by it. It is to be called
// before Run, with what was paused then.
func (w *Worker) Hold(pools []string) {
	now := make(held, len(pools))
	for _, p := range pools {
		now[p] = struct{}{}
	}
	w.held.Store(&now)
	for _, p := range w.all() {
		rouse(p.wake)
	}
}

// holds reports whether a pool is paused.
func (w *Worker) holds(pool string) bool {
	_, is := (*w.held.Load())[pool]
	return is
}

// release closes the debts of pools that are paused no more, and of templates whose file is another now, and tells what is owed for another
// reason than a node's. Only the partition's goroutine calls it: what it takes from next on is not in them.
func (p *partition) release() {
	changes, held, mapper := p.ledger.changes.Load(), p.w.held.Load(), p.w.opts.Snapshots.Current().Mapper
	if p.wide.seen && p.wide.changes == changes && p.wide.held == held && p.wide.mapper == mapper {
		return
	}
	p.wide = wideLook{true, changes, held, mapper}
	ds := p.ledger.wideDebts()
	for i := range ds {
		d := &ds[i]
		switch {
		case !d.open():
		case d.kind == KindPool && !p.w.holds(d.name), d.kind == KindTemplate && printOf(mapper, d.name) != d.under:
			p.ledger.closeAt(d.kind, d.name, p.live.window.next)
		}
	}
	p.w.standing.see(p, p.ledger.wideDebts())
}

// wideLook is what release looked at last.
type wideLook struct {
	seen    bool
	changes int64
	held    *held
	mapper  any
}

// standing is what the partitions of a worker owe for another reason than a node's, so that it is told when it begins and when it is over.
type standing struct {
	w  *Worker
	mu sync.Mutex // guards by
	by map[debtID]map[*partition]struct{}
}

// see takes in what a partition owes now.
func (s *standing) see(p *partition, ds []debt) {
	now := make([]debtID, len(ds))
	for i := range ds {
		now[i] = ds[i].debtID
	}
	for i, id := range now {
		if !slices.Contains(p.stands, id) && s.add(p, id) {
			s.w.begins(p, &ds[i])
		}
	}
	for _, id := range p.stands {
		if !slices.Contains(now, id) && s.remove(p, id) {
			s.w.over(id)
		}
	}
	p.stands = now
}

// leave forgets a partition: it is over for this worker alone.
func (s *standing) leave(p *partition) {
	for _, id := range p.stands {
		s.remove(p, id)
	}
	p.stands = nil
}

// add reports whether this partition is the first.
func (s *standing) add(p *partition, id debtID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[id] == nil {
		s.by[id] = map[*partition]struct{}{}
	}
	s.by[id][p] = struct{}{}
	s.count(id)
	return len(s.by[id]) == 1
}

// remove reports whether it was the last.
func (s *standing) remove(p *partition, id debtID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.by[id], p)
	s.count(id)
	if len(s.by[id]) > 0 {
		return false
	}
	delete(s.by, id)
	return true
}

// count shows how many partitions have a storm of a pool.
func (s *standing) count(id debtID) {
	if id.kind == KindStorm {
		s.w.metrics.storms.WithLabelValues(id.name).Set(float64(len(s.by[id])))
	}
}

// What an event says, on the status topic.
const (
	EventStorm     = "storm.began"
	EventStormOver = "storm.over"
	EventPaused    = "pool.paused"
	EventResumed   = "pool.paid"
	EventStopped   = "mapping.stopped"
	EventMended    = "mapping.paid"
)

// begins tells of the first partition that owes this.
func (w *Worker) begins(p *partition, d *debt) {
	at := []any{"topic", p.id.Topic, "partition", p.id.Number, "offset", d.from}
	switch d.kind {
	case KindStorm:
		o := w.storms().of(d.name)
		w.log.Warn("a storm: a pool's changes are too many to be deleted as they come; they are deleted at its pace, and all others as before",
			append(at, "pool", d.name, "pace", o.Pace, "rows", o.Rows, "rate", o.Rate)...)
	case KindPool:
		w.log.Warn("a pool is paused: what changes of it is owed until it is resumed", append(at, "pool", d.name)...)
	case KindTemplate:
		w.log.Error("a mapping does not fit its table any more: what it cannot render is owed until its file is another one; its other keys go on",
			append(at, "mapping", d.name, "hint", "the warning of its skipped template names the column")...)
	}
	w.event(beginWords[d.kind], d.name, p, d.from)
}

// over tells that no partition of this worker owes it any more.
func (w *Worker) over(id debtID) {
	w.log.Info(overTexts[id.kind], "name", id.name)
	w.event(overWords[id.kind], id.name, nil, 0)
}

var (
	beginWords = map[string]string{KindStorm: EventStorm, KindPool: EventPaused, KindTemplate: EventStopped}
	overWords  = map[string]string{KindStorm: EventStormOver, KindPool: EventResumed, KindTemplate: EventMended}
	overTexts  = map[string]string{
		KindStorm:    "a storm is over: all of it that this worker had is deleted",
		KindPool:     "a pool that was paused is paid: all of it that this worker had is deleted",
		KindTemplate: "a mapping that did not fit its table is paid: all of it that this worker had is deleted",
	}
)
