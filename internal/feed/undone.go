package feed

import (
	"context"
	"fmt"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
)

// unsavedBack is how far before the last saved position records may lie that it does not cover: the acknowledgements of one partition
// may come that much later than those of another, and clocks may differ.
const unsavedBack = 10 * time.Minute

// moved looks, where a run goes on at another server than the one that the position was saved of, for records of transactions that this
// one never had, and writes them again. Those that the position covers are a gap's, which the feeder tells; here they are those that
// a leader handed over and died before it saved the position behind them, or whose records were not acknowledged then. No position knows
// of them, and readers may have cached what they wrote.
//
// It comes before the position is saved as the new server's: a crash meanwhile begins it again.
func (r *run) moved(ctx context.Context, p cdc.Position) error {
	w, ok := r.Feeder.(cdc.Witness)
	if !ok || p.ServerUUID == r.saved.ServerUUID && p.Timeline == r.saved.Timeline {
		return nil
	}
	undone, err := w.Undone(ctx)
	if err != nil || undone == nil {
		return err
	}
	r.log.Info("the source goes on at another server: looking for records of transactions that it never had")
	if _, err := r.reissue(ctx, "a failover", unsavedBack, undone); err != nil {
		return fmt.Errorf("writing again what the server no longer has: %w", err)
	}
	r.flight.commit(p, time.Time{})
	return nil
}

// reissue writes the records of our own topics again that undone says never happened, as far back as they go, and returns
// their number. Since is when the position was last saved: what it does not cover is younger. back is how far before that to look
// at first; 0: as far as is usual.
func (s *source) reissue(ctx context.Context, why string, back time.Duration, undone func(*cdc.RowChange) bool) (int64, error) {
	none := cdc.NewColumns(nil)
	decoder, err := envelope.NewDecoder(envelope.Config{Select: func(string, cdc.TableID) *cdc.Columns { return none }})
	if err != nil {
		return 0, err
	}
	var scratch envelope.Scratch
	judge := func(topic string, r changelog.Record) changelog.Verdict {
		c, _, err := decoder.DecodeInto(ctx, envelope.Record{Topic: topic, Key: r.Key, Value: r.Value, Headers: r.Headers}, &scratch)
		switch {
		case err != nil:
			return changelog.Unclear
		case c == nil || c.Source != s.Name || c.Op == cdc.Tomb:
			return changelog.Stands
		case undone(c):
			return changelog.Undone
		}
		return changelog.Stands
	}
	since := s.at.Saved
	if since.IsZero() {
		since = time.Now()
	}
	again := changelog.Reissue{
		Options: s.kafka(), Settings: s.opts.Topics, Topics: changelog.ChangeTopics(s.TopicPrefix), Since: since, Back: back, Why: why, Judge: judge,
	}
	n, err := again.Run(ctx)
	s.metrics.reissued.Add(float64(n))
	if err == nil && n > 0 {
		s.log.Warn("records of transactions that the server no longer has were written again, so that their keys are deleted once more",
			"gap", why, "records", n)
	}
	return n, err
}
