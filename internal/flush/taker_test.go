package flush

import (
	"fmt"
	"testing"

	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// BenchmarkTaker is what a key of a dump costs: the server shows one in about a microsecond, and whoever takes longer has the dump void.
func BenchmarkTaker(b *testing.B) {
	record := &sink.Record{Epoch: 2, Kind: sink.KindPoints160}
	for i := range 64 {
		record.Shards = append(record.Shards, sink.Shard{
			ID: fmt.Sprintf("s%02d", i), Weight: 1, Primary: sink.Node{Addr: fmt.Sprintf("10.0.0.%d:1", i)}, Replicas: []sink.Replica{{Addr: fmt.Sprintf("10.0.1.%d:1", i)}},
		})
	}
	topology, err := sink.NewTopology(record)
	if err != nil {
		b.Fatal(err)
	}
	view := &registry.View{Topology: topology, Sights: []registry.Sight{{Record: record}}}
	of := func(target replay.Target, pool string) {
		b.Run(fmt.Sprintf("%s, a key of %s", target, pool), func(b *testing.B) {
			r := &request{Asked: Asked{Request: replay.Request{ID: "f", Target: target}}}
			j := &job{Begun: Begun{Job: replay.Job{Parts: 4, Epoch: 2}}, answers: []*request{r}, run: &run{}}
			t := &term{Conductor: &Conductor{o: Options{Arena: arenaSize}}}
			defer t.letGo()
			v := &visit{term: t, j: j, s: scopeOf(j.answers, 2).under(view, nil), node: "10.0.0.7:1", p: &place{mark: &mark{cas: 1 << 60}}}
			keys := make([][]byte, 1<<16)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "%s:profile:%d:v3", pool, i*7919)
			}
			seen := 0
			take := v.taker(&seen)
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				take(keys[i%len(keys)], uint64(i))
			}
		})
	}
	of(replay.Target{Pool: "user"}, "feed")
	of(replay.Target{Pool: "user"}, "user")
	of(replay.Target{Pool: "user", Shard: "s07"}, "user")
	of(replay.Target{Node: "10.0.0.7:1"}, "user")
}
