//go:build integration

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// world is a shop on one or more databases, its cache, and everybody around it.
type world struct {
	t        testing.TB
	settle   time.Duration
	shops    []*shop
	dbs      []*harness.Database
	nodes    map[string]*harness.Node
	pipeline *harness.Pipeline
	ring     atomic.Pointer[ring] // what clients read
	trail    *trail
	stats    stats
	racers   errgroup.Group // readers in a race with a writer; they end by themselves
	calm     atomic.Bool    // nothing is written any more: readers read everything
	progress func() float64 // 0 to 1: where the window of rows is that are written and read most
}

// stats count the work that was done.
type stats struct {
	rolledBack, refusedByDB              atomic.Int64 // transactions
	hits, plain, leased, refused, behind atomic.Int64 // reads that found a value, fills by kind, lost leases, leases that another holds
	carried, raced, late                 atomic.Int64 // fills from the old owner, fills of a row read just before its change, fills that broke the contract
}

// ring is a ring record as clients use it.
type ring struct {
	record      sink.Record
	now, before *sink.Ring // before is nil while nothing is resized
	carry       bool       // values may be carried from old owners to new ones
}

func newRing(r sink.Record) *ring {
	out := &ring{record: r, now: sink.NewRing(r.Shards)}
	if r.Previous != nil {
		out.before = sink.NewRing(r.Previous.Shards)
	}
	return out
}

// owners are the nodes of a name's owner: primary first.
func owners(r *sink.Ring, shards []sink.Shard, name string) []string {
	s := shards[r.Owner(sink.Hash(name))]
	out := []string{s.Primary.Addr}
	for _, r := range s.Replicas {
		out = append(out, r.Addr)
	}
	return out
}

func (r *ring) owners(name string) []string { return owners(r.now, r.record.Shards, name) }

// oldOwners are empty while nothing is resized.
func (r *ring) oldOwners(name string) []string {
	if r.before == nil {
		return nil
	}
	return owners(r.before, r.record.Previous.Shards, name)
}

// shards puts nodes in pairs: a primary and its replica.
func shards(nodes []*harness.Node) []sink.Shard {
	var out []sink.Shard
	for i := 0; i+1 < len(nodes); i += 2 {
		out = append(out, sink.Shard{
			ID: fmt.Sprintf("s%02d", i/2), Weight: 1,
			Primary:  sink.Node{Addr: nodes[i].Addr, Zone: "a"},
			Replicas: []sink.Replica{{Addr: nodes[i+1].Addr, Zone: "b"}},
		})
	}
	return out
}

// newWorld makes a shop on each kind of database and as many nodes, the first used of which are in the ring. No process runs yet.
func newWorld(t testing.TB, settle time.Duration, nodes, used int, kinds ...harness.Kind) *world {
	t.Helper()
	w := &world{t: t, settle: settle, nodes: map[string]*harness.Node{}, trail: newTrail(), progress: func() float64 { return 0 }}
	files := map[string]string{}
	for _, kind := range kinds {
		s := newShop(t, kind)
		w.shops, w.dbs = append(w.shops, s), append(w.dbs, s.Database)
		files[string(kind)+".yaml"] = s.mappings()
	}
	all := harness.StartNodes(t, nodes)
	for _, n := range all {
		w.nodes[n.Addr] = n
	}
	record := sink.Record{Shards: shards(all[:used])}
	w.pipeline = harness.New(t, harness.Options{Databases: w.dbs, Mappings: files, Record: record, Settle: settle})
	for _, s := range w.shops {
		for _, k := range s.registryHot() {
			w.pipeline.Hot(k, hot)
		}
	}
	w.ring.Store(newRing(record))
	return w
}

// resize publishes a ring of all nodes, whose previous is the one that stands.
func (w *world) resize(nodes []*harness.Node) *ring {
	record := sink.Record{Shards: shards(nodes), Previous: &sink.Previous{Shards: w.ring.Load().record.Shards}}
	w.pipeline.Publish(record)
	return newRing(record)
}

// stale is a copy that differs from its row.
type stale struct {
	key        *key
	node, name string
	has, want  string
}

// check compares every copy of every key on every node with its row. Nothing may write or fill meanwhile.
func (w *world) check() (checked, present int, found []stale) {
	w.t.Helper()
	for _, s := range w.shops {
		for _, k := range s.keys {
			want, err := k.render(context.Background())
			if err != nil {
				w.t.Fatal(err)
			}
			for _, name := range k.names() {
				for addr, node := range w.nodes {
					hit, err := node.Get(name)
					if err != nil {
						w.t.Fatalf("reading %s of %s: %v", name, addr, err)
					}
					checked++
					if !hit.Found {
						continue
					}
					present++
					if hit.Value != want {
						found = append(found, stale{k, addr, name, hit.Value, want})
					}
				}
			}
		}
	}
	return checked, present, found
}

func (s stale) String() string {
	return fmt.Sprintf("node %s, key %s\n    is cached:   %s\n    row renders: %s", s.node, s.name, s.has, s.want)
}

// report fails the test with the stories of stale copies.
func (w *world) report(found []stale) {
	w.t.Helper()
	const stories = 5
	for _, s := range found[:min(stories, len(found))] {
		w.t.Errorf("a stale copy: %s\n%s", s, w.trail.story(s))
	}
	if more := len(found) - stories; more > 0 {
		w.t.Errorf("and %d stale copies more", more)
	}
}

// pick chooses a key: mostly one in the window.
func (w *world) pick(rng *rand.Rand) *key {
	s := w.shops[rng.IntN(len(w.shops))]
	if w.calm.Load() || rng.IntN(8) == 0 {
		return s.keys[rng.IntN(len(s.keys))]
	}
	first := w.progress() * (1 - window)
	for {
		if k := s.keys[rng.IntN(len(s.keys))]; k.pos >= first && k.pos <= first+window+0.03 {
			return k
		}
	}
}

// window is the part of the rows that is written at a time.
const window = 0.15

// id chooses a row of the window, of n.
func (w *world) id(rng *rand.Rand, n int) int {
	width := max(2, int(float64(n)*window))
	first := int(w.progress() * float64(n-width))
	return min(n, 1+first+rng.IntN(width))
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 0)) }

// spell writes a text in upper and lower case at random.
func spell(rng *rand.Rand, s string) string {
	return strings.Map(func(r rune) rune {
		if rng.IntN(2) == 0 {
			return []rune(strings.ToUpper(string(r)))[0]
		}
		return []rune(strings.ToLower(string(r)))[0]
	}, s)
}
