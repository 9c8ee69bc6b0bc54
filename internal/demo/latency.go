package demo

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// goal is what the 99th percentile from commit to last copy should stay below at low load.
const goal = 30 * time.Millisecond

// latencies updates single rows at a low pace and measures each from just before its commit was sent to the
// acknowledgement of its last copy: an upper bound, since the commit itself is in it.
func (d *demo) latencies(ctx context.Context) error {
	n := d.updates
	d.out.Title("Latency: %d single-row updates on each database, %d a second in all", n, time.Second/d.stage.updates)
	filled := 0
	for i, db := range d.stage.databases {
		from := d.base(i) + firstPaced
		copies, err := d.prepare(ctx, db, users, from, from+uint64(n)-1, nil)
		if err != nil {
			return err
		}
		filled += len(copies)
	}
	mark := d.sight.mark()
	sent := make([]map[string]time.Time, len(d.stage.databases)) // by a key of the row
	eg, ectx := errgroup.WithContext(ctx)
	for i, db := range d.stage.databases {
		sent[i] = make(map[string]time.Time, n)
		eg.Go(func() error { return d.paced(ectx, db, d.base(i)+firstPaced, n, sent[i]) })
	}
	if err := eg.Wait(); err != nil {
		return err
	}
	d.records += n * len(d.stage.databases)
	d.out.Line("  %-10s %9s %9s %9s %9s", "", "median", "p99", "slowest", "p99 goal")
	missed := false
	for i, db := range d.stage.databases {
		times, err := d.measured(ctx, mark, sent[i])
		if err != nil {
			return fmt.Errorf("latency, %s: %w", db.name(), err)
		}
		met := d.out.Good("met")
		if percentile(times, 99) >= goal {
			missed, met = true, d.out.Bad("missed")
		}
		d.out.Line("  %-10s %9s %9s %9s   < %s %s", db.name(), ms(percentile(times, 50)), ms(percentile(times, 99)), ms(times[len(times)-1]), ms(goal), met)
	}
	d.out.Line("  %d copies were there before, on the owners of %d keys", filled, 2*n*len(d.stage.databases))
	if load := machineLoad(); missed && load > float64(runtime.NumCPU()) {
		d.out.Line("  this machine is busy: %.0f processes want its %d CPUs, and the goal is meant for an idle one", load, runtime.NumCPU())
	}
	return nil
}

// machineLoad is how many processes wanted to run during the last minute; 0 where the system does not say.
func machineLoad() float64 {
	data, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	minute, _, _ := strings.Cut(string(data), " ")
	load, _ := strconv.ParseFloat(minute, 64)
	return load
}

// paced updates n rows, one a tick.
func (d *demo) paced(ctx context.Context, db database, from uint64, n int, sent map[string]time.Time) error {
	tick := time.NewTicker(d.stage.updates * time.Duration(len(d.stage.databases)))
	defer tick.Stop()
	for i := range n {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		id := from + uint64(i)
		at, err := db.exec(ctx, update(users, id, id, "city", "Bath"))
		if err != nil {
			return err
		}
		sent[users.key(users.seed(id))] = at
	}
	return nil
}

// measured waits for the first round of every update and returns their times, sorted.
func (d *demo) measured(ctx context.Context, mark int, sent map[string]time.Time) ([]time.Duration, error) {
	keys := make(map[string]bool, len(sent))
	for k := range sent {
		keys[k] = true
	}
	var done []seen
	err := d.sight.await(ctx, stepLimit, func() bool { done = d.sight.since(mark, keys); return len(done) >= len(sent) },
		func() string {
			return fmt.Sprintf("the first rounds of %d updates; %d have had theirs", len(sent), len(done))
		})
	if err != nil {
		return nil, err
	}
	times := make([]time.Duration, 0, len(sent))
	for _, c := range done {
		for _, k := range c.keys {
			if at, ok := sent[k]; ok {
				times = append(times, c.acked.Sub(at))
			}
		}
	}
	slices.Sort(times)
	return times, nil
}

// percentile is the smallest time that p percent of the sorted times do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	return sorted[max((len(sorted)*p+99)/100, 1)-1]
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000) }
