//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// lone is a pipeline whose rows somebody else feeds, so that it needs no database.
type lone struct {
	*harness.Pipeline
	topic string
}

const loneMapping = `version: 1
team: items
pools: [item]
mappings:
  - {name: item, table: shop.items, keys: ["item:{id}"]}
`

func newLone(t *testing.T, nodes ...string) *lone {
	t.Helper()
	id := harness.Unique()
	l := &lone{topic: id + "-orders.shop.items"}
	l.Pipeline = harness.New(t, harness.Options{
		ID: id, Mappings: map[string]string{"items.yaml": loneMapping}, Record: recordOf(nodes...), Settle: 50 * time.Millisecond,
		Sources: fmt.Sprintf("  - {name: orders, topics: {pattern: '%s', format: debezium}, first_start: earliest}\n", strings.ReplaceAll(l.topic, ".", `\.`)),
	})
	l.CreateTopic(l.topic, 4)
	return l
}

// recordOf is a ring of as many shards as nodes, without replicas.
func recordOf(nodes ...string) (r sink.Record) {
	for i, addr := range nodes {
		r.Shards = append(r.Shards, sink.Shard{ID: fmt.Sprint("s", i), Weight: 1, Primary: sink.Node{Addr: addr, Zone: "a"}})
	}
	return r
}

// change writes changes of some rows.
func (l *lone) change(from, to int) {
	for i := from; i < to; i++ {
		l.Write(l.topic, fmt.Sprintf(`{"id":%d}`, i), fmt.Sprintf(
			`{"before":{"id":%d,"ver":1},"after":{"id":%d,"ver":2},"source":{"connector":"mysql","name":"orders","db":"shop","table":"items","ts_ms":%d},"op":"u","ts_ms":%d}`,
			i, i, time.Now().UnixMilli(), time.Now().UnixMilli()))
	}
}

// owed is the JSON of what a node owes, as docs/TOPICS.md has it.
type owed struct {
	V          int
	Kind       string
	Node       string
	Group      string
	Worker     string
	Paid       bool
	Partitions int
	Records    int64
	Since, At  time.Time
	Off        bool
}

// lastSaid is the last record of a node on the status topic.
func (l *lone) lastSaid(t *testing.T, node string) (last owed) {
	t.Helper()
	said, err := l.Said(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range said {
		var o owed
		if err := json.Unmarshal([]byte(s), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "owed" && o.Node == node {
			last = o
		}
	}
	return last
}

// A node dies: what it owes stands in etcd and on the status topic, and stays there while the worker that sums it up is killed and nobody does. When the node
// is back and another worker has paid, the key goes, once, and not before.
func TestWhatANodeOwesIsTold(t *testing.T) {
	t.Parallel()
	nodes := harness.StartNodes(t, 2)
	l := newLone(t, nodes[0].Addr, nodes[1].Addr)
	lost := nodes[1].Addr
	removals := l.OwedKeyRemovals(lost)
	first := l.Work()
	l.change(0, 40)
	l.AwaitDone(l.topic)
	harness.Await(t, "the sum's owner to call the node paid", func() (bool, string) {
		o := l.lastSaid(t, lost)
		return o.Paid, fmt.Sprintf("%+v", o)
	})

	nodes[1].Kill()
	l.change(40, 80)
	harness.Await(t, "the debts in etcd, and on the status topic", func() (bool, string) {
		value, there := l.OwedKey(lost)
		var o owed
		if there {
			if err := json.Unmarshal([]byte(value), &o); err != nil {
				t.Fatal(err)
			}
		}
		s := l.lastSaid(t, lost)
		return there && o.V == 1 && o.Node == lost && o.Group == l.ID && o.Partitions > 0 && o.Records > 0 && o.Off && !o.Paid && !o.Since.IsZero() &&
			s.Off && s.Records > 0, fmt.Sprint(value, s)
	})
	l.AwaitDone(l.topic)
	if _, there := l.OwedKey(nodes[0].Addr); there {
		t.Error("the other node owes nothing, and has a key")
	}

	first.Kill()
	nodes[1].Start()
	before := time.Now()
	harness.AwaitQuick(t, "some seconds in which nobody sums up", func() (bool, string) { return time.Since(before) > 3*time.Second, "" })
	if _, there := l.OwedKey(lost); !there {
		t.Fatal("with the worker that summed it up the debt went")
	}
	l.Work()
	harness.Await(t, "the key to go", func() (bool, string) { value, there := l.OwedKey(lost); return !there, value })
	left, err := l.Owed(t.Context())
	if err != nil || strings.Contains(strings.Join(left, ";"), lost) {
		t.Errorf("the key went while this was owed: %v, %v", left, err)
	}
	harness.Await(t, "the status topic to say so", func() (bool, string) {
		o := l.lastSaid(t, lost)
		return o.Paid && o.Worker != "", fmt.Sprintf("%+v", o)
	})
	if n := removals(); n != 1 {
		t.Errorf("the key was removed %d times", n)
	}
}
