package app

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/mapping"
)

// traceSets are the sets of mappings under which a window's changes may have been issued.
type traceSets struct {
	today []*mapping.Set          // those in force now: one, or two while a change of the files is on its way
	by    map[string]*mapping.Set // by fingerprint; nil: nobody has that set any more
}

// all are the sets that there are, today's first.
func (s *traceSets) all() []*mapping.Set {
	sets := slices.Clone(s.today)
	for _, fp := range slices.Sorted(maps.Keys(s.by)) {
		if set := s.by[fp]; set != nil && !slices.Contains(sets, set) {
			sets = append(sets, set)
		}
	}
	return sets
}

func (s *traceSets) isToday(fingerprint string) bool {
	return slices.ContainsFunc(s.today, func(set *mapping.Set) bool { return set.Fingerprint() == fingerprint })
}

// loadSets takes the sets that the journals' lines name, and today's.
func (t *tracer) loadSets() error {
	t.sets = &traceSets{by: map[string]*mapping.Set{}}
	if err := t.setsOfToday(); err != nil {
		return err
	}
	for _, set := range t.sets.today {
		t.sets.by[set.Fingerprint()] = set
	}
	var lost []string
	for _, lines := range t.state.lines {
		for i := range lines {
			fp := lines[i].Mappings
			if _, met := t.sets.by[fp]; met {
				continue
			}
			set, err := t.archived(fp)
			if t.sets.by[fp] = set; err != nil {
				lost = append(lost, fp)
			}
		}
	}
	slices.Sort(lost)
	for _, fp := range lost {
		t.unknown("what the mappings %s gave, under which deletes were issued in the window: that set stands nowhere any more, and today's stands in", fp)
	}
	return nil
}

// archived makes a set of what the state topic has; nil with an error where it cannot be made.
func (t *tracer) archived(fingerprint string) (*mapping.Set, error) {
	saved, err := t.state.LoadMappingSet(t.config.Kafka.Group, fingerprint)
	if err != nil {
		return nil, err
	}
	return compileSet(saved)
}

// setsOfToday asks in this order: the workers' own records, the set that was noted last, the files that were last good, and the folder.
func (t *tracer) setsOfToday() error {
	for _, fp := range t.workersSets() {
		if set, err := t.archived(fp); err == nil {
			t.sets.today = append(t.sets.today, set)
		}
	}
	if len(t.sets.today) > 0 {
		return nil
	}
	if set := t.lastUsed(); set != nil {
		t.sets.today = []*mapping.Set{set}
		return nil
	}
	if set := savedSet(t.state.State, t.config.Kafka.Group); len(set.Files()) > 0 {
		t.sets.today = []*mapping.Set{set}
		return nil
	}
	set, _, err := mapping.Load(t.config.Mappings.Dir)
	if err != nil {
		return fmt.Errorf("no worker of group %s has written its mappings to the state topic, and %w", t.config.Kafka.Group, err)
	}
	t.sets.today = []*mapping.Set{set}
	t.unknown("which mappings the workers have: none of them has written its own down, and those of the folder %s stand in", t.config.Mappings.Dir)
	return nil
}

// workersSets are the fingerprints of the workers that spoke about as lately as the last one, by their own clocks.
func (t *tracer) workersSets() (prints []string) {
	var all []processRecord
	var last time.Time
	for _, e := range t.state.Under("process") {
		r, err := parseProcess(e)
		if err != nil || r.Group != t.config.Kafka.Group || r.Role != roleWorker {
			continue
		}
		if all = append(all, r); r.At.After(last) {
			last = r.At
		}
	}
	for _, r := range all {
		if last.Sub(r.At) <= processLost && !slices.Contains(prints, r.Mappings.Fingerprint) {
			prints = append(prints, r.Mappings.Fingerprint)
		}
	}
	slices.Sort(prints)
	return prints
}

// lastUsed is the set that was last noted to be in force; nil: there is none that can be made.
func (t *tracer) lastUsed() *mapping.Set {
	fleet := t.config.Kafka.Group
	var sets []changelog.MappingSet
	for _, fp := range t.state.MappingSets(fleet) {
		if saved, err := t.state.LoadMappingSet(fleet, fp); err == nil {
			sets = append(sets, saved)
		}
	}
	slices.SortStableFunc(sets, func(a, b changelog.MappingSet) int { return b.Used.Compare(a.Used) })
	for _, saved := range sets {
		if set, err := compileSet(saved); err == nil {
			return set
		}
	}
	return nil
}

// selects asks for the tables alone that may give keys of the pool, so that the others' rows are not decoded.
func (t *tracer) selects(set *mapping.Set) envelope.Select {
	owners := map[string]bool{} // files that claim the pool
	for _, f := range set.Files() {
		owners[f.Name] = slices.Contains(f.Pools, t.pool) || slices.Contains(f.Underivable, t.pool)
	}
	return func(source string, id cdc.TableID) *cdc.Columns {
		p := set.Plan(source, id)
		if p == nil || !slices.ContainsFunc(p.Templates, func(m *mapping.Template) bool { return m.Pool == t.pool || m.Raw && owners[m.File] }) {
			return nil
		}
		return p.Columns
	}
}
