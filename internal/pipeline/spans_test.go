package pipeline

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Ranges become spans: in order, apart from each other, none of nothing.
func TestRangesAreJoined(t *testing.T) {
	for _, c := range []struct{ ranges, want [][2]int64 }{
		{nil, nil},
		{[][2]int64{{3, 3}, {5, 4}}, nil},
		{[][2]int64{{5, 7}, {0, 2}}, [][2]int64{{0, 2}, {5, 7}}},
		{[][2]int64{{0, 2}, {2, 3}, {1, 4}, {6, 9}, {7, 8}}, [][2]int64{{0, 4}, {6, 9}}},
	} {
		if got := joined(c.ranges); !slices.Equal(got, c.want) {
			t.Errorf("%v became %v, want %v", c.ranges, got, c.want)
		}
	}
}

// However many there are, a debt has a bounded number, and covers no less.
func TestSpansAreBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var ranges [][2]int64
		for i := range rapid.IntRange(0, 3*maxSpans).Draw(t, "n") {
			from := rapid.Int64Range(0, 5000).Draw(t, fmt.Sprint("from", i))
			ranges = append(ranges, [2]int64{from, from + rapid.Int64Range(0, 5).Draw(t, fmt.Sprint("len", i))})
		}
		s := joined(ranges)
		if len(s) > maxSpans {
			t.Fatalf("%d spans", len(s))
		}
		for i := range s {
			if s[i][0] >= s[i][1] || i > 0 && s[i][0] <= s[i-1][1] {
				t.Fatalf("%v: %v is out of order, or touches the one before", s, s[i])
			}
		}
		for _, r := range ranges {
			for o := r[0]; o < r[1]; o++ {
				if !s.has(o) {
					t.Fatalf("%d of %v is not in %v", o, r, s)
				}
			}
		}
	})
}

// Of many, those are joined that lie nearest to each other.
func TestSpansThatAreFarApartStayApart(t *testing.T) {
	ranges := [][2]int64{{0, 10}}
	for i := range int64(10 * maxSpans) {
		ranges = append(ranges, [2]int64{1_000_000 + 3*i, 1_000_000 + 3*i + 1})
	}
	s := joined(ranges)
	if s[0] != [2]int64{0, 10} || s.has(500_000) {
		t.Errorf("%v", s)
	}
}

// What is paid is no longer in a debt's record; offsets between spans never were.
func TestSpansFromAnOffset(t *testing.T) {
	s := joined([][2]int64{{0, 4}, {6, 9}, {12, 13}})
	for from, want := range map[int64]string{0: "[[0 4] [6 9] [12 13]]", 3: "[[3 4] [6 9] [12 13]]", 4: "[[6 9] [12 13]]", 5: "[[6 9] [12 13]]", 13: "[]"} {
		if got := fmt.Sprint(s.from(from)); got != want {
			t.Errorf("from %d: %s, want %s", from, got, want)
		}
	}
	if s.has(4) || s.has(5) || !s.has(6) || !s.has(12) || s.has(13) || s.has(-1) {
		t.Errorf("%v has what it has not, or has not what it has", s)
	}
	if n := s.in(3, 8); n != 3 {
		t.Errorf("%d of [3, 8) are in %v", n, s)
	}
}
