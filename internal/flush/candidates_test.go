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

// TestCandidatesAreTheLowest: whatever the order in which they come, what is kept is all that was wanted up to a rank, part by part.
func TestCandidatesAreTheLowest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.IntRange(1, 8).Draw(t, "parts")
		size := rapid.IntRange(30, 3000).Draw(t, "bytes")
		n := rapid.IntRange(0, 400).Draw(t, "keys")
		from := rank(rapid.Uint64Range(0, uint64(firstOf(parts))-1).Draw(t, "from"))
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		mark := rapid.Uint64().Draw(t, "mark")
		c := newCandidates(size)
		defer c.close()
		c.reset(0, parts, 7, []byte("be")) // as it was used before
		c.add(1, 1, []byte("before"))
		head := rapid.SampledFrom([]string{"", "u", "user:"}).Draw(t, "head")
		c.reset(from, parts, mark, []byte(head))
		all := map[string]uint64{}
		for range n {
			key := fmt.Sprintf("user:%d", rnd.Uint64()>>rnd.IntN(60))
			if _, twice := all[key]; twice {
				continue
			}
			all[key] = []uint64{0, mark, mark - rnd.Uint64N(1000), rnd.Uint64()}[rnd.IntN(4)]
			if r := rankOf([]byte(key), parts); c.wants(r) {
				c.add(r, all[key], []byte(key))
			}
		}
		meant := func(wire []byte) bool { return true }
		if rapid.Bool().Draw(t, "half are meant") {
			meant = func(wire []byte) bool { return len(wire)%2 == 0 }
		}
		var got []string
		last, there := -1, 0
		for part := range c.numbers() {
			if part <= last {
				t.Fatalf("part %d comes after part %d", part, last)
			}
			last = part
			there += c.count(part)
			c.keep(part, meant)
			before := len(got)
			for one := range c.each(part) {
				if r := rankOf(one.wire, parts); r.part() != part || one.cas != all[string(one.wire)] {
					t.Fatalf("%s of rank %#x and CAS %d is in part %d", one.wire, r, one.cas, part)
				}
				got = append(got, string(one.wire))
			}
			if n := c.count(part); n != len(got)-before {
				t.Fatalf("part %d has %d of %d", part, len(got)-before, n)
			}
		}
		var want []string
		for key := range all {
			if r := rankOf([]byte(key), parts); from <= r && r <= c.upto && meant([]byte(key)) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Fatalf("has %d of the %d that are wanted up to %#x", len(got), len(want), c.upto)
		}
		if size >= 1000 && n > 0 && there == 0 && c.upto < firstOf(parts)-1 {
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
	defer c.close()
	c.reset(0, 1, 10, nil)
	for i := range 10 {
		c.add(0, uint64(i), []byte("user:00000000"))
	}
	seen := 0
	for one := range c.each(0) {
		seen++
		if want := uint64(10 - seen); one.cas != want || string(one.wire) != "user:00000000" {
			t.Errorf("%s of CAS %d, want %d", one.wire, one.cas, want)
		}
	}
	if seen != 10 || !c.whole(0) {
		t.Errorf("%d candidates, whole %v", seen, c.whole(0))
	}
}

// TestAMillionCandidatesHaveRoom: a pool of so many keys of 24 bytes is flushed from a node with one dump, as long as the node has written no more than 200 million values since.
func TestAMillionCandidatesHaveRoom(t *testing.T) {
	const mark = 1 << 40
	c := newCandidates(arenaSize)
	defer c.close()
	for _, parts := range []int{1, 32} {
		c.reset(0, parts, mark, nil)
		var key []byte
		for i := range uint64(1_000_000) {
			key = fmt.Appendf(key[:0], "feed:%019d", i)
			r := rankOf(key, parts)
			if !c.wants(r) {
				t.Fatalf("of %d parts: there was no room for %d", parts, i)
			}
			c.add(r, mark-200*i, key)
		}
		n := 0
		for part := range c.numbers() {
			n += c.count(part)
		}
		if n != 1_000_000 {
			t.Errorf("of %d parts: it has %d", parts, n)
		}
	}
}

func BenchmarkCandidates(b *testing.B) {
	keys := make([][]byte, 1<<16)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "user:profile:%d:v3", i*7919)
	}
	c := newCandidates(arenaSize)
	defer c.close()
	c.reset(0, 8, 1<<30, nil)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		key := keys[i%len(keys)]
		if r := rankOf(key, 8); c.wants(r) {
			c.add(r, uint64(i), key)
		}
		if i%(1<<19) == 1<<19-1 {
			c.reset(0, 8, 1<<30, nil)
		}
	}
}
