package sink

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// ring is a record of shards s0, s1, …, each written as its nodes: the primary first, a replica that is being seeded with a +.
func ring(epoch int64, shards ...[]string) *Record {
	return &Record{Epoch: epoch, Kind: KindPoints160, Shards: shardsOf(shards...)}
}

func shardsOf(shards ...[]string) (out []Shard) {
	for i, nodes := range shards {
		s := Shard{ID: fmt.Sprint("s", i), Weight: 1, Primary: Node{Addr: nodes[0]}}
		for _, addr := range nodes[1:] {
			seeding := addr[0] == '+'
			if seeding {
				addr = addr[1:]
			}
			s.Replicas = append(s.Replicas, Replica{Addr: addr, Seeding: seeding})
		}
		out = append(out, s)
	}
	return out
}

// under is r with that ring as its previous.
func under(r *Record, previous *Record) *Record {
	with := *r
	with.Previous = &Previous{previous.Epoch, previous.Shards}
	return &with
}

func prefixedWith(r *Record, prefix string) *Record {
	with := *r
	with.KeyPrefix = prefix
	return &with
}

// On the ring of s0 and s1, user:1 lies on s1 and user:5 on s0; when s2 joins, user:5 goes to it and user:1 stays.
func TestMoved(t *testing.T) {
	a, b := []string{"a:1", "b:1"}, []string{"b:1", "a:1"}
	plain := ring(1, a, b)
	for name, c := range map[string]struct {
		records      []*Record
		user1, user5 bool
	}{
		"one record":                              {[]*Record{plain}, false, false},
		"none":                                    {nil, true, true},
		"the same again":                          {[]*Record{plain, ring(2, a, b)}, false, false},
		"s0 is promoted":                          {[]*Record{plain, ring(2, []string{"b:1", "a:1"}, b)}, false, true},
		"and back":                                {[]*Record{plain, ring(2, []string{"b:1", "a:1"}, b), ring(3, a, b)}, false, true},
		"s1 gets a replica":                       {[]*Record{plain, ring(2, a, []string{"b:1", "a:1", "c:1"})}, true, false},
		"s1 loses one":                            {[]*Record{plain, ring(2, a, []string{"b:1"})}, true, false},
		"replicas are written in another order":   {[]*Record{ring(1, a, []string{"b:1", "a:1", "c:1"}), ring(2, a, []string{"b:1", "c:1", "a:1"})}, false, false},
		"a replica of s1 begins to be seeded":     {[]*Record{plain, ring(2, a, []string{"b:1", "+a:1"})}, true, false},
		"and has been":                            {[]*Record{ring(1, a, []string{"b:1", "+a:1"}), ring(2, a, b)}, true, false},
		"s2 joins":                                {[]*Record{plain, ring(2, a, b, []string{"c:1"})}, false, true},
		"s2 leaves":                               {[]*Record{ring(1, a, b, []string{"c:1"}), ring(2, a, b)}, false, true},
		"shards are written in another order":     {[]*Record{plain, reversed(ring(2, a, b))}, false, false},
		"clients have another prefix":             {[]*Record{plain, prefixedWith(ring(2, a, b), "x/")}, true, true},
		"another hash":                            {[]*Record{plain, {Epoch: 2, Kind: KindKetama, Shards: plain.Shards}}, true, true},
		"an epoch between that nobody saw":        {[]*Record{plain, ring(3, a, b)}, true, true},
		"a resize begins":                         {[]*Record{plain, under(ring(2, a, b), plain)}, true, true},
		"goes on":                                 {[]*Record{under(ring(2, a, b), plain), under(ring(3, a, b), plain)}, false, false},
		"and ends":                                {[]*Record{under(ring(2, a, b), plain), ring(3, a, b)}, true, true},
		"another resize":                          {[]*Record{under(ring(2, a, b), plain), under(ring(3, a, b), ring(2, a, b))}, true, true},
		"s1 is promoted under previous":           {[]*Record{under(ring(2, a, b), plain), under(ring(3, a, b), ring(1, a, []string{"a:1", "b:1"}))}, true, false},
		"s1 is promoted, previous stays":          {[]*Record{under(ring(2, a, b), plain), under(ring(3, a, []string{"a:1", "b:1"}), plain)}, true, false},
		"first s0 moves, then s1":                 {[]*Record{plain, ring(2, []string{"c:1"}, b), ring(3, []string{"c:1"}, []string{"d:1"})}, true, true},
		"a step that moves nothing, and then one": {[]*Record{plain, ring(2, a, b), ring(3, a, []string{"c:1"})}, true, false},
		"the third ring is another":               {[]*Record{plain, reversed(ring(2, a, b)), ring(3, a, []string{"c:1"}, []string{"d:1"})}, true, true},
		"of a modulo ring s0 moves, and under previous, which has more servers, s2": {
			[]*Record{modulo(under(ring(2, a, b), ring(1, a, b, []string{"c:1"}))), modulo(under(ring(3, []string{"e:1"}, b), ring(1, a, b, []string{"d:1"})))}, true, true},
	} {
		m := NewMoves(c.records)
		if got1, got5 := m.Moved("user:1", 0), m.Moved("user:5", 0); got1 != c.user1 || got5 != c.user5 {
			t.Errorf("%s: user:1 moved %v, want %v; user:5 moved %v, want %v", name, got1, c.user1, got5, c.user5)
		}
	}
	if !(*Moves)(nil).Moved("user:1", 0) {
		t.Error("nothing is known, and user:1 has not moved")
	}
}

func reversed(r *Record) *Record {
	slices.Reverse(r.Shards)
	return r
}

// A hot key has moved where any of its copies has: each lies where its own hash says.
func TestMovedHotCopies(t *testing.T) {
	before := mustTopology(t, prefixed).Record()
	after := *before
	after.Epoch, after.Shards = 2, slices.Clone(before.Shards)
	after.Shards[1].Primary.Addr = "c:1"
	m := NewMoves([]*Record{before, &after})
	for hot, want := range map[int]bool{0: false, 1: true, 8: true} { // shop/user:6 is at s0, shop/user:6#1 at s1
		if got := m.Moved("user:6", hot); got != want {
			t.Errorf("with %d copies: moved %v, want %v", hot, got, want)
		}
	}
}

func TestPromoted(t *testing.T) {
	a, b := []string{"a:1", "b:1"}, []string{"b:1", "a:1"}
	for name, c := range map[string]struct {
		records  []*Record
		promoted []Promotion
		former   []string
	}{
		"nothing":         {records: []*Record{ring(1, a, b), ring(2, a, b)}},
		"another replica": {records: []*Record{ring(1, a, b), ring(2, []string{"a:1", "c:1"}, b)}},
		"a shard": {
			records:  []*Record{ring(1, a, b), ring(2, []string{"b:1"}, b)},
			promoted: []Promotion{{2, "s0", "a:1", "b:1", nil}},
			former:   []string{"a:1"},
		},
		"one shard of two, and then the other": {
			records:  []*Record{ring(1, a, a), ring(2, []string{"b:1", "a:1"}, a), ring(3, []string{"b:1", "a:1"}, []string{"c:1", "a:1"})},
			promoted: []Promotion{{2, "s0", "a:1", "b:1", []string{"a:1"}}, {3, "s1", "a:1", "c:1", []string{"a:1"}}},
			former:   []string{"a:1"},
		},
		"one shard of two: its primary is the other's still": {
			records:  []*Record{ring(1, a, a), ring(2, []string{"b:1", "a:1"}, a)},
			promoted: []Promotion{{2, "s0", "a:1", "b:1", []string{"a:1"}}},
			former:   []string{"a:1"},
		},
		"and back": {
			records:  []*Record{ring(1, a), ring(2, b), ring(3, a)},
			promoted: []Promotion{{2, "s0", "a:1", "b:1", []string{"a:1"}}, {3, "s0", "b:1", "a:1", []string{"b:1"}}},
			former:   []string{"b:1"},
		},
		"a node that was not there before": {
			records:  []*Record{ring(1, a), ring(2, []string{"n:1", "b:1"})},
			promoted: []Promotion{{2, "s0", "a:1", "n:1", []string{"b:1"}}},
			former:   []string{"a:1"},
		},
		"a shard joins, another leaves": {
			records: []*Record{ring(1, a, b), ring(2, a), ring(3, a, b, []string{"c:1"})},
		},
		"a shard is gone": {records: []*Record{ring(1, a, b), ring(2, a)}, former: []string{"b:1"}},
		"an epoch is missing": {
			records:  []*Record{ring(1, a), ring(5, b)},
			promoted: []Promotion{{5, "s0", "a:1", "b:1", []string{"a:1"}}},
			former:   []string{"a:1"},
		},
		"a promotion that begins a resize": {
			records:  []*Record{ring(1, a), under(ring(2, b), ring(1, a))},
			promoted: []Promotion{{2, "s0", "a:1", "b:1", []string{"a:1"}}},
			former:   []string{"a:1"},
		},
		"a resize": {
			records: []*Record{under(ring(2, a, b), ring(1, a)), under(ring(3, a, b), ring(1, a)), ring(4, a, b)},
		},
		"a shard that stands under previous alone": {
			records:  []*Record{under(ring(2, a), ring(1, a, b)), under(ring(3, a), ring(1, a, []string{"c:1", "b:1"}))},
			promoted: []Promotion{{3, "s1", "b:1", "c:1", []string{"b:1"}}},
			former:   []string{"b:1"},
		},
		"under previous, while a new node warms up": {
			records:  []*Record{under(ring(2, []string{"n:1"}), ring(1, a)), under(ring(3, []string{"n:1"}), ring(1, b))},
			promoted: []Promotion{{3, "s0", "a:1", "b:1", []string{"a:1"}}},
			former:   []string{"a:1"},
		},
		"in both rings, each to a node of its own": {
			records:  []*Record{under(ring(2, a), ring(1, a)), under(ring(3, []string{"n:1", "b:1"}), ring(1, b))},
			promoted: []Promotion{{3, "s0", "a:1", "n:1", []string{"b:1", "a:1"}}},
			former:   []string{"a:1"},
		},
		"the primary of before the resize, which ends": {
			records: []*Record{under(ring(2, []string{"n:1"}), ring(1, a)), ring(3, []string{"n:1"})},
			former:  []string{"a:1"},
		},
		"no record": {},
	} {
		m := NewMoves(c.records)
		if diff := cmp.Diff(c.promoted, m.Promoted()); diff != "" {
			t.Errorf("%s: promoted (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.former, m.Former()); diff != "" {
			t.Errorf("%s: former (-want +got):\n%s", name, diff)
		}
	}
	if m := (*Moves)(nil); m.Promoted() != nil || m.Former() != nil {
		t.Error("nothing is known, and somebody was promoted")
	}
}

// Whatever the records: a key has moved where, by the definition, any of its texts has between two neighbours.
func TestMovedIsWhatTheDefinitionSays(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		records := []*Record{drawRecord(rt)}
		for range rapid.IntRange(0, 4).Draw(rt, "changes") {
			records = append(records, drawChange(rt, records[len(records)-1]))
		}
		for _, r := range records {
			if err := r.Validate(); err != nil {
				rt.Fatal(err)
			}
		}
		m := NewMoves(records)
		for range 20 {
			key, hot := rapid.StringMatching(`[a-z]:[0-9]{1,6}`).Draw(rt, "key"), rapid.IntRange(0, 3).Draw(rt, "hot")
			want := false
			for i := 1; i < len(records) && !want; i++ {
				for n := range hot + 1 {
					text := key
					if n > 0 {
						text = fmt.Sprint(key, "#", n)
					}
					want = want || slowMoved(records[i-1], records[i], text)
				}
			}
			if got := m.Moved(key, hot); got != want {
				rt.Fatalf("%s with %d copies: moved %v, want %v", key, hot, got, want)
			}
		}
	})
}

// slowMoved goes by the definition, text by text.
func slowMoved(x, y *Record, text string) bool {
	if y.Epoch > x.Epoch+1 || x.KeyPrefix != y.KeyPrefix || x.Kind != y.Kind || x.hash() != y.hash() || x.HashTag != y.HashTag {
		return true
	}
	if (x.Previous == nil) != (y.Previous == nil) || x.Previous != nil && x.Previous.Epoch != y.Previous.Epoch {
		return true
	}
	for i, shards := range x.rings() {
		others := y.rings()[i]
		if x.Kind == KindModulo && len(shards) != len(others) {
			return true // of such a ring their number is a part of the hash
		}
		was, is := slowShard(x, shards, text), slowShard(y, others, text)
		if was.Primary.Addr != is.Primary.Addr || len(was.Replicas) != len(is.Replicas) {
			return true
		}
		for _, r := range was.Replicas {
			if !slices.ContainsFunc(is.Replicas, func(o Replica) bool { return o.Addr == r.Addr && o.Seeding == r.Seeding }) {
				return true
			}
		}
	}
	return false
}

// slowShard is the owner of a text, found on a ring made for it.
func slowShard(r *Record, shards []Shard, text string) Shard {
	return shards[ringFor(r.Kind, r.hash(), shards).Owner(layoutOf(r, shards).place(r.KeyPrefix+text))]
}

// drawRecord is a record of any kind, with or without previous.
func drawRecord(rt *rapid.T) *Record {
	r := &Record{Epoch: 10, Kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), KeyPrefix: rapid.SampledFrom([]string{"", "p/"}).Draw(rt, "prefix")}
	r.Shards = drawShardsOf(rt, r.Kind)
	if rapid.Bool().Draw(rt, "resize") {
		r.Previous = &Previous{9, drawShardsOf(rt, r.Kind)}
	}
	return r
}

// drawChange is the record after r: mostly one thing is another.
func drawChange(rt *rapid.T, r *Record) *Record {
	next := *r
	next.Epoch += int64(rapid.SampledFrom([]int{1, 1, 1, 1, 1, 1, 1, 2}).Draw(rt, "step"))
	next.Shards = slices.Clone(r.Shards)
	if r.Previous != nil {
		next.Previous = &Previous{r.Previous.Epoch, slices.Clone(r.Previous.Shards)}
	}
	shards := next.rings()
	some := shards[rapid.IntRange(0, len(shards)-1).Draw(rt, "ring")]
	s := &some[rapid.IntRange(0, len(some)-1).Draw(rt, "shard")]
	s.Replicas = slices.Clone(s.Replicas)
	switch rapid.SampledFrom([]string{"nothing", "promote", "seed", "turn", "drop", "node", "shards", "begin", "end", "other", "prefix", "kind", "tag"}).Draw(rt, "change") {
	case "promote":
		if len(s.Replicas) > 0 {
			s.Primary.Addr, s.Replicas[0].Addr = s.Replicas[0].Addr, s.Primary.Addr
		}
	case "seed":
		if len(s.Replicas) > 0 {
			s.Replicas[0].Seeding = !s.Replicas[0].Seeding
		}
	case "turn":
		slices.Reverse(s.Replicas)
	case "drop":
		s.Replicas = nil
	case "node":
		s.Primary.Addr = "new:1"
	case "shards":
		next.Shards = drawShardsOf(rt, r.Kind)
	case "begin":
		next.Previous = &Previous{r.Epoch, r.Shards}
	case "end":
		next.Previous = nil
	case "other":
		if next.Previous != nil {
			next.Previous.Shards = drawShardsOf(rt, r.Kind)
		}
	case "prefix":
		next.KeyPrefix = rapid.SampledFrom([]string{"", "p/", "q/"}).Draw(rt, "prefix")
	case "kind":
		if r.Kind == KindKetama {
			next.Hash = "md5"
		}
	case "tag":
		if r.Kind == KindTwemproxy {
			next.HashTag = "::"
		}
	}
	return &next
}

// drawShardsOf are shards as a ring of that kind has them.
func drawShardsOf(rt *rapid.T, kind string) []Shard {
	shards := drawShards(rt)
	for i := range shards {
		if kind != KindPoints160 && kind != KindModulo {
			shards[i].Server = shards[i].ID + ":1" // primaries may be the same
		}
		if kind == KindKetama || kind == KindModulo {
			shards[i].Weight = 1
		}
	}
	return shards
}

func TestMovedAllocatesNothing(t *testing.T) {
	m := NewMoves([]*Record{prefixedWith(promoted(1), "shop/"), prefixedWith(promoted(2), "shop/")})
	keys := []string{"user:1", "user:2:a-profile-whose-name-is-longer-than-a-short-string"}
	if n := testing.AllocsPerRun(100, func() {
		for _, key := range keys {
			m.Moved(key, 2)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkMoved is what a pass after a promotion asks of each key.
func BenchmarkMoved(b *testing.B) {
	m := NewMoves([]*Record{promoted(1), promoted(2)})
	keys := make([]string, 4096)
	for i := range keys {
		keys[i] = fmt.Sprintf("user:%d:profile", i)
	}
	b.ReportAllocs()
	moved := 0
	for i := range b.N {
		if m.Moved(keys[i%len(keys)], 0) {
			moved++
		}
	}
	b.ReportMetric(float64(moved)/float64(b.N), "moved")
}
