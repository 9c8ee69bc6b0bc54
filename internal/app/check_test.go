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

// saying is a node of another version.
func saying(t *testing.T, version string) *memcachetest.Server {
	node := memcachetest.Start(t)
	node.Intercept(func(_ int, line string) memcachetest.Reply {
		if line != "version" {
			return memcachetest.Reply{}
		}
		return memcachetest.Reply{Text: "VERSION " + version + "\r\n", Then: memcachetest.Skip}
	})
	return node
}

// While nobody reads a dump of an old memcached its clients wait: that is said once, with the nodes' names.
func TestCheckWarnsOfOldMemcacheds(t *testing.T) {
	var nodes []string
	for _, version := range []string{"1.6.18", "1.6.19", "1.5.22", "nutcracker"} {
		nodes = append(nodes, saying(t, version).Addr())
	}
	found := checkNodes(t.Context(), parse(t, t.TempDir(), ""), nodes, quiet)
	if len(found) != 1 || found[0].Severity != "warning" || found[0].Where != "nodes" || !strings.HasPrefix(found[0].What, "2 nodes run memcached 1.6.18 or an older one") ||
		!strings.HasSuffix(found[0].What, "(upgrade to 1.6.19 or later): "+nodes[0]+", "+nodes[2]) {
		t.Errorf("got %+v", found)
	}
}

// Each part is asked, whatever the others said, and each finding says where.
func TestCheck(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	node, today := memcachetest.Start(t), saying(t, "1.6.38").Addr()
	const source = "sources: [{name: shop, type: mysql, hosts: ['127.0.0.1:1'], user: u, include: [a.b]}]\n"
	kafka := fmt.Sprintf("kafka: {brokers: [%q]}\n", cluster.ListenAddrs()[0])
	ring := func(addr string) string {
		return fmt.Sprintf(`{"epoch":1,"kind":"points160","shards":[{"id":"s","weight":1,"primary":{"addr":%q,"zone":"a"},"replicas":[]}]}`, addr)
	}
	for _, tc := range []struct {
		name, text, ring, mapping string
		want                      []string // severity: where, of every finding that is no missing topic
	}{
		{"all is well, but for an old memcached", kafka + "cache: {ring: {file: ring.json}}", ring(node.Addr()), "", []string{"warning: nodes"}},
		{"all is well", kafka + "cache: {ring: {file: ring.json}}", ring(today), "", nil},
		{"a dead node is a warning", kafka + "cache: {ring: {file: ring.json}}", ring("127.0.0.1:1"), "", []string{"warning: node 127.0.0.1:1"}},
		{"everything is wrong", source + "kafka: {brokers: ['127.0.0.1:1']}\ncache: {ring: {file: ring.json}}", "{", "pools: 3\n",
			[]string{"error: mapping", "error: kafka", "error: ring", "error: source shop"}},
		{"no broker, no ring", "replay: {window: 30s}", "", "", []string{"error: kafka", "error: ring"}},
		{"own topics", kafka + "cache: {ring: {file: ring.json}}\nsources: [{name: all, topics: {pattern: '.*'}, first_start: latest}]", ring(today), "", []string{"note: mapping", "error: sources"}},
		{"a certificate that is not there", kafka + "cache: {node: {tls: {ca: nowhere.pem}}, ring: {file: ring.json}}", ring(today), "", []string{"error: nodes"}},
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
