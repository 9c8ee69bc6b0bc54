package pipeline

import (
	"fmt"
	"time"
)

// What is taken in beside the window of a replay: clocks differ, a line of the journal is a second wide, and one that was folded has the last second of its
// minute.
const (
	sentBefore = clocksDiffer + lineWide
	sentAfter  = clocksDiffer + time.Minute
)

// takeOrders acts on the plans that came since it last did, and ends what was cancelled. changed is what Orders.Changed gave before: while that is the same there is
// nothing new. Only the partition's goroutine calls it, before it takes records.
//
// The debt of a plan is in the ledger before the mark moves, and the state reads the mark before the debts: a state that has acted on a plan has its debt, or it is
// done. A crash in between acts on it again, which adds nothing to a debt that stands.
func (p *partition) takeOrders(changed <-chan struct{}) {
	if changed != nil && changed == p.ordered {
		return
	}
	p.ordered = changed
	orders := p.w.opts.Orders
	for _, d := range p.ledger.doneAgain() {
		if d.kind == KindReplay && orders.Cancelled(d.name) {
			p.cancelOrder(d.name)
		}
	}
	_, mark := p.acted.get()
	for _, o := range orders.After(p.id, mark) {
		ranges := p.rangesOf(&o)
		p.takeOrder(o, ranges)
		if len(joined(ranges)) == 0 && p.w.opts.Progress != nil {
			end := o.Range.To
			p.w.opts.Progress(ProgressReport{ID: o.ID, Partition: p.id, From: end, To: end, Offset: end, DryRun: o.DryRun, Done: true})
		}
	}
}

// rangesOf are the offsets that a plan means: what the journal says was sent in its window, up to where the log ended; of a window of commits also all from the
// first offset on that may have been committed in it, and it is noted which count whenever they were committed.
//
// What was sent and lies below the log's start is not left out: the pass tells that it is lost.
func (p *partition) rangesOf(o *Order) (ranges [][2]int64) {
	for _, r := range p.journal.between(o.From.Add(-sentBefore), o.To.Add(sentAfter)) {
		ranges = append(ranges, [2]int64{r[0], min(r[1], o.Range.To)})
	}
	if !o.Issued && o.Range.Since != nil {
		o.Sent = joined(ranges)
		ranges = append(ranges, [2]int64{*o.Range.Since, o.Range.To})
	}
	return ranges
}

// ActedOf reads out of a state record how far its partition has acted on the control topic, and which replays it is not done with. Its error is a record of a version
// that is not known.
func ActedOf(record []byte) (mark ControlMark, replays []string, err error) {
	s, err := parseState(record)
	if err != nil {
		return mark, nil, err
	}
	if err := s.knowsKinds(); err != nil {
		return mark, nil, fmt.Errorf("what it is done with is not known: %w", err)
	}
	for _, d := range s.Debts {
		if d.Kind == KindReplay {
			replays = append(replays, d.Name)
		}
	}
	return s.Acted.Control, replays, nil
}
