package pipeline

import (
	"slices"
	"time"

	"invalidator/internal/changelog"
)

const (
	retryMin = 100 * time.Millisecond
	retryMax = 5 * time.Second
)

// waiting is a partition's wait for the schema registry of its source, whose answer its first record needs to be decoded.
type waiting struct {
	since time.Time // zero: it does not wait
	told  string    // what the log says of it
}

// wait puts records back, of which the first cannot be decoded for now. The partition goes on with the rounds of what it has
// issued, and takes none until the pause is over. It is told when it begins, and when its reason is another.
func (p *partition) wait(rs []changelog.Record, why error) {
	p.mu.Lock()
	p.mu.pending = append(slices.Clone(rs), p.mu.pending...)
	for i := range rs {
		p.weigh(recordBytes(&rs[i]))
	}
	p.mu.Unlock()
	p.stick(true)
	p.pause = min(max(2*p.pause, retryMin), retryMax)
	p.retry = time.Now().Add(p.pause)
	if p.waits.since.IsZero() {
		p.waits.since = time.Now()
		p.w.metrics.waiting.WithLabelValues(p.source.Name).Inc()
	}
	if text := why.Error(); text != p.waits.told {
		p.waits.told = text
		p.w.log.Error("waiting for the schema registry: the partition takes no records until this one can be decoded", "source", p.source.Name,
			"topic", p.id.Topic, "partition", p.id.Number, "offset", rs[0].Offset, "tried_every", retryMax, "error", why)
	}
}

// goesOn ends the wait: the record was decoded, or its schema is known to be missing for good and it was parked.
func (p *partition) goesOn() {
	if p.waits.since.IsZero() {
		return
	}
	p.w.log.Info("the schema registry answers: the partition goes on", "source", p.source.Name, "topic", p.id.Topic, "partition", p.id.Number,
		"waited", time.Since(p.waits.since).Round(time.Millisecond))
	p.ended()
}

// ended forgets the wait of a partition that is ours no more.
func (p *partition) ended() {
	if !p.waits.since.IsZero() {
		p.waits = waiting{}
		p.stick(false)
		p.w.metrics.waiting.WithLabelValues(p.source.Name).Dec()
	}
}
