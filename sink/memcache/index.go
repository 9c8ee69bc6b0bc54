package memcache

import "hash/maphash"

// index finds the entry of a key among those of a lane that are not written yet; those that compare are not in it, since nothing goes as
// one of them. It is a hash table of their places, which are counted on for ever: what has left the queue needs no removal, since its
// place is before the queue's. So a delete costs a hash and one look, where a map of keys would cost an insert and a removal.
type index struct {
	slots []slotOf // their number is a power of two
	used  int      // slots that are not 0
}

// slotOf is half of a key's hash, which is never 0, and the place, modulo 2^32. A place that seems to be in the queue again is harmless:
// the key there is compared, where the hash agrees. 0: the slot was never used.
type slotOf uint64

func newSlot(hash, place uint32) slotOf { return slotOf(hash)<<32 | slotOf(place) }

func (s slotOf) hash() uint32  { return uint32(s >> 32) }
func (s slotOf) place() uint32 { return uint32(s) }

var indexSeed = maphash.MakeSeed()

// hashOf is odd: home leaves that bit out.
func hashOf(key string) uint32 { return uint32(maphash.String(indexSeed, key)) | 1 }

// home is the first slot of a hash.
func (x *index) home(hash uint32) int { return int(hash>>1) & (len(x.slots) - 1) }

// minIndex is the least number of slots.
const minIndex = 64

// find returns where in queue, whose first entry has the place base and of which what is before head has left, the key stands; else -1,
// and notes it at the place that is appended next.
func (x *index) find(key string, queue []entry, head int, base uint32) int {
	if x.used*4 >= len(x.slots)*3 {
		x.rebuild(queue, head, base)
	}
	hash, free := hashOf(key), -1
	for i := x.home(hash); ; i = (i + 1) & (len(x.slots) - 1) {
		s := x.slots[i]
		if s == 0 {
			if free < 0 {
				free = i
				x.used++
			}
			x.slots[free] = newSlot(hash, base+uint32(len(queue)))
			return -1
		}
		at := int(s.place() - base)
		switch {
		case at < head || at >= len(queue):
			if free < 0 {
				free = i
			}
		case s.hash() == hash && queue[at].key == key && !queue[at].compares:
			return at
		}
	}
}

// rebuild makes room: four slots an entry that waits.
func (x *index) rebuild(queue []entry, head int, base uint32) {
	size := minIndex
	for size < 4*(len(queue)-head) {
		size *= 2
	}
	if size == len(x.slots) {
		clear(x.slots)
	} else {
		x.slots = make([]slotOf, size)
	}
	x.used = 0
	for at := head; at < len(queue); at++ {
		if queue[at].compares {
			continue
		}
		x.used++
		hash := hashOf(queue[at].key)
		i := x.home(hash)
		for x.slots[i] != 0 {
			i = (i + 1) & (size - 1)
		}
		x.slots[i] = newSlot(hash, base+uint32(at))
	}
}
