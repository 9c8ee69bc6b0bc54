package app

import (
	"context"
	"log/slog"
	"time"

	"invalidator/internal/changelog"
	"invalidator/replay"
)

// eventsWaiting bounds the words that wait for the status topic: a storm of every pool, and more.
const eventsWaiting = 256

// events writes words of a worker to the status topic, where operators find them later. They are in the log in any case: one that finds no
// room, or no broker, is left out.
type events struct {
	out         *changelog.Writer
	topic, self string
	log         *slog.Logger
	waiting     chan replay.Event
}

func newEvents(out *changelog.Writer, topic, self string, log *slog.Logger) *events {
	return &events{out, topic, self, log, make(chan replay.Event, eventsWaiting)}
}

// add is pipeline.Options.Event.
func (e *events) add(what, about string, detail map[string]string) {
	select {
	case e.waiting <- replay.Event{At: time.Now().UTC(), Worker: e.self, What: what, About: about, Detail: detail}:
	default:
	}
}

// run writes them until ctx ends.
func (e *events) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-e.waiting:
			if err := e.write(ctx, ev); err != nil && ctx.Err() == nil {
				e.log.Warn("writing an event to the status topic: it is left out", "event", ev.What, "about", ev.About, "error", err)
			}
		}
	}
}

func (e *events) write(ctx context.Context, ev replay.Event) error {
	ctx, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	value, err := replay.Encode(ev)
	if err != nil {
		return err
	}
	return e.out.Write(ctx, e.topic, ev.About, value)
}
