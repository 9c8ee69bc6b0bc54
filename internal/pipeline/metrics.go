package pipeline

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are a worker's counters. Every label is of a closed set.
type metrics struct {
	changes, keys, copies, gaps prometheus.Counter
	ignored, skipped, parked    *prometheus.CounterVec
	lag                         prometheus.Histogram
	partitions                  prometheus.Gauge
}

// newMetrics registers them; its error is a registry that has them already.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "invalidator", Subsystem: "worker", Name: name, Help: help})
	}
	vec := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "invalidator", Subsystem: "worker", Name: name, Help: help}, []string{label})
	}
	m := &metrics{
		changes: counter("changes_total", "Row changes that a mapping wants."),
		keys:    counter("keys_total", "Keys derived from row changes."),
		copies:  counter("copies_total", "Deletes of copies handed to nodes, all rounds."),
		gaps:    counter("gaps_total", "Ranges of the log that were lost before they were read."),
		ignored: vec("ignored_total", "Records that are no row change, or of no mapped table.", "kind"),
		skipped: vec("skipped_total", "Templates that gave no key for an image of a row.", "reason"),
		parked:  vec("parked_total", "Records put on the dead-letter topic.", "kind"),
		lag: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "invalidator", Subsystem: "worker", Name: "commit_to_issue_seconds",
			Help:    "From the commit in the database until the first round is issued.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 600},
		}),
		partitions: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "invalidator", Subsystem: "worker", Name: "partitions", Help: "Partitions that this worker owns."}),
	}
	if r == nil {
		return m, nil
	}
	var taken error
	for _, c := range []prometheus.Collector{m.changes, m.keys, m.copies, m.gaps, m.ignored, m.skipped, m.parked, m.lag, m.partitions} {
		taken = errors.Join(taken, r.Register(c))
	}
	return m, taken
}
