package pipeline

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Owed is what somebody owes, of all partitions of a worker.
type Owed struct {
	Kind    string // node, template, pool, storm, epoch, replay
	Name    string
	Records int64     // of the log; an open debt grows with each that is taken
	Since   time.Time // when the oldest was opened
	Oldest  time.Time // about when the oldest record was written that they owe; no later than Since where that is not known
	Open    bool      // one of them at least is
}

// Owed lists what is owed, in no order.
func (w *Worker) Owed() []Owed {
	sums := map[debtID]*Owed{}
	for _, p := range w.all() {
		taken := p.taken.Load()
		for _, d := range p.ledger.all() {
			o := sums[d.debtID]
			at := d.at
			if at.IsZero() {
				at = d.since
			}
			if o == nil {
				o = &Owed{Kind: d.kind, Name: d.name, Since: d.since, Oldest: at}
				sums[d.debtID] = o
			}
			if at.Before(o.Oldest) {
				o.Oldest = at
			}
			if d.since.Before(o.Since) {
				o.Since = d.since
			}
			o.Open = o.Open || d.open()
			if d.spans != nil {
				o.Records += d.spans.in(d.from, d.to)
			} else {
				o.Records += max(min(d.to, taken)-d.from, 0)
			}
		}
	}
	out := make([]Owed, 0, len(sums))
	for _, o := range sums {
		out = append(out, *o)
	}
	return out
}

// owedCollector gives metrics of what is owed. Their labels are kinds and names of nodes, pools and mappings.
type owedCollector struct {
	w                    *Worker
	records, oldest, age *prometheus.Desc
}

func newOwedCollector(w *Worker) *owedCollector {
	name := func(n string) string { return prometheus.BuildFQName("invalidator", "worker", n) }
	return &owedCollector{w,
		prometheus.NewDesc(name("owed_records"), "Records of the log whose deletes a node, a template or a pool still owes, in all partitions of this worker.", []string{"kind", "name"}, nil),
		prometheus.NewDesc(name("owed_oldest_seconds"), "For how long the oldest of these debts has stood.", []string{"kind", "name"}, nil),
		prometheus.NewDesc(name("owed_record_age_seconds"), "How old the oldest record of the log is that they owe: what is older than the log reaches is a gap.", []string{"kind", "name"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *owedCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.records
	ch <- c.oldest
	ch <- c.age
}

// Collect implements prometheus.Collector.
func (c *owedCollector) Collect(ch chan<- prometheus.Metric) {
	for _, o := range c.w.Owed() {
		if (debtID{o.Kind, o.Name}).again() { // its name is no label: there is no end of them
			continue
		}
		ch <- prometheus.MustNewConstMetric(c.records, prometheus.GaugeValue, float64(o.Records), o.Kind, o.Name)
		ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, time.Since(o.Since).Seconds(), o.Kind, o.Name)
		ch <- prometheus.MustNewConstMetric(c.age, prometheus.GaugeValue, time.Since(o.Oldest).Seconds(), o.Kind, o.Name)
	}
}
