//go:build integration

package delivery

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/sink"
)

// recent are the fills of the last time, for replicas that lag.
type recent struct {
	mu    sync.Mutex // guards fills
	fills []stored   // in the order of their times
}

// stored is a fill that a node took.
type stored struct {
	fill
	at time.Time
}

func (r *recent) add(f fill) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const kept = 8 << 10
	if len(r.fills) >= 2*kept {
		r.fills = slices.Delete(r.fills, 0, kept)
	}
	r.fills = append(r.fills, stored{f, time.Now()})
}

// of are the newest fills of each name that a node took in [from, to].
func (r *recent) of(n *node, from, to time.Time) map[string]fill {
	r.mu.Lock()
	defer r.mu.Unlock()
	by := map[string]fill{}
	for _, s := range r.fills {
		if s.node == n && !s.at.Before(from) && !s.at.After(to) {
			by[s.name] = s.fill
		}
	}
	return by
}

// lagBehind leaves on a replica what one has that copies late: values that its primary took, of names of some shards, up to a moment which is past,
// and which have reached it after the deletes that it had itself. What the primary was told to delete after that moment it never hears. It is called
// just before the replica takes the primary's place: the copying ends there.
func (w *world) lagBehind(primary, replica *node, shards []string, rng *rand.Rand) {
	until := time.Now()
	if !primary.away.IsZero() {
		until = primary.away
	}
	upTo := until.Add(-time.Duration(rng.Int64N(int64(mostLag * 3 / 4))))
	today := w.rings.newest()
	for name, f := range w.recent.of(primary, until.Add(-mostLag), upTo) {
		if !slices.Contains(shards, today.shardOf(name)) {
			continue
		}
		if now, err := w.render(context.Background(), f.key); err == nil && now != f.value {
			w.stats.lagging.Add(1)
		}
		from := time.Now()
		err := replica.Set(name, f.value)
		if err == nil && w.trail.excused(stale{node: primary, name: name, has: f.value}) {
			w.trail.excuse(fill{node: replica, name: name, value: f.value})
		}
		w.trail.add(event{from: from, to: time.Now(), what: "lagging, it has what " + primary.name + " had:", node: replica, name: name, value: f.value}, f.key.text)
	}
}

// seeder copies values from a shard's primary to its replica that is being seeded, by the rules of a reader without leases.
type seeder struct {
	w    *world
	id   string // of the shard
	stop func()
}

const seeders = 4

// beginSeeding begins to copy. Nobody has a value in hand any more when stop returns.
func (w *world) beginSeeding(ctx context.Context, id string, rngs [seeders]*rand.Rand) *seeder {
	ctx, cancel := context.WithCancel(ctx)
	s := &seeder{w: w, id: id}
	var eg errgroup.Group
	for _, rng := range rngs {
		eg.Go(func() error {
			for ctx.Err() == nil {
				s.copy(rng)
				pause(ctx, time.Duration(rng.IntN(5))*time.Millisecond)
			}
			return nil
		})
	}
	s.stop = sync.OnceFunc(func() { cancel(); eg.Wait() })
	return s
}

// copy copies one value, if the primary has it.
func (s *seeder) copy(rng *rand.Rand) {
	k := s.w.pick(rng)
	names := k.names(s.w.hot.copies(k.text, false))
	name := names[rng.IntN(len(names))]
	r := s.w.rings.newest()
	if r.shardOf(name) != s.id {
		return
	}
	shard := &r.Shards[slices.IndexFunc(r.Shards, func(x sink.Shard) bool { return x.ID == s.id })]
	i := slices.IndexFunc(shard.Replicas, func(x sink.Replica) bool { return x.Seeding })
	if i < 0 {
		return
	}
	nodes := s.w.nodesOf(shard)
	f := fill{reader: "the copier", key: k, name: name, node: nodes[i+1], source: nodes[0], from: time.Now()}
	hit, err := s.w.get(nodes[0], name)
	if err != nil || !hit.Found {
		return
	}
	f.value = hit.Value
	stall(rng, s.w.settle*6/10)
	if s.w.fill(f) {
		s.w.stats.seeded.Add(1)
	}
}
