package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"invalidator/internal/changelog"
)

// gapRecorder writes a worker's gaps to the state topic, where they stand until somebody answers them.
type gapRecorder struct{ state *changelog.StateStore }

// gapRecord is the value under gap/<topic>/<partition>/<to>: docs/TOPICS.md.
type gapRecord struct {
	V         int       `json:"v"`
	Source    string    `json:"source"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	From      int64     `json:"from"` // -1: not known
	To        int64     `json:"to"`
	Why       string    `json:"why"`
	Seen      time.Time `json:"seen"`
}

// Record implements pipeline.GapRecorder. The same gap met twice is one record.
func (g gapRecorder) Record(ctx context.Context, source string, l changelog.Loss) error {
	value, err := json.Marshal(gapRecord{1, source, l.Topic, l.Number, l.From, l.To, l.Why, time.Now().UTC()})
	if err != nil {
		return fmt.Errorf("encoding a gap: %w", err)
	}
	return g.state.Put(ctx, changelog.StateKey("gap", l.Topic, strconv.Itoa(int(l.Number)), strconv.FormatInt(l.To, 10)), value)
}
