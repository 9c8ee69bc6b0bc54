package mapping

import (
	"cmp"
	"strings"
)

// number is a decimal of any size, by its digits. It is compared exactly, and made without an allocation.
type number struct {
	negative bool
	whole    string // without zeros in front
	fraction string // without zeros behind
}

// parseNumber reads -12.50; no exponent, no spaces, nothing else.
func parseNumber(s string) (n number, ok bool) {
	digits := strings.TrimPrefix(s, "-")
	n.negative = len(digits) < len(s)
	whole, fraction, point := strings.Cut(digits, ".")
	if whole == "" || point && fraction == "" || !isDigits(whole) || !isDigits(fraction) {
		return n, false
	}
	n.whole, n.fraction = strings.TrimLeft(whole, "0"), strings.TrimRight(fraction, "0")
	if n.whole == "" && n.fraction == "" {
		n.negative = false
	}
	return n, true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

func (n number) compare(m number) int {
	switch {
	case n.negative && !m.negative:
		return -1
	case !n.negative && m.negative:
		return 1
	case n.negative:
		n, m = m, n
	}
	return cmp.Or(cmp.Compare(len(n.whole), len(m.whole)), strings.Compare(n.whole, m.whole), strings.Compare(n.fraction, m.fraction))
}
