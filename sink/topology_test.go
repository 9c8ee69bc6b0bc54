package sink

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const (
	twoShards = `{"epoch": 1, "kind": "points160", "shards": [
		{"id": "s0", "primary": {"addr": "a:1"}, "replicas": [{"addr": "b:1"}]},
		{"id": "s1", "primary": {"addr": "b:1"}, "replicas": [{"addr": "a:1"}]}]}`

	// Shard s2 joins: a third of the keys moves to it while s0 and s1 still hold their values.
	resize = `{"epoch": 2, "kind": "points160", "shards": [
		{"id": "s0", "primary": {"addr": "a:1"}},
		{"id": "s1", "primary": {"addr": "b:1"}},
		{"id": "s2", "primary": {"addr": "c:1"}, "replicas": [{"addr": "d:1", "seeding": true}]}],
		"previous": {"epoch": 1, "shards": [
		{"id": "s0", "primary": {"addr": "a:1"}},
		{"id": "s1", "primary": {"addr": "old:1"}}]}}`

	prefixed = `{"epoch": 1, "key_prefix": "shop/", "shards": [
		{"id": "s0", "primary": {"addr": "a:1"}}, {"id": "s1", "primary": {"addr": "b:1"}}]}`
)

func TestCopies(t *testing.T) {
	for _, c := range []struct {
		name, record, key string
		hot               int
		want              string
	}{
		{"primary and replica", twoShards, "user:5", 0, "a:1 user:5, b:1 user:5"},
		{"each copy of a hot key has owners of its own", twoShards, "user:5", 2,
			"a:1 user:5, b:1 user:5, a:1 user:5#1, b:1 user:5#1, b:1 user:5#2, a:1 user:5#2"},
		{"a key that stays has one owner in a resize", resize, "user:4", 0, "a:1 user:4"},
		{"a key that moves has both", resize, "user:5", 0, "c:1 user:5, d:1 user:5, a:1 user:5"},
		{"a shard whose primary was replaced has both", resize, "user:1", 0, "b:1 user:1, old:1 user:1"},
		{"the prefix is on the wire, and in the hash", prefixed, "user:6", 1, "a:1 shop/user:6, b:1 shop/user:6#1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := mustTopology(t, c.record).AppendCopies(nil, c.key, c.hot)
			if diff := cmp.Diff(c.want, render(got)); diff != "" {
				t.Errorf("copies (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTopologyTellsItsRecord(t *testing.T) {
	top := mustTopology(t, resize)
	if top.Epoch() != 2 || !top.HasPrevious() || !top.Record().Shards[2].Replicas[0].Seeding {
		t.Errorf("got epoch %d, previous %v, record %+v", top.Epoch(), top.HasPrevious(), top.Record())
	}
	if diff := cmp.Diff([]string{"a:1", "b:1", "c:1", "d:1", "old:1"}, top.Nodes()); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	if mustTopology(t, twoShards).HasPrevious() {
		t.Error("a record without previous has one")
	}
}

func TestLocate(t *testing.T) {
	top := mustTopology(t, prefixed)
	hash, shard := top.Locate("user:6") // without its prefix it would be at s1
	if want := Hash("shop/user:6"); hash != want || shard != "s0" {
		t.Errorf("got %d, %s; want %d, s0", hash, shard, want)
	}
}

func TestNewTopologyRefusesAnInvalidRecord(t *testing.T) {
	_, err := NewTopology(&Record{Epoch: 3, Kind: KindPoints160})
	var bad *RecordError
	if !errors.As(err, &bad) || bad.Field != "shards" {
		t.Errorf("got %v, want a RecordError about shards", err)
	}
}

// Whatever the record: a copy is only ever at an owner, every owner has one, and none is there twice.
func TestCopiesAreExactlyTheOwners(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		record := &Record{Epoch: 2, Kind: KindPoints160, KeyPrefix: rapid.SampledFrom([]string{"", "p/"}).Draw(rt, "prefix"),
			Shards: drawShards(rt)}
		if rapid.Bool().Draw(rt, "resize") {
			record.Previous = &Previous{Epoch: 1, Shards: drawShards(rt)}
		}
		top, err := NewTopology(record)
		if err != nil {
			rt.Fatal(err)
		}
		key, hot := rapid.StringMatching(`[a-z]:[0-9]{1,6}`).Draw(rt, "key"), rapid.IntRange(0, 8).Draw(rt, "hot")

		want := map[Copy]bool{}
		for n := range hot + 1 {
			wire := record.KeyPrefix + key
			if n > 0 {
				wire += fmt.Sprint("#", n)
			}
			for _, node := range slowOwners(record.Shards, wire) {
				want[Copy{node, wire}] = true
			}
			if record.Previous != nil {
				for _, node := range slowOwners(record.Previous.Shards, wire) {
					want[Copy{node, wire}] = true
				}
			}
		}
		got := top.AppendCopies(nil, key, hot)
		if len(got) != len(want) {
			rt.Fatalf("got %d copies, want %d: %v", len(got), len(want), got)
		}
		for _, c := range got {
			if !want[c] {
				rt.Fatalf("%v is twice there or at no owner", c)
			}
			delete(want, c)
			if !slices.Contains(top.Nodes(), c.Node) {
				rt.Fatalf("%v is at a node that Nodes leaves out", c)
			}
		}
	})
}

// slowOwners goes by the definition: of all points, the nearest at or after the hash, else the lowest.
func slowOwners(shards []Shard, wire string) []string {
	hash := Hash(wire)
	var next, lowest *Shard
	var nextAt, lowestAt int64
	for i := range shards {
		s := &shards[i]
		for n := range 160 * s.Weight {
			at := Hash(fmt.Sprintf("%s-%d", s.ID, n))
			if at >= hash && (next == nil || at < nextAt) {
				next, nextAt = s, at
			}
			if lowest == nil || at < lowestAt {
				lowest, lowestAt = s, at
			}
		}
	}
	if next == nil {
		next = lowest
	}
	nodes := []string{next.Primary.Addr}
	for _, r := range next.Replicas {
		nodes = append(nodes, r.Addr)
	}
	return nodes
}

func drawShards(rt *rapid.T) []Shard {
	nodes := []string{"a:1", "b:1", "c:1", "d:1", "e:1"}
	ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"s0", "s1", "s2", "s3"}), 1, 4, rapid.ID).Draw(rt, "ids")
	var shards []Shard
	for _, id := range ids {
		own := rapid.SliceOfNDistinct(rapid.SampledFrom(nodes), 1, 3, rapid.ID).Draw(rt, "nodes")
		s := Shard{ID: id, Weight: rapid.IntRange(1, 2).Draw(rt, "weight"), Primary: Node{Addr: own[0]}}
		for _, addr := range own[1:] {
			s.Replicas = append(s.Replicas, Replica{Addr: addr})
		}
		shards = append(shards, s)
	}
	return shards
}

func mustTopology(t *testing.T, record string) *Topology {
	t.Helper()
	r, err := ParseRecord("ring", []byte(record))
	if err != nil {
		t.Fatal(err)
	}
	top, err := NewTopology(r)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

func render(copies []Copy) string {
	var parts []string
	for _, c := range copies {
		parts = append(parts, c.Node+" "+c.Key)
	}
	return strings.Join(parts, ", ")
}
