package mapping

import (
	"strings"
	"testing"
	"time"

	"invalidator/cdc"
)

func stormFile(t *testing.T, readers, storm string) (*Set, []Problem) {
	t.Helper()
	f, problems := Parse("f.yaml", []byte("version: 1\nteam: t\npools: [user, other]\nreaders: "+readers+"\nstorm:\n"+storm+
		"\nmappings:\n  - {name: m, table: shop.users, keys: ['user:{id}', 'other:{id}']}\n"))
	if f == nil {
		return nil, problems
	}
	set, more := NewSet([]*File{f})
	return set, append(problems, more...)
}

// A file says what is different from the fleet's; zero is a word of its own.
func TestStormOverTheFleets(t *testing.T) {
	fleet := Storm{Rows: 10_000, Rate: 7, Pace: 5000, Lane: LaneStorm}
	for storm, want := range map[string]Storm{
		"  user: {}":                     fleet,
		"  user: {rows: 0, rate: 0}":     {Pace: 5000, Lane: LaneStorm},
		"  user: {pace: 1, lane: debts}": {Rows: 10_000, Rate: 7, Pace: 1, Lane: LaneDebts},
		"  user: {stale: 30s}":           {Rows: 10_000, Rate: 7, Pace: 5000, Lane: LaneStorm, Stale: 30 * time.Second},
	} {
		set, problems := stormFile(t, "meta", storm)
		if set == nil || len(problems) > 0 {
			t.Errorf("%s: %v", storm, problems)
			continue
		}
		all := set.Storms(fleet)
		if got := all["user"]; got != want || len(all) != 1 {
			t.Errorf("%s: %+v, want %+v", storm, all, want)
		}
	}
}

func TestStormProblems(t *testing.T) {
	for storm, want := range map[string]string{
		"  usr: {rows: 1}":       `pool "usr" is not one of this file's (did you mean "user"?)`,
		"  user: {pace: 0}":      "pace must be at least 1",
		"  user: {rows: -1}":     "rows must be a number from 0",
		"  user: {row: 1}":       `field "row" is unknown in a pool's storm`,
		"  user: {lane: strom}":  `lane must be debts, storm or replay, not "strom" (did you mean "storm"?)`,
		"  user: {stale: 2m}":    "stale must be whole seconds from 1s to 60s",
		"  - user":               "storm must be pools with settings",
		"  user: {rate: 'fast'}": "rate must be a number",
	} {
		set, problems := stormFile(t, "meta", storm)
		if set != nil || len(problems) == 0 || !strings.Contains(problems[0].String(), want) {
			t.Errorf("%s: %v, want %s", storm, problems, want)
		}
	}
}

// Classic readers take no stale mark: the file says so, and its storms are deleted.
func TestStormIsNotStaleForClassicReaders(t *testing.T) {
	set, problems := stormFile(t, "classic", "  user: {stale: 30s}")
	if set == nil || len(problems) != 1 || problems[0].Severity != SeverityWarning || set.Storms(Storm{})["user"].Stale != 0 {
		t.Errorf("%v", problems)
	}
}

var stoppedColumns = cdc.NewColumns([]cdc.Column{{Name: "id"}, {Name: "name"}, {Name: "gone"}})

// What says that the table is another now, and what says it of a row alone.
func TestSkipStops(t *testing.T) {
	absent := cdc.Value{}
	is := func(s string) cdc.Value { return cdc.Value{Kind: cdc.Text, S: s} }
	whole, minimal := cdc.Row{is("1"), is("n"), absent}, cdc.Row{is("1"), absent, absent}
	change := func(op cdc.Op, before, after cdc.Row) *cdc.RowChange {
		return &cdc.RowChange{Op: op, Columns: stoppedColumns, KeyColumns: []string{"id"}, Before: before, After: after}
	}
	for name, c := range map[string]struct {
		skip Skip
		c    *cdc.RowChange
		want bool
	}{
		"a float":                         {Skip{Reason: SkipType}, change(cdc.Update, whole, whole), true},
		"a type that nobody says":         {Skip{Reason: SkipUnclear}, change(cdc.Update, whole, whole), true},
		"NULL":                            {Skip{Reason: SkipNull}, change(cdc.Insert, nil, whole), false},
		"too many elements":               {Skip{Reason: SkipMany}, change(cdc.Insert, nil, whole), false},
		"no key of memcached's":           {Skip{Reason: SkipBadKey}, change(cdc.Insert, nil, whole), false},
		"an insert without the column":    {Skip{Reason: SkipAbsent, Image: After, Column: "gone"}, change(cdc.Insert, nil, whole), true},
		"whole images without the column": {Skip{Reason: SkipAbsent, Image: After, Column: "gone"}, change(cdc.Update, whole, whole), true},
		"the same of the image before":    {Skip{Reason: SkipAbsent, Image: Before, Column: "gone"}, change(cdc.Update, whole, whole), false},
		"a minimal image":                 {Skip{Reason: SkipAbsent, Image: After, Column: "gone"}, change(cdc.Update, minimal, cdc.Row{absent, is("n"), absent}), false},
		"only the key besides":            {Skip{Reason: SkipAbsent, Image: After, Column: "gone"}, change(cdc.Update, minimal, minimal), false},
		"an update without the old row":   {Skip{Reason: SkipAbsent, Image: After, Column: "gone"}, change(cdc.Update, nil, whole), false},
		"a delete that has the key alone": {Skip{Reason: SkipAbsent, Image: Before, Column: "gone"}, change(cdc.Delete, minimal, nil), false},
		"a tombstone":                     {Skip{Reason: SkipAbsent, Image: Before, Column: "gone"}, change(cdc.Tomb, minimal, nil), false},
		"an update without the new row":   {Skip{Reason: SkipAbsent, Image: After, Column: "gone"}, change(cdc.Update, whole, nil), false},
	} {
		if got := c.skip.Stops(c.c); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestPrintOf(t *testing.T) {
	a, _ := stormFile(t, "meta", "  user: {}")
	b, _ := stormFile(t, "meta", "  user: {rows: 1}")
	if a.PrintOf("t/m") == "" || a.PrintOf("t/m") == b.PrintOf("t/m") || a.PrintOf("t/x") != "" || a.PrintOf("x/m") != "" {
		t.Errorf("%q, %q", a.PrintOf("t/m"), b.PrintOf("t/m"))
	}
}
