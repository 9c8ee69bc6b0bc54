//go:build integration

package replay

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/internal/app"
	"invalidator/internal/config"
	"invalidator/internal/obs"
	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// TestPromotionCatches tests the tests: a worker that leaves something out of what a promotion asks for leaves stale values, and they are found.
func TestPromotionCatches(t *testing.T) {
	t.Parallel()
	c := newCluster(t, time.Second, "p0 p1 p2 r0 r1 r2", "s0 p0 r0", "s1 p1 r1", "s2 p2 r2")
	var left atomic.Pointer[func(l sink.Lane, round int) bool]
	leave := func(what func(l sink.Lane, round int) bool) { left.Store(&what) }
	leave(func(sink.Lane, int) bool { return false })
	c.workHere(func(a *app.Worker) {
		a.Wrap = harness.LeaveOut(func(l sink.Lane, _ sink.Copy, round int) bool { return (*left.Load())(l, round) })
	})
	c.awaitActed()
	die := func(shard, primary, replica string) (lost []string, since time.Time) {
		lost = c.of("item", shard)
		c.change(lost)
		c.byID[primary].Freeze()
		c.put(replica, lost)
		return lost, c.promote(shard, replica)
	}
	stand := func(what, replica string, lost []string) {
		c.awaitDone()
		if there := c.there(replica, lost); len(there) != len(lost) {
			t.Errorf("%s: %d values of %d stand: what is left out is not what deletes them", what, len(there), len(lost))
		}
	}

	// What the dead primary owes is left out too, since it may be owed the same keys.
	leave(func(l sink.Lane, _ int) bool { return l == sink.Urgent || l == sink.Debts })
	lost, _ := die("s0", "p0", "r0")
	c.awaitActed()
	c.byID["p0"].Thaw()
	stand("nothing issued again", "r0", lost)

	leave(func(l sink.Lane, round int) bool { return l == sink.Urgent && round > 1 || l == sink.Debts })
	lost, since := die("s1", "p1", "r1")
	c.awaitGone(since, "r1", lost)
	c.put("r1", lost) // by readers who had the old rows
	c.awaitActed()
	c.byID["p1"].Thaw()
	stand("no second round", "r1", lost)

	leave(func(sink.Lane, int) bool { return false })
	lost, since = die("s2", "p2", "r2")
	c.awaitGone(since, "r2", lost)
	c.byID["p2"].Thaw()
	c.awaitDone()
}

// workHere runs a worker in this process until the test ends.
func (c *cluster) workHere(change func(*app.Worker)) {
	c.t.Helper()
	conf, err := config.Load(c.file)
	if err != nil {
		c.t.Fatal(err)
	}
	a := &app.Worker{
		Config: conf, Registry: obs.NewRegistry(),
		Log: slog.New(slog.NewTextHandler(c.t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	}
	change(a)
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Run(ctx); err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}
