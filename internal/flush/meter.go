package flush

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/sink"
)

const (
	meterEvery  = time.Second     // while something is to be flushed
	meterIdle   = 5 * time.Second // else, so that there is a minute before each job
	meterKeeps  = time.Minute
	askAtOnce   = 16              // nodes
	nodeTimeout = 3 * time.Second // for a node's figures, or a mark
	minLimit    = 1000            // of the nodes' counters, a second, where nobody says a limit
)

// errNoLoad says that nothing was measured yet.
var errNoLoad = errors.New("the nodes' counters have not been read twice yet")

// meter measures what the nodes that answer have to bear together: of keys that were not there and of values that were set a second the larger.
type meter struct {
	ask   func(ctx context.Context, node string) (sink.NodeStats, error)
	nodes func() []string // of today
	busy  func() bool
	wake  chan struct{}      // holds one signal: it is busy now
	last  map[string]reading // run's own

	mu struct {
		sync.Mutex
		samples []sample        // of the last minute
		err     error           // why there is none now
		free    map[string]bool // nodes that have answered last, and whose crawler is at rest
	}
}

// reading is a node's figures at a moment.
type reading struct {
	at time.Time
	sink.NodeStats
}

type sample struct {
	at   time.Time
	load float64
}

// run measures until ctx ends.
func (m *meter) run(ctx context.Context) {
	m.last = map[string]reading{}
	for {
		m.look(ctx)
		every := meterIdle
		if m.busy() {
			every = meterEvery
		}
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-time.After(every):
		}
	}
}

// look asks all nodes.
func (m *meter) look(ctx context.Context) {
	nodes := m.nodes()
	maps.DeleteFunc(m.last, func(node string, _ reading) bool { return !slices.Contains(nodes, node) })
	readings, never := make([]reading, len(nodes)), make([]bool, len(nodes))
	var eg errgroup.Group
	eg.SetLimit(askAtOnce)
	for i, node := range nodes {
		eg.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, nodeTimeout)
			defer cancel()
			st, err := m.ask(ctx, node)
			var no *sink.NoDumpError
			if never[i] = errors.As(err, &no); err == nil {
				readings[i] = reading{time.Now(), st}
			}
			return nil
		})
	}
	eg.Wait() // no error is returned
	if ctx.Err() != nil {
		return
	}
	free := make(map[string]bool, len(nodes))
	var sets, misses float64
	counted, answered, all := 0, 0, 0
	for i, node := range nodes {
		if !never[i] { // what is no memcached, as a proxy, has no counters
			all++
		}
		now := readings[i]
		if now.at.IsZero() {
			continue // its last figures stand: the next ones are over a longer time
		}
		answered++
		free[node] = !now.Running
		was, known := m.last[node]
		m.last[node] = now
		over := now.at.Sub(was.at).Seconds()
		if !known || was.Pid != now.Pid || was.Start != now.Start || over <= 0 || now.CmdSet < was.CmdSet || now.GetMisses < was.GetMisses {
			continue
		}
		counted++
		sets += float64(now.CmdSet-was.CmdSet) / over
		misses += float64(now.GetMisses-was.GetMisses) / over
	}
	m.note(time.Now(), max(sets, misses), counted, answered, all, free)
}

func (m *meter) note(now time.Time, load float64, counted, answered, all int, free map[string]bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.free = free
	m.mu.samples = slices.DeleteFunc(m.mu.samples, func(s sample) bool { return now.Sub(s.at) > meterKeeps })
	switch {
	case 2*answered < all:
		m.mu.err = fmt.Errorf("only %d of %d nodes tell their counters", answered, all)
	case 2*counted < all:
		m.mu.err = errNoLoad
	default:
		m.mu.err = nil
		m.mu.samples = append(m.mu.samples, sample{now, load})
	}
}

// isFree says whether a node has answered last, and no dump runs there. Of one that clients do not use nothing is known.
func (m *meter) isFree(node string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.free[node]
}

// load is the latest.
func (m *meter) load(context.Context) (float64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch n := len(m.mu.samples); {
	case m.mu.err != nil:
		return 0, m.mu.err
	case n == 0:
		return 0, errNoLoad
	default:
		return m.mu.samples[n-1].load, nil
	}
}

// limit is what is too much where nobody says it: twice what was in the last minute. ok is false where nothing is known of that.
func (m *meter) limit() (limit float64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.samples) == 0 {
		return minLimit, false
	}
	sum := 0.0
	for _, s := range m.mu.samples {
		sum += s.load
	}
	return max(minLimit, 2*sum/float64(len(m.mu.samples))), true
}
