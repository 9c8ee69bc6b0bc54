package schemas

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc/envelope"
)

// What a schema was asked for with, as the label result has it: a closed set.
const (
	resultOK      = "ok"
	resultNotYet  = "not_yet" // the registry does not know it, and may yet
	resultUnknown = "unknown" // it has had the time to: the record is parked
	resultRefused = "refused" // not Avro, or not to be joined: the record is parked
	resultAway    = "away"    // no answer, a slow one, or one that is none: it is asked again
)

var results = []string{resultOK, resultNotYet, resultUnknown, resultRefused, resultAway}

// Metrics count what the sources of a process ask their registries for.
type Metrics struct{ asked *prometheus.CounterVec }

// NewMetrics registers them; its error is a registry that has them already.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{asked: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "invalidator", Subsystem: "schemas", Name: "asked_total",
		Help: "Schemas that a partition's decoder asked for, by what came of it. A decoder keeps what it has.",
	}, []string{"source", "result"})}
	if err := r.Register(m.asked); err != nil {
		return nil, fmt.Errorf("registering the schemas' metrics: %w", err)
	}
	return m, nil
}

// Count returns s with what is asked of it counted under a source's name.
func (m *Metrics) Count(source string, s envelope.SchemaSource) envelope.SchemaSource {
	for _, r := range results {
		m.asked.WithLabelValues(source, r) // 0, not missing
	}
	return &counted{SchemaSource: s, asked: m.asked.MustCurryWith(prometheus.Labels{"source": source})}
}

type counted struct {
	envelope.SchemaSource
	asked *prometheus.CounterVec
}

// Schema implements envelope.SchemaSource.
func (c *counted) Schema(ctx context.Context, id envelope.SchemaID) (string, error) {
	text, err := c.SchemaSource.Schema(ctx, id)
	if ctx.Err() == nil { // a partition that was given up asks for nothing
		c.asked.WithLabelValues(resultOf(err)).Inc()
	}
	return text, err
}

func resultOf(err error) string {
	var away *Unavailable
	switch {
	case err == nil:
		return resultOK
	case errors.Is(err, ErrUnknown):
		return resultUnknown
	case errors.As(err, &away) && errors.Is(away.Err, errNotYet):
		return resultNotYet
	case errors.As(err, &away):
		return resultAway
	}
	return resultRefused
}
