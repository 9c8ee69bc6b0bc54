package flush

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/sink"
)

// What became of a dump, and of copies: the values of metrics' labels.
const (
	dumpDone   = "done"
	dumpBusy   = "busy"
	dumpVoid   = "void"
	dumpNever  = "never"
	dumpFailed = "failed"

	keysDeleted = "deleted"
	keysKept    = "kept"
	keysRefused = "refused"

	jobsRunning = "running"
	jobsWaiting = "waiting"
	jobsPaused  = "paused"

	resultDone   = "done"
	resultFailed = "failed"
)

// metrics are of the conductor: the other workers of a fleet show 0.
type metrics struct {
	conductor prometheus.Gauge
	requests  prometheus.Gauge
	jobs      *prometheus.GaugeVec
	oldest    prometheus.Gauge
	load      prometheus.Gauge
	limit     prometheus.Gauge
	dumped    prometheus.Counter
	dumps     *prometheus.CounterVec
	keys      *prometheus.CounterVec
	results   *prometheus.CounterVec
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "invalidator_flush_" + name, Help: help})
	}
	counters := func(name, help, label string, values ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "invalidator_flush_" + name, Help: help}, []string{label})
		for _, v := range values {
			c.WithLabelValues(v) // 0, not missing
		}
		return c
	}
	m := &metrics{
		conductor: gauge("conductor", "1 on the one worker of the fleet that conducts its flushes; the others show 0 in all that follows."),
		requests:  gauge("requests", "Requests to flush that are not answered."),
		jobs: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "invalidator_flush_jobs", Help: "Flushes that have begun: running, waiting (for the load, a node, or the next round) or paused.",
		}, []string{"state"}),
		oldest:  gauge("oldest_seconds", "How long ago the oldest request was asked for that is not answered; 0: all are."),
		load:    gauge("load", "The load that the flush which was worked on last is watched by."),
		limit:   gauge("limit", "Above which load that flush waits."),
		dumped:  prometheus.NewCounter(prometheus.CounterOpts{Name: "invalidator_flush_dumped_keys_total", Help: "Keys that nodes have shown, meant or not."}),
		dumps:   counters("dumps_total", "Dumps of nodes by what became of them: done, busy (another one runs there), void (it did not end cleanly), never (that node cannot), failed.", "result", dumpDone, dumpBusy, dumpVoid, dumpNever, dumpFailed),
		keys:    counters("keys_total", "Copies by what became of them: deleted (or marked stale), kept (filled since), refused by their node.", "outcome", keysDeleted, keysKept, keysRefused),
		results: counters("results_total", "Requests that were answered: done, or failed (cancelled, refused, or not to its end).", "result", resultDone, resultFailed),
	}
	for _, state := range []string{jobsRunning, jobsWaiting, jobsPaused} {
		m.jobs.WithLabelValues(state)
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.conductor, m.requests, m.jobs, m.oldest, m.load, m.limit, m.dumped, m.dumps, m.keys, m.results} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of flushes: %w", err)
		}
	}
	return m, nil
}

// idle is shown by who conducts no longer.
func (m *metrics) idle() {
	for _, g := range []prometheus.Gauge{m.conductor, m.requests, m.oldest, m.load, m.limit} {
		g.Set(0)
	}
	m.showJobs(0, 0, 0)
}

func (m *metrics) showJobs(running, waiting, paused int) {
	m.jobs.WithLabelValues(jobsRunning).Set(float64(running))
	m.jobs.WithLabelValues(jobsWaiting).Set(float64(waiting))
	m.jobs.WithLabelValues(jobsPaused).Set(float64(paused))
}

// show shows what there is to do. next is what is done now; nil: nothing.
func (t *term) show(next *unit) {
	now, oldest := time.Now(), 0.0
	if at := t.book.oldest(); !at.IsZero() {
		oldest = max(now.Sub(at).Seconds(), 0)
	}
	running, waiting, paused := 0, 0, 0
	for _, j := range t.book.jobs {
		switch {
		case j.paused:
			paused++
		case next != nil && next.job == j:
			running++
		default:
			waiting++
		}
	}
	t.metrics.requests.Set(float64(len(t.book.requests)))
	t.metrics.oldest.Set(oldest)
	t.metrics.showJobs(running, waiting, paused)
}

func dumpResult(err error) string {
	var busy *sink.BusyError
	var void *sink.VoidError
	var never *sink.NoDumpError
	switch {
	case err == nil:
		return dumpDone
	case errors.As(err, &busy):
		return dumpBusy
	case errors.As(err, &void):
		return dumpVoid
	case errors.As(err, &never):
		return dumpNever
	}
	return dumpFailed
}
