package mysql

import "strconv"

const digitsPerWord = 9

// wordBytes is how many bytes hold so many leftover digits.
var wordBytes = [digitsPerWord + 1]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

// decimalText reads a DECIMAL: words of nine digits in four bytes, the leftover digits of either side in fewer; the highest
// bit is set for numbers that are not negative, and the others have all bits turned over.
func decimalText(c *cursor, precision, scale int) string {
	whole := precision - scale
	if whole < 0 || precision > 65 {
		c.short = true
		return ""
	}
	size := func(digits int) int { return digits/digitsPerWord*4 + wordBytes[digits%digitsPerWord] }
	raw := []byte(c.take(size(whole) + size(scale)))
	if len(raw) == 0 {
		return "0"
	}
	negative := raw[0]&0x80 == 0
	raw[0] ^= 0x80
	if negative {
		for i := range raw {
			raw[i] = ^raw[i]
		}
	}
	word := func(digits int) uint64 {
		n := wordBytes[digits]
		v := bigEndian(string(raw[:n]))
		raw = raw[n:]
		return v
	}
	out := make([]byte, 0, precision+3)
	if negative {
		out = append(out, '-')
	}
	sign := len(out)
	if n := whole % digitsPerWord; n > 0 {
		out = appendWord(out, sign, word(n), n)
	}
	for range whole / digitsPerWord {
		out = appendWord(out, sign, word(digitsPerWord), digitsPerWord)
	}
	if len(out) == sign {
		out = append(out, '0')
	}
	if scale == 0 {
		return string(out)
	}
	out = append(out, '.')
	for range scale / digitsPerWord {
		out = appendPadded(out, word(digitsPerWord), digitsPerWord)
	}
	if n := scale % digitsPerWord; n > 0 {
		out = appendPadded(out, word(n), n)
	}
	return string(out)
}

// appendWord appends digits of the whole part; leading zeros are left out.
func appendWord(out []byte, sign int, v uint64, digits int) []byte {
	switch {
	case len(out) > sign:
		return appendPadded(out, v, digits)
	case v > 0:
		return strconv.AppendUint(out, v, 10)
	}
	return out
}

// appendPadded appends a number with zeros before it, in at least so many digits.
func appendPadded(out []byte, v uint64, digits int) []byte {
	start := len(out)
	out = strconv.AppendUint(out, v, 10)
	for missing := digits - (len(out) - start); missing > 0; missing-- {
		out = append(out, '0')
		copy(out[start+1:], out[start:])
		out[start] = '0'
	}
	return out
}
