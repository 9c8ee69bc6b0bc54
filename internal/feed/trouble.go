package feed

import (
	"maps"
	"slices"
	"sync"
)

// trouble is what stands of a source that a person must act on. It is safe for concurrent use.
type trouble struct {
	mu    sync.Mutex
	lines map[string]string // by what it is about
}

func (t *trouble) set(about, line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines[about] = line
}

func (t *trouble) remove(about string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.lines, about)
}

// keep removes what keep does not hold.
func (t *trouble) keep(keep func(about string) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.lines, func(about, _ string) bool { return !keep(about) })
}

func (t *trouble) clear() { t.keep(func(string) bool { return false }) }

func (t *trouble) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lines)
}

// all are the lines, sorted.
func (t *trouble) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Sorted(maps.Values(t.lines))
}
