package app

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/sink"
	"invalidator/sink/memcache"
	"invalidator/sink/memcachetest"
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
