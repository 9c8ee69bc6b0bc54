package changelog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	mappingSetVersion = 1
	// mappingTextPart is how much of a file's text one record holds: in JSON a byte takes six at most.
	mappingTextPart = 128 << 10
	// mappingTextFresh is how old a text may be to serve another set without being written again: nobody removes it for much longer.
	mappingTextFresh = time.Hour
	// mappingSetMargin is how much longer than it is needed a set stays: it is noted now and then only that it is in force.
	mappingSetMargin = 3 * time.Hour
)

// MappingSet is a set of mapping files that was in force.
type MappingSet struct {
	Fingerprint string
	Files       []MappingSetFile // in the set's order
	Used        time.Time        // when it was last known to be in force
}

// MappingSetFile is a file of a set.
type MappingSetFile struct {
	Name string // without its folder
	Text string
}

// setValue is the value under mappingset/<fleet>/<fingerprint>, and textValue that under mappingtext/<fleet>/<sha256>/<part>:
// docs/TOPICS.md.
type setValue struct {
	V           int            `json:"v"`
	Fingerprint string         `json:"fingerprint"`
	Used        time.Time      `json:"used"`
	Files       []setFileValue `json:"files"`
}

type setFileValue struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"` // of its text, in hex
}

type textValue struct {
	V    int       `json:"v"`
	At   time.Time `json:"at"` // when it was written
	Part int       `json:"part"`
	Of   int       `json:"of"`
	Text string    `json:"text"`
}

func mappingSetKey(fleet, fingerprint string) string {
	return StateKey("mappingset", fleet, fingerprint)
}

func mappingTextKey(fleet, sha256 string, part int) string {
	return StateKey("mappingtext", fleet, sha256, strconv.Itoa(part))
}

// ErrNoMappingSet is a set that the state topic does not have, or not whole.
var ErrNoMappingSet = errors.New("the state topic does not have this set of mappings")

// LoadMappingSet returns a set that was in force in a fleet. Its error is ErrNoMappingSet, or a *RecordError, where no other try will do.
func (s *State) LoadMappingSet(fleet, fingerprint string) (MappingSet, error) {
	key := mappingSetKey(fleet, fingerprint)
	e, found := s.Get(key)
	if !found {
		return MappingSet{}, fmt.Errorf("%w: %s", ErrNoMappingSet, fingerprint)
	}
	var r setValue
	if err := DecodeStrict(e.Value, mappingSetVersion, &r); err != nil {
		return MappingSet{}, s.BadRecord(key, e, fmt.Errorf("decoding a set of mappings: %w", err))
	}
	set := MappingSet{Fingerprint: r.Fingerprint, Used: r.Used}
	for _, f := range r.Files {
		text, _, err := s.mappingText(fleet, f.SHA256)
		if err != nil {
			return MappingSet{}, fmt.Errorf("file %s of the set of mappings %s: %w", f.Name, fingerprint, err)
		}
		set.Files = append(set.Files, MappingSetFile{f.Name, text})
	}
	return set, nil
}

// mappingText joins the parts of a text. at is when the oldest was written.
func (s *State) mappingText(fleet, sha256 string) (text string, at time.Time, err error) {
	var b strings.Builder
	for part, of := 0, 1; part < of; part++ {
		key := mappingTextKey(fleet, sha256, part)
		e, found := s.Get(key)
		if !found {
			return "", at, fmt.Errorf("%w: %s is missing", ErrNoMappingSet, key)
		}
		var r textValue
		if err := DecodeStrict(e.Value, mappingSetVersion, &r); err != nil {
			return "", at, s.BadRecord(key, e, fmt.Errorf("decoding a mapping file's text: %w", err))
		}
		b.WriteString(r.Text)
		if of = r.Of; part == 0 || r.At.Before(at) {
			at = r.At
		}
	}
	if text = b.String(); sum(text) != sha256 {
		return "", at, fmt.Errorf("%w: %s is not the text that was written", ErrNoMappingSet, mappingTextKey(fleet, sha256, 0))
	}
	return text, at, nil
}

// PutMappingSet writes a set down, its texts first: those that st does not have, or has had for so long that somebody may be about to
// remove them. When it returns nil the set is whole on every in-sync replica.
func (s *StateStore) PutMappingSet(ctx context.Context, fleet string, set MappingSet, st *State) error {
	r := setValue{V: mappingSetVersion, Fingerprint: set.Fingerprint, Used: set.Used.UTC(), Files: []setFileValue{}}
	for _, f := range set.Files {
		hash := sum(f.Text)
		r.Files = append(r.Files, setFileValue{f.Name, hash})
		if _, at, err := st.mappingText(fleet, hash); err == nil && set.Used.Sub(at) < mappingTextFresh {
			continue
		}
		parts := cutText(f.Text)
		for i, part := range parts {
			if err := s.putJSON(ctx, mappingTextKey(fleet, hash, i), textValue{mappingSetVersion, set.Used.UTC(), i, len(parts), part}); err != nil {
				return err
			}
		}
	}
	return s.putJSON(ctx, mappingSetKey(fleet, set.Fingerprint), r)
}

// cutText cuts between characters.
func cutText(text string) []string {
	var parts []string
	for len(text) > mappingTextPart {
		n := mappingTextPart
		for n > mappingTextPart-utf8.UTFMax && !utf8.RuneStart(text[n]) {
			n--
		}
		parts, text = append(parts, text[:n]), text[n:]
	}
	return append(parts, text)
}

// RemoveMappingSets removes the sets that no journal line can name any more, since they were last in force longer than keep ago, and the
// texts that no other set has. What cannot be read stays, and so do all texts then.
func (s *StateStore) RemoveMappingSets(ctx context.Context, fleet string, st *State, keep time.Duration, now time.Time) error {
	old := now.Add(-keep - mappingSetMargin)
	texts, unread := map[string]bool{}, false
	var remove []string
	for key, e := range st.Under("mappingset", fleet) {
		var r setValue
		if err := DecodeStrict(e.Value, mappingSetVersion, &r); err != nil {
			unread = true
			continue
		}
		if r.Used.Before(old) {
			remove = append(remove, key)
			continue
		}
		for _, f := range r.Files {
			texts[f.SHA256] = true
		}
	}
	for key, e := range st.Under("mappingtext", fleet) {
		var r textValue
		parts, err := SplitStateKey(key)
		if err != nil || len(parts) != 4 || DecodeStrict(e.Value, mappingSetVersion, &r) != nil {
			continue
		}
		if !unread && !texts[parts[2]] && r.At.Before(old) {
			remove = append(remove, key)
		}
	}
	if len(remove) == 0 {
		return nil
	}
	return s.Remove(ctx, remove...)
}

// MappingSets are the fingerprints of the sets that the topic has of a fleet, sorted.
func (s *State) MappingSets(fleet string) []string {
	all := map[string]bool{}
	for key := range s.Under("mappingset", fleet) {
		if parts, err := SplitStateKey(key); err == nil && len(parts) == 3 {
			all[parts[2]] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}
