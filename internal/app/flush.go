package app

import (
	"context"
	"os"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/replay"
)

// flusher asks for flushes on the control topic.
type flusher struct {
	out   *changelog.Writer
	topic string
	by    string
}

func newFlusher(out *changelog.Writer, topic string) flusher {
	host, _ := os.Hostname()
	return flusher{out, topic, "worker@" + host}
}

// Flush implements pipeline.Flusher.
func (f flusher) Flush(ctx context.Context, r pipeline.FlushRequest) error {
	value, err := replay.Encode(replay.Request{
		ID: r.ID, At: time.Now().UTC(), By: f.by, Action: replay.Flush, Target: replay.Target{Pool: r.Pool},
		Cause: &replay.Cause{
			What: replay.Truncate, Source: r.Source, Tables: r.Tables, Committed: r.Committed,
			Record: replay.Range{Topic: r.Partition.Topic, Partition: r.Partition.Number, From: r.Offset, To: r.Offset + 1},
		},
	})
	if err != nil {
		return err
	}
	return f.out.Write(ctx, f.topic, r.ID, value)
}

var _ pipeline.Flusher = flusher{}
