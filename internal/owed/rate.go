package owed

import (
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
)

// rateOver is the time of which a rate is the mean.
const rateOver = 30 * time.Second

// meter measures how fast one node's debts are paid. Its rate begins anew when the node goes off.
type meter struct {
	last    map[changelog.Partition]pipeline.Debt
	samples []sample // of the last rateOver, the oldest first
}

// sample is how much had been paid at a moment, from some beginning on.
type sample struct {
	at   time.Time
	paid int64
}

// see takes in the debts as they are now.
func (m *meter) see(now time.Time, debts map[changelog.Partition]pipeline.Debt, off bool) {
	var paid int64
	if n := len(m.samples); n > 0 {
		paid = m.samples[n-1].paid
	}
	for p, was := range m.last {
		is, still := debts[p]
		switch {
		case still && is.Since.Equal(was.Since):
			paid += max(is.From-was.From, 0)
		case was.To != nil:
			paid += max(*was.To-was.From, 0)
		}
	}
	m.last = debts
	if off {
		m.samples = m.samples[:0]
	}
	m.samples = append(m.samples, sample{now, paid})
	for len(m.samples) > 2 && now.Sub(m.samples[1].at) >= rateOver {
		m.samples = m.samples[1:]
	}
}

// rate is records a second; 0 where nothing was paid, or nothing is known.
func (m *meter) rate() float64 {
	if len(m.samples) < 2 {
		return 0
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	took := last.at.Sub(first.at).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(last.paid-first.paid) / took
}
