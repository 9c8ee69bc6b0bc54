package changelog_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/obs/obstest"
)

// The next owner gets what its predecessors wrote: the state, and the journal of all of them, with a name as often as it was written.
func TestTheNextOwnerGetsStateAndJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		own := func(offset int64, drop []string, journal ...string) *fakeConsumer {
			c := newFakeConsumer()
			leave := g.join(c)
			c.await(t, func() bool { return c.next[users0] == 10 })
			c.keep(drop, journal...)
			c.finish(users0, offset)
			g.awaitCommit(t, offset)
			leave()
			return c
		}
		own(3, nil, "T10", "T09:58", "T09:59")
		second := own(5, []string{"T09:58", "T09:59"}, "T09", "T10")
		third := own(7, []string{"T10"}, "T10")
		last := own(8, nil)
		for _, tc := range []struct {
			name string
			c    *fakeConsumer
			want string
		}{
			{"the second", second, `{"offset":3} T09:58 T09:59 T10`},
			{"the third", third, `{"offset":5} T09 T10 T10`},
			{"the last", last, `{"offset":7} T09 T10`}, // it dropped what others wrote under the name that it wrote
		} {
			if got := left(tc.c.was[users0]); got != tc.want {
				t.Errorf("%s got %q, want %q", tc.name, got, tc.want)
			}
		}
	})
}

// A commit is made whenever the offset or what is kept has changed, and at no other time; also when the partition moves, and once under each
// generation: what was written before is of another key. The epoch of the last record stays with the commit.
func TestWhatIsCommittedWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.makeTopic("shop.shop.orders")
		g.produce(10)
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 10 && len(g.c.started) == 2 })
		g.c.finish(users0, 6)
		g.awaitCommit(t, 6)
		first := g.commit(t)
		time.Sleep(5 * time.Second)
		if again := g.commit(t); again.Metadata != first.Metadata {
			t.Errorf("nothing changed and it was committed again: %s after %s", again.Metadata, first.Metadata)
		}
		g.c.change()
		g.awaitState(t, `{"offset":6,"version":1}`)
		g.await(t, "a commit of what is kept", func() bool { return g.commit(t).Metadata != first.Metadata })
		second := g.commit(t)
		if second.Metadata == first.Metadata || second.At != 6 || second.LeaderEpoch != first.LeaderEpoch || first.LeaderEpoch < 0 {
			t.Errorf("committed %+v after %+v", second, first)
		}

		// Somebody joins, so that a generation begins; the partition may move or not.
		other := newFakeConsumer()
		leaveOther := g.join(other)
		other.await(t, func() bool { return len(other.started) == 1 })
		if _, moved := other.started[users0]; moved {
			other.finish(users0, 6)
		}
		g.await(t, "a commit under the new generation", func() bool { return g.commit(t).Metadata != second.Metadata })
		if third := g.commit(t); third.LeaderEpoch != first.LeaderEpoch || third.At != 6 {
			t.Errorf("committed %+v after %+v", third, second)
		}
		leaveOther()
		leave()

		// It is read on from there, nothing more is read, and what changes is committed with the epoch, at the revoke too.
		last := newFakeConsumer()
		leave = g.join(last)
		last.await(t, func() bool { return last.next[users0] == 10 })
		last.finish(users0, 6)
		last.onDrain = last.change
		leave()
		g.awaitState(t, `{"offset":6,"version":1}`)
		if c := g.commit(t); c.LeaderEpoch != first.LeaderEpoch {
			t.Errorf("the commit's epoch is %d, want %d", c.LeaderEpoch, first.LeaderEpoch)
		}
	})
}

// A process that dies between two steps of a commit: whatever the step, the next owner gets a state that is good for the offset where it
// goes on, and a journal that lacks nothing. 4 was committed with a record T09; the commit of 6 writes T10 and drops T09.
func TestDyingBetweenTwoStepsOfACommit(t *testing.T) {
	for _, tc := range []struct {
		name    string
		key     kmsg.Key
		nth     int // of these requests
		carried bool
		want    string // offset, state, journal
	}{
		{"before the journal", kmsg.Produce, 1, false, `4 {"offset":4} T09`},
		{"after the journal", kmsg.Produce, 1, true, `4 {"offset":4} T09 T10`},
		{"before the state", kmsg.Produce, 2, false, `4 {"offset":4} T09 T10`},
		{"after the state", kmsg.Produce, 2, true, `4 {"offset":6} T09 T10`}, // later than the commit, and good for it
		{"before the commit", kmsg.OffsetCommit, 1, false, `4 {"offset":6} T09 T10`},
		{"after the commit", kmsg.OffsetCommit, 1, true, `6 {"offset":6} T09 T10`},
		{"before the removal", kmsg.Produce, 3, false, `6 {"offset":6} T09 T10`},
		{"after the removal", kmsg.Produce, 3, true, `6 {"offset":6} T10`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroupRig(t)
				g.produce(10)
				l := g.line(t)
				leave := g.join(g.c, l.on)
				g.c.await(t, func() bool { return g.c.next[users0] == 10 })
				g.c.keep(nil, "T09")
				g.c.finish(users0, 4)
				g.awaitCommit(t, 4)

				n := 0
				g.cluster.ControlKey(int16(tc.key), func(kmsg.Request) (kmsg.Response, error, bool) {
					g.cluster.KeepControl()
					if n++; n != tc.nth {
						return nil, nil, false
					}
					l.cut()
					return nil, errors.New("the process has died"), !tc.carried
				})
				g.c.keep([]string{"T09"}, "T10")
				g.c.finish(users0, 6)
				g.await(t, "the process's end", l.isDead)

				next := newFakeConsumer()
				leaveNext := g.join(next)
				next.await(t, func() bool { return next.next[users0] == 10 })
				if got := fmt.Sprint(next.started[users0], " ", left(next.was[users0])); got != tc.want {
					t.Errorf("the next owner got %q, want %q", got, tc.want)
				}
				leaveNext()
				leave()
			})
		})
	}
}

// The same with a second owner, which has committed nothing yet: the commit points to what the first wrote, and that is still there.
func TestDyingBeforeTheFirstCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		leave := g.work(t, g.c, 10, 4)
		leave()

		second, l := newFakeConsumer(), g.line(t)
		leave = g.join(second, l.on)
		g.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
			l.cut()
			return nil, errors.New("the process has died"), true
		})
		second.await(t, func() bool { return second.next[users0] == 10 })
		second.finish(users0, 9)
		g.awaitState(t, `{"offset":9}`)

		third := newFakeConsumer()
		leaveThird := g.join(third)
		third.await(t, func() bool { return third.next[users0] == 10 })
		if got := fmt.Sprint(third.started[users0], " ", left(third.was[users0])); got != `4 {"offset":4}` {
			t.Errorf("the third owner got %q", got)
		}
		third.finish(users0, 4) // and what the second left goes with the third's commit
		g.await(t, "the third's state alone", func() bool { return len(g.states(t)) == 1 })
		leaveThird()
		leave()
	})
}

// An owner is stopped in the middle of a commit, loses its partition, and wakes: what it writes then is the last on the topic, and counts
// for nothing.
func TestAZombiesLateState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		l := g.line(t)
		leave := g.work(t, g.c, 10, 4, l.on)
		l.freeze()
		g.c.keep(nil, "late")
		g.c.finish(users0, 5) // its writes are under way

		second := newFakeConsumer()
		leaveSecond := g.join(second)
		second.await(t, func() bool { return second.next[users0] == 10 })
		second.finish(users0, 8)
		g.awaitCommit(t, 8)
		l.thaw()
		g.await(t, "the late journal", func() bool { return strings.Contains(fmt.Sprint(g.journals(t)), "late") })
		second.change()
		g.awaitState(t, `{"offset":8,"version":1}`)
		leaveSecond()
		leave()
		if c := g.commit(t); c.At != 8 {
			t.Errorf("committed %d, want 8", c.At)
		}
		third := newFakeConsumer()
		leave = g.join(third)
		third.await(t, func() bool { return third.next[users0] == 10 })
		if got := fmt.Sprint(third.started[users0], " ", left(third.was[users0])); got != `8 {"offset":8,"version":1} late` {
			t.Errorf("the third owner got %q", got)
		}
		leave()
	})
}

// A state that the commit names and that is missing, or that cannot be read, is no fresh start: that partition stands still, loudly, until
// it can be read; no other waits for it.
func TestAStateThatCannotBeRead(t *testing.T) {
	for _, tc := range []struct {
		name    string
		wantLog string
		bad     string // in place of the state; empty: it is removed
	}{
		{"it is missing", "does not hold", ""},
		{"it is no JSON", "the state is no JSON", "{"},
		{"it is of a version that is not known", "unknown format version", `{"v":99}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroupRig(t)
				orders0 := changelog.Partition{Topic: "shop.shop.orders"}
				g.makeTopic(orders0.Topic)
				g.produce(3)
				leave := g.join(g.c)
				g.c.await(t, func() bool { return g.c.next[users0] == 3 && len(g.c.started) == 2 })
				g.c.finish(users0, 2)
				g.awaitCommit(t, 2)
				leave()
				var key string
				for k := range g.states(t) {
					if strings.Contains(k, usersTopic) {
						key = k
					}
				}
				good := []byte(g.states(t)[key])
				var bad []byte
				if tc.bad != "" {
					bad = []byte(tc.bad)
				}
				must(t, g.state.Put(t.Context(), key, bad))

				next, log := newFakeConsumer(), &obstest.Log{}
				leave = g.join(next, func(o *changelog.GroupOptions) {
					o.Log = slog.New(slog.NewTextHandler(log, nil))
					o.Readable = func(was changelog.Restored) error {
						if strings.Contains(string(was.State), "99") {
							return changelog.ErrUnknownVersion
						}
						return nil
					}
				})
				next.await(t, func() bool { return len(next.started) == 1 })
				g.produceTo(orders0.Topic, 4)
				next.await(t, func() bool { return next.next[orders0] == 4 })
				next.finish(orders0, 4)
				time.Sleep(20 * time.Second)
				if _, ok := next.started[users0]; ok {
					t.Error("it began without what is owed")
				}
				if !strings.Contains(log.String(), tc.wantLog) || log.Count("level=ERROR") < 3 {
					t.Errorf("log %s", log)
				}
				must(t, g.state.Put(t.Context(), key, good))
				next.await(t, func() bool { return next.next[users0] == 3 })
				if got := fmt.Sprint(next.started[users0], " ", left(next.was[users0])); got != `2 {"offset":2}` {
					t.Errorf("began with %q", got)
				}
				leave()
			})
		})
	}
}

// A partition that waited for its state has a place in the client already. Its consumer may take long to begin (a day of journals): no record
// comes before it has, since there is nobody yet who would not let it pass.
func TestNoRecordsBeforeTheConsumerHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(3)
		leave := g.work(t, g.c, 3, 2)
		leave()
		states := g.states(t)
		for key := range states {
			must(t, g.state.Put(t.Context(), key, nil))
		}
		next := newFakeConsumer()
		next.onAssign = func() { time.Sleep(2 * time.Second) }
		leave = g.join(next)
		time.Sleep(5 * time.Second)
		for key, value := range states {
			must(t, g.state.Put(t.Context(), key, []byte(value)))
		}
		next.await(t, func() bool { return next.next[users0] == 3 })
		if next.skipped || next.started[users0] != 2 {
			t.Errorf("began at %d; records came before, or were skipped: %t", next.started[users0], next.skipped)
		}
		leave()
	})
}

// The state topic cannot be read for a while: what is ours goes on, what comes waits.
func TestTheStateTopicIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(3)
		leave := g.work(t, g.c, 3, 2)
		away := true
		names := g.cluster.Names
		g.cluster.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
			g.cluster.KeepControl()
			asked := req.(*kmsg.ListOffsetsRequest)
			if !away || asked.Topics[0].Topic != names.State {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
			for _, at := range asked.Topics {
				topic := kmsg.NewListOffsetsResponseTopic()
				topic.Topic = at.Topic
				for _, ap := range at.Partitions {
					p := kmsg.NewListOffsetsResponseTopicPartition()
					p.Partition, p.ErrorCode = ap.Partition, kerr.TopicAuthorizationFailed.Code
					topic.Partitions = append(topic.Partitions, p)
				}
				resp.Topics = append(resp.Topics, topic)
			}
			return resp, nil, true
		})
		orders0 := changelog.Partition{Topic: "shop.shop.orders"}
		g.makeTopic(orders0.Topic)
		g.produceTo(orders0.Topic, 2)
		time.Sleep(15 * time.Second)
		g.produce(1)
		g.c.await(t, func() bool { return g.c.next[users0] == 4 })
		g.c.finish(users0, 4)
		g.awaitCommit(t, 4)
		if _, ok := g.c.started[orders0]; ok {
			t.Error("a partition began without what is on the state topic")
		}
		g.cluster.Control(func(kmsg.Request) (kmsg.Response, error, bool) { away = false; return nil, nil, false })
		g.c.await(t, func() bool { return g.c.next[orders0] == 2 })
		leave()
	})
}

// What is left of a topic that was removed and made again is nothing, also of its journal, and also where the first owner in the new log
// died before it could tidy up.
func TestNothingIsLeftOfAnotherLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 10 })
		g.c.keep(nil, "T10")
		g.c.finish(users0, 10)
		g.awaitCommit(t, 10)
		if _, err := g.cluster.Admin(t).DeleteTopics(t.Context(), usersTopic); err != nil {
			t.Fatal(err)
		}
		g.makeTopic(usersTopic)
		g.reopen()
		g.produce(20)
		g.c.await(t, func() bool { return len(g.c.losses) > 0 && g.c.next[users0] == 20 })
		if got := left(g.c.was[users0]); got != "" {
			t.Errorf("of the old log is left %q", got)
		}
		g.c.finish(users0, 4)
		g.awaitCommit(t, 4)
		g.await(t, "the old journal's end", func() bool { return len(g.journals(t)) == 0 })
		leave()
	})
}

// Retention that overtook the group leaves its debts: what of them the log still has is paid.
func TestTheStateOutlivesRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(10)
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 10 })
		g.c.keep(nil, "T10")
		g.c.finish(users0, 4)
		g.awaitCommit(t, 4)
		leave()
		if _, err := g.cluster.Admin(t).DeleteRecords(t.Context(), deleteTo(6)); err != nil {
			t.Fatal(err)
		}
		next := newFakeConsumer()
		leave = g.join(next)
		next.await(t, func() bool { return next.next[users0] == 10 })
		if got := fmt.Sprint(next.started[users0], " ", left(next.was[users0])); got != `6 {"offset":4} T10` {
			t.Errorf("got %q", got)
		}
		leave()
	})
}

// Commits of versions before this one, and commits that somebody set by hand: the state is found.
func TestCommitsOfOthers(t *testing.T) {
	for _, tc := range []struct{ name, metadata, want string }{
		{"of the version before", `{"v":1,"partition":0,"offset":0,"generation":7}`, `2 {"of":7}`},
		{"by hand", "", `2 {"of":12}`},
		{"by another tool", "xyz", `2 {"of":12}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGroupRig(t)
				g.produce(3)
				for _, n := range []string{"7", "12", "9"} {
					must(t, g.state.Put(t.Context(), changelog.StateKey("partition", "workers", usersTopic, "0", n), []byte(`{"of":`+n+`}`)))
				}
				offsets := kadm.Offsets{}
				offsets.Add(kadm.Offset{Topic: usersTopic, At: 2, LeaderEpoch: -1, Metadata: tc.metadata})
				must(t, g.cluster.Admin(t).CommitAllOffsets(t.Context(), "workers", offsets))
				leave := g.join(g.c)
				g.c.await(t, func() bool { return g.c.next[users0] == 3 })
				if got := fmt.Sprint(g.c.started[users0], " ", left(g.c.was[users0])); got != tc.want {
					t.Errorf("got %q, want %q", got, tc.want)
				}
				g.c.finish(users0, 3)
				g.await(t, "one state", func() bool { return len(g.states(t)) == 1 })
				leave()
			})
		})
	}
}

// What one partition keeps is refused: no other's commit waits for it.
func TestOnePartitionsStateIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		orders0 := changelog.Partition{Topic: "shop.shop.orders"}
		g.makeTopic(orders0.Topic)
		g.produce(3)
		g.produceTo(orders0.Topic, 3)
		leave := g.join(g.c)
		g.c.await(t, func() bool { return g.c.next[users0] == 3 && g.c.next[orders0] == 3 })
		g.c.large(orders0)
		g.c.finish(orders0, 3)
		g.c.finish(users0, 3)
		g.awaitCommit(t, 3)
		offsets, err := g.cluster.Admin(t).FetchOffsets(t.Context(), "workers")
		must(t, err)
		if o, ok := offsets.Lookup(orders0.Topic, 0); ok && o.At == 3 {
			t.Error("committed without a state")
		}
		leave()
	})
}

// left is what an owner was given, in order: the state, and the names of the journal.
func left(was changelog.Restored) string {
	var all []string
	if was.State != nil {
		all = append(all, string(was.State))
	}
	for _, j := range was.Journal {
		all = append(all, j.Name)
		if want := `{"of":"` + j.Name + `"}`; string(j.Value) != want {
			all = append(all, "with "+string(j.Value))
		}
	}
	slices.Sort(all)
	if n := len(all); n > 0 && was.State != nil { // '{' sorts behind the names
		all = append([]string{all[n-1]}, all[:n-1]...)
	}
	return strings.Join(all, " ")
}

// keep gives what the next commit keeps and drops of the journal.
func (c *fakeConsumer) keep(drop []string, journal ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop = drop
	for _, name := range journal {
		c.journal = append(c.journal, changelog.JournalRecord{Name: name, Value: []byte(`{"of":"` + name + `"}`)})
	}
}

// change makes what is kept another.
func (c *fakeConsumer) change() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
}

// large makes what a partition keeps larger than a record may be.
func (c *fakeConsumer) large(p changelog.Partition) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tooLarge = p
}

// states are the partitions' states on the state topic, by key.
func (g *groupRig) states(t *testing.T) map[string]string { return g.under(t, "partition") }

func (g *groupRig) journals(t *testing.T) map[string]string { return g.under(t, "journal") }

func (g *groupRig) under(t *testing.T, kind string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for k, e := range load(t, g.state).Under(kind) {
		out[k] = string(e.Value)
	}
	return out
}

func (g *groupRig) awaitState(t *testing.T, want string) {
	t.Helper()
	g.await(t, "state "+want, func() bool {
		for _, v := range g.states(t) {
			if v == want {
				return true
			}
		}
		return false
	})
}

// await waits in the bubble's time.
func (g *groupRig) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for range 300 {
		if cond() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatalf("waited for half a minute for %s; states %v, journals %v", what, g.states(t), g.journals(t))
}
