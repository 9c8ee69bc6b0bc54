//go:build integration

package feed

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(exit{m}) }

type exit struct{ m *testing.M }

func (e exit) Run() int {
	code := e.m.Run()
	harness.RemoveBinary()
	return code
}

// pipeline is a configuration for feeders alone: its ring names a node that nobody asks.
func pipeline(t testing.TB, dbs ...*harness.Database) *harness.Pipeline {
	return pipelineOf(t, harness.Options{Databases: dbs})
}

func pipelineOf(t testing.TB, o harness.Options) *harness.Pipeline {
	var tables []string
	for _, d := range o.Databases {
		tables = append(tables, strconv.Quote(d.Schema+".items"))
	}
	o.Mappings = map[string]string{"items.yaml": fmt.Sprintf(`
version: 1
team: items
contact: "#items"
pools: [item]
mappings:
  - {name: item, tables: [%s], keys: ["item:{id}:{note}"]}
`, strings.Join(tables, ", "))}
	o.Record = sink.Record{Shards: []sink.Shard{{ID: "s0", Weight: 1, Primary: sink.Node{Addr: "127.0.0.1:1"}}}}
	o.Settle = time.Second
	return harness.New(t, o)
}
