package app

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/gap"
	"invalidator/replay"
)

// reader looks at the rig's fleet.
func (r *deskRig) reader() *FleetReader {
	r.t.Helper()
	f, err := openFleet(r.t.Context(), r.c.Options, r.c.Names, "fleet", slog.New(slog.DiscardHandler))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(f.Close)
	f.maxTTL = r.maxTTL
	if f.sources, _, err = topicsOf(r.config); err != nil {
		r.t.Fatal(err)
	}
	return f
}

func (r *deskRig) look(f *FleetReader) Fleet {
	r.t.Helper()
	fleet, err := f.Read(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return fleet
}

// A partition is as old as its first record that is not finished, however few there are; one that is a commit behind is not old.
func TestTheAgeOfALag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		r.change(0, 3)
		time.Sleep(25 * time.Minute)
		r.change(1, 500)
		time.Sleep(90 * time.Second)
		r.change(0, 1)
		r.commit(0, 2)
		f := r.reader()
		want := []PartitionLag{
			{Topic: deskUsers, Partition: 0, Committed: 2, End: 4, Lag: 2, Source: "shop", Age: 1590},
			{Topic: deskUsers, Partition: 1, Committed: 0, End: 500, Lag: 500, Source: "shop", Age: 90},
		}
		if d := gocmp.Diff(want, r.look(f).Lags); d != "" {
			t.Error(d)
		}
		r.commit(0, 3)
		r.commit(1, 500)
		want[0].Committed, want[0].Lag, want[0].Age = 3, 1, 0
		want[1].Committed, want[1].Lag, want[1].Age = 500, 0, 0
		if d := gocmp.Diff(want, r.look(f).Lags); d != "" {
			t.Error(d)
		}
	})
}

// Many partitions are sorted by age with a few questions, and only the oldest are read.
func TestTheAgeOfManyLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		const many = agesRead + 4
		if _, err := changelog.EnsureTopics(t.Context(), r.adm, []changelog.TopicSpec{changelog.Settings{Partitions: many}.Change("shop.shop.items")}); err != nil {
			t.Fatal(err)
		}
		lags := make([]PartitionLag, many)
		for i := range lags {
			lags[i] = PartitionLag{Topic: "shop.shop.items", Partition: int32(i), End: 1, Lag: int64(i + 1)}
			r.putTo("shop.shop.items", int32(i), []byte("{}"))
		}
		time.Sleep(150 * time.Second)
		if err := r.reader().ages(t.Context(), lags, time.Now()); err != nil {
			t.Fatal(err)
		}
		for i, l := range lags {
			want := int64(150)
			if i < many-agesRead { // those that are less behind: at least a minute
				want = 60
			}
			if l.Age != want {
				t.Errorf("partition %d is %d s old, want %d", i, l.Age, want)
			}
		}
	})
}

// What a worker asked for and did not come about needs a person, until it is done all the same; what a person asked for is told, and what nobody begins.
func TestWorksThatNeedSomebody(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	work := func(id, kind string, state WorkState, target replay.Target, after time.Duration) Work {
		return Work{ID: id, Kind: kind, State: state, Target: target, At: at.Add(after), Ended: at.Add(after)}
	}
	caused := func(w Work) Work {
		w.Cause = &replay.Cause{What: replay.Promotion, Epoch: 8}
		return w
	}
	because := func(w Work, why string) Work {
		w.Why = why
		return w
	}
	feed, part := replay.Target{Pool: "feed"}, replay.Target{Pool: "feed", Shard: "s00"}
	worker := []Process{{ID: "w-1", Role: roleWorker}}
	for _, tc := range []struct {
		name      string
		processes []Process
		works     []Work
		open      int
		want      []string
	}{
		{"all is well", worker, []Work{work("r1", KindReplay, WorkDone, feed, 0), work("epoch/7-8", KindEpoch, WorkRunning, replay.Target{}, 0)}, 1, nil},
		{"a worker's flush failed", worker, []Work{because(caused(work("promotion/8/s00/feed", KindFlush, WorkFailed, part, 0)), "no node can be dumped")}, 0,
			[]string{"error: flush promotion/8/s00/feed: it failed: no node can be dumped, and what it was to delete may be stale: ask for it by hand (invalidator flush pool feed --shard s00) (invalidator flush status promotion/8/s00/feed)"}},
		{"a worker's flush was cancelled", worker, []Work{caused(work("gained/8", KindFlush, WorkCancelled, replay.Target{Gained: 8}, 0))}, 0,
			[]string{"error: flush gained/8: it was cancelled, and what it was to delete may be stale: ask for it by hand (invalidator flush node, for each that gained keys)"}},
		{"and was done by hand since", worker, []Work{caused(work("p", KindFlush, WorkFailed, part, 0)), work("f1", KindFlush, WorkDone, feed, time.Minute)}, 0, nil},
		{"and is on its way", worker, []Work{caused(work("p", KindFlush, WorkFailed, part, 0)), work("f1", KindFlush, WorkRunning, part, time.Minute)}, 1, nil},
		{"a dry run deletes nothing", worker, []Work{caused(work("p", KindFlush, WorkFailed, feed, 0)), func() Work {
			w := work("f1", KindFlush, WorkDone, feed, time.Minute)
			w.DryRun = true
			return w
		}()}, 0, []string{"error: flush p: it failed"}},
		{"what a person asked for", worker, []Work{because(work("r1", KindReplay, WorkRefused, feed, 0), "no such pool"), work("r2", KindReplay, WorkCancelled, feed, 0)}, 0,
			[]string{"warning: replay r1: it was refused: no such pool (invalidator replay status r1)"}},
		{"something was lost", worker, []Work{func() Work {
			w := work("r1", KindReplay, WorkIncomplete, feed, 0)
			w.Lost = 12
			return w
		}()}, 0, []string{"warning: replay r1: it was not done to its end: the log no longer held 12 records of it"}},
		{"long ago", worker, []Work{caused(work("p", KindFlush, WorkFailed, feed, -worksBack))}, 0, nil},
		{"nobody begins it", worker, []Work{work("r1", KindReplay, WorkWaiting, feed, 0)}, 1, []string{"warning: replay r1: no worker has begun it for 5m0s (invalidator replay status r1)"}},
		{"nobody is there to begin it", nil, []Work{work("r1", KindReplay, WorkWaiting, feed, 0)}, 1, nil},
	} {
		f := Fleet{Group: "fleet", Processes: tc.processes, Works: tc.works}
		f.judgeWorks(at.Add(5 * time.Minute))
		var got []string
		for i, x := range f.Findings {
			line := x.String()
			if i < len(tc.want) && strings.HasPrefix(line, tc.want[i]) {
				line = tc.want[i]
			}
			got = append(got, line)
		}
		if d := gocmp.Diff(tc.want, got); d != "" || len(f.Works) != tc.open {
			t.Errorf("%s: %s, %d open", tc.name, d, len(f.Works))
		}
	}
}

// Gaps that stand, parked records and works are read from the topics, again and again, and what is decided is not told any more.
func TestAFleetIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		r.speak()
		f := r.reader()
		if fleet := r.look(f); len(fleet.Findings)+len(fleet.Works)+len(fleet.Gaps)+fleet.Parked.Records != 0 {
			t.Errorf("nothing happened, and it has %+v", fleet)
		}
		book, err := gap.OpenBook(r.c.Options, r.c.Names, "w-1")
		if err != nil {
			t.Fatal(err)
		}
		defer book.Close()
		ctx := t.Context()
		c, err := book.Record(ctx, gap.Gap{ID: gap.WorkerID(deskUsers, 0, 9), Source: "shop", Why: "retention overtook the group", Pools: []string{"user"}, Range: &replay.Range{Topic: deskUsers, From: 0, To: 9}}, false)
		if err != nil {
			t.Fatal(err)
		}
		dead, err := changelog.OpenDeadLetter(r.c.Options, r.c.Names.DeadLetter)
		if err != nil {
			t.Fatal(err)
		}
		defer dead.Close()
		for i := range 2 {
			if err := dead.ParkFrom(ctx, changelog.Partition{Topic: deskUsers}, changelog.Record{Offset: int64(i), Value: []byte("nonsense")}, "it is no change"); err != nil {
				t.Fatal(err)
			}
		}
		asked := replayOf(replay.Target{Shard: "s00"}, time.Now().UTC())
		r.tell(r.c.Names.Control, asked)
		time.Sleep(parkedEvery)
		r.speak()
		fleet := r.look(f)
		var got []string
		for _, x := range fleet.Findings {
			got = append(got, x.String())
		}
		want := []string{
			"error: gap shop.shop.users/0/9: retention overtook the group (invalidator gap show shop.shop.users/0/9)",
			"warning: dead letters: 2 records were parked in the last day, the last at 2000-01-01 00:00:00: what they would have deleted may be stale (invalidator deadletter list)",
		}
		if d := gocmp.Diff(want, got); d != "" || len(fleet.Gaps) != 1 || len(fleet.Works) != 1 || fleet.Works[0].ID != "r1" || fleet.Parked.Records != 2 {
			t.Errorf("%s, %+v", d, fleet)
		}

		if err := book.Settle(ctx, c, "ann", false); err != nil {
			t.Fatal(err)
		}
		letters, err := changelog.OpenDeadLetters(r.c.Options, r.c.Names)
		if err != nil {
			t.Fatal(err)
		}
		defer letters.Close()
		parked, err := letters.List(ctx, time.Time{}, nil)
		if err != nil || len(parked) != 2 {
			t.Fatal(err, parked)
		}
		if err := letters.Discard(ctx, parked[0], "ann"); err != nil {
			t.Fatal(err)
		}
		r.tell(r.c.Names.Status, replay.Result{ID: "r1", At: time.Now(), Clean: true})
		time.Sleep(parkedEvery)
		r.speak()
		if fleet := r.look(f); len(fleet.Gaps)+len(fleet.Works) != 0 || fleet.Parked.Records != 1 || len(fleet.Findings) != 1 || !strings.Contains(fleet.Findings[0].What, "1 record was parked") {
			t.Errorf("%+v", fleet)
		}
	})
}

// A gap that is closed stands until the flush that it asked for has a result; where that is no good one, until another flush of the pool is.
func TestAClosedGapWhoseFlushIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		book, err := gap.OpenBook(r.c.Options, r.c.Names, "w-1")
		if err != nil {
			t.Fatal(err)
		}
		defer book.Close()
		c, err := book.Record(t.Context(), gap.Gap{ID: "shop/1", Source: "shop", Why: "rows were lost", Pools: []string{"feed", "user"}}, false)
		if err == nil {
			err = book.Settle(t.Context(), c, "ann", true)
		}
		if err != nil {
			t.Fatal(err)
		}
		f := r.reader()
		expect := func(state string, want ...string) {
			t.Helper()
			r.speak()
			fleet := r.look(f)
			var got []string
			for _, x := range fleet.Findings {
				got = append(got, x.String())
			}
			if d := gocmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if state == "" && len(fleet.Gaps) > 0 || state != "" && (len(fleet.Gaps) != 1 || fleet.Gaps[0].Flush != state) {
				t.Errorf("%+v, want one whose flush is %q", fleet.Gaps, state)
			}
		}
		const stands = "warning: gap shop/1: it is closed, and until the flush that it asked for is done what it lost may be stale: that is waiting (invalidator flush status shop/1/"
		expect("waiting", stands+"feed)")
		r.tell(r.c.Names.Status, replay.Result{ID: "shop/1/feed", At: time.Now(), Clean: true})
		expect("waiting", stands+"user)")
		r.tell(r.c.Names.Status, replay.Result{ID: "shop/1/user", At: time.Now(), Error: "no node can be dumped"})
		expect("failed", "error: flush shop/1/user: it failed: no node can be dumped, and what it was to delete may be stale: ask for it by hand (invalidator flush pool user) (invalidator flush status shop/1/user)")
		time.Sleep(time.Second)
		r.tell(r.c.Names.Control, replay.Request{ID: "f1", At: time.Now(), By: "ann", Action: replay.Flush, Target: replay.Target{Pool: "user"}})
		r.tell(r.c.Names.Status, replay.Result{ID: "f1", At: time.Now(), Clean: true})
		expect("")
	})
}

// Without topics of its own a fleet is shown as far as it goes.
func TestAFleetOfFewTopics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		r.speak()
		for _, topic := range []string{r.c.Names.Status, r.c.Names.DeadLetter} {
			if _, err := r.adm.DeleteTopics(t.Context(), topic); err != nil {
				t.Fatal(err)
			}
		}
		fleet := r.look(r.reader())
		if len(fleet.Processes) != 1 || len(fleet.Findings) != 1 || !strings.HasPrefix(fmt.Sprint(fleet.Findings[0]), "warning: dead letters: topic invalidator.deadletter does not exist") {
			t.Errorf("%+v", fleet)
		}
	})
}

// What our user may not read is left out, or less exact, and the rest is shown.
func TestAFleetThatMayNotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		r.change(0, 1)
		time.Sleep(95 * time.Second)
		r.speak()
		r.tell(r.c.Names.Control, replayOf(replay.Target{Shard: "s00"}, time.Now().UTC()))
		for _, topic := range []string{deskUsers, r.c.Names.Control} {
			r.c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: topic, Err: kerr.TopicAuthorizationFailed, Count: -1})
		}
		fleet := r.look(r.reader())
		if len(fleet.Processes) != 1 || len(fleet.Lags) != 2 || fleet.Lags[0].Age != 60 || len(fleet.Works) != 0 {
			t.Errorf("%+v", fleet)
		}
		if len(fleet.Findings) != 1 || !strings.HasPrefix(fleet.Findings[0].String(), "warning: replays and flushes: reading invalidator.control/0 from offset 0 to 1: ") || !strings.Contains(fleet.Findings[0].What, "TOPIC_AUTHORIZATION_FAILED") {
			t.Errorf("%v", fleet.Findings)
		}
	})
}
