package feed

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"invalidator/cdc"
)

func at(n uint64) cdc.Position { return cdc.Position{LSN: "0/" + strconv.FormatUint(n, 16), Pos: n} }

func (t *tracker) safeIs(tb testing.TB, want uint64, any bool) {
	tb.Helper()
	if t.anySafe != any || t.safe.pos.Pos != want {
		tb.Fatalf("safe is %d (%v), want %d (%v)", t.safe.pos.Pos, t.anySafe, want, any)
	}
}

func TestTrackerWaitsForTheOldestRecord(t *testing.T) {
	var tr tracker
	tr.safeIs(t, 0, false)
	a, b := tr.send(), tr.send()
	tr.commit(at(10), time.Time{})
	c := tr.send()
	tr.commit(at(20), time.Time{})

	tr.ack(c)
	tr.ack(b)
	tr.safeIs(t, 0, false) // a is missing, whatever came after it
	if !tr.ack(a) {
		t.Error("the safe position moved, and ack did not say so")
	}
	tr.safeIs(t, 20, true)
}

func TestTrackerMovesOverTransactionsOfOthers(t *testing.T) {
	var tr tracker
	tr.commit(at(5), time.Time{}) // nothing was ever sent
	tr.safeIs(t, 5, true)
	a := tr.send()
	tr.commit(at(10), time.Time{})
	tr.commit(at(11), time.Time{})
	tr.commit(at(12), time.Time{})
	tr.safeIs(t, 5, true)
	tr.ack(a)
	tr.safeIs(t, 12, true)
}

func TestTrackerHoldsBackARecordOfAnOpenTransaction(t *testing.T) {
	var tr tracker
	a := tr.send()
	tr.commit(at(10), time.Time{})
	b := tr.send() // its transaction is not complete
	tr.ack(b)
	tr.safeIs(t, 0, false)
	tr.ack(a)
	tr.safeIs(t, 10, true)
}

// The model: a plain list of records and positions. Acknowledgements come in any order, and positions, full windows and
// full rings of marks in between; the safe position is never behind an unacknowledged record, never goes back, and is the
// last of all once everything is acknowledged.
func TestTrackerAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var (
			tr        = new(tracker)
			open      []uint64
			committed = []uint64{} // committed[i]: records before position i+1
			last      uint64
		)
		check := func() {
			if !tr.anySafe {
				return
			}
			p := tr.safe.pos.Pos
			if p < last {
				rt.Fatalf("safe went back from %d to %d", last, p)
			}
			last = p
			for _, n := range open {
				if n < committed[p-1] {
					rt.Fatalf("position %d is safe, but record %d before it is not acknowledged", p, n)
				}
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { check() },
			"send": func(rt *rapid.T) {
				for range rapid.SampledFrom([]int{1, 3, 100, 1000}).Draw(rt, "records") {
					if tr.full() {
						break
					}
					open = append(open, tr.send())
				}
			},
			"commit": func(rt *rapid.T) {
				records := rapid.Bool().Draw(rt, "with a record")
				for range rapid.SampledFrom([]int{1, 2, 5, maxMarks}).Draw(rt, "transactions") {
					if records && !tr.full() {
						open = append(open, tr.send())
					}
					committed = append(committed, tr.next)
					tr.commit(at(uint64(len(committed))), time.Time{})
				}
			},
			"ack": func(rt *rapid.T) {
				which := rapid.SliceOfN(rapid.IntRange(0, window), 0, 30).Draw(rt, "which")
				for _, i := range which {
					if len(open) == 0 {
						return
					}
					i %= len(open)
					n := open[i]
					open[i] = open[len(open)-1]
					open = open[:len(open)-1]
					tr.ack(n)
				}
			},
			"ack all": func(rt *rapid.T) {
				for len(open) > 0 { // backwards: the oldest comes last
					tr.ack(open[len(open)-1])
					open = open[:len(open)-1]
				}
				if len(committed) > 0 {
					tr.safeIs(t, uint64(len(committed)), true)
				}
			},
		})
	})
}

// A source that is never idle, with three transactions under way at any time: each is safe as soon as it is acknowledged.
func TestTrackerMovesUnderALoadThatNeverEnds(t *testing.T) {
	var tr tracker
	var under [3]uint64
	for n := uint64(1); n <= 3*window; n++ { // the numbers come round
		if oldest := under[n%3]; n > 3 {
			tr.ack(oldest)
			if tr.safe.pos.Pos != n-3 {
				t.Fatalf("safe is %d, want %d", tr.safe.pos.Pos, n-3)
			}
		}
		under[n%3] = tr.send()
		tr.commit(at(n), time.Time{})
	}
	// What an earlier round acknowledged counts for nothing.
	for range window / 2 {
		tr.ack(tr.send())
	}
	tr.safeIs(t, 3*window-3, true)
}

func TestTrackerIsBounded(t *testing.T) {
	var tr tracker
	stuck := tr.send()
	for n := uint64(1); !tr.full(); n++ {
		tr.ack(tr.send())
		tr.commit(at(n), time.Time{})
	}
	if tr.marked > maxMarks || tr.next != window {
		t.Errorf("%d marks, %d records", tr.marked, tr.next)
	}
	tr.safeIs(t, 0, false)
	tr.ack(stuck)
	tr.safeIs(t, window-1, true)
}

func BenchmarkTracker(b *testing.B) {
	var tr tracker
	b.ReportAllocs()
	for i := range b.N {
		tr.ack(tr.send())
		tr.commit(cdc.Position{Pos: uint64(i)}, time.Time{})
	}
}
