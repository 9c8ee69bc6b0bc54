package sink

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
)

// placement is the shards of one record, or of a previous, on their ring.
type placement struct {
	layout layout
	shape  string
	shards []Shard
}

// atlas answers where a key's copies may be under many records, about as fast as under one. Records whose clients hash keys alike share a
// chart.
type atlas []*chart

// chart is several rings laid over each other: a sorted list of points, each with the nodes that own, under any of the rings, the
// hashes from the point before up to it.
type chart struct {
	layout layout
	hashes []int64
	lists  []int32    // hashes[i] belongs to nodes[lists[i]]
	nodes  [][]string // without doubles; the first placement's primary first
}

// newAtlas lays out placements, the one in force first.
func newAtlas(placements []placement) atlas {
	var layouts []layout
	byLayout := map[layout][]placement{}
	for _, p := range placements {
		if byLayout[p.layout] == nil {
			layouts = append(layouts, p.layout)
		}
		byLayout[p.layout] = append(byLayout[p.layout], p)
	}
	a := make(atlas, len(layouts))
	for i, l := range layouts {
		a[i] = &chart{layout: l}
		a[i].draw(sheets(byLayout[l]))
	}
	return a
}

// sheet is one ring, and for each of its shards the nodes that have held it under the records that give this ring.
type sheet struct {
	ring  *Ring
	nodes [][]string
}

// sheets makes one of all placements of the same shape: most records differ from the one before in their nodes alone.
func sheets(placements []placement) []sheet {
	var out []sheet
	index := map[string]int{}
	for _, p := range placements {
		i, known := index[p.shape]
		if !known {
			i = len(out)
			index[p.shape] = i
			out = append(out, sheet{ring: ringFor(p.layout.kind, p.layout.hash, p.shards), nodes: make([][]string, len(p.shards))})
		}
		for n := range p.shards {
			s := &p.shards[n]
			s.eachNode(func(addr string) { out[i].nodes[n] = include(out[i].nodes[n], addr) })
		}
	}
	return out
}

func include(list []string, node string) []string {
	if slices.Contains(list, node) {
		return list
	}
	return append(list, node)
}

// draw fills the chart. Points between which nothing changes are left out.
func (c *chart) draw(sheets []sheet) {
	if len(sheets) == 1 { // its own points are good as they are
		c.hashes, c.lists, c.nodes = sheets[0].ring.hashes, sheets[0].ring.owners, sheets[0].nodes
		return
	}
	rings := make([]*Ring, len(sheets))
	for i, s := range sheets {
		rings[i] = s.ring
	}
	key := make([]byte, 4*len(sheets))
	known := map[string]int32{} // owners -> list
	for hash, owners := range overlay(rings) {
		for i, owner := range owners {
			binary.LittleEndian.PutUint32(key[4*i:], uint32(owner))
		}
		list, met := known[string(key)]
		if !met {
			list = c.list(sheets, owners)
			known[string(key)] = list
		}
		if n := len(c.lists); n > 0 && c.lists[n-1] == list {
			c.hashes[n-1] = hash
			continue
		}
		c.hashes, c.lists = append(c.hashes, hash), append(c.lists, list)
	}
	c.hashes, c.lists = slices.Clip(c.hashes), slices.Clip(c.lists)
}

// list is the index of the nodes of these shards, one of each ring.
func (c *chart) list(sheets []sheet, owners []int32) int32 {
	var nodes []string
	for i, s := range sheets {
		for _, node := range s.nodes[owners[i]] {
			nodes = include(nodes, node)
		}
	}
	c.nodes = append(c.nodes, nodes)
	return int32(len(c.nodes) - 1)
}

// overlay visits the points of several rings laid over each other, in their order. owners[i] is the shard that owns, on rings[i], the hashes
// from the point before up to this one; what lies above the last point is the first one's. The slice is used again.
func overlay(rings []*Ring) iter.Seq2[int64, []int32] {
	return func(yield func(hash int64, owners []int32) bool) {
		var points []int64
		for _, r := range rings {
			points = union(points, r.hashes)
		}
		at := make([]int, len(rings)) // in each ring: its first point that is not below the hash
		owners := make([]int32, len(rings))
		for _, hash := range points {
			for i, r := range rings {
				for at[i] < len(r.hashes) && r.hashes[at[i]] < hash {
					at[i]++
				}
				owners[i] = r.owners[at[i]%len(r.owners)]
			}
			if !yield(hash, owners) {
				return
			}
		}
	}
}

// union merges two sorted lists without doubles.
func union(a, b []int64) []int64 {
	out := make([]int64, 0, len(a)+len(b))
	last := int64(math.MinInt64)
	for len(a)+len(b) > 0 {
		var next int64
		if len(b) == 0 || len(a) > 0 && a[0] <= b[0] {
			next, a = a[0], a[1:]
		} else {
			next, b = b[0], b[1:]
		}
		if next != last || len(out) == 0 {
			out = append(out, next)
		}
		last = next
	}
	return out
}

// owners are the nodes that may hold the wire key.
func (c *chart) owners(wire string) []string {
	return c.nodes[c.lists[atOrAfter(c.hashes, c.layout.place(wire))]]
}
