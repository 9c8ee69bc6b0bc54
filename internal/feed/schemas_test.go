package feed

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
)

// historian is a fake feeder that keeps one layout more each time that it runs, and forgets all behind a gap.
type historian struct {
	*fakeFeeder
	mu      sync.Mutex
	known   map[cdc.TableID][]cdc.Layout
	history cdc.History
	had     []int // how many layouts of the table were known, of each Run
}

func (h *historian) Remember(known map[cdc.TableID][]cdc.Layout, to cdc.History) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.known, h.history = known, to
}

func (h *historian) Run(ctx context.Context, from cdc.Position, out cdc.Handler) error {
	if err := h.gap(from); err != nil {
		return err
	}
	id := cdc.TableID{Schema: "shop", Table: "users"}
	h.mu.Lock()
	h.had = append(h.had, len(h.known[id]))
	all := maps.Clone(h.known)
	all[id] = append(all[id], cdc.Layout{From: from, Columns: []cdc.LayoutColumn{{Name: "id", Type: "int", Full: "int"}}})
	h.mu.Unlock()
	if err := h.history.Replace(ctx, all); err != nil {
		return err
	}
	return h.fakeFeeder.Run(ctx, from, out)
}

func (h *historian) Restart(ctx context.Context) (cdc.Position, error) {
	if err := h.history.Replace(ctx, nil); err != nil {
		return cdc.Position{}, err
	}
	return h.fakeFeeder.Restart(ctx)
}

func (h *historian) last() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.had) == 0 {
		return -1
	}
	return h.had[len(h.had)-1]
}

// Layouts go from leader to leader with the position, and only with it.
func TestLayoutsGoWithThePosition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		lead := func(saves bool) int {
			h := &historian{fakeFeeder: f}
			stop := b.start(shop(h))
			if saves {
				f.commit(insert("1"))
			}
			time.Sleep(5 * time.Second)
			_ = stop()
			return h.last()
		}
		for i, saves := range []bool{true, true, false, false, true, true} {
			// One that saves no position leaves nothing to who follows: what it kept is true at no saved position.
			if n, want := lead(saves), []int{0, 1, 2, 2, 2, 3}[i]; n != want {
				t.Errorf("leader %d knew %d layouts, want %d", i, n, want)
			}
		}
		var keys []string
		for key := range b.state().Under("schema", "shop") {
			keys = append(keys, key)
		}
		if len(keys) != 1 || !strings.HasPrefix(keys[0], "schema/shop/shop/users/") {
			t.Errorf("on the topic are %q", keys)
		}
	})
}

func TestLayoutsEndInAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		h := &historian{fakeFeeder: f}
		stop := b.start(shop(h))
		f.commit(insert("1"))
		time.Sleep(5 * time.Second)
		_ = stop()
		f.commit(insert("2"))
		f.purge(cdc.GapError{Err: errors.New("purged")})
		h = &historian{fakeFeeder: f}
		s := shop(h)
		s.OnGapFlush = true
		b.start(s)
		time.Sleep(30 * time.Second)
		if h.last() != 0 || f.restarts == 0 {
			t.Errorf("behind a gap (%d) %d layouts are known", f.restarts, h.last())
		}
	})
}

// A record of a newer version stops the source, with its key: it is not taken for none.
func TestLayoutsOfANewerVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		stop := b.start(shop(&historian{fakeFeeder: f}))
		f.commit(insert("1"))
		time.Sleep(5 * time.Second)
		_ = stop()
		store, err := changelog.OpenState(b.Options, b.Names.State)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		var key string
		for k := range b.state().Under("schema", "shop") {
			key = k
			if err := store.Put(t.Context(), k, []byte(`{"v":2}`)); err != nil {
				t.Fatal(err)
			}
		}
		h := &historian{fakeFeeder: f}
		b.start(shop(h))
		time.Sleep(10 * time.Second)
		health := strings.Join(b.feed.Health(), "\n")
		if h.last() != -1 || key == "" || !strings.Contains(health, key) || !strings.Contains(health, "unknown format version 2") {
			t.Errorf("ran with %d layouts; health %q", h.last(), health)
		}
	})
}
