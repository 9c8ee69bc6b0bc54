//go:build bench

package bench

import (
	"fmt"
	"testing"

	"invalidator/test/integration/harness"
)

// debezium is a connector that reads the same database into topics of its own. It has begun and stands still.
type debezium struct {
	dir        string
	prefix     string
	properties harness.Properties
}

// startDebezium lets a connector find its place in the log, and stops it there.
func startDebezium(t *testing.T, b *feedBench) *debezium {
	t.Helper()
	d := &debezium{dir: t.TempDir(), prefix: b.p.ID + "-debezium"}
	d.properties = harness.Connector(b.db, d.prefix, false)
	d.properties["topic.creation.default.partitions"] = fmt.Sprint(partitions)
	b.p.CreateTopic(d.topic(b), partitions)
	stop := d.run(t)
	rows := 0
	harness.Await(t, "Debezium to read", func() (bool, string) {
		b.insert(t, 1, 1)
		rows++
		return b.records(t, d.topic(b)) > 0, fmt.Sprintf("%d rows written", rows)
	})
	stop()
	return d
}

func (d *debezium) topic(b *feedBench) string { return d.prefix + "." + b.db.Schema + ".items" }

// run starts Kafka Connect, which goes on where it was.
func (d *debezium) run(t *testing.T) (stop func()) {
	t.Helper()
	c := harness.StartConnect(t, d.dir, "-Xmx700m", []harness.Properties{d.properties})
	c.AwaitRunning(t)
	return func() { c.Stop(t) }
}
