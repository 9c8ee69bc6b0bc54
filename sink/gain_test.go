package sink

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What nodes gain, seen by two texts: on the ring of s0 and s1, user:1 lies on s1 and user:5 on s0; when s2 joins, user:5 goes to it.
func TestGains(t *testing.T) {
	a, b, c := []string{"a:1"}, []string{"b:1"}, []string{"c:1"}
	for name, tc := range map[string]struct {
		record *Record
		before []*Record
		want   string // of each node, which of the two it gains
	}{
		"the same ring":                         {ring(3, a, b), []*Record{ring(1, a, b)}, ""},
		"a new replica":                         {ring(3, a, []string{"b:1", "c:1"}), []*Record{ring(1, a, b)}, "c:1 user:1"},
		"a node takes another shard":            {ring(3, a, a), []*Record{ring(1, a, b)}, "a:1 user:1"},
		"a promotion":                           {ring(3, b, b), []*Record{ring(1, []string{"a:1", "b:1"}, b)}, ""},
		"a shard joins":                         {ring(3, a, b, c), []*Record{ring(1, a, b)}, "c:1 user:5"},
		"and had been there before":             {ring(4, a, b, c), []*Record{ring(1, a, b, c), ring(3, a, b)}, ""},
		"a shard leaves":                        {ring(3, a, b), []*Record{ring(1, a, b, c)}, "a:1 user:5"},
		"it is in the record's previous":        {under(ring(3, a, b), ring(2, a, c)), []*Record{ring(1, a, b)}, "c:1 user:1"},
		"it was in a previous":                  {ring(4, a, b, c), []*Record{under(ring(2, a, b), ring(1, a, b, c))}, ""},
		"nothing was before":                    {ring(3, a, b), nil, "a:1 user:5, b:1 user:1"},
		"clients had another prefix":            {ring(3, a, b), []*Record{prefixedWith(ring(1, a, b), "x/")}, "a:1 user:5, b:1 user:1"},
		"a modulo ring's previous was unknown":  {modulo(under(ring(3, a, b), ring(2, a, b, c))), []*Record{modulo(ring(1, a, b))}, "a:1 user:1 user:5, b:1 user:1 user:5, c:1 user:1 user:5"},
		"a modulo ring with servers as before":  {modulo(ring(3, a, b)), []*Record{modulo(ring(1, a, b))}, ""},
		"with another number of them than then": {modulo(ring(3, a, b, c)), []*Record{modulo(ring(1, a, b))}, "a:1 user:1, c:1 user:5"},
	} {
		var got string
		for _, g := range Gains(tc.record, tc.before) {
			texts := g.Node
			for _, wire := range []string{"user:1", "user:5"} {
				if has(g.Ranges, tc.record.Place(wire)) {
					texts += " " + wire
				}
			}
			if texts == g.Node {
				continue
			}
			if got != "" {
				got += ", "
			}
			got += texts
		}
		if got != tc.want {
			t.Errorf("%s: gained %q, want %q", name, got, tc.want)
		}
	}
}

func modulo(r *Record) *Record {
	with := *r
	with.Kind = KindModulo
	return &with
}

func has(ranges []HashRange, place int64) bool {
	return slices.ContainsFunc(ranges, func(h HashRange) bool { return h.Has(place) })
}

func TestHashRange(t *testing.T) {
	for _, c := range []struct {
		of       HashRange
		in, outs []int64
	}{
		{HashRange{3, 7}, []int64{4, 7}, []int64{3, 8, -5}},
		{HashRange{7, 3}, []int64{8, 100, -100, 3}, []int64{4, 7}},
		{HashRange{5, 5}, []int64{4, 5, 6}, nil},
	} {
		for _, p := range c.in {
			if !c.of.Has(p) {
				t.Errorf("%v has %d", c.of, p)
			}
		}
		for _, p := range c.outs {
			if c.of.Has(p) {
				t.Errorf("%v has not %d", c.of, p)
			}
		}
	}
}

// Ranges that meet are one, also over the end of the ring; and a node of too many gains the whole.
func TestGainsAreJoined(t *testing.T) {
	if got := Gains(ring(2, []string{"a:1"}), nil); len(got) != 1 || len(got[0].Ranges) != 1 || got[0].Ranges[0].From != got[0].Ranges[0].To {
		t.Errorf("a node that owns everything gains %v", got)
	}
	var shards []Shard
	for i := range 40 {
		shards = append(shards, Shard{ID: fmt.Sprint("s", i), Weight: 1, Primary: Node{Addr: fmt.Sprintf("n%d:1", i%2)}})
	}
	before, now := &Record{Epoch: 1, Kind: KindPoints160, Shards: shards}, &Record{Epoch: 3, Kind: KindPoints160, Shards: slices.Clone(shards)}
	for i := 0; i < len(shards); i += 2 {
		now.Shards[i].Primary.Addr = "new:1"
	}
	want := []Gain{{"new:1", []HashRange{{}}}}
	if diff := cmp.Diff(want, Gains(now, []*Record{before})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Whatever the records: a node gains a text where the record gives it, and none before does. Where places are others, it may gain more.
func TestGainsAreWhatTheDefinitionSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := []*Record{drawRecord(rt)}
		for range rapid.IntRange(0, 4).Draw(rt, "changes") {
			records = append(records, drawChange(rt, records[len(records)-1]))
		}
		r, before := records[len(records)-1], records[:len(records)-1]
		exact := !slices.ContainsFunc(r.rings(), func(s []Shard) bool { return layoutOf(r, s) != layoutOf(r, r.Shards) })
		gained := map[string][]HashRange{}
		for _, g := range Gains(r, before) {
			gained[g.Node] = g.Ranges
		}
		for range 20 {
			key := rapid.StringMatching(`[a-z]:[0-9]{1,6}`).Draw(rt, "key")
			want := slowGains(r, before, key)
			for node := range want {
				if !has(gained[node], r.Place(r.KeyPrefix+key)) {
					rt.Fatalf("%s gains %s, and %v leaves it out", node, key, gained[node])
				}
			}
			for node, ranges := range gained {
				if exact && len(ranges) <= maxGainRanges && !want[node] && has(ranges, r.Place(r.KeyPrefix+key)) && ranges[0] != (HashRange{}) {
					rt.Fatalf("%s does not gain %s, and %v has it", node, key, ranges)
				}
			}
		}
	})
}

// slowGains are the nodes that may hold key under r, on a ring that has it so under none of the records before.
func slowGains(r *Record, before []*Record, key string) map[string]bool {
	gained := map[string]bool{}
	for _, shards := range r.rings() {
		for _, node := range slowNodes(r, shards, key) {
			if !slices.ContainsFunc(before, func(b *Record) bool {
				return slices.ContainsFunc(b.rings(), func(others []Shard) bool {
					return layoutOf(r, shards) == layoutOf(b, others) && slices.Contains(slowNodes(b, others, key), node)
				})
			}) {
				gained[node] = true
			}
		}
	}
	return gained
}

func slowNodes(r *Record, shards []Shard, key string) (nodes []string) {
	s := slowShard(r, shards, key)
	s.eachNode(func(addr string) { nodes = append(nodes, addr) })
	return nodes
}
