//go:build integration

package schemas

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/avro"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"invalidator/internal/changelog"
	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(exit{m}) }

type exit struct{ m *testing.M }

func (e exit) Run() int {
	code := e.m.Run()
	harness.RemoveBinary()
	http.DefaultClient.CloseIdleConnections()
	return code
}

// front is what stands before the registry: it may be away, or slow.
type front struct {
	addr   string
	target *url.URL
	slow   atomic.Bool
	server *http.Server
	ended  chan error
}

func (f *front) start(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(f.target)
	f.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.slow.Load() {
			<-r.Context().Done() // until the worker gives up
			return
		}
		proxy.ServeHTTP(w, r)
	})}
	f.ended = make(chan error, 1)
	go func() { f.ended <- f.server.Serve(l) }()
}

func (f *front) stop() {
	f.server.Close()
	<-f.ended
}

// fleet is a worker over topics in Avro and one in JSON, a registry with a front, and what a test knows of them.
type fleet struct {
	*harness.Pipeline
	t     *testing.T
	nodes []*harness.Node
	ids   map[string]uint32 // table -> id of its schema
}

func newFleet(t *testing.T, registry string) *fleet {
	id := harness.Unique()
	f := &fleet{t: t, nodes: harness.StartNodes(t, 2), ids: map[string]uint32{}}
	f.Pipeline = harness.New(t, harness.Options{
		ID: id, Settle: 50 * time.Millisecond,
		Record: sink.Record{Shards: []sink.Shard{{ID: "s", Weight: 1, Primary: sink.Node{Addr: f.nodes[0].Addr, Zone: "a"}, Replicas: []sink.Replica{{Addr: f.nodes[1].Addr, Zone: "b"}}}}},
		Mappings: map[string]string{"all.yaml": `
version: 1
team: all
pools: [users, orders, plain]
mappings:
  - {name: users, table: shop.users, keys: ["users:{id}"]}
  - {name: orders, table: shop.orders, keys: ["orders:{id}"]}
  - {name: plain, table: shop.plain, keys: ["plain:{id}"]}
`},
		Sources: fmt.Sprintf("  - {name: %s-avro, topics: {pattern: '%[1]s-avro\\..*', format: avro, registry: {url: %q}}, first_start: earliest}\n"+
			"  - {name: %[1]s-json, topics: {pattern: '%[1]s-json\\..*'}, first_start: earliest}\n", id, registry),
	})
	for _, topic := range []string{"-avro.shop.users", "-avro.shop.orders", "-json.shop.plain"} {
		f.CreateTopic(id+topic, 1)
	}
	return f
}

// schemaOf differs between tables, so that each has an id of its own.
func schemaOf(table string) string {
	return strings.ReplaceAll(usersAvro, "s.shop.users", "s.shop."+table)
}

// row puts the insert of a row on its table's topic, under a schema's id, after its key is cached on every node.
func (f *fleet) row(table string, id int64, schema uint32) {
	f.t.Helper()
	for _, n := range f.nodes {
		if err := n.Set(fmt.Sprintf("%s:%d", table, id), "old"); err != nil {
			f.t.Fatal(err)
		}
	}
	if table == "plain" {
		f.Write(f.ID+"-json.shop.plain", "", fmt.Sprintf(`{"before":null,"after":{"id":%d},"source":{"connector":"mysql","db":"shop","table":"plain"},"op":"c"}`, id))
		return
	}
	body, err := avro.MustParse(schemaOf(table)).AppendEncode(binary.BigEndian.AppendUint32([]byte{0}, schema), map[string]any{
		"after": map[string]any{"id": id, "price": []byte{0x2f, 0x18}}, "source": map[string]any{"connector": "mysql", "db": "shop", "table": table}, "op": "c",
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.Write(f.ID+"-avro.shop."+table, "", string(body))
}

// deleted waits until the keys are on no node; there wants them on every one.
func (f *fleet) deleted(keys ...string) {
	f.t.Helper()
	for _, n := range f.nodes {
		harness.Await(f.t, fmt.Sprintf("%q to be deleted on %s", keys, n.Addr), func() (bool, string) {
			left, err := n.Present(keys)
			return err == nil && len(left) == 0, fmt.Sprint(left, err)
		})
	}
}

func (f *fleet) there(keys ...string) {
	f.t.Helper()
	for _, n := range f.nodes {
		if left, err := n.Present(keys); err != nil || len(left) != len(keys) {
			f.t.Errorf("of %q, %s has %q: %v", keys, n.Addr, left, err)
		}
	}
}

// committed wants the group's offset of a table's topic in Avro; 0: none, or 0.
func (f *fleet) committed(table string, want int64) {
	f.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")))
	if err != nil {
		f.t.Fatal(err)
	}
	defer cl.Close()
	offsets, err := kadm.NewClient(cl).FetchOffsets(f.t.Context(), f.ID)
	if err != nil {
		f.t.Fatal(err)
	}
	if at, _ := offsets.Lookup(f.ID+"-avro.shop."+table, 0); max(at.At, 0) != want {
		f.t.Errorf("offset %d of %s is committed, want %d", at.At, table, want)
	}
}

func logs(t *testing.T, p *harness.Process, want ...string) {
	t.Helper()
	harness.Await(t, fmt.Sprintf("a line of the log with %q", want), func() (bool, string) {
	lines:
		for line := range strings.Lines(p.Log()) {
			for _, part := range want {
				if !strings.Contains(line, part) {
					continue lines
				}
			}
			return true, ""
		}
		return false, p.Log()
	})
}

// I7: records in Avro from a real broker to real nodes while a real registry is away from the start, is there, is away, is slow,
// comes back, and lacks an id. Whose schema is kept, and whoever needs none, goes on; nothing is lost, also over a worker's end.
func TestI7RegistryThatFailsUnderAWorker(t *testing.T) {
	real, _ := apicurio(t)
	target, err := url.Parse("http://" + real)
	if err != nil {
		t.Fatal(err)
	}
	front := &front{addr: harness.FreeAddr(t), target: target}
	f := newFleet(t, "http://"+front.addr+"/apis/ccompat/v7")
	for _, table := range []string{"users", "orders"} {
		var answer struct{ ID uint32 }
		post(t, "http://"+real+"/apis/ccompat/v7/subjects/s.shop."+table+"-value/versions", map[string]string{"Content-Type": "application/json"}, `{"schema":`+strconv.Quote(schemaOf(table))+`}`, &answer)
		f.ids[table] = answer.ID
	}
	worker := f.Work()

	// Away from the start.
	f.row("users", 1, f.ids["users"])
	f.row("plain", 1, 0)
	logs(t, worker, "waiting for the schema registry", "-avro.shop.users", "connection refused")
	f.deleted("plain:1")
	f.there("users:1")
	front.start(t)
	f.deleted("users:1")
	logs(t, worker, "the schema registry answers", "-avro.shop.users")
	f.AwaitDelivered()

	// Away again: one schema is kept, the other is not.
	front.stop()
	f.row("orders", 1, f.ids["orders"])
	f.row("orders", 2, f.ids["orders"])
	logs(t, worker, "waiting for the schema registry", "-avro.shop.orders", "connection refused")
	f.row("users", 2, f.ids["users"])
	f.row("plain", 2, 0)
	f.deleted("users:2", "plain:2")
	f.there("orders:1", "orders:2")
	f.committed("orders", 0)

	// The worker dies, and the next one starts in front of the same silence.
	worker.Kill()
	worker = f.Work()
	f.row("users", 3, f.ids["users"])
	f.row("plain", 3, 0)
	logs(t, worker, "waiting for the schema registry", "-avro.shop.orders")
	f.deleted("plain:3")
	f.there("orders:1", "orders:2", "users:3")
	f.committed("orders", 0)

	// Slow: a question is given up after two seconds.
	front.slow.Store(true)
	front.start(t)
	logs(t, worker, "waiting for the schema registry", "-avro.shop.orders", "deadline exceeded")
	f.row("plain", 4, 0)
	f.deleted("plain:4")
	f.there("orders:1", "orders:2", "users:3")
	f.committed("orders", 0)

	front.slow.Store(false)
	f.deleted("orders:1", "orders:2", "users:3")
	f.AwaitDelivered()
	f.committed("orders", 2)
	if n := f.Parked(); n != 0 {
		t.Errorf("%d records are parked", n)
	}

	// An id that the registry lacks holds its own partition for a while; its record is parked then, and the next one goes on.
	f.row("orders", 3, 4711)
	f.row("orders", 4, f.ids["orders"])
	logs(t, worker, "waiting for the schema registry", "-avro.shop.orders", "does not know this schema yet")
	f.row("users", 4, f.ids["users"])
	f.deleted("users:4")
	f.deleted("orders:4")
	f.AwaitDelivered()
	f.committed("orders", 4)
	f.there("orders:3")
	if why := f.parked(); !strings.Contains(why, "schema id 4711") || !strings.Contains(why, "the registry does not know this schema (was its subject deleted") {
		t.Errorf("parked: %s", why)
	}
	worker.Terminate()
	front.stop()
}

// parked is why the one parked record was.
func (f *fleet) parked() (why string) {
	f.t.Helper()
	if n := f.Parked(); n != 1 {
		f.t.Fatalf("%d records are parked, want 1", n)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.ConsumeTopics(changelog.NamesFor(f.Config.Kafka.TopicPrefix).DeadLetter))
	if err != nil {
		f.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(f.t.Context(), harness.Patience)
	defer cancel()
	cl.PollRecords(ctx, 1).EachRecord(func(r *kgo.Record) {
		for _, h := range r.Headers {
			if h.Key == changelog.HeaderReason {
				why = string(h.Value)
			}
		}
	})
	return why
}
