package sink

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Moves says what ring records change from each to the next: which texts are at other nodes, and which shards have another primary. What was
// deleted under the records before is deleted again then, as docs/REPLAY.md says. Immutable. Of a nil one everything has moved.
type Moves struct {
	all      bool // every text has moved
	prefix   string
	charts   []movedChart // none: no text has
	promoted []Promotion
	former   []string
}

// Promotion is a shard whose primary is another than under the record before, or one that a shard has under previous.
type Promotion struct {
	Epoch    int64    // of the record that says so
	Shard    string   // its id
	Former   string   // who was its primary
	Primary  string   // who is
	Replicas []string // the other nodes that hold the shard's copies under that record; where it was promoted under previous too, also those there
}

// NewMoves compares records, which ascend by epoch. Where an epoch is missing between two of them, and where there is no record, nothing is known, so
// every text has moved.
func NewMoves(records []*Record) *Moves {
	if len(records) == 0 {
		return &Moves{all: true}
	}
	m := &Moves{prefix: records[0].KeyPrefix, former: formerPrimaries(records)}
	for i, r := range records[1:] {
		m.promoted = append(m.promoted, promotions(records[i], r)...)
		m.all = m.all || records[i].movesAll(r)
	}
	if m.all {
		return m
	}
	var now, previous [][]Shard
	for _, r := range records {
		now = append(now, r.Shards)
		if r.Previous != nil {
			previous = append(previous, r.Previous.Shards)
		}
	}
	for _, each := range [][][]Shard{now, previous} {
		if len(each) == 0 {
			continue
		}
		if c := newMovedChart(layoutOf(records[0], each[0]), each); c != nil {
			m.charts = append(m.charts, *c)
		}
	}
	return m
}

// movesAll says that every text moves from r to the record after it: it is another on the wire, or hashed otherwise; previous begins, ends, or is
// another one; or there was a record between the two.
func (r *Record) movesAll(next *Record) bool {
	was, is := r.rings(), next.rings()
	if next.Epoch != r.Epoch+1 || len(was) != len(is) || len(is) > 1 && r.Previous.Epoch != next.Previous.Epoch {
		return true
	}
	for i := range was {
		if layoutOf(r, was[i]) != layoutOf(next, is[i]) {
			return true
		}
	}
	return false
}

// Moved says whether key (without key_prefix, which it adds), or one of its copies key#1 … key#hot, has moved between any two neighbours.
func (m *Moves) Moved(key string, hot int) bool {
	switch {
	case m == nil || m.all:
		return true
	case len(m.charts) == 0:
		return false
	}
	var buf [MaxKeyLen]byte // a key that fits stays on the stack
	text := append(append(buf[:0], m.prefix...), key...)
	if m.moved(text) {
		return true
	}
	text = append(text, '#')
	for n := range hot {
		if m.moved(strconv.AppendInt(text, int64(n+1), 10)) {
			return true
		}
	}
	return false
}

func (m *Moves) moved(wire []byte) bool {
	var place int64
	for i := range m.charts {
		c := &m.charts[i]
		if i == 0 || c.layout != m.charts[i-1].layout {
			place = c.layout.placeBytes(wire)
		}
		if c.moved[atOrAfter(c.hashes, place)] {
			return true
		}
	}
	return false
}

// Promoted are the promotions, in the order of the records, and of their shards.
func (m *Moves) Promoted() []Promotion {
	if m == nil {
		return nil
	}
	return m.promoted
}

// Former are the nodes that were the primary of a shard under any of the records and are not its primary under the last, sorted. Such a node may be
// another shard's primary still.
func (m *Moves) Former() []string {
	if m == nil {
		return nil
	}
	return m.former
}

// movedChart is the ring cut where moved texts meet others: moved[i] says it of the hashes from the point before up to hashes[i].
type movedChart struct {
	layout layout
	hashes []int64
	moved  []bool
}

// newMovedChart lays out what shards were under each record, all of one layout. It is nil where nothing moved.
func newMovedChart(l layout, records [][]Shard) *movedChart {
	var rings []*Ring
	var nodes [][]string // of each shard of rings[i], as holders writes them; "": others under another record with the same ring
	index := map[string]int{}
	for _, shards := range records {
		form := shape(l.kind, shards)
		i, known := index[form]
		if !known {
			i = len(rings)
			index[form] = i
			rings, nodes = append(rings, ringFor(l.kind, l.hash, shards)), append(nodes, make([]string, len(shards)))
		}
		for n := range shards {
			switch now := shards[n].holders(); {
			case !known:
				nodes[i][n] = now
			case nodes[i][n] != now:
				nodes[i][n] = ""
			}
		}
	}
	c, some := &movedChart{layout: l}, false
	for hash, owners := range overlay(rings) {
		first := nodes[0][owners[0]]
		moved := first == ""
		for i, owner := range owners {
			moved = moved || nodes[i][owner] != first
		}
		some = some || moved
		if n := len(c.moved); n > 0 && c.moved[n-1] == moved {
			c.hashes[n-1] = hash
			continue
		}
		c.hashes, c.moved = append(c.hashes, hash), append(c.moved, moved)
	}
	if !some {
		return nil
	}
	return c
}

// holders is equal for shards whose copies are on the same nodes in the same roles: the primary, and in any order the replicas, each with whether
// it is being seeded.
func (s *Shard) holders() string {
	replicas := make([]string, len(s.Replicas))
	for i, r := range s.Replicas {
		replicas[i] = r.Addr
		if r.Seeding {
			replicas[i] += " seeding"
		}
	}
	slices.Sort(replicas)
	return s.Primary.Addr + "\n" + strings.Join(replicas, "\n")
}

// promotions are those from one record to the next. A shard under previous is compared with the same previous before, else with what the record
// before had in force.
func promotions(r, next *Record) []Promotion {
	list := promotionsOf(next.Epoch, r.Shards, next.Shards)
	if next.Previous == nil {
		return list
	}
	before := r.Shards
	if r.Previous != nil && r.Previous.Epoch == next.Previous.Epoch {
		before = r.Previous.Shards
	}
	for _, p := range promotionsOf(next.Epoch, before, next.Previous.Shards) {
		i := slices.IndexFunc(list, func(other Promotion) bool { return other.Shard == p.Shard })
		if i < 0 {
			list = append(list, p)
			continue
		}
		for _, node := range append([]string{p.Primary}, p.Replicas...) {
			if node != list[i].Primary {
				list[i].Replicas = include(list[i].Replicas, node)
			}
		}
	}
	return list
}

func promotionsOf(epoch int64, before, now []Shard) (list []Promotion) {
	was := primaries(before)
	for _, s := range now {
		former, known := was[s.ID]
		if !known || former == s.Primary.Addr {
			continue
		}
		p := Promotion{Epoch: epoch, Shard: s.ID, Former: former, Primary: s.Primary.Addr}
		for _, r := range s.Replicas {
			p.Replicas = append(p.Replicas, r.Addr)
		}
		list = append(list, p)
	}
	return list
}

// primaries are the shards' primaries by id.
func primaries(shards []Shard) map[string]string {
	by := make(map[string]string, len(shards))
	for _, s := range shards {
		by[s.ID] = s.Primary.Addr
	}
	return by
}

func formerPrimaries(records []*Record) []string {
	last := records[len(records)-1]
	now, previous := primaries(last.Shards), map[string]string{}
	if last.Previous != nil {
		previous = primaries(last.Previous.Shards)
	}
	former := map[string]struct{}{}
	for _, r := range records {
		for i, shards := range r.rings() {
			for id, node := range primaries(shards) {
				if stays := now[id] == node || i > 0 && previous[id] == node; !stays {
					former[node] = struct{}{}
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(former))
}
