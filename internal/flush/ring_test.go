package flush

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// asker is the control topic as a Ring writes to it.
type asker struct {
	mu    sync.Mutex
	asked []replay.Request
	fail  func(id string) error
}

func (a *asker) ask(ctx context.Context, q replay.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, err := replay.Encode(q); err != nil {
		return err
	}
	if a.fail != nil {
		if err := a.fail(q.ID); err != nil {
			return err
		}
	}
	a.asked = append(a.asked, q)
	return ctx.Err()
}

func (a *asker) ids() (ids []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range a.asked {
		ids = append(ids, q.ID)
	}
	return ids
}

func underived() []mapping.Underived {
	return []mapping.Underived{{Pool: "feed"}, {Pool: "page", Stale: 30 * time.Second}}
}

// TestRing: what follows from a view for who had acted on some epochs.
func TestRing(t *testing.T) {
	first := ringRecord(1, "s0 a b", "s1 b c")
	for name, c := range map[string]struct {
		records []*sink.Record
		hole    bool // before the last one
		acted   []int64
		want    []string
	}{
		"nothing is new":                             {[]*sink.Record{first}, false, []int64{1}, nil},
		"a replica is promoted":                      {[]*sink.Record{first, ringRecord(2, "s0 b a", "s1 b c")}, false, []int64{1}, []string{"promotion/2/s0/feed", "promotion/2/s0/page"}},
		"a replica is another: no promotion":         {[]*sink.Record{first, ringRecord(2, "s0 a c", "s1 b c")}, false, []int64{1}, nil},
		"a shard is new: no promotion":               {[]*sink.Record{first, ringRecord(2, "s0 a b", "s1 b c", "s2 c a")}, false, []int64{1}, nil},
		"a new node is the primary":                  {[]*sink.Record{first, ringRecord(2, "s0 d b", "s1 b c")}, false, []int64{1}, []string{"promotion/2/s0/feed", "promotion/2/s0/page"}},
		"an epoch was skipped":                       {[]*sink.Record{first, ringRecord(5, "s0 b a", "s1 b c")}, false, []int64{1}, []string{"promotion/5/s0/feed", "promotion/5/s0/page"}},
		"two in quick succession, and back":          {[]*sink.Record{first, ringRecord(2, "s0 b a", "s1 b c"), ringRecord(3, "s0 a b", "s1 b c")}, false, []int64{1}, []string{"promotion/2/s0/feed", "promotion/2/s0/page", "promotion/3/s0/feed", "promotion/3/s0/page"}},
		"one of them was acted on":                   {[]*sink.Record{first, ringRecord(2, "s0 b a", "s1 b c"), ringRecord(3, "s0 a b", "s1 b c")}, false, []int64{1, 2}, []string{"promotion/3/s0/feed", "promotion/3/s0/page"}},
		"a record that is fed late lies in between":  {[]*sink.Record{first, ringRecord(2, "s0 b a", "s1 b c"), ringRecord(3, "s0 b a", "s1 b c")}, false, []int64{1, 3}, []string{"promotion/2/s0/feed", "promotion/2/s0/page"}},
		"nobody saw a record, and a node gained":     {[]*sink.Record{first, ringRecord(3, "s0 a b d", "s1 b c")}, true, []int64{1}, []string{"gained/3"}},
		"nobody saw a record, and none gained":       {[]*sink.Record{first, ringRecord(3, "s0 a", "s1 b c")}, true, []int64{1}, nil},
		"the registry was restored":                  {[]*sink.Record{first}, false, []int64{1, 7}, []string{"restored/7/1/feed", "restored/7/1/page"}},
		"the registry was restored, to what is new":  {[]*sink.Record{first, ringRecord(2, "s0 b a", "s1 b c")}, false, []int64{1, 7}, []string{"restored/7/2/feed", "restored/7/2/page", "promotion/2/s0/feed", "promotion/2/s0/page"}},
		"who acted on nothing has all that is known": {[]*sink.Record{first, ringRecord(2, "s0 b a", "s1 b c")}, false, nil, []string{"promotion/2/s0/feed", "promotion/2/s0/page"}},
		"a shard of the previous ring is promoted":   {[]*sink.Record{previous(ringRecord(2, "s0 a b", "s1 b c"), 1, "old c a"), previous(ringRecord(3, "s0 a b", "s1 b c"), 1, "old a c")}, false, []int64{2}, []string{"promotion/3/old/feed", "promotion/3/old/page"}},
	} {
		t.Run(name, func(t *testing.T) {
			v := viewOf(t, c.records...)
			if c.hole {
				v.Unseen = []registry.Hole{{After: 1, Before: v.Topology.Epoch(), Until: time.Now().Add(time.Hour)}}
			}
			a := &asker{}
			r := NewRing("worker@w1", underived, a.ask)
			for range 3 { // every partition of the worker
				if err := r.Flush(t.Context(), c.acted, v); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(c.want, a.ids()); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestRingSaysWhatIsMeant(t *testing.T) {
	a := &asker{}
	v := viewOf(t, ringRecord(1, "s0 a b"), ringRecord(3, "s0 b a d"))
	v.Unseen = []registry.Hole{{After: 1, Before: 3, Until: time.Now().Add(time.Hour)}}
	if err := NewRing("worker@w1", underived, a.ask).Flush(t.Context(), []int64{1}, v); err != nil {
		t.Fatal(err)
	}
	for i := range a.asked {
		if a.asked[i].At.IsZero() {
			t.Error("it does not say when")
		}
		a.asked[i].At = time.Time{}
	}
	promotion := &replay.Cause{What: replay.Promotion, Epoch: 3}
	want := []replay.Request{
		{ID: "promotion/3/s0/feed", By: "worker@w1", Action: replay.Flush, Target: replay.Target{Pool: "feed", Shard: "s0"}, Cause: promotion},
		{ID: "promotion/3/s0/page", By: "worker@w1", Action: replay.Flush, Target: replay.Target{Pool: "page", Shard: "s0"}, Cause: promotion, Options: replay.Options{Stale: true, StaleFor: 30}},
		{ID: "gained/3", By: "worker@w1", Action: replay.Flush, Target: replay.Target{Gained: 3}, Cause: &replay.Cause{What: replay.Gained, Epoch: 3}},
	}
	if d := cmp.Diff(want, a.asked); d != "" {
		t.Error(d)
	}
}

// TestRingSaysNothingBeforeItIsWritten: what failed is asked for again, and what did not is not.
func TestRingSaysNothingBeforeItIsWritten(t *testing.T) {
	fail := true
	a := &asker{fail: func(id string) error {
		if fail && id == "promotion/2/s0/feed" {
			return errBroker
		}
		return nil
	}}
	v := viewOf(t, ringRecord(1, "s0 a b"), ringRecord(2, "s0 b a"))
	r := NewRing("worker@w1", underived, a.ask)
	if err := r.Flush(t.Context(), []int64{1}, v); !errors.Is(err, errBroker) {
		t.Errorf("%v", err)
	}
	fail = false
	if err := r.Flush(t.Context(), []int64{1}, v); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff([]string{"promotion/2/s0/page", "promotion/2/s0/feed"}, a.ids()); d != "" {
		t.Error(d)
	}
}

// TestRingIsAskedByAllPartitionsAtOnce: each returns when all is written, and it is written once.
func TestRingIsAskedByAllPartitionsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &asker{fail: func(string) error { time.Sleep(time.Second); return nil }}
		v := viewOf(t, ringRecord(1, "s0 a b"), ringRecord(2, "s0 b a"))
		r := NewRing("worker@w1", underived, a.ask)
		impatient, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() { // the first
			if err := r.Flush(t.Context(), []int64{1}, v); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if err := r.Flush(impatient, []int64{1}, v); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("whose partition is revoked: %v", err)
			}
		})
		for range 256 {
			wg.Go(func() {
				if err := r.Flush(t.Context(), []int64{1}, v); err != nil {
					t.Error(err)
				}
				if got := a.ids(); len(got) != 2 {
					t.Errorf("it returned when %v were written", got)
				}
			})
		}
		wg.Wait()
		if got := a.ids(); len(got) != 2 || !slices.Contains(got, "promotion/2/s0/feed") {
			t.Error(got)
		}
	})
}

// TestRingForgets what no record names any more.
func TestRingForgets(t *testing.T) {
	a := &asker{}
	r := NewRing("worker@w1", underived, a.ask)
	second, third, fourth := ringRecord(2, "s0 b a"), ringRecord(3, "s0 b a"), ringRecord(4, "s0 a b")
	for _, v := range []*registry.View{viewOf(t, ringRecord(1, "s0 a b"), second), viewOf(t, third, fourth)} {
		if err := r.Flush(t.Context(), []int64{v.Epochs()[0]}, v); err != nil {
			t.Fatal(err)
		}
	}
	if len(r.asked) != 2 {
		t.Errorf("it remembers %v", r.asked)
	}
}
