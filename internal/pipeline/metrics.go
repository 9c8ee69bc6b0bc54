package pipeline

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are a worker's counters. Every label is of a closed set: words of ours, or names of sources, pools and mappings as the
// configuration and the files have them.
type metrics struct {
	changes, keys, copies, refreshes, gaps      prometheus.Counter
	late, undecodable, wentBack, unclaimed      prometheus.Counter
	ignored, skipped, undecided, shadow, parked *prometheus.CounterVec
	truncates, deferred                         *prometheus.CounterVec
	again                                       *prometheus.CounterVec
	freshness                                   *prometheus.HistogramVec
	partitions, blind, hotKeys                  prometheus.Gauge
	waiting, passes, storms                     *prometheus.GaugeVec
}

// newMetrics registers them; its error is a registry that has them already.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "invalidator", Subsystem: "worker", Name: name, Help: help})
	}
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "invalidator", Subsystem: "worker", Name: name, Help: help}, labels)
	}
	m := &metrics{
		changes:     counter("changes_total", "Row changes that a mapping wants."),
		keys:        counter("keys_total", "Keys derived from row changes."),
		copies:      counter("copies_total", "Deletes and stale marks of copies handed to nodes, all rounds."),
		refreshes:   counter("refresh_requests_total", "Requests to rebuild a key's value that were written."),
		gaps:        counter("gaps_total", "Ranges of the log that were lost before they were read."),
		late:        counter("late_rounds_total", "Second rounds that were left out: the first came long after the change, and nobody carried values."),
		undecodable: counter("pass_undecodable_total", "Records that a pass over the log could not decode; each was parked when it was met first."),
		wentBack:    counter("registry_went_back_total", "Partitions that went on with an older ring record or hot keys than their last owner had, since the registry holds no newer ones."),
		unclaimed:   counter("unclaimed_keys_total", "Keys that were sent and whose pool no mapping file in force claims. They were deleted all the same."),
		ignored:     vec("ignored_total", "Records that are no row change, or of no mapped table.", "kind"),
		skipped:     vec("skipped_total", "Templates that gave no key for an image of a row.", "pool", "reason"),
		undecided:   vec("undecided_total", "Conditions that could not be decided for a change, and so counted as true.", "pool", "mapping"),
		shadow:      vec("shadow_keys_total", "Keys of templates in shadow: nothing was done with them.", "pool", "mapping"),
		parked:      vec("parked_total", "Records put on the dead-letter topic.", "kind"),
		truncates:   vec("truncates_total", "Pools of emptied tables, by what was done: flush, for which a request was written, or ignore.", "pool", "done"),
		deferred:    vec("deferred_keys_total", "Keys that were not deleted as they came, by what owes them: storm, or pool, where it is paused.", "pool", "kind"),
		again: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "invalidator", Subsystem: "replay", Name: "keys_total",
			Help: "Keys that were deleted again: epoch, after a change of the ring, or replay, by hand."}, []string{"kind"}),
		storms: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "invalidator", Subsystem: "worker", Name: "storms",
			Help: "Partitions in which a pool has a storm that is not yet deleted."}, []string{"pool"}),
		freshness: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "invalidator", Name: "freshness_seconds",
			Help:    "From a change's commit until the last copy of its keys had acknowledged the first delete, or had been paid what it was owed.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
		}, []string{"source", "pool"}),
		partitions: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "invalidator", Subsystem: "worker", Name: "partitions", Help: "Partitions that this worker owns."}),
		blind: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "invalidator", Subsystem: "worker", Name: "partitions_blind",
			Help: "Partitions that take no records: the ring record and the hot keys that their last owner had are not in sight."}),
		hotKeys: prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "invalidator", Subsystem: "worker", Name: "hot_keys",
			Help: "Hot keys of the registry that came or changed, and whose copies are being deleted for that."}),
		waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "invalidator", Subsystem: "worker", Name: "partitions_waiting",
			Help: "Partitions that take no records: the schema registry of their source does not give the schema that the next one needs."}, []string{"source"}),
	}
	m.passes = prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "invalidator", Subsystem: "worker", Name: "passes",
		Help: "Passes over the log that pay what is owed, by what they pay."}, []string{"pays"})
	for k := range passKinds {
		m.passes.WithLabelValues(passKind(k).String())
	}
	for _, kind := range []string{KindEpoch, KindReplay} {
		m.again.WithLabelValues(kind)
	}
	for _, kind := range []string{"undecodable", "bad_key", "pool", "absent", "refused"} {
		m.parked.WithLabelValues(kind) // 0, not missing: the first that is parked is a rise
	}
	if r == nil {
		return m, nil
	}
	var taken error
	for _, c := range []prometheus.Collector{m.changes, m.keys, m.copies, m.refreshes, m.gaps, m.late, m.undecodable, m.passes, m.ignored, m.skipped, m.undecided, m.shadow,
		m.parked, m.truncates, m.deferred, m.again, m.storms, m.freshness, m.partitions, m.waiting, m.blind, m.hotKeys, m.wentBack, m.unclaimed} {
		taken = errors.Join(taken, r.Register(c))
	}
	return m, taken
}
