package flush

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// guardEvery is how often a load is looked at while a job works.
const guardEvery = time.Second

// guard watches the load for a job.
type guard struct {
	signal signal
	limit  float64
	told   func(load float64)
	news   chan struct{} // holds one signal: it has looked
	stop   func()        // ends run, and waits for it

	mu struct {
		sync.Mutex
		since time.Time // since when the load is below the limit, as far as was looked; zero: it is above, or cannot be read
		why   string    // why it is not below; empty also before the first look
	}
}

// run looks until ctx ends.
func (g *guard) run(ctx context.Context) {
	for {
		load, err := g.signal(ctx)
		if ctx.Err() != nil {
			return
		}
		g.note(load, err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(guardEvery):
		}
	}
}

func (g *guard) note(load float64, err error) {
	if err == nil {
		g.told(load)
	}
	defer rouse(g.news)
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case err != nil:
		g.mu.since, g.mu.why = time.Time{}, fmt.Sprintf("the load cannot be read, which counts as above its limit: %s", err)
	case load > g.limit:
		g.mu.since, g.mu.why = time.Time{}, fmt.Sprintf("the load is %.0f, above its limit of %.0f", load, g.limit)
	default:
		if g.mu.since.IsZero() {
			g.mu.since = time.Now()
		}
		g.mu.why = ""
	}
}

// below says since when the load is below its limit; else why it is not.
func (g *guard) below() (since time.Time, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.since, g.mu.why
}

// belowFor says whether it is below, and was for so long. Of a nil guard nothing is known: it may be.
func (g *guard) belowFor(now time.Time, d time.Duration) bool {
	if g == nil {
		return true
	}
	since, _ := g.below()
	return !since.IsZero() && now.Sub(since) >= d
}
