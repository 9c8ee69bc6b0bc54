//go:build integration

package delivery

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"

	"invalidator/test/integration/harness"
)

// Whatever the seed is, in five minutes every fault comes, every one ends, no part has two at a time, nobody begins to carry values from copy to copy
// while clients may still do so under an earlier record, and the ring changes in its season alone.
func TestPlan(t *testing.T) {
	t.Parallel()
	c := &chaos{
		world:   &world{settle: time.Second, rows: window},
		cluster: &harness.Cluster{Brokers: make([]*harness.Broker, 3)},
		watches: make([]*toxiproxy.Proxy, 3), workers: make([]*harness.Process, 3),
	}
	for i := range 2*pairs + spare {
		c.nodes = append(c.nodes, &node{name: fmt.Sprint("node ", i)})
	}
	const last, seeds = 5 * time.Minute, 300
	total := 0
	for seed := range uint64(seeds) {
		came, stands := map[int]int{}, map[*step]bool{}
		var carried time.Duration // since when nobody does
		for _, s := range c.plan(rand.New(rand.NewPCG(seed, 0)), last) {
			of := s
			if s.ends != nil {
				of = s.ends
			}
			if of.what != "" && faults[of.kind].onRing() && s.at%season > stormy {
				t.Errorf("seed %d: at %s the ring changes", seed, s.at)
			}
			switch {
			case s.at >= last:
				t.Fatalf("seed %d: something is planned for %s", seed, s.at)
			case s.ends != nil:
				delete(stands, s.ends)
				if faults[s.ends.kind].on == aCarrying {
					carried = s.at
				}
			case s.what != "":
				for other := range stands {
					if slices.ContainsFunc(s.parts, func(p string) bool { return slices.Contains(other.parts, p) }) {
						t.Errorf("seed %d: at %s %q, while %q", seed, s.at, s.what, other.what)
					}
				}
				if faults[s.kind].on == aCarrying && carried > 0 && s.at < carried+ringLag+c.settle {
					t.Errorf("seed %d: at %s %q, and until %s the like", seed, s.at, s.what, carried)
				}
				if in := s.at % season; faults[s.kind].on == aNode && in > stormy && in < stormy+still {
					t.Errorf("seed %d: at %s %q", seed, s.at, s.what)
				}
				came[s.kind]++
				stands[s] = true
			}
		}
		if len(stands) > 0 {
			t.Errorf("seed %d: %d faults do not end", seed, len(stands))
		}
		for i, f := range faults {
			total += came[i]
			if came[i] == 0 {
				t.Errorf("seed %d: %q never comes", seed, f.name)
			}
		}
	}
	t.Logf("%d faults in %s", total/seeds, last)
}
