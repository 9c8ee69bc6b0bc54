package flush

import (
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// TestTheFirstLookLeavesNothingOut: what is meant passes the filter; and where that is sure, nothing else does.
func TestTheFirstLookLeavesNothingOut(t *testing.T) {
	hole := registry.Hole{After: 1, Before: 2, Until: time.Now().Add(time.Hour)}
	prefixed := func(r *sink.Record, prefix string) *sink.Record {
		r.KeyPrefix = prefix
		return r
	}
	v := viewOf(t, ringRecord(1, "s0 a b", "s1 b c"), prefixed(ringRecord(2, "s0 b a", "s1 c b"), "p:"), previous(ringRecord(3, "s0 b a d", "s1 c b"), 2, "s0 b a", "old c a"))
	v.Unseen = []registry.Hole{hole}
	targets := []replay.Target{
		{Pool: "user"}, {Pool: "p"}, {Node: "a:1"}, {Pool: "feed", Shard: "s0"}, {Pool: "feed", Shard: "old"}, {Pool: "page", Shard: "nowhere"}, {Gained: 3}, {Gained: 2},
	}
	claimed := []string{"user", "feed", "page", "p", "a", "b", "c", "d", "e", "f"}
	texts := []string{"user", "feed", "page", "p", "x", ":", "#", "#2", "#x", "1", "p:"}
	rapid.Check(t, func(t *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var requests []*request
		for range 1 + rnd.IntN(3) {
			requests = append(requests, &request{Asked: Asked{Request: replay.Request{Target: targets[rnd.IntN(len(targets))]}}})
		}
		s := scopeOf(requests, 2).under(v, claimed[:2+rnd.IntN(len(claimed)-1)])
		if rnd.IntN(3) == 0 {
			s.only = gainsSince(v, 2)
		}
		node := []string{"a:1", "b:1", "c:1", "d:1"}[rnd.IntN(4)]
		filter, sure := s.filter(node)
		for range 200 {
			wire := ""
			for range 1 + rnd.IntN(5) {
				wire += texts[rnd.IntN(len(texts))]
			}
			meant, passes := s.has(node, []byte(wire)), filter.has([]byte(wire))
			if meant && !passes || sure && meant != passes {
				t.Fatalf("%q on %s: it is meant: %v, it passes: %v, that is sure: %v", wire, node, meant, passes, sure)
			}
		}
	})
}
