//go:build integration

package replay

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"invalidator/replay"
	"invalidator/test/integration/harness"
)

const withPersons = `version: 1
team: items
pools: [item, other, person]
underivable: [feed]
mappings:
  - {name: item, table: shop.items, source: orders, keys: ["ITEM"]}
  - {name: other, table: shop.others, source: orders, keys: ["other:{id}"]}
  - {name: person, table: shop.items, source: crm, keys: ["person:{id}"]}
`

// TestRequestsAreAnswered: what the pipeline cannot repair by itself is done when somebody asks for it, or asks for it by itself where the source says so.
func TestRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 100*time.Millisecond, "p0 r0 p1", "s0 p0 r0", "s1 p1")
	crm := c.ID + "-crm"
	c.CreateTopic(crm, 1)
	c.file = c.variant("worker", "replay: {window", fmt.Sprintf("  - {name: crm, topics: {pattern: %s, format: debezium}, first_start: earliest, on_gap: flush}\nreplay: {window", crm))
	c.writeMapping("item:{id}:v0")
	worker := c.work()
	c.awaitActed()

	// A template was wrong, so readers have old values of all that changed. Once it is mended, what was issued is issued again, under the template of today.
	items := map[string][]string{"r0": c.of("item", "s0"), "p0": c.of("item", "s0"), "p1": c.of("item", "s1")}
	for node, keys := range items {
		c.put(node, keys)
		c.keep(node, c.of("session", "s0"))
	}
	c.keep("p1", c.of("other", "s1"), c.of("feed", "s1"))
	c.change(items["p0"], items["p1"])
	for node, keys := range items {
		if there := c.there(node, keys); len(there) != len(keys) {
			t.Fatalf("the template is not wrong: of %d keys %d are left", len(keys), len(there))
		}
	}
	c.writeMapping("item:{id}")
	probe := items["p1"][0]
	harness.Await(t, "the mended template in force", func() (bool, string) {
		c.change([]string{probe})
		return len(c.there("p1", []string{probe})) == 0, worker.Log()
	})
	c.ask(replay.Request{ID: "mended", Action: replay.Replay, Target: replay.Target{Mapping: "items/item"}, Window: replay.Issued, From: time.Now().Add(-10 * time.Minute)})
	if got, want := c.result("mended"), int64(len(items["p0"])+len(items["p1"])); !got.Clean || got.Keys < want {
		t.Errorf("it ended as %+v, want %d keys at least", got, want)
	}
	for node, keys := range items {
		if there := c.there(node, keys); len(there) > 0 {
			t.Errorf("a mended template: on %s are left %q", node, there)
		}
	}
	c.checkKept()

	// The log lost what nobody had read. That stands, and nothing is done, until somebody accepts it: then the pools of the source are flushed.
	worker.Terminate()
	c.world.change(rowsOf(items["p0"], items["p1"])...)
	c.Forget(c.topic)
	for node, keys := range items {
		c.put(node, keys)
	}
	c.kept = map[string][]string{}
	for node := range items {
		c.keep(node, c.of("session", "s0"), c.of("person", "s0"))
	}
	c.work()
	ids := c.openGaps(4)
	for node, keys := range items {
		if there := c.there(node, keys); len(there) != len(keys) {
			t.Errorf("nobody has accepted the gap, and of %d keys on %s are left %d", len(keys), node, len(there))
		}
	}
	since := time.Now()
	for _, id := range ids {
		if accepted := harness.Start(t, "gap-accept", "gap", "accept", id, "--by", "ann", "--config", c.file); accepted.Wait() != 0 {
			t.Fatal(accepted.Log())
		}
	}
	for node, keys := range items {
		c.t.Logf("a gap: %s was flushed %d ms after the first command that accepts a part of it began", node, c.awaitGone(since, node, keys).Milliseconds())
	}
	c.checkKept()

	// A node was away for longer than the log reaches: its source has the pools flushed by itself.
	persons := c.of("person", "s0")
	c.put("r0", persons)
	c.byID["r0"].Freeze()
	c.change(items["r0"][:1])
	c.awaitOwed("node " + c.addr("r0")) // nothing is on a socket from now on
	for _, key := range persons {
		c.Write(crm, key, fmt.Sprintf(`{"before":null,"after":{"id":%s},"source":{"connector":"mysql","name":"crm","db":"shop","table":"items"},"op":"c"}`, strings.TrimPrefix(key, "person:")))
	}
	c.AwaitDone(crm)
	c.Forget(crm)
	c.kept = map[string][]string{"r0": c.of("session", "s0")}
	c.byID["r0"].Thaw()
	c.t.Logf("a debt older than the log: the node was flushed %d ms after it was back", c.awaitGone(time.Now(), "r0", persons).Milliseconds())
	c.AwaitPaid()
	c.checkKept()
}

// writeMapping puts a mapping file in the place of the old one.
func (c *cluster) writeMapping(template string) {
	c.t.Helper()
	if err := os.WriteFile(filepath.Join(c.Dir, "mappings.d", "items.yaml"), []byte(strings.Replace(withPersons, "ITEM", template, 1)), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// openGaps waits until so many gaps stand, as `gap list` shows them.
func (c *cluster) openGaps(n int) (ids []string) {
	c.t.Helper()
	harness.Await(c.t, fmt.Sprint(n, " gaps to stand"), func() (bool, string) {
		list := harness.Start(c.t, "gap-list", "--log-level", "error", "gap", "list", "--json", "--config", c.file)
		if code := list.Wait(); code != 0 {
			return false, list.Log()
		}
		ids = nil
		for line := range strings.Lines(list.Log()) {
			var gap struct{ State, ID string }
			if err := json.Unmarshal([]byte(line), &gap); err != nil {
				c.t.Fatalf("%v: %s", err, line)
			}
			if gap.State == "open" {
				ids = append(ids, gap.ID)
			}
		}
		return len(ids) == n, list.Log()
	})
	return ids
}
