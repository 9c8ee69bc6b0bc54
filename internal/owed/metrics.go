package owed

import (
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of what the nodes of this process's work partitions owe in all partitions of the log: one process of a fleet shows a node. Their label is the
// node's address.
var (
	nodeLabel   = []string{"node"}
	recordsDesc = prometheus.NewDesc("invalidator_node_owed_records", "Records of the log whose deletes the node owes, in all partitions, owned or not.", nodeLabel, nil)
	oldestDesc  = prometheus.NewDesc("invalidator_node_owed_oldest_seconds", "For how long the oldest of these debts has stood.", nodeLabel, nil)
	leftDesc    = prometheus.NewDesc("invalidator_node_owed_left_seconds", "How long the rest takes at the rate at which it was paid lately; missing where that is not known.", nodeLabel, nil)
	offDesc     = prometheus.NewDesc("invalidator_node_owed_off", "1 while the node is off the live path of at least one partition: what comes is owed too.", nodeLabel, nil)
)

// Describe implements prometheus.Collector.
func (p *Publisher) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{recordsDesc, oldestDesc, leftDesc, offDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *Publisher) Collect(ch chan<- prometheus.Metric) {
	p.mu.Lock()
	shown := maps.Clone(p.mu.shown)
	p.mu.Unlock()
	for node, o := range shown {
		off := 0.0
		if o.Off {
			off = 1
		}
		ch <- prometheus.MustNewConstMetric(recordsDesc, prometheus.GaugeValue, float64(o.Records), node)
		ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, time.Since(o.Since).Seconds(), node)
		ch <- prometheus.MustNewConstMetric(offDesc, prometheus.GaugeValue, off, node)
		if o.Seconds > 0 {
			ch <- prometheus.MustNewConstMetric(leftDesc, prometheus.GaugeValue, float64(o.Seconds), node)
		}
	}
}
