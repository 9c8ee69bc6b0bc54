package pipeline

import (
	"cmp"
	"slices"
)

// spans are ranges [from, to) of offsets, in their order, apart from each other.
type spans [][2]int64

// maxSpans bounds how many a debt has. Where there are more, those that lie nearest to each other are one: more is done again then, and nothing less.
const maxSpans = 64

// joined are ranges in any order as spans, without those that hold nothing.
func joined(ranges [][2]int64) spans {
	all := slices.DeleteFunc(slices.Clone(ranges), func(r [2]int64) bool { return r[0] >= r[1] })
	slices.SortFunc(all, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	s := spans(all).within(0)
	if len(s) <= maxSpans {
		return s
	}
	gaps := make([]int64, 0, len(s)-1)
	for i := range s[1:] {
		gaps = append(gaps, s[i+1][0]-s[i][1])
	}
	slices.Sort(gaps)
	return s.within(gaps[len(s)-maxSpans-1])
}

// within joins those between which there are no more than gap offsets. They are in order.
func (s spans) within(gap int64) spans {
	out := s[:0]
	for _, r := range s {
		if n := len(out); n > 0 && r[0]-out[n-1][1] <= gap {
			out[n-1][1] = max(out[n-1][1], r[1])
			continue
		}
		out = append(out, r)
	}
	return out
}

// from are the parts at and above an offset, in memory of their own.
func (s spans) from(offset int64) (out spans) {
	for _, r := range s {
		if r[1] > offset {
			out = append(out, [2]int64{max(r[0], offset), r[1]})
		}
	}
	return out
}

// has reports whether an offset lies in one of them.
func (s spans) has(offset int64) bool {
	_, in := slices.BinarySearchFunc(s, offset, func(r [2]int64, offset int64) int {
		switch {
		case r[1] <= offset:
			return -1
		case r[0] > offset:
			return 1
		}
		return 0
	})
	return in
}

// in is how many offsets of [from, to) lie in them.
func (s spans) in(from, to int64) (n int64) {
	for _, r := range s {
		n += max(min(r[1], to)-max(r[0], from), 0)
	}
	return n
}
