package pipeline

import "sync"

// budget bounds the changes that several tracks hold together.
type budget struct {
	mu      sync.Mutex // a leaf
	free    int
	waiting map[chan struct{}]struct{} // who found none, to be told when there are some again
}

func newBudget(n int) *budget {
	return &budget{free: n, waiting: map[chan struct{}]struct{}{}}
}

// take gives up to n; where it gives none, wake gets a token when there are some again.
func (b *budget) take(n int, wake chan struct{}) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.free)
	if n == 0 {
		b.waiting[wake] = struct{}{}
	}
	b.free -= n
	return n
}

// give takes back what take gave.
func (b *budget) give(n int) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
	for wake := range b.waiting {
		delete(b.waiting, wake)
		rouse(wake)
	}
}

// rouse leaves a token in a channel that holds one.
func rouse(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
