package changelog

import "fmt"

// join notes whether the group has given us our share, be it nothing, or the session is lost.
func (g *Group) join(joined bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.joined = joined
}

// Waits says why this member does not work on its share, a line each; none: it does. It may be asked at any time.
func (g *Group) Waits() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !g.mu.joined:
		return []string{fmt.Sprintf("the group %s has not given this process its share (are the brokers up, and is there a coordinator for the group?)", g.opts.Group)}
	case len(g.mu.waiting) > 0:
		return []string{fmt.Sprintf("%d partitions that the group %s gave to this process have not begun: what their last owners left is still read", len(g.mu.waiting), g.opts.Group)}
	}
	return nil
}
