//go:build integration

package replay

import (
	"strings"
	"testing"
	"time"
)

// TestPromotionAndWorkers is one fleet whose workers are not at their best when a primary dies.
func TestPromotionAndWorkers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3*time.Second, "p0 p1 r0 r1", "s0 p0 r0", "s1 p1 r1")
	c.KeepStamps(c.topic)

	// Behind. What was committed long ago, and written then, is issued just before the promotion, or after it. A window of commits would take in none of it.
	const lag = 2 * time.Minute
	issued, late, feed := half(c.of("item", "s0"), 0), half(c.of("item", "s0"), 1), c.of("feed", "s0")
	c.changeAt(time.Now().Add(-lag), rowsOf(issued)...)
	worker := c.work()
	c.AwaitDone(c.topic)
	c.awaitActed()
	worker.Pause()
	c.changeAt(time.Now().Add(-lag), rowsOf(late)...)
	c.byID["p0"].Freeze()
	c.put("r0", issued, late, feed)
	c.keep("r0", c.of("other", "s0"), c.of("session", "s0"))
	c.promote("s0", "r0")
	since := time.Now()
	worker.Continue()
	c.say("a worker two minutes behind", c.awaitGone(since, "r0", issued, late), c.awaitGone(since, "r0", feed))
	c.byID["p0"].Thaw()
	c.awaitDone()
	c.checkKept()

	// Killed between the two rounds: the next owner does both.
	lost := c.of("item", "s1")
	c.change(lost)
	c.byID["p1"].Freeze()
	c.put("r1", lost)
	c.keep("r1", c.of("other", "s1"), c.of("session", "s1"))
	since = c.promote("s1", "r1")
	c.awaitGone(since, "r1", lost)
	c.awaitActed()
	worker.Kill()
	if owed, err := c.Owed(t.Context()); err != nil || !strings.Contains(strings.Join(owed, ";"), "epoch 2-3") {
		t.Fatalf("the machine is too busy: the worker is killed, and owed is %q, %v", owed, err)
	}
	c.put("r1", lost) // by readers who had the old rows
	c.work()
	since = time.Now()
	t.Logf("a worker killed in the middle: no stale value was left %d ms after the next one was started", c.awaitGone(since, "r1", lost).Milliseconds())
	c.byID["p1"].Thaw()
	c.awaitDone()
	c.checkKept()
}
