//go:build integration

package replay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/internal/changelog"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// world is two shards, the first with a replica, and a topic of rows that somebody else feeds. Each row has a key in either of two pools.
type world struct {
	*harness.Pipeline
	t     *testing.T
	topic string
	nodes []*harness.Node
	ring  sink.Record
	conns map[string]*harness.Conn
	rows  int
}

const mappings = `version: 1
team: items
pools: [item, other]
mappings:
  - {name: item, table: shop.items, keys: ["item:{id}"]}
  - {name: other, table: shop.items, keys: ["other:{id}"]}
`

// newWorld has a change of each row in the topic. No worker runs yet.
func newWorld(t *testing.T, rows int) *world {
	t.Helper()
	nodes := harness.StartNodes(t, 3)
	w := newWorldOf(t, rows, nodes, []sink.Shard{
		{ID: "s0", Weight: 1, Primary: sink.Node{Addr: nodes[0].Addr, Zone: "a"}, Replicas: []sink.Replica{{Addr: nodes[1].Addr, Zone: "b"}}},
		{ID: "s1", Weight: 1, Primary: sink.Node{Addr: nodes[2].Addr, Zone: "a"}},
	}, harness.Options{Mappings: map[string]string{"items.yaml": mappings}, Settle: 50 * time.Millisecond})
	all := make([]int, rows)
	for i := range all {
		all[i] = i
	}
	w.change(all...)
	return w
}

// newWorldOf has these nodes and shards, and an empty topic. Sources of the options are what the configuration has behind the topic's source.
func newWorldOf(t *testing.T, rows int, nodes []*harness.Node, shards []sink.Shard, o harness.Options) *world {
	t.Helper()
	o.ID = harness.Unique()
	w := &world{t: t, topic: o.ID + "-orders.shop.items", nodes: nodes, ring: sink.Record{At: time.Now().UTC(), Shards: shards}, conns: map[string]*harness.Conn{}, rows: rows}
	for _, n := range w.nodes {
		c, err := harness.Dial(n.Addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		w.conns[n.Addr] = c
	}
	o.Record = w.ring
	o.Sources = fmt.Sprintf("  - {name: orders, topics: {pattern: '%s', format: debezium}, first_start: earliest}\n%s", strings.ReplaceAll(w.topic, ".", `\.`), o.Sources)
	w.Pipeline = harness.New(t, o)
	w.CreateTopic(w.topic, 4)
	return w
}

// change writes a change of each of these rows, which was committed just now.
func (w *world) change(rows ...int) {
	w.t.Helper()
	w.changeAt(time.Now(), rows...)
}

// changeAt is change, of what was committed, and written by whoever feeds the topic, at a moment that is past.
func (w *world) changeAt(at time.Time, rows ...int) {
	w.t.Helper()
	var eg errgroup.Group
	eg.SetLimit(32)
	for _, i := range rows {
		eg.Go(func() error {
			now := at.UnixMilli()
			w.WriteAt(at, w.topic, fmt.Sprintf(`{"id":%d}`, i), fmt.Sprintf(
				`{"before":{"id":%d,"ver":1},"after":{"id":%d,"ver":2},"source":{"connector":"mysql","name":"orders","db":"shop","table":"items","ts_ms":%d},"op":"u","ts_ms":%d}`, i, i, now, now))
			return nil
		})
	}
	eg.Wait() //nolint:errcheck // Write ends the test
}

// copies are the keys of a pool, by node.
func (w *world) copies(pool string) map[string][]string {
	ring, by := sink.NewRing(w.ring.Shards), map[string][]string{}
	for i := range w.rows {
		key := fmt.Sprintf("%s:%d", pool, i)
		s := w.ring.Shards[ring.Owner(sink.Hash(key))]
		by[s.Primary.Addr] = append(by[s.Primary.Addr], key)
		for _, r := range s.Replicas {
			by[r.Addr] = append(by[r.Addr], key)
		}
	}
	return by
}

// fill writes a value by hand on every copy of a pool's keys: what a reader would have left that was late, or a replica that was behind.
func (w *world) fill(pool string) {
	w.t.Helper()
	for node, keys := range w.copies(pool) {
		if err := w.conns[node].SetAll(keys, "stale"); err != nil {
			w.t.Fatal(err)
		}
	}
}

// left is how many copies of a pool's keys have a value.
func (w *world) left(pool string) (n int) {
	w.t.Helper()
	for node, keys := range w.copies(pool) {
		present, err := w.conns[node].Present(keys)
		if err != nil {
			w.t.Fatal(err)
		}
		n += len(present)
	}
	return n
}

// all is how many copies there are of a pool's keys.
func (w *world) all(pool string) (n int) {
	for _, keys := range w.copies(pool) {
		n += len(keys)
	}
	return n
}

func (w *world) wantLeft(item, other int) {
	w.t.Helper()
	if i, o := w.left("item"), w.left("other"); i != item || o != other {
		w.t.Errorf("of pool item %d copies have a value, want %d; of pool other %d, want %d", i, item, o, other)
	}
}

// ask writes a request to the control topic.
func (w *world) ask(q replay.Request) {
	w.t.Helper()
	q.At, q.By = time.Now().UTC(), "ann"
	value, err := replay.Encode(q)
	if err != nil {
		w.t.Fatal(err)
	}
	w.Write(changelog.NamesFor(w.Config.Kafka.TopicPrefix).Control, q.ID, string(value))
}

// replayOf asks for a replay of what was issued in the last ten minutes, of a pool.
func (w *world) replayOf(id, pool string, dry bool) {
	w.t.Helper()
	w.ask(replay.Request{ID: id, Action: replay.Replay, Target: replay.Target{Pool: pool}, Window: replay.Issued, From: time.Now().Add(-10 * time.Minute), DryRun: dry})
}

// told is what is said of an id on the status topic: progress, and the first result.
func (w *world) told(id string) (progress []replay.Progress, result *replay.Result) {
	w.t.Helper()
	said, err := w.Said(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range said {
		record, err := replay.DecodeStatus([]byte(s))
		if err != nil {
			w.t.Fatalf("%s: %v", s, err)
		}
		switch r := record.(type) {
		case replay.Progress:
			if r.ID == id {
				progress = append(progress, r)
			}
		case replay.Result:
			if r.ID == id && result == nil {
				result = &r
			}
		}
	}
	return progress, result
}

// result waits for the end of a replay.
func (w *world) result(id string) replay.Result {
	w.t.Helper()
	var end *replay.Result
	harness.Await(w.t, "the end of the replay "+id, func() (bool, string) {
		var progress []replay.Progress
		progress, end = w.told(id)
		return end != nil, fmt.Sprintf("told was %+v", progress[max(0, len(progress)-4):])
	})
	return *end
}

// owing are the replays that the states say are not done.
func (w *world) owing() []string {
	w.t.Helper()
	owed, err := w.Owed(w.t.Context())
	if err != nil {
		return []string{err.Error()}
	}
	return slices.DeleteFunc(owed, func(line string) bool { return !strings.Contains(line, "replay") })
}

// windowOfCommits asks for what was committed in the last ten minutes.
func windowOfCommits(id string, of replay.Target) replay.Request {
	return replay.Request{ID: id, Action: replay.Replay, Target: of, Window: replay.Committed, From: time.Now().Add(-10 * time.Minute)}
}
