package registry

import (
	"testing"
	"time"

	"invalidator/sink"
)

func TestCarrying(t *testing.T) {
	shards := []sink.Shard{{ID: "s0", Weight: 1, Primary: sink.Node{Addr: "a:1"}, Replicas: []sink.Replica{{Addr: "b:1"}}}}
	seeding := []sink.Shard{{ID: "s0", Weight: 1, Primary: sink.Node{Addr: "a:1"}, Replicas: []sink.Replica{{Addr: "b:1", Seeding: true}}}}
	now := time.Unix(1_800_000_000, 0)
	for name, c := range map[string]struct {
		record  sink.Record
		carried time.Time
		want    bool
	}{
		"nobody":                          {sink.Record{Epoch: 2, Shards: shards}, time.Time{}, false},
		"previous stands":                 {sink.Record{Epoch: 2, Shards: shards, Previous: &sink.Previous{Epoch: 1, Shards: shards}}, time.Time{}, true},
		"a replica is seeded":             {sink.Record{Epoch: 2, Shards: seeding}, time.Time{}, true},
		"clients may not know yet":        {sink.Record{Epoch: 2, Shards: shards}, now.Add(time.Second), true},
		"what one carries may yet arrive": {sink.Record{Epoch: 2, Shards: shards}, now.Add(-time.Second + 1), true},
		"it has arrived":                  {sink.Record{Epoch: 2, Shards: shards}, now.Add(-time.Second), false},
	} {
		t.Run(name, func(t *testing.T) {
			c.record.Kind = sink.KindPoints160
			top, err := sink.NewTopology(&c.record)
			if err != nil {
				t.Fatal(err)
			}
			if got := (&View{Topology: top, Carried: c.carried}).Carrying(now, time.Second); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
