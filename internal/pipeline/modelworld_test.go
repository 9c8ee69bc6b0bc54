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
	modelStall   = 2200 * time.Millisecond // also of whoever seeds a replica
	modelVisible = 500 * time.Millisecond
	modelReplica = 4 * time.Second                       // a primary copies to its replicas within this
	modelLag     = 2 * time.Second                       // node.max_lag
	modelWindow  = modelReplica + modelLag + time.Second // replay.window
	modelHot     = 2                                     // copies of a hot key
)

var modelKeys = []string{"a", "b", "c"}

// modelNodes are the shards' primaries and replicas.
var modelShards = [][2]string{{"n1:1", "n2:1"}, {"n3:1", "n4:1"}}

// modelNode is a cache node. A value is the version of its key: 0 is the row before any commit.
type modelNode struct {
	name  string
	up    bool
	slow  bool
	store map[string]int
	lease map[string]int // by text: the token that may fill it
	seen  time.Time      // when it last went down, or came up
}

// modelCopy is a set (value) or a delete (-1) on its way from a primary to its replica.
type modelCopy struct {
	at    time.Time
	text  string
	value int
}

const modelDelete = -1

// modelFill is a reader between its miss and its set, or a seeder between its read and its write.
type modelFill struct {
	node, text string
	token      int // 0: without a lease
	value      int // -1: not read yet
	read       time.Time
}

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
	fills   []*modelFill
	tokens  int

	epoch   int64
	seeding map[int]bool // by shard
	carried time.Time    // until when what a seeder read may be under way, as a registry's view says it
	seeds   []modelSeed
	hot     []map[string]sink.HotEntry // by revision
	views   map[[2]int64]*registry.View
	clients [2]int // revision that each has
}

type modelSeed struct {
	shard int
	epoch int64 // from which on it may copy: all workers have seen that it will
	texts []string
	until time.Time // it is over no sooner
}

func newWorld(m *model, parts int) *world {
	w := &world{model: m, visible: map[string][]time.Time{}, nodes: map[string]*modelNode{}, copying: map[string][]modelCopy{}, epoch: 1,
		seeding: map[int]bool{}, hot: []map[string]sink.HotEntry{{}}, views: map[[2]int64]*registry.View{}}
	for _, s := range modelShards {
		for _, n := range s {
			w.nodes[n] = &modelNode{name: n, up: true, store: map[string]int{}, lease: map[string]int{}}
		}
	}
	for range parts {
		w.logs = append(w.logs, &fakeLog{})
	}
	w.commits = make([][]modelRecord, parts)
	return w
}

// view is what a registry that is up to date shows.
func (w *world) view() *registry.View {
	id := [2]int64{w.epoch, int64(len(w.hot) - 1)}
	if v := w.views[id]; v != nil {
		return v
	}
	var shards []string
	for i, s := range modelShards {
		shards = append(shards, fmt.Sprintf(`{"id":"s%d","weight":1,"primary":{"addr":%q},"replicas":[{"addr":%q,"seeding":%v}]}`, i, s[0], s[1], w.seeding[i]))
	}
	v := view(w.t, fmt.Sprintf(`{"epoch":%d,"kind":"points160","shards":[%s]}`, w.epoch, strings.Join(shards, ",")), nil)
	v.Hot = sink.NewHotKeysOf(id[1], id[1], w.hot[id[1]])
	v.Carried = w.carried
	w.views[id] = v
	return v
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

// owners are the primary and the replica of a text.
func (w *world) owners(text string) [2]string {
	cs := w.view().Topology.AppendCopies(nil, text, 0)
	return [2]string{cs[0].Node, cs[1].Node}
}

// shardOf is the shard of a node, and whether it is its primary.
func shardOf(node string) (shard int, primary bool) {
	for i, s := range modelShards {
		if n := slices.Index(s[:], node); n >= 0 {
			return i, n == 0
		}
	}
	panic(node)
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
	if shard, primary := shardOf(n.name); primary && why != "copied" && !w.seeding[shard] {
		r := modelShards[shard][1]
		w.copying[r] = append(w.copying[r], modelCopy{time.Now(), text, value})
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

// lateFill is a reader that has read a row just before a commit shows.
func (w *world) lateFill(text string) {
	w.fills = append(w.fills, &modelFill{node: w.owners(text)[0], text: text, value: w.row(modelKeyOf(text)), read: time.Now()})
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

// read has a client read a key: a miss begins a fill.
func (w *world) read() {
	c := w.r.IntN(len(w.clients))
	if !w.on["oldclient"] || w.r.Float64() < 0.02 {
		w.clients[c] = len(w.hot) - 1
	}
	key := w.key()
	text := modelText(key, w.r.IntN(w.hot[w.clients[c]][modelText(key, 0)].Copies+1))
	owners := w.owners(text)
	node := owners[0]
	if w.on["replicaread"] && w.r.Float64() < 0.4 {
		node = owners[1]
	}
	n := w.nodes[node]
	if _, has := n.store[text]; has || !n.up {
		return
	}
	f := &modelFill{node: node, text: text, value: -1}
	if w.on["lease"] && w.r.IntN(2) == 0 {
		if n.lease[text] != 0 {
			return
		}
		w.tokens++
		f.token, n.lease[text] = w.tokens, w.tokens
	}
	w.fills = append(w.fills, f)
}

// fill goes a step on, and reports whether it is over.
func (w *world) fill(f *modelFill) bool {
	if f.value < 0 {
		f.value, f.read = w.row(modelKeyOf(f.text)), time.Now()
		return false
	}
	if n := w.nodes[f.node]; n.up && (f.token == 0 || n.lease[f.text] == f.token) {
		w.put(n, f.text, f.value, "fill")
	}
	return true
}

// seedSome has the copiers that fill replicas read one value more.
func (w *world) seedSome(seen int64) {
	for i := range w.seeds {
		s := &w.seeds[i]
		if s.epoch > seen || len(s.texts) == 0 || w.r.IntN(8) > 0 {
			continue
		}
		text := s.texts[0]
		s.texts = s.texts[1:]
		from, to := w.nodes[modelShards[s.shard][0]], modelShards[s.shard][1]
		if v, has := from.store[text]; has && from.up {
			w.tell("a seeder reads %s = %d from %s", text, v, from.name)
			w.fills = append(w.fills, &modelFill{node: to, text: text, value: v, read: time.Now()})
		}
	}
	for i, s := range w.seeds {
		if len(s.texts) == 0 && time.Now().After(s.until) {
			w.seeds = slices.Delete(w.seeds, i, i+1)
			w.seeding[s.shard] = false
			w.epoch++
			w.carried = time.Now().Add(time.Minute)
			w.tell("epoch %d: the replica of shard %d is seeded", w.epoch, s.shard)
			return
		}
	}
}

func (w *world) beginSeeding() {
	shard, _ := shardOf(w.owners(modelText(w.key(), 0))[0])
	if w.seeding[shard] || len(w.seeds) > 0 {
		return
	}
	w.seeding[shard] = true
	w.epoch++
	replica := w.nodes[modelShards[shard][1]] // a fresh one
	clear(replica.store)
	clear(replica.lease)
	w.copying[replica.name] = nil
	s := modelSeed{shard: shard, epoch: w.epoch, until: time.Now().Add(2*time.Second + w.upTo(8*time.Second))}
	for _, k := range modelKeys {
		for n := range modelHot + 1 {
			if text := modelText(k, n); w.owners(text)[1] == replica.name {
				s.texts = append(s.texts, text)
			}
		}
	}
	w.r.Shuffle(len(s.texts), func(i, j int) { s.texts[i], s.texts[j] = s.texts[j], s.texts[i] })
	w.seeds = append(w.seeds, s)
	w.tell("epoch %d: the replica of shard %d is to be seeded", w.epoch, shard)
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
}

// stale is what a reader could read and is not the row.
func (w *world) stale() (bad []string) {
	for _, key := range modelKeys {
		for n := range w.hot[len(w.hot)-1][modelText(key, 0)].Copies + 1 {
			text := modelText(key, n)
			for _, node := range w.owners(text) {
				if v, has := w.nodes[node].store[text]; has && v != len(w.visible[key]) {
					bad = append(bad, fmt.Sprintf("%s holds %s at version %d, the row is at %d", node, text, v, len(w.visible[key])))
				}
			}
		}
	}
	return bad
}
