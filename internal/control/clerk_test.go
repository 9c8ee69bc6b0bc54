package control

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/replay"
)

// markOf is behind the plan of an id, as a partition that acted on it has it.
func (w *worker) markOf(id string) pipeline.ControlMark {
	w.t.Helper()
	w.state.mu.Lock()
	defer w.state.mu.Unlock()
	p := w.state.mu.planned[id]
	if p == nil {
		w.t.Fatalf("there is no plan %s", id)
	}
	return pipeline.ControlMark{Topic: w.state.mu.topic, Offset: p.Offset + 1}
}

// progress tells of the first partition.
func (r *rig) progress(id string, change ...func(*replay.Progress)) {
	r.t.Helper()
	p := replay.Progress{ID: id, At: time.Now(), Worker: "w9", Range: replay.Range{Topic: users, From: 0, To: 3}, Offset: 3, Keys: 5, Copies: 10, Done: true}
	for _, c := range change {
		c(&p)
	}
	r.say(r.cluster.Names.Status, id, p)
}

// A replay is planned when somebody has the office, for the partitions that hold something, and has ended when they say so: nothing is owed of it, and what was
// acted on is behind the plan.
func TestReplayIsPlannedAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker("w1")
		from := time.Now().Add(-time.Minute)
		r.ask("a", func(q *replay.Request) { q.DryRun = true })
		looks(5)
		if got := r.plans(); len(got) != 0 {
			t.Fatalf("without a clerk there are plans: %+v", got)
		}
		w.office(true)
		asked := time.Now()
		looks(3)
		plans := r.plans()
		if len(plans) != 1 {
			t.Fatalf("plans: %+v", plans)
		}
		p := plans[0]
		if p.To.Before(asked) || p.To.After(time.Now()) {
			t.Errorf("the window ends at %s", p.To)
		}
		want := r.planned("a")
		want.At, want.Worker, want.DryRun, want.From, want.To = p.At, "w1", true, from.UTC(), p.To
		if d := cmp.Diff(want, p); d != "" {
			t.Error(d)
		}

		before, behind := w.markOf("a"), w.markOf("a")
		before.Offset--
		r.acted(first, 3, before)
		looks(30)
		r.acted(first, 3, behind, "other", "a")
		r.progress("a", func(p *replay.Progress) { p.Done, p.Offset, p.Keys = false, 1, 1 })
		looks(30)
		if got := r.results(); len(got) != 0 {
			t.Fatalf("it is not done, and there is a result: %+v", got)
		}
		r.progress("a", func(p *replay.Progress) { p.Owed = 2 })
		r.progress("other", func(p *replay.Progress) { p.Keys = 100 })
		r.acted(first, 3, behind, "other")
		looks(3)
		got := r.onlyResult()
		if d := cmp.Diff(replay.Result{ID: "a", At: got.At, Worker: "w1", Clean: true, Keys: 5, Copies: 10, Owed: 2}, got); d != "" {
			t.Error(d)
		}
		looks(60)
		if n := len(r.results()) + len(r.plans()); n != 2 {
			t.Errorf("later there are %d plans and results", n)
		}
	})
}

// A window of commits is also looked for by when records were appended.
func TestPlanOfAWindowOfCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		time.Sleep(time.Hour)
		r.change(0, 1)
		w := r.worker("w1")
		w.office(true)
		begins := time.Now().Add(clocksDiffer) // 15 s before it there is the fourth record
		ask := func(id string, from time.Time) {
			r.ask(id, func(q *replay.Request) { q.Window, q.From = replay.Committed, from })
		}
		ask("last", begins.Add(-time.Second))
		ask("none", begins.Add(-clocksDiffer+time.Second)) // 14 s after
		ask("all", begins.Add(-2*time.Hour))
		looks(3)
		for _, p := range r.plans() {
			var got []string
			for _, x := range p.Ranges {
				got = append(got, fmt.Sprintf("%d: %d-%d since %d", x.Partition, x.From, x.To, *x.Since))
			}
			want := map[string][]string{
				"last": {"0: 0-4 since 3", "1: 0-1 since 0"}, "none": {"0: 0-4 since 3", "1: 0-1 since 0"}, "all": {"0: 0-4 since 0", "1: 0-1 since 0"},
			}[p.ID]
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", p.ID, got, want)
			}
		}
		if len(r.plans()) != 3 {
			t.Errorf("plans: %+v", r.plans())
		}
	})
}

// Two clerks at once, as when one does not know yet that it has lost the office: all workers act on the same plan, and the first result counts.
func TestTwoClerks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.worker("w1"), r.worker("w2")
		a.office(true)
		b.office(true)
		looks(2)
		r.ask("x")
		looks(3)
		oa, ob := a.state.After(first, pipeline.ControlMark{}), b.state.After(first, pipeline.ControlMark{})
		if len(oa) != 1 || cmp.Diff(oa, ob) != "" {
			t.Errorf("one acts on %+v, the other on %+v", oa, ob)
		}
		if n := len(r.plans()); n != 2 {
			t.Errorf("%d plans: the two did not meet", n)
		}
		r.acted(first, 1, a.markOf("x"))
		r.progress("x")
		looks(3)
		if n := len(r.results()); n < 1 || n > 2 {
			t.Errorf("%d results", n)
		}
	})
}

// Who takes the office over makes no plan again and tells no end again, and tells what the other had yet to.
func TestOfficeMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.worker("w1"), r.worker("w2")
		a.office(true)
		looks(2)
		r.ask("told")
		r.ask("left")
		looks(3)
		r.acted(first, 1, a.markOf("told"))
		r.progress("told")
		looks(3)
		a.office(false)
		r.progress("left")
		r.acted(first, 2, a.markOf("left"))
		looks(10)
		if got := r.onlyResult(); got.ID != "told" {
			t.Errorf("result %+v", got)
		}
		b.office(true)
		looks(3)
		got := r.results()
		if len(got) != 2 || got[1].ID != "left" || got[1].Worker != "w2" || !got[1].Clean || got[1].Keys != 5 {
			t.Errorf("results %+v", got)
		}
		b.office(false)
		a.office(true)
		looks(30)
		if n := len(r.results()) + len(r.plans()); n != 4 {
			t.Errorf("%d plans and results", n)
		}
	})
}

// What cannot be done is refused, with what would do, and that is its result.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker("w1")
		now := time.Now()
		for _, c := range []struct {
			id     string
			change func(*replay.Request)
			want   string
		}{
			{"pool", func(q *replay.Request) { q.Target = replay.Target{Pool: "usr"} }, `there is no pool usr (did you mean "user"?)`},
			{"shard", func(q *replay.Request) { q.Target = replay.Target{Shard: "s0"} }, `did you mean "s00"?`},
			{"node", func(q *replay.Request) { q.Target = replay.Target{Node: "nowhere:11211"} }, "there is no node nowhere:11211 (there are: a:1, b:1, c:1)"},
			{"mapping", func(q *replay.Request) { q.Target = replay.Target{Mapping: "profiles/usr"} }, `did you mean "profiles/user"?`},
			{"future", func(q *replay.Request) { q.From = now.Add(time.Hour) }, "its window begins in the future, at 2000-01-01T01:00:00Z"},
			{"end", func(q *replay.Request) { q.To = now.Add(time.Hour) }, "its window ends in the future, at 2000-01-01T01:00:00Z"},
			{"late", func(q *replay.Request) { q.Expires = now.Add(time.Second) }, "it expired at 2000-01-01T00:00:01Z"},
		} {
			r.ask(c.id, c.change)
			defer func() {
				for _, got := range r.results() {
					if got.ID == c.id && (!strings.Contains(got.Error, c.want) || got.Clean) {
						t.Errorf("%s: %+v, want %s", c.id, got, c.want)
					}
				}
			}()
		}
		r.ask("fine", func(q *replay.Request) {
			q.Target, q.Expires = replay.Target{Range: &replay.HashRange{From: 1, To: 2}}, now.Add(time.Hour)
		})
		looks(10)
		w.office(true)
		looks(5)
		if n := len(r.results()); n != 7 {
			t.Errorf("%d results", n)
		}
		if got := w.orders(first, pipeline.ControlMark{}); !slices.Equal(got, []string{"fine"}) {
			t.Errorf("acted on are %q", got)
		}
	})
}

// A window that begins before what a partition still holds is refused, with what is reachable and the flushes that cover the rest. A partition of which nothing in the
// window was lost, since it is quiet, is no reason.
func TestReachOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.set(users, "retention.ms", "1200000") // 20 minutes
		time.Sleep(30 * time.Minute)
		r.change(0, 0, 1, 1)
		r.loses(users, 0, 3) // it begins now
		r.loses(users, 1, 2) // it is empty
		time.Sleep(5 * time.Minute)
		w := r.worker("w1")
		w.office(true)
		looks(2)
		since := func(d time.Duration) func(*replay.Request) {
			return func(q *replay.Request) { q.From = time.Now().Add(-d); q.Target = replay.Target{Shard: "s00"} }
		}
		r.ask("near", since(19*time.Minute))
		r.ask("too far", since(21*time.Minute))
		looks(3)
		plans := r.plans()
		if len(plans) != 2 || plans[0].Refused != "" || len(plans[0].Ranges) != 1 || plans[0].Ranges[0].From != 3 {
			t.Fatalf("plans %+v", plans)
		}
		for _, want := range []string{"the log of " + users + "/0 reaches back to 2000-01-01T00:15:", "replay from 2000-01-01T00:15:", "invalidator flush node a:1, invalidator flush node b:1"} {
			if !strings.Contains(plans[1].Refused, want) {
				t.Errorf("refused: %s, want %s", plans[1].Refused, want)
			}
		}
		// Where more than time removes records nobody knows what was lost: what it holds is what can be reached.
		r.set(users, "retention.bytes", "1000000")
		r.ask("bytes", since(10*time.Minute))
		r.ask("bytes, near", since(4*time.Minute))
		looks(3)
		if plans = r.plans(); len(plans) != 4 || !strings.Contains(plans[2].Refused, "reaches back to 2000-01-01T00:30:") || plans[3].Refused != "" {
			t.Errorf("plans %+v", plans[2:])
		}
	})
}

// A cancel before the plan: there is none. One after it: nobody acts on it. Either is the end.
func TestCancels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker("w1")
		r.ask("before")
		r.cancel("before")
		r.control("before", r.planned("before")) // by a clerk that had not seen it
		r.ask("after")
		looks(1)
		w.office(true)
		looks(3)
		if got := w.orders(first, pipeline.ControlMark{}); !slices.Equal(got, []string{"after"}) || len(r.plans()) != 2 {
			t.Fatalf("acted on are %q", got)
		}
		r.progress("after", func(p *replay.Progress) { p.Done = false })
		r.cancel("after")
		looks(3)
		if got := w.orders(first, pipeline.ControlMark{}); got != nil || !w.state.Cancelled("after") {
			t.Errorf("acted on are %q", got)
		}
		got := r.results()
		if len(got) != 2 || got[0].Error != "cancelled by bob: a slip" || got[0].Clean || got[0].Keys != 0 || got[1].ID != "after" || got[1].Keys != 5 || got[1].Clean {
			t.Errorf("results %+v", got)
		}
	})
}

// The control topic is made again, with the office in the same hands: a request of the same id is another one.
func TestClerkOfATopicThatIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker("w1")
		w.office(true)
		r.ask("a")
		looks(3)
		r.delete(r.cluster.Names.Control)
		r.makeControl()
		r.ask("a")
		looks(30)
		if got := w.orders(first, pipeline.ControlMark{}); !slices.Equal(got, []string{"a"}) || len(r.plans()) != 1 {
			t.Errorf("acted on are %q, plans are %+v; %s", got, r.plans(), r.log.String())
		}
	})
}

// Which states count: those of the highest generation, all of them, if they can be read.
func TestWhoSaysThatAPartitionIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker("w1")
		w.office(true)
		r.ask("a")
		looks(3)
		mark := w.markOf("a")
		r.progress("a")
		r.acted(first, 3, mark)
		r.acted(first, 4, pipeline.ControlMark{}) // the next owner has not acted on it
		looks(5)
		other := changelog.StateKey("partition", "g", users, "0", "4", "restarted")
		r.must(r.store.Put(t.Context(), other, []byte(`{"v":99}`)))
		r.acted(first, 4, mark)
		looks(30)
		if got := r.results(); len(got) != 0 {
			t.Errorf("results %+v", got)
		}
		if lines := r.log.With("level=ERROR"); len(lines) != 1 || !strings.Contains(lines[0], other) {
			t.Errorf("told: %q", lines)
		}
		r.must(r.store.Remove(t.Context(), other))
		looks(5)
		if got := r.onlyResult(); !got.Clean {
			t.Errorf("result %+v", got)
		}
	})
}

// What is told of a partition is for people, and may be missing: the end is told all the same. It is clean where the log still holds all that it held then.
func TestEndWithoutAWord(t *testing.T) {
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("lost=%v", lost), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				w := r.worker("w1")
				w.office(true)
				r.ask("a")
				looks(3)
				if lost {
					r.loses(users, 0, 2)
				}
				r.acted(first, 1, w.markOf("a"))
				looks(8)
				if got := r.results(); len(got) != 0 {
					t.Errorf("it did not wait for a word: %+v", got)
				}
				looks(5)
				got := r.onlyResult()
				if got.Clean == lost || strings.Contains(got.Error, users+"/0") != lost {
					t.Errorf("result %+v", got)
				}
			})
		})
	}
}

// A partition that met the log's start says so, and the result is not clean.
func TestEndWithALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker("w1")
		w.office(true)
		r.ask("a")
		looks(3)
		r.progress("a", func(p *replay.Progress) { p.Lost = 2 })
		r.acted(first, 1, w.markOf("a"))
		looks(3)
		if got := r.onlyResult(); got.Clean || got.Lost != 2 || got.Error != "" {
			t.Errorf("result %+v", got)
		}
	})
}

// Of a topic that is no more nothing is waited for; the result names it.
func TestTopicIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker("w1")
		w.office(true)
		r.ask("a")
		looks(3)
		r.delete(users)
		looks(55)
		if got := r.results(); len(got) != 0 {
			t.Errorf("results after 55 s: %+v", got)
		}
		looks(25)
		if got := r.onlyResult(); got.Clean || !strings.Contains(got.Error, users+"/0") {
			t.Errorf("result %+v", got)
		}
		r.ask("b") // there is no topic
		looks(5)
		if got := r.results(); len(got) != 2 || !got[1].Clean {
			t.Errorf("results %+v", got)
		}
	})
}

// Brokers that do not answer hold a plan up, and are told of once; the plan comes when they do.
func TestClerkWaitsForBrokers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker("w1")
		w.office(true)
		looks(2)
		var away atomic.Bool
		away.Store(true)
		r.cluster.ControlKey(kmsg.DescribeConfigs.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			r.cluster.KeepControl()
			if away.Load() {
				return nil, errors.New("the line is cut"), true
			}
			return nil, nil, false
		})
		r.loses(users, 0, 1)
		r.ask("a")
		looks(30)
		if n := len(r.plans()); n != 0 {
			t.Errorf("%d plans", n)
		}
		if lines := r.log.With("level=ERROR"); len(lines) != 1 || !strings.Contains(lines[0], "planning the replay a of pool user") {
			t.Errorf("told: %q", lines)
		}
		away.Store(false)
		looks(5)
		if n := len(r.plans()); n != 1 || r.log.Count("are planned again") != 1 {
			t.Errorf("%d plans", n)
		}
	})
}

// The end of what was planned, or cancelled, long ago is not told: it may have been, where nothing remembers it.
func TestOldNews(t *testing.T) {
	s := NewState()
	now := time.Now()
	add := func(r replay.Record, at time.Time) { s.mu.add(r, int64(len(s.mu.ids)+len(s.mu.plans)), at) }
	for id, at := range map[string]time.Time{"old": now.Add(-oldNews - time.Hour), "new": now.Add(-oldNews + time.Hour)} {
		add(replay.Plan{ID: id}, at)
		add(replay.Request{ID: "c" + id, Action: replay.Replay}, at)
		add(replay.Request{ID: "cancel " + id, Action: replay.Cancel, Of: "c" + id}, at)
	}
	if got := slices.Sorted(maps.Keys(s.replays(now.Add(-oldNews)))); !slices.Equal(got, []string{"cnew", "new"}) {
		t.Errorf("told are %q", got)
	}
}
