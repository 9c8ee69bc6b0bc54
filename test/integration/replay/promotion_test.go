//go:build integration

package replay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"invalidator/sink"
)

// TestPromotions is one fleet, and what happens to its primaries one after the other. Each dies, by SIGSTOP, after it acknowledged deletes that its replica never
// got, a record names another primary, and no stale value may be left on that: of pool item by a replay, of pool feed by a flush. What has nothing to do with it
// stays. How long it took is said.
func TestPromotions(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 200*time.Millisecond, "p0 p1 p2 p3 p4 r0 r1 r2 x0 x1 z0",
		"s0 p0 r0", "s1 p1 r0", "s2 p2 r1 r2", "s3 p3 r2", "s4 p4 r2")
	c.work()
	c.work()
	c.awaitActed()
	for _, step := range []struct {
		what string
		do   func(*cluster)
	}{
		{"an empty log", (*cluster).emptyLog},
		{"a dead primary", (*cluster).deadPrimary},
		{"the old primary is back as a replica, with its memory", (*cluster).backAsReplica},
		{"two promotions of a shard in quick succession", (*cluster).twoPromotions},
		{"promotion and resize together", (*cluster).promotionAndResize},
		{"an epoch skipped", (*cluster).skippedEpoch},
		{"a reader who had not heard of the first one", (*cluster).lateReader},
	} {
		began := time.Now()
		step.do(c)
		c.checkKept()
		t.Logf("%s: %.1f s in all", step.what, time.Since(began).Seconds())
	}
}

// say tells how long it took, from when the record stood in etcd.
func (c *cluster) say(what string, replayed, flushed time.Duration) {
	c.t.Helper()
	c.t.Logf("%s: no stale value was left %d ms after the record of keys that rows give, %d ms after it of others", what, replayed.Milliseconds(), flushed.Milliseconds())
}

// Nothing was ever issued, so nothing is issued again; the keys that no row gives are flushed all the same.
func (c *cluster) emptyLog() {
	c.keep("r2", c.of("item", "s4"), c.of("other", "s4"), c.of("session", "s4"), c.of("feed", "s3"))
	feed := c.of("feed", "s4")
	c.put("r2", feed)
	c.byID["p4"].Freeze()
	since := c.promote("s4", "r2")
	c.t.Logf("an empty log: no stale value was left %d ms after the record of keys that no row gives", c.awaitGone(since, "r2", feed).Milliseconds())
	c.awaitDone()
	c.byID["p4"].Thaw()
}

// r0 is a replica of s0 and of s1, and becomes the primary of s0: what s1 has there stays, though its rows changed just as well.
func (c *cluster) deadPrimary() {
	lost, feed := half(c.of("item", "s0"), 0), c.of("feed", "s0")
	c.change(lost, c.of("item", "s1"))
	c.store("p0", half(c.of("item", "s0"), 1)) // what it has when it dies, and is right by then
	c.byID["p0"].Freeze()
	c.put("r0", lost, feed)
	c.keep("r0", half(c.of("item", "s0"), 1), c.of("item", "s1"), c.of("feed", "s1"), c.of("other", "s0"), c.of("session", "s0"))
	c.keep("p1", c.of("item", "s1"), c.of("feed", "s1"))

	since := c.promote("s0", "r0")
	c.say("a dead primary", c.awaitGone(since, "r0", lost), c.awaitGone(since, "r0", feed))
	c.awaitActed()
	c.awaitOwed("node " + c.addr("p0")) // p0 is off by now, and its connections are closed
	c.put("r0", feed)                   // see lateReader
	c.late = fmt.Sprintf("promotion/%d/s0/feed", c.Epoch())
	if got := c.promoted(); !slices.Equal(got, []string{"s0"}) {
		c.t.Errorf("told as promoted are %q, want s0", got)
	}
}

// half are every second of keys, from the one with that index on.
func half(keys []string, from int) (out []string) {
	for i := from; i < len(keys); i += 2 {
		out = append(out, keys[i])
	}
	return out
}

// Rows change while p0 is away, which keeps its memory and is a replica then.
func (c *cluster) backAsReplica() {
	missed := half(c.of("item", "s0"), 1)
	c.mayGo("item")
	c.change(missed)
	since := c.promote("s0", "r0", "p0")
	c.byID["p0"].Thaw()
	c.t.Logf("the old primary is back: no stale value was left on it %d ms after the record", c.awaitGone(since, "p0", missed).Milliseconds())
	c.awaitDone()
}

// r1 is promoted, and dies before anybody has acted on that; r2 is.
func (c *cluster) twoPromotions() {
	lost, feed := c.of("item", "s2"), c.of("feed", "s2")
	c.change(lost)
	c.put("r1", lost, feed)
	c.put("r2", lost, feed)
	c.keep("r2", c.of("other", "s2"), c.of("session", "s2"))
	c.byID["p2"].Freeze()
	c.byID["r1"].Freeze()
	c.promote("s2", "r1", "r2")
	since := c.promote("s2", "r2")
	c.say("two promotions", c.awaitGone(since, "r2", lost), c.awaitGone(since, "r2", feed))
	c.byID["p2"].Thaw()
	c.byID["r1"].Thaw()
	c.awaitGone(since, "r1", lost, feed)
	c.awaitDone()
}

// x0 and x1 take a part of every shard, and readers who miss there carry values on from the owners before.
func (c *cluster) promotionAndResize() {
	before := c.ring.Shards
	after := append(c.with("s3", "r2"), c.shard("s5", "x0", "x1"))
	lost := ownedBy(before, "item", "s3", c.rows)
	carried := ownedBy(after, "item", "s5", c.rows)
	feed := ownedBy(before, "feed", "s3", c.rows)
	untouched := ownedBy(before, "feed", "s1", c.rows) // of others flushes may be under way, which follow what is carried
	others := func(key string) bool { return !slices.Contains(untouched, key) }
	c.mayGo("item") // all of them move
	c.change(lost, carried)
	c.byID["p3"].Freeze()
	c.put("r2", lost, feed)
	for _, x := range []string{"x0", "x1"} {
		c.put(x, carried)
		c.keep(x, ownedBy(after, "other", "s5", c.rows), ownedBy(after, "session", "s5", c.rows), slices.DeleteFunc(ownedBy(after, "feed", "s5", c.rows), others))
	}
	c.keep("r2", c.of("session", "s3"))
	since := c.publish(after, &sink.Previous{Shards: before})
	replayed := c.awaitGone(since, "r2", lost)
	replayed = max(replayed, c.awaitGone(since, "x0", carried), c.awaitGone(since, "x1", carried))
	c.say("promotion and resize", replayed, c.awaitGone(since, "r2", feed))
	c.byID["p3"].Thaw()
	c.awaitDone()

	c.put("x0", carried) // a client who still carries when the resize is over
	since = c.publish(after, nil)
	c.t.Logf("the resize is over: no stale value was left %d ms after the record", c.awaitGone(since, "x0", carried).Milliseconds())
	c.awaitDone()
}

// Nobody saw the record between, under which z0 may have held anything of what it holds now.
func (c *cluster) skippedEpoch() {
	lost, feed := c.of("item", "s1"), c.of("feed", "s1")
	c.change(lost)
	c.byID["p1"].Freeze()
	c.put("r0", lost, feed)
	unknown := slices.Concat(c.of("item", "s1"), c.of("other", "s1"), c.of("feed", "s1"))
	c.put("z0", unknown)
	c.keep("z0", c.of("session", "s1"), c.of("other", "s0"))
	c.keep("r0", c.of("other", "s1"), c.of("session", "s1"))
	delete(c.kept, "p1")
	c.SkipEpoch()
	since := c.promote("s1", "r0", "z0")
	c.say("an epoch skipped", c.awaitGone(since, "r0", lost), c.awaitGone(since, "r0", feed))
	c.t.Logf("an epoch skipped: nothing of unknown age was left on a new replica %d ms after the record", c.awaitGone(since, "z0", unknown).Milliseconds())
	c.byID["p1"].Thaw()
	c.awaitDone()
}

// Clients hear of a record within cache.ring.lag, and one that had not may have filled what it read where the primary was before: a promotion's flush is done twice,
// and what was filled on r0 after the first round is gone after the second.
func (c *cluster) lateReader() {
	if got := c.result(c.late); !got.Clean {
		c.t.Errorf("the flush ended as %+v", got)
	}
	if left := c.there("r0", ownedBy(c.ring.Shards[:5], "feed", "s0", c.rows)); len(left) > 0 {
		c.t.Errorf("the flush is done, and of what was filled after its first round are left: %q", left)
	}
}
