package sink

import (
	"fmt"
	"maps"
	"net/url"

	"github.com/go-json-experiment/json"
)

// MaxHotCopies is the most copies that a hot key may have: each is a delete at every owner for every change of its row.
const MaxHotCopies = 64

// HotKeys says which keys have copies key#1 … key#n besides the plain one. Keys are as clients name them, without
// key_prefix. Immutable.
type HotKeys struct {
	revision int64
	copies   map[string]int
}

// NewHotKeys copies the map. revision is the registry's own (etcd's), 0 where there is none.
func NewHotKeys(revision int64, copies map[string]int) *HotKeys {
	return &HotKeys{revision, maps.Clone(copies)}
}

// Copies is how many copies key has besides the plain one; 0 for a key that is not hot.
func (h *HotKeys) Copies(key string) int { return h.copies[key] }

// Len is how many keys are hot.
func (h *HotKeys) Len() int { return len(h.copies) }

// Revision is the registry revision that h was read at.
func (h *HotKeys) Revision() int64 { return h.revision }

// Each visits every hot key in no order, until yield returns false; it can be ranged over.
func (h *HotKeys) Each(yield func(key string, copies int) bool) {
	for key, n := range h.copies {
		if !yield(key, n) {
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
	return &HotKeys{revision, copies}, nil
}
