package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/control"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/replay"
)

// requested is what a worker has of the control topic: it follows it, and is its clerk while that is its work.
type requested struct {
	state    *control.State
	follower *control.Follower
	clerk    *control.Clerk
	told     *progressTeller
}

// newRequested makes the parts; run starts them. set gives the mappings in force.
func (w *Worker) newRequested(self string, kafka changelog.Options, names changelog.Names, state *changelog.StateStore, out *changelog.Writer,
	ring watchedRing, set func() *mapping.Set, sources []*pipeline.Source) (*requested, error) {
	r := &requested{state: control.NewState(), told: newProgressTeller(out, names.Status, self, w.Log)}
	var err error
	r.follower, err = control.NewFollower(control.FollowerOptions{Kafka: kafka, Topic: names.Control, State: r.state, Log: w.Log, Registerer: w.Registry})
	if err != nil {
		return nil, err
	}
	r.clerk = control.NewClerk(control.ClerkOptions{
		Group: w.Config.Kafka.Group, Worker: self, Kafka: kafka, Names: names, State: r.state, Store: state, Say: out.Write, Log: w.Log,
		Match: func(topic string) bool { return pipeline.SourceOf(sources, topic) != nil },
		Known: func() control.Known { return control.KnownOf(ring.View(), set()) },
	})
	return r, nil
}

// run follows, plans and tells until stop is called, which waits for the end.
func (r *requested) run(ctx context.Context, log *slog.Logger) (stop func()) {
	var stops []func()
	for _, run := range []func(context.Context) error{r.follower.Run, r.clerk.Run, r.told.run} {
		stops = append(stops, inBackground(ctx, func(ctx context.Context) {
			if err := run(ctx); err != nil {
				log.Error("replays that are asked for are not seen until this process is started anew", "error", err)
			}
		}))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// claims tells several of the work partitions that are ours.
func claims(all ...func(owned []int32)) func(owned []int32) {
	return func(owned []int32) {
		for _, claim := range all {
			claim(owned)
		}
	}
}

const (
	// progressEvery is how often progress is written.
	progressEvery = time.Second
	// progressTimeout bounds the writing of what waits, and progressLast that at a process's end.
	progressTimeout = 10 * time.Second
	progressLast    = time.Second
)

// progressTeller writes to the status topic how far partitions have come with what is done again. Of an id and partition only the last waits, so that a broker that is
// away costs no more than what is done at the time.
type progressTeller struct {
	out         *changelog.Writer
	topic, self string
	log         *slog.Logger

	mu      sync.Mutex // guards waiting
	waiting map[progressOf]replay.Progress
}

type progressOf struct {
	id        string
	partition changelog.Partition
}

func newProgressTeller(out *changelog.Writer, topic, self string, log *slog.Logger) *progressTeller {
	return &progressTeller{out: out, topic: topic, self: self, log: log, waiting: map[progressOf]replay.Progress{}}
}

// add is pipeline.Options.Progress.
func (t *progressTeller) add(p pipeline.ProgressReport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting[progressOf{p.ID, p.Partition}] = replay.Progress{
		ID: p.ID, At: time.Now().UTC(), Worker: t.self, Shards: p.Shards,
		Range:  replay.Range{Topic: p.Partition.Topic, Partition: p.Partition.Number, From: p.From, To: p.To},
		Offset: min(max(p.Offset, p.From), p.To), Keys: p.Keys, Copies: p.Copies, Owed: p.Owed, Lost: p.Lost, Done: p.Done,
	}
}

// run writes until ctx ends, and then what still waits.
func (t *progressTeller) run(ctx context.Context) error {
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			t.turn(context.WithoutCancel(ctx), progressLast) //nolint:errcheck // it is for people, and nobody is left who tries again
			return nil
		case <-tick.C:
		}
		err := t.turn(ctx, progressTimeout)
		if err != nil && !failing && ctx.Err() == nil {
			t.log.Warn("writing to the status topic how far replays have come: tried again each second", "error", err)
		}
		failing = err != nil
	}
}

// turn writes what waits. What cannot be written waits on, unless there is news of it.
func (t *progressTeller) turn(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t.mu.Lock()
	now := t.waiting
	t.waiting = map[progressOf]replay.Progress{}
	t.mu.Unlock()
	for of, p := range now {
		value, err := replay.Encode(p)
		if err != nil { // it would never be written
			t.log.Error("telling how far a replay has come", "id", p.ID, "error", err)
		} else if err := t.out.Write(ctx, t.topic, p.ID, value); err != nil {
			t.putBack(now)
			return err
		}
		delete(now, of)
	}
	return nil
}

func (t *progressTeller) putBack(left map[progressOf]replay.Progress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for of, p := range left {
		if _, news := t.waiting[of]; !news {
			t.waiting[of] = p
		}
	}
}
