//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/sink"
	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// TestI12SnapshotFlood: a connector that reads its tables anew writes every row again, by op r, and by op c in old versions. None of
// these deletes anything, and the few updates among them are delivered. That each is counted is in internal/pipeline. There are no
// more rows than a worker under the race detector reads in seconds.
func TestI12SnapshotFlood(t *testing.T) {
	const rows, updates, watched = 100_000, 10, 1000
	id := harness.Unique()
	nodes := harness.StartNodes(t, 2)
	record := sink.Record{Shards: shards(nodes)}
	p := harness.New(t, harness.Options{
		ID: id, Record: record, Settle: 50 * time.Millisecond,
		Mappings: map[string]string{"users.yaml": "version: 1\nteam: profiles\npools: [user]\nmappings:\n  - name: user\n    table: shop.users\n    keys: [\"user:{id}\"]\n"},
		Sources:  fmt.Sprintf("  - {name: %s, topics: {pattern: '%s-dbz\\..*'}, first_start: earliest}\n", id, id),
	})
	topic := id + "-dbz.shop.users"
	p.CreateTopic(topic, 1)
	cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")), kgo.ProducerBatchCompression(kgo.SnappyCompression()), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	worker := p.Work()
	for _, flood := range []struct{ op, mark string }{{"r", `"true"`}, {"c", `"true"`}, {"c", `"last"`}} {
		t.Run("op "+flood.op+" snapshot "+strings.Trim(flood.mark, `"`), func(t *testing.T) {
			n := rows
			if flood.mark == `"last"` { // a table's last row alone
				n = watched
			}
			var stay, gone []string
			for i := range watched {
				stay = append(stay, fmt.Sprintf("user:%d", i))
			}
			for i := range updates {
				gone = append(gone, fmt.Sprintf("user:u%d", i))
			}
			for _, node := range nodes {
				if err := node.SetAll(append(gone[:updates:updates], stay...), "before"); err != nil {
					t.Fatal(err)
				}
			}
			failed := make(chan error, 1)
			write := func(op, mark, id string) {
				value := fmt.Appendf(nil, `{"before":null,"after":{"id":%s,"email":"a@x.test"},"source":{"connector":"mysql","name":"dbz","snapshot":%s,"db":"shop","table":"users"},"op":%q,"ts_ms":1}`, id, mark, op)
				cl.Produce(t.Context(), &kgo.Record{Key: []byte(`{"id":` + id + `}`), Value: value}, func(_ *kgo.Record, err error) {
					if err != nil {
						select {
						case failed <- err:
						default:
						}
					}
				})
			}
			for i := range n {
				write(flood.op, flood.mark, fmt.Sprint(i))
				if i%(n/updates) == n/updates/2 {
					write("u", `"false"`, fmt.Sprintf("%q", fmt.Sprintf("u%d", i/(n/updates))))
				}
			}
			if err := cl.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-failed:
				t.Fatal(err)
			default:
			}
			for _, node := range nodes {
				harness.Await(t, "the updates' keys to be deleted on "+node.Addr, func() (bool, string) {
					left, err := node.Present(gone)
					return err == nil && len(left) == 0, fmt.Sprint(left, err)
				})
			}
			p.AwaitDelivered()
			for _, node := range nodes {
				if there, err := node.Present(stay); err != nil || len(there) != watched {
					t.Errorf("%d of %d keys of rows that did not change are on %s: %v", len(there), watched, node.Addr, err)
				}
			}
		})
	}
	if n := p.Parked(); n != 0 {
		t.Errorf("%d records are parked", n)
	}
	worker.Terminate()
}
