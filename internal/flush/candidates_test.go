package flush

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestRanksAreEvenAndStayTheSame: every conductor, of any version, cuts keys alike.
func TestRanksAreEvenAndStayTheSame(t *testing.T) {
	if got, want := rankOf([]byte("user:1"), 10), rank(3<<32|0x648cef41); got != want {
		t.Errorf("%#x, want %#x", uint64(got), uint64(want))
	}
	const parts, n = 32, 64_000
	counts := make([]int, parts)
	for i := range n {
		counts[rankOf(fmt.Appendf(nil, "user:%d", i), parts).part()]++
	}
	for part, got := range counts {
		if got < n/parts*9/10 || got > n/parts*11/10 {
			t.Errorf("part %d has %d of %d keys", part, got, n)
		}
	}
}

// TestCandidatesAreTheLowest: whatever the order in which they come, what is kept is all that was wanted up to a rank, and it is in order.
func TestCandidatesAreTheLowest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.IntRange(1, 8).Draw(t, "parts")
		size := rapid.IntRange(30, 3000).Draw(t, "bytes")
		n := rapid.IntRange(0, 400).Draw(t, "keys")
		from := rank(rapid.Uint64Range(0, uint64(firstOf(parts))-1).Draw(t, "from"))
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		c := newCandidates(size)
		c.reset(0, parts) // as it was used before
		c.add(1, 1, []byte("before"))
		c.reset(from, parts)
		all := map[string]uint64{}
		for range n {
			key := fmt.Sprintf("user:%d", rnd.Uint64()>>rnd.IntN(60))
			if _, twice := all[key]; twice {
				continue
			}
			all[key] = rnd.Uint64()
			if r := rankOf([]byte(key), parts); c.wants(r) {
				c.add(r, all[key], []byte(key))
			}
		}
		c.sort()
		var got []string
		var last rank
		seen := 0
		for part := range c.parts() {
			for _, at := range c.part(part) {
				one := c.at(at)
				if one.rank < last || one.rank.part() != part || one.cas != all[string(one.wire)] {
					t.Fatalf("%s of rank %#x and CAS %d comes after %#x in part %d", one.wire, one.rank, one.cas, last, part)
				}
				last = one.rank
				got = append(got, string(one.wire))
			}
			seen++
		}
		if len(got) != len(c.index) {
			t.Fatalf("%d candidates in parts, %d in all", len(got), len(c.index))
		}
		var want []string
		for key := range all {
			if r := rankOf([]byte(key), parts); from <= r && r <= c.upto {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Fatalf("has %d of the %d that are wanted up to %#x", len(got), len(want), c.upto)
		}
		if size >= 1000 && n > 0 && len(got) == 0 && c.upto < firstOf(parts)-1 {
			t.Fatal("it has room, and nothing")
		}
		if cap(c.arena) > size && size > 100 {
			t.Fatalf("it has grown to %d bytes", cap(c.arena))
		}
		if whole := c.whole(parts - 1); whole != (c.upto == firstOf(parts)-1) {
			t.Fatalf("whole: %v", whole)
		}
	})
}

// TestWhatIsOfOneRankIsNeverCut: it would never come to an end.
func TestWhatIsOfOneRankIsNeverCut(t *testing.T) {
	c := newCandidates(64)
	c.reset(0, 1)
	for i := range 10 {
		c.add(0, uint64(i), []byte("user:00000000"))
	}
	c.sort()
	if len(c.index) != 10 || !c.whole(0) {
		t.Errorf("%d candidates, whole %v", len(c.index), c.whole(0))
	}
}

func BenchmarkCandidates(b *testing.B) {
	keys := make([][]byte, 1<<16)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "user:profile:%d:v3", i*7919)
	}
	c := newCandidates(arenaSize)
	c.reset(0, 8)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		key := keys[i%len(keys)]
		if r := rankOf(key, 8); c.wants(r) {
			c.add(r, uint64(i), key)
		}
		if i%(1<<19) == 1<<19-1 {
			c.reset(0, 8)
		}
	}
}
