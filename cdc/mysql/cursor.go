package mysql

// cursor reads a rows event's body. A read past its end gives zeros or "" and is remembered in short: whoever reads asks
// once, at the end of a row. The body is a string so that texts are cut from it without a copy.
type cursor struct {
	s     string
	pos   int
	short bool
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
