package control

import (
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/obs/obstest"
	"invalidator/internal/pipeline"
	"invalidator/replay"
)

const users = "shop.shop.users"

var (
	first  = changelog.Partition{Topic: users, Number: 0}
	second = changelog.Partition{Topic: users, Number: 1}
)

// rig is a fleet's topics, and a change topic of two partitions. The first holds three records, the second none.
type rig struct {
	t       *testing.T
	cluster *changelogtest.Cluster
	adm     *kadm.Client
	store   *changelog.StateStore
	out     *changelog.Writer
	cl      *kgo.Client
	log     obstest.Log
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, cluster: changelogtest.Start(t)}
	r.adm = r.cluster.Admin(t)
	var err error
	if r.store, err = changelog.OpenState(r.cluster.Options, r.cluster.Names.State); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.store.Close)
	r.openWriter()
	if r.cl, err = r.cluster.Options.Client(kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cl.Close)
	r.makeUsers()
	r.change(0, 0, 0)
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) makeUsers() {
	r.t.Helper()
	_, err := changelog.EnsureTopics(context.Background(), r.adm, []changelog.TopicSpec{changelog.Settings{Partitions: 2}.Change(users)})
	r.must(err)
}

// openWriter makes one that knows nothing of topics that are no more.
func (r *rig) openWriter() {
	r.t.Helper()
	var err error
	r.out, err = changelog.OpenWriter(r.cluster.Options)
	r.must(err)
	r.t.Cleanup(r.out.Close)
}

// makeControl makes the control topic again.
func (r *rig) makeControl() {
	r.t.Helper()
	_, err := changelog.EnsureTopics(context.Background(), r.adm, changelog.Settings{}.Own())
	r.must(err)
	r.openWriter()
}

// change appends a record to each of these partitions of users.
func (r *rig) change(partitions ...int32) {
	r.t.Helper()
	for _, p := range partitions {
		r.must(r.cl.ProduceSync(context.Background(), &kgo.Record{Topic: users, Partition: p, Value: []byte("a change")}).FirstErr())
	}
}

// loses has the log of a partition begin at an offset.
func (r *rig) loses(topic string, partition int32, below int64) {
	r.t.Helper()
	_, err := r.adm.DeleteRecords(context.Background(), kadm.Offsets{topic: {partition: {Topic: topic, Partition: partition, At: below}}})
	r.must(err)
}

func (r *rig) delete(topic string) {
	r.t.Helper()
	_, err := r.adm.DeleteTopics(context.Background(), topic)
	r.must(err)
}

// set changes a topic's setting.
func (r *rig) set(topic, key, value string) {
	r.t.Helper()
	_, err := r.adm.AlterTopicConfigs(context.Background(), []kadm.AlterConfig{{Op: kadm.SetConfig, Name: key, Value: &value}}, topic)
	r.must(err)
}

// say writes to the control or the status topic.
func (r *rig) say(topic, key string, record replay.Record) {
	r.t.Helper()
	value, err := replay.Encode(record)
	r.must(err)
	r.raw(topic, key, string(value))
}

func (r *rig) raw(topic, key, value string) {
	r.t.Helper()
	r.must(r.out.Write(context.Background(), topic, key, []byte(value)))
}

// ask asks for a replay of pool user of what was issued in the last minute, or for what change makes of it.
func (r *rig) ask(id string, change ...func(*replay.Request)) {
	r.t.Helper()
	q := replay.Request{ID: id, At: time.Now(), By: "ann", Action: replay.Replay, Target: replay.Target{Pool: "user"}, Window: replay.Issued, From: time.Now().Add(-time.Minute)}
	for _, c := range change {
		c(&q)
	}
	r.say(r.cluster.Names.Control, id, q)
}

func (r *rig) cancel(id string) {
	r.t.Helper()
	r.say(r.cluster.Names.Control, "cancel-"+id, replay.Request{ID: "cancel-" + id, By: "bob", Reason: "a slip", Action: replay.Cancel, Of: id})
}

// acted writes the state of a partition's owner: how far it has acted on the control topic, and what it still owes of it.
func (r *rig) acted(p changelog.Partition, generation int, mark pipeline.ControlMark, owes ...string) {
	r.t.Helper()
	s := pipeline.State{V: 3, Acted: pipeline.Acted{Control: mark}}
	for _, id := range owes {
		to := int64(3)
		s.Debts = append(s.Debts, pipeline.Debt{Kind: pipeline.KindReplay, Name: id, To: &to, Order: &pipeline.Order{ID: id}})
	}
	value, err := json.Marshal(s)
	r.must(err)
	key := changelog.StateKey("partition", "g", p.Topic, strconv.Itoa(int(p.Number)), strconv.Itoa(generation), "x")
	r.must(r.store.Put(context.Background(), key, value))
}

// worker is a process with a follower and a clerk.
type worker struct {
	*rig
	state    *State
	clerk    *Clerk
	registry *prometheus.Registry
	stop     func()
}

var known = Known{
	Shards: map[string][]string{"s00": {"a:1", "b:1"}, "s01": {"c:1"}}, Nodes: []string{"a:1", "b:1", "c:1"},
	Pools: []string{"feed", "user"}, Mappings: map[string][]string{"profiles/user": {"user"}},
}

// worker runs one that does not hold the office.
func (r *rig) worker(name string) *worker {
	r.t.Helper()
	w := &worker{rig: r, state: NewState(), registry: prometheus.NewPedanticRegistry()}
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	f, err := NewFollower(FollowerOptions{Kafka: r.cluster.Options, Topic: r.cluster.Names.Control, State: w.state, Log: log, Registerer: w.registry})
	r.must(err)
	own, err := changelog.OpenWriter(r.cluster.Options)
	r.must(err)
	w.clerk = NewClerk(ClerkOptions{
		Group: "g", Worker: name, Kafka: r.cluster.Options, Names: r.cluster.Names, State: w.state, Store: r.store, Say: own.Write, Log: log,
		Match: func(topic string) bool { return topic == users }, Known: func() Known { return known },
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{f.Run, w.clerk.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				r.t.Error(err)
			}
		})
	}
	w.stop = func() { cancel(); running.Wait(); own.Close() }
	r.t.Cleanup(w.stop)
	return w
}

// office gives or takes the office.
func (w *worker) office(holds bool) {
	if holds {
		w.clerk.Claim([]int32{changelog.WorkPartition(Office)})
	} else {
		w.clerk.Claim(nil)
	}
}

// looks is time for what was written to be seen, and answered, and that to be seen.
func looks(n int) {
	time.Sleep(time.Duration(n) * every)
	synctest.Wait()
}

// plans are the plans on the control topic.
func (r *rig) plans() (all []replay.Plan) {
	r.t.Helper()
	for _, rec := range r.cluster.Records(r.t, r.cluster.Names.Control) {
		if d, err := replay.DecodeControl(rec.Value); err == nil {
			if p, is := d.(replay.Plan); is {
				all = append(all, p)
			}
		}
	}
	return all
}

// results are the results on the status topic.
func (r *rig) results() (all []replay.Result) {
	r.t.Helper()
	for _, rec := range r.cluster.Records(r.t, r.cluster.Names.Status) {
		if d, err := replay.DecodeStatus(rec.Value); err == nil {
			if p, is := d.(replay.Result); is {
				all = append(all, p)
			}
		}
	}
	return all
}

// onlyResult is the one result on the status topic.
func (r *rig) onlyResult() replay.Result {
	r.t.Helper()
	all := r.results()
	if len(all) != 1 {
		r.t.Fatalf("results: %+v", all)
	}
	return all[0]
}
