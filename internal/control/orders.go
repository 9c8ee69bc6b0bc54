package control

import (
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/replay"
)

// After implements pipeline.Orders.
//
// It ends before a plan that cannot be read, unless that one is cancelled or there is an earlier one of its id, and before one of which it is not known yet whether its
// topic is today's. So a mark never passes a plan that is still to be acted on.
func (s *State) After(p changelog.Partition, mark pipeline.ControlMark) (orders []pipeline.Order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, known := s.from(p, mark)
	if !known {
		return nil
	}
	orders = s.behind(p, from)
	if n := len(orders); n > 0 && orders[n-1].Mark == mark { // shown again, it is the new one
		delete(s.mu.ahead, p)
	}
	return orders
}

// behind are the plans from an offset on. It is called under the lock.
func (s *State) behind(p changelog.Partition, from int64) (orders []pipeline.Order) {
	limit := s.barrier(from)
	for _, plan := range s.mu.plans {
		if plan.Offset < from || plan.Offset >= limit || !s.mu.counts(plan) || s.mu.cancelOf(plan.ID) != nil {
			continue
		}
		r := rangeOf(plan, p)
		if r == nil {
			continue
		}
		today, there := s.mu.today[p.Topic]
		switch {
		case !there:
			return orders
		case today != "" && r.TopicID != "" && today != r.TopicID:
			continue // it was made again since: its offsets are others
		}
		orders = append(orders, pipeline.Order{
			ID: plan.ID, Target: plan.Target, Issued: plan.Window == replay.Issued, From: plan.From, To: plan.To, DryRun: plan.DryRun,
			Mark: pipeline.ControlMark{Topic: s.mu.topic, Offset: plan.Offset + 1}, Range: *r,
		})
	}
	return orders
}

// ahead is a mark of a partition that was shown when it lay behind the topic's end.
type ahead struct {
	offset int64
	shown  time.Time // first
	lost   bool      // a look that began later did not find it either
}

// from is the offset from which on a partition has acted on nothing. A mark of another topic counts as none, and so does one behind the topic's end, where a look that began
// after the mark was first shown does not find that end either: the topic lost it, and may grow beyond it again. It is called under the lock.
func (s *State) from(p changelog.Partition, mark pipeline.ControlMark) (offset int64, known bool) {
	switch {
	case s.mu.asOf.IsZero():
		return 0, false
	case mark.Topic != s.mu.topic:
		return 0, true
	}
	was, before := s.mu.ahead[p]
	before = before && was.offset == mark.Offset
	switch {
	case before && was.lost:
		return 0, true
	case mark.Offset <= s.mu.next:
		delete(s.mu.ahead, p)
		return mark.Offset, true
	case !before:
		was = ahead{mark.Offset, time.Now(), false}
	}
	was.lost = s.mu.asOf.After(was.shown)
	s.mu.ahead[p] = was
	return 0, was.lost
}

// barrier is the offset of the first plan from an offset on that cannot be read and may count. It is called under the lock.
func (s *State) barrier(from int64) int64 {
	for _, u := range s.mu.unread {
		first := s.mu.planned[u.id]
		if u.offset >= from && s.mu.cancelOf(u.id) == nil && (first == nil || first.Offset > u.offset) {
			return u.offset
		}
	}
	return s.mu.next
}

// rangeOf is what a plan says of a partition; nil: nothing.
func rangeOf(plan *Planned, p changelog.Partition) *replay.PlanRange {
	for i := range plan.Ranges {
		if r := &plan.Ranges[i]; r.Topic == p.Topic && r.Partition == p.Number {
			return r
		}
	}
	return nil
}

var _ pipeline.Orders = (*State)(nil)
