package feed

import (
	"context"
	"time"

	"invalidator/cdc"
)

const (
	lagEvery   = 10 * time.Second
	lagTimeout = 5 * time.Second
)

// lagLoop shows how far the log reaches beyond what was read, where the feeder can tell. That it cannot be asked is the run's to
// tell; the figure stays as it last was.
func (r *run) lagLoop(ctx context.Context) {
	lagger, ok := r.Feeder.(cdc.Lagger)
	if !ok {
		return
	}
	select {
	case <-r.started:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(lagEvery)
	defer tick.Stop()
	for {
		r.lookAtLag(ctx, lagger)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (r *run) lookAtLag(ctx context.Context, lagger cdc.Lagger) {
	ctx, cancel := context.WithTimeout(ctx, lagTimeout)
	defer cancel()
	read, ok := r.flight.safe()
	if !ok {
		return
	}
	lag, err := lagger.Lag(ctx, read.pos)
	if err != nil {
		r.log.Debug("asking how far the source is behind", "error", err)
		return
	}
	r.metrics.lag.Set(float64(lag.Bytes))
	r.metrics.retained.Set(float64(lag.Retained))
	r.metrics.safe.Set(float64(lag.Safe))
}
