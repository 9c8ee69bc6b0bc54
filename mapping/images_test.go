package mapping

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"invalidator/cdc"
)

// An update gives the keys and skips of its before image, as a delete of it would, and those of its after image, as an insert would: also where
// the two agree in what a template reads, and are rendered once.
func TestImagesThatAgreeAreRenderedOnce(t *testing.T) {
	s := set(t, "u:{a}", "3*u:{b}:{a|lower}", "u:{b|elements(',')}:{c}", "u:const", "u:{c|default('none')}")
	some := rapid.SampledFrom([]cdc.Value{text("A"), text("x,y"), text("x y"), text(""), integer64("7"), null, absent, cdc.MaybeOneOf("p", "q"), {Kind: cdc.Unclear, S: "?", Why: "w"}, {Kind: cdc.Float, S: "1"}})
	alike, skips := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		before, after, behind := row{}, row{}, row{}
		for _, name := range []string{"a", "b", "c"} {
			before[name] = some.Draw(t, "before")
			if after[name] = before[name]; rapid.Bool().Draw(t, "changed") {
				after[name] = some.Draw(t, "after")
			}
			if behind[name] = after[name]; after[name].Kind == cdc.Absent {
				behind[name] = before[name]
			}
			if behind[name] == before[name] {
				alike++
			}
		}
		deleted, skippedBefore := keys(s, change(s, cdc.Delete, before, nil))
		inserted, skippedAfter := keys(s, change(s, cdc.Insert, nil, behind))
		got, skipped := keys(s, change(s, cdc.Update, before, after))
		want := slices.Concat(deleted, inserted)
		for _, list := range []*[]string{&want, &got} {
			slices.Sort(*list)
			*list = slices.Compact(*list)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("keys %q, want %q of %v -> %v", got, want, before, after)
		}
		if all := slices.Concat(skippedBefore, skippedAfter); !slices.Equal(skipped, all) {
			t.Fatalf("skipped %q, want %q of %v -> %v", skipped, all, before, after)
		}
		skips += len(skipped)
	})
	if alike == 0 || skips == 0 {
		t.Errorf("%d columns alike, %d skips", alike, skips)
	}
}
