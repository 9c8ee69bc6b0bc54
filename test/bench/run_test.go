//go:build bench

package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

const (
	runNodes      = 8 // of which every other one is a replica
	runPartitions = 8
	nodeMemory    = "400"     // MB: what the present copies of a backlog take
	emptied       = "absent"  // keys are in no node
	filled        = "present" // each copy is there
	ageOfBacklog  = time.Hour // of its records: nobody carries what was read before them
	copiesEach    = 2 * 2     // of a change: two keys, on a primary and a replica
	plainPart     = 10        // the plain loop gets so small a part of the backlog: it is that slow
)

// TestRun measures the workers. It is no test: what it prints are the figures run.*.
func TestRun(t *testing.T) {
	t.Run("backlog", func(t *testing.T) { newRunBench(t).backlogs(t) })
	t.Run("latency", latency)
	t.Run("memory", memory)
}

// runBench is a topic of a Debezium connector, a backlog in it, and nodes.
type runBench struct {
	p     *harness.Pipeline // whose the topic is
	adm   *kadm.Client
	kafka *kgo.Client
	topic string
	n     int // records
	nodes []*harness.Node
	ring  *sink.Ring
}

func newRunBench(t *testing.T) *runBench {
	b := &runBench{n: size(t, backlog), nodes: harness.StartNodes(t, runNodes, "-t", "1", "-m", nodeMemory)}
	b.p = b.fleet(t, "")
	b.topic = b.p.ID + "-dbz.shop.users"
	b.ring = sink.NewRing(b.record().Shards)
	var err error
	if b.kafka, err = kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.kafka.Close)
	b.adm = kadm.NewClient(b.kafka)
	b.createTopic(t, runPartitions)
	produceUsers(t, b.topic, b.n)
	return b
}

// createTopic makes the topic as a connector's is: its records' times are what their producer says, so the backlog is as old as it says.
func (b *runBench) createTopic(t *testing.T, partitions int32) {
	t.Helper()
	b.p.CreateTopic(b.topic, partitions)
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	byProducer := "CreateTime"
	set, err := kadm.NewClient(cl).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "message.timestamp.type", Value: &byProducer}}, b.topic)
	if err == nil {
		_, err = set.On(b.topic, nil)
	}
	if err != nil {
		t.Fatalf("topic %s: %v", b.topic, err)
	}
}

// record is of a ring that stands for long: nobody carries values any more under what it replaced.
func (b *runBench) record() sink.Record {
	r := pairsOf(addresses(b.nodes))
	r.At = time.Now().Add(-ageOfBacklog)
	return r
}

func addresses(nodes []*harness.Node) []string {
	out := make([]string, len(nodes))
	for i, n := range nodes {
		out[i] = n.Addr
	}
	return out
}

// pairsOf is a ring of primaries and their replicas.
func pairsOf(addrs []string) sink.Record {
	r := sink.Record{At: time.Now().Add(-time.Hour)} // in force so long that nobody carries values
	for i := 0; i+1 < len(addrs); i += 2 {
		r.Shards = append(r.Shards, sink.Shard{
			ID: fmt.Sprintf("s%03d", i/2), Weight: 1,
			Primary: sink.Node{Addr: addrs[i], Zone: "a"}, Replicas: []sink.Replica{{Addr: addrs[i+1], Zone: "b"}},
		})
	}
	return r
}

// users are the mappings of the backlog's table: two keys a row.
const users = `
version: 1
team: users
contact: "#users"
pools: [user]
mappings:
  - {name: users, table: %s, keys: ["user:{id}", "user:by-email:{email|lower}"]}
`

// fleet is a group of workers of its own, that reads the topic from its start. topic "" is none.
func (b *runBench) fleet(t *testing.T, topic string) *harness.Pipeline {
	if topic == "" {
		topic = "nothing"
	}
	return harness.New(t, harness.Options{
		Mappings: map[string]string{"users.yaml": fmt.Sprintf(users, "shop.users")}, Record: b.record(), Settle: time.Second,
		Sources: fmt.Sprintf("  - {name: users, topics: {pattern: '%s'}, first_start: earliest}\n", strings.ReplaceAll(topic, ".", `\.`)),
	})
}

func userKeys(id int) (string, string) {
	n := strconv.Itoa(id)
	return "user:" + n, "user:by-email:somebody." + n + "@example.test"
}

// produceUsers writes n updates of n users as Debezium does, of an hour ago.
func produceUsers(t *testing.T, topic string, n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(1<<15))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	at := time.Now().Add(-ageOfBacklog)
	failed := make(chan error, 1)
	for id := range n {
		cl.Produce(t.Context(), &kgo.Record{Key: fmt.Appendf(nil, `{"id":%d}`, id), Value: userChange(id, at), Timestamp: at}, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	}
	if err := cl.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		t.Fatalf("producing a backlog: %v", err)
	default:
	}
}

// userChange is an update as Debezium 3.6 writes it for MySQL, in JSON without schema.
func userChange(id int, at time.Time) []byte {
	row := func(version int) string {
		return fmt.Sprintf(`{"id":%d,"email":"Somebody.%d@example.test","name":"Some Body, of Somewhere","version":%d,"updated_at":"2026-11-30T01:02:03.123456Z"}`, id, id, version)
	}
	return fmt.Appendf(nil, `{"before":%s,"after":%s,"source":{"version":"3.6.1.Final","connector":"mysql","name":"users","ts_ms":%d,"snapshot":"false","db":"shop","sequence":null,`+
		`"ts_us":%d,"ts_ns":%d,"table":"users","server_id":1,"gtid":"d676ee47-ecaa-11f1-8fa5-02fc00000001:%d","file":"binlog.000006","pos":%d,"row":0,"thread":15,"query":null},`+
		`"transaction":null,"op":"u","ts_ms":%d,"ts_us":%d,"ts_ns":%d}`,
		row(1), row(2), at.UnixMilli(), at.UnixMicro(), at.UnixNano(), id+1, 3060+id, at.UnixMilli(), at.UnixMicro(), at.UnixNano())
}

// backlogs are deletes a second of a backlog that nobody works on yet: of one worker, two and four, of the plain loop, and what the
// consumer library and the wire allow.
func (b *runBench) backlogs(t *testing.T) {
	raw := b.raw(t)
	report(t, plain("run.raw_deletes_per_s", raw, "deletes/s"))
	loop := b.plainLoop(t, emptied)
	report(t, plain("run.plain_deletes_per_s", loop, "deletes/s"))
	ours := b.drain(t, 1, emptied)
	report(t, plain("run.deletes_per_s", ours, "deletes/s"))
	report(t, atLeast("run.vs_raw", ours/raw, "x", 0.5))
	report(t, atLeast("run.vs_plain", ours/loop, "x", 20))

	loop = b.plainLoop(t, filled)
	report(t, plain("run.present.plain_deletes_per_s", loop, "deletes/s"))
	ours = b.drain(t, 1, filled)
	report(t, plain("run.present.deletes_per_s", ours, "deletes/s"))
	report(t, atLeast("run.present.vs_plain", ours/loop, "x", 20))
	for _, workers := range []int{2, 4} {
		report(t, plain(fmt.Sprintf("run.deletes_per_s.%d_workers", workers), b.drain(t, workers, emptied), "deletes/s"))
	}
}

// drain lets a fleet of its own work the backlog off, and says how many copies it deleted a second, from the first to the last.
func (b *runBench) drain(t *testing.T, workers int, keys string) float64 {
	t.Helper()
	b.prepare(t, keys, b.n)
	p := b.fleet(t, b.topic)
	done := meter(t, b.nodes, b.n*copiesEach)
	ps := make([]*harness.Process, workers)
	for i := range ps {
		ps[i] = p.Work()
	}
	rate := done()
	p.AwaitDone(b.topic)
	for _, w := range ps {
		w.Terminate()
	}
	return rate
}

// prepare empties the nodes, or puts every copy of the first n changes there.
func (b *runBench) prepare(t *testing.T, keys string, n int) {
	t.Helper()
	for _, node := range b.nodes {
		if err := node.FlushAll(); err != nil {
			t.Fatal(err)
		}
	}
	if keys == filled {
		for i, ks := range b.copies(n) {
			if err := b.nodes[i].SetAll(ks, strings.Repeat("v", 30)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// copies are the keys of the first n changes, by node.
func (b *runBench) copies(n int) [][]string {
	out := make([][]string, len(b.nodes))
	for id := range n {
		one, other := userKeys(id)
		for _, k := range []string{one, other} {
			i := 2 * b.ring.Owner(sink.Hash(k))
			out[i], out[i+1] = append(out[i], k), append(out[i+1], k)
		}
	}
	return out
}

// meter counts what the nodes delete from now on, by their own counters. done waits until it is n, and says how many those were a second
// from the first that was seen.
func meter(t *testing.T, nodes []*harness.Node, n int) (done func() float64) {
	t.Helper()
	count := func() (sum int64) {
		for _, node := range nodes {
			d, err := node.Deletes()
			if err != nil {
				t.Fatal(err)
			}
			sum += d
		}
		return sum
	}
	before := count()
	return func() float64 {
		t.Helper()
		var first, last int64
		var begin, end time.Time
		deadline := time.Now().Add(20 * time.Minute) // the plain loop on a small machine
		for tick := time.NewTicker(5 * time.Millisecond); ; {
			last, end = count()-before, time.Now()
			if first == 0 && last > 0 {
				first, begin = last, end
			}
			if last >= int64(n) {
				tick.Stop()
				break
			}
			if end.After(deadline) {
				t.Fatalf("%d of %d deletes", last, n)
			}
			select {
			case <-tick.C:
			case <-t.Context().Done():
				t.Fatalf("%d of %d deletes", last, n)
			}
		}
		if last == first {
			t.Fatalf("%d deletes came at once: too few to measure", n)
		}
		return float64(last-first) / end.Sub(begin).Seconds()
	}
}

// background runs f until stop is called, which waits for its end.
func background(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	return func() {
		cancel()
		<-ended
	}
}
