package mapping

import (
	"fmt"

	"invalidator/cdc"
)

// Action says what is done to a key's copies.
type Action string

// ActionDelete is the only action so far; stale and refresh join here.
const ActionDelete Action = "delete"

// Key is one key that a change feeds.
type Key struct {
	Text     string
	Template *Template // whence it came: pool, team, mapping, hot copies, action
}

// Skip is one template that gave no key for one image of a row.
type Skip struct {
	Template *Template
	Image    Image
	Reason   SkipReason
	Column   string // the column that was in the way; empty for SkipBadKey
	Detail   string // for a person
}

// SkipReason is a closed set: it is a metric's label.
type SkipReason string

const (
	SkipNull    SkipReason = "null"    // the column is NULL: there is no such key
	SkipAbsent  SkipReason = "absent"  // the image lacks the column: a gap of that pool
	SkipUnclear SkipReason = "unclear" // the envelope does not say what the value means
	SkipType    SkipReason = "type"    // a float, a JSON document, a value that the filter cannot take
	SkipBadKey  SkipReason = "bad_key" // memcached cannot hold it: over 250 bytes, a space, a control byte
)

// Result collects the keys of one change. It is reused: Reset keeps the memory.
type Result struct {
	Keys    []Key // distinct texts, in the order of the templates, before image first
	Skipped []Skip

	key   []byte    // the key being rendered
	value [2][]byte // a column's value between two filters
}

// Reset empties r.
func (r *Result) Reset() { r.Keys, r.Skipped = r.Keys[:0], r.Skipped[:0] }

// Mapper is what applies a set of mappings. Set implements it.
type Mapper interface {
	// Columns is the envelope.Select of these mappings.
	Columns(source string, t cdc.TableID) *cdc.Columns
	// Keys appends the keys of both images of c, which must have been decoded under this Mapper's Columns. Safe for
	// concurrent use; r is the caller's own.
	Keys(c *cdc.RowChange, r *Result)
	// Fingerprint names the set: the same files give the same text, anywhere.
	Fingerprint() string
}

// String names the template, the image and what was in the way.
func (s Skip) String() string {
	if s.Column == "" {
		return fmt.Sprintf("%s: %s image: %s", s.Template.Text, s.Image, s.Detail)
	}
	return fmt.Sprintf("%s: %s image, column %s: %s", s.Template.Text, s.Image, s.Column, s.Detail)
}
