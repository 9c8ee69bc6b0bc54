//go:build integration

package integration

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// trail is what happened to each key.
type trail struct {
	began time.Time

	mu     sync.Mutex // guards events
	events map[string][]event
}

// event is a fill of one copy, or a transaction that touched the key.
type event struct {
	from, to time.Time
	what     string

	node, name string // of a fill
	value      string
	carried    string // the node that the value came from, where it was not the database
	late       bool   // it broke the readers' contract and was taken back
}

func newTrail() *trail { return &trail{began: time.Now(), events: map[string][]event{}} }

func (t *trail) add(e event, keys ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		t.events[k] = append(t.events[k], e)
	}
}

// excused says whether a stale copy may be a reader's own doing: a fill that broke the contract was carried on before it was taken back.
func (t *trail) excused(s stale) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.events[s.key.text] {
		if c.carried == "" || c.name != s.name {
			continue
		}
		for _, l := range t.events[s.key.text] {
			if l.late && l.name == c.name && l.node == c.carried && l.from.Before(c.to) && c.from.Before(l.to) {
				return true
			}
		}
	}
	return false
}

// story is the end of a key's trail in words. Marked are the fills of the copy in question.
func (t *trail) story(s stale) string {
	const lines = 25
	t.mu.Lock()
	defer t.mu.Unlock()
	events := slices.Clone(t.events[s.key.text])
	slices.SortFunc(events, func(a, b event) int { return a.to.Compare(b.to) })
	var b strings.Builder
	if n := len(events) - lines; n > 0 {
		fmt.Fprintf(&b, "      … %d events before\n", n)
		events = events[n:]
	}
	for _, e := range events {
		mark := " "
		if e.node == s.node && e.name == s.name {
			mark = ">"
		}
		fmt.Fprintf(&b, "    %s %7.3f s to %7.3f s  %s", mark, e.from.Sub(t.began).Seconds(), e.to.Sub(t.began).Seconds(), e.what)
		if e.name != "" {
			fmt.Fprintf(&b, " %s on %s: %s", e.name, e.node, e.value)
		}
		b.WriteString("\n")
	}
	return b.String()
}
