package pipeline

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"invalidator/internal/changelog"
)

// shown is what is scraped of a metric with these values of labels; nil: nothing.
func (r *rig) shown(t *testing.T, name string, labels ...string) *dto.Metric {
	t.Helper()
	families, err := r.w.opts.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.Metric {
			var values []string
			for _, l := range m.Label {
				values = append(values, l.GetValue())
			}
			if strings.Join(values, " ") == strings.Join(labels, " ") {
				return m
			}
		}
	}
	return nil
}

// wantLag wants a gauge to show so long.
func (r *rig) wantLag(t *testing.T, want time.Duration, name string, labels ...string) {
	t.Helper()
	synctest.Wait()
	m := r.shown(t, name, labels...)
	if m == nil {
		t.Fatalf("%s %q is not shown", name, labels)
	}
	if got := m.GetGauge().GetValue(); got < want.Seconds()-0.001 || got > want.Seconds()+0.001 {
		t.Errorf("%s %q: %g s, want %s", name, labels, got, want)
	}
}

// wantFresh wants so many changes to have been observed, and the sum of how long they took.
func (r *rig) wantFresh(t *testing.T, changes uint64, took time.Duration, pool string) {
	t.Helper()
	synctest.Wait()
	h := r.shown(t, "invalidator_freshness_seconds", pool, "shop").GetHistogram() // labels are sorted by name
	if h.GetSampleCount() != changes || h.GetSampleSum() < took.Seconds()-0.001 || h.GetSampleSum() > took.Seconds()+0.001 {
		t.Errorf("pool %s: %d changes that took %g s, want %d of %s", pool, h.GetSampleCount(), h.GetSampleSum(), changes, took)
	}
}

const (
	lagOfSource    = "invalidator_lag_seconds"
	lagOfPartition = "invalidator_partition_lag_seconds"
	lagOfNode      = "invalidator_node_lag_seconds"
)

// committed is a row's change of a commit so long ago.
func (r *rig) committed(offset int64, ago time.Duration, shard string) {
	c := update(r.idIn(offset, shard), "a@x.test", "a@x.test")
	c.CommitTime = time.Now().Add(-ago)
	r.send(offset, c)
}

// How fresh: from the commit to the last copy's first delete, whatever rounds follow.
func TestFreshness(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.wantLag(t, 0, lagOfSource, "shop")
		r.committed(0, 3*time.Second, "s0")
		r.wantFresh(t, 1, 3*time.Second, "user")
		r.wantLag(t, 0, lagOfSource, "shop")
		r.pass(3 * settle)
		r.wantFresh(t, 1, 3*time.Second, "user")
	})
}

// While a copy does not answer, the lag rises, though nothing else comes; the change is observed when it has.
func TestLagOfAStandstill(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.nodes.hold("n2", true)
		r.committed(0, time.Second, "s0")
		r.committed(1, 0, "s1") // of other nodes: it is done
		r.pass(9 * time.Second)
		r.wantLag(t, 10*time.Second, lagOfSource, "shop")
		r.wantLag(t, 10*time.Second, lagOfPartition, "0", users.Topic)
		r.wantLag(t, 0, lagOfNode, "n2:1")
		r.wantFresh(t, 1, 0, "user")
		r.pass(time.Minute)
		r.wantLag(t, 70*time.Second, lagOfSource, "shop")
		r.nodes.hold("n2", false)
		r.wantLag(t, 0, lagOfSource, "shop")
		r.wantFresh(t, 2, 70*time.Second, "user")
	})
}

// What a node owes is no lag of its source. It is the node's, and the change counts as fresh when that has been paid.
func TestLagOfANode(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.nodes.turn("n2", false)
		r.committed(0, 0, "s0")
		r.pass(10 * time.Second)
		r.wantLag(t, 0, lagOfSource, "shop")
		r.wantLag(t, 10*time.Second, lagOfNode, "n2:1")
		r.wantLag(t, 0, lagOfNode, "n1:1")
		if h := r.shown(t, "invalidator_freshness_seconds", "user", "shop"); h != nil {
			t.Errorf("it counts as fresh: %s", h)
		}
		r.nodes.turn("n2", true)
		r.pass(gather + 5*settle)
		r.wantLag(t, 0, lagOfNode, "n2:1")
		r.wantFresh(t, 1, 10*time.Second+gather, "user")
	})
}

// A record that waits to be taken counts by when it was written, since nobody has looked at it.
func TestLagOfWhatWaits(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.w.partition(users).draining.Store(true) // it takes nothing
		r.committed(0, time.Hour, "s0")
		r.pass(5 * time.Second)
		r.wantLag(t, 5*time.Second, lagOfSource, "shop")
	})
}

// A commit in the future is a clock that differs, and one that is not known is not guessed.
func TestFreshnessOfStrangeClocks(t *testing.T) {
	ringed(t, func(t *testing.T, r *rig) {
		r.committed(0, -time.Hour, "s0")
		r.wantFresh(t, 1, 0, "user")
		c := update(r.idIn(1, "s0"), "a@x.test", "a@x.test")
		c.CommitTime = time.Time{}
		r.send(1, c)
		r.wantFresh(t, 1, 0, "user")
		r.nodes.hold("n2", true)
		r.send(2, c)
		r.pass(4 * time.Second)
		r.wantLag(t, 4*time.Second, lagOfSource, "shop")
	})
}

// A change of two pools is one of each; two keys of one pool are one.
func TestFreshnessByPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRigOf(t, "version: 1\nteam: profiles\npools: [user, feed]\nmappings:\n  - {name: user, table: shop.users, keys: ['user:{id}', 'user:by-email:{email}', 'feed:{id}']}\n")
		if r.shown(t, lagOfSource, "shop") != nil {
			t.Error("a worker that owns nothing says how far the source is")
		}
		r.w.Assign(users, 0, changelog.Restored{})
		c := update("1", "a@x.test", "b@x.test")
		c.CommitTime = time.Now().Add(-2 * time.Second)
		r.send(0, c)
		r.wantFresh(t, 1, 2*time.Second, "user")
		r.wantFresh(t, 1, 2*time.Second, "feed")
	})
}
