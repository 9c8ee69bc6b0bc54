package mysql

import (
	"errors"
	"testing"
	"time"

	"invalidator/cdc"
)

// What follows when no host serves: a gap, an error for a person, or another attempt; and what follows when that has lasted.
func TestNobodyServes(t *testing.T) {
	at := cdc.Position{GTIDSet: someUUID + ":1-5"}
	for _, tc := range []struct {
		what        string
		hosts       []verdict
		now, lasted string
	}{
		{"down", []verdict{later}, "again", "again"},
		{"a wrong password", []verdict{unfit}, "person", "person"},
		{"a replica without a log, and one that is down", []verdict{unfit, later}, "again", "again"},
		{"the primary lacks it, the other is down", []verdict{later, gapSure}, "gap", "gap"},
		{"the only host has purged it", []verdict{gapHere}, "gap", "gap"},
		{"both have purged it", []verdict{gapHere, gapHere}, "gap", "gap"},
		{"one has purged it, the other is down", []verdict{gapHere, later}, "again", "gap"},
		{"a replica that will not come as far", []verdict{laterGap}, "again", "gap"},
		{"the same, and one that is down", []verdict{later, laterGap}, "again", "gap"},
		{"the same, and a wrong password", []verdict{unfit, laterGap}, "again", "gap"},
		{"purged, and a wrong password", []verdict{unfit, gapHere}, "gap", "gap"},
	} {
		f := &Feeder{cfg: Config{Name: "shop"}}
		for _, want := range []string{tc.now, tc.lasted} {
			var all []judged
			for _, v := range tc.hosts {
				e := f.fail(errors.New("a reason"), "a hint", v == later)
				if v >= laterGap && v != unfit {
					e = f.gap(at, errors.New("a reason"))
				}
				all = append(all, judged{verdict: v, err: e})
			}
			se, ok := errors.AsType[*cdc.SourceError](f.nobody(all, at))
			if !ok {
				t.Fatalf("%s: no *cdc.SourceError", tc.what)
			}
			got := "person"
			switch {
			case errors.Is(se, cdc.ErrGap):
				got = "gap"
			case se.Retry:
				got = "again"
			}
			if got != want || se.Hint == "" {
				t.Errorf("%s: %s (%v), want %s", tc.what, got, se, want)
			}
			f.unserved = time.Now().Add(-hostPatience)
		}
	}
}
