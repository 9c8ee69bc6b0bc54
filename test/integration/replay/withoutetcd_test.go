//go:build integration

package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// TestPromotionWhileEtcdIsAway: no worker reaches etcd when the record is written, nor for longer than any window is. Until then they delete at the owners of before, of
// which the new primary is none. The manager believes that the old one is dead, and it is not: so nothing is owed either.
func TestPromotionWhileEtcdIsAway(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 200*time.Millisecond, "p0 r0 p1 new", "s0 p0 r0", "s1 p1")
	c.work()
	c.awaitActed()
	lost, feed := c.of("item", "s0"), c.of("feed", "s0")
	c.change(half(lost, 0))
	c.etcd.Stop()
	c.promote("s0", "new", "r0")
	c.put("new", lost, feed)
	c.put("r0", half(lost, 0), feed)
	c.keep("new", c.of("other", "s0"), c.of("session", "s0"))
	c.keep("p1", c.of("item", "s1"), c.of("feed", "s1"))
	c.change(half(lost, 1))
	done := time.Now()
	const longest = (5 + 15 + 17 + 3) * time.Second // replay.window, a commit that waits to be visible, clocks that differ, and more
	harness.Await(t, "what was issued to be older than any window that begins now", func() (bool, string) { return time.Since(done) > longest, "" })
	if left := c.there("new", slices.Concat(lost, feed)); len(left) != len(lost)+len(feed) {
		t.Fatalf("workers have heard of a record that they could not read: %d of %d values are left", len(left), len(lost)+len(feed))
	}
	startProxy(t, c.etcd)
	since := time.Now()
	replayed := max(c.awaitGone(since, "new", lost), c.awaitGone(since, "r0", lost))
	flushed := max(c.awaitGone(since, "new", feed), c.awaitGone(since, "r0", feed))
	t.Logf("etcd was away for %d s: no stale value was left %d ms after it was back of keys that rows give, %d ms after that of others",
		longest/time.Second, replayed.Milliseconds(), flushed.Milliseconds())
	c.awaitDone()
	c.checkKept()
}

// TestPromotionsWithoutEtcd: a fleet that reads the ring from a file acts on the file as it does on etcd; and where not even that changes, since a node of another
// name takes over an address, it is told by POST.
func TestPromotionsWithoutEtcd(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 200*time.Millisecond, "p0 r0 old new", "s0 p0 r0", "s1 old")
	address := newProxy(t, c.addr("old")) // the virtual address, which is all that the ring says of s1
	c.ring.Shards[1].Primary.Addr = address.Listen
	c.writeRing(1)
	admin := harness.FreeAddr(t)
	file := c.Variant("file", fmt.Sprintf("ring: {etcd: {endpoints: [%q], key: /%s/ring, hot_prefix: /%[2]s/hot/}}", services.Addr("ETCD"), c.ID), "ring: {lag: 1s, file: ring.json}",
		"replay: {window: 5s}", fmt.Sprintf("replay: {window: 5s}\nadmin: {listen: %q, token: a long token}", admin))
	harness.Start(t, "run", "run", "--config", file)
	c.awaitActed()

	lost, feed := c.of("item", "s0"), c.of("feed", "s0")
	c.change(lost, c.of("item", "s1"))
	c.byID["p0"].Freeze()
	c.put("r0", lost, feed)
	c.keep("r0", c.of("other", "s0"), c.of("session", "s0"))
	c.keep("old", c.of("item", "s1"), c.of("feed", "s1"))
	c.ring.Shards = c.with("s0", "r0")
	since := c.writeRing(2)
	c.say("a ring file", c.awaitGone(since, "r0", lost), c.awaitGone(since, "r0", feed))
	c.byID["p0"].Thaw()
	c.SkipEpoch() // what stands in the file
	c.awaitDone()
	c.checkKept()

	lost, feed = c.of("item", "s1"), c.of("feed", "s1")
	c.byID["old"].Freeze()
	c.kept = map[string][]string{}
	c.keep("r0", c.of("item", "s0"), c.of("feed", "s0"))
	c.keep("new", c.of("other", "s1"), c.of("session", "s1"))
	c.put("new", lost, feed)
	address.Stop()
	address.Upstream = c.addr("new")
	startProxy(t, address)
	since = time.Now()
	told := c.tellPromotion(admin, fmt.Sprintf(`{"shard": "s1", "at": %q, "reason": "old is gone"}`, since.UTC().Format(time.RFC3339Nano)))
	c.say("POST", c.awaitGone(since, "new", lost), c.awaitGone(since, "new", feed))
	if len(told) != 2 || c.tellPromotion(admin, fmt.Sprintf(`{"shard": "s1", "at": %q}`, since.UTC().Format(time.RFC3339Nano)))[0] != told[0] {
		t.Errorf("asked for was %q, and then something else", told)
	}
	if got := c.result(told[0]); !got.Clean || got.Keys < int64(len(lost)) {
		t.Errorf("the replay ended as %+v", got)
	}
	c.AwaitPaid()
	c.checkKept()
}

// writeRing puts a new file in the place of the old one, as a manager does who wants it read whole.
func (c *cluster) writeRing(epoch int64) (since time.Time) {
	c.t.Helper()
	record := c.ring
	record.Epoch, record.At, record.Kind = epoch, time.Now().UTC(), sink.KindPoints160
	data, err := json.Marshal(record)
	if err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(c.Dir, "ring.json")
	if err := os.WriteFile(path+".new", data, 0o644); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		c.t.Fatal(err)
	}
	return time.Now()
}

// tellPromotion posts to a worker's listener, and returns the ids of what was asked for.
func (c *cluster) tellPromotion(admin, body string) []string {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, "http://"+admin+"/v1/promotions", strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer a long token")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	var answer struct{ Requests []string }
	if err := json.Unmarshal(text, &answer); err != nil || resp.StatusCode != http.StatusAccepted || !slices.ContainsFunc(answer.Requests, func(id string) bool { return strings.HasSuffix(id, "/feed") }) {
		c.t.Fatalf("%d %s: %v", resp.StatusCode, text, err)
	}
	return answer.Requests
}
