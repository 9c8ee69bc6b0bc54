package flush

import (
	"encoding/binary"
	"iter"
	"math"
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

// arenaSize is how much memory candidates take: a million of them, of 24 bytes beside the name of their pool.
const arenaSize = 32 << 20

// candidates are what of one dump may be deleted, in one piece of memory that the collector does not see: of the ranks from a given one on the lowest that fit. Where there is no
// room the highest parts are dropped whole, about a quarter of all; where there is but one, its higher half. It is one goroutine's.
type candidates struct {
	free  func()
	arena []byte  // entries: link, length, CAS value, text behind the head
	parts []chain // of the entries, by part

	mark       uint64
	head       []byte // that every text begins with
	text       []byte // head and the text of the entry that was read last
	from, upto rank   // what is wanted; upto is included, and falls where there is no room

	lowest, highest rank // of what is there
}

// chain is the entries of a part: each links to the one that was added before it.
type chain struct {
	last uint32 // where it lies, plus 1; 0: there is none
	n    int
}

const (
	linkSize  = 4
	entryHead = linkSize + 1
	// maxEntry is what an entry has beside its text at most. CAS values count down from the mark, so that most take 4 bytes.
	maxEntry = entryHead + binary.MaxVarintLen64
)

// newCandidates are for so many bytes. close gives them back.
func newCandidates(size int) *candidates {
	arena, free := allocate(size)
	return &candidates{free: free, arena: arena[:0]}
}

func (c *candidates) close() {
	c.arena, c.parts = nil, nil
	c.free()
}

// reset forgets all. Wanted are ranks from the given one up to the last of the parts, of texts that all begin with head; their CAS values are mostly a little below the mark.
func (c *candidates) reset(from rank, parts int, mark uint64, head []byte) {
	c.arena, c.parts, c.mark = c.arena[:0], make([]chain, parts), mark
	c.head, c.text = head, append(c.text[:0], head...)
	c.from, c.upto = from, firstOf(parts)-1
	c.lowest, c.highest = math.MaxUint64, 0
}

// wants says whether a rank is to be added.
func (c *candidates) wants(r rank) bool { return c.from <= r && r <= c.upto }

// add takes a text of at most maxKey bytes that is wanted.
func (c *candidates) add(r rank, cas uint64, wire []byte) {
	for len(c.arena)+maxEntry+len(wire) > cap(c.arena) && c.shrink(r) {
		if !c.wants(r) {
			return
		}
	}
	at, rest := len(c.arena), wire[len(c.head):]
	c.arena = append(c.arena, 0, 0, 0, 0, byte(len(rest)))
	c.arena = binary.AppendUvarint(c.arena, c.mark-cas) // modulo 2^64, as it is read
	c.arena = append(c.arena, rest...)
	c.link(at, r)
}

func (c *candidates) link(at int, r rank) {
	c.parts[r.part()].add(c.arena, at)
	c.lowest, c.highest = min(c.lowest, r), max(c.highest, r)
}

func (l *chain) add(arena []byte, at int) {
	binary.LittleEndian.PutUint32(arena[at:], l.last)
	l.last, l.n = uint32(at)+1, l.n+1
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
	clear(c.parts)
	c.lowest, c.highest = math.MaxUint64, 0
	for at := 0; at < len(c.arena); {
		one, next := c.at(at)
		if r := rankOf(one.wire, len(c.parts)); r <= c.upto {
			size := copy(c.arena[kept:], c.arena[at:next])
			c.link(kept, r)
			kept += size
		}
		at = next
	}
	c.arena = c.arena[:kept]
}

// candidate is one copy that may be deleted.
type candidate struct {
	cas  uint64
	wire []byte // good until the next is read
}

// at reads the entry there. next is where the one behind it lies.
func (c *candidates) at(at int) (one candidate, next int) {
	below, n := binary.Uvarint(c.arena[at+entryHead:])
	rest := at + entryHead + n
	next = rest + int(c.arena[at+linkSize])
	c.text = append(c.text[:len(c.head)], c.arena[rest:next]...)
	return candidate{c.mark - below, c.text}, next
}

// each goes through what is there of a part.
func (c *candidates) each(part int) iter.Seq[candidate] {
	return func(yield func(candidate) bool) {
		for at := c.parts[part].last; at > 0; at = c.before(at) {
			if one, _ := c.at(int(at) - 1); !yield(one) {
				return
			}
		}
	}
}

// before is what an entry links to. Both are places plus 1.
func (c *candidates) before(at uint32) uint32 { return binary.LittleEndian.Uint32(c.arena[at-1:]) }

// count is how many are there of a part.
func (c *candidates) count(part int) int { return c.parts[part].n }

// keep drops those of a part that are not meant.
func (c *candidates) keep(part int, meant func(wire []byte) bool) {
	var kept chain
	for at := c.parts[part].last; at > 0; {
		before := c.before(at)
		if one, _ := c.at(int(at) - 1); meant(one.wire) {
			kept.add(c.arena, int(at)-1)
		}
		at = before
	}
	c.parts[part] = kept
}

// numbers are those of the parts from which something is, or could have been, there, in order.
func (c *candidates) numbers() iter.Seq[int] {
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
