package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/mapping"
)

// pauseBench is a fleet's state topic, and one worker that follows its pauses.
type pauseBench struct {
	t     *testing.T
	conf  *config.Config
	store *changelog.StateStore
	log   syncBuffer

	mu   sync.Mutex
	held []string
	n    int // how often it was told
}

func newPauseBench(t *testing.T) *pauseBench {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	o := changelog.Options{Brokers: cluster.ListenAddrs()}
	cl, err := o.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := changelog.EnsureTopics(t.Context(), kadm.NewClient(cl), changelog.Settings{}.Own()); err != nil {
		t.Fatal(err)
	}
	store, err := changelog.OpenState(o, changelog.NamesFor("").State)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	b := &pauseBench{t: t, store: store, conf: &config.Config{Kafka: config.Kafka{Brokers: cluster.ListenAddrs(), Group: "invalidator"}}}
	text := "version: 1\nteam: t\npools: [user, profile]\nmappings:\n  - {name: m, table: a.b, keys: ['user:{id}', 'profile:{id}']}\n"
	if err := store.PutMapping(t.Context(), "invalidator", changelog.MappingFile{Name: "t.yaml", Team: "t", Text: text, Since: time.Now()}, changelog.SavedMapping{}); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *pauseBench) hold(pools []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held, b.n = pools, b.n+1
}

func (b *pauseBench) seen() (held []string, times int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.held), b.n
}

func (b *pauseBench) follow() *pauses {
	return &pauses{fleet: "invalidator", store: b.store, hold: b.hold, log: slog.New(slog.NewTextHandler(&b.log, nil))}
}

func (b *pauseBench) set(p changelog.Pause, force bool) (changelog.Pause, error) {
	p.At = time.Now().UTC()
	return PausePool(b.t.Context(), b.conf, p, force, slog.New(slog.NewTextHandler(&b.log, nil)))
}

// Each pause reaches a worker that runs within two seconds, and one that starts before its first record.
func TestPausesAreFollowed(t *testing.T) {
	b := newPauseBench(t)
	p := b.follow()
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held, n := b.seen(); len(held) != 0 || n != 1 {
		t.Fatalf("%q, told %d times", held, n)
	}
	stop := inBackground(t.Context(), p.run)
	await := func(want ...string) {
		t.Helper()
		end := time.Now().Add(2 * time.Second)
		for held, _ := b.seen(); !slices.Equal(held, want); held, _ = b.seen() {
			if time.Now().After(end) {
				t.Fatalf("%q after two seconds, want %q", held, want)
			}
			<-time.After(10 * time.Millisecond)
		}
	}
	for _, step := range []struct {
		pause changelog.Pause
		want  []string
	}{
		{changelog.Pause{Pool: "user", Paused: true, By: "ann"}, []string{"user"}},
		{changelog.Pause{Pool: "profile", Paused: true, By: "ann"}, []string{"profile", "user"}},
		{changelog.Pause{Pool: "user", By: "ann"}, []string{"profile"}},
	} {
		if _, err := b.set(step.pause, false); err != nil {
			t.Fatal(err)
		}
		await(step.want...)
	}
	stop()
	next := b.follow()
	if err := next.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	next.follower.Close()
	if held, n := b.seen(); !slices.Equal(held, []string{"profile"}) || n != 5 {
		t.Errorf("%q, told %d times", held, n)
	}
}

// Who paused, when and why stays; pausing again changes none of it.
func TestPauseKeepsWhoAndWhy(t *testing.T) {
	b := newPauseBench(t)
	first, err := b.set(changelog.Pause{Pool: "user", Paused: true, By: "ann", Reason: "a bad template"}, false)
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.set(changelog.Pause{Pool: "user", Paused: true, By: "bob"}, false)
	if err != nil || again.By != "ann" || again.Reason != "a bad template" || !again.At.Equal(first.At) {
		t.Errorf("%+v, %v", again, err)
	}
	fleet, err := readFleet(t.Context(), changelog.Options{Brokers: b.conf.Kafka.Brokers}, changelog.NamesFor("").State, "invalidator")
	if err != nil || len(fleet.Paused) != 1 || fleet.Paused[0].By != "ann" || fleet.Paused[0].Pool != "user" {
		t.Errorf("%+v, %v", fleet.Paused, err)
	}
	if other, _ := readFleet(t.Context(), changelog.Options{Brokers: b.conf.Kafka.Brokers}, changelog.NamesFor("").State, "other"); len(other.Paused) != 0 {
		t.Errorf("another fleet has %+v", other.Paused)
	}
}

func TestPauseOfNoPool(t *testing.T) {
	b := newPauseBench(t)
	for _, c := range []struct {
		pause changelog.Pause
		force bool
		want  string
	}{
		{changelog.Pause{Pool: "usr", Paused: true, By: "ann"}, false, `pool "usr" is none of the fleet's: did you mean "user"?`},
		{changelog.Pause{Pool: "zzzzzzzz", Paused: true, By: "ann"}, false, "there are: profile, user"},
		{changelog.Pause{Pool: "user", By: "ann"}, false, "is not paused (no pool is)"},
		{changelog.Pause{Pool: "usr", Paused: true, By: "ann"}, true, ""},
		{changelog.Pause{Pool: "user", By: "ann"}, false, "is not paused (paused are: usr)"},
		{changelog.Pause{Pool: "usr", By: "ann"}, false, ""},
	} {
		_, err := b.set(c.pause, c.force)
		var bad *PoolError
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, &bad) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.pause, err, c.want)
		}
	}
}

// A pause that cannot be read holds its pool: what is held back is not lost.
func TestPauseThatCannotBeRead(t *testing.T) {
	b := newPauseBench(t)
	if err := b.store.Put(t.Context(), changelog.StateKey("pause", "invalidator", "user"), []byte(`{"v":9}`)); err != nil {
		t.Fatal(err)
	}
	p := b.follow()
	if err := p.open(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.follower.Close()
	if held, _ := b.seen(); !slices.Equal(held, []string{"user"}) || !strings.Contains(b.log.String(), "counts as paused") {
		t.Errorf("%q, %s", held, b.log.String())
	}
	if _, err := b.set(changelog.Pause{Pool: "user", By: "ann"}, false); err != nil {
		t.Errorf("it cannot be resumed: %v", err)
	}
}

// A worker that cannot read the pauses waits, until its context ends.
func TestPausesAreWaitedFor(t *testing.T) {
	b := newPauseBench(t)
	store, err := changelog.OpenState(changelog.Options{Brokers: []string{"127.0.0.1:1"}}, "invalidator.state")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	p := b.follow()
	p.store = store
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := p.open(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	p.follower.Close()
	if _, n := b.seen(); n != 0 {
		t.Error("it was told what nobody read")
	}
}

// Rates are shared out by the partitions of the topics that are named for a pool's tables; where no name says it, by all.
func TestShares(t *testing.T) {
	c := &config.Config{Cache: config.Cache{MaxTTL: time.Hour}, Sources: []config.Source{
		{Name: "shop", Type: "mysql", TopicPrefix: "shop"},
		{Name: "orders", FirstStart: "latest", Topics: &config.Topics{Pattern: `dbz(\..*)?`, Format: "debezium"}},
	}}
	sources, _, err := topicsOf(c)
	if err != nil {
		t.Fatal(err)
	}
	f, problems := mapping.Parse("f.yaml", []byte("version: 1\nteam: t\npools: [user, order, both, far]\nmappings:\n"+
		"  - {name: u, table: shop.users, source: shop, keys: ['user:{id}', 'both:{id}']}\n"+
		"  - {name: o, table: shop.orders, source: orders, keys: ['order:{id}', 'both:{id}']}\n"+
		"  - {name: f, table: else.where, keys: ['far:{id}']}\n"))
	if f == nil {
		t.Fatal(problems)
	}
	set, _ := mapping.NewSet([]*mapping.File{f})
	s := &shares{config: c, sources: sources, set: func() *mapping.Set { return set }}
	if n := s.of("user"); n != 1 {
		t.Errorf("%d before anything is known", n)
	}
	s.pools, s.topics = nil, map[string]int{"shop.shop.users": 8, "shop.shop.other": 4, "dbz.shop.orders": 3, "dbz": 1}
	for pool, want := range map[string]int{"user": 8, "order": 3, "both": 11, "far": 16, "nobody's": 16} {
		if n := s.of(pool); n != want {
			t.Errorf("%s: %d, want %d", pool, n, want)
		}
	}
}
