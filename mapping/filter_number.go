package mapping

import (
	"bytes"
	"slices"
	"strconv"

	"invalidator/cdc"
)

const (
	detailNumber  = "the filter takes a number in plain digits, and this is none"
	detailInteger = "mod takes an integer, and this has a fraction: put int before it"
)

// digits is what a text says in plain digits: no blanks, no exponent, no NaN.
type digits struct {
	negative bool
	whole    []byte // without leading zeros: empty for zero
	point    bool   // a fraction follows
}

func parseDigits(src []byte) (n digits, ok bool) {
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
	n, ok := parseDigits(src)
	if !ok {
		return dst, cdc.Integer, detailNumber
	}
	start := len(dst)
	if dst = append(dst, n.whole...); len(n.whole) == 0 {
		dst = append(dst, '0')
	}
	return n.signed(dst, start), cdc.Integer, ""
}

// divide appends the quotient, rounded down, and returns the remainder.
func (n digits) divide(dst []byte, divisor uint64) (out []byte, rest uint64) {
	const whole64 = 19 // that many digits fit into 64 bits
	if len(n.whole) <= whole64 {
		for _, c := range n.whole {
			rest = rest*10 + uint64(c-'0')
		}
		return strconv.AppendUint(dst, rest/divisor, 10), rest % divisor
	}
	start := len(dst)
	for i, c := range n.whole {
		rest = rest*10 + uint64(c-'0')
		if q := rest / divisor; q != 0 || len(dst) > start || i == len(n.whole)-1 {
			dst = append(dst, '0'+byte(q))
		}
		rest %= divisor
	}
	return dst, rest
}

// signed puts the sign before a number from start on, unless that is zero.
func (n digits) signed(dst []byte, start int) []byte {
	if n.negative && dst[start] != '0' {
		return slices.Insert(dst, start, '-')
	}
	return dst
}

// bindDiv gives the integer part of the quotient, towards zero, as DIV of MySQL and div() of Postgres.
func bindDiv(args []argument) (step, *fault) {
	divisor := args[0].number
	return func(dst, src []byte, _ cdc.Kind) ([]byte, cdc.Kind, string) {
		n, ok := parseDigits(src)
		if !ok {
			return dst, cdc.Integer, detailNumber
		}
		start := len(dst)
		dst, _ = n.divide(dst, divisor)
		return n.signed(dst, start), cdc.Integer, ""
	}, nil
}

// bindMod gives the remainder of that quotient, which has the sign of the number, as in MySQL and Postgres.
func bindMod(args []argument) (step, *fault) {
	divisor := args[0].number
	return func(dst, src []byte, _ cdc.Kind) ([]byte, cdc.Kind, string) {
		n, ok := parseDigits(src)
		switch {
		case !ok:
			return dst, cdc.Integer, detailNumber
		case n.point:
			return dst, cdc.Integer, detailInteger
		}
		start := len(dst)
		dst, rest := n.divide(dst, divisor)
		return n.signed(strconv.AppendUint(dst[:start], rest, 10), start), cdc.Integer, ""
	}, nil
}
