package sink

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever the records, and whatever their prefixes and kinds: the copies under all of them are those under each.
func TestCopiesAreThoseUnderEveryRecord(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var records []*Record
		for i := range rapid.IntRange(1, 6).Draw(rt, "records") {
			r := &Record{Epoch: int64(2*i + 2), Kind: rapid.SampledFrom(kinds).Draw(rt, "kind"), KeyPrefix: rapid.SampledFrom([]string{"", "p/"}).Draw(rt, "prefix")}
			r.Shards = drawShardsOf(rt, r.Kind)
			if rapid.Bool().Draw(rt, "resize") {
				r.Previous = &Previous{Epoch: int64(2*i + 1), Shards: drawShardsOf(rt, r.Kind)}
			}
			records = append(records, r)
		}
		today := records[len(records)-1]
		top, err := NewTopology(today, records[:len(records)-1]...)
		if err != nil {
			rt.Fatal(err)
		}
		key, hot := rapid.StringMatching(`[a-z]:[0-9]{1,6}`).Draw(rt, "key"), rapid.IntRange(0, 3).Draw(rt, "hot")
		want := map[Copy]bool{}
		for _, r := range records {
			alone, err := NewTopology(r)
			if err != nil {
				rt.Fatal(err)
			}
			for _, c := range alone.AppendCopies(nil, key, hot) {
				want[c] = true
			}
			for _, node := range alone.Nodes() {
				if !slices.Contains(top.Nodes(), node) {
					rt.Fatalf("Nodes leaves out %s", node)
				}
			}
		}
		got := top.AppendCopies(nil, key, hot)
		for _, c := range got {
			if !want[c] {
				rt.Fatalf("%v is there twice, or under no record", c)
			}
			delete(want, c)
		}
		if len(want) > 0 {
			rt.Fatalf("%v are left out", want)
		}
		hash, shard := top.Locate(key)
		for i := range today.Shards {
			if s := &today.Shards[i]; s.ID == shard && got[0] != (Copy{s.Primary.Addr, today.KeyPrefix + key}) {
				rt.Fatalf("the first copy is %v, not that of today's primary in shard %s (hash %d)", got[0], shard, hash)
			}
		}
	})
}

// A range that left a node may come back to it: the node keeps its copies until they have expired.
func TestCopiesAtAFormerOwner(t *testing.T) {
	first, resized := mustTopology(t, twoShards).Record(), mustTopology(t, resize).Record()
	third := *resized
	third.Epoch, third.Previous = 3, nil
	top, err := NewTopology(&third, first, resized)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := render(top.AppendCopies(nil, "user:1", 0)), "b:1 user:1, old:1 user:1, a:1 user:1"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for node, want := range map[string]struct{ primary, replica bool }{
		"a:1": {true, false}, "c:1": {true, false}, "d:1": {false, true}, "old:1": {false, false},
	} {
		if top.IsPrimary(node) != want.primary || top.IsReplica(node) != want.replica {
			t.Errorf("%s: primary %v, replica %v, want %+v", node, top.IsPrimary(node), top.IsReplica(node), want)
		}
	}
}

func TestAReplicaOfPreviousIsOne(t *testing.T) {
	r := *mustTopology(t, twoShards).Record()
	r.Epoch, r.Previous = 2, &Previous{1, []Shard{{ID: "s0", Weight: 1, Primary: Node{Addr: "x:1"}, Replicas: []Replica{{Addr: "y:1"}}}}}
	top, err := NewTopology(&r)
	if err != nil {
		t.Fatal(err)
	}
	if top.IsPrimary("x:1") || !top.IsReplica("y:1") || !top.IsReplica("a:1") {
		t.Error("want y and a as replicas, x as no primary of today")
	}
}

func TestNewTopologyRefusesAnInvalidFormerRecord(t *testing.T) {
	if _, err := NewTopology(mustTopology(t, resize).Record(), &Record{Epoch: 1, Kind: KindPoints160}); err == nil {
		t.Error("it was taken")
	}
}

// The cost of a key is about the same however many records there were: a search among more points.
func BenchmarkAppendCopies(b *testing.B) {
	for _, records := range []int{1, 10, 100} {
		for name, record := range map[string]func(i int) *Record{"promotions": promoted, "resizes": resized} {
			b.Run(fmt.Sprintf("%d %s", records, name), func(b *testing.B) {
				top := manyRecords(b, records, record)
				keys := make([]string, 4096)
				for i := range keys {
					keys[i] = fmt.Sprintf("user:%d:profile", i)
				}
				var copies []Copy
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					copies = top.AppendCopies(copies[:0], keys[i%len(keys)], 0)
				}
				b.ReportMetric(float64(len(top.atlas[0].hashes)), "points")
				b.ReportMetric(float64(len(copies)), "copies")
			})
		}
	}
}

// BenchmarkNewTopology is what a new record costs.
func BenchmarkNewTopology(b *testing.B) {
	for _, records := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("%d resizes", records), func(b *testing.B) {
			b.ReportAllocs()
			for range b.N {
				manyRecords(b, records, resized)
			}
		})
	}
}

func manyRecords(b *testing.B, n int, record func(i int) *Record) *Topology {
	var all []*Record
	for i := range n {
		all = append(all, record(i))
	}
	top, err := NewTopology(all[n-1], all[:n-1]...)
	if err != nil {
		b.Fatal(err)
	}
	return top
}

// promoted has, of 64 shards, one with another primary than the record before.
func promoted(i int) *Record {
	r := &Record{Epoch: int64(i + 1), Kind: KindPoints160, Shards: shardsTo(64)}
	for n := range i {
		r.Shards[n%64].Primary, r.Shards[n%64].Replicas[0].Addr = Node{Addr: r.Shards[n%64].Replicas[0].Addr}, r.Shards[n%64].Primary.Addr
	}
	return r
}

// resized has a shard more, in turn one of 64 less, with the record before as previous.
func resized(i int) *Record {
	r := &Record{Epoch: int64(2*i + 2), Kind: KindPoints160, Shards: shardsTo(64 + i)[i/2:]}
	r.Previous = &Previous{int64(2*i + 1), shardsTo(max(64, 63+i))[i/2:]}
	return r
}

func shardsTo(n int) []Shard {
	var shards []Shard
	for i := range n {
		shards = append(shards, Shard{ID: fmt.Sprintf("s%03d", i), Weight: 1, Primary: Node{Addr: fmt.Sprintf("10.0.0.%d:11211", i)},
			Replicas: []Replica{{Addr: fmt.Sprintf("10.0.1.%d:11211", i)}}})
	}
	return shards
}
