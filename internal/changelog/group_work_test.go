package changelog_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
)

// claims notes which work is ours.
type claims struct {
	mu    sync.Mutex
	owned []int32
}

func (c *claims) on(o *changelog.GroupOptions) {
	o.Work = func(owned []int32) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.owned = slices.Clone(owned)
	}
}

func (c *claims) now() []int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owned
}

// Each partition of work is one member's, and moves when that member leaves or dies. Changes are shared out evenly beside it, and
// nothing of the work's topic is fetched or committed.
func TestWorkIsClaimedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		wide := "shop.shop.wide"
		_, err := changelog.EnsureTopics(t.Context(), g.cluster.Admin(t), []changelog.TopicSpec{changelog.Settings{Partitions: 7}.Change(wide)})
		must(t, err)
		info, err := g.cluster.Admin(t).ListTopics(t.Context(), g.cluster.Names.Work)
		must(t, err)
		g.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			g.cluster.KeepControl()
			for _, asked := range req.(*kmsg.FetchRequest).Topics {
				if asked.TopicID == info[g.cluster.Names.Work].ID || asked.Topic == g.cluster.Names.Work {
					t.Error("the work's topic is fetched")
				}
			}
			return nil, nil, false
		})
		first, second := &claims{}, &claims{}
		secondConsumer := newFakeConsumer()
		leave := g.join(g.c, first.on)
		g.await(t, "all work", func() bool { return len(first.now()) == changelog.WorkPartitions })
		g.produce(3)
		g.c.await(t, func() bool { return g.c.next[users0] == 3 })

		l := g.line(t)
		leaveSecond := g.join(secondConsumer, l.on, second.on)
		g.await(t, "half of it each", func() bool {
			a, b := first.now(), second.now()
			if len(a)+len(b) != changelog.WorkPartitions || len(b) == 0 {
				return false
			}
			for _, n := range a {
				if slices.Contains(b, n) {
					t.Errorf("work %d is both members'", n)
				}
			}
			return true
		})
		time.Sleep(5 * time.Second)
		secondConsumer.mu.Lock()
		n, w := len(secondConsumer.started), len(second.now())
		secondConsumer.mu.Unlock()
		if n < 3 || n > 5 || w < 28 || w > 36 { // of 8, and of 64
			t.Errorf("the second member has %d partitions of changes and %d of work", n, w)
		}
		l.cut()
		began := time.Now()
		g.await(t, "all work again", func() bool { return len(first.now()) == changelog.WorkPartitions })
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("work stood still for %s", took)
		}
		leaveSecond()
		leave()
		if n := len(first.now()); n != 0 {
			t.Errorf("%d partitions of work are claimed after the leave", n)
		}
		offsets, err := g.cluster.Admin(t).FetchOffsets(t.Context(), "workers")
		must(t, err)
		if _, ok := offsets.Lookup(g.cluster.Names.Work, 0); ok {
			t.Error("work is committed")
		}
	})
}

// Who was stopped for longer than a session thinks that its work is its own, and asks the broker.
func TestWhoWasStoppedHoldsNoWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		work := changelog.WorkPartition("flush")
		first, second := &claims{}, &claims{}
		l := g.line(t)
		leave := g.join(g.c, l.on, first.on)
		stopped := g.group
		g.await(t, "all work", func() bool { return len(first.now()) == changelog.WorkPartitions })
		must(t, stopped.HoldsWork(t.Context(), work))
		if err := stopped.HoldsWork(t.Context(), changelog.WorkPartitions); !errors.Is(err, changelog.ErrNotOurs) {
			t.Errorf("a partition that there is not: %v", err)
		}
		l.freeze()
		if err := stopped.HoldsWork(t.Context(), work); err == nil || errors.Is(err, changelog.ErrNotOurs) {
			t.Errorf("while nothing answers: %v", err)
		}
		leaveSecond := g.join(newFakeConsumer(), second.on)
		g.await(t, "all work at the second", func() bool { return len(second.now()) == changelog.WorkPartitions })
		must(t, g.group.HoldsWork(t.Context(), work))
		if len(first.now()) == 0 {
			t.Fatal("the first has heard of it already")
		}
		l.thaw()
		for range 100 { // until the first is a member again, and holds its part
			if first, second := stopped.HoldsWork(t.Context(), work), g.group.HoldsWork(t.Context(), work); first == nil && second == nil {
				t.Fatal("both hold it")
			}
			time.Sleep(100 * time.Millisecond)
		}
		leaveSecond()
		leave()
	})
}

// A name's work is always the same partition's.
func TestWorkPartition(t *testing.T) {
	if a, b := changelog.WorkPartition("hot/feed:42"), changelog.WorkPartition("hot/feed:42"); a != b || a != 14 || a >= changelog.WorkPartitions {
		t.Error(a, b)
	}
}
