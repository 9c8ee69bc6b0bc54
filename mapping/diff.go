package mapping

import (
	"fmt"
	"slices"
	"strings"
)

// Change is what became of one key family (a template with its column names), or of a pool, between two sets.
type Change struct {
	Kind     ChangeKind `json:"change"`
	Family   string     `json:"family"`        // the template; of a pool its name and :*
	Was      string     `json:"was,omitempty"` // the template before, where its text changed
	Pool     string     `json:"pool"`
	Team     string     `json:"team"`
	Mapping  string     `json:"mapping,omitempty"`
	Tables   []string   `json:"tables,omitempty"`
	What     []string   `json:"what"`               // what changed, for a person
	Need     Need       `json:"after_merge"`        // what the caches need once the new set is in force
	Why      string     `json:"why,omitempty"`      // of Need
	Warnings []string   `json:"warnings,omitempty"` // what no command mends: clients must not rely on it any more
}

// ChangeKind is a closed set.
type ChangeKind string

const (
	Added   ChangeKind = "added"
	Removed ChangeKind = "removed"
	Changed ChangeKind = "changed"
)

// Need is a closed set.
type Need string

const (
	NeedNothing Need = ""
	NeedReplay  Need = "replay" // of the mapping: changes that are in the log already give keys that nobody deleted
	NeedFlush   Need = "flush"  // of the pool: no log gives its keys
)

// Diff says what the new set does otherwise than the old one, in the order of the new files, and then what is gone.
func Diff(before, after *Set) []Change {
	was, is := before.placed(), after.placed()
	pairs := pair(was, is)
	var changes []Change
	for i, p := range is {
		if pairs[i] < 0 {
			changes = append(changes, added(p))
		} else if c := compare(was[pairs[i]], p); len(c.What) > 0 {
			changes = append(changes, c)
		}
	}
	for i, p := range was {
		if !slices.Contains(pairs, i) {
			c := p.change(Removed)
			c.Warnings = []string{"changes no longer delete its keys: first see that no client reads them"}
			changes = append(changes, c)
		}
	}
	return append(changes, diffPools(before, after)...)
}

// placed are the set's templates in their mappings. A key's copies and its pool are nobody's but its mapping's.
func (s *Set) placed() (all []placed) {
	for _, m := range s.mappings {
		for _, t := range m.Templates {
			all = append(all, placed{m, t})
		}
	}
	return all
}

// pair finds for each new template the old one that it was, or -1: by its text and condition, by its text, and then by its text
// without columns and filters, each time first in a mapping of the same name, then of a table that both may be about, then anywhere.
func pair(was, is []placed) []int {
	pairs := make([]int, len(is))
	for i := range pairs {
		pairs[i] = -1
	}
	text := func(a, b placed) bool { return a.t.Text == b.t.Text }
	exact := func(a, b placed) bool { return a.t.Text == b.t.Text && a.t.When == b.t.When }
	shape := func(a, b placed) bool { return a.t.shape() == b.t.shape() }
	named := func(a, b placed) bool { return a.t.Team == b.t.Team && a.m.Name == b.m.Name }
	shared := func(a, b placed) bool { return mayShareTable(a.m, b.m) }
	anywhere := func(a, b placed) bool { return true }
	for _, like := range [][2]func(a, b placed) bool{{exact, named}, {text, named}, {text, shared}, {text, anywhere}, {shape, named}, {shape, shared}} {
		for i, p := range is {
			if pairs[i] >= 0 {
				continue
			}
			for j, o := range was {
				if !slices.Contains(pairs, j) && like[0](o, p) && like[1](o, p) {
					pairs[i] = j
					break
				}
			}
		}
	}
	return pairs
}

func (p placed) change(kind ChangeKind) Change {
	return Change{Kind: kind, Family: p.t.Text, Pool: p.t.Pool, Team: p.t.Team, Mapping: p.t.Mapping, Tables: p.m.Tables, What: []string{}}
}

func added(p placed) Change {
	c := p.change(Added)
	if !p.t.Shadow {
		c.Need, c.Why = NeedReplay, "earlier changes deleted none of its keys"
	}
	return c
}

// diff collects what changed of one family. Wider: rows that are in the log already now give keys that nobody deleted.
type diff struct {
	Change
	wider []string
}

func (d *diff) note(format string, args ...any) {
	d.What = append(d.What, fmt.Sprintf(format, args...))
}
func (d *diff) widen(format string, args ...any) {
	d.wider = append(d.wider, fmt.Sprintf(format, args...))
}
func (d *diff) narrow(format string, args ...any) {
	d.Warnings = append(d.Warnings, fmt.Sprintf(format, args...))
}

func compare(o, p placed) Change {
	d := &diff{Change: p.change(Changed)}
	if o.t.Text != p.t.Text {
		d.Was = o.t.Text
		d.note("key: %s -> %s", o.t.Text, p.t.Text)
		d.widen("earlier changes deleted the keys of %s alone", o.t.Text)
		d.narrow("changes no longer delete the keys of %s: first see that no client reads them", o.t.Text)
	}
	if a, b := o.t.Team+"/"+o.t.Mapping, p.t.Team+"/"+p.t.Mapping; a != b {
		d.note("mapping: %s -> %s", a, b)
	}
	d.tables(o.m, p.m)
	d.types(o, p)
	d.rows(o.t, p.t)
	d.truncates(o.t, p.t)
	d.binaryKeys(o, p)
	d.copies(o.t, p.t)
	if len(d.wider) > 0 && !p.t.Shadow {
		d.Need, d.Why = NeedReplay, strings.Join(d.wider, "; ")
	}
	return d.Change
}

func (d *diff) tables(o, m *Mapping) {
	more, fewer := minus(m.Tables, o.Tables), minus(o.Tables, m.Tables)
	if len(more) > 0 {
		d.note("tables: + %s", strings.Join(more, ", "))
		d.widen("earlier changes of %s deleted none of its keys", strings.Join(more, ", "))
	}
	if len(fewer) > 0 {
		d.note("tables: - %s", strings.Join(fewer, ", "))
		d.narrow("changes of %s no longer delete its keys", strings.Join(fewer, ", "))
	}
	for _, f := range []struct{ name, was, is string }{{"source", o.Source, m.Source}, {"database", o.Database, m.Database}} {
		if f.was == f.is {
			continue
		}
		d.note("%s: %s -> %s", f.name, orElse(f.was, "any"), orElse(f.is, "any"))
		if f.was != "" {
			d.widen("earlier changes of %s %s deleted none of its keys", orElse(f.is, "any"), f.name)
		}
		if f.is != "" {
			d.narrow("changes of %s %s no longer delete its keys", orElse(f.was, "any other"), f.name)
		}
	}
}

func (d *diff) types(o, p placed) {
	for _, c := range p.t.Columns() {
		if a, b := o.m.Types[c], p.m.Types[c]; a != b {
			d.note("type of %s: %s -> %s", c, orElse(a, "not declared"), orElse(b, "not declared"))
			d.widen("%s may have been rendered otherwise", c)
		}
	}
}

// rows looks at which changes count, and which keys one row gives.
func (d *diff) rows(o, t *Template) {
	if o.When != t.When {
		d.note("when: %s -> %s", orElse(o.When, "always"), orElse(t.When, "always"))
		if o.When != "" {
			d.widen("earlier changes that %s left out now count", o.When)
		}
	}
	for _, name := range eachNames(o, t) {
		a, b := eachValues(o, name), eachValues(t, name)
		if more := minus(b, a); len(more) > 0 {
			d.note("each %s: + %s", name, strings.Join(more, ", "))
			d.widen("earlier changes deleted no key with %s", strings.Join(more, ", "))
		}
		if fewer := minus(a, b); len(fewer) > 0 {
			d.note("each %s: - %s", name, strings.Join(fewer, ", "))
			d.narrow("changes no longer delete the keys with %s", strings.Join(fewer, ", "))
		}
	}
}

// copies looks at what is done with a key.
func (d *diff) copies(o, t *Template) {
	if o.Action != t.Action {
		d.note("action: %s -> %s", o.Action, t.Action)
	}
	if o.StaleFor != t.StaleFor {
		d.note("stale_for: %s -> %s", o.StaleFor, t.StaleFor)
	}
	if o.Hot != t.Hot {
		d.note("hot: %d -> %d", o.Hot, t.Hot)
	}
	switch {
	case t.Hot > o.Hot:
		d.widen("earlier changes deleted no copy from #%d on", o.Hot+1)
	case t.Hot < o.Hot:
		d.narrow("changes no longer delete the copies from #%d on: first see that no client reads them", t.Hot+1)
	}
	switch {
	case t.Shadow && !o.Shadow:
		d.note("shadow: on")
		d.narrow("changes no longer delete its keys")
	case o.Shadow && !t.Shadow:
		d.note("shadow: off")
		d.widen("in shadow nothing was deleted")
	}
}

// diffPools looks at pools that are claimed anew for a promotion's flush, and at those that nobody claims any more.
func diffPools(before, after *Set) (changes []Change) {
	was, is := poolOwners(before), poolOwners(after)
	for _, f := range after.files {
		for _, p := range f.Underivable {
			if _, ok := was[p]; !ok {
				changes = append(changes, Change{Kind: Added, Family: p + ":*", Pool: p, Team: f.Team, What: []string{"underivable"},
					Need: NeedFlush, Why: "no row gives its keys, and promotions so far did not flush it"})
			} else if a, b := before.onPromotion(p), f.onPromotion(p); a != "" && a != b {
				changes = append(changes, Change{Kind: Changed, Family: p + ":*", Pool: p, Team: f.Team, What: []string{fmt.Sprintf("on_promotion: %s -> %s", a, b)}})
			}
		}
	}
	for _, f := range before.files {
		for _, p := range slices.Concat(f.Pools, f.Underivable) {
			if _, ok := is[p]; !ok {
				changes = append(changes, Change{Kind: Removed, Family: p + ":*", Pool: p, Team: f.Team, What: []string{"pool"},
					Need: NeedFlush, Why: "what is left in the caches grows old with nobody to delete it"})
			}
		}
	}
	return changes
}

func poolOwners(s *Set) map[string]string {
	owners := map[string]string{}
	for _, f := range s.files {
		for _, p := range slices.Concat(f.Pools, f.Underivable) {
			owners[p] = f.Team
		}
	}
	return owners
}

func eachNames(o, t *Template) (names []string) {
	for _, e := range slices.Concat(o.Each, t.Each) {
		if !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	return names
}

func eachValues(t *Template, name string) []string {
	for _, e := range t.Each {
		if e.Name == name {
			return e.Values
		}
	}
	return nil
}

// minus are the elements of a that b lacks.
func minus(a, b []string) (rest []string) {
	for _, x := range a {
		if !slices.Contains(b, x) {
			rest = append(rest, x)
		}
	}
	return rest
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
