package app

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/sink"
	"invalidator/sink/memcache"
	"invalidator/sink/registry"
)

// retain tells the client of each view until ctx ends, so that nodes which no ring record names any more are let go.
func retain(ctx context.Context, c *memcache.Client, views registry.Watcher) {
	select {
	case <-ctx.Done():
		return
	case <-views.Ready():
	}
	for ctx.Err() == nil {
		changed := views.Changed()
		c.Retain(views.View().Topology.Names)
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

// nodeCollector gives the nodes' state to Prometheus. Its labels are the addresses of the ring record, and the lanes.
type nodeCollector struct{ client *memcache.Client }

var (
	nodeLabel      = []string{"node"}
	nodeOnDesc     = prometheus.NewDesc("invalidator_node_on", "1 while the node is on the live path, 0 while it is off and what is not deleted there is owed.", nodeLabel, nil)
	nodeQueuedDesc = prometheus.NewDesc("invalidator_node_queued_bytes", "What of a lane waits for the node's answer.", []string{"node", "lane"}, nil)
	nodeOldestDesc = prometheus.NewDesc("invalidator_node_oldest_seconds", "Age of the oldest delete that the node has not answered; 0 when there is none.", nodeLabel, nil)
	nodeAckedDesc  = prometheus.NewDesc("invalidator_node_deletes_total", "Deletes and stale marks that the node answered.", nodeLabel, nil)
	nodeAgainDesc  = prometheus.NewDesc("invalidator_node_retries_total", "Deletes and stale marks that were sent to the node again.", nodeLabel, nil)
)

func (c nodeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{nodeOnDesc, nodeQueuedDesc, nodeOldestDesc, nodeAckedDesc, nodeAgainDesc} {
		ch <- d
	}
}

func (c nodeCollector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	for _, n := range c.client.Nodes() {
		on, oldest := 0.0, 0.0
		if n.On {
			on = 1
		}
		if !n.OldestSince.IsZero() {
			oldest = now.Sub(n.OldestSince).Seconds()
		}
		ch <- prometheus.MustNewConstMetric(nodeOnDesc, prometheus.GaugeValue, on, n.Node)
		ch <- prometheus.MustNewConstMetric(nodeOldestDesc, prometheus.GaugeValue, oldest, n.Node)
		ch <- prometheus.MustNewConstMetric(nodeAckedDesc, prometheus.CounterValue, float64(n.Acked), n.Node)
		ch <- prometheus.MustNewConstMetric(nodeAgainDesc, prometheus.CounterValue, float64(n.Retried), n.Node)
		for l, bytes := range n.LaneBytes {
			ch <- prometheus.MustNewConstMetric(nodeQueuedDesc, prometheus.GaugeValue, float64(bytes), n.Node, sink.Lane(l).String())
		}
	}
}
