package obs

import "sync/atomic"

// Readiness is why a process does not serve: first what it waits for while it starts, then what its parts say. The zero value
// is ready. It is safe for concurrent use.
type Readiness struct {
	ask atomic.Pointer[func() []string]
}

// Waits has the process wait for something, in place of all that was said before.
func (r *Readiness) Waits(why string) { r.Ask(func() []string { return []string{why} }) }

// Ask has the reasons asked for each time, in place of all that was said before. It is called from any goroutine, and fast.
func (r *Readiness) Ask(why func() []string) { r.ask.Store(&why) }

// Lines are the reasons, a line each; none: the process serves.
func (r *Readiness) Lines() []string {
	if ask := r.ask.Load(); ask != nil {
		return (*ask)()
	}
	return nil
}
