//go:build bench

package bench

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/replay"
	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

const (
	replayShards = 64
	zoneShards   = 21    // of them, a third: what one zone holds the primaries of
	liveRate     = 5_000 // changes a second that come meanwhile: more of them keep two cores busy with 128 nodes alone

	// replayLog is how many records the log has when the ring record is written: 30 s of 20,000 a second. All but those of the last liveBefore are produced and worked off
	// as fast as that goes. That stands for 30 s, since a replay takes in what the journal says was issued in its window, however fast it was.
	replayLog  = 600_000
	liveBefore = 5 // s

	replayGoal   = 3   // s, one shard
	vsRawGoal    = 3   // times the raw time
	zoneGoal     = 2   // times one shard
	liveP99Goal  = 100 // ms, of live deletes meanwhile
	steadyProbes = 200 // at least, before anything is replayed
	sampledKeys  = 200 // of those that were left stale
)

// TestReplay measures replays and flushes. It is no test: what it prints are the figures replay.* and flush.*.
func TestReplay(t *testing.T) {
	var one float64
	t.Run("one_shard", func(t *testing.T) {
		p := newPromotion(t, 1)
		took, raw := p.run(t, "one_shard")
		one = took.Seconds()
		report(t, atMost("replay.one_shard_s", one, "s", replayGoal))
		report(t, plain("replay.raw_s", raw.Seconds(), "s"))
		report(t, atMost("replay.one_shard_vs_raw", one/raw.Seconds(), "x", vsRawGoal))
	})
	t.Run("zone", func(t *testing.T) {
		took, _ := newPromotion(t, zoneShards).run(t, "zone")
		report(t, plain("replay.zone_s", took.Seconds(), "s"))
		if one > 0 { // else -run left it out
			report(t, atMost("replay.zone_vs_one_shard", took.Seconds()/one, "x", zoneGoal))
		}
	})
	t.Run("flush", flushed)
}

// promotion is a fleet of one worker, 64 shards, and a log that it has worked off. The primaries of some shards die, and their replicas, which hold a stale value of each of
// the log's keys, are promoted by one ring record.
type promotion struct {
	*runBench
	shards  int // that are promoted: the first ones
	behind  int // records that the worker works off before anything comes live
	worker  *harness.Process
	load    *traffic
	told    *ear
	stale   [][]string // by promoted shard
	sampled []string   // of stale[0], over the whole of the log
}

func newPromotion(t *testing.T, shards int) *promotion {
	b := &runBench{n: size(t, replayLog), nodes: harness.StartNodes(t, 2*replayShards, "-t", "1", "-m", "16")}
	b.ring = sink.NewRing(b.record().Shards)
	b.topic = harness.Unique() + "-dbz.shop.users"
	b.p = b.fleet(t, b.topic)
	b.adm, b.kafka = kafkaOf(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
		defer cancel()
		if _, err := b.adm.DeleteTopics(ctx, b.topic); err != nil {
			t.Errorf("removing topic %s: %v", b.topic, err)
		}
	})
	b.createTopic(t, runPartitions)
	p := &promotion{runBench: b, shards: shards, behind: b.n - liveBefore*liveRate/shrink(t)}
	p.stale = p.copies(p.behind)[:2*shards]
	for i := range shards { // a shard's keys are those of its replica, and of its primary
		p.stale[i] = p.stale[2*i+1]
	}
	p.stale = p.stale[:shards]
	for i := range min(sampledKeys, len(p.stale[0])) {
		p.sampled = append(p.sampled, p.stale[0][i*len(p.stale[0])/sampledKeys])
	}
	return p
}

func kafkaOf(t *testing.T) (*kadm.Client, *kgo.Client) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return kadm.NewClient(cl), cl
}

// run is how long a promotion takes, from when the ring record is written until every partition says that it is done with it; and how long reading the same records of the
// log takes who discards them, in the same run and under the same load.
func (p *promotion) run(t *testing.T, name string) (took, raw time.Duration) {
	produceUsers(t, p.topic, p.behind)
	p.worker = p.p.Work()
	p.p.AwaitDone(p.topic)
	p.told = listen(t, p.p)
	for i, keys := range p.stale {
		if err := p.replica(i).SetAll(keys, strings.Repeat("v", 30)); err != nil {
			t.Fatal(err)
		}
	}
	p.load = newTraffic(t, p.topic, p.behind, liveRate, p.owners)
	defer p.load.stop()
	p.load.awaitFresh(t)
	steady := time.Now()
	harness.Await(t, "the log to be as long as is replayed", func() (bool, string) {
		n, probes := end(p.offsets(t)), len(p.load.since(steady))
		return n >= int64(p.n) && probes >= steadyProbes, ""
	})
	if p.shards == 1 {
		report(t, plain("replay.p99_ms.steady", p.load.p99(t, steady, time.Now()), "ms"))
	}
	p.killPrimaries(t)

	window := p.offsets(t)
	stopProfile := profile(t, name, p.worker.Pid())
	began := time.Now()
	p.p.Publish(p.promoted())
	gone := p.awaitGone(t)
	done := p.awaitDone(t)
	stopProfile()
	report(t, plain("replay."+name+"_gone_s", gone.Sub(began).Seconds(), "s"))
	report(t, atMost("replay.p99_ms."+name, p.load.p99(t, began, done), "ms", liveP99Goal))
	raw = discardTo(t, p.topic, window)
	report(t, plain("replay.rss_mb."+name, peak(t, p.worker.Pid()), "MB"))
	p.checkAllGone(t)
	p.load.stop()
	p.worker.Terminate()
	return done.Sub(began), raw
}

func (p *promotion) replica(shard int) *harness.Node { return p.nodes[2*shard+1] }

// owners are the nodes of a key that live.
func (p *promotion) owners(key string) []*harness.Node {
	i := p.ring.Owner(sink.Hash(key))
	if i < p.shards { // its primary is about to die
		return []*harness.Node{p.replica(i)}
	}
	return p.nodes[2*i : 2*i+2]
}

// promoted is the ring record that the cluster manager writes.
func (p *promotion) promoted() sink.Record {
	r := p.record()
	for i := range p.shards {
		r.Shards[i].Primary, r.Shards[i].Replicas = sink.Node{Addr: p.replica(i).Addr, Zone: "b"}, nil
	}
	return r
}

// killPrimaries ends the primaries of the shards, and waits until the worker has noticed.
func (p *promotion) killPrimaries(t *testing.T) {
	t.Helper()
	for i := range p.shards {
		p.nodes[2*i].Kill()
	}
	harness.AwaitQuick(t, "the worker to tell that the primaries are off", func() (bool, string) {
		off := map[string]bool{}
		p.told.each(func(r replay.Record) {
			if o, is := r.(replay.Owed); is {
				off[o.Node] = o.Off
			}
		})
		for i := range p.shards {
			if !off[p.nodes[2*i].Addr] {
				return false, "node " + p.nodes[2*i].Addr + " is not"
			}
		}
		return true, ""
	})
}

// awaitGone is when no stale value was left of a sample of the first shard's keys.
func (p *promotion) awaitGone(t *testing.T) (at time.Time) {
	t.Helper()
	harness.AwaitQuick(t, "the promoted replica to have no stale value", func() (bool, string) {
		left, err := p.replica(0).Present(p.sampled)
		if err != nil {
			return false, err.Error()
		}
		at = time.Now()
		return len(left) == 0, strings.Join(left, " ")
	})
	return at
}

// awaitDone is when the last partition was done with the second ring record, by its own clock.
func (p *promotion) awaitDone(t *testing.T) (at time.Time) {
	t.Helper()
	harness.AwaitQuick(t, "all partitions to be done with the second ring record", func() (bool, string) {
		done := map[int32]time.Time{}
		p.told.each(func(r replay.Record) {
			if s, is := r.(replay.Progress); is && s.ID == "epoch/1-2" && s.Range.Topic == p.topic && s.Done {
				done[s.Range.Partition] = s.At
			}
		})
		for _, d := range done {
			at = later(at, d)
		}
		return len(done) == runPartitions, ""
	})
	return at
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// checkAllGone says whether what was measured is what it is called.
func (p *promotion) checkAllGone(t *testing.T) {
	t.Helper()
	for i, keys := range p.stale {
		left, err := p.replica(i).Present(keys)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) > 0 {
			t.Fatalf("the replay is done, and %d of %d stale values are left on %s: nothing was measured", len(left), len(keys), p.replica(i).Addr)
		}
	}
}

// offsets are where the log's partitions end.
func (p *promotion) offsets(t *testing.T) kadm.ListedOffsets {
	t.Helper()
	ends, err := p.adm.ListEndOffsets(t.Context(), p.topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	return ends
}

func end(ends kadm.ListedOffsets) (n int64) {
	ends.Each(func(e kadm.ListedOffset) { n += e.Offset })
	return n
}

// discardTo is how long reading a topic takes with the consumer library alone, from the first records to where the partitions ended then.
func discardTo(t *testing.T, topic string, ends kadm.ListedOffsets) time.Duration {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.ConsumeTopics(topic), kgo.FetchMaxPartitionBytes(1<<20), kgo.FetchMaxBytes(16<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var begin time.Time
	var first, n int64
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	for all := end(ends); n < all; {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("reading topic %s: %v", topic, err)
		}
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			e, _ := ends.Lookup(p.Topic, p.Partition)
			i, _ := slices.BinarySearchFunc(p.Records, e.Offset, func(r *kgo.Record, end int64) int { return int(r.Offset - end) })
			n += int64(i)
		})
		if begin.IsZero() {
			begin, first = time.Now(), n
		}
	}
	return time.Duration(float64(time.Since(begin)) * float64(n) / float64(max(1, n-first)))
}
