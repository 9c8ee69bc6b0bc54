package changelog_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
)

// office is what the candidates of some groups do, as a test sees it.
type office struct {
	mu    sync.Mutex
	leads map[string]string // group -> who leads
	terms []string          // "group self generation previous"
	last  map[string]*changelog.Term
	twice int // times that two led one group at once
}

func newOffice() *office {
	return &office{leads: map[string]string{}, last: map[string]*changelog.Term{}}
}

func (o *office) of(group string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.leads[group]
}

func (o *office) term(group string) *changelog.Term {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[group]
}

// stand is a candidate; stop ends it as SIGTERM does, and cut takes its network away as SIGKILL does.
type stand struct {
	stop func()
	away *atomic.Bool
}

func (o *office) stand(t *testing.T, c *changelogtest.Cluster, self string, groups ...string) stand {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := stand{away: new(atomic.Bool)}
	opts := c.Options
	opts.Dial = func(ctx context.Context, network, host string) (net.Conn, error) {
		if s.away.Load() {
			return nil, errors.New("connection refused")
		}
		conn, err := c.Options.Dial(ctx, network, host)
		return &cutConn{conn, s.away}, err
	}
	var wg sync.WaitGroup
	for _, g := range groups {
		wg.Go(func() {
			err := changelog.Lead(ctx, changelog.LeaderOptions{Options: opts, Group: g, Topic: c.Names.Leader, Self: self}, func(ctx context.Context, term *changelog.Term) {
				err := term.Confirm(ctx)
				o.mu.Lock()
				if o.leads[g] != "" {
					o.twice++
				}
				o.leads[g], o.last[g] = self, term
				o.terms = append(o.terms, fmt.Sprintf("%s %s %q %v", g, self, term.Previous, err))
				o.mu.Unlock()
				<-ctx.Done()
				o.mu.Lock()
				if o.leads[g] == self {
					o.leads[g] = ""
				}
				o.mu.Unlock()
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	s.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(s.stop)
	return s
}

// cutConn is a connection that is dead once away is set.
type cutConn struct {
	net.Conn
	away *atomic.Bool
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.away.Load() {
		return 0, errors.New("connection reset")
	}
	return n, err
}

func (c *cutConn) Write(b []byte) (int, error) {
	if c.away.Load() {
		return 0, errors.New("connection reset")
	}
	return c.Conn.Write(b)
}

func TestOneOfTwoLeadsAndTheOtherFollowsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := changelogtest.Start(t), newOffice()
		a := o.stand(t, c, "a", "g")
		time.Sleep(10 * time.Second)
		if o.of("g") != "a" {
			t.Fatalf("%q leads", o.of("g"))
		}
		first := o.term("g").Generation
		b := o.stand(t, c, "b", "g")
		for range 20 {
			time.Sleep(time.Second)
			if o.of("g") != "a" {
				t.Fatal("the leader was moved because another joined")
			}
		}
		if err := o.term("g").Confirm(t.Context()); err != nil {
			t.Error(err)
		}
		begin := time.Now()
		a.stop()
		for o.of("g") != "b" {
			time.Sleep(10 * time.Millisecond)
			if time.Since(begin) > 2*time.Second {
				t.Fatal("no successor within 2 s")
			}
		}
		t.Logf("successor after %s", time.Since(begin))
		if g := o.term("g").Generation; g <= first {
			t.Errorf("generation %d after %d", g, first)
		}
		if o.term("g").Previous != "a" {
			t.Errorf("previous %q", o.term("g").Previous)
		}
		b.stop()
		if o.twice != 0 {
			t.Errorf("two led at once: %s", o.terms)
		}
	})
}

func TestADeadLeaderIsReplacedWithinTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := changelogtest.Start(t), newOffice()
		a := o.stand(t, c, "a", "g")
		time.Sleep(5 * time.Second)
		o.stand(t, c, "b", "g")
		time.Sleep(5 * time.Second)
		old := o.term("g")
		begin := time.Now()
		a.away.Store(true)
		for o.of("g") != "b" {
			time.Sleep(10 * time.Millisecond)
			if time.Since(begin) > 10*time.Second {
				t.Fatal("no successor within 10 s")
			}
		}
		t.Logf("successor after %s", time.Since(begin))
		// It does not know yet, and works on; but it begins nothing.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := old.Confirm(ctx); err == nil || errors.Is(err, changelog.ErrNotLeader) {
			t.Errorf("without brokers: %v", err)
		}
		a.away.Store(false)
		if err := old.Confirm(t.Context()); err == nil {
			t.Error("when it is back, it is sure")
		}
		time.Sleep(13 * time.Second) // it has joined again
		if err := old.Confirm(t.Context()); !errors.Is(err, changelog.ErrNotLeader) {
			t.Errorf("once it has joined again: %v", err)
		}
		if o.of("g") != "b" {
			t.Errorf("%q leads", o.of("g"))
		}
	})
}

// Brokers that are away take nobody's office: who leads works on, and leads again when they are back.
func TestALeaderStaysWhileNoBrokerAnswers(t *testing.T) {
	for name, outage := range map[string]func(*changelogtest.Cluster, stand) (end func()){
		"no network": func(_ *changelogtest.Cluster, a stand) func() {
			a.away.Store(true)
			return func() { a.away.Store(false) }
		},
		"no coordinator": func(c *changelogtest.Cluster, _ stand) func() {
			return c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat}, Err: kerr.CoordinatorNotAvailable, Count: -1}).Remove
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, o := changelogtest.Start(t), newOffice()
				a := o.stand(t, c, "a", "g")
				time.Sleep(5 * time.Second)
				end := outage(c, a)
				for range 60 {
					time.Sleep(time.Second)
					if o.of("g") != "a" {
						t.Fatal("it gave up")
					}
				}
				end()
				time.Sleep(20 * time.Second)
				if o.of("g") != "a" {
					t.Fatalf("%q leads", o.of("g"))
				}
				if err := o.term("g").Confirm(t.Context()); err != nil {
					t.Error(err)
				}
				if o.twice != 0 {
					t.Errorf("two led at once: %s", o.terms)
				}
			})
		})
	}
}

// Each source has its own order of members, so that those of a member that ends go to all that are left.
func TestSourcesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := changelogtest.Start(t), newOffice()
		var groups []string
		for i := range 12 {
			groups = append(groups, fmt.Sprintf("g%d", i))
		}
		first := o.stand(t, c, "first", groups...)
		time.Sleep(10 * time.Second)
		others := []string{"a", "b", "c"}
		for _, self := range others {
			o.stand(t, c, self, groups...)
		}
		time.Sleep(20 * time.Second)
		first.stop()
		time.Sleep(10 * time.Second)
		led := map[string]int{}
		for _, g := range groups {
			led[o.of(g)]++
		}
		t.Log(led)
		for _, self := range others {
			if led[self] == 0 {
				t.Errorf("%s leads nothing: %v", self, led)
			}
		}
		if led[""] != 0 {
			t.Errorf("%d have no leader", led[""])
		}
	})
}

// A refusal that was none, since the group was changing just then: the leader stops, and leads again.
func TestARefusedLeaderLeadsAgainWhereTheGroupSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := changelogtest.Start(t), newOffice()
		o.stand(t, c, "a", "g")
		time.Sleep(5 * time.Second)
		old := o.term("g")
		c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.IllegalGeneration, Count: 1})
		if err := old.Confirm(t.Context()); !errors.Is(err, changelog.ErrNotLeader) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if o.of("g") != "a" || o.term("g") == old {
			t.Fatalf("%q leads", o.of("g"))
		}
		if err := o.term("g").Confirm(t.Context()); err != nil || o.term("g").Generation <= old.Generation {
			t.Errorf("generation %d after %d, %v", o.term("g").Generation, old.Generation, err)
		}
		if o.twice != 0 {
			t.Errorf("two led at once: %s", o.terms)
		}
	})
}

// A member that has lost its session and is joining again is told "rebalancing", like one that leads: it may lead no more.
func TestWhoHasLostItsSessionIsNotSure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := changelogtest.Start(t), newOffice()
		o.stand(t, c, "a", "g")
		time.Sleep(5 * time.Second)
		term := o.term("g")
		away := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Heartbeat, kmsg.JoinGroup, kmsg.SyncGroup}, Err: kerr.RequestTimedOut, Count: -1})
		joining := c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.RebalanceInProgress, Count: -1})
		time.Sleep(20 * time.Second)
		if err := term.Confirm(t.Context()); err == nil || errors.Is(err, changelog.ErrNotLeader) || o.of("g") != "a" {
			t.Errorf("%q leads, %v", o.of("g"), err)
		}
		joining.Remove()
		if err := term.Confirm(t.Context()); err == nil {
			t.Error("a commit is no proof without a session")
		}
		away.Remove()
		time.Sleep(20 * time.Second)
		if err := o.term("g").Confirm(t.Context()); err != nil || o.of("g") != "a" {
			t.Errorf("%q leads, %v", o.of("g"), err)
		}
	})
}

// A topic that somebody removes ends no leadership. What begins only where that is sure says what to do.
func TestTheLeadersTopicIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, o := changelogtest.Start(t), newOffice()
		o.stand(t, c, "a", "g")
		time.Sleep(5 * time.Second)
		must(t, c.DeleteTopic(c.Names.Leader))
		for range 12 {
			time.Sleep(5 * time.Second)
			if o.of("g") != "a" {
				t.Fatal("it gave up")
			}
		}
		err := o.term("g").Confirm(t.Context())
		if err == nil || errors.Is(err, changelog.ErrNotLeader) || !strings.Contains(err.Error(), "start a feeder again: it makes "+c.Names.Leader) {
			t.Errorf("%v", err)
		}
		_, err = changelog.EnsureTopics(t.Context(), c.Admin(t), changelog.Settings{}.Own())
		must(t, err)
		time.Sleep(10 * time.Second)
		if err := o.term("g").Confirm(t.Context()); err != nil || o.of("g") != "a" {
			t.Errorf("%q leads, %v", o.of("g"), err)
		}
	})
}

// A candidate whose join nobody answers ends within what a feeder promises.
func TestACandidateEndsWhileItJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.hang(kmsg.JoinGroup, time.Hour)
		a := newOffice().stand(t, g.cluster, "a", "source")
		time.Sleep(5 * time.Second)
		began := time.Now()
		a.stop()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
