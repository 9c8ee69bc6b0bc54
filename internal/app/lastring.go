package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/sink"
	"invalidator/sink/registry"
)

const (
	// ringWait is how long a new ring record waits to be written down before it comes into force all the same.
	ringWait = time.Second
	// ringsEvery is how often a worker looks whether another one has seen more of the registry, and writes down what it has seen itself.
	ringsEvery = time.Second
	// ringsTimeout bounds one such turn.
	ringsTimeout = 10 * time.Second
)

// lastRings keeps the ring records and hot keys that workers of a fleet have seen on the state topic, for as long as a copy placed under
// them may live, and has this worker know what others saw.
//
// A record is written before it comes into force, so that whoever takes a partition over knows every record that its changes were issued
// under. Where Kafka is away it comes into force after ringWait all the same, and is written later: the deletes of its new owners must
// not wait, and without Kafka no partition can change its owner either.
type lastRings struct {
	fleet, host string
	log         *slog.Logger
	watcher     registry.Watcher
	opened      chan struct{} // closed when the watcher has what the topic had

	// Run's own, and before it open's: what the topic says, and whether it could not be asked.
	hot      map[string]changelog.SavedHot
	newest   changelog.SavedNewest
	follower *changelog.KeyFollower // of newest
	theirs   int64                  // how often others had written newest when the topic was read
	wrote    int64                  // how often we have
	untold   bool                   // something was written since
	failing  bool

	mu    sync.Mutex // guards what follows, which keep uses from the watcher's goroutine
	store *changelog.StateStore
	rings map[int64]bool // epochs that stand on the topic
}

func newLastRings(fleet string, log *slog.Logger) *lastRings {
	host, _ := os.Hostname()
	return &lastRings{fleet: fleet, host: host, log: log, rings: map[int64]bool{}, hot: map[string]changelog.SavedHot{}, opened: make(chan struct{})}
}

// options are what the watcher is made with.
func (l *lastRings) options(c config.Cache) registry.Options {
	return registry.Options{MaxTTL: c.MaxTTL, Lag: c.Ring.Lag, Keep: l.keep}
}

// keep is registry.Options.Keep.
func (l *lastRings) keep(s registry.Sight) {
	ctx, cancel := context.WithTimeout(context.Background(), ringWait)
	defer cancel()
	l.mu.Lock()
	store := l.store
	l.mu.Unlock()
	if store == nil { // it was not opened: save does it
		return
	}
	if err := l.put(ctx, store, s); err != nil {
		l.log.Warn("writing a ring record down before it comes into force; it is tried again", "epoch", s.Record.Epoch, "error", err)
	}
}

func (l *lastRings) put(ctx context.Context, store *changelog.StateStore, s registry.Sight) error {
	record, err := json.Marshal(s.Record)
	if err != nil {
		return fmt.Errorf("encoding the ring record of epoch %d: %w", s.Record.Epoch, err)
	}
	err = store.PutRing(ctx, l.fleet, changelog.SavedRing{Epoch: s.Record.Epoch, Seen: s.Seen, By: l.host, Record: record})
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rings[s.Record.Epoch] = true
	return nil
}

// open gives the watcher what the state topic has. It waits for a topic that cannot be read. What others write is counted before the rest is read:
// what they write meanwhile is read again.
func (l *lastRings) open(ctx context.Context, store *changelog.StateStore, w registry.Watcher) error {
	var st *changelog.State
	err := insist(ctx, l.log, "reading which ring records and hot keys were seen", func() (err error) {
		if l.follower == nil {
			if l.follower, err = store.Follow(changelog.NewestKey(l.fleet)); err != nil {
				return err
			}
		}
		if _, _, err = l.follower.Get(ctx); err != nil {
			return err
		}
		st, err = store.Load(ctx)
		return err
	})
	if err != nil {
		if l.follower != nil {
			l.follower.Close()
		}
		return err
	}
	l.theirs = l.follower.Count()
	l.mu.Lock()
	l.store, l.watcher = store, w
	l.mu.Unlock()
	w.Feed(l.saved(st))
	close(l.opened)
	return nil
}

// watch runs the watcher once it knows where the sight of others ended: what happened between, and was undone, is history by then, which
// only a watch from there shows.
func (l *lastRings) watch(ctx context.Context, w registry.Watcher) error {
	select {
	case <-l.opened:
		return w.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// first writes down what the watcher had in sight before the topic was open.
func (l *lastRings) first(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, ringsTimeout)
	defer cancel()
	if err := l.save(ctx, l.watcher.View()); err != nil && ctx.Err() == nil {
		l.log.Warn("writing down the ring record before anything is deleted under it; it is tried again", "error", err)
	}
}

// saved is what the topic says. What of it cannot be read is told, and left out.
func (l *lastRings) saved(st *changelog.State) registry.Saved {
	rings, badRings := st.LoadRings(l.fleet)
	hot, badHot := st.LoadHot(l.fleet)
	newest, badNewest := st.LoadNewest(l.fleet)
	bad := []error{badRings, badHot, badNewest}
	out := registry.Saved{HotRevision: newest.HotRevision, HotSeen: newest.HotRevision, Hot: make(map[string]sink.HotEntry, len(hot))}
	known := make(map[int64]bool, len(rings))
	for epoch, r := range rings {
		known[epoch] = true
		record, err := sink.ParseRecord(changelog.RingKey(l.fleet, epoch), r.Record)
		if err == nil && record.Epoch != epoch {
			err = fmt.Errorf("the ring record under epoch %d has epoch %d", epoch, record.Epoch)
		}
		if err != nil {
			bad = append(bad, err)
			continue
		}
		out.Sights = append(out.Sights, registry.Sight{Record: record, Seen: r.Seen})
	}
	for key, h := range hot {
		out.Hot[key] = sink.HotEntry(h)
		out.HotRevision = max(out.HotRevision, h.Revision)
	}
	if err := errors.Join(bad...); err != nil {
		l.log.Error("some of the ring records and hot keys that workers have seen cannot be read: copies under them are not deleted until the registry shows them", "error", err)
	}
	l.hot, l.newest = hot, newest
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rings = known
	return out
}

// start follows the topic, and writes down what this worker sees, until the returned function is called, which waits for its end.
func (l *lastRings) start(ctx context.Context) (stop func()) {
	return inBackground(context.WithoutCancel(ctx), l.run) // it goes on while the process drains
}

func (l *lastRings) run(ctx context.Context) {
	tick := time.NewTicker(ringsEvery)
	defer tick.Stop()
	defer l.follower.Close()
	for {
		err := l.turn(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !l.failing {
			l.log.Error("following which ring records and hot keys other workers have seen, and writing down our own: it is tried again", "error", err, "every", ringsEvery)
		} else if err == nil && l.failing {
			l.log.Info("ring records and hot keys are followed, and written down, again")
		}
		l.failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// turn learns what others saw, and then says what we did.
func (l *lastRings) turn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ringsTimeout)
	defer cancel()
	value, found, err := l.follower.Get(ctx)
	if err != nil {
		return err
	}
	l.newest = changelog.SavedNewest{}
	if found {
		if l.newest, err = changelog.DecodeNewest(value); err != nil {
			return err
		}
	}
	// Not whether it is later than what we see: of what came and went before our first look, and is written down only now, we see nothing,
	// though our registry is later.
	if theirs := l.follower.Count() - l.wrote; theirs != l.theirs || l.watcher.View() == nil {
		st, err := l.store.Load(ctx)
		if err != nil {
			return err
		}
		l.watcher.Feed(l.saved(st))
		l.theirs = theirs
	}
	v := l.watcher.View()
	if v == nil {
		return nil
	}
	return l.save(ctx, v)
}

// save writes what the topic lacks of a view, then up to where it goes, which tells others that there is more, and removes what has expired.
func (l *lastRings) save(ctx context.Context, v *registry.View) error {
	for _, s := range v.Sights {
		if l.has(s.Record.Epoch) {
			continue
		}
		l.untold = true
		if err := l.put(ctx, l.store, s); err != nil {
			return err
		}
	}
	for key, e := range v.Hot.Entries {
		has, known := l.hot[key]
		if now := changelog.SavedHot(e); !known || now.Revision > has.Revision || now.Most > has.Most {
			l.untold = true
			if err := l.store.PutHot(ctx, l.fleet, key, now); err != nil {
				return err
			}
			l.hot[key] = now
		}
	}
	now := changelog.SavedNewest{Epoch: max(l.newest.Epoch, v.Topology.Epoch()), HotRevision: max(l.newest.HotRevision, v.Hot.Revision())}
	if now != l.newest || l.untold {
		if err := l.store.PutNewest(ctx, l.fleet, now); err != nil {
			return err
		}
		l.newest, l.untold = now, false
		l.wrote++
	}
	return l.forget(ctx, v)
}

func (l *lastRings) has(epoch int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rings[epoch]
}

// forget removes what the view no longer counts.
func (l *lastRings) forget(ctx context.Context, v *registry.View) error {
	there := map[string]bool{}
	for key := range v.Hot.Entries {
		there[key] = true
	}
	var keys, hot []string
	for key := range l.hot {
		if !there[key] {
			keys, hot = append(keys, changelog.HotKey(l.fleet, key)), append(hot, key)
		}
	}
	var epochs []int64
	l.mu.Lock()
	for epoch := range l.rings {
		if epoch < v.Sights[0].Record.Epoch {
			keys, epochs = append(keys, changelog.RingKey(l.fleet, epoch)), append(epochs, epoch)
		}
	}
	l.mu.Unlock()
	if len(keys) == 0 {
		return nil
	}
	if err := l.store.Remove(ctx, keys...); err != nil {
		return err
	}
	for _, key := range hot {
		delete(l.hot, key)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, epoch := range epochs {
		delete(l.rings, epoch)
	}
	return nil
}
