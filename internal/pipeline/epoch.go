package pipeline

import (
	"time"

	"invalidator/sink/registry"
)

const (
	// clocksDiffer is by how much the clocks of two hosts may.
	clocksDiffer = 15 * time.Second
	// lineWide is how far from what it notes a journal line's second may be.
	lineWide = 2 * time.Second
)

// epochsOf are the epochs of all records that a view has, in order.
func epochsOf(v *registry.View) []int64 {
	epochs := make([]int64, len(v.Sights))
	for i, s := range v.Sights {
		epochs[i] = s.Record.Epoch
	}
	return epochs
}
