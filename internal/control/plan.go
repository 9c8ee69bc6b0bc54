package control

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"invalidator/replay"
)

// planner makes plans of requests.
type planner struct {
	worker string
	adm    *kadm.Client
	match  func(topic string) bool
	known  func() Known
}

// maxPlan is the most bytes of a plan, some below what brokers take.
const maxPlan = 900 << 10

// plan makes the plan of a replay, or one that is refused. An error is of brokers: it is to be tried again.
func (p *planner) plan(ctx context.Context, r *Asked) (replay.Plan, error) {
	now := time.Now().UTC()
	plan := replay.Plan{ID: r.ID, At: now, Worker: p.worker, Target: r.Target, Window: r.Window, From: r.From, To: r.To, DryRun: r.DryRun}
	if plan.To.IsZero() {
		plan.To = now
		if now.Before(r.From) { // by clocks that differ
			plan.To = r.From
		}
	}
	known := p.known()
	if why := refusal(&r.Request, known, now); why != "" {
		return refused(plan, why), nil
	}
	all, err := survey(ctx, p.adm, p.match, r.From.Add(-clocksDiffer))
	if err != nil {
		return plan, err
	}
	back, err := reachOf(ctx, p.adm, all, now)
	if err != nil {
		return plan, err
	}
	if back.from.After(r.From) {
		return refused(plan, fmt.Sprintf("the log of %s reaches back to %s, and the window begins at %s: replay from %s on, and for what was before: %s",
			back.Partition, back.from.Format(time.RFC3339), r.From.UTC().Format(time.RFC3339), back.from.Add(time.Second).Format(time.RFC3339), known.flushes(r.Target))), nil
	}
	for _, s := range all {
		if s.start >= s.end {
			continue
		}
		of := replay.PlanRange{Topic: s.Topic, TopicID: s.topicID, Partition: s.Number, From: s.start, To: s.end}
		if r.Window == replay.Committed {
			of.Since = &s.since
		}
		plan.Ranges = append(plan.Ranges, of)
	}
	value, err := replay.Encode(plan)
	if len(value) > maxPlan {
		return refused(plan, fmt.Sprintf("a plan for the %d partitions that the fleet reads would be over %d KiB: replay by hand needs fewer partitions", len(plan.Ranges), maxPlan>>10)), nil
	}
	return plan, err
}

func refused(p replay.Plan, why string) replay.Plan {
	return replay.Plan{ID: p.ID, At: p.At, Worker: p.Worker, Target: p.Target, Window: p.Window, From: p.From, To: p.To, DryRun: p.DryRun, Refused: why}
}

// refusal says why a request is not planned, as far as that can be told without the log; empty: it may be.
func refusal(r *replay.Request, known Known, now time.Time) string {
	at := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	if err := known.Check(r.Target); err != nil {
		return err.Error()
	}
	switch {
	case !r.Expires.IsZero() && now.After(r.Expires):
		return "it expired at " + at(r.Expires) + ": no worker made a plan before"
	case r.From.After(now.Add(clocksDiffer)):
		return "its window begins in the future, at " + at(r.From)
	case r.To.After(now.Add(clocksDiffer)):
		return "its window ends in the future, at " + at(r.To) + ": what changes from now on is deleted as it comes"
	}
	return ""
}
