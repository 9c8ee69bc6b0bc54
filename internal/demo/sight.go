package demo

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/sink"
)

// sight is what the workers were seen to do: every wait of the demo is for something to appear here.
type sight struct {
	mu struct {
		sync.Mutex
		index   map[place]int // into all
		all     []seen        // in the order of their first rounds
		done    int           // changes that had their last round
		changed chan struct{} // closed and replaced with each round
	}
}

// place is a record's place in the log. A partition that moved is handled again from there; it is one change all the same.
type place struct {
	changelog.Partition
	offset int64
}

// seen is one change whose first round is acknowledged. Its slices are never written to.
type seen struct {
	keys   []string
	copies []sink.Copy // of the first round
	acked  time.Time   // the last copy of the first round
	done   bool        // all rounds are
}

func newSight() *sight {
	s := &sight{}
	s.mu.index = map[place]int{}
	s.mu.changed = make(chan struct{})
	return s
}

// observe is a worker's Observer.
func (s *sight) observe(r pipeline.Round) {
	keys := make([]string, len(r.Keys))
	for i, k := range r.Keys {
		keys[i] = k.Text
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := place{r.Partition, r.Offset}
	i, again := s.mu.index[at]
	if !again {
		i = len(s.mu.all)
		s.mu.index[at] = i
		s.mu.all = append(s.mu.all, seen{keys: keys, copies: r.Copies, acked: r.Acked})
	}
	if r.Number >= r.Of && !s.mu.all[i].done {
		s.mu.all[i].done = true
		s.mu.done++
	}
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// mark is a moment: since gives what was first seen after it.
func (s *sight) mark() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.all)
}

// since returns the changes first seen after mark that have one of the keys.
func (s *sight) since(mark int, keys map[string]bool) []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []seen
	for _, c := range s.mu.all[mark:] {
		if slices.ContainsFunc(c.keys, func(k string) bool { return keys[k] }) {
			out = append(out, c)
		}
	}
	return out
}

func (s *sight) finished() (int, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.done, s.mu.changed
}

// await blocks until ok, which is asked after each round. awaited says what for, for the error that comes after limit.
func (s *sight) await(ctx context.Context, limit time.Duration, ok func() bool, awaited func() string) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		_, changed := s.finished()
		if ok() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("waited %v for %s", limit, awaited())
		}
	}
}

// settled blocks until as many changes as records had all their rounds.
func (s *sight) settled(ctx context.Context, limit time.Duration, records int) error {
	done := 0
	return s.await(ctx, limit, func() bool { done, _ = s.finished(); return done >= records },
		func() string { return fmt.Sprintf("all rounds of %d changes; %d have had them", records, done) })
}
