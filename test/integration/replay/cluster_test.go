//go:build integration

package replay

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// cluster is a world whose primaries die, and the manager who promotes their replicas.
type cluster struct {
	*world
	file string                   // the workers' configuration
	etcd *toxiproxy.Proxy         // before etcd, for the workers; the manager has no use for it
	byID map[string]*harness.Node // "p0" and so on
	kept map[string][]string      // what must stay, by node
	late string                   // the flush whose second round lateReader waits for
}

// pools are item, which rows give; other, of rows that never change here; feed, whose keys no row gives. Nobody claims session.
const pools = `version: 1
team: items
pools: [item, other]
underivable: [feed]
mappings:
  - {name: item, table: shop.items, keys: ["item:{id}"]}
  - {name: other, table: shop.others, keys: ["other:{id}"]}
`

// newCluster has the nodes "p0 r0 …" and shards "s0 p0 r0 …": name, primary, replicas. Workers replay what was issued within 5 s of a promotion, and longer
// where clocks and commits may have lagged. No worker runs yet.
func newCluster(t *testing.T, settle time.Duration, nodes string, shards ...string) *cluster {
	t.Helper()
	c := &cluster{byID: map[string]*harness.Node{}, kept: map[string][]string{}}
	ids := strings.Fields(nodes)
	started := harness.StartNodes(t, len(ids), "-t", "2")
	for i, id := range ids {
		c.byID[id] = started[i]
	}
	var list []sink.Shard
	for _, text := range shards {
		f := strings.Fields(text)
		list = append(list, c.shard(f[0], f[1], f[2:]...))
	}
	c.world = newWorldOf(t, 200, started, list, harness.Options{Mappings: map[string]string{"items.yaml": pools}, Settle: settle, Sources: "replay: {window: 5s}\n"})
	c.etcd = newProxy(t, services.Addr("ETCD"))
	c.file = c.variant("worker")
	return c
}

// variant is another configuration of workers.
func (c *cluster) variant(name string, oldnew ...string) (file string) {
	c.t.Helper()
	return c.Variant(name, append(oldnew, services.Addr("ETCD"), c.etcd.Listen, "ring: {etcd", "ring: {lag: 1s, etcd")...)
}

// newProxy stands before a server until the test ends.
func newProxy(t *testing.T, upstream string) *toxiproxy.Proxy {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := toxiproxy.NewProxy(server, "before "+upstream, harness.FreeAddr(t), upstream)
	startProxy(t, p)
	t.Cleanup(p.Stop)
	return p
}

func startProxy(t *testing.T, p *toxiproxy.Proxy) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) work() *harness.Process {
	return harness.Start(c.t, "run", "run", "--config", c.file)
}

func (c *cluster) addr(id string) string { return c.byID[id].Addr }

func (c *cluster) shard(id, primary string, replicas ...string) sink.Shard {
	s := sink.Shard{ID: id, Weight: 1, Primary: sink.Node{Addr: c.addr(primary), Zone: "a"}}
	for _, r := range replicas {
		s.Replicas = append(s.Replicas, sink.Replica{Addr: c.addr(r), Zone: "b"})
	}
	return s
}

// --- what the cluster manager does ---

// promote publishes a record under which a shard has other nodes, and returns when it stands in etcd.
func (c *cluster) promote(shard, primary string, replicas ...string) (since time.Time) {
	c.t.Helper()
	return c.publish(c.with(shard, primary, replicas...), nil)
}

// with are the shards that stand, one of them on other nodes.
func (c *cluster) with(shard, primary string, replicas ...string) []sink.Shard {
	shards := slices.Clone(c.ring.Shards)
	shards[slices.IndexFunc(shards, func(s sink.Shard) bool { return s.ID == shard })] = c.shard(shard, primary, replicas...)
	return shards
}

func (c *cluster) publish(shards []sink.Shard, previous *sink.Previous) (since time.Time) {
	c.t.Helper()
	c.ring = sink.Record{At: time.Now().UTC(), Shards: shards, Previous: previous}
	c.Publish(c.ring)
	return time.Now()
}

// --- keys, and what copies hold ---

// of are the keys of a pool that a shard owns.
func (c *cluster) of(pool, shard string) []string { return ownedBy(c.ring.Shards, pool, shard, c.rows) }

func ownedBy(shards []sink.Shard, pool, shard string, rows int) (keys []string) {
	ring := sink.NewRing(shards)
	for i := range rows {
		if key := fmt.Sprintf("%s:%d", pool, i); shards[ring.Owner(sink.Hash(key))].ID == shard {
			keys = append(keys, key)
		}
	}
	return keys
}

// change writes a change of the rows of these keys, which are of pool item, and waits until every copy that can be reached is deleted.
func (c *cluster) change(keys ...[]string) {
	c.t.Helper()
	c.world.change(rowsOf(keys...)...)
	c.AwaitDone(c.topic)
}

func rowsOf(keys ...[]string) (rows []int) {
	for _, key := range slices.Concat(keys...) {
		var row int
		if _, err := fmt.Sscanf(key, "item:%d", &row); err != nil {
			panic(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// put stores old values under keys on a node, as a replica would have them that was behind, or a node that was away.
func (c *cluster) put(node string, keys ...[]string) {
	c.t.Helper()
	all := slices.Concat(keys...)
	if len(all) < 10 {
		c.t.Fatalf("%d keys of a shard prove little", len(all))
	}
	c.store(node, all)
	c.kept[node] = slices.DeleteFunc(c.kept[node], func(key string) bool { return slices.Contains(all, key) })
}

// keep stores values that must stay: of other shards, of pools that nothing happens to, and of nobody.
func (c *cluster) keep(node string, keys ...[]string) {
	c.t.Helper()
	all := slices.Concat(keys...)
	c.store(node, all)
	c.kept[node] = append(c.kept[node], all...)
}

func (c *cluster) store(node string, keys []string) {
	c.t.Helper()
	if err := c.conns[c.addr(node)].SetAll(keys, "value"); err != nil {
		c.t.Fatal(err)
	}
}

// mayGo gives up what must stay of a pool, where something happens to it now.
func (c *cluster) mayGo(pool string) {
	for node, keys := range c.kept {
		c.kept[node] = slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, pool+":") })
	}
}

func (c *cluster) checkKept() {
	c.t.Helper()
	for node, keys := range c.kept {
		if there := c.there(node, keys); len(there) != len(keys) {
			gone := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return slices.Contains(there, key) })
			c.t.Errorf("%s: %d keys are gone that had nothing to do with it: %q", node, len(gone), gone[:min(10, len(gone))])
		}
	}
}

func (c *cluster) there(node string, keys []string) []string {
	c.t.Helper()
	present, err := c.conns[c.addr(node)].Present(keys)
	if err != nil {
		c.t.Fatal(err)
	}
	return present
}

// awaitGone waits until none of the keys is left on a node, and says how long after since. It asks for no key again that is gone: each would be a miss, which the
// guard of a flush counts.
func (c *cluster) awaitGone(since time.Time, node string, keys ...[]string) time.Duration {
	c.t.Helper()
	left := slices.Concat(keys...)
	harness.AwaitQuick(c.t, "stale values on "+node+" to go", func() (bool, string) {
		left = c.there(node, left)
		return len(left) == 0, fmt.Sprintf("%d are left: %q", len(left), left[:min(10, len(left))])
	})
	return time.Since(since)
}

// --- what the workers say ---

// awaitActed waits until every partition has acted on the record that stands: what follows from it is in the partitions' debts, and flushes are asked for.
func (c *cluster) awaitActed() {
	c.t.Helper()
	harness.Await(c.t, fmt.Sprintf("all partitions to act on epoch %d", c.Epoch()), func() (bool, string) {
		commits, err := c.Commits(c.t.Context())
		if err != nil {
			return false, err.Error()
		}
		var behind []string
		ours := 0
		for _, s := range commits {
			var state struct{ Acted struct{ Epochs []int64 } }
			if err := json.Unmarshal(s.State, &state); err != nil {
				c.t.Fatal(err)
			}
			if s.Topic == c.topic {
				ours++
			}
			if !slices.Contains(state.Acted.Epochs, c.Epoch()) {
				behind = append(behind, fmt.Sprintf("%s/%d: %v", s.Topic, s.Partition, state.Acted.Epochs))
			}
		}
		return ours == 4 && len(behind) == 0, fmt.Sprintf("%d partitions; %q", ours, behind)
	})
}

// awaitDone waits until nothing that follows from the record that stands is left to be issued.
func (c *cluster) awaitDone() {
	c.t.Helper()
	c.awaitActed()
	c.AwaitPaid()
}

func (c *cluster) awaitOwed(what string) {
	c.t.Helper()
	harness.Await(c.t, "a debt of "+what, func() (bool, string) {
		owed, err := c.Owed(c.t.Context())
		return slices.ContainsFunc(owed, func(line string) bool { return strings.Contains(line, what) }), fmt.Sprint(owed, err)
	})
}

// promoted are the shards that are told as promoted, with the replay of what was issued, between the last record and the one before.
func (c *cluster) promoted() (shards []string) {
	c.t.Helper()
	progress, _ := c.told(fmt.Sprintf("epoch/%d-%d", c.Epoch()-1, c.Epoch()))
	for _, p := range progress {
		shards = append(shards, p.Shards...)
	}
	slices.Sort(shards)
	return slices.Compact(shards)
}
