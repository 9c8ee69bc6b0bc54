package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/replay"
)

// ids are those of requests, in order.
func ids(all []Asked) (ids []string) {
	for _, a := range all {
		ids = append(ids, a.ID)
	}
	return ids
}

// orders are the ids of what a partition is to act on.
func (w *worker) orders(p changelog.Partition, mark pipeline.ControlMark) (ids []string) {
	for _, o := range w.state.After(p, mark) {
		ids = append(ids, o.ID)
	}
	return ids
}

// metric is the value of a worker's metric; label is "" or that of its only one.
func (w *worker) metric(name, label string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	w.must(err)
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name && (label == "" || m.Label[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	w.t.Fatalf("there is no metric %s %s", name, label)
	return 0
}

// planned is a plan for partition 0 of users, as the log holds it.
func (r *rig) planned(id string) replay.Plan {
	r.t.Helper()
	topics, err := r.adm.ListTopics(r.t.Context(), users)
	r.must(err)
	return replay.Plan{ID: id, Target: replay.Target{Pool: "user"}, Window: replay.Issued, From: time.Now().Add(-time.Minute), To: time.Now(),
		Ranges: []replay.PlanRange{{Topic: users, TopicID: topics[users].ID.String(), From: 0, To: 3}}}
}

func (r *rig) control(id string, record replay.Record) {
	r.t.Helper()
	r.say(r.cluster.Names.Control, id, record)
}

// What the topic has is known from its start on, and what comes within two looks.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.ask("a")
		r.control("f", replay.Request{ID: "f", Action: replay.Flush, Target: replay.Target{Pool: "feed"}, Cause: &replay.Cause{What: replay.LostLog, Gap: "g"}})
		w := r.worker("w1")
		changed := w.state.Changed()
		looks(1)
		select {
		case <-changed:
		default:
			t.Error("nothing was told to have changed")
		}
		if got := ids(w.state.Requests()); !slices.Equal(got, []string{"a", "f"}) {
			t.Errorf("requests %q", got)
		}
		r.ask("a", func(q *replay.Request) { q.Target = replay.Target{Pool: "feed"} }) // the first of an id counts
		r.control("p", replay.Request{ID: "p", Action: replay.Pause, Of: "f"})
		r.control("c", replay.Request{ID: "c", Action: replay.Cancel, Of: "f"}) // not by force
		job := replay.Job{ID: "j", Scope: replay.Target{Pool: "feed"}, Answers: []string{"f"}, Epoch: 1, Parts: 1}
		r.control("j", job)
		job.Answers = []string{"other"}
		r.control("j", job)
		looks(2)
		if all := w.state.Requests(); len(all) != 2 || all[0].Target.Pool != "user" || all[0].Offset != 0 || all[0].Taken.IsZero() {
			t.Errorf("requests %+v", all)
		}
		if by, is := w.state.Paused("f"); !is || by.ID != "p" {
			t.Error("the flush is not paused")
		}
		if w.state.Cancelled("f") {
			t.Error("a request with a cause was cancelled without force")
		}
		if jobs := w.state.Jobs(); len(jobs) != 1 || jobs[0].Answers[0] != "f" {
			t.Errorf("jobs %+v", jobs)
		}
		r.control("r", replay.Request{ID: "r", Action: replay.Resume, Of: "f"})
		r.control("c2", replay.Request{ID: "c2", Action: replay.Cancel, Of: "f", Force: true})
		looks(2)
		if _, is := w.state.Paused("f"); is {
			t.Error("the flush is still paused")
		}
		if by, is := w.state.CancelOf("f"); !is || by.ID != "c2" {
			t.Errorf("cancelled by %+v", by)
		}
		if age := w.metric("invalidator_control_age_seconds", ""); age > 1 {
			t.Errorf("its age is %g s", age)
		}
	})
}

// What this process has written it knows at once, and does not wait for its next look.
func TestLookSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker("w1")
		looks(1)
		r.ask("a")
		changed, began := w.state.Changed(), time.Now()
		w.state.LookSoon()
		<-changed
		if got := ids(w.state.Requests()); !slices.Equal(got, []string{"a"}) || time.Since(began) > every/2 {
			t.Errorf("requests %q after %s", got, time.Since(began))
		}
	})
}

// A partition acts on the plans that name it, behind what it has acted on, in order; of a plan and a cancel the first counts, and what is cancelled is not acted on.
func TestOrdersOfAPartition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		w := r.worker("w1")
		looks(1)
		topic := w.state.Topic()
		r.control("a", r.planned("a"))
		other := r.planned("b")
		other.Ranges[0].Partition = 1
		r.control("b", other)
		again := r.planned("a") // the first plan counts
		again.Ranges[0].To = 2
		r.control("a", again)
		r.cancel("c")
		r.control("c", r.planned("c"))
		r.control("d", r.planned("d"))
		r.cancel("d")
		r.control("e", replay.Plan{ID: "e", Refused: "no"})
		dry := r.planned("f")
		dry.DryRun, dry.Window = true, replay.Committed
		since := int64(2)
		dry.Ranges[0].Since = &since
		r.control("f", dry)
		looks(2)
		got := w.state.After(first, pipeline.ControlMark{})
		if len(got) != 2 || got[0].ID != "a" || got[0].Range.To != 3 || !got[0].Issued || got[0].DryRun || got[1].ID != "f" || got[1].Issued || !got[1].DryRun || *got[1].Range.Since != 2 {
			t.Fatalf("orders %+v", got)
		}
		if want := (pipeline.ControlMark{Topic: topic, Offset: 1}); got[0].Mark != want {
			t.Errorf("the mark is %+v, want %+v", got[0].Mark, want)
		}
		if got := w.orders(first, got[0].Mark); !slices.Equal(got, []string{"f"}) {
			t.Errorf("behind the first there are %q", got)
		}
		if got := w.orders(first, pipeline.ControlMark{Topic: "another", Offset: 100}); !slices.Equal(got, []string{"a", "f"}) {
			t.Errorf("behind a mark of another topic there are %q", got)
		}
		if got := w.orders(second, pipeline.ControlMark{}); !slices.Equal(got, []string{"b"}) {
			t.Errorf("the second partition has %q", got)
		}
		if !w.state.Cancelled("d") || w.state.Cancelled("a") {
			t.Error("what is cancelled is not")
		}
	})
}

// What cannot be read is counted, told once and passed over; nothing is acted on behind a plan of a newer version, until that is cancelled.
func TestWhatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		control := r.cluster.Names.Control
		r.raw(control, "x", `{"v":1,"kind":"wish","id":"x"}`)
		r.raw(control, "y", `not JSON`)
		r.raw(control, "q", `{"v":2,"kind":"request","id":"q"}`)
		r.control("a", r.planned("a"))
		r.raw(control, "a", `{"v":2,"kind":"plan","id":"a"}`) // the first of its id counts, whatever this is
		r.control("b", r.planned("b"))
		r.raw(control, "n", `{"v":2,"kind":"plan","id":"n"}`)
		r.control("c", r.planned("c"))
		w := r.worker("w1")
		looks(1)
		if got := w.orders(first, pipeline.ControlMark{}); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("acted on are %q", got)
		}
		if n, lines := w.metric("invalidator_control_unknown_total", "other"), r.log.Count("is passed over"); n != 2 || lines != 2 {
			t.Errorf("%g others, told %d times: %s", n, lines, r.log.String())
		}
		if n, told := w.metric("invalidator_control_unknown_total", "plan"), r.log.With("a plan cannot be read"); n != 2 || len(told) != 1 || !strings.Contains(told[0], "level=ERROR") {
			t.Errorf("%g plans, told as %q", n, told)
		}
		r.cancel("n")
		looks(2)
		if got := w.orders(first, pipeline.ControlMark{}); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Errorf("acted on are %q", got)
		}
	})
}

// A broker that is away is told of once; what was read stands, and what came meanwhile is read when it is back.
func TestBrokerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.control("a", r.planned("a"))
		w := r.worker("w1")
		looks(1)
		var away atomic.Bool
		away.Store(true)
		r.cluster.ControlKey(kmsg.ListOffsets.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			r.cluster.KeepControl()
			if away.Load() {
				return nil, errors.New("the line is cut"), true
			}
			return nil, nil, false
		})
		r.control("b", r.planned("b"))
		looks(60)
		if got := w.orders(first, pipeline.ControlMark{}); !slices.Equal(got, []string{"a"}) {
			t.Errorf("orders %q", got)
		}
		if age := w.metric("invalidator_control_age_seconds", ""); age < 55 {
			t.Errorf("its age is %g s", age)
		}
		away.Store(false)
		looks(60)
		if got := w.orders(first, pipeline.ControlMark{}); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("orders %q", got)
		}
		if r.log.Count("level=ERROR") != 1 || r.log.Count("are followed again") != 1 {
			t.Errorf("the log says %s", r.log.String())
		}
	})
}

// A topic that was removed and made again begins anew, also where it is as long as it was, and what a partition had acted on counts for nothing.
func TestControlTopicIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.control("a", r.planned("a"))
		r.control("b", r.planned("b"))
		w := r.worker("w1")
		looks(1)
		mark := w.state.After(first, pipeline.ControlMark{})[1].Mark
		r.delete(r.cluster.Names.Control)
		looks(3)
		if got := w.orders(first, pipeline.ControlMark{}); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("while there is no topic there are %q", got)
		}
		r.makeControl()
		r.control("c", r.planned("c"))
		r.control("d", r.planned("d"))
		looks(15)
		if got := w.orders(first, mark); !slices.Equal(got, []string{"c", "d"}) || w.state.Topic() == mark.Topic {
			t.Errorf("orders %q", got)
		}
	})
}

// What has left the topic is forgotten, so that a worker that runs for months knows no more than the topic.
func TestRetentionOfTheControlTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for i := range 4 {
			id := fmt.Sprint(i)
			r.ask(id)
			r.control(id, r.planned(id))
			r.cancel(id)
			r.control("j"+id, replay.Job{ID: "j" + id, Scope: replay.Target{Pool: "feed"}, Answers: []string{"f"}, Epoch: 1, Parts: 1})
			r.raw(r.cluster.Names.Control, "n"+id, `{"v":2,"kind":"plan","id":"n"}`)
		}
		w := r.worker("w1")
		looks(1)
		r.loses(r.cluster.Names.Control, 0, 15) // three of four
		r.ask("4")
		looks(2)
		if got := ids(w.state.Requests()); !slices.Equal(got, []string{"3", "4"}) {
			t.Errorf("requests %q", got)
		}
		c := &w.state.mu.content
		if n := []int{len(c.plans), len(c.planned), len(c.jobs), len(c.began), len(c.unread), len(c.words), len(c.ids), len(c.byID)}; !slices.Equal(n, []int{1, 1, 1, 1, 1, 1, 3, 2}) {
			t.Errorf("kept are %v", n)
		}
		if w.state.Cancelled("2") || !w.state.Cancelled("3") {
			t.Error("cancels are not as the topic has them")
		}
	})
}

// A topic that lost its end, as a broker without replicas may, makes plans lie below what a partition has acted on: it acts on all of them again. A follower that is
// only behind does not.
func TestControlTopicLosesItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.control("a", r.planned("a"))
		w := r.worker("w1")
		looks(1)
		ahead := pipeline.ControlMark{Topic: w.state.Topic(), Offset: 2}
		if got := w.orders(first, ahead); got != nil {
			t.Errorf("orders %q", got)
		}
		r.control("b", r.planned("b")) // an owner before us had seen it
		looks(2)
		if got := w.orders(first, ahead); got != nil {
			t.Errorf("orders %q", got)
		}
		lost := pipeline.ControlMark{Topic: w.state.Topic(), Offset: 7}
		changed := w.state.Changed()
		if got := w.orders(first, lost); got != nil {
			t.Errorf("orders %q before a look", got)
		}
		looks(2)
		select {
		case <-changed:
		default:
			t.Error("nobody is told to ask again")
		}
		if got := w.orders(first, lost); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("orders %q", got)
		}
	})
}

// What a partition had acted on counts for nothing, once it was lost, also when the topic has grown beyond it again; and what it acts on then counts, also where that is the same offset.
func TestControlTopicGrowsAgainAfterItLostItsEnd(t *testing.T) {
	for _, end := range []int64{4, 3} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.ask("x")
			w := r.worker("w1")
			looks(1)
			mark := pipeline.ControlMark{Topic: w.state.Topic(), Offset: end}
			for range 2 {
				if got := w.orders(first, mark); got != nil {
					t.Errorf("orders %q", got)
				}
				looks(2)
			}
			r.ask("y")
			r.control("a", r.planned("a")) // at offset 2
			r.ask("z")
			looks(2)
			for _, id := range []string{"a", "b"} {
				got := w.state.After(first, mark)
				if len(got) != 1 || got[0].ID != id {
					t.Fatalf("behind %d: %+v, want %s", end, got, id)
				}
				mark = got[0].Mark
				r.control("b", r.planned("b"))
				looks(2)
			}
			if got := w.orders(first, mark); got != nil {
				t.Errorf("orders %q", got)
			}
		})
	}
}

// The offsets of a plan are of the topic that it names by its id: of one that was made again since they mean nothing.
func TestPlanOfATopicThatWasMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.control("old", r.planned("old"))
		w := r.worker("w1")
		looks(1)
		r.delete(users)
		r.makeUsers()
		looks(1)
		r.control("new", r.planned("new"))
		looks(15)
		if got := w.orders(first, pipeline.ControlMark{}); !slices.Equal(got, []string{"new"}) {
			t.Errorf("orders %q", got)
		}
	})
}
