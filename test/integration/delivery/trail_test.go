//go:build integration

package delivery

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// trail is what happened to each key, and the faults that came meanwhile.
type trail struct {
	began time.Time

	mu     sync.Mutex // guards what follows
	events map[string][]event
	faults []event
	late   map[copyValue]bool // what readers filled that stalled for too long, so that a copy which has it is their own doing
}

// event is a fill of one copy, a transaction that touched the key, or a fault.
type event struct {
	from, to time.Time // to is zero for what goes on
	what     string
	node     *node  // nil for what is of no node
	name     string // of a fill
	value    string
}

type copyValue struct {
	node        *node
	name, value string
}

// keptEvents are those of one key; half of them go when there are more.
const keptEvents = 200

func newTrail() *trail {
	return &trail{began: time.Now(), events: map[string][]event{}, late: map[copyValue]bool{}}
}

func (t *trail) add(e event, keys ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range keys {
		if len(t.events[k]) >= keptEvents {
			t.events[k] = slices.Delete(t.events[k], 0, keptEvents/2)
		}
		t.events[k] = append(t.events[k], e)
	}
}

// fault notes a fault that begins; its number is for ended.
func (t *trail) fault(what string, n *node) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = append(t.faults, event{from: time.Now(), what: what, node: n})
	return len(t.faults) - 1
}

// noted notes what happens at once, and to all.
func (t *trail) noted(what string) { t.ended(t.fault(what, nil)) }

func (t *trail) ended(fault int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[fault].to = time.Now()
}

// excuse notes a fill that broke the readers' contract.
func (t *trail) excuse(f fill) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late[copyValue{f.node, f.name, f.value}] = true
}

// excused says whether a stale copy is a reader's own doing.
func (t *trail) excused(s stale) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.late[copyValue{s.node, s.name, s.has}]
}

// story is the end of a key's trail in words, and the faults since its first line. Marked are the fills of the copy in question and the
// faults of its node.
func (t *trail) story(s stale) string {
	const lines = 60
	t.mu.Lock()
	defer t.mu.Unlock()
	events := slices.Clone(t.events[s.key.text])
	slices.SortFunc(events, func(a, b event) int { return a.from.Compare(b.from) })
	if n := len(events) - lines; n > 0 {
		events = events[n:]
	}
	for _, f := range t.faults {
		if len(events) == 0 || f.to.IsZero() || f.to.After(events[0].from) {
			events = append(events, f)
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.from.Compare(b.from) })
	var b strings.Builder
	for _, e := range events {
		mark := " "
		if e.node == s.node && (e.name == s.name || e.name == "") {
			mark = ">"
		}
		fmt.Fprintf(&b, "    %s %7.3f s to %s  %s", mark, e.from.Sub(t.began).Seconds(), t.end(e), e.what)
		if e.name != "" {
			fmt.Fprintf(&b, " %s on %s: %s", e.name, e.node.name, e.value)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (t *trail) end(e event) string {
	if e.to.IsZero() {
		return "the end  "
	}
	return fmt.Sprintf("%7.3f s", e.to.Sub(t.began).Seconds())
}
