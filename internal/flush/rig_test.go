package flush

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"invalidator/internal/obs/obstest"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a fleet in a bubble of its own time.
type rig struct {
	*testing.T
	nodes  *fakeNodes
	topics *fakeTopics
	o      Options
	view   *registry.View
	viewMu sync.Mutex
	begun  time.Time
	asked  atomic.Int64 // times that the owner was asked for
	lost   atomic.Bool  // and is another one

	conductor *Conductor
	stop      func()
	log       obstest.Log
}

// shard is one of a ring: "s0 a b" has primary a and replica b.
func shard(text string) sink.Shard {
	words := strings.Fields(text)
	s := sink.Shard{ID: words[0], Weight: 1, Primary: sink.Node{Addr: words[1] + ":1"}, Replicas: []sink.Replica{}}
	for _, r := range words[2:] {
		addr, seeding := strings.CutSuffix(r, "!")
		s.Replicas = append(s.Replicas, sink.Replica{Addr: addr + ":1", Seeding: seeding})
	}
	return s
}

func ringRecord(epoch int64, shards ...string) *sink.Record {
	r := &sink.Record{Epoch: epoch, At: time.Now(), Kind: sink.KindPoints160}
	for _, s := range shards {
		r.Shards = append(r.Shards, shard(s))
	}
	return r
}

// previous has clients read another ring after a miss.
func previous(r *sink.Record, epoch int64, shards ...string) *sink.Record {
	r.Previous = &sink.Previous{Epoch: epoch}
	for _, s := range shards {
		r.Previous.Shards = append(r.Previous.Shards, shard(s))
	}
	return r
}

// viewOf is of records, the one in force last.
func viewOf(t *testing.T, records ...*sink.Record) *registry.View {
	t.Helper()
	last := records[len(records)-1]
	topology, err := sink.NewTopology(last, records[:len(records)-1]...)
	if err != nil {
		t.Fatal(err)
	}
	v := &registry.View{Topology: topology}
	for _, r := range records {
		v.Sights = append(v.Sights, registry.Sight{Record: r, Seen: time.Now()})
	}
	return v
}

// inBubble runs do with a fleet of two shards on three nodes, a to c.
func inBubble(t *testing.T, do func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, begun: time.Now()}
		r.nodes = &fakeNodes{t: t, by: map[string]*fakeNode{}, dumping: map[string]bool{}}
		r.topics = &fakeTopics{changed: make(chan struct{})}
		r.view = viewOf(t, ringRecord(1, "s0 a b", "s1 b c"))
		r.o = Options{
			Worker: "w1", Work: 7, Open: r.topics.open, Nodes: r.nodes, View: r.today, Pools: func() []string { return []string{"user", "feed"} },
			Holds: r.holding, Settle: time.Second, MaxTTL: 24 * time.Hour, Lag: time.Minute, Window: 30 * time.Second,
			Registerer: prometheus.NewRegistry(),
		}
		r.o.Log = slog.New(slog.NewTextHandler(&r.log, nil))
		defer func() {
			if r.stop != nil {
				r.stop()
			}
		}()
		do(r)
	})
}

func (r *rig) holding(context.Context) error {
	r.asked.Add(1)
	if r.lost.Load() {
		return errors.New("another member owns it")
	}
	return nil
}

func (r *rig) today() *registry.View {
	r.viewMu.Lock()
	defer r.viewMu.Unlock()
	return r.view
}

func (r *rig) see(v *registry.View) {
	r.viewMu.Lock()
	defer r.viewMu.Unlock()
	r.view = v
}

// start has a conductor own its work, until kill or the end.
func (r *rig) start() {
	r.Helper()
	r.o.Registerer = prometheus.NewRegistry()
	c, err := New(r.o)
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	c.Claim([]int32{3, 7})
	r.conductor, r.stop = c, func() { cancel(); <-done; r.stop = nil }
}

// ask writes a request, whose other fields do sets.
func (r *rig) ask(id string, t replay.Target, do ...func(q *replay.Request)) {
	q := replay.Request{ID: id, At: time.Now(), By: "ann@ops", Action: replay.Flush, Target: t}
	for _, f := range do {
		f(&q)
	}
	if _, err := replay.Encode(q); err != nil {
		r.Fatal(err)
	}
	r.topics.append(&r.topics.control, q)
}

// say writes another action about a request.
func (r *rig) say(action replay.Action, of string) {
	r.topics.append(&r.topics.control, replay.Request{ID: fmt.Sprint(action, of, time.Now().UnixNano()), By: "bob@ops", Action: action, Of: of})
}

func promoted(epoch int64) func(*replay.Request) {
	return func(q *replay.Request) { q.Cause = &replay.Cause{What: replay.Promotion, Epoch: epoch} }
}

// after waits for a moment of the story.
func (r *rig) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// await waits until a request has its result, for an hour at most.
func (r *rig) await(id string) replay.Result {
	r.Helper()
	for range 3600 {
		if res, ok := r.result(id); ok {
			return res
		}
		r.after(time.Second)
	}
	all := r.statuses()
	r.Fatalf("%s has no result after an hour; the status topic ends with %+v", id, all[max(len(all)-3, 0):])
	return replay.Result{}
}

// done is await of a result that is clean.
func (r *rig) done(id string) replay.Result {
	r.Helper()
	res := r.await(id)
	if res.Error != "" || !res.Clean {
		r.Fatalf("%s: %+v", id, res)
	}
	return res
}

func (r *rig) result(id string) (replay.Result, bool) {
	for _, s := range r.statuses() {
		if res, is := s.(replay.Result); is && res.ID == id {
			return res, true
		}
	}
	return replay.Result{}, false
}

func (r *rig) statuses() (all []replay.Record) {
	r.topics.mu.Lock()
	defer r.topics.mu.Unlock()
	for _, on := range r.topics.status {
		all = append(all, on.Record)
	}
	return all
}

// jobs are those on the control topic.
func (r *rig) jobs() (all []replay.Job) {
	r.topics.mu.Lock()
	defer r.topics.mu.Unlock()
	for _, on := range r.topics.control {
		if j, is := on.Record.(replay.Job); is {
			all = append(all, j)
		}
	}
	return all
}

// waits are the reasons that were told on the status topic.
func (r *rig) waits() (all []string) {
	for _, s := range r.statuses() {
		if p, is := s.(replay.Progress); is && p.Waits != "" {
			all = append(all, p.Node+": "+p.Waits)
		}
	}
	return all
}

// expect compares what nodes hold: {"a": "user:1=new"}; "" for nothing.
func (r *rig) expect(want map[string]string) {
	r.Helper()
	for node, keys := range want {
		if got := strings.Join(r.nodes.holds(node+":1"), " "); got != keys {
			r.Errorf("after %s node %s holds %q, want %q", time.Since(r.begun), node, got, keys)
		}
	}
}

func (r *rig) metric(name string, labels ...string) float64 {
	r.Helper()
	families, err := r.o.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		r.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "invalidator_flush_"+name && (len(labels) == 0 || m.Label[0].GetValue() == labels[0]) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	r.Fatalf("there is no metric %s %v", name, labels)
	return 0
}

var errBroker = errors.New("the broker is away")
