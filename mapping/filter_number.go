package mapping

import (
	"bytes"
	"strconv"

	"invalidator/cdc"
)

const (
	detailNumber  = "the filter takes a number in plain digits, and this is none"
	detailInteger = "mod takes an integer, and this has a fraction: put int before it"
)

// number is what a text says in plain digits: no blanks, no exponent, no NaN.
type number struct {
	negative bool
	whole    []byte // without leading zeros: empty for zero
	point    bool   // a fraction follows
}

func parseNumber(src []byte) (n number, ok bool) {
	if len(src) > 0 && (src[0] == '-' || src[0] == '+') {
		n.negative, src = src[0] == '-', src[1:]
	}
	whole, fraction, point := bytes.Cut(src, []byte{'.'})
	if !areDigits(whole) || point && !areDigits(fraction) {
		return n, false
	}
	n.point, n.whole = point, bytes.TrimLeft(whole, "0")
	return n, true
}

func areDigits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0
}

// appendInteger writes digits without leading zeros, and no sign before zero.
func appendInteger(dst []byte, negative bool, digits []byte) []byte {
	if len(digits) == 0 {
		return append(dst, '0')
	}
	if negative {
		dst = append(dst, '-')
	}
	return append(dst, digits...)
}

// toInt cuts the fraction off, towards zero. A boolean is 1 or 0.
func toInt(dst, src []byte, kind cdc.Kind) ([]byte, cdc.Kind, string) {
	if kind == cdc.Bool {
		switch string(src) {
		case "t", "true":
			src = []byte{'1'}
		case "f", "false":
			src = []byte{'0'}
		}
	}
	n, ok := parseNumber(src)
	if !ok {
		return dst, cdc.Integer, detailNumber
	}
	return appendInteger(dst, n.negative, n.whole), cdc.Integer, ""
}

// bindDiv gives the integer part of the quotient, towards zero, as DIV of MySQL and div() of Postgres.
func bindDiv(args []argument) (step, *fault) {
	divisor := args[0].number
	return func(dst, src []byte, _ cdc.Kind) ([]byte, cdc.Kind, string) {
		n, ok := parseNumber(src)
		if !ok {
			return dst, cdc.Integer, detailNumber
		}
		start, rest := len(dst), uint64(0)
		for _, c := range n.whole {
			rest = rest*10 + uint64(c-'0')
			if q := rest / divisor; q != 0 || len(dst) > start {
				if len(dst) == start && n.negative {
					dst = append(dst, '-')
				}
				dst = append(dst, '0'+byte(q))
			}
			rest %= divisor
		}
		if len(dst) == start {
			dst = append(dst, '0')
		}
		return dst, cdc.Integer, ""
	}, nil
}

// bindMod gives the remainder of that quotient, which has the sign of the number, as in MySQL and Postgres.
func bindMod(args []argument) (step, *fault) {
	divisor := args[0].number
	return func(dst, src []byte, _ cdc.Kind) ([]byte, cdc.Kind, string) {
		n, ok := parseNumber(src)
		switch {
		case !ok:
			return dst, cdc.Integer, detailNumber
		case n.point:
			return dst, cdc.Integer, detailInteger
		}
		var rest uint64
		for _, c := range n.whole {
			rest = (rest*10 + uint64(c-'0')) % divisor
		}
		if n.negative && rest != 0 {
			dst = append(dst, '-')
		}
		return strconv.AppendUint(dst, rest, 10), cdc.Integer, ""
	}, nil
}
