package sink

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// The vectors are what every client computes.
func TestRingEqualsTheClients(t *testing.T) {
	data, err := os.ReadFile("testdata/ring-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors map[string]struct {
		Shards []Shard           `json:"shards"`
		Points int               `json:"points"`
		First  int64             `json:"first_point,string"`
		Last   int64             `json:"last_point,string"`
		Owners map[string]string `json:"owners"`
	}
	if err := json.Unmarshal(data, &vectors); err != nil {
		t.Fatal(err)
	}
	if len(vectors) != 5 {
		t.Fatalf("got %d rings, want 5", len(vectors))
	}
	for name, v := range vectors {
		t.Run(name, func(t *testing.T) {
			r := NewRing(v.Shards)
			if r.Points() != v.Points || r.hashes[0] != v.First || r.hashes[len(r.hashes)-1] != v.Last {
				t.Errorf("got %d points from %d to %d, want %d from %d to %d",
					r.Points(), r.hashes[0], r.hashes[len(r.hashes)-1], v.Points, v.First, v.Last)
			}
			if len(v.Owners) == 0 {
				t.Error("no owners to compare")
			}
			for key, want := range v.Owners {
				if got := v.Shards[r.Owner(Hash(key))].ID; got != want {
					t.Errorf("%q belongs to %s, want %s", key, got, want)
				}
			}
		})
	}
}

func TestRingOwnsAtOrAfterAndWraps(t *testing.T) {
	r := &Ring{hashes: []int64{-10, 0, 10}, owners: []int32{2, 0, 1}}
	for hash, want := range map[int64]int{math.MinInt64: 2, -10: 2, -9: 0, 0: 0, 1: 1, 10: 1, 11: 2, math.MaxInt64: 2} {
		if got := r.Owner(hash); got != want {
			t.Errorf("hash %d: got shard %d, want %d", hash, got, want)
		}
	}
}

func TestATieGoesToTheLowerID(t *testing.T) {
	shards := []Shard{{ID: "b"}, {ID: "a"}}
	for _, points := range [][]point{{{5, 0}, {5, 1}}, {{5, 1}, {5, 0}}} {
		if got := shards[assemble(shards, points).Owner(5)].ID; got != "a" {
			t.Errorf("got %s, want a", got)
		}
	}
}

func TestRingDoesNotDependOnTheOrderOfShards(t *testing.T) {
	shards := []Shard{{ID: "a", Weight: 1}, {ID: "b", Weight: 2}, {ID: "c", Weight: 3}}
	want := NewRing(shards)
	turned := []Shard{shards[2], shards[0], shards[1]}
	got := NewRing(turned)
	if !slices.Equal(got.hashes, want.hashes) {
		t.Fatal("the points differ")
	}
	for i := range got.owners {
		if turned[got.owners[i]].ID != shards[want.owners[i]].ID {
			t.Fatalf("point %d has another owner", i)
		}
	}
}

// A key longer than memcached takes is hashed all the same.
func TestHashOfALongKey(t *testing.T) {
	long := make([]byte, 4*MaxKeyLen)
	if got, want := Hash(string(long)), hashBytes(long); got != want {
		t.Errorf("got %d, want %d", got, want)
	}
}

func TestLocatingAllocatesNothing(t *testing.T) {
	topology := mustTopology(t, resize)
	dst := make([]Copy, 0, 16)
	if n := testing.AllocsPerRun(100, func() {
		topology.Locate("user:1:profile:of:somebody:with:a:long:key")
		dst = topology.AppendCopies(dst[:0], "user:1:profile:of:somebody:with:a:long:key", 0)
	}); n != 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
}

func BenchmarkOwner(b *testing.B) {
	shards := make([]Shard, 72)
	for i := range shards {
		shards[i] = Shard{ID: "s" + strconv.Itoa(i), Weight: 1}
	}
	r := NewRing(shards)
	keys := make([]string, 1024)
	for i := range keys {
		keys[i] = "user:" + strconv.FormatUint(rand.Uint64(), 10) + ":profile"
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Owner(Hash(keys[i%len(keys)]))
	}
}
