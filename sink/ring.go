package sink

import (
	"cmp"
	"crypto/md5"
	"encoding/binary"
	"slices"
	"strconv"
)

// pointsPerWeight is how many points a shard has on the ring for each unit of its weight. Every client computes the same.
const pointsPerWeight = 160

// Ring is the client's map from a key's hash to its shard. Immutable.
type Ring struct {
	// hashes is sorted; hashes[i] belongs to shard owners[i]. Two slices, so that the search walks over hashes alone.
	hashes []int64
	owners []int32
}

// NewRing places the shards on a ring of kind points160. Where two shards have a point of the same hash, the lower id (by bytes) owns it,
// whatever their order in the record: all workers agree, also over a record that was sorted anew.
func NewRing(shards []Shard) *Ring {
	var points []point
	for i, s := range shards {
		label := append([]byte(s.ID), '-')
		for n := range s.Weight * pointsPerWeight {
			points = append(points, point{hashBytes(strconv.AppendInt(label, int64(n), 10)), int32(i)})
		}
	}
	return assemble(shards, points)
}

type point struct {
	hash  int64
	shard int32
}

func assemble(shards []Shard, points []point) *Ring {
	return ringOf(points, func(a, b point) int { return cmp.Compare(shards[a.shard].ID, shards[b.shard].ID) })
}

// ringOf sorts the points. tie says which of two with one hash comes first, and so owns it.
func ringOf(points []point, tie func(a, b point) int) *Ring {
	slices.SortFunc(points, func(a, b point) int {
		if a.hash != b.hash {
			return cmp.Compare(a.hash, b.hash)
		}
		return tie(a, b)
	})
	r := &Ring{hashes: make([]int64, len(points)), owners: make([]int32, len(points))}
	for i, p := range points {
		r.hashes[i], r.owners[i] = p.hash, p.shard
	}
	return r
}

// Owner is the index, in the slice given to NewRing, of the shard that owns hash: that of the first point at or after it,
// wrapping. The ring must have a point.
func (r *Ring) Owner(hash int64) int { return int(r.owners[atOrAfter(r.hashes, hash)]) }

// atOrAfter is the index of the first of sorted hashes that is not below hash, or 0 where all are.
func atOrAfter(hashes []int64, hash int64) int {
	i, _ := slices.BinarySearch(hashes, hash)
	if i == len(hashes) {
		return 0
	}
	return i
}

// Points is how many points the ring has.
func (r *Ring) Points() int { return len(r.hashes) }

// Hash places a wire key on a ring of kind points160: the first 8 bytes of its MD5, big-endian, signed.
func Hash(wire string) int64 {
	var buf [MaxKeyLen]byte // a key that fits stays on the stack
	return hashBytes(append(buf[:0], wire...))
}

func hashBytes(b []byte) int64 {
	sum := md5.Sum(b)
	return int64(binary.BigEndian.Uint64(sum[:8]))
}
