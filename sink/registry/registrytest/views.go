// Package registrytest has what a test shows of the registry.
package registrytest

import (
	"sync"

	"invalidator/sink/registry"
)

// Views are what a registry.Watcher has seen, as a test turns them: View is nil before the first Store. The zero value is ready; it is safe for
// concurrent use.
type Views struct {
	mu      sync.Mutex
	view    *registry.View
	changed chan struct{}
}

// Store has x be the view from now on.
func (v *Views) Store(x *registry.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.view = x
	if v.changed != nil {
		close(v.changed)
	}
	v.changed = make(chan struct{})
}

// View is registry.Watcher's.
func (v *Views) View() *registry.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.view
}

// Changed is registry.Watcher's; before the first Store it is nil.
func (v *Views) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}
