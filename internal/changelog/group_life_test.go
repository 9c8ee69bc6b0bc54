package changelog_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
)

// A member that is killed stalls its partitions for less than ten seconds.
func TestAKilledMembersPartitionsMove(t *testing.T) {
	for _, instance := range []string{"", "worker-0"} {
		t.Run("instance "+instance, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroupRig(t)
				g.produce(3)
				l := g.line(t)
				leave := g.join(g.c, l.on, func(o *changelog.GroupOptions) { o.InstanceID = instance })
				g.c.await(t, func() bool { return g.c.next[users0] == 3 })
				next := newFakeConsumer()
				leaveNext := g.join(next)
				time.Sleep(3 * time.Second)
				if len(next.started) > 0 {
					t.Fatal("it moved while its owner lived")
				}
				l.cut()
				began := time.Now()
				next.await(t, func() bool { return next.next[users0] == 3 })
				if took := time.Since(began); took > 10*time.Second {
					t.Errorf("it stood still for %s", took)
				}
				leaveNext()
				leave()
			})
		})
	}
}

// A static member that restarts within a session gets its partition back at once, and its state has a key of its own. One that
// stays away is taken over as after a crash.
func TestAStaticMemberRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		static := func(o *changelog.GroupOptions) { o.InstanceID = "worker-0" }
		leave := g.work(t, g.c, 10, 6, static)
		before := g.statesOf(t, users0)
		leave()
		if n := len(g.cluster.GroupInfo("workers").Members); n != 1 {
			t.Errorf("%d members after its end: a static one does not leave", n)
		}

		again := newFakeConsumer()
		leave = g.join(again, static)
		began := time.Now()
		again.await(t, func() bool { return again.next[users0] == 10 })
		if took := time.Since(began); took > time.Second {
			t.Errorf("its restart stood still for %s", took)
		}
		if got := fmt.Sprint(again.started[users0], " ", left(again.was[users0])); got != `6 {"offset":6}` {
			t.Errorf("it was given back %q", got)
		}
		again.finish(users0, 6)
		g.await(t, "a state under another key", func() bool {
			now := g.statesOf(t, users0)
			return len(now) == 1 && writerOf(now[0]) != writerOf(before[0])
		})

		other := newFakeConsumer()
		leaveOther := g.join(other)
		time.Sleep(3 * time.Second)
		leave() // and it stays away
		began = time.Now()
		other.await(t, func() bool { return other.next[users0] == 10 })
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("its partition stood still for %s", took)
		}
		leaveOther()
	})
}

// Two processes with one instance id: one is told, loudly, and no commit of the fenced one counts.
func TestAStaticMembersZombie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		l := g.line(t)
		static := func(o *changelog.GroupOptions) { o.InstanceID = "worker-0" }
		leave := g.work(t, g.c, 10, 4, l.on, static)
		l.freeze()
		g.c.finish(users0, 5)
		next := newFakeConsumer()
		leaveNext := g.work(t, next, 10, 8, static)
		l.thaw()
		l.cut() // what it had written has arrived
		time.Sleep(3 * time.Second)
		if c := g.commit(t); c.At != 8 {
			t.Errorf("committed %d, want 8", c.At)
		}
		leaveNext()
		leave()
	})
}

// A commit that fails is made again, whatever became of it: refused, or carried out with the answer lost.
func TestLostCommits(t *testing.T) {
	for _, tc := range []struct {
		name string
		code int16
		cut  bool // the connection, after the commit was carried out
	}{
		{"the coordinator is loading", kerr.CoordinatorLoadInProgress.Code, false},
		{"the request timed out at the broker", kerr.RequestTimedOut.Code, false},
		{"refused for a reason that passes", kerr.UnknownTopicOrPartition.Code, false},
		{"refused for another", kerr.InvalidCommitOffsetSize.Code, false},
		{"the answer is lost", 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroupRig(t)
				g.produce(10)
				l := g.line(t)
				leave := g.join(g.c, l.on)
				g.c.await(t, func() bool { return g.c.next[users0] == 10 })
				var n atomic.Int32
				g.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
					g.cluster.KeepControl()
					if n.Add(1) > 3 {
						return nil, nil, false
					}
					if tc.cut {
						l.drop()
						return nil, nil, false
					}
					resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
					for _, asked := range req.(*kmsg.OffsetCommitRequest).Topics {
						at := kmsg.NewOffsetCommitResponseTopic()
						at.Topic, at.TopicID = asked.Topic, asked.TopicID
						for _, p := range asked.Partitions {
							sp := kmsg.NewOffsetCommitResponseTopicPartition()
							sp.Partition, sp.ErrorCode = p.Partition, tc.code
							at.Partitions = append(at.Partitions, sp)
						}
						resp.Topics = append(resp.Topics, at)
					}
					return resp, nil, true
				})
				g.c.keep(nil, "T10")
				g.c.finish(users0, 6)
				g.await(t, "the commit", func() bool { return n.Load() > 3 && g.commit(t).At == 6 })
				leave()
				next := newFakeConsumer()
				leave = g.join(next)
				next.await(t, func() bool { return next.next[users0] == 10 })
				if got := fmt.Sprint(next.started[users0], " ", left(next.was[users0])); got != `6 {"offset":6} T10` {
					t.Errorf("the next owner got %q", got)
				}
				leave()
			})
		})
	}
}

// Brokers that are away for longer than a session: what was read goes on being worked on, and everything resumes when they are back.
func TestBrokersAreAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		l := g.line(t)
		leave := g.work(t, g.c, 10, 4, l.on)
		l.cut()
		time.Sleep(40 * time.Second)
		g.produce(5)
		l.mend()
		began := time.Now()
		g.c.await(t, func() bool { return g.c.next[users0] == 15 })
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it came back after %s", took)
		}
		g.c.finish(users0, 15)
		g.awaitCommit(t, 15)
		if len(g.c.losses) > 0 {
			t.Errorf("losses %q", g.c.losses)
		}
		leave()
	})
}

// The coordinator refuses for longer than a session, and the brokers answer all else.
func TestTheCoordinatorIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 10 })
		away := true
		for _, k := range []kmsg.Key{kmsg.Heartbeat, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.OffsetCommit} {
			g.cluster.ControlKey(int16(k), func(kmsg.Request) (kmsg.Response, error, bool) {
				g.cluster.KeepControl()
				if away {
					return nil, errors.New("the coordinator is away"), true
				}
				return nil, nil, false
			})
		}
		g.c.finish(users0, 6)
		time.Sleep(40 * time.Second)
		g.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) { away = false; return nil, nil, false })
		g.produce(5)
		g.c.await(t, func() bool { return g.c.next[users0] == 15 })
		g.c.finish(users0, 15)
		g.awaitCommit(t, 15)
		leave()
	})
}

// A member whose join nobody answers ends within what a worker promises.
func TestAMemberEndsWhileItJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.hang(kmsg.JoinGroup, time.Hour)
		leave := g.join(g.c)
		time.Sleep(5 * time.Second)
		began := time.Now()
		leave()
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// G13: a topic gains partitions while one is paused: the new ones are read from their beginning within ten seconds, whatever partition
// a row goes through, and what waits in the paused one is not reported as done.
func TestG13ATopicGainsPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(3)
		leave := g.work(t, g.c, 3, 3)
		g.group.Pause(users0)
		time.Sleep(time.Second) // a fetch that was under way
		if _, err := g.cluster.Admin(t).CreatePartitions(t.Context(), 3, usersTopic); err != nil {
			t.Fatal(err)
		}
		g.reopen()
		for p := range int32(4) {
			must(t, g.cl.ProduceSync(t.Context(), &kgo.Record{Topic: usersTopic, Partition: p, Value: []byte("x")}).FirstErr())
		}
		began := time.Now()
		g.c.await(t, func() bool {
			for p := int32(1); p < 4; p++ {
				if g.c.next[changelog.Partition{Topic: usersTopic, Number: p}] != 1 {
					return false
				}
			}
			return true
		})
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("seen after %s", took)
		}
		for p := int32(1); p < 4; p++ {
			g.c.finish(changelog.Partition{Topic: usersTopic, Number: p}, 1)
		}
		time.Sleep(5 * time.Second)
		if c := g.commit(t); c.At != 3 || g.c.next[users0] != 3 || len(g.c.losses) > 0 {
			t.Errorf("the paused partition: committed %d, read to %d, losses %q", c.At, g.c.next[users0], g.c.losses)
		}
		g.group.Resume(users0)
		g.c.await(t, func() bool { return g.c.next[users0] == 4 })
		leave()
	})
}

// statesOf are the keys of a partition's states.
func (g *groupRig) statesOf(t *testing.T, p changelog.Partition) (keys []string) {
	t.Helper()
	for k := range g.states(t) {
		if strings.Contains(k, "/"+p.Topic+"/") {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	return keys
}

func writerOf(key string) string { return strings.Split(key, "/")[5] }

// drop ends what connections there are.
func (l *line) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		c.Close()
	}
	l.conns = nil
}

// mend lets it be dialled again.
func (l *line) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead, l.conns = false, nil
}

// A partition whose fetches stopped, and go on, waits for the fetch that is under way without it: not longer than it takes to work off what waits of the
// others.
func TestAPartitionThatGoesOnIsReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		quiet := changelog.Partition{Topic: "shop.shop.quiet", Number: 0} // as the work topic is
		g.makeTopic(quiet.Topic)
		g.produce(1)
		leave := g.join(g.c)
		g.c.await(t, func() bool { _, owned := g.c.started[quiet]; return owned && g.c.next[users0] == 1 })
		for i := range 10 {
			g.group.Pause(users0)
			time.Sleep(time.Second) // a fetch that was under way
			g.produce(1)
			time.Sleep(time.Duration(37*i) * time.Millisecond) // anywhere in a fetch of the quiet one
			began := time.Now()
			g.group.Resume(users0)
			g.c.await(t, func() bool { return g.c.next[users0] == int64(i+2) })
			if took := time.Since(began); took > 200*time.Millisecond { // await looks each 100 ms
				t.Errorf("it was read after %s", took)
			}
		}
		leave()
	})
}
