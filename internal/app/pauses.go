package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/mapping"
	"invalidator/replay"
)

const (
	// pausesEvery is how often a worker asks whether a pool was paused or resumed.
	pausesEvery = time.Second
	// pausesTimeout bounds one such turn.
	pausesTimeout = 10 * time.Second
)

// pauses has a worker know which pools of its fleet are paused.
type pauses struct {
	fleet string
	store *changelog.StateStore
	hold  func(pools []string)
	log   *slog.Logger

	follower *changelog.KeyFollower
	seen     []byte // the followed record when the pauses were last read
	read     bool   // they were
	told     string // pools that are paused, as the log has them
}

// open reads the pauses before the first record is taken. It waits for a topic that cannot be read.
func (p *pauses) open(ctx context.Context) error {
	return insist(ctx, p.log, "reading which pools are paused", func() error { return p.turn(ctx) })
}

// run follows them until ctx ends.
func (p *pauses) run(ctx context.Context) {
	tick := time.NewTicker(pausesEvery)
	defer tick.Stop()
	defer func() {
		if p.follower != nil {
			p.follower.Close()
		}
	}()
	for failing := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := p.turn(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			p.log.Error("following which pools are paused: what was last read holds, and it is tried again", "error", err, "every", pausesEvery)
		} else if err == nil && failing {
			p.log.Info("pauses of pools are followed again")
		}
		failing = err != nil
	}
}

// turn reads the pauses where they are other ones. What it follows is asked first: a pause that is written meanwhile is seen in the next turn.
func (p *pauses) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pausesTimeout)
	defer cancel()
	if p.follower == nil {
		f, err := p.store.Follow(changelog.PauseKey(p.fleet))
		if err != nil {
			return err
		}
		p.follower = f
	}
	last, _, err := p.follower.Get(ctx)
	if err != nil {
		return err
	}
	if p.read && slices.Equal(last, p.seen) {
		return nil
	}
	all, err := loadPauses(ctx, p.store, p.fleet)
	var bad *changelog.RecordError
	switch {
	case errors.As(err, &bad):
		p.log.Error("a pause cannot be read: its pool counts as paused", "error", err)
	case err != nil:
		return err
	}
	held := pausedPools(all)
	p.hold(held)
	p.seen, p.read = last, true
	if text := strings.Join(held, ", "); text != p.told {
		p.told = text
		p.log.Warn("pools that are paused now: what changes of them is owed until they are resumed", "pools", cmp.Or(text, "none"))
	}
	return nil
}

// loadPauses is LoadPauses of the topic as it is now.
func loadPauses(ctx context.Context, store *changelog.StateStore, fleet string) (map[string]changelog.Pause, error) {
	st, err := store.LoadOnly(ctx, changelog.KeysUnder("pause", fleet))
	if err != nil {
		return nil, err
	}
	return st.LoadPauses(fleet)
}

// PoolError is a pool that a command cannot mean.
type PoolError struct {
	Pool string
	What string
}

func (e *PoolError) Error() string { return fmt.Sprintf("pool %q %s", e.Pool, e.What) }

// PausePool pauses or resumes a pool of the fleet, and returns what stands then. It needs Kafka alone. A pool that no mapping file in force claims is a
// *PoolError unless force says so; so is a resume of one that is not paused. Pausing one again keeps the first pause.
func PausePool(ctx context.Context, c *config.Config, p changelog.Pause, force bool, log *slog.Logger) (changelog.Pause, error) {
	ctx, cancel := context.WithTimeout(ctx, gapsTimeout)
	defer cancel()
	o, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return p, err
	}
	names := changelog.NamesFor(c.Kafka.TopicPrefix)
	store, err := openStateToRead(ctx, o, names.State)
	if err != nil {
		return p, err
	}
	defer store.Close()
	st, err := store.Load(ctx)
	if err != nil {
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			err = fmt.Errorf("%w (run makes it when it starts; is kafka.topic_prefix right?)", err)
		}
		return p, err
	}
	all, err := st.LoadPauses(c.Kafka.Group)
	if err != nil {
		log.Error("a pause cannot be read: its pool counts as paused", "error", err)
	}
	was, known := all[p.Pool]
	switch {
	case p.Paused && was.Paused && was.By != "":
		return was, store.PutPause(ctx, c.Kafka.Group, was) // an earlier try may have been cut short
	case p.Paused && !force && !known:
		if err := unknownPool(p.Pool, claimedPools(st, c.Kafka.Group)); err != nil {
			return p, err
		}
	case !p.Paused && !was.Paused:
		return p, &PoolError{p.Pool, "is not paused" + pausedOnes(all)}
	}
	if err := store.PutPause(ctx, c.Kafka.Group, p); err != nil {
		return p, err
	}
	return p, tellPause(ctx, o, names.Status, p)
}

// tellPause writes what was done to the status topic, where it stays as history.
func tellPause(ctx context.Context, o changelog.Options, topic string, p changelog.Pause) error {
	out, err := changelog.OpenWriter(o)
	if err != nil {
		return err
	}
	defer out.Close()
	what := "pool.resume"
	if p.Paused {
		what = "pool.pause"
	}
	value, err := replay.Encode(replay.Event{At: p.At, Worker: p.By, What: what, About: p.Pool, Detail: map[string]string{"by": p.By, "reason": p.Reason}})
	if err != nil {
		return err
	}
	return out.Write(ctx, topic, p.Pool, value)
}

// claimedPools are those of the mapping files in force, sorted.
func claimedPools(st *changelog.State, fleet string) (pools []string) {
	for _, s := range st.LoadMappings(fleet) {
		if s.Err != nil || !s.Gone.IsZero() {
			continue
		}
		if f, _ := mapping.Parse(s.Name, []byte(s.Text)); f != nil {
			pools = append(pools, f.Pools...)
			pools = append(pools, f.Underivable...)
		}
	}
	slices.Sort(pools)
	return slices.Compact(pools)
}

func unknownPool(pool string, claimed []string) error {
	if slices.Contains(claimed, pool) {
		return nil
	}
	near := mapping.Nearest(pool, claimed)
	switch {
	case near != "":
		return &PoolError{pool, fmt.Sprintf("is none of the fleet's: did you mean %q? (--force pauses it all the same)", near)}
	case len(claimed) == 0:
		return &PoolError{pool, "is not known: no mapping file is in force (--force pauses it all the same)"}
	}
	return &PoolError{pool, fmt.Sprintf("is none of the fleet's (there are: %s; --force pauses it all the same)", strings.Join(claimed, ", "))}
}

// pausedPools are those that are paused, sorted.
func pausedPools(all map[string]changelog.Pause) (pools []string) {
	for _, pool := range slices.Sorted(maps.Keys(all)) {
		if all[pool].Paused {
			pools = append(pools, pool)
		}
	}
	return pools
}

func pausedOnes(all map[string]changelog.Pause) string {
	held := pausedPools(all)
	if len(held) == 0 {
		return " (no pool is)"
	}
	return " (paused are: " + strings.Join(held, ", ") + ")"
}
