package pipeline

import (
	"testing"

	"pgregory.net/rapid"
)

// The watermark never passes a change that is not finished, and never stands lower than it must, whatever the order in
// which changes finish.
func TestMarkIsTheFirstUnfinished(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := window{next: 100}
		var all []*change
		for offset := int64(100); offset < 100+int64(rapid.IntRange(0, 3000).Draw(t, "records")); offset++ {
			var c *change
			if offset%3 != 0 {
				c = &change{offset: offset}
				all = append(all, c)
			}
			w.take(offset, c)
			if len(all) > 0 && offset%2 == 0 {
				all[rapid.IntRange(0, len(all)-1).Draw(t, "finishes")].finished = true
			}
			if offset%5 == 0 {
				w.mark()
			}
			want := offset + 1
			left := 0
			for _, c := range all {
				if !c.finished {
					want = min(want, c.offset)
					left++
				}
			}
			if got := w.mark(); got != want {
				t.Fatalf("after record %d: mark %d, want %d", offset, got, want)
			}
			if w.inFlight() < left {
				t.Fatalf("%d in flight, want at least %d", w.inFlight(), left)
			}
		}
	})
}
