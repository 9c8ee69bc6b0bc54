//go:build integration

package feed

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

// BenchmarkCommitToRecord is a single-row commit at a time: from when the database said that it is done to when a consumer
// has the record, which every in-sync replica has acknowledged by then.
func BenchmarkCommitToRecord(b *testing.B) {
	for _, kind := range harness.Kinds {
		b.Run(string(kind), func(b *testing.B) {
			d := harness.NewDatabase(b, kind)
			d.Do(b, "CREATE TABLE items (id bigint PRIMARY KEY, note varchar(20))")
			p := pipeline(b, d)
			p.Feed()
			p.AwaitFeeding(d)
			d.Do(b, "INSERT INTO items VALUES (0, 'x')") // makes the topic
			p.AwaitFed(d)
			cl, err := kgo.NewClient(kgo.SeedBrokers(services.Addr("KAFKA")),
				kgo.ConsumeTopics(p.Source(kind)+"."+d.Schema+".items"), kgo.FetchMaxWait(time.Second))
			if err != nil {
				b.Fatal(err)
			}
			defer cl.Close()
			await := func() {
				ctx, cancel := context.WithTimeout(b.Context(), harness.Patience)
				defer cancel()
				for cl.PollFetches(ctx).NumRecords() == 0 {
					if ctx.Err() != nil {
						b.Fatal("no record came")
					}
				}
			}
			await()
			var took []time.Duration
			for b.Loop() {
				d.Do(b, fmt.Sprintf("INSERT INTO items VALUES (%d, 'x')", len(took)+1))
				begin := time.Now()
				await()
				took = append(took, time.Since(begin))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}

// BenchmarkBacklog is how fast a feeder catches up with rows that were committed while it was away.
func BenchmarkBacklog(b *testing.B) {
	const rows = 100_000
	for _, kind := range harness.Kinds {
		b.Run(string(kind), func(b *testing.B) {
			d := harness.NewDatabase(b, kind)
			d.Do(b, "CREATE TABLE items (id bigint PRIMARY KEY, version int, note varchar(200))")
			p := pipeline(b, d)
			feeder := p.Feed()
			p.AwaitFeeding(d)
			feeder.Terminate()
			fill := "INSERT INTO items WITH RECURSIVE n AS (SELECT 0 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 999) SELECT %d + i, 1, '%0100d' FROM n"
			at := 0
			for b.Loop() {
				b.StopTimer()
				for end := at + rows; at < end; at += 1000 {
					d.Do(b, fmt.Sprintf(fill, at, 0))
				}
				b.StartTimer()
				feeder := p.Feed()
				p.AwaitFed(d)
				b.StopTimer()
				feeder.Terminate()
				b.StartTimer()
			}
			b.ReportMetric(float64(at)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
