package app

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/sink/memcachetest"
)

// Each part is asked, whatever the others said, and each finding says where.
func TestCheck(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	node := memcachetest.Start(t)
	const source = "sources: [{name: shop, type: mysql, hosts: ['127.0.0.1:1'], user: u, include: [a.b]}]\n"
	kafka := fmt.Sprintf("kafka: {brokers: [%q]}\n", cluster.ListenAddrs()[0])
	ring := func(addr string) string {
		return fmt.Sprintf(`{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[]}]}`, addr)
	}
	for _, tc := range []struct {
		name, text, ring, mapping string
		want                      []string // severity: where, of every finding that is no missing topic
	}{
		{"all is well", kafka + "cache: {ring: {file: ring.json}}", ring(node.Addr()), "", nil},
		{"a dead node is a warning", kafka + "cache: {ring: {file: ring.json}}", ring("127.0.0.1:1"), "", []string{"warning: node 127.0.0.1:1"}},
		{"everything is wrong", source + "kafka: {brokers: ['127.0.0.1:1']}\ncache: {ring: {file: ring.json}}", "{", "pools: 3\n",
			[]string{"error: mapping", "error: kafka", "error: ring", "error: source shop"}},
		{"no broker, no ring", "replay: {window: 30s}", "", "", []string{"error: kafka", "error: ring"}},
		{"own topics", kafka + "cache: {ring: {file: ring.json}}\nsources: [{name: all, topics: {pattern: '.*'}, first_start: latest}]", ring(node.Addr()), "", []string{"note: mapping", "error: sources"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			c := parse(t, dir, tc.text)
			write(t, dir, "ring.json", tc.ring)
			if tc.mapping == "" {
				tc.mapping = usersMapping
			}
			write(t, dir, "mappings.d/a.yaml", tc.mapping)
			var got []string
			missing := 0
			for _, f := range Check(t.Context(), c, quiet) {
				if strings.Contains(f.What, "does not exist yet") {
					missing++
					continue
				}
				where, _, _ := strings.Cut(f.Where, "/")
				got = append(got, f.Severity+": "+where)
				if f.What == "" {
					t.Errorf("%s says nothing", f.Where)
				}
				if data, err := json.Marshal(f); err != nil || !strings.Contains(string(data), `"where":`) {
					t.Errorf("as JSON: %s %v", data, err)
				}
			}
			got = slices.Compact(got)
			if len(got) != len(tc.want) {
				t.Fatalf("got %q, want %q", got, tc.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], tc.want[i]) {
					t.Errorf("got %q, want %q", got, tc.want)
				}
			}
			if strings.HasPrefix(tc.text, kafka) && missing == 0 {
				t.Error("our own topics are not there, and check does not say so")
			}
		})
	}
}
