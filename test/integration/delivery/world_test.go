//go:build integration

package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

const (
	inGroup = 5 // items, one with another, of a group
	hotStep = 7 // every so many items may become hot by the registry
	hotMost = 8 // copies of such a one
	hotHere = 2 // copies of every group, by its mapping
)

// world is a table, its cache, and everybody around it.
type world struct {
	t       testing.TB
	settle  time.Duration
	db      *harness.Database
	p       *harness.Pipeline
	nodes   []*node // in pairs, then those of no shard at first
	byAddr  map[string]*node
	rings   rings
	rows    int
	keys    map[string]*key
	trail   *trail
	hot     *registry
	version atomic.Int64
	stats   stats
	proxies proxies

	progress func() float64 // 0 to 1: where the window of rows is that are written and read most
	held     held
	recent   recent
	seen     []*ring // records that workers have seen; nil: all
}

// stats count the work that was done.
type stats struct {
	committed, refusedByDB                     atomic.Int64 // transactions
	hits, plain, leased, void, behind, late    atomic.Int64 // reads that found a value; fills by kind; leases that were lost, that another held; fills that broke the contract
	away, heldFills, heldVoid, unknown, warmed atomic.Int64 // reads of nodes that are away; what the longest stallers filled, and could not; fills without an answer; nodes that kept their memory
	carried, seeded, lagging, unseen           atomic.Int64 // fills with what an old owner had, what the copier of a new replica had, what a lagging one had; and under a record that nobody saw
}

// options are what a test chooses of its world.
type options struct {
	pairs  int // of nodes: primary and replica
	shards int // of each pair; default 1
	spare  int // nodes of no shard at first
	rows   int // that items may have
	settle time.Duration
	kafka  string // host:port of a broker; default ./dev's
}

// newWorld makes the table, the nodes and the ring. No process of the pipeline runs yet.
func newWorld(t testing.TB, o options) *world {
	t.Helper()
	w := &world{
		t: t, settle: o.settle, rows: o.rows, db: harness.NewDatabase(t, harness.MySQL), keys: map[string]*key{},
		trail: newTrail(), hot: &registry{now: map[string]int{}, most: map[string]int{}},
		proxies: newProxies(), progress: func() float64 { return 0 }, byAddr: map[string]*node{},
	}
	w.db.Do(t, `CREATE TABLE items (id INT PRIMARY KEY, grp INT NOT NULL, ver BIGINT NOT NULL, KEY (grp))`)
	for i, n := range harness.StartKeepingNodes(t, 2*o.pairs+o.spare) {
		own := &node{Node: n, name: fmt.Sprintf("node %d", i), zone: zones[i%2], proxy: w.proxies.add(t, n.Addr), pool: make(chan *harness.Conn, 128)}
		w.nodes = append(w.nodes, own)
		w.byAddr[own.addr()] = own
		t.Cleanup(own.close)
	}
	record := sink.Record{Epoch: 1}
	perPair := max(1, o.shards)
	for i := range o.pairs * perPair {
		pair := w.nodes[i/perPair*2:]
		record.Shards = append(record.Shards, shardOn(shardID(i), pair[0], pair[1]))
	}
	w.p = harness.New(t, harness.Options{
		Databases: []*harness.Database{w.db}, Record: record, Settle: o.settle, Kafka: o.kafka,
		Mappings: map[string]string{"items.yaml": fmt.Sprintf(`
version: 1
team: items
contact: "#items"
pools: [item, group]
mappings:
  - name: items
    table: %s.items
    keys: ["item:{id}", {key: "group:{grp}", hot: %d}]
`, w.db.Schema, hotHere)},
	})
	w.rings.add(newRing(record, time.Now()))
	for id := 1; id <= o.rows; id++ {
		w.addKey(itemKey(id), 0, fmt.Sprintf(`SELECT id, grp, ver FROM items WHERE id = %d`, id))
	}
	for g := range groupOf(o.rows) + 1 {
		w.addKey(groupKey(g), hotHere, fmt.Sprintf(`SELECT id, grp, ver FROM items WHERE grp = %d ORDER BY id`, g))
	}
	return w
}

// workerFile is a configuration of workers with a proxy of their own before etcd, and other brokers where some are named.
func (w *world) workerFile(name, etcd string, brokers ...string) string {
	w.t.Helper()
	oldnew := []string{
		services.Addr("ETCD"), etcd,
		"/hot/}", fmt.Sprintf("/hot/}, lag: %s", ringLag),
		"mappings:", fmt.Sprintf("replay: {window: %s, flush: {refill: 1s}}\nmappings:", replayWindow),
	}
	if len(brokers) > 0 {
		oldnew = append(oldnew, w.p.Kafka, strings.Join(brokers, `", "`))
	}
	return w.p.Variant(name, oldnew...)
}

func itemKey(id int) string  { return fmt.Sprintf("item:%d", id) }
func groupKey(g int) string  { return fmt.Sprintf("group:%d", g) }
func groupOf(id int) int     { return id / inGroup }
func (w *world) groups() int { return groupOf(w.rows) + 1 }

// key is one key of the cache and the query that renders its value.
type key struct {
	text   string
	query  string
	copies int // by the mapping
}

func (w *world) addKey(text string, copies int, query string) {
	w.keys[text] = &key{text: text, query: query, copies: copies}
}

// names are the plain name and those of n copies.
func (k *key) names(n int) []string {
	out := []string{k.text}
	for i := 1; i <= max(n, k.copies); i++ {
		out = append(out, fmt.Sprintf("%s#%d", k.text, i))
	}
	return out
}

// none is what readers store for rows that are not there.
const none = "none"

// render is the value that a reader stores. Every change of a row raises its version, so that no two states of a row render the same.
func (w *world) render(ctx context.Context, k *key) (string, error) {
	rows, err := w.db.QueryContext(ctx, k.query)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var id, group, version int64
		if err := rows.Scan(&id, &group, &version); err != nil {
			return "", err
		}
		out = append(out, fmt.Sprintf("%d|%d|%d", id, group, version))
	}
	if len(out) == 0 {
		return none, rows.Err()
	}
	return strings.Join(out, ";"), rows.Err()
}

// window is how many rows are written at a time. It passes a row sooner than most faults do, so that many keys see their last change
// while one stands: no later change heals what is left out.
const window = 100

// id chooses a row of the window.
func (w *world) id(rng *rand.Rand) int {
	width := min(window, w.rows)
	return 1 + int(w.progress()*float64(w.rows-width)) + rng.IntN(width)
}

// ahead is the row so many rows behind the beginning of the window: in it, or before it comes.
func (w *world) ahead(rows int) int {
	return min(w.rows, 1+int(w.progress()*float64(w.rows-window))+rows)
}

// pick chooses a key to read: mostly of the window, else any.
func (w *world) pick(rng *rand.Rand) *key {
	id := w.id(rng)
	if rng.IntN(8) == 0 {
		id = 1 + rng.IntN(w.rows)
	}
	switch rng.IntN(4) {
	case 0:
		return w.keys[groupKey(groupOf(id))]
	case 1: // those that may be hot
		return w.keys[itemKey(max(hotStep, id-id%hotStep))]
	}
	return w.keys[itemKey(id)]
}

// registry is what clients know of hot keys. A client may hold what was said before.
type registry struct {
	mu        sync.Mutex     // guards what follows
	now, most map[string]int // copies of a key
}

func (r *registry) set(key string, copies int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now[key], r.most[key] = copies, max(r.most[key], copies)
}

// copies is how many a client knows of: as it is said now, or by a client that has not heard of it, the most that was said.
func (r *registry) copies(key string, old bool) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old {
		return r.most[key]
	}
	return r.now[key]
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
