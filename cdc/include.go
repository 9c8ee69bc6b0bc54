package cdc

import (
	"fmt"
	"path"
	"slices"
	"strings"
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

// MatchSchema reports whether a table of the schema could be chosen.
func (i *Include) MatchSchema(schema string) bool {
	if i == nil {
		return false
	}
	for _, p := range i.patterns {
		for at, c := range p {
			head := p[:at]
			if c == '*' { // it may reach over the dot
				head = p[:at+1]
			} else if c != '.' {
				continue
			}
			if ok, _ := path.Match(head, schema); ok {
				return true
			}
		}
	}
	return false
}

// Fold is the Include for a server that keeps names in lower case, whatever case they are given in.
func (i *Include) Fold() *Include {
	if i == nil {
		return nil
	}
	folded := make([]string, len(i.patterns))
	for n, p := range i.patterns {
		folded[n] = strings.ToLower(p)
	}
	return &Include{folded}
}

// Unmatched gives the patterns that choose none of the tables.
func (i *Include) Unmatched(tables []TableID) (patterns []string) {
	if i == nil {
		return nil
	}
	for _, p := range i.patterns {
		one := &Include{[]string{p}}
		if !slices.ContainsFunc(tables, func(t TableID) bool { return one.Match(t.Schema, t.Table) }) {
			patterns = append(patterns, p)
		}
	}
	return patterns
}
