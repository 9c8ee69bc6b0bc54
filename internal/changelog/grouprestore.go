package changelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	rouseEvery        = time.Second     // between two looks at what waits
	restoreBackoffMax = 5 * time.Second // between two attempts at reading what earlier owners left
)

// waiting is a partition that was given to us, is paused, and begins when what earlier owners left has been read.
type waiting struct {
	at     int64  // the next record
	start  int64  // the log's, or -1: not known
	bare   bool   // nothing was committed
	state  string // key of the state to which the commit points; empty: none, or of another log
	unsaid bool   // there is a commit, and it does not say where its state lies: somebody else set it
	own    *ownership
}

// holdBack keeps partitions from being read until they have begun.
func (g *Group) holdBack(ws map[Partition]*waiting) {
	pause := map[string][]int32{}
	for p := range ws {
		pause[p.Topic] = append(pause[p.Topic], p.Number)
	}
	g.cl.PauseFetchPartitions(pause)
	g.mu.Lock()
	maps.Copy(g.mu.waiting, ws)
	g.mu.Unlock()
}

// restoreLoop begins partitions whose state could not be read when they came. Each is alone with its trouble: what is ours
// already goes on. It also rouses the client each second, which misses a resume that comes while it takes in an assignment, and would
// then leave a whole broker's partitions unread.
func (g *Group) restoreLoop(ctx context.Context) {
	backoff := rouseEvery
	for due := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(rouseEvery):
		}
		g.cl.ResumeFetchPartitions(nil)
		g.mu.Lock()
		ws := maps.Clone(g.mu.waiting)
		g.mu.Unlock()
		if len(ws) == 0 {
			backoff = rouseEvery
			continue
		}
		if time.Now().Before(due) {
			continue
		}
		g.restore(ctx, ws)
		due = time.Now().Add(backoff)
		backoff = min(2*backoff, restoreBackoffMax)
	}
}

// restore is tryRestore by one goroutine at a time, and loud.
func (g *Group) restore(ctx context.Context, ws map[Partition]*waiting) {
	select {
	case g.restoring <- struct{}{}:
	case <-ctx.Done():
		return
	}
	defer func() { <-g.restoring }()
	if err := g.tryRestore(ctx, ws); err != nil && ctx.Err() == nil {
		g.log.Error("partitions stand still until what their last owner left can be read; tried again", "error", err)
	}
}

// tryRestore reads what earlier owners of partitions left, in one go, and begins those where it could. A start without what is owed
// would lose deletes.
func (g *Group) tryRestore(ctx context.Context, ws map[Partition]*waiting) error {
	if ws = g.stillWaiting(ws); len(ws) == 0 {
		return nil
	}
	prefixes := map[string]bool{} // <group>/<topic>
	for p := range ws {
		prefixes[StateKey(g.opts.Group, p.Topic)] = true
	}
	state, err := g.opts.State.LoadOnly(ctx, func(key []byte) bool {
		kind, rest, _ := bytes.Cut(key, []byte("/"))
		switch string(kind) {
		case "partition", "journal", "seen":
		default:
			return false
		}
		group, rest, _ := bytes.Cut(rest, []byte("/"))
		topic, _, _ := bytes.Cut(rest, []byte("/"))
		return prefixes[string(group)+"/"+string(topic)]
	})
	if err != nil {
		return err
	}
	if err := g.meet(ctx, ws, state); err != nil {
		return err
	}
	select {
	case g.turn <- struct{}{}: // no revoke comes between
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-g.turn }()
	var failed error
	for p, w := range ws {
		pa, was, err := g.papersOf(state, p, w)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", p, err))
			continue
		}
		w.own.papers = pa
		if g.begins(p, w) {
			g.assign(p, w.at, w.own, was)
		}
	}
	return failed
}

// meet finds which partitions without a commit were seen before, which is a loss, and notes that the others are now.
func (g *Group) meet(ctx context.Context, ws map[Partition]*waiting, state *State) error {
	var fresh []Write
	for p, w := range ws {
		if !w.bare {
			continue
		}
		key := seenKey(g.opts.Group, p)
		if _, seen := state.Get(key); !seen {
			if w.start >= 0 {
				fresh = append(fresh, Write{key, seenRecord(w.start)})
			}
		} else if len(w.own.losses) == 0 {
			w.own.losses = []Loss{{p, -1, w.at, "a partition that was seen before has no committed offset"}}
		}
	}
	if _, err := g.opts.State.PutAll(ctx, fresh); err != nil {
		return fmt.Errorf("noting which partitions were seen: %w", err)
	}
	return nil
}

// stillWaiting leaves out what another restore has begun meanwhile: what that one has noted of a partition is no earlier owner's.
func (g *Group) stillWaiting(ws map[Partition]*waiting) map[Partition]*waiting {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := make(map[Partition]*waiting, len(ws))
	for p, w := range ws {
		if g.mu.waiting[p] == w {
			left[p] = w
		}
	}
	return left
}

// begins reports whether a partition still waits, and ends its waiting.
func (g *Group) begins(p Partition, w *waiting) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.waiting[p] != w {
		return false
	}
	delete(g.mu.waiting, p)
	return true
}

// letGo forgets partitions that have not begun.
func (g *Group) letGo(which func(Partition) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.mu.waiting, func(p Partition, _ *waiting) bool { return which(p) })
}

// beginAnew gives a partition up and begins it again at the end of a loss, with what is on the state topic. Offsets of the old log say
// nothing of the new one: neither what is in flight nor what was committed.
func (g *Group) beginAnew(l Loss) {
	g.turn <- struct{}{}
	defer func() { <-g.turn }()
	g.mu.Lock()
	old := g.mu.owned[l.Partition]
	g.mu.Unlock()
	if old == nil {
		return
	}
	g.c.Revoke([]Partition{l.Partition})
	g.giveUp([]Partition{l.Partition})
	g.holdBack(map[Partition]*waiting{l.Partition: {
		at: l.To, start: -1, state: old.state,
		own: &ownership{committed: nothingCommitted, commitAt: -1, topicID: old.topicID, losses: append(old.losses, l)},
	}})
	g.cl.SetOffsets(map[string]map[int32]kgo.EpochOffset{l.Topic: {l.Number: {Epoch: -1, Offset: l.To}}})
}
