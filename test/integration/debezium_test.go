//go:build integration

package integration

import (
	"fmt"
	"testing"
	"time"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// TestDebeziumTopics: topics that Debezium feeds, with all that stands on them beside row changes.
func TestDebeziumTopics(t *testing.T) {
	t.Parallel()
	id := harness.Unique()
	topic := id + "-dbz.shop.users"
	nodes := harness.StartNodes(t, 2)
	record := sink.Record{Shards: shards(nodes)}
	p := harness.New(t, harness.Options{
		ID: id, Record: record, Settle: 50 * time.Millisecond,
		Mappings: map[string]string{"users.yaml": `
version: 1
team: profiles
pools: [user, mail]
mappings:
  - name: user
    table: shop.users
    columns: {id: bigint unsigned}
    keys: ["user:{id}", "mail:{email|lower}"]
`},
		Sources: fmt.Sprintf("  - {name: %s, topics: {pattern: '%s-dbz\\..*'}, first_start: earliest}\n", id, id),
	})
	p.CreateTopic(topic, 1)

	const source = `"source":{"version":"3.6.1.Final","connector":"mysql","name":"dbz","ts_ms":1,"db":"shop","table":"users"}`
	plain := func(op, before, after string) string {
		return `{"before":` + before + `,"after":` + after + `,` + source + `,"op":"` + op + `","ts_ms":1}`
	}
	for _, r := range []struct{ key, value string }{
		{`{"id":1}`, plain("u", `{"id":1,"email":"A@x.test"}`, `{"id":1,"email":"b@x.test"}`)},
		{`{"id":2}`, `{"schema":{"type":"struct","fields":[]},"payload":` + plain("c", `null`, `{"id":2,"email":"c@x.test"}`) + `}`}, // I1
		{`{"schema":null,"payload":{"id":3}}`, ""},                                                                                   // I2: a tombstone that lost its delete
		{`{"id":9}`, plain("r", `null`, `{"id":9,"email":"s@x.test"}`)},                                                              // I12: a snapshot
		{`{"ts":1}`, `{"ts_ms":1}`},                   // I6: a heartbeat
		{`{"id":8}`, "\xff\x00{"},                     // G5: a poison pill
		{`{"id":8}`, `{"before":null,"after":{"id":`}, // G5
		{`{"id":8}`, `[1,2]`},                         // G5
		{``, ``},                                      // G7: nothing at all
		{`{"id":-1}`, plain("d", `{"id":-1,"email":null}`, `null`)}, // an unsigned id above 2^63, as Debezium writes it
	} {
		p.Write(topic, r.key, r.value)
	}
	gone := []string{"user:1", "mail:a@x.test", "mail:b@x.test", "user:2", "mail:c@x.test", "user:3", "user:18446744073709551615"}
	stay := []string{"user:9", "mail:s@x.test", "user:8", "mail:null", "mail:"}
	for _, n := range nodes {
		if err := n.SetAll(append(gone[:len(gone):len(gone)], stay...), "before"); err != nil {
			t.Fatal(err)
		}
	}
	worker := p.Work()
	for _, n := range nodes {
		harness.Await(t, "the keys to be deleted on "+n.Addr, func() (bool, string) {
			left, err := n.Present(gone)
			return err == nil && len(left) == 0, fmt.Sprint(left, err)
		})
	}
	p.AwaitDelivered()
	for _, n := range nodes {
		if there, err := n.Present(stay); err != nil || len(there) != len(stay) {
			t.Errorf("of %v there are %v on %s: %v", stay, there, n.Addr, err)
		}
	}
	if n := p.Parked(); n != 3 {
		t.Errorf("%d records are parked, want the 3 that cannot be read", n)
	}
	worker.Terminate()
}
