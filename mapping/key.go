package mapping

import (
	"fmt"
	"strings"

	"invalidator/cdc"
)

// Action says what is done to a key's copies.
type Action string

const (
	ActionDelete  Action = "delete"  // the default
	ActionStale   Action = "stale"   // one reader refills while the others go on seeing the old value, for StaleFor
	ActionRefresh Action = "refresh" // delete, or stale where StaleFor says so, and a request that somebody rebuild the value
)

// Key is one key that a change feeds.
type Key struct {
	// Text lies in the Result that it came from, and is good until that one's next Reset. Whoever keeps a Key longer takes
	// it through CloneKeys.
	Text     string
	Template *Template // whence it came: pool, team, mapping, hot copies, action
}

// CloneKeys returns keys whose texts are their own, in two allocations however many they are; nil for none.
func CloneKeys(keys []Key) []Key {
	if len(keys) == 0 {
		return nil
	}
	n := 0
	for _, k := range keys {
		n += len(k.Text)
	}
	var texts strings.Builder
	texts.Grow(n)
	for _, k := range keys {
		texts.WriteString(k.Text)
	}
	all, own := texts.String(), make([]Key, len(keys))
	for i, k := range keys {
		own[i] = Key{Text: all[:len(k.Text)], Template: k.Template}
		all = all[len(k.Text):]
	}
	return own
}

// Skip is one template that gave no key, or not all of its keys, for one image of a row.
type Skip struct {
	Template *Template
	Image    Image // empty for a logical message
	Reason   SkipReason
	Column   string // the column that was in the way; empty for SkipBadKey and for a logical message
	Detail   string // for a person
}

// SkipReason is a closed set: it is a metric's label.
type SkipReason string

const (
	SkipNull    SkipReason = "null"    // the column is NULL: there is no such key
	SkipAbsent  SkipReason = "absent"  // the image lacks the column: a gap of that pool
	SkipUnclear SkipReason = "unclear" // the envelope does not say what the value means
	SkipType    SkipReason = "type"    // a float, a JSON document, a value that the filter cannot take
	SkipMany    SkipReason = "many"    // more elements, or more keys, than one row may give: a gap of that pool
	SkipPool    SkipReason = "pool"    // a key that a writer sent is in no pool that may be sent there
	SkipBadKey  SkipReason = "bad_key" // memcached cannot hold it: over 250 bytes, or a space or control byte that nothing says to send in base64
)

// Undecided is a condition that could not be decided for a change, and so counted as true.
type Undecided struct {
	Template *Template
	Image    Image  // of the column
	Column   string // the first that was in the way
	Detail   string // for a person
}

// Result collects the keys of one change. It is reused: Reset keeps the memory.
type Result struct {
	Keys      []Key // in the order of the templates, before image first; a text is there once for each thing to be done with it
	Shadow    []Key // what templates in shadow would have added to Keys; likewise among themselves
	Skipped   []Skip
	Undecided []Undecided // at most one a template
	Unmet     []*Template // whose condition was false for the change: they gave no key

	// Of a Truncate: the pools that have to be flushed, and those that mappings leave as they are. Each pool is there once.
	Flush, Unflushed []Emptied

	arena []byte            // what the keys' texts lie in; where it had to grow, the earlier ones lie in its predecessor
	value [2][]byte         // a column's value between two filters
	list  listing           // what lists give
	met   []bool            // which of the plan's templates the change is for
	index [2]map[string]int // of Keys and Shadow, where a change gives many
}

// Reset empties r. The texts of its keys are no longer good.
func (r *Result) Reset() {
	r.Keys, r.Shadow, r.Skipped = r.Keys[:0], r.Shadow[:0], r.Skipped[:0]
	r.Undecided, r.Unmet, r.arena = r.Undecided[:0], r.Unmet[:0], r.arena[:0]
	r.Flush, r.Unflushed = r.Flush[:0], r.Unflushed[:0]
}

// Mapper is what applies a set of mappings. Set implements it.
type Mapper interface {
	// Columns is the envelope.Select of these mappings. An empty table is any table of the schema.
	Columns(source string, t cdc.TableID) *cdc.Columns
	// Keys appends the keys of both images of c, which must have been decoded under this Mapper's Columns. Safe for
	// concurrent use; r is the caller's own.
	Keys(c *cdc.RowChange, r *Result)
	// Fingerprint names the set: the same files give the same text, anywhere.
	Fingerprint() string
}

// String names the template, its condition, the column and what was in the way.
func (u Undecided) String() string {
	return fmt.Sprintf("%s: %s: %s.%s: %s", u.Template.Text, u.Template.When, u.Image, u.Column, u.Detail)
}

// String names the template, the image and what was in the way.
func (s Skip) String() string {
	if s.Column == "" {
		return fmt.Sprintf("%s: %s image: %s", s.Template.Text, s.Image, s.Detail)
	}
	return fmt.Sprintf("%s: %s image, column %s: %s", s.Template.Text, s.Image, s.Column, s.Detail)
}
