package pipeline

import (
	"context"
	"slices"
	"sync"
)

const (
	// maxReading is how many passes of a worker read the log at once.
	maxReading = 4
	// maxStormReading is how many storms' do besides. They have slots of their own: they wait longest for room at the nodes.
	maxStormReading = 2
	// maxEpochReading is how many of those do that a change of the ring made necessary: they wait for nobody else.
	maxEpochReading = 2
	// maxReplayReading is how many replays by hand do. They give the slot back after each fetch.
	maxReplayReading = 1
)

// slots bound how many passes read at once. Who pays a primary's debt goes first.
type slots struct {
	mu      sync.Mutex // a leaf
	free    int
	waiting [2][]chan struct{} // those in a hurry, the others; closed when a slot is theirs
}

func newSlots(n int) *slots { return &slots{free: n} }

func class(urgent bool) int {
	if urgent {
		return 0
	}
	return 1
}

// take waits for a slot until ctx ends.
func (s *slots) take(ctx context.Context, urgent bool) error {
	s.mu.Lock()
	if s.free > 0 {
		s.free--
		s.mu.Unlock()
		return nil
	}
	mine, c := make(chan struct{}), class(urgent)
	s.waiting[c] = append(s.waiting[c], mine)
	s.mu.Unlock()
	select {
	case <-mine:
		return nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	i := slices.Index(s.waiting[c], mine)
	if i >= 0 {
		s.waiting[c] = slices.Delete(s.waiting[c], i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // it came just then
		s.give()
	}
	return ctx.Err()
}

// give hands a slot on.
func (s *slots) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.waiting {
		if len(s.waiting[c]) > 0 {
			close(s.waiting[c][0])
			s.waiting[c] = slices.Delete(s.waiting[c], 0, 1)
			return
		}
	}
	s.free++
}

// hurried reports whether somebody waits who goes before one that is not urgent.
func (s *slots) hurried() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting[0]) > 0
}
