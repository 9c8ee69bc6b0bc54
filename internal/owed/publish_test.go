package owed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/obs/obstest"
	"invalidator/replay"
	"invalidator/sink/registry"
)

const node = "10.0.1.5:11211"

// fakeKeys is etcd's part: keys with revisions, as sink/registry's test shows of the real one.
type fakeKeys struct {
	mu       sync.Mutex
	revision int64
	keys     map[string]registry.OwedKey
	away     error
	removed  int
	before   func(what string) // called before each call, without the lock
}

func (k *fakeKeys) hook(before func(what string)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.before = before
}

func (k *fakeKeys) told(what string) {
	k.mu.Lock()
	before := k.before
	k.mu.Unlock()
	if before != nil {
		before(what)
	}
}

func (k *fakeKeys) List(context.Context) (map[string]registry.OwedKey, error) {
	k.told("list")
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]registry.OwedKey{}
	for n, v := range k.keys {
		all[n] = v
	}
	return all, k.away
}

func (k *fakeKeys) change(ctx context.Context, what, node string, value []byte, was int64) (int64, error) {
	k.told(what)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := errors.Join(k.away, ctx.Err()); err != nil {
		return 0, err
	}
	if k.keys[node].Revision != was {
		return 0, nil
	}
	k.revision++
	if value == nil {
		delete(k.keys, node)
		k.removed++
	} else {
		k.keys[node] = registry.OwedKey{Value: value, Revision: k.revision}
	}
	return k.revision, nil
}

func (k *fakeKeys) Put(ctx context.Context, node string, value []byte, was int64) (int64, error) {
	return k.change(ctx, "put", node, value, was)
}

func (k *fakeKeys) Remove(ctx context.Context, node string, was int64) (bool, error) {
	revision, err := k.change(ctx, "remove", node, nil, was)
	return revision != 0, err
}

// shows is what the node's key says, short: "" where there is none.
func (k *fakeKeys) shows(t *testing.T) string {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.keys[node]
	if !ok {
		return ""
	}
	return short(t, v.Value)
}

func short(t *testing.T, value []byte) string {
	t.Helper()
	r, err := replay.DecodeStatus(value)
	if err != nil {
		t.Fatal(err)
	}
	o := r.(replay.Owed)
	switch {
	case o.Paid:
		return "paid"
	case o.Off:
		return fmt.Sprintf("%d/%d off", o.Partitions, o.Records)
	}
	return fmt.Sprintf("%d/%d", o.Partitions, o.Records)
}

// rig is a state topic, keys, and what was said.
type rig struct {
	t       *testing.T
	cluster *changelogtest.Cluster
	state   *changelog.StateStore
	keys    *fakeKeys
	log     obstest.Log
	mu      sync.Mutex
	said    []string // "w1: 1/20 off"
	deaf    error    // the status topic takes nothing
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, cluster: changelogtest.Start(t), keys: &fakeKeys{keys: map[string]registry.OwedKey{}}}
	state, err := changelog.OpenState(r.cluster.Options, r.cluster.Names.State)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(state.Close)
	r.state = state
	if _, err := changelog.EnsureTopics(context.Background(), r.cluster.Admin(t), []changelog.TopicSpec{changelog.Settings{Partitions: 2}.Change("t")}); err != nil {
		t.Fatal(err)
	}
	return r
}

// worker runs a publisher that owns nothing yet; nodes are the ring's.
func (r *rig) worker(name string, nodes ...string) *Publisher {
	p := NewPublisher(Options{
		Group: "g", Worker: name, State: r.state, Keys: r.keys, Nodes: func() []string { return nodes }, Log: slog.New(slog.NewTextHandler(&r.log, nil)),
		Say: func(_ context.Context, n string, value []byte) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.deaf == nil && n == node {
				r.said = append(r.said, name+": "+short(r.t, value))
			}
			return r.deaf
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	r.t.Cleanup(func() { cancel(); <-done })
	return p
}

func all() (ns []int32) {
	for n := range int32(changelog.WorkPartitions) {
		ns = append(ns, n)
	}
	return ns
}

func (r *rig) put(key, value string) {
	r.t.Helper()
	var err error
	if value == "" {
		err = r.state.Remove(context.Background(), key)
	} else {
		err = r.state.Put(context.Background(), key, []byte(value))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// after waits, and says what the key shows and what was said meanwhile.
func (r *rig) after(d time.Duration, key string, said ...string) {
	r.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	r.mu.Lock()
	got := strings.Join(r.said, ", ")
	r.said = nil
	r.mu.Unlock()
	if k, want := r.keys.shows(r.t), strings.Join(said, ", "); k != key || got != want {
		r.t.Errorf("the key shows %q, want %q; said was %q, want %q", k, key, got, want)
	}
}

// shown are a publisher's metrics and their values, of the one node.
func shown(t *testing.T, p *Publisher) (lines []string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if m.Label[0].GetValue() != node {
				t.Errorf("a metric of %s", m.Label[0].GetValue())
			}
			lines = append(lines, fmt.Sprint(f.GetName(), " ", m.Gauge.GetValue()))
		}
	}
	return lines
}

const look = 1500 * time.Millisecond // in which there is one look at least, and two at most

// A node goes off, comes back and pays: each is told within a look, on the status topic and in etcd, and in etcd the key goes when it is paid.
func TestNodeOwesAndPays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.worker("w1", node)
		since := time.Now()
		r.put(key(0, 3, "x"), record(50, debt(node, 0, -1, since)))
		r.after(look, "") // nobody owns the sum
		p.Claim(all())
		r.after(look, "1/0 off", "w1: 1/0 off")
		r.after(5*time.Second, "1/0 off") // nothing is new
		r.after(5*time.Second, "1/0 off", "w1: 1/0 off")
		r.put(key(1, 3, "x"), record(50, debt(node, 10, -1, since)))
		r.after(look, "2/0 off", "w1: 2/0 off")
		r.put(key(1, 3, "x"), record(50, debt(node, 10, 1010, since)))
		r.after(look, "2/0 off")
		r.after(9*time.Second, "2/1000 off", "w1: 2/1000 off") // numbers alone
		r.put(key(0, 3, "x"), record(60))
		r.after(look, "1/1000", "w1: 1/1000")
		r.put(key(1, 3, "x"), record(60, debt(node, 510, 1010, since)))
		r.after(look, "1/500", "w1: 1/500")
		want := []string{"invalidator_node_owed_left_seconds 3", "invalidator_node_owed_off 0", "invalidator_node_owed_oldest_seconds", "invalidator_node_owed_records 500"}
		if got := shown(t, p); len(got) != 4 || got[0] != want[0] || got[1] != want[1] || !strings.HasPrefix(got[2], want[2]) || got[3] != want[3] {
			t.Errorf("metrics are %q, want %q", got, want)
		}
		r.put(key(1, 3, "x"), record(70))
		r.after(look, "", "w1: paid")
		if got := shown(t, p); len(got) != 0 {
			t.Errorf("metrics of nodes that owe nothing: %q", got)
		}
		r.after(time.Minute, "")
		if r.log.String() != "" {
			t.Errorf("the log says %s", r.log.String())
		}
	})
}

// Somebody else takes over: he says once how each node stands, and removes what the last owner had yet to remove.
func TestSumMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		first, second := r.worker("w1", node), r.worker("w2", node, "other:1")
		first.Claim(all())
		r.after(look, "", "w1: paid")
		r.put(key(0, 3, "x"), record(50, debt(node, 0, -1, time.Now())))
		r.after(look, "1/0 off", "w1: 1/0 off")
		first.Claim(nil)
		r.put(key(0, 3, "x"), record(50, debt(node, 0, 40, time.Now())))
		r.after(5*time.Second, "1/0 off") // it stands while nobody owns the sum
		second.Claim(all())
		r.after(look, "1/40", "w2: 1/40")

		// He is killed when it is paid, before it is told.
		second.Claim(nil)
		r.put(key(0, 4, "y"), record(60))
		r.after(time.Minute, "1/40")
		first.Claim(all())
		r.after(look, "", "w1: paid")

		// A new owner of other work tells nothing of this node.
		first.Claim(nil)
		second.Claim([]int32{(changelog.WorkPartition(node) + 1) % changelog.WorkPartitions})
		r.put(key(0, 5, "z"), record(60, debt(node, 0, -1, time.Now())))
		r.after(time.Minute, "")
	})
}

// A worker that was paused in the middle of a look, wherever, changes nothing that the new owner has written since.
func TestPausedOwnerRemovesNothing(t *testing.T) {
	for _, where := range []string{"list", "remove"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				paused, other := r.worker("w1", node), r.worker("w2", node)
				paused.Claim(all())
				since := time.Now()
				r.put(key(0, 3, "x"), record(50, debt(node, 0, 40, since)))
				r.after(look, "1/40", "w1: 1/40")
				stop, goOn := make(chan struct{}), make(chan struct{})
				once := sync.OnceFunc(func() { close(stop); <-goOn })
				r.keys.hook(func(what string) {
					if what == where {
						once()
					}
				})
				r.put(key(0, 3, "x"), record(60))
				<-stop
				r.keys.hook(nil)
				// The next owner of the partition owes it again, the very same: a commit failed.
				r.put(key(0, 4, "y"), record(50, debt(node, 0, 40, since)))
				other.Claim(all())
				r.after(look, "1/40", "w2: 1/40")
				close(goOn)
				synctest.Wait()
				if r.keys.removed != 0 { // where it was so, the other has mended it by now
					t.Error("it removed the key of a debt that stands")
				}
				paused.Claim(nil)
				r.mu.Lock()
				r.said = nil // it said what it thought
				r.mu.Unlock()
				r.after(10*time.Second, "1/40", "w2: 1/40")
			})
		})
	}
}

// While a state cannot be read nothing is called paid; what else is owed is told.
func TestUnreadableState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.worker("w1", node)
		p.Claim(all())
		r.put(key(0, 3, "x"), record(50, debt(node, 0, 40, time.Now())))
		r.after(look, "1/40", "w1: 1/40")
		r.put(key(1, 7, "y"), `{"v":4}`)
		r.put(key(0, 3, "x"), record(50))
		r.after(time.Minute, "1/40")
		if !strings.Contains(r.log.String(), "partition/g/t/1/7/y") || strings.Count(r.log.String(), "level=ERROR") != 1 {
			t.Errorf("the log says %s", r.log.String())
		}
		r.put(key(1, 7, "y"), record(50))
		r.after(look, "", "w1: paid")
		if !strings.Contains(r.log.String(), "is told again") {
			t.Errorf("the log says %s", r.log.String())
		}
	})
}

// etcd away, a key that somebody removed, keys of others, a status topic that takes nothing: each is made good when it can be, and one does not
// hold up the other.
func TestTellingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.worker("w1", node)
		r.keys.away = errors.New("away")
		p.Claim(all())
		r.put(key(0, 3, "x"), record(50, debt(node, 0, 40, time.Now())))
		r.after(look, "", "w1: 1/40")
		set := func(err error, value []byte) {
			r.keys.mu.Lock()
			defer r.keys.mu.Unlock()
			r.keys.away = err
			if delete(r.keys.keys, node); value != nil {
				r.keys.revision++
				r.keys.keys[node] = registry.OwedKey{Value: value, Revision: r.keys.revision}
			}
		}
		set(nil, nil)
		r.after(look, "1/40")
		set(nil, nil) // somebody removed it, or etcd was restored
		r.after(look, "1/40")

		foreign, err := replay.Encode(replay.Owed{Node: node, Group: "other", Partitions: 7, Records: 7})
		if err != nil {
			t.Fatal(err)
		}
		set(nil, foreign)
		r.after(look, "7/7")
		r.put(key(0, 3, "x"), record(50))
		r.after(look, "7/7", "w1: paid")
		if n := strings.Count(r.log.String(), "is left alone"); n != 1 {
			t.Errorf("a key of another fleet was told %d times", n)
		}
		set(nil, nil)

		r.mu.Lock()
		r.deaf = errors.New("deaf")
		r.mu.Unlock()
		r.put(key(0, 3, "x"), record(50, debt(node, 0, 40, time.Now())))
		r.after(look, "1/40")
		r.mu.Lock()
		r.deaf = nil
		r.mu.Unlock()
		r.after(look, "1/40", "w1: 1/40")
	})
}

// What a topic owes that is gone for good can be paid by nobody.
func TestTopicIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.worker("w1", node)
		p.Claim(all())
		r.put(key(0, 3, "x"), record(50, debt(node, 0, 40, time.Now())))
		r.after(look, "1/40", "w1: 1/40")
		if _, err := r.cluster.Admin(t).DeleteTopics(context.Background(), "t"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Second)
		if got := r.keys.shows(t); got != "1/40" {
			t.Errorf("after 50 s the key shows %q", got)
		}
		time.Sleep(20 * time.Second)
		if got := r.keys.shows(t); got != "" {
			t.Errorf("after 70 s the key shows %q", got)
		}
	})
}
