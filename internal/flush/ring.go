package flush

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// Ring asks for the flushes that a change of the ring makes necessary. It implements pipeline.RingFlusher, and is safe for concurrent use.
type Ring struct {
	by    string
	pools func() []mapping.Underived
	ask   func(context.Context, replay.Request) error

	turn  chan struct{}    // holds one token: one at a time asks, and the others find that it has
	asked map[string]int64 // ids that stand on the control topic, with their epochs; guarded by turn

	mu struct { // a leaf: every partition asks the same of one view
		sync.Mutex
		topology *sink.Topology
		promoted map[int64][]sink.Promotion // by the epoch from which on
	}
}

// NewRing makes one. by is this process, to people; pools are those whose keys no row gives, as the mapping files in force say it; ask writes a request, and returns nil
// when every in-sync replica has it.
func NewRing(by string, pools func() []mapping.Underived, ask func(context.Context, replay.Request) error) *Ring {
	return &Ring{by: by, pools: pools, ask: ask, turn: make(chan struct{}, 1), asked: map[string]int64{}}
}

// Flush asks for what v makes stale to who had acted on these epochs, and returns nil when all of it stands on the control topic. What was asked for by this process is
// not asked for again: every partition of a worker acts on the same view.
func (r *Ring) Flush(ctx context.Context, acted []int64, v *registry.View) error {
	requests := r.follow(acted, v)
	if len(requests) == 0 {
		return nil
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	first := v.Epochs()[0]
	maps.DeleteFunc(r.asked, func(_ string, epoch int64) bool { return epoch < first })
	var failed error
	for _, q := range requests {
		if _, done := r.asked[q.ID]; done {
			continue
		}
		q.At = time.Now().UTC()
		if err := r.ask(ctx, q); err != nil {
			failed = errors.Join(failed, fmt.Errorf("asking for the flush %s: %w", q.ID, err))
			if ctx.Err() != nil {
				return failed
			}
			continue
		}
		r.asked[q.ID] = q.Cause.Epoch
	}
	return failed
}

// follow are the requests that follow from v. Of records that v knows and who asks has not acted on: each shard with another primary than under the record before has its
// underivable pools flushed, and what nodes gained while nobody saw the record before is. Where who asks has acted on what v no longer knows, the registry was restored, and any
// shard may have had another primary.
func (r *Ring) follow(acted []int64, v *registry.View) (list []replay.Request) {
	epoch, pools := v.Topology.Epoch(), r.pools()
	if len(acted) > 0 {
		if was := slices.Max(acted); was > epoch {
			for _, pool := range pools {
				list = append(list, r.request(fmt.Sprintf("restored/%d/%d/%s", was, epoch, pool.Pool), replay.Target{Pool: pool.Pool}, replay.Promotion, epoch, pool.Stale))
			}
		}
	}
	news := slices.DeleteFunc(v.Epochs(), func(e int64) bool { return slices.Contains(acted, e) })
	if len(news) == 0 {
		return list
	}
	for _, p := range r.promoted(v, from(acted, news[0])) {
		for _, pool := range pools {
			id := fmt.Sprintf("promotion/%d/%s/%s", p.Epoch, p.Shard, pool.Pool)
			list = append(list, r.request(id, replay.Target{Pool: pool.Pool, Shard: p.Shard}, replay.Promotion, p.Epoch, pool.Stale))
		}
	}
	for _, e := range news {
		if len(v.Gained(e)) > 0 {
			list = append(list, r.request(fmt.Sprintf("gained/%d", e), replay.Target{Gained: e}, replay.Gained, e, 0))
		}
	}
	return list
}

// promoted are the promotions of v's records behind an epoch.
func (r *Ring) promoted(v *registry.View, a int64) []sink.Promotion {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.topology != v.Topology {
		r.mu.topology, r.mu.promoted = v.Topology, map[int64][]sink.Promotion{}
	}
	list, known := r.mu.promoted[a]
	if !known {
		records, _ := v.Between(a, v.Topology.Epoch())
		list = sink.NewMoves(records).Promoted()
		r.mu.promoted[a] = list
	}
	return list
}

// from is the greatest epoch acted on that is below all that are new; where there is none, the least of the new ones.
func from(acted []int64, news int64) int64 {
	a := news
	for _, e := range acted {
		if e < news && (a == news || e > a) {
			a = e
		}
	}
	return a
}

func (r *Ring) request(id string, t replay.Target, what string, epoch int64, stale time.Duration) replay.Request {
	q := replay.Request{ID: id, By: r.by, Action: replay.Flush, Target: t, Cause: &replay.Cause{What: what, Epoch: epoch}}
	if stale > 0 {
		q.Stale, q.StaleFor = true, int64(stale/time.Second)
	}
	return q
}
