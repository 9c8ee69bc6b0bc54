package cdc

import (
	"fmt"
	"path"
)

// Include chooses tables by patterns "schema.table" in which each part may hold * and ? (path.Match's). A nil or empty
// Include chooses nothing.
type Include struct{ patterns []string }

// NewInclude checks the patterns.
func NewInclude(patterns []string) (*Include, error) {
	for _, p := range patterns {
		if _, err := path.Match(p, ""); err != nil {
			return nil, fmt.Errorf("include pattern %q: %w", p, err)
		}
	}
	return &Include{patterns}, nil
}

// Match reports whether the table is chosen. Feeders ask once a table version, not once a row.
func (i *Include) Match(schema, table string) bool {
	if i == nil {
		return false
	}
	for _, p := range i.patterns {
		if ok, _ := path.Match(p, schema+"."+table); ok {
			return true
		}
	}
	return false
}
