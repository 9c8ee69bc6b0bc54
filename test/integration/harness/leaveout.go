package harness

import (
	"context"
	"sync"

	"invalidator/sink"
)

// LeaveOut acknowledges some deletes without sending them. round counts from 1.
func LeaveOut(left func(l sink.Lane, c sink.Copy, round int) bool) func(sink.Deleter) sink.Deleter {
	return func(d sink.Deleter) sink.Deleter {
		return &leavingOut{Deleter: d, left: left, rounds: map[issued]int{}}
	}
}

type leavingOut struct {
	sink.Deleter
	left func(l sink.Lane, c sink.Copy, round int) bool

	mu     sync.Mutex // guards rounds
	rounds map[issued]int
}

type issued struct {
	change sink.Waiter
	copy   sink.Copy
}

func (o *leavingOut) Delete(ctx context.Context, l sink.Lane, c sink.Copy, w sink.Waiter) error {
	o.mu.Lock()
	o.rounds[issued{w, c}]++
	round := o.rounds[issued{w, c}]
	o.mu.Unlock()
	if o.left(l, c, round) {
		w.Acked(c, nil)
		return nil
	}
	return o.Deleter.Delete(ctx, l, c, w)
}
