package replay

import (
	"math"
	"testing"
)

func TestHashRange(t *testing.T) {
	for _, c := range []struct {
		r    HashRange
		in   []int64
		outs []int64
	}{
		{HashRange{10, 20}, []int64{11, 20}, []int64{10, 21, math.MinInt64}},
		{HashRange{20, 10}, []int64{21, math.MaxInt64, math.MinInt64, 10}, []int64{11, 20}},
		{HashRange{5, 5}, []int64{5, 6, math.MaxInt64, math.MinInt64}, nil}, // the whole ring
	} {
		for _, h := range c.in {
			if !c.r.Has(h) {
				t.Errorf("%v lacks %d", c.r, h)
			}
		}
		for _, h := range c.outs {
			if c.r.Has(h) {
				t.Errorf("%v has %d", c.r, h)
			}
		}
	}
}

func TestTargetsInWords(t *testing.T) {
	for want, target := range map[string]Target{
		"shard s00": {Shard: "s00"}, "node a:1": {Node: "a:1"}, "range -5 5": {Range: &HashRange{-5, 5}}, "pool user": {Pool: "user"},
		"mapping profiles/user": {Mapping: "profiles/user"}, "pool feed of shard s00": {Pool: "feed", Shard: "s00"}, "gained 9": {Gained: 9}, "nothing": {},
	} {
		if got := target.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
