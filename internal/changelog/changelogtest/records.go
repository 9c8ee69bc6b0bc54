package changelogtest

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Records reads a whole topic: what lies on it now, by partition and offset.
func (c *Cluster) Records(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	var want int64
	for _, p := range c.PartitionInfos(topic) {
		want += p.HighWatermark - p.LogStartOffset
	}
	cl, err := c.Options.Client(kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var got []*kgo.Record
	for int64(len(got)) < want {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("reading topic %s: %d of %d records: %v", topic, len(got), want, err)
		}
		got = append(got, fs.Records()...)
	}
	return got
}
