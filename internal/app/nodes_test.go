package app

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/sink"
	"invalidator/sink/memcache"
	"invalidator/sink/memcachetest"
	"invalidator/sink/registry"
	"invalidator/sink/registry/registrytest"
)

type told chan error

func (w told) Acked(_ sink.Copy, err error) { w <- err }

func TestNodeMetrics(t *testing.T) {
	node := memcachetest.Start(t)
	client := memcache.New(memcache.Options{}, quiet)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(nodeCollector{client})
	w := make(told, 1)
	if err := client.Delete(t.Context(), sink.Backlog, sink.Copy{Node: node.Addr(), Key: "k"}, w); err != nil {
		t.Fatal(err)
	}
	before := gathered(t, registry)
	backlog := fmt.Sprintf("invalidator_node_queued_bytes backlog %s", node.Addr())
	if before[backlog] == 0 || before[backlog] != float64(client.Nodes()[0].QueuedBytes) || before["invalidator_node_oldest_seconds "+node.Addr()] <= 0 {
		t.Errorf("before: %v", before)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- client.Run(ctx) }()
	if err := <-w; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	after := gathered(t, registry)
	for name, want := range map[string]float64{
		"invalidator_node_on": 1, "invalidator_node_deletes_total": 1, "invalidator_node_retries_total": 0, "invalidator_node_oldest_seconds": 0,
		"invalidator_node_queued_bytes live": 0, "invalidator_node_queued_bytes backlog": 0, "invalidator_node_queued_bytes flush": 0,
	} {
		if got, there := after[name+" "+node.Addr()]; !there || got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if len(after) != 4+sink.Lanes {
		t.Errorf("%d series: %v", len(after), after)
	}
}

// gathered is each series by its name and the values of its labels.
func gathered(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

// A node that is in no view any more is let go, and one that is named again is spoken to.
func TestNodesThatNoViewNamesAreLetGo(t *testing.T) {
	node, other := memcachetest.Start(t), memcachetest.Start(t)
	client := memcache.New(memcache.Options{}, quiet)
	views := &turningViews{ready: make(chan struct{})}
	for _, run := range []func(context.Context){
		func(ctx context.Context) {
			if err := client.Run(ctx); err != nil {
				t.Error(err)
			}
		},
		func(ctx context.Context) { retain(ctx, client, views) },
	} {
		t.Cleanup(inBackground(context.Background(), run))
	}
	views.turn(t, node.Addr())
	close(views.ready)
	deleted(t, client, node.Addr())
	views.turn(t, other.Addr())
	awaitNodes(t, client, 0)
	views.turn(t, node.Addr())
	awaitNodes(t, client, 1)
	deleted(t, client, node.Addr())
}

func deleted(t *testing.T, c *memcache.Client, node string) {
	t.Helper()
	w := make(told, 1)
	if err := c.Delete(t.Context(), sink.Live, sink.Copy{Node: node, Key: "k"}, w); err != nil {
		t.Fatal(err)
	}
	if err := <-w; err != nil {
		t.Fatal(err)
	}
}

func awaitNodes(t *testing.T, c *memcache.Client, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(c.Nodes()) != n; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("the client knows %+v, want %d nodes", c.Nodes(), n)
		}
	}
}

// turningViews are of one node at a time.
type turningViews struct {
	registry.Watcher
	registrytest.Views
	ready chan struct{}
}

func (v *turningViews) Ready() <-chan struct{}   { return v.ready }
func (v *turningViews) View() *registry.View     { return v.Views.View() }
func (v *turningViews) Changed() <-chan struct{} { return v.Views.Changed() }

func (v *turningViews) turn(t *testing.T, node string) {
	t.Helper()
	topology, err := sink.NewTopology(&sink.Record{Epoch: 1, Kind: sink.KindPoints160, Shards: []sink.Shard{{ID: "s", Weight: 1, Primary: sink.Node{Addr: node}}}})
	if err != nil {
		t.Fatal(err)
	}
	v.Store(&registry.View{Topology: topology})
}
