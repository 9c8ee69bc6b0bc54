package pipeline

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/mapping"
)

// age is when a change was committed, in microseconds of Unix time, or, where its source does not say that, when its record was written to the log; 0: neither is known.
type age int64

func ageOf(row *cdc.RowChange, r *changelog.Record) (at age, timed bool) {
	if !row.CommitTime.IsZero() {
		return age(row.CommitTime.UnixMicro()), true
	}
	return writtenAge(r), false
}

func writtenAge(r *changelog.Record) age {
	if r.Time.IsZero() {
		return 0
	}
	return age(r.Time.UnixMicro())
}

// until is how long after at a moment is; never less than 0, since clocks differ.
func (at age) until(now time.Time) time.Duration {
	return max(0, time.Duration(now.UnixMicro()-int64(at))*time.Microsecond)
}

// freshenedBy notes that the first round of a change has been acknowledged at a moment by every copy, but for those that are owed. What is owed is observed when a
// pass has paid it.
func (t *track) freshenedBy(c *change, at time.Time) {
	c.fresh = true
	if !t.observes || !c.timed || c.missed.Load() {
		return
	}
	took := c.age.until(at).Seconds()
	for i := range c.keys {
		pool := c.keys[i].Template.Pool
		if i > 0 && slices.ContainsFunc(c.keys[:i], func(k mapping.Key) bool { return k.Template.Pool == pool }) {
			continue
		}
		if t.pool != pool || t.observer == nil {
			t.pool, t.observer = pool, t.p.w.metrics.freshness.WithLabelValues(t.p.source.Name, pool)
		}
		t.observer.Observe(took)
	}
}

// behind is how far a partition's live path is; its goroutine moves it, whoever scrapes metrics reads it.
type behind struct {
	oldest atomic.Int64 // the age of the oldest change whose first round is not acknowledged; 0: there is none
	taking atomic.Int64 // of the record that is being taken
}

// lag is how long ago the oldest change was committed that is not deleted everywhere, but for what is owed: of those that were taken, and those that
// were fetched and wait.
func (p *partition) lag(now time.Time) time.Duration {
	for _, at := range []age{age(p.behind.oldest.Load()), age(p.behind.taking.Load()), p.waitingSince()} { // in the order of offsets
		if at != 0 {
			return at.until(now)
		}
	}
	return 0
}

// waitingSince is the age of the first record that was fetched and not taken.
func (p *partition) waitingSince() age {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.mu.pending) == 0 {
		return 0
	}
	return writtenAge(&p.mu.pending[0])
}

// lagCollector gives the lags, as they are when they are asked for: they rise while something is stuck, also where nothing comes any more.
type lagCollector struct {
	w                       *Worker
	source, partition, node *prometheus.Desc
}

func newLagCollector(w *Worker) *lagCollector {
	name := func(n string) string { return prometheus.BuildFQName("invalidator", "", n) }
	return &lagCollector{w,
		prometheus.NewDesc(name("lag_seconds"), "How long ago the oldest change was committed that is not deleted everywhere, of a source's partitions that this worker owns; what nodes, pools and storms owe is apart. Take the maximum of all workers.", []string{"source"}, nil),
		prometheus.NewDesc(name("partition_lag_seconds"), "The same of one partition.", []string{"topic", "partition"}, nil),
		prometheus.NewDesc(name("node_lag_seconds"), "How long ago the oldest record was written whose deletes this worker owes a node; 0 where it owes none.", []string{"node"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *lagCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.source
	ch <- c.partition
	ch <- c.node
}

// Collect implements prometheus.Collector. Of a source of which the worker owns nothing it says nothing: it knows nothing of it.
func (c *lagCollector) Collect(ch chan<- prometheus.Metric) {
	now := time.Now()
	gauge := func(d *prometheus.Desc, lag time.Duration, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, lag.Seconds(), labels...)
	}
	sources := map[string]time.Duration{}
	for _, p := range c.w.all() {
		lag := p.lag(now)
		gauge(c.partition, lag, p.id.Topic, strconv.Itoa(int(p.id.Number)))
		sources[p.source.Name] = max(sources[p.source.Name], lag)
	}
	for name, lag := range sources {
		gauge(c.source, lag, name)
	}
	nodes := map[string]time.Duration{}
	for _, node := range c.w.opts.Snapshots.Current().View.Topology.Nodes() {
		nodes[node] = 0
	}
	for _, o := range c.w.Owed() {
		if o.Kind == KindNode {
			nodes[o.Name] = max(nodes[o.Name], now.Sub(o.Oldest))
		}
	}
	for node, lag := range nodes {
		gauge(c.node, lag, node)
	}
}
