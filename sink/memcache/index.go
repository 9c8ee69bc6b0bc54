package memcache

import "hash/maphash"

// index finds the entry of a key among those of a lane that are not written yet. It is a hash table of their places, which are
// counted on for ever: what has left the queue needs no removal, since its place is before the queue's. So a delete costs a hash and one
// look, where a map of keys would cost an insert and a removal.
//
// A place is kept modulo 2^31. One that seems to be in the queue again is harmless: the key there is compared.
type index struct {
	slots []uint32 // twice the place, plus 1; 0: never used. Their number is a power of two
	used  int      // slots that are not 0
}

var indexSeed = maphash.MakeSeed()

// minIndex is the least number of slots.
const minIndex = 64

// find returns where in queue, whose first entry has the place base and of which what is before head has left, the key stands; else -1,
// and notes it at the place that is appended next.
func (x *index) find(key string, queue []entry, head int, base uint32) int {
	if x.used*4 >= len(x.slots)*3 {
		x.rebuild(queue, head, base)
	}
	mask := uint32(len(x.slots) - 1)
	free := -1
	for i := uint32(maphash.String(indexSeed, key)) & mask; ; i = (i + 1) & mask {
		place := x.slots[i]
		if place == 0 {
			if free < 0 {
				free = int(i)
				x.used++
			}
			x.slots[free] = (base+uint32(len(queue)))<<1 | 1
			return -1
		}
		at := int((place>>1 - base) << 1 >> 1)
		switch {
		case at < head || at >= len(queue):
			if free < 0 {
				free = int(i)
			}
		case queue[at].key == key:
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
		x.slots = make([]uint32, size)
	}
	x.used = 0
	for at := head; at < len(queue); at++ {
		mask := uint32(size - 1)
		i := uint32(maphash.String(indexSeed, queue[at].key)) & mask
		for x.slots[i] != 0 {
			i = (i + 1) & mask
		}
		x.slots[i] = (base+uint32(at))<<1 | 1
		x.used++
	}
}
