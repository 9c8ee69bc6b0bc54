package pipeline

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// The watermark never passes a change that is not finished, and never stands lower than it must, whatever the order in
// which changes finish.
func TestMarkIsTheFirstUnfinished(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := window{next: 100}
		var all []*change
		low := 0 // the first of all that is not finished
		end := 100 + rapid.Int64Range(0, 5000).Draw(t, "records")
		lag := rapid.IntRange(1, 2000).Draw(t, "in flight")
		pick := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for offset := int64(100); offset < end; offset++ {
			var c *change
			if offset%3 != 0 {
				c = &change{offset: offset}
				all = append(all, c)
			}
			w.take(offset, c)
			tries := pick.IntN(2) // slower than they come, until enough are in flight
			if len(all)-low > lag {
				tries = 50
			}
			for ; tries > 0 && low < len(all); tries-- {
				all[low+pick.IntN(len(all)-low)].finished = true
				for low < len(all) && all[low].finished {
					low++
				}
			}
			want := offset + 1
			if low < len(all) {
				want = all[low].offset
			}
			if got := w.mark(); got != want {
				t.Fatalf("after record %d: mark %d, want %d", offset, got, want)
			}
			if got := w.inFlight(); got != len(all)-low {
				t.Fatalf("after record %d: %d in flight, want %d", offset, got, len(all)-low)
			}
		}
	})
}
