package registry

import (
	"time"

	"invalidator/sink"
)

// offered is a hot key as the registry has it.
type offered struct {
	mod    int64
	copies int
}

// hotPast is what is known of the hot keys, from the registry and from other workers. Keys that left, or have fewer copies, go on being
// fanned out for as long as their copies may live.
type hotPast struct {
	entries         map[string]sink.HotEntry
	revision, known int64
	built           *sink.HotKeys // of all this; nil: to be made
}

// set takes all that the registry held at revision.
func (h *hotPast) set(now map[string]offered, revision int64, until time.Time) {
	if h.entries == nil {
		h.entries = map[string]sink.HotEntry{}
	}
	for key, o := range now {
		h.put(key, sink.HotEntry{Copies: o.copies, Revision: o.mod, Most: o.copies}, until)
	}
	for key, e := range h.entries {
		if _, there := now[key]; !there && e.Copies > 0 && e.Revision <= revision { // a later one was seen by somebody who is ahead of us
			h.put(key, sink.HotEntry{Revision: max(revision, e.Revision)}, until)
		}
	}
}

// put takes an entry as it is from now on. until is when what it had more before ends.
func (h *hotPast) put(key string, e sink.HotEntry, until time.Time) {
	if e.Revision > h.revision {
		h.revision, h.built = e.Revision, nil
	}
	was, known := h.entries[key]
	if known && was.Copies == e.Copies { // written again
		return
	}
	if was.Most > e.Copies {
		e.Most = was.Most
		if e.Until = was.Until; was.Copies > e.Copies || e.Until.IsZero() {
			e.Until = later(e.Until, until)
		}
	}
	h.entries[key] = e
	h.built = nil
}

// merge takes an entry that another worker saw. The newer one says what the registry holds; of the copies that there may be, the
// larger number counts, for longer. until is when it ends where nobody knows better.
func (h *hotPast) merge(key string, e sink.HotEntry, until time.Time) {
	if h.entries == nil {
		h.entries = map[string]sink.HotEntry{}
	}
	was, known := h.entries[key]
	if known && was == e {
		return
	}
	merged := e
	if known && was.Revision > e.Revision {
		merged = was
	}
	merged.Most, merged.Until = max(e.Most, was.Most, merged.Copies), time.Time{}
	if merged.Most > merged.Copies {
		merged.Until = later(e.Until, was.Until)
		if was.Copies > merged.Copies || merged.Until.IsZero() {
			merged.Until = later(merged.Until, until)
		}
	}
	if known && merged == was {
		return
	}
	h.entries[key] = merged
	h.revision = max(h.revision, e.Revision)
	h.built = nil
}

// settle ends what has expired at now, and returns the hot keys.
func (h *hotPast) settle(now time.Time) *sink.HotKeys {
	for key, e := range h.entries {
		if e.Most == e.Copies || now.Before(e.Until) {
			continue
		}
		h.built = nil
		if e.Copies == 0 {
			delete(h.entries, key)
			continue
		}
		e.Most, e.Until = e.Copies, time.Time{}
		h.entries[key] = e
	}
	switch {
	case h.built == nil:
		h.built = sink.NewHotKeysOf(h.revision, h.known, h.entries)
	case !h.built.Covers(h.known):
		h.built = h.built.KnownTo(h.known)
	}
	return h.built
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
