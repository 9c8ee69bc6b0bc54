package sink

import (
	"maps"
	"slices"
)

// HashRange is a part of a ring: places p with From < p <= To, wrapping where From >= To. From = To is the whole ring.
type HashRange struct {
	From int64
	To   int64
}

// Has says whether the place lies in h.
func (h HashRange) Has(place int64) bool {
	if h.From < h.To {
		return h.From < place && place <= h.To
	}
	return place > h.From || place <= h.To
}

// Gain is what a node may hold under a record, and could not under any of those before it.
type Gain struct {
	Node   string
	Ranges []HashRange // of the wire texts' places under the record: Record.Place
}

// maxGainRanges bounds the ranges of one node: above that its gain is the whole ring, which is more than it gained.
const maxGainRanges = 1024

// Place is where a wire text lies on the record's ring, as HashRange counts: its Hash under kind points160, and under others what Topology.Locate
// shows of it too.
func (r *Record) Place(wire string) int64 { return layoutOf(r, r.Shards).place(wire) }

// Gains are the copies that a node may have under r, in force or previous, and under none of the records before, by node. Records whose clients
// hash keys otherwise than r's count as none. Of a modulo ring whose previous has another number of servers, what a node gains there is the whole
// ring: its places are others.
func Gains(r *Record, before []*Record) []Gain {
	today := layoutOf(r, r.Shards)
	var layouts []layout
	own, known := map[layout][]placement{}, map[layout][]placement{}
	for _, shards := range r.rings() {
		l := layoutOf(r, shards)
		if own[l] == nil {
			layouts = append(layouts, l)
		}
		own[l] = append(own[l], placement{l, shape(r.Kind, shards), shards})
	}
	for _, record := range before {
		for _, shards := range record.rings() {
			if l := layoutOf(record, shards); own[l] != nil {
				known[l] = append(known[l], placement{l, shape(record.Kind, shards), shards})
			}
		}
	}
	gained := map[string][]HashRange{}
	for _, l := range layouts {
		for node, ranges := range gains(sheets(own[l]), sheets(known[l])) {
			if l != today || len(ranges) > maxGainRanges {
				ranges = []HashRange{{}}
			}
			gained[node] = ranges // today's came first
		}
	}
	var list []Gain
	for _, node := range slices.Sorted(maps.Keys(gained)) {
		list = append(list, Gain{node, gained[node]})
	}
	return list
}

// gains are the ranges of each node on own sheets that no known sheet gives it.
func gains(own, known []sheet) map[string][]HashRange {
	all := slices.Concat(own, known)
	rings := make([]*Ring, len(all))
	for i, s := range all {
		rings[i] = s.ring
	}
	gained := map[string][]HashRange{}
	last := lastPoint(rings)
	from := last
	for to, owners := range overlay(rings) {
		for i, s := range own {
			for _, node := range s.nodes[owners[i]] {
				if !holds(known, owners[len(own):], node) {
					gained[node] = extend(gained[node], HashRange{from, to})
				}
			}
		}
		from = to
	}
	for node, ranges := range gained {
		if end := len(ranges) - 1; end > 0 && ranges[0].From == last && ranges[end].To == last { // they meet over the ring's end
			ranges[0].From = ranges[end].From
			gained[node] = ranges[:end]
		}
	}
	return gained
}

// holds says whether node is among those of the owners, one of each sheet.
func holds(sheets []sheet, owners []int32, node string) bool {
	for i, s := range sheets {
		if slices.Contains(s.nodes[owners[i]], node) {
			return true
		}
	}
	return false
}

// extend adds a range that does not lie before the last one: it may be the same, or begin where that one ends.
func extend(ranges []HashRange, next HashRange) []HashRange {
	if n := len(ranges); n > 0 && ranges[n-1].To == next.To {
		return ranges // two sheets give it
	} else if n > 0 && ranges[n-1].To == next.From {
		ranges[n-1].To = next.To
		return ranges
	}
	return append(ranges, next)
}

func lastPoint(rings []*Ring) int64 {
	last := rings[0].hashes[len(rings[0].hashes)-1]
	for _, r := range rings[1:] {
		last = max(last, r.hashes[len(r.hashes)-1])
	}
	return last
}
