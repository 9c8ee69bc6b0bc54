package changelog_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
)

// A partition that was paused when it moved away is read when it comes back: the client library keeps a pause for ever.
func TestPauseEndsWithTheRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		other := changelog.Partition{Topic: "shop.shop.orders"}
		g.makeTopic(other.Topic)
		leave := g.join(g.c)
		first := g.group
		g.c.await(t, func() bool { return len(g.c.started) == 2 })
		first.Pause(users0)
		first.Pause(other)

		second := newFakeConsumer()
		leaveSecond := g.join(second)
		second.await(t, func() bool { return len(second.started) == 1 })
		moved := users0
		if _, ok := second.started[other]; ok {
			moved = other
		}
		leaveSecond()
		g.produceTo(moved.Topic, 5)
		g.c.await(t, func() bool { return g.c.next[moved] == 5 })
		leave()
	})
}

// A topic that is removed and made again while the group runs is read from its beginning, the loss is named, and the commits follow
// the new log: an offset of the old one would pass records of the new that nobody has read.
func TestTopicMadeAgainWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		leave := g.work(t, g.c, 10, 10)

		if _, err := g.cluster.Admin(t).DeleteTopics(t.Context(), usersTopic); err != nil {
			t.Fatal(err)
		}
		g.makeTopic(usersTopic)
		g.reopen()
		g.produce(20)
		g.c.await(t, func() bool { return len(g.c.losses) > 0 && g.c.next[users0] == 20 })
		if g.c.started[users0] != 0 {
			t.Errorf("the new topic is read from %d", g.c.started[users0])
		}
		g.c.finish(users0, 4)
		g.awaitCommit(t, 4)
		leave()
	})
}

// The same while the group is away: the new log is longer than what was committed of the old one, so that offsets alone tell nothing.
func TestTopicMadeAgainWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		leave := g.work(t, g.c, 10, 10)
		leave()
		old := g.commit(t)
		adm := g.cluster.Admin(t)
		if _, err := adm.DeleteTopics(t.Context(), usersTopic); err != nil {
			t.Fatal(err)
		}
		g.makeTopic(usersTopic)
		g.reopen()
		g.produce(20)
		offsets := kadm.Offsets{} // a broker that keeps the commits of topics that are removed
		offsets.Add(kadm.Offset{Topic: usersTopic, At: old.At, LeaderEpoch: -1, Metadata: old.Metadata})
		if err := g.cluster.Admin(t).CommitAllOffsets(t.Context(), "workers", offsets); err != nil {
			t.Fatal(err)
		}
		next := newFakeConsumer()
		leave = g.join(next)
		next.await(t, func() bool { return next.next[users0] == 20 })
		leave()
		if got := strings.Join(next.losses, "; "); next.started[users0] != 0 || got != "shop.shop.users/0 [-1,0)" {
			t.Errorf("starts at %d with losses %q", next.started[users0], got)
		}
	})
}

// Records are handed over while a commit waits for a slow coordinator.
func TestRecordsFlowDuringACommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(1)
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 1 })
		g.hang(kmsg.OffsetCommit, 3*time.Second)
		g.c.finish(users0, 1)
		time.Sleep(1500 * time.Millisecond) // the commit has begun
		g.produce(1)
		began := time.Now()
		g.c.await(t, func() bool { return g.c.next[users0] == 2 })
		if took := time.Since(began); took > time.Second {
			t.Errorf("a record waited %s for a commit", took)
		}
		leave()
	})
}

// A member leaves in time, whatever hangs: the broker answers no produce, no commit and no leave.
func TestLeaveIsBounded(t *testing.T) {
	for _, tc := range []struct {
		name string
		keys []kmsg.Key
	}{
		{"the state topic hangs", []kmsg.Key{kmsg.Produce}},
		{"the coordinator hangs", []kmsg.Key{kmsg.OffsetCommit, kmsg.LeaveGroup, kmsg.Heartbeat}},
		{"everything hangs", []kmsg.Key{kmsg.Produce, kmsg.OffsetCommit, kmsg.LeaveGroup, kmsg.Heartbeat, kmsg.Fetch, kmsg.Metadata, kmsg.FindCoordinator, kmsg.InitProducerID, kmsg.ListOffsets}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroupRig(t)
				g.produce(3)
				leave := g.work(t, g.c, 3, 1)
				for _, k := range tc.keys {
					g.hang(k, time.Hour)
				}
				g.c.finish(users0, 3)
				time.Sleep(3 * time.Second) // a commit hangs
				began := time.Now()
				leave()
				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("leaving took %s beside the drain, want at most 4 s", took)
				}
			})
		})
	}
}

// A broker that fails the first questions is asked again: only a wrong configuration ends a worker.
func TestFirstStartWaitsForTheBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(3)
		tries := 0
		g.cluster.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			g.cluster.KeepControl()
			if tries++; tries > 3 {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
			for _, asked := range req.(*kmsg.OffsetFetchRequest).Groups {
				group := kmsg.NewOffsetFetchResponseGroup()
				group.Group, group.ErrorCode = asked.Group, kerr.GroupAuthorizationFailed.Code
				resp.Groups = append(resp.Groups, group)
			}
			return resp, nil, true
		})
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 3 })
		leave()
	})
}

// Two first workers at once: one sets where the group starts, the other goes along. Nothing is lost, and no gap is named that is none.
func TestTwoFirstWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.at = "latest"
		other := changelog.Partition{Topic: "shop.shop.orders"}
		g.makeTopic(other.Topic)
		g.produce(10)
		g.produceTo(other.Topic, 10)
		second := newFakeConsumer()
		leave, leaveSecond := g.join(g.c), g.join(second)
		owners := func(c *fakeConsumer) (n int) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return len(c.started)
		}
		for owners(g.c) == 0 || owners(second) == 0 {
			time.Sleep(100 * time.Millisecond)
		}
		g.produce(5)
		g.produceTo(other.Topic, 5)
		for _, p := range []changelog.Partition{users0, other} {
			for reached := false; !reached; time.Sleep(100 * time.Millisecond) {
				for _, c := range []*fakeConsumer{g.c, second} {
					c.mu.Lock()
					reached = reached || c.next[p] == 15
					if start, ok := c.started[p]; ok && start < 10 {
						t.Errorf("%s starts at %d, and latest was 10", p, start)
					}
					c.mu.Unlock()
				}
			}
		}
		leave()
		leaveSecond()
		if losses := append(g.c.losses, second.losses...); len(losses) > 0 {
			t.Errorf("losses %q", losses)
		}
	})
}

// The mark of a first start is there and the group's commits are gone, or the other way round: what was committed stands, and what
// was seen and has no commit is a gap.
func TestCommitsWithoutTheMark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.at = "latest"
		g.produce(10)
		offsets := kadm.Offsets{}
		offsets.AddOffset(usersTopic, 0, 4, -1)
		if err := g.cluster.Admin(t).CommitAllOffsets(t.Context(), "workers", offsets); err != nil {
			t.Fatal(err)
		}
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 10 })
		leave()
		if g.c.started[users0] != 4 || len(g.c.losses) > 0 {
			t.Errorf("starts at %d with losses %q, want 4 and none", g.c.started[users0], g.c.losses)
		}
	})
}

// A topic whose log cannot be asked for holds up nobody else's.
func TestBrokenTopicIsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		broken := "shop.shop.broken"
		g.makeTopic(broken)
		g.produce(3)
		g.cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
			g.cluster.KeepControl()
			resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
			ours := false
			for _, asked := range req.(*kmsg.ListOffsetsRequest).Topics {
				at := kmsg.NewListOffsetsResponseTopic()
				at.Topic = asked.Topic
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.Offset = 0
				switch {
				case asked.Topic == broken:
					ours = true
					p.ErrorCode = kerr.UnknownServerError.Code
				case asked.Partitions[0].Timestamp == -1:
					p.Offset = 3
				}
				at.Partitions = append(at.Partitions, p)
				resp.Topics = append(resp.Topics, at)
			}
			return resp, nil, ours
		})
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 3 })
		leave()
	})
}

// A gap is durable before a commit passes it: a crash between the two would pass it over.
func TestLossIsDurableBeforeTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		leave := g.work(t, g.c, 10, 10)
		leave()
		g.produce(10)
		if _, err := g.cluster.Admin(t).DeleteRecords(t.Context(), deleteTo(15)); err != nil {
			t.Fatal(err)
		}
		next := newFakeConsumer()
		next.lostFails = true
		leave = g.join(next)
		next.await(t, func() bool { return next.next[users0] == 20 })
		next.finish(users0, 20)
		time.Sleep(10 * time.Second)
		if c := g.commit(t); c.At != 10 {
			t.Errorf("committed %d past a gap that is recorded nowhere", c.At)
		}
		next.mu.Lock()
		next.lostFails = false
		next.mu.Unlock()
		g.awaitCommit(t, 20)
		leave()
		if got := strings.Join(next.losses, "; "); got != "shop.shop.users/0 [10,15)" {
			t.Errorf("losses %q", got)
		}
	})
}

// Recording losses of one topic takes long: the offsets of others are committed meanwhile.
func TestLossesHoldUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		const orders = "shop.shop.orders"
		lost := changelog.Partition{Topic: orders}
		g.makeTopic(orders)
		g.produceTo(orders, 10)
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[lost] == 10 })
		g.c.finish(lost, 1)
		g.produce(1)
		g.c.await(t, func() bool { return g.c.next[users0] == 1 })
		g.c.finish(users0, 1)
		g.awaitCommit(t, 1)
		leave()
		gone := kadm.Offsets{}
		gone.AddOffset(orders, 0, 5, -1)
		if _, err := g.cluster.Admin(t).DeleteRecords(t.Context(), gone); err != nil {
			t.Fatal(err)
		}
		g.produce(9)
		next := newFakeConsumer()
		next.lostHangs = orders
		leave = g.join(next)
		next.await(t, func() bool { return next.next[users0] == 10 && next.next[lost] == 10 })
		next.finish(users0, 10)
		next.finish(lost, 10)
		g.awaitCommit(t, 10)
		leave()
	})
}

// G1: a leader that was elected uncleanly lacks records that were committed, and has written others in their place: the group goes on
// where the two logs part, and names the loss.
func TestG1UncleanLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		leave := g.work(t, g.c, 10, 8)
		leave()
		if c := g.commit(t); c.LeaderEpoch < 0 {
			t.Fatal("the commit says no epoch")
		}
		g.cluster.ControlKey(int16(kmsg.OffsetForLeaderEpoch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			g.cluster.KeepControl()
			resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
			for _, asked := range req.(*kmsg.OffsetForLeaderEpochRequest).Topics {
				topic := kmsg.NewOffsetForLeaderEpochResponseTopic()
				topic.Topic = asked.Topic
				for _, p := range asked.Partitions {
					sp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
					sp.Partition, sp.LeaderEpoch, sp.EndOffset = p.Partition, p.LeaderEpoch, 5
					topic.Partitions = append(topic.Partitions, sp)
				}
				resp.Topics = append(resp.Topics, topic)
			}
			return resp, nil, true
		})
		next := newFakeConsumer()
		leave = g.join(next)
		next.await(t, func() bool { return next.next[users0] == 10 && len(next.losses) > 0 })
		leave()
		if got := strings.Join(next.losses, "; "); next.started[users0] != 5 || got != "shop.shop.users/0 [-1,5)" {
			t.Errorf("starts at %d with losses %q", next.started[users0], got)
		}
	})
}

// A partition whose commit cannot be fetched is asked for again: the client itself would leave it unread until the next rebalance.
func TestCommitThatCannotBeFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(3)
		failures := 0
		g.cluster.ControlKey(int16(kmsg.OffsetFetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			g.cluster.KeepControl()
			asked := req.(*kmsg.OffsetFetchRequest).Groups[0]
			if len(asked.Topics) == 0 || failures == 2 { // the first start asks for all
				return nil, nil, false
			}
			failures++
			group := kmsg.NewOffsetFetchResponseGroup()
			group.Group = asked.Group
			for _, at := range asked.Topics {
				topic := kmsg.NewOffsetFetchResponseGroupTopic()
				topic.Topic, topic.TopicID = at.Topic, at.TopicID
				for _, n := range at.Partitions {
					p := kmsg.NewOffsetFetchResponseGroupTopicPartition()
					p.Partition, p.ErrorCode = n, kerr.TopicAuthorizationFailed.Code
					topic.Partitions = append(topic.Partitions, p)
				}
				group.Topics = append(group.Topics, topic)
			}
			resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
			resp.Groups = append(resp.Groups, group)
			return resp, nil, true
		})
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 3 })
		leave()
		if failures != 2 {
			t.Errorf("%d failures", failures)
		}
	})
}

// What cannot be committed of one partition keeps no other from being committed once, and no more than once.
func TestOnePartitionsCommitFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		other := changelog.Partition{Topic: "shop.shop.orders"}
		g.makeTopic(other.Topic)
		leave := g.join(g.c)
		g.c.await(t, func() bool { return len(g.c.started) == 2 })
		commits := 0
		topics, err := g.cluster.Admin(t).ListTopics(t.Context(), usersTopic)
		if err != nil {
			t.Fatal(err)
		}
		g.cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
			g.cluster.KeepControl()
			resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
			for _, asked := range req.(*kmsg.OffsetCommitRequest).Topics {
				at := kmsg.NewOffsetCommitResponseTopic()
				at.Topic, at.TopicID = asked.Topic, asked.TopicID
				for _, p := range asked.Partitions {
					sp := kmsg.NewOffsetCommitResponseTopicPartition()
					sp.Partition = p.Partition
					if asked.Topic == usersTopic || asked.TopicID == topics[usersTopic].ID {
						sp.ErrorCode = kerr.TopicAuthorizationFailed.Code
					} else {
						commits++
					}
					at.Partitions = append(at.Partitions, sp)
				}
				resp.Topics = append(resp.Topics, at)
			}
			return resp, nil, true
		})
		g.c.finish(users0, 1)
		g.c.finish(other, 1)
		time.Sleep(10 * time.Second)
		if commits != 1 {
			t.Errorf("the good partition was committed %d times, want once", commits)
		}
		leave()
	})
}

// Each owner's state has a key of its own; those to which no commit points any more are removed, or every rebalance would make the
// state topic larger for ever.
func TestOldStatesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		for i := range int64(4) {
			c := newFakeConsumer()
			leave := g.join(c)
			c.await(t, func() bool { return c.next[users0] == 10 })
			c.finish(users0, i+1)
			g.awaitCommit(t, i+1)
			leave()
		}
		state, err := g.state.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for k, e := range state.Under("partition") {
			left = append(left, k+" "+string(e.Value))
		}
		if len(left) != 1 || !strings.HasSuffix(left[0], `{"offset":4}`) {
			t.Errorf("states left: %q", left)
		}
	})
}

// hang makes the cluster keep requests of a kind for d before it handles them, at most until the test ends.
func (g *groupRig) hang(k kmsg.Key, d time.Duration) {
	g.cluster.ControlKey(int16(k), func(kmsg.Request) (kmsg.Response, error, bool) {
		g.cluster.KeepControl()
		g.cluster.SleepControl(func() {
			select {
			case <-time.After(d):
			case <-g.ended:
			}
		})
		return nil, nil, false
	})
}
