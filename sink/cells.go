package sink

// Cell is one of 65,536 parts of where keys lie on a ring, in the order of the hashes: of equal width, or of a ring of kind modulo one a server. Two
// bytes say that of a key; they are coarse, so who looks for keys by them meets others too.
type Cell uint16

// Anywhere is the last cell: every Cells has it. It stands for what has no one place.
const Anywhere Cell = 1<<16 - 1

// Cell is where key (without key_prefix, which it adds) lies on today's ring.
func (t *Topology) Cell(key string) Cell {
	var buf [MaxKeyLen]byte // a key that fits stays on the stack
	return t.today.cell(t.today.placeBytes(append(append(buf[:0], t.today.prefix...), key...)))
}

// cell is that of a place. It does not fall where places ascend.
func (l layout) cell(place int64) Cell {
	switch l.kind {
	case KindPoints160:
		return Cell((uint64(place) ^ 1<<63) >> 48)
	case KindModulo:
		return Cell(min(place, int64(Anywhere)))
	}
	return Cell(uint64(place) >> 16) // the other kinds hash to 32 bits
}

// Cells is a set of cells.
type Cells struct{ bits [(1 << 16) / 64]uint64 }

// NewCells has Anywhere alone.
func NewCells() *Cells {
	c := &Cells{}
	c.Add(Anywhere)
	return c
}

// Add puts a cell into the set.
func (c *Cells) Add(cell Cell) { c.bits[cell/64] |= 1 << (cell % 64) }

// Has says whether a cell is in the set.
func (c *Cells) Has(cell Cell) bool { return c.bits[cell/64]&(1<<(cell%64)) != 0 }

// AddMoved puts the cells of t's ring into the set in which a text may have moved. It is false where that may be any text, as far as cells can tell: then
// the set is no answer.
func (c *Cells) AddMoved(m *Moves, t *Topology) bool {
	if m == nil || m.all {
		return false
	}
	for i := range m.charts {
		if m.charts[i].layout != t.today {
			return false
		}
	}
	for i := range m.charts {
		c.addMoved(&m.charts[i])
	}
	return true
}

func (c *Cells) addMoved(chart *movedChart) {
	before := len(chart.hashes) - 1 // the first point has what lies behind the last
	for i, hash := range chart.hashes {
		if chart.moved[i] {
			from, to := chart.layout.cell(chart.hashes[before]), chart.layout.cell(hash)
			if i == 0 {
				c.addRange(from, Anywhere)
				from = 0
			}
			c.addRange(from, to)
		}
		before = i
	}
}

// addRange adds the cells of [from, to].
func (c *Cells) addRange(from, to Cell) {
	for cell := int(from); cell <= int(to); cell++ {
		c.Add(Cell(cell))
	}
}
