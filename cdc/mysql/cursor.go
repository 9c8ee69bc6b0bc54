package mysql

import (
	"strconv"
	"unsafe"
)

// cursor reads a rows event's body. A read past its end gives zeros or "" and is remembered in short: whoever reads asks
// once, at the end of a row. The body is a string so that texts are cut from it without a copy.
type cursor struct {
	s     string
	pos   int
	short bool

	numbers []byte // the last text that number made stands at its end
}

// take is the next n bytes.
func (c *cursor) take(n int) string {
	if n < 0 || n > len(c.s)-c.pos {
		c.short = true
		return ""
	}
	c.pos += n
	return c.s[c.pos-n : c.pos]
}

// le is the next n bytes, at most 8, as a little-endian number.
func (c *cursor) le(n int) (v uint64) {
	t := c.take(n)
	for i := len(t) - 1; i >= 0; i-- {
		v = v<<8 | uint64(t[i])
	}
	return v
}

// be is the next n bytes, at most 8, as a big-endian number.
func (c *cursor) be(n int) (v uint64) {
	return bigEndian(c.take(n))
}

func bigEndian(t string) (v uint64) {
	for i := 0; i < len(t); i++ {
		v = v<<8 | uint64(t[i])
	}
	return v
}

// lenenc is a number in the protocol's packed form.
func (c *cursor) lenenc() uint64 {
	switch b := c.le(1); b {
	case 0xfc:
		return c.le(2)
	case 0xfd:
		return c.le(3)
	case 0xfe:
		return c.le(8)
	default:
		return b
	}
}

// prefixed is bytes behind their length in n bytes.
func (c *cursor) prefixed(n int) string { return c.take(int(min(c.le(n), 1<<32))) }

const (
	// longestNumber is the bytes of the longest integer of 64 bits, with its sign.
	longestNumber = 20
	// numbersRoom is how many of them are made at once, at least: an event mostly has more than one.
	numbersRoom = 4 * longestNumber
)

// number is the text of a number. Those of an event stand in the same memory, which grows with their number.
func (c *cursor) number(v uint64, negative bool) string {
	if v < 100 && !negative {
		return strconv.FormatUint(v, 10) // which makes nothing
	}
	if cap(c.numbers)-len(c.numbers) < longestNumber {
		c.numbers = make([]byte, 0, min(max(numbersRoom, 2*cap(c.numbers)), 1<<10))
	}
	start := len(c.numbers)
	if negative {
		c.numbers = append(c.numbers, '-')
	}
	c.numbers = strconv.AppendUint(c.numbers, v, 10)
	text := c.numbers[start:] // never written again
	return unsafe.String(unsafe.SliceData(text), len(text))
}

// bitmap is a row of bits, lowest first.
type bitmap string

func (b bitmap) has(i int) bool { return i>>3 < len(b) && b[i>>3]&(1<<(i&7)) != 0 }

// count is the number of bits set among the first n.
func (b bitmap) count(n int) (set int) {
	for i := range n {
		if b.has(i) {
			set++
		}
	}
	return set
}

func bitmapBytes(n int) int { return (n + 7) / 8 }
