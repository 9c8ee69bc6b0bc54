package flush

import (
	"cmp"
	"encoding/binary"
	"iter"
	"math"
	"slices"
)

// rank is where a wire text stands in the order in which a node's keys are deleted: its part, then its place there. It follows from the text and from how many parts there
// are, on every node and for every conductor. No ring hashes so, and parts are even on every shard.
type rank uint64

// rankOf is FNV-1a, stirred as MurmurHash3 ends. It costs each key of a dump, which must not wait.
func rankOf(wire []byte, parts int) rank {
	h := uint64(14695981039346656037)
	for _, b := range wire {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	h ^= h >> 33
	return rank(h>>32*uint64(parts)>>32<<32 | h&math.MaxUint32)
}

// firstOf is the lowest rank of a part.
func firstOf(part int) rank { return rank(part) << 32 }

func (r rank) part() int { return int(r >> 32) }

// arenaSize is how much memory candidates take.
const arenaSize = 32 << 20

// candidates are what of one dump may be deleted, in one piece of memory: of the ranks from a given one on the lowest that fit. Where there is no room the highest parts
// are dropped whole, about a quarter of all; where there is but one, its higher half. It is one goroutine's.
type candidates struct {
	arena      []byte // entries: rank, CAS value, length, text
	index      []uint32
	from, upto rank // what is wanted; upto is included, and falls where there is no room

	lowest, highest rank // of what is there
}

const entryHead = 8 + 8 + 1

func newCandidates(size int) *candidates { return &candidates{arena: make([]byte, 0, size)} }

// reset forgets all. Wanted are ranks from the given one up to the last of the parts.
func (c *candidates) reset(from rank, parts int) {
	c.arena, c.index = c.arena[:0], c.index[:0]
	c.from, c.upto = from, firstOf(parts)-1
	c.lowest, c.highest = math.MaxUint64, 0
}

// wants says whether a rank is to be added.
func (c *candidates) wants(r rank) bool { return c.from <= r && r <= c.upto }

// add takes a text of at most maxKey bytes that is wanted.
func (c *candidates) add(r rank, cas uint64, wire []byte) {
	for len(c.arena)+entryHead+len(wire) > cap(c.arena) && c.shrink(r) {
		if !c.wants(r) {
			return
		}
	}
	c.arena = binary.BigEndian.AppendUint64(c.arena, uint64(r))
	c.arena = binary.BigEndian.AppendUint64(c.arena, cas)
	c.arena = append(c.arena, byte(len(wire)))
	c.arena = append(c.arena, wire...)
	c.lowest, c.highest = min(c.lowest, r), max(c.highest, r)
}

// shrink wants about a quarter less, and drops what is not wanted any more. next is about to be added. It reports false where all is of one rank, which is never cut.
func (c *candidates) shrink(next rank) bool {
	low, top := min(c.lowest, next), max(c.highest, next)
	last := (low + (top-low)/4*3).part() // that is kept, unless it is the highest there is
	if last == top.part() {
		last--
	}
	switch {
	case last >= low.part():
		c.upto = firstOf(last+1) - 1
	case low < top:
		c.upto = low + (top-low)/2
	default:
		return false
	}
	c.drop()
	return true
}

// drop closes the gaps of what is not wanted.
func (c *candidates) drop() {
	kept := 0
	c.lowest, c.highest = math.MaxUint64, 0
	for at := 0; at < len(c.arena); {
		next := c.after(at)
		if r := c.rankAt(at); r <= c.upto {
			kept += copy(c.arena[kept:], c.arena[at:next])
			c.lowest, c.highest = min(c.lowest, r), max(c.highest, r)
		}
		at = next
	}
	c.arena = c.arena[:kept]
}

func (c *candidates) rankAt(at int) rank { return rank(binary.BigEndian.Uint64(c.arena[at:])) }
func (c *candidates) after(at int) int   { return at + entryHead + int(c.arena[at+entryHead-1]) }

// candidate is one copy that may be deleted.
type candidate struct {
	rank rank
	cas  uint64
	wire []byte // good until the next reset
}

func (c *candidates) at(i uint32) candidate {
	at := int(i)
	return candidate{c.rankAt(at), binary.BigEndian.Uint64(c.arena[at+8:]), c.arena[at+entryHead : c.after(at)]}
}

// sort is called once when all is added.
func (c *candidates) sort() {
	for at := 0; at < len(c.arena); at = c.after(at) {
		c.index = append(c.index, uint32(at))
	}
	slices.SortFunc(c.index, func(a, b uint32) int { return cmp.Compare(c.rankAt(int(a)), c.rankAt(int(b))) })
}

// part is those of the sorted index that are of one part.
func (c *candidates) part(n int) []uint32 {
	find := func(r rank) int {
		i, _ := slices.BinarySearchFunc(c.index, r, func(at uint32, r rank) int { return cmp.Compare(c.rankAt(int(at)), r) })
		return i
	}
	return c.index[find(firstOf(n)):find(firstOf(n+1))]
}

// parts are the numbers of the parts from which something is, or could have been, there, in order.
func (c *candidates) parts() iter.Seq[int] {
	return func(yield func(int) bool) {
		for n := c.from.part(); n <= c.upto.part(); n++ {
			if !yield(n) {
				return
			}
		}
	}
}

// whole says whether all of a part, as far as it was wanted, is there: nothing of it was dropped.
func (c *candidates) whole(part int) bool { return c.upto >= firstOf(part+1)-1 }
