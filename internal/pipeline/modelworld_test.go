package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// Bounds of the model's world. A plain fill is over within modelStall of reading the row, and a commit shows within modelVisible of its
// record: together less than modelSettle, as cache.settle asks for.
const (
	modelSettle  = 3 * time.Second
	modelStall   = 2200 * time.Millisecond // also of whoever carries a value, or seeds a replica
	modelVisible = 500 * time.Millisecond
	modelReplica = 4 * time.Second                       // a primary copies to its replicas within this
	modelLag     = 2 * time.Second                       // node.max_lag
	modelWindow  = modelReplica + modelLag + time.Second // replay.window
	modelHot     = 2                                     // copies of a hot key
)

var (
	modelKeys  = []string{"a", "b", "f"} // the last moves to the shard that joins
	modelNodes = []string{"n1:1", "n2:1", "n3:1", "n4:1", "n5:1", "n6:1", "n7:1"}
	// modelShards are those of the first record.
	modelShards = map[string][]string{"s0": {"n1:1", "n2:1"}, "s1": {"n3:1", "n4:1"}}
)

// modelNode is a cache node. A value is the version of its key: 0 is the row before any commit.
type modelNode struct {
	name  string
	up    bool
	slow  bool
	store map[string]int
	lease map[string]int // by text: the token that may fill it
	seen  time.Time      // when it last went down, or came up
	dead  bool           // it will not come up any more
}

// modelCopy is a set (value) or a delete (-1) on its way from a primary to its replica.
type modelCopy struct {
	at    time.Time
	text  string
	value int
}

const modelDelete = -1

// modelRecord is a commit whose record is not in the log yet, or that is there.
type modelRecord struct {
	at   time.Time // when it is in the log
	part int
	keys []string
	made map[string]int // by key: the version that it made
}

// world is all but the workers: a database and its log, nodes and how they copy, readers, the registry.
type world struct {
	*model
	visible map[string][]time.Time // by key: when each version shows
	toLog   []modelRecord
	logs    []*fakeLog
	commits [][]modelRecord // by partition, in the order of offsets
	nodes   map[string]*modelNode
	copying map[string][]modelCopy // by replica
	source  map[string]string      // of what is on its way, by replica
	fills   []*modelFill
	tokens  int

	rings   []*modelRing
	saved   []registry.Sight // that workers have written down
	flusher *modelFlusher
	seeds   []modelSeed
	hot     []map[string]sink.HotEntry // by revision
	clients [2]modelClient
}

func newWorld(m *model, parts int) *world {
	w := &world{model: m, visible: map[string][]time.Time{}, nodes: map[string]*modelNode{}, copying: map[string][]modelCopy{}, source: map[string]string{},
		rings: []*modelRing{newModelRing(1, modelShards, nil, "")}, flusher: &modelFlusher{got: map[int64]*modelFlush{}}, hot: []map[string]sink.HotEntry{{}}}
	for _, n := range modelNodes {
		w.nodes[n] = &modelNode{name: n, up: true, store: map[string]int{}, lease: map[string]int{}}
	}
	for range parts {
		w.logs = append(w.logs, &fakeLog{})
	}
	w.commits = make([][]modelRecord, parts)
	return w
}

// text is a key's name in the cache, or its nth copy's.
func modelText(key string, n int) string {
	if n == 0 {
		return "user:" + key
	}
	return fmt.Sprintf("user:%s#%d", key, n)
}

func modelKeyOf(text string) string {
	key, _, _ := strings.Cut(strings.TrimPrefix(text, "user:"), "#")
	return key
}

// put sets a text on a node that is up, or deletes it. A primary copies it on, later; to a replica that is being seeded it does so once it
// is.
func (w *world) put(n *modelNode, text string, value int, why string) {
	delete(n.lease, text)
	if value == modelDelete {
		delete(n.store, text)
	} else {
		n.store[text] = value
	}
	w.tell("%s: %s = %d (%s)", n.name, text, value, why)
	if why == "copied" {
		return
	}
	for _, r := range w.ring().copiesTo(n.name) {
		if r != w.ring().seeding {
			w.copying[r], w.source[r] = append(w.copying[r], modelCopy{time.Now(), text, value}), n.name
		}
	}
}

func (w *world) copyOne(replica string) {
	q := w.copying[replica]
	w.copying[replica] = q[1:]
	w.put(w.nodes[replica], q[0].text, q[0].value, "copied")
}

// commit changes one row, and returns its keys. One in five moves it from one key to another.
func (w *world) commit() []string {
	keys := []string{w.key()}
	if w.r.IntN(5) == 0 {
		if other := modelKeys[w.r.IntN(len(modelKeys))]; other != keys[0] {
			keys = append(keys, other)
		}
	}
	shows := time.Now().Add(w.upTo(modelVisible))
	for _, k := range keys {
		if vs := w.visible[k]; len(vs) > 0 && vs[len(vs)-1].After(shows) {
			return nil // the row is locked by the one before
		}
	}
	for _, k := range keys {
		w.visible[k] = append(w.visible[k], shows)
	}
	c := modelRecord{at: time.Now(), part: int(keys[0][0]) % len(w.logs), keys: keys, made: map[string]int{}}
	for _, k := range keys {
		c.made[k] = len(w.visible[k])
	}
	w.toLog = append(w.toLog, c)
	w.tell("commit of %v, version %d of %s, shows in %s", keys, len(w.visible[keys[0]]), keys[0], time.Until(shows))
	return keys
}

func (w *world) key() string {
	if w.r.Float64() < 0.7 {
		return modelKeys[w.focus]
	}
	return modelKeys[w.r.IntN(len(modelKeys))]
}

// appendLog puts what was committed into the log.
func (w *world) appendLog() {
	for _, c := range w.toLog {
		u := update(fmt.Sprint(len(w.commits[c.part])), c.keys[0], c.keys[len(c.keys)-1])
		key, value, err := envelope.Encode(u, envelope.Options{}, nil)
		if err != nil {
			panic(err)
		}
		w.logs[c.part].add(changelog.Record{Offset: int64(len(w.commits[c.part])), Time: time.Now(), Key: key, Value: value})
		w.commits[c.part] = append(w.commits[c.part], c)
	}
	w.toLog = nil
}

// row is the version of a key that a reader sees.
func (w *world) row(key string) int {
	n := 0
	for _, at := range w.visible[key] {
		if !at.After(time.Now()) {
			n++
		}
	}
	return n
}

// changeHot makes a key hot, hotter, less hot or not hot.
func (w *world) changeHot() {
	last := w.hot[len(w.hot)-1]
	next := maps.Clone(last)
	key, revision := modelText(w.key(), 0), int64(len(w.hot))
	was, n := next[key], w.r.IntN(modelHot+1)
	if was.Copies == n {
		return
	}
	next[key] = sink.HotEntry{Copies: n, Revision: revision, Most: max(was.Most, n)}
	w.hot = append(w.hot, next)
	w.tell("hot registry %d: %s has %d copies", revision, key, n)
}

// tick is what happens by itself: within its bound, or at random before.
func (w *world) tick() {
	now := time.Now()
	w.appendLog()
	w.flushSome()
	w.fills = slices.DeleteFunc(w.fills, func(f *modelFill) bool {
		must := f.token == 0 && f.value >= 0 && now.Sub(f.read) > modelStall-200*time.Millisecond
		slow := f.value >= 0 && w.r.Float64() < 0.9
		if !must && slow {
			return false
		}
		return w.fill(f)
	})
	for _, r := range slices.Sorted(maps.Keys(w.copying)) {
		for len(w.copying[r]) > 0 && w.nodes[r].up && (now.Sub(w.copying[r][0].at) > modelReplica-200*time.Millisecond || w.r.Float64() < w.copies) {
			w.copyOne(r)
		}
	}
	for c := range w.clients {
		w.clients[c].learn(w)
	}
}

// stale is what a reader could read and is not the row: on today's nodes, and on those under previous.
func (w *world) stale() (bad []string) {
	for _, key := range modelKeys {
		for n := range w.hot[len(w.hot)-1][modelText(key, 0)].Copies + 1 {
			text := modelText(key, n)
			nodes := nodesOf(w.ring().now, text)
			if w.ring().old != nil {
				nodes = append(nodes, nodesOf(w.ring().old, text)...)
			}
			for _, node := range nodes {
				if v, has := w.nodes[node].store[text]; has && !w.nodes[node].dead && v != len(w.visible[key]) {
					bad = append(bad, fmt.Sprintf("%s holds %s at version %d, the row is at %d", node, text, v, len(w.visible[key])))
				}
			}
		}
	}
	return bad
}
