package pipeline

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"invalidator/sink"
	"invalidator/sink/registry"
	"invalidator/sink/registry/registrytest"
)

// modelLagOfClients is how long a client may take to see a ring record: cache.ring.lag.
const modelLagOfClients = 5 * time.Second

// modelRing is a ring record.
type modelRing struct {
	epoch    int64
	at       time.Time
	record   *sink.Record
	shards   map[string][]string // by id: nodes, the primary first
	previous map[string][]string // nil: there is none
	seeding  string              // the replica that is being seeded; empty: none
	now, old *sink.Topology      // of shards, of previous
}

func newModelRing(epoch int64, shards, previous map[string][]string, seeding string) *modelRing {
	r := &modelRing{epoch: epoch, at: time.Now(), shards: shards, previous: previous, seeding: seeding}
	text := record(epoch, r.write(shards))
	r.now = topologyOf(text)
	if previous != nil {
		r.old = topologyOf(record(epoch, r.write(previous)))
		text = resizing(text, epoch-1, r.write(previous))
	}
	r.record = topologyOf(written(r.at, text)).Record()
	return r
}

// write writes shards as record reads them.
func (r *modelRing) write(shards map[string][]string) string {
	var all []string
	for _, id := range slices.Sorted(maps.Keys(shards)) {
		nodes := slices.Clone(shards[id])
		for i, n := range nodes {
			if nodes[i] = strings.TrimSuffix(n, ":1"); i > 0 && n == r.seeding {
				nodes[i] += "*"
			}
		}
		all = append(all, id+"="+strings.Join(nodes, ","))
	}
	return strings.Join(all, " ")
}

func topologyOf(text string) *sink.Topology {
	rec, err := sink.ParseRecord("ring.json", []byte(text))
	if err != nil {
		panic(fmt.Sprintf("%v: %s", err, text))
	}
	t, err := sink.NewTopology(rec)
	if err != nil {
		panic(err)
	}
	return t
}

// nodesOf are the nodes that hold a text, the primary first.
func nodesOf(t *sink.Topology, text string) (nodes []string) {
	for _, c := range t.AppendCopies(nil, text, 0) {
		nodes = append(nodes, c.Node)
	}
	return nodes
}

// copiesTo are the replicas to which a node copies.
func (r *modelRing) copiesTo(node string) (replicas []string) {
	for _, shards := range []map[string][]string{r.shards, r.previous} {
		for _, nodes := range shards {
			if nodes[0] != node {
				continue
			}
			for _, n := range nodes[1:] {
				if !slices.Contains(replicas, n) {
					replicas = append(replicas, n)
				}
			}
		}
	}
	slices.Sort(replicas)
	return replicas
}

func (r *modelRing) has(node string) bool {
	for _, shards := range []map[string][]string{r.shards, r.previous} {
		for _, nodes := range shards {
			if slices.Contains(nodes, node) {
				return true
			}
		}
	}
	return false
}

// ring is the newest.
func (w *world) ring() *modelRing { return w.rings[len(w.rings)-1] }

// owners are the nodes of a text today: the primary and, where there is one, a replica, else the primary again.
func (w *world) owners(text string) [2]string {
	nodes := nodesOf(w.ring().now, text)
	return [2]string{nodes[0], nodes[len(nodes)-1]}
}

// publish has the manager write the next record.
func (w *world) publish(shards, previous map[string][]string, seeding, why string) {
	w.rings = append(w.rings, newModelRing(w.ring().epoch+1, shards, previous, seeding))
	for replica := range w.copying { // who copies to nobody, or to another, takes with it what was under way
		if from := w.source[replica]; !slices.Contains(w.ring().copiesTo(from), replica) {
			delete(w.copying, replica)
		}
	}
	w.tell("epoch %d: %s: %s, previous %s", w.ring().epoch, why, w.ring().write(shards), w.ring().write(previous))
}

func cloned(shards map[string][]string) map[string][]string {
	c := map[string][]string{}
	for id, nodes := range shards {
		c[id] = slices.Clone(nodes)
	}
	return c
}

// free are the nodes that are up and in no shard, in any order; often one that holds something comes first.
func (w *world) free() (nodes []string) {
	for _, n := range modelNodes {
		if !w.ring().has(n) && w.nodes[n].up {
			nodes = append(nodes, n)
		}
	}
	w.r.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	if w.r.IntN(2) == 0 {
		slices.SortStableFunc(nodes, func(a, b string) int { return len(w.nodes[b].store) - len(w.nodes[a].store) })
	}
	return nodes
}

// shardOf is the shard that holds a text today.
func (w *world) shardOf(text string) string {
	_, id := w.ring().now.Locate(text)
	return id
}

// modelRingFaults are the changes of the ring that a run may have.
var modelRingFaults = []string{"promote", "replace", "resize"}

// changeRing does one of what a manager may do. One in three records follows another so soon that hardly anybody sees the first.
func (w *world) changeRing() {
	var may []func() bool
	for i, do := range []func() bool{w.promote, w.replace, w.resize} {
		if w.on[modelRingFaults[i]] {
			may = append(may, do)
		}
	}
	if len(may) == 0 {
		return
	}
	if may[w.r.IntN(len(may))]() && w.on["skip"] && w.r.IntN(3) > 0 {
		may[w.r.IntN(len(may))]()
	}
}

func (w *world) promote() bool { return w.promoteIn(w.shardOf(modelText(w.key(), 0))) }

// promoteIn makes a shard's replica its primary, if it is up and not behind. The former one is its replica then, or goes.
func (w *world) promoteIn(id string) bool {
	ring := w.ring()
	nodes := ring.shards[id]
	if len(nodes) < 2 || !w.nodes[nodes[1]].up || ring.seeding == nodes[1] {
		return false
	}
	replica := nodes[1]
	if q := w.copying[replica]; len(q) > 0 && time.Since(q[0].at) > modelReplica {
		return false
	}
	shards, previous := cloned(ring.shards), cloned(ring.previous)
	now := []string{replica}
	switch w.r.IntN(3) {
	case 0:
		now = append(now, nodes[0])
	case 1:
		if free := w.free(); len(free) > 0 {
			now = append(now, free[0])
		}
	}
	shards[id] = now
	if _, was := previous[id]; was {
		previous[id] = now
	}
	if ring.previous == nil {
		previous = nil
	}
	w.publish(shards, previous, ring.seeding, "promotion in "+id)
	return true
}

// replace has a replica go, or another node come in its place or where there was none, with what it held, if it ever was of the ring.
func (w *world) replace() bool {
	ring := w.ring()
	if ring.previous != nil || ring.seeding != "" {
		return false
	}
	ids := slices.Sorted(maps.Keys(ring.shards))
	id := ids[w.r.IntN(len(ids))]
	if w.r.IntN(2) == 0 {
		id = w.shardOf(modelText(w.key(), 0))
	}
	shards, free := cloned(ring.shards), w.free()
	nodes := shards[id][:1]
	if w.r.IntN(3) > 0 && len(free) > 0 {
		nodes = append(nodes, free[0])
	}
	if len(nodes) == len(shards[id]) && len(nodes) == 1 {
		return false
	}
	shards[id] = nodes
	w.publish(shards, nil, "", "another replica of "+id)
	return true
}

// resize begins or ends one. It begins when no client has an older record than the last, and no replica is seeded.
func (w *world) resize() bool {
	ring := w.ring()
	switch {
	case ring.previous != nil:
		w.publish(ring.shards, nil, ring.seeding, "previous goes")
		return true
	case ring.seeding != "" || slices.ContainsFunc(w.clients[:], func(c modelClient) bool { return c.ring < len(w.rings)-1 }):
		return false
	}
	shards := cloned(ring.shards)
	if _, grown := shards["s2"]; grown {
		delete(shards, "s2")
		w.publish(shards, ring.shards, "", "s2 leaves")
		return true
	}
	free := w.free()
	if len(free) == 0 {
		return false
	}
	shards["s2"] = free[:1+w.r.IntN(min(2, len(free)))]
	w.publish(shards, ring.shards, "", "s2 joins")
	return true
}

// modelRegistry is what one process knows of the ring.
type modelRegistry struct {
	*registry.Etcd
	saved     int // of world.saved
	confirmed time.Time
	hot       int // revision
}

func newModelRegistry() *modelRegistry {
	opts := registry.Options{MaxTTL: 24 * time.Hour, Lag: modelLagOfClients}
	return &modelRegistry{Etcd: registry.NewEtcd(registry.EtcdConfig{}, opts, slog.New(slog.NewTextHandler(io.Discard, nil)))}
}

// follow has a process see what etcd holds, if it reaches it, and what others have written down. It reports whether there is anything new.
func (w *world) follow(g *modelRegistry, reaches bool) (news bool) {
	often := 8 // of steps; whoever is cut off may be so from the state topic too
	if !reaches {
		often = 120
	}
	if g.saved < len(w.saved) && (g.View() == nil || w.r.IntN(often) == 0) {
		g.Feed(registry.Saved{Sights: w.saved[g.saved:]})
		g.saved, news = len(w.saved), true
	}
	if !reaches {
		return news
	}
	ring := w.ring()
	if v := g.View(); v == nil || v.Topology.Epoch() < ring.epoch {
		s := registry.Sight{Record: ring.record, Seen: time.Now()}
		if !slices.ContainsFunc(w.saved, func(o registry.Sight) bool { return o.Record.Epoch == ring.epoch }) {
			w.saved = append(w.saved, s)
		}
		g.Feed(registry.Saved{Sights: []registry.Sight{s}})
		news = true
	}
	if time.Since(g.confirmed) > time.Second && g.View().Topology.Epoch() == ring.epoch {
		g.confirmed, news = time.Now(), true
	}
	return news
}

// see puts up what a process knows.
func (w *world) see(g *modelRegistry, views *registrytest.Views) {
	v := *g.View()
	v.Confirmed = g.confirmed
	v.Hot = sink.NewHotKeysOf(int64(g.hot), int64(g.hot), w.hot[g.hot])
	views.Store(&v)
}

// modelFlush is what is to be flushed: what nodes gained under an epoch while another was seen by nobody.
type modelFlush struct {
	epoch  int64
	record *sink.Record
	gained []sink.Gain
	again  time.Time // when the next round is
	rounds int       // that are left
}

// modelFlusher takes requests for flushes; the world carries them out, once each.
type modelFlusher struct {
	mu  sync.Mutex
	got map[int64]*modelFlush
}

// Flush implements RingFlusher.
func (f *modelFlusher) Flush(_ context.Context, acted []int64, v *registry.View) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, e := range v.Epochs() {
		gained := v.Gained(e)
		if slices.Contains(acted, e) || f.got[e] != nil || len(gained) == 0 {
			continue
		}
		f.got[e] = &modelFlush{epoch: e, record: v.Sights[i].Record, gained: gained, again: time.Now(), rounds: 4}
	}
	return nil
}

// flushSome carries out what is due, of all nodes together when they are up.
func (w *world) flushSome() {
	for _, e := range slices.Sorted(maps.Keys(w.flusher.got)) {
		f := w.flusher.got[e]
		if f.rounds == 0 || time.Now().Before(f.again) || slices.ContainsFunc(f.gained, func(g sink.Gain) bool { return !w.nodes[g.Node].up && !w.nodes[g.Node].dead }) {
			continue
		}
		for _, g := range f.gained {
			n := w.nodes[g.Node]
			for _, k := range modelKeys {
				for i := range modelHot + 1 {
					text := modelText(k, i)
					if slices.ContainsFunc(g.Ranges, func(r sink.HashRange) bool { return r.Has(f.record.Place(text)) }) {
						w.put(n, text, modelDelete, fmt.Sprint("flushed, gained/", e))
					}
				}
			}
		}
		f.rounds, f.again = f.rounds-1, time.Now().Add(modelSettle)
	}
}

// unflushed reports whether flushes are under way.
func (w *world) unflushed() bool {
	for _, f := range w.flusher.got {
		if f.rounds > 0 {
			return true
		}
	}
	return false
}
