package app

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/config"
	"invalidator/internal/owed"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// traceNodes are nodes that acknowledge at once, or are off.
type traceNodes struct {
	mu      sync.Mutex
	off     map[string]bool
	waiting map[string][]sink.Waiter // probes of nodes that are off
}

func (n *traceNodes) Delete(_ context.Context, _ sink.Lane, c sink.Copy, w sink.Waiter) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.off[c.Node] {
		return &sink.OffError{Node: c.Node, Why: "the test says so"}
	}
	go w.Acked(c, nil)
	return nil
}

func (n *traceNodes) MarkStale(ctx context.Context, l sink.Lane, c sink.Copy, _ time.Duration, w sink.Waiter) error {
	return n.Delete(ctx, l, c, w)
}

func (n *traceNodes) Probe(node string, w sink.Waiter) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.off[node] {
		n.waiting[node] = append(n.waiting[node], w)
		return
	}
	go w.Acked(sink.Copy{Node: node}, nil)
}

func (n *traceNodes) turn(w *pipeline.Worker, node string, on bool) {
	n.mu.Lock()
	n.off[node] = !on
	waiting := n.waiting[node]
	delete(n.waiting, node)
	n.mu.Unlock()
	w.NodeTurned(node, on)
	if on {
		for _, p := range waiting {
			p.Acked(sink.Copy{Node: node}, nil)
		}
	}
}

// stillView is a ring that stays as it is.
type stillView struct{ v *registry.View }

func (s stillView) View() *registry.View     { return s.v }
func (s stillView) Changed() <-chan struct{} { return nil }

// traceFleet is a worker on a fake Kafka, with the trace's own clock.
type traceFleet struct {
	t       *testing.T
	cluster *changelogtest.Cluster
	conf    *config.Config
	nodes   *traceNodes
	worker  *pipeline.Worker
	cl      *kgo.Client
	stop    func()
}

const tracedTopic = "shop.shop.users"

func startTraceFleet(t *testing.T) *traceFleet {
	t.Helper()
	f := &traceFleet{t: t, cluster: changelogtest.Start(t), nodes: &traceNodes{off: map[string]bool{}, waiting: map[string][]sink.Waiter{}}}
	f.conf = parse(t, t.TempDir(), "kafka: {brokers: ['virtual:1'], group: fleet}\nsources: [{name: shop, type: mysql, hosts: ['m:1'], user: x, include: ['shop.*']}]\n")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.cluster.Admin(t).CreateTopics(t.Context(), 1, 1, nil, tracedTopic)
	must(err)
	f.cl, err = f.cluster.Options.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	must(err)
	t.Cleanup(f.cl.Close)
	state, err := changelog.OpenState(f.cluster.Options, f.cluster.Names.State)
	must(err)
	t.Cleanup(state.Close)

	file, problems := mapping.Parse("users.yaml", []byte(usersMapping))
	if file == nil {
		t.Fatal(problems)
	}
	set, _ := mapping.NewSet([]*mapping.File{file})
	archive := newArchive("fleet", time.Hour, state, quiet)
	must(archive.keep(t.Context(), set, nil))
	const ring = `{"epoch":1,"shards":[{"id":"s0","primary":{"addr":"a:1"},"replicas":[{"addr":"b:1"}]}]}`
	must(state.PutRing(t.Context(), "fleet", changelog.SavedRing{Epoch: 1, Seen: time.Now(), By: "w", Record: []byte(ring)}))
	record, err := sink.ParseRecord("ring", []byte(ring))
	must(err)
	topology, err := sink.NewTopology(record)
	must(err)
	view := &registry.View{Topology: topology, Hot: sink.NewHotKeys(0, nil), Confirmed: time.Now(), Sights: []registry.Sight{{Record: record, Seen: time.Now()}}}

	out, err := changelog.OpenWriter(f.cluster.Options)
	must(err)
	t.Cleanup(out.Close)
	sums := owed.NewPublisher(owed.Options{
		Group: "fleet", Worker: "w", State: state, Log: quiet, Nodes: topology.Nodes,
		Say: func(ctx context.Context, node string, record []byte) error {
			return out.Write(ctx, f.cluster.Names.Status, node, record)
		},
	})
	past, err := changelog.OpenLog(f.cluster.Options)
	must(err)
	t.Cleanup(past.Close)
	none := newDryCount("fleet", func() string { return "" })
	f.worker, err = pipeline.New(pipeline.Options{
		Sources:   []*pipeline.Source{{Name: "shop", Pattern: regexp.MustCompile(`^shop\..*$`), Decode: envelope.Config{Source: "shop"}}},
		Snapshots: pipeline.NewSnapshots(stillView{view}, set), Deleter: f.nodes, Parker: none, Refresher: none, Flusher: none, Gaps: none,
		Past: past, Archive: issuedMappings{archive}, Settle: time.Second, MaxTTL: time.Hour, Log: quiet,
	})
	must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { sums.Run(ctx) })
	running.Go(func() {
		if err := f.worker.Run(ctx, changelog.NewGroup(changelog.GroupOptions{
			Options: f.cluster.Options, Group: "fleet", Starts: []changelog.Start{{Pattern: regexp.MustCompile(`shop\..*`), At: "earliest"}},
			State: state, Names: f.cluster.Names, Readable: pipeline.Readable, Work: sums.Claim,
		})); err != nil {
			t.Error(err)
		}
	})
	f.stop = func() { cancel(); running.Wait() }
	return f
}

// change updates a user and returns when that was.
func (f *traceFleet) change(id int) time.Time {
	f.t.Helper()
	now := time.Now()
	value := fmt.Sprintf(`{"before":{"id":%d},"after":{"id":%d},"op":"u","source":{"connector":"mysql","name":"shop","db":"shop","table":"users","ts_ms":%d}}`, id, id, now.UnixMilli())
	if err := f.cl.ProduceSync(f.t.Context(), &kgo.Record{Topic: tracedTopic, Value: []byte(value)}).FirstErr(); err != nil {
		f.t.Fatal(err)
	}
	return now
}

func (f *traceFleet) trace(key string, since time.Time) *Trace {
	f.t.Helper()
	tr, err := newTracer(f.conf, f.cluster.Options, TraceQuery{Key: key, Since: since}, time.Now()).run(f.t.Context())
	if err != nil {
		f.t.Fatal(err)
	}
	return tr
}

// want wants one change in this state, and a verdict with these parts.
func (f *traceFleet) want(tr *Trace, state TraceState, parts ...string) *TraceChange {
	f.t.Helper()
	if len(tr.Changes) != 1 || tr.Changes[0].State != state {
		f.t.Fatalf("%q: %d changes, want one that is %s", tr.Verdict, len(tr.Changes), state)
	}
	for _, part := range append(parts, string(state)) {
		if text := tr.Verdict.Word + ": " + tr.Verdict.Text; !strings.Contains(text, part) {
			f.t.Errorf("the verdict is %q, want %q in it", text, part)
		}
	}
	if c := tr.Changes[0]; c.Topic != tracedTopic || c.Op != "u" || len(c.By) != 1 || c.By[0].Template != "user:{id}" || !c.By[0].Today {
		f.t.Errorf("the change is %+v", c)
	}
	return tr.Changes[0]
}

// What a worker did, as it left it on the topics: a change that reaches every copy at once; one that a node misses, is owed, and is paid when the node is
// back; and what is left of both when the journal has folded its seconds into minutes.
func TestTraceOfWhatAWorkerDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startTraceFleet(t)
		defer f.stop()
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		pass(20 * time.Second)
		began := time.Now()

		committed := f.change(1)
		pass(5 * time.Second)
		c := f.want(f.trace("user:1", began), TraceDeleted, "every copy is deleted, of 1 change")
		first := c.first()
		if first == nil || first.Lane != "live" || first.From.After(committed.Add(time.Second)) || first.To.Before(committed) || first.To.Sub(first.From) != time.Second || !c.Finished {
			t.Errorf("committed at %s, issued %+v", committed, c.Issued)
		}
		if c.Committed.Sub(committed).Abs() > time.Millisecond {
			t.Errorf("committed at %s, want %s", c.Committed, committed)
		}

		pass(time.Minute) // replay.window is over: what was issued in it would be owed too
		f.nodes.turn(f.worker, "a:1", false)
		missed := f.change(2)
		pass(30 * time.Second)
		c = f.want(f.trace("user:2", missed), TraceOwes, "node a:1 is off")
		if len(c.Owed) != 1 || c.Owed[0].Name != "a:1" || !c.Owed[0].Open || !c.Finished {
			t.Errorf("owed is %+v", c.Owed)
		}
		f.want(f.trace("user:1", began), TraceDeleted) // which it has had

		f.nodes.turn(f.worker, "a:1", true)
		pass(30 * time.Second)
		tr := f.trace("user:2", missed)
		c = f.want(tr, TraceLater, "on node a:1, which was off, until")
		if len(c.Late) != 1 || c.Late[0].Paid.Before(missed.Add(30*time.Second)) || c.Late[0].Paid.After(missed.Add(45*time.Second)) {
			t.Errorf("late is %+v, missed at %s", c.Late, missed)
		}
		paid := false
		for _, x := range c.Issued {
			paid = paid || x.Lane == "urgent" && x.Maybe && !x.From.Before(missed.Add(29*time.Second))
		}
		if !paid {
			t.Errorf("no pass in %+v", c.Issued)
		}
		var told []string
		for _, x := range tr.Touched {
			told = append(told, x.What)
		}
		if got := strings.Join(told, "; "); !strings.Contains(got, "a:1 is off the live path") || !strings.Contains(got, "a:1 has paid") {
			t.Errorf("what else happened is %q", got)
		}

		for range 8 { // seconds are folded when somebody writes
			pass(time.Minute)
			f.change(9)
		}
		pass(5 * time.Second)
		c = f.want(f.trace("user:1", began), TraceDeleted)
		if first := c.first(); first == nil || first.To.Sub(first.From) != time.Minute || first.From.After(committed) || first.To.Before(committed) {
			t.Errorf("committed at %s, issued %+v", committed, c.Issued)
		}
		if tr := f.trace("user:3", began); tr.Verdict.Word != traceNothing || len(tr.Copies) != 2 {
			t.Errorf("of a key that nothing changed: %+v", tr)
		}
	})
}
