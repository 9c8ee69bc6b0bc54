package gap

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"invalidator/internal/changelog"
)

// List returns the gaps on the state topic, by when they were first seen. Its error tells of records that cannot be read, each a
// *changelog.RecordError: the gaps that can be are there all the same, for a newer process' record must not hide them.
func List(st *changelog.State) ([]*Case, error) {
	all, bad := list(st)
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(bad)) {
		errs = append(errs, bad[id])
	}
	return all, errors.Join(errs...)
}

// list is List, with the errors by gap. Of a gap that has one nothing is known for certain, so that it is not among the others.
func list(st *changelog.State) (all []*Case, bad map[string]error) {
	bad = map[string]error{}
	byID := map[string]*Case{}
	for k, e := range st.Under(prefix) {
		g, err := decodeGap(e.Value)
		if err = sameID(k, prefix, g.ID, err); err != nil {
			bad[idOf(k)] = st.BadRecord(k, e, err)
			continue
		}
		byID[g.ID] = &Case{Gap: g}
	}
	for k, e := range st.Under(acceptedPrefix) {
		a, err := decode[Acceptance]("an acceptance", e.Value)
		if err = sameID(k, acceptedPrefix, a.ID, err); err != nil {
			bad[idOf(k)] = st.BadRecord(k, e, err)
		} else if c := byID[a.ID]; c != nil { // else the gap was removed
			c.Acceptance = &a
		}
	}
	for k, e := range st.Under(passedPrefix) {
		p, err := decode[Passage]("a passage", e.Value)
		if err = sameID(k, passedPrefix, p.ID, err); err != nil {
			bad[idOf(k)] = st.BadRecord(k, e, err)
		} else if c := byID[p.ID]; c != nil {
			c.Passage = &p
		}
	}
	for id, c := range byID {
		if bad[id] == nil {
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b *Case) int {
		if n := a.Seen.Compare(b.Seen); n != 0 {
			return n
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all, bad
}

// idOf is the gap that a key is about.
func idOf(k string) string {
	parts, err := changelog.SplitStateKey(k)
	if err != nil {
		return k
	}
	return strings.Join(parts[1:], "/")
}

func sameID(k, prefix, id string, err error) error {
	if err == nil && key(prefix, id) != k {
		return fmt.Errorf("the record is of gap %q", id)
	}
	return err
}

// Find returns the gap of that id; nil where there is none.
func Find(all []*Case, id string) *Case {
	if i := slices.IndexFunc(all, func(c *Case) bool { return c.ID == id }); i >= 0 {
		return all[i]
	}
	return nil
}

// Keep is how long a closed gap stays listed: as long as the status topic tells of it.
const Keep = 30 * 24 * time.Hour

// outdated are the keys of gaps that have been closed for longer than Keep.
func outdated(all []*Case, now time.Time) (keys []string) {
	for _, c := range all {
		if c.State() == Closed && now.Sub(c.Passage.Done) > Keep {
			// What says that it is closed goes last: what a crash leaves of it is not open again.
			keys = append(keys, key(acceptedPrefix, c.ID), key(prefix, c.ID), key(passedPrefix, c.ID))
		}
	}
	return keys
}
