package app

import (
	"context"
	"log/slog"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/gap"
)

// GapFlushes fills in how it stands with the flushes that gaps have asked for. Where the topics cannot be read that is logged, and not known.
func GapFlushes(ctx context.Context, c *config.Config, all []*gap.Case, log *slog.Logger) {
	since := flushesSince(all)
	if since.IsZero() {
		return
	}
	if err := readGapFlushes(ctx, c, all, since, log); err != nil {
		log.Error("how it stands with the flushes that gaps have asked for cannot be read", "error", err)
	}
}

func readGapFlushes(ctx context.Context, c *config.Config, all []*gap.Case, since time.Time, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, gapsTimeout)
	defer cancel()
	kafka, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return err
	}
	cl, err := kafka.Connect(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	r, err := readWorks(ctx, kafka, cl, changelog.NamesFor(c.Kafka.TopicPrefix), since)
	if err != nil {
		return err
	}
	defer r.close()
	fillFlushes(all, r.works.list(time.Now()))
	return nil
}

// flushesSince is from when on the status topic may tell of what gaps have asked for; zero: they have asked for nothing.
func flushesSince(all []*gap.Case) (since time.Time) {
	for _, c := range all {
		if c.Passage == nil || len(c.Passage.Requests) == 0 {
			continue
		}
		if at := c.Passage.Begun.Add(-beforeAsked); since.IsZero() || at.Before(since) {
			since = at
		}
	}
	return since
}

// fillFlushes says of each gap how it stands with what it asked for: as with the first that has failed, else the first that is not over. What is not on the topics any more
// says nothing.
func fillFlushes(all []*gap.Case, list []Work) {
	works := worksByID(list)
	for _, c := range all {
		fillFlush(c, works)
	}
}

func worksByID(list []Work) map[string]*Work {
	works := make(map[string]*Work, len(list))
	for i := range list {
		works[list[i].ID] = &list[i]
	}
	return works
}

// fillFlush returns the one that says it; nil: none is known.
func fillFlush(c *gap.Case, works map[string]*Work) (worst *Work) {
	c.Flush = ""
	if c.Passage == nil {
		return nil
	}
	for _, id := range c.Passage.Requests {
		if w := works[id]; w != nil && (worst == nil || w.badness() > worst.badness()) {
			worst, c.Flush = w, string(w.State)
		}
	}
	return worst
}

// badness orders works: done, not over, ended otherwise.
func (w *Work) badness() int {
	switch {
	case w.State.Good():
		return 0
	case !w.State.Ended():
		return 1
	}
	return 2
}
