package sink

import (
	"fmt"
	"maps"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
)

// MaxHotCopies is the most copies that a hot key may have: each is a delete at every owner for every change of its row.
const MaxHotCopies = 64

// HotKeys says which keys have copies key#1 … key#n besides the plain one: those that are in the registry, and those that left it or
// had more copies there so lately that a client may hold the old registry, or a copy may still live. Keys are as clients name them,
// without key_prefix. Immutable.
type HotKeys struct {
	revision, known int64
	entries         map[string]HotEntry
}

// HotEntry is what is known of one hot key.
type HotEntry struct {
	Copies   int       // in the registry; 0: it left
	Revision int64     // of the registry, at which that came to be so
	Most     int       // the most that clients may have made, Copies included
	Until    time.Time // when Most above Copies ends; zero: it is not above
}

// NewHotKeys is a registry without a past. revision is the registry's own (etcd's), 0 where there is none.
func NewHotKeys(revision int64, copies map[string]int) *HotKeys {
	entries := make(map[string]HotEntry, len(copies))
	for key, n := range copies {
		entries[key] = HotEntry{Copies: n, Revision: revision, Most: n}
	}
	return &HotKeys{revision, revision, entries}
}

// NewHotKeysOf copies the map. revision is that of the registry's newest change among those that were seen; known is one up to which all
// were.
func NewHotKeysOf(revision, known int64, entries map[string]HotEntry) *HotKeys {
	return &HotKeys{revision, known, maps.Clone(entries)}
}

// KnownTo is h with another known.
func (h *HotKeys) KnownTo(known int64) *HotKeys { return &HotKeys{h.revision, known, h.entries} }

// Copies is how many copies key may have besides the plain one; 0 for a key that is not hot.
func (h *HotKeys) Copies(key string) int { return h.entries[key].Most }

// Len is how many keys are in the registry.
func (h *HotKeys) Len() int {
	n := 0
	for _, e := range h.entries {
		if e.Copies > 0 {
			n++
		}
	}
	return n
}

// Revision is that of the registry's newest change in h. It never falls from one to the next.
func (h *HotKeys) Revision() int64 { return h.revision }

// Covers says that h holds every change of the registry up to revision, which may be later than the newest of them.
func (h *HotKeys) Covers(revision int64) bool { return revision <= max(h.revision, h.known) }

// Each visits every key that is in the registry, in no order, until yield returns false; it can be ranged over.
func (h *HotKeys) Each(yield func(key string, copies int) bool) {
	for key, e := range h.entries {
		if e.Copies > 0 && !yield(key, e.Copies) {
			return
		}
	}
}

// Entries visits every key that h knows, also those that left, in no order, until yield returns false; it can be ranged over.
func (h *HotKeys) Entries(yield func(key string, e HotEntry) bool) {
	for key, e := range h.entries {
		if !yield(key, e) {
			return
		}
	}
}

// hotEntry is the value of one entry. Unlike in a ring record, other fields (since, …) are let pass: an entry left out
// for a field that we do not know would leave copies stale, and only copies decides what is deleted.
type hotEntry struct {
	Copies int `json:"copies"`
}

func (e hotEntry) check(key string) error {
	if _, err := CheckMetaKey(key); err != nil {
		return err
	}
	if e.Copies < 1 || e.Copies > MaxHotCopies {
		return fmt.Errorf("hot key %q: copies is %d or missing (write 1 to %d, or remove the entry)", key, e.Copies, MaxHotCopies)
	}
	return nil
}

// ParseHotEntry reads one registry entry. name is what follows the registry's prefix: the key, percent-encoded; value is
// {"copies": 8, "since": …}.
func ParseHotEntry(name string, value []byte) (key string, copies int, err error) {
	key, err = url.PathUnescape(name)
	if err != nil {
		return "", 0, fmt.Errorf("hot key %q: decoding its name: %w (percent-encode the key)", name, err)
	}
	var e hotEntry
	if err := json.Unmarshal(value, &e); err != nil {
		bad := jsonError("", value, err)
		bad.Hint = `write {"copies": 8}`
		return "", 0, fmt.Errorf("hot key %q: %w", key, bad)
	}
	if err := e.check(key); err != nil {
		return "", 0, err
	}
	return key, e.Copies, nil
}

// ParseHotFile reads a file of hot keys: {"user:1": {"copies": 8}, …}, keys as clients name them; JSON has no text for one that is no
// UTF-8. One bad entry refuses the file.
func ParseHotFile(source string, data []byte, revision int64) (*HotKeys, error) {
	var entries map[string]hotEntry
	if err := json.Unmarshal(data, &entries); err != nil {
		e := jsonError(source, data, err)
		e.Hint = `write {"user:1": {"copies": 8}, …}`
		return nil, e
	}
	copies := make(map[string]int, len(entries))
	for key, e := range entries {
		if err := e.check(key); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		copies[key] = e.Copies
	}
	return NewHotKeys(revision, copies), nil
}
