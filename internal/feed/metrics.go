package feed

import (
	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc"
)

// Metrics are the feeders' figures. Their labels are the source's name, and the severity of findings.
type Metrics struct {
	records  *prometheus.CounterVec
	bytes    *prometheus.CounterVec
	failures *prometheus.CounterVec
	ack      *prometheus.HistogramVec
	saved    *prometheus.GaugeVec
	inFlight *prometheus.GaugeVec
	state    *prometheus.GaugeVec

	leader     *prometheus.GaugeVec
	generation *prometheus.GaugeVec
	gaps       *prometheus.GaugeVec
	losses     *prometheus.CounterVec
	reissued   *prometheus.CounterVec
	findings   *prometheus.GaugeVec

	lag, retained, safe *prometheus.GaugeVec
}

// States of a source, as the gauge shows them.
const (
	stateStarting = 0
	stateFeeding  = 1
	stateWaiting  = 2 // for Kafka, or for the next try: it may pass by itself
	stateStanding = 3 // a person must act
)

// noLimit is what safe shows where nothing limits what a server keeps of its log, or nobody asks it.
const noLimit = -1

// NewMetrics makes the collectors and registers them at reg; nil registers them nowhere.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	source := []string{"source"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "invalidator_feed_" + name, Help: help}, source)
	}
	gauge := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "invalidator_feed_" + name, Help: help}, source)
	}
	m := &Metrics{
		records:  counter("records_total", "Records acknowledged by Kafka."),
		bytes:    counter("bytes_total", "Bytes of key and value of the records acknowledged by Kafka."),
		failures: counter("failures_total", "Runs of the source that ended in an error."),
		ack: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "invalidator_feed_ack_seconds",
			Help:    "From a transaction's commit to the acknowledgement of its last record.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60, 600},
		}, source),
		saved:    gauge("position_commit_timestamp_seconds", "Commit time of the transaction at the saved position."),
		inFlight: gauge("in_flight_bytes", "Bytes of the records sent and not yet acknowledged."),
		state:    gauge("source_state", "0 starting, or standing by; 1 feeding, 2 waiting for Kafka or to try again, 3 standing: a person must act."),

		leader:     gauge("leader", "1 where this process leads the source, 0 where it stands by."),
		generation: gauge("generation", "Generation of the positions that this process saves; 0 while it stands by."),
		gaps:       gauge("gaps_open", "Gaps of the source that nobody has answered, on the process that leads it."),
		losses:     counter("losses_total", "Losses in a log that can be read on: a statement logged as text, a partition dropped."),
		reissued:   counter("reissued_records_total", "Records written again because the server no longer has their transactions."),
		lag:        gauge("lag_bytes", "Bytes of the source's log behind what was read of it."),
		retained:   gauge("retained_bytes", "Bytes of its log that a Postgres server keeps for the slot."),
		safe:       gauge("safe_bytes", "Bytes that a Postgres server may still write before it gives the slot up; -1: no limit, another kind of server, or another process leads the source."),
		findings: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "invalidator_feed_findings", Help: "What checks of the source find now, on the process that leads it.",
		}, []string{"source", "severity"}),
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.records, m.bytes, m.failures, m.ack, m.saved, m.inFlight, m.state,
		m.leader, m.generation, m.gaps, m.losses, m.reissued, m.findings, m.lag, m.retained, m.safe} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// sourceMetrics are Metrics of one source, looked up once.
type sourceMetrics struct {
	records, bytes, failures prometheus.Counter
	ack                      prometheus.Observer
	saved, inFlight, state   prometheus.Gauge

	leader, generation, gaps prometheus.Gauge
	losses, reissued         prometheus.Counter
	failing, warned          prometheus.Gauge // findings
	lag, retained, safe      prometheus.Gauge
}

// standsBy is what a process shows of a source that another leads.
func (m *sourceMetrics) standsBy() {
	for _, g := range []prometheus.Gauge{m.leader, m.generation, m.gaps, m.failing, m.warned, m.inFlight, m.lag, m.retained} {
		g.Set(0)
	}
	m.safe.Set(noLimit)
	m.state.Set(stateStarting)
}

func (m *Metrics) of(source string) sourceMetrics {
	s := sourceMetrics{
		records:  m.records.WithLabelValues(source),
		bytes:    m.bytes.WithLabelValues(source),
		failures: m.failures.WithLabelValues(source),
		ack:      m.ack.WithLabelValues(source),
		saved:    m.saved.WithLabelValues(source),
		inFlight: m.inFlight.WithLabelValues(source),
		state:    m.state.WithLabelValues(source),

		leader:     m.leader.WithLabelValues(source),
		generation: m.generation.WithLabelValues(source),
		gaps:       m.gaps.WithLabelValues(source),
		losses:     m.losses.WithLabelValues(source),
		reissued:   m.reissued.WithLabelValues(source),
		failing:    m.findings.WithLabelValues(source, string(cdc.SeverityError)),
		warned:     m.findings.WithLabelValues(source, string(cdc.SeverityWarning)),

		lag:      m.lag.WithLabelValues(source),
		retained: m.retained.WithLabelValues(source),
		safe:     m.safe.WithLabelValues(source),
	}
	s.standsBy()
	return s
}
