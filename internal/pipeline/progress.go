package pipeline

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/internal/changelog"
)

// ProgressReport says how far one partition has come with something that is done again. It is for people: what is done is what the states say.
type ProgressReport struct {
	ID        string   // of the replay's request, or epoch/<a>-<b>
	Shards    []string // of an epoch: those that were promoted
	Partition changelog.Partition
	From, To  int64 // what is read, where it began with this owner
	Offset    int64 // everything below has had its rounds
	Keys      int64 // that were issued so far, or would be
	Copies    int64 // of these, in one round
	Owed      int64 // keys that were left to the debt of their pool
	Lost      int64 // offsets that the log no longer held, or whose mappings stand nowhere any more
	DryRun    bool
	Done      bool
}

// reportsEvery is how often a report is made of what has moved.
const reportsEvery = 2 * time.Second

// reported is what a partition has last reported of its debts.
type reported struct {
	changes int64 // of the ledger, when it was looked at last
	next    time.Time
	last    map[debtID]ProgressReport
}

// report tells of the debts of what is done again: when they are opened, each reportsEvery in which they moved, and when they are paid.
func (p *partition) report() {
	r := &p.reported
	if p.ledger.again.Load() == 0 && len(r.last) == 0 {
		return
	}
	now, changes := time.Now(), p.ledger.changes.Load()
	if changes == r.changes && now.Before(r.next) {
		return
	}
	r.next = now.Add(reportsEvery)
	paid, stand := p.ledger.takePaid(), p.ledger.doneAgain()
	r.changes = p.ledger.changes.Load()
	if r.last == nil {
		r.last = map[debtID]ProgressReport{}
	}
	for i := range paid {
		p.tellOf(&paid[i], true)
		delete(r.last, paid[i].debtID)
	}
	for i := range stand {
		p.tellOf(&stand[i], false)
	}
	for id := range r.last { // cancelled: there is no more to tell
		if !slices.ContainsFunc(stand, func(d debt) bool { return d.debtID == id }) {
			delete(r.last, id)
		}
	}
}

func (p *partition) tellOf(d *debt, done bool) {
	last, known := p.reported.last[d.debtID]
	now := ProgressReport{
		ID: d.name, Shards: last.Shards, Partition: p.id, From: min(d.from, d.to), To: d.to, Offset: d.from,
		Keys: d.counts.keys, Copies: d.counts.copies, Owed: d.counts.owed, Lost: d.counts.lost, DryRun: d.order != nil && d.order.DryRun, Done: done,
	}
	if d.kind == KindEpoch {
		now.ID = "epoch/" + d.name
	}
	if known {
		now.From = min(last.From, now.From)
	} else if d.kind == KindEpoch {
		now.Shards = p.w.moves.of(p.w.opts.Snapshots.Current().View, d.name).shards()
	}
	p.reported.last[d.debtID] = now
	if p.w.opts.Progress != nil && (!known || done || !same(last, now)) {
		p.w.opts.Progress(now)
	}
}

// same reports whether nothing has moved.
func same(a, b ProgressReport) bool {
	a.Shards, b.Shards = nil, nil
	return a.From == b.From && a.To == b.To && a.Offset == b.Offset && a.Keys == b.Keys && a.Copies == b.Copies && a.Owed == b.Owed && a.Lost == b.Lost
}

// reportsIdle is how long there is nothing to report, at most limit.
func (p *partition) reportsIdle(limit time.Duration) time.Duration {
	if len(p.reported.last) == 0 {
		return limit
	}
	return min(limit, time.Until(p.reported.next))
}

// againCollector gives metrics of what is done again, by kind.
type againCollector struct {
	w                  *Worker
	partitions, oldest *prometheus.Desc
}

func newAgainCollector(w *Worker) *againCollector {
	name := func(n string) string { return prometheus.BuildFQName("invalidator", "replay", n) }
	return &againCollector{w,
		prometheus.NewDesc(name("partitions"), "Partitions of this worker that delete a part of the log again: epoch, after a change of the ring, or replay, by hand.", []string{"kind"}, nil),
		prometheus.NewDesc(name("oldest_seconds"), "For how long the oldest of these has not been done.", []string{"kind"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *againCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.partitions
	ch <- c.oldest
}

// Collect implements prometheus.Collector.
func (c *againCollector) Collect(ch chan<- prometheus.Metric) {
	partitions, oldest := map[string]int{KindEpoch: 0, KindReplay: 0}, map[string]time.Duration{}
	for _, p := range c.w.all() {
		of := map[string]bool{}
		for _, d := range p.ledger.doneAgain() {
			of[d.kind] = true
			oldest[d.kind] = max(oldest[d.kind], time.Since(d.since))
		}
		for kind := range of {
			partitions[kind]++
		}
	}
	for kind, n := range partitions {
		ch <- prometheus.MustNewConstMetric(c.partitions, prometheus.GaugeValue, float64(n), kind)
		ch <- prometheus.MustNewConstMetric(c.oldest, prometheus.GaugeValue, oldest[kind].Seconds(), kind)
	}
}
