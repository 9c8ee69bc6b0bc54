package pipeline

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"invalidator/cdc"
	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// sights is a view with former records, the newest last.
func sights(t *testing.T, records ...string) *registry.View {
	t.Helper()
	var all []registry.Sight
	var former []*sink.Record
	for _, text := range records {
		r, err := sink.ParseRecord("ring.json", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		all, former = append(all, registry.Sight{Record: r}), append(former, r)
	}
	topology, err := sink.NewTopology(former[len(former)-1], former[:len(former)-1]...)
	if err != nil {
		t.Fatal(err)
	}
	return &registry.View{Topology: topology, Hot: sink.NewHotKeys(1, nil), Sights: all}
}

const (
	splitRing = `{"epoch":%d,"key_prefix":"p:","shards":[{"id":"s0","weight":1,"primary":{"addr":"%s"},"replicas":[]},{"id":"s1","weight":1,"primary":{"addr":"n2:1"},"replicas":[]}]}`
	wholeRing = `{"epoch":%d,"key_prefix":"p:","shards":[{"id":"s1","weight":1,"primary":{"addr":"n2:1"},"replicas":[]}]%s}`
	wasSplit  = `,"previous":{"epoch":1,"shards":[{"id":"s0","weight":1,"primary":{"addr":"n1:1"},"replicas":[]},{"id":"s2","weight":1,"primary":{"addr":"n2:1"},"replicas":[]}]}`
)

// taken are those of 200 keys, k0 to k199, that a target takes in under a view, each with as many hot copies.
func taken(target replay.Target, v *registry.View, hot int) (keys []string) {
	template := &mapping.Template{Pool: "user", Team: "profiles", Mapping: "user"}
	takes := targetOf(&Order{Target: target, Issued: true})
	for i := range 200 {
		k := mapping.Key{Text: fmt.Sprintf("k%d", i), Template: template}
		if takes(&k, v.Topology.AppendCopies(nil, k.Text, hot), hot, &cdc.RowChange{}, 0, time.Time{}, &Snapshot{View: v}) {
			keys = append(keys, k.Text)
		}
	}
	return keys
}

// on are those of the keys of which a text lies in a shard today.
func on(shard string, v *registry.View, hot int) (keys []string) {
	for i := range 200 {
		for n := range hot + 1 {
			key := fmt.Sprintf("k%d", i)
			text := key
			if n > 0 {
				text += fmt.Sprintf("#%d", n)
			}
			if _, is := v.Topology.Locate(text); is == shard {
				keys = append(keys, key)
				break
			}
		}
	}
	return keys
}

func wantKeys(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %d keys, want %d:\n%q\n%q", what, len(got), len(want), got, want)
	}
}

// A shard's keys are those that any record of the last cache.max_ttl gives it, also one that it has left since, and one that stood as previous, and hot copies have a
// place of their own.
func TestKeysOfAShard(t *testing.T) {
	before := sights(t, fmt.Sprintf(splitRing, 1, "n1:1"))
	s0, s1 := on("s0", before, 0), on("s1", before, 0)
	if len(s0) < 30 || len(s1) < 30 {
		t.Fatalf("%d and %d keys", len(s0), len(s1))
	}
	wantKeys(t, "s0 today", taken(replay.Target{Shard: "s0"}, before, 0), s0)
	if hot := on("s0", before, 2); len(hot) <= len(s0) {
		t.Fatal("hot copies lie nowhere else")
	} else {
		wantKeys(t, "s0 with hot copies", taken(replay.Target{Shard: "s0"}, before, 2), hot)
	}
	moved := sights(t, fmt.Sprintf(splitRing, 1, "n1:1"), fmt.Sprintf(splitRing, 2, "n9:1"), fmt.Sprintf(wholeRing, 3, ""))
	wantKeys(t, "s0 of a former record", taken(replay.Target{Shard: "s0"}, moved, 0), s0)
	if all := taken(replay.Target{Shard: "s1"}, moved, 0); len(all) != 200 {
		t.Errorf("s1 has %d keys today", len(all))
	}
	previous := sights(t, fmt.Sprintf(wholeRing, 3, wasSplit))
	wantKeys(t, "s0 of a previous", taken(replay.Target{Shard: "s0"}, previous, 0), on("s0", sights(t, `{"epoch":1,"key_prefix":"p:","shards":[`+
		`{"id":"s0","weight":1,"primary":{"addr":"n1:1"},"replicas":[]},{"id":"s2","weight":1,"primary":{"addr":"n2:1"},"replicas":[]}]}`), 0))
	wantKeys(t, "a shard of no record", taken(replay.Target{Shard: "s7"}, previous, 0), nil)
}

// Records that differ in their nodes alone have one ring, and what is known of a view is asked for once.
func TestRingsOfAShard(t *testing.T) {
	v := sights(t, fmt.Sprintf(splitRing, 1, "n1:1"), fmt.Sprintf(splitRing, 2, "n9:1"), fmt.Sprintf(wholeRing, 3, wasSplit))
	s := &ofShard{id: "s0"}
	rings := s.rings(v)
	if len(rings) != 2 {
		t.Errorf("%d rings, want 2", len(rings))
	}
	if again := s.rings(v); &again[0] != &rings[0] {
		t.Error("the rings of one view were made twice")
	}
	if next := s.rings(sights(t, fmt.Sprintf(wholeRing, 4, ""))); len(next) != 0 {
		t.Errorf("the next view has %d", len(next))
	}
}

func TestKeysOfOtherTargets(t *testing.T) {
	v := sights(t, fmt.Sprintf(splitRing, 1, "n1:1"), fmt.Sprintf(splitRing, 2, "n9:1"))
	s0 := on("s0", v, 0)
	wantKeys(t, "a node that has left", taken(replay.Target{Node: "n1:1"}, v, 0), s0)
	wantKeys(t, "a node with hot copies", taken(replay.Target{Node: "n9:1"}, v, 2), on("s0", v, 2))
	if n := len(taken(replay.Target{Pool: "user"}, v, 0)); n != 200 {
		t.Errorf("a pool has %d keys", n)
	}
	if n := len(taken(replay.Target{Mapping: "profiles/user"}, v, 0)); n != 200 {
		t.Errorf("a mapping has %d keys", n)
	}
	wantKeys(t, "another pool", taken(replay.Target{Pool: "feed"}, v, 0), nil)
	wantKeys(t, "another mapping", taken(replay.Target{Mapping: "profiles/feed"}, v, 0), nil)
	for _, r := range []replay.HashRange{{From: 0, To: 1 << 62}, {From: 1 << 62, To: 0}} {
		var want []string
		for i := range 200 {
			key := fmt.Sprintf("k%d", i)
			if hash := sink.Hash("p:" + key); r.Has(hash) {
				want = append(want, key)
			}
		}
		if len(want) < 20 {
			t.Fatalf("%v has %d keys", r, len(want))
		}
		wantKeys(t, fmt.Sprint(r), taken(replay.Target{Range: &r}, v, 0), want)
	}
}
