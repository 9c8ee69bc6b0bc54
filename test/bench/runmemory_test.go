//go:build bench

package bench

import (
	"testing"

	"invalidator/test/integration/harness"
)

const (
	memoryNodes      = 128
	memoryPartitions = 256
	memoryBacklog    = 1_000_000
	memoryGoal       = 200 // MB
)

// memory is the most resident memory of a worker that has 256 partitions, and works a backlog off to 128 nodes, one of which answers nothing.
func memory(t *testing.T) {
	nodes := harness.StartNodes(t, memoryNodes, "-t", "1", "-m", "16")
	b := &runBench{n: size(t, memoryBacklog), nodes: nodes}
	b.p = b.fleet(t, "")
	b.topic = b.p.ID + "-dbz.shop.users"
	b.createTopic(t, memoryPartitions)
	produceUsers(t, b.topic, b.n)
	p := b.fleet(t, b.topic)
	nodes[0].Freeze()
	worker := p.Work()
	p.AwaitDone(b.topic)
	report(t, atMost("run.rss_mb", peak(t, worker.Pid()), "MB", memoryGoal))
	nodes[0].Thaw()
	p.AwaitPaid()
	report(t, plain("run.rss_mb.paid", peak(t, worker.Pid()), "MB"))
	worker.Terminate()
}
