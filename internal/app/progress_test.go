package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"invalidator/internal/changelog"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
)

// toldOf is what the topics say in a test: records of both, in their order.
func toldOf(t *testing.T, at time.Time, records ...any) *works {
	t.Helper()
	b := newWorks()
	for _, r := range records {
		value, isText := r.(string)
		if record, ok := r.(replay.Record); ok && !isText {
			encoded, err := replay.Encode(record)
			if err != nil {
				t.Fatal(err)
			}
			value = string(encoded)
		}
		rec := []changelog.Record{{Time: at, Value: []byte(value)}}
		into := b.status
		switch r.(type) {
		case replay.Request, replay.Plan, replay.Job, string:
			into = b.control
		}
		if err := into(rec); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// How it stands with a request follows from the records about it, in the order of the control topic.
func TestTheStateOfAWork(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	asked := replayOf(replay.Target{Shard: "s00"}, at)
	flushed := flushOf(replay.Target{Pool: "feed"}, replay.Options{})
	caused := flushed
	caused.Cause = &replay.Cause{What: replay.Promotion, Epoch: 8}
	expires := asked
	expires.Expires = at.Add(time.Minute)
	plan := replay.Plan{ID: "r1", At: at, Target: asked.Target, Window: asked.Window, From: asked.From, To: at, Ranges: []replay.PlanRange{{Topic: "t", From: 1, To: 9}}}
	no := replay.Plan{ID: "r1", At: at, Refused: "nobody knows it"}
	job := replay.Job{ID: "f0", At: at, Scope: replay.Target{Pool: "feed"}, Answers: []string{"f0", "f1"}, Epoch: 7, Parts: 4}
	word := func(action replay.Action, of string, force bool) replay.Request {
		return replay.Request{ID: string(action) + of, At: at, By: "bob", Action: action, Of: of, Force: force}
	}
	result := func(id, err string, clean bool) replay.Result {
		return replay.Result{ID: id, At: at, Error: err, Clean: clean}
	}
	for _, tc := range []struct {
		name    string
		records []any
		want    WorkState
		why     string
	}{
		{"asked for", []any{asked}, WorkWaiting, ""},
		{"planned", []any{asked, plan}, WorkRunning, ""},
		{"planned twice: the first counts", []any{asked, plan, no}, WorkRunning, ""},
		{"refused", []any{asked, no, plan}, WorkRefused, "nobody knows it"},
		{"done", []any{asked, plan, result("r1", "", true)}, WorkDone, ""},
		{"done, and cancelled later", []any{asked, plan, result("r1", "", true), word(replay.Cancel, "r1", false)}, WorkDone, ""},
		{"the first result counts", []any{asked, plan, result("r1", "", true), result("r1", "late", false)}, WorkDone, ""},
		{"something was lost", []any{asked, plan, result("r1", "", false)}, WorkIncomplete, ""},
		{"failed", []any{asked, plan, result("r1", "no ring", false)}, WorkFailed, "no ring"},
		{"cancelled before its plan, which counts for nothing", []any{asked, word(replay.Cancel, "r1", false), no}, WorkCancelled, ""},
		{"cancelled, and told so", []any{asked, plan, word(replay.Cancel, "r1", false), result("r1", "cancelled by bob", false)}, WorkCancelled, ""},
		{"expired", []any{expires}, WorkExpired, ""},
		{"begun in time", []any{expires, plan}, WorkRunning, ""},
		{"asked for twice: the first counts", []any{expires, asked}, WorkExpired, ""},
		{"a flush waits", []any{flushed}, WorkWaiting, ""},
		{"a job answers it", []any{flushed, job}, WorkRunning, ""},
		{"paused", []any{flushed, job, word(replay.Pause, "f1", false)}, WorkPaused, ""},
		{"and resumed", []any{flushed, job, word(replay.Pause, "f1", false), word(replay.Resume, "f1", false)}, WorkRunning, ""},
		{"a flush is refused", []any{flushed, result("f1", "no node can be dumped", false)}, WorkFailed, "no node can be dumped"},
		{"a worker's is not cancelled", []any{caused, word(replay.Cancel, "f1", false)}, WorkWaiting, ""},
		{"but by force", []any{caused, word(replay.Cancel, "f1", true)}, WorkCancelled, ""},
	} {
		id := "r1"
		if q := tc.records[0].(replay.Request); q.Action == replay.Flush {
			id = "f1"
		}
		w, err := toldOf(t, at, tc.records...).find(id, at.Add(time.Hour))
		if err != nil || w.State != tc.want || w.Why != tc.why {
			t.Errorf("%s: %s %q, %v", tc.name, w.State, w.Why, err)
		}
	}
}

// Progress of partitions is summed up, the last record of each counts, and how long the rest takes follows from the pace so far.
func TestTheProgressOfAReplay(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	asked := replayOf(replay.Target{Shard: "s00"}, at)
	plan := replay.Plan{ID: "r1", At: at, Target: asked.Target, Window: asked.Window, From: asked.From, To: at}
	progress := func(after time.Duration, partition int32, from, offset, to, keys int64, done bool) replay.Progress {
		return replay.Progress{ID: "r1", At: at.Add(after), Worker: "w", Range: replay.Range{Topic: "t", Partition: partition, From: from, To: to}, Offset: offset, Keys: keys, Copies: 2 * keys, Owed: 1, Done: done}
	}
	b := toldOf(t, at, asked, plan, progress(0, 1, 100, 100, 200, 0, false), progress(time.Second, 0, 0, 40, 100, 7, false), progress(2*time.Second, 1, 100, 110, 200, 5, false),
		progress(3*time.Second, 0, 0, 40, 100, 9, true))
	w, err := b.find("r1", at.Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	parts := w.Parts
	w.Parts = nil
	want := Work{ID: "r1", Kind: KindReplay, State: WorkRunning, Target: asked.Target, Window: asked.Window, From: asked.From, To: at, By: "ann@ops", At: at,
		Begun: at, Last: at.Add(3 * time.Second), Unit: UnitRecords, Done: 110, All: 200, Left: 2, Keys: 14, Copies: 28, Owed: 2}
	if d := gocmp.Diff(want, w); d != "" {
		t.Error(d)
	}
	if share, known := w.Share(); share != 0.55 || !known {
		t.Error(share, known)
	}
	if len(parts) != 2 || parts[0].Partition != 0 || !parts[0].Done || parts[1].Offset != 110 || parts[1].Done {
		t.Errorf("%+v", parts)
	}
	if err := b.status([]changelog.Record{{Value: []byte(`{"v":1,"kind":"result","id":"r1","at":"2026-11-30T10:00:09Z","worker":"w","clean":true,"keys":20,"copies":40}`)}}); err != nil {
		t.Fatal(err)
	}
	if w, _ := b.find("r1", at); w.State != WorkDone || w.Keys != 20 || w.Left != 0 || !w.Ended.Equal(at.Add(9*time.Second)) {
		t.Errorf("%+v", w)
	}
}

// A flush is as far as its job is: as its nodes are with their parts, in the round that was begun last. A node goes through its parts in order, and tells of none that is
// empty. The newest reason for which it waits is told.
func TestTheProgressOfAFlush(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	first, second := flushOf(replay.Target{Pool: "feed"}, replay.Options{}), flushOf(replay.Target{Pool: "feed"}, replay.Options{Pace: 500})
	first.ID, second.ID = "f0", "f1"
	job := replay.Job{ID: "f0", At: at, Scope: replay.Target{Pool: "feed"}, Answers: []string{"f0", "f1"}, Epoch: 7, Limit: 400000, Parts: 4}
	part := func(n, round int, node string, keys int64, waits string, done bool) replay.Progress {
		at = at.Add(time.Second)
		return replay.Progress{ID: "f0", At: at, Worker: "w", Part: &replay.Part{N: n, Of: 4}, Node: node, Round: round, Epoch: 7, Keys: keys, Copies: keys, Kept: 1, Waits: waits, Done: done}
	}
	b := toldOf(t, at, first, second, job, part(0, 1, "a:1", 10, "", true), part(2, 1, "a:1", 10, "", true), part(3, 1, "a:1", 5, "", true), part(1, 1, "b:1", 2, "", true),
		part(2, 1, "b:1", 1, "the load of 500000 is above 400000", false))
	b.nodes = func(j *replay.Job) int {
		if j.Scope.Pool != "feed" {
			return 0
		}
		return 3
	}
	w, err := b.find("f1", at)
	if err != nil || w.State != WorkRunning || w.Job != "f0" || w.Unit != UnitParts || w.Done != 6 || w.All != 12 || w.Round != 1 || w.Keys != 28 || w.Kept != 5 || w.Limit != 400000 || w.Pace != 500 ||
		w.Why != "the load of 500000 is above 400000" || len(w.Parts) != 5 {
		t.Errorf("%+v, %v", w, err)
	}
	if w.Parts[0].Part != "1/4" || w.Parts[0].Node != "a:1" || w.Parts[1].Part != "3/4" || w.Parts[4].Node != "b:1" || w.Parts[4].Waits != "the load of 500000 is above 400000" {
		t.Errorf("%+v", w.Parts)
	}
	value, err := replay.Encode(part(0, 2, "a:1", 0, "", true))
	if err == nil {
		err = b.status([]changelog.Record{{Value: value}})
	}
	if w, _ := b.find("f1", at); err != nil || w.Round != 2 || w.Done != 1 || w.All != 12 || w.Why != "" {
		t.Errorf("in the second round: %+v, %v", w, err)
	}
	b.nodes = nil
	if w, _ := b.find("f1", at); w.All != 4 {
		t.Errorf("where nobody knows how many nodes there are: %+v", w)
	}
	if err := b.status([]changelog.Record{{Value: []byte(`{"v":1,"kind":"result","id":"f0","at":"2026-11-30T10:00:09Z","worker":"w","clean":true,"keys":1,"copies":1}`)}}); err != nil {
		t.Fatal(err)
	}
	if w, _ := b.find("f0", at); w.State != WorkDone {
		t.Errorf("%s", w.State)
	}
	if w, _ := b.find("f1", at); w.State != WorkRunning {
		t.Errorf("a request ends with a result of its own, and is %s", w.State)
	}
}

// What a flush did before it was cancelled is told: its result knows nothing of it.
func TestACancelledFlushTellsWhatItDid(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	asked := flushOf(replay.Target{Pool: "feed"}, replay.Options{})
	asked.ID = "f0"
	b := toldOf(t, at, asked, replay.Job{ID: "f0", At: at, Scope: asked.Target, Answers: []string{"f0"}, Epoch: 7, Limit: 1, Parts: 4},
		replay.Progress{ID: "f0", At: at, Worker: "w", Part: &replay.Part{N: 0, Of: 4}, Node: "a:1", Round: 1, Epoch: 7, Keys: 10, Copies: 20, Done: true},
		replay.Request{ID: "c0", At: at, By: "bob", Action: replay.Cancel, Of: "f0"},
		replay.Result{ID: "f0", At: at, Worker: "w", Error: "cancelled by bob"})
	if w, err := b.find("f0", at); err != nil || w.State != WorkCancelled || w.Keys != 10 || w.Copies != 20 || w.CancelledBy != "bob" {
		t.Errorf("%+v, %v", w, err)
	}
}

// A promotion's flush goes to the nodes that its shard has since then.
func TestFlushNodes(t *testing.T) {
	record := func(epoch int64, primary string, replicas ...string) *sink.Record {
		r := &sink.Record{Epoch: epoch, Kind: sink.KindPoints160, Shards: []sink.Shard{{ID: "s0", Weight: 1, Primary: sink.Node{Addr: primary}}, {ID: "s1", Weight: 1, Primary: sink.Node{Addr: "z:1"}}}}
		for _, addr := range replicas {
			r.Shards[0].Replicas = append(r.Shards[0].Replicas, sink.Replica{Addr: addr})
		}
		return r
	}
	records := []*sink.Record{record(6, "a:1", "b:1"), record(7, "b:1", "c:1"), record(8, "b:1", "d:1")}
	topology, err := sink.NewTopology(records[2], records[:2]...)
	if err != nil {
		t.Fatal(err)
	}
	view := &registry.View{Topology: topology}
	for _, r := range records {
		view.Sights = append(view.Sights, registry.Sight{Record: r})
	}
	nodes := flushNodes(view)
	for _, tc := range []struct {
		target replay.Target
		epoch  int64
		want   int
	}{
		{replay.Target{Pool: "feed", Shard: "s0"}, 8, 2}, {replay.Target{Pool: "feed", Shard: "s0"}, 7, 3}, {replay.Target{Pool: "feed", Shard: "s0"}, 6, 4},
		{replay.Target{Pool: "feed"}, 8, 5}, {replay.Target{Node: "a:1"}, 8, 1}, {replay.Target{Gained: 7}, 8, 0},
	} {
		if got := nodes(&replay.Job{Scope: tc.target, Epoch: tc.epoch}); got != tc.want {
			t.Errorf("%+v since epoch %d: %d nodes, want %d", tc.target, tc.epoch, got, tc.want)
		}
	}
}

// What a ring record makes done again has no request, and is there all the same; records that this version cannot read are counted.
func TestWorksWithoutARequest(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	of := func(partition int32, offset int64, done bool) replay.Progress {
		return replay.Progress{ID: "epoch/7-8", At: at, Worker: "w", Range: replay.Range{Topic: "t", Partition: partition, To: 10}, Offset: offset, Shards: []string{"s01", "s00"}, Done: done}
	}
	job := replay.Progress{ID: "lost", At: at, Part: &replay.Part{N: 0, Of: 1}, Node: "a:1"}
	b := toldOf(t, at, of(0, 5, false), of(1, 10, true), job, `{"v":2,"kind":"request"}`, replay.Event{What: "ring.epoch"})
	all := b.list(at)
	if len(all) != 1 || all[0].ID != "epoch/7-8" || all[0].Kind != KindEpoch || all[0].State != WorkRunning || all[0].Done != 15 || all[0].All != 20 || fmt.Sprint(all[0].Shards) != "[s00 s01]" || b.unread != 1 {
		t.Errorf("%+v, %d unread", all, b.unread)
	}
	b = toldOf(t, at, of(0, 10, true), of(1, 10, true))
	if all := b.list(at); all[0].State != WorkDone {
		t.Errorf("%+v", all)
	}
	if _, err := b.find("lost", at); err == nil || !strings.Contains(err.Error(), `nothing has the id "lost"`) {
		t.Error(err)
	}
	if _, err := newWorks().find("x", at); err == nil || !strings.Contains(err.Error(), "nobody has asked for anything") {
		t.Error(err)
	}
}

// The form that scripts read.
func TestWorkAsJSON(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	asked := replayOf(replay.Target{Shard: "s00"}, at)
	asked.Reason = "the primary died"
	w, err := toldOf(t, at, asked, replay.Plan{ID: "r1", At: at, Target: asked.Target, Window: asked.Window, From: asked.From, To: at},
		replay.Progress{ID: "r1", At: at.Add(2 * time.Second), Worker: "w", Range: replay.Range{Topic: "t", To: 100}, Offset: 25, Keys: 3, Copies: 6}).find("r1", at)
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(w)
	want := `{"id":"r1","kind":"replay","state":"running","target":{"shard":"s00"},"window":"issued","from":"2026-11-30T09:59:30Z","to":"2026-11-30T10:00:00Z","by":"ann@ops","reason":"the primary died",` +
		`"at":"2026-11-30T10:00:00Z","begun":"2026-11-30T10:00:02Z","last":"2026-11-30T10:00:02Z","unit":"records","done":25,"all":100,"keys":3,"copies":6,` +
		`"parts":[{"topic":"t","to":100,"offset":25,"keys":3,"copies":6,"done":false,"worker":"w","at":"2026-11-30T10:00:02Z"}]}`
	if d := gocmp.Diff(want, string(got)); err != nil || d != "" {
		t.Error(err, d)
	}
}

// Whoever waits is told each time that something is another, until the end; an interrupt ends the waiting alone.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		asked := replayOf(replay.Target{Shard: "s00"}, time.Now().UTC())
		r.tell(r.c.Names.Control, asked)
		if _, err := r.Follow(context.Background(), "r2", nil, nil); err == nil || !strings.Contains(err.Error(), `did you mean "r1"?`) {
			t.Error(err)
		}
		follow := func(ctx context.Context) (seen []string, last Work, err error) {
			last, err = r.Follow(ctx, "r1", func(w Work) {
				seen = append(seen, fmt.Sprintf("%s %d/%d", w.State, w.Done, w.All))
			}, func(err error) { t.Error(err) })
			return seen, last, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		seen, w, err := follow(ctx)
		cancel()
		if d := gocmp.Diff([]string{"waiting 0/0"}, seen); !errors.Is(err, context.DeadlineExceeded) || w.State != WorkWaiting || d != "" {
			t.Error(err, w.State, d)
		}
		stop := inBackground(t.Context(), func(context.Context) {
			time.Sleep(1500 * time.Millisecond)
			r.tell(r.c.Names.Control, replay.Plan{ID: "r1", At: time.Now(), Target: asked.Target, Window: asked.Window, From: asked.From, To: asked.At})
			for offset := int64(0); offset <= 50; offset += 25 {
				r.tell(r.c.Names.Status, replay.Progress{ID: "r1", At: time.Now(), Worker: "w", Range: replay.Range{Topic: "t", To: 50}, Offset: offset})
				time.Sleep(2 * time.Second)
			}
			r.tell(r.c.Names.Status, replay.Result{ID: "r1", At: time.Now(), Error: "no ring"})
		})
		seen, w, err = follow(context.Background())
		stop()
		if d := gocmp.Diff([]string{"waiting 0/0", "running 0/50", "running 25/50", "running 50/50", "failed 50/50"}, seen); err != nil || w.State != WorkFailed || w.Why != "no ring" || d != "" {
			t.Error(err, w.State, w.Why, d)
		}
	})
}

// What was over before the time from which on a list tells is no part of it, though the request and its job stand on the control topic for a month.
func TestWorksThatEndedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		for _, id := range []string{"done", "refused", "runs"} {
			r.tell(r.c.Names.Control, replay.Request{ID: id, At: time.Now(), By: "ann", Action: replay.Flush, Target: replay.Target{Pool: "feed"}})
		}
		r.tell(r.c.Names.Control, replay.Job{ID: "done", At: time.Now(), Scope: replay.Target{Pool: "feed"}, Answers: []string{"done"}, Epoch: 1, Parts: 1})
		r.tell(r.c.Names.Control, replay.Job{ID: "runs", At: time.Now(), Scope: replay.Target{Pool: "feed"}, Answers: []string{"runs"}, Epoch: 1, Parts: 1})
		r.tell(r.c.Names.Status, replay.Result{ID: "done", At: time.Now(), Clean: true})
		r.tell(r.c.Names.Status, replay.Result{ID: "refused", At: time.Now(), Error: "there is no such node"})
		time.Sleep(2 * time.Hour)
		all, _, err := r.Works(t.Context(), time.Now().Add(-time.Hour), time.Now())
		if err != nil || len(all) != 1 || all[0].ID != "runs" || all[0].State != WorkRunning {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// A list has what was heard of lately, and what is not over.
func TestWorksSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		for _, id := range []string{"old", "waits"} {
			q := replayOf(replay.Target{Shard: "s00"}, time.Now().UTC())
			q.ID = id
			r.tell(r.c.Names.Control, q)
		}
		r.tell(r.c.Names.Control, replay.Plan{ID: "old", At: time.Now(), Refused: "no"})
		time.Sleep(time.Hour)
		q := replayOf(replay.Target{Shard: "s00"}, time.Now().UTC())
		q.ID = "new"
		r.tell(r.c.Names.Control, q)
		time.Sleep(time.Second)
		r.tell(r.c.Names.Status, replay.Progress{ID: "epoch/7-8", At: time.Now(), Worker: "w", Range: replay.Range{Topic: "t", To: 9}, Offset: 9, Done: true})
		ids := func(back time.Duration) (out []string) {
			all, unread, err := r.Works(t.Context(), time.Now().Add(-back), time.Now())
			if err != nil || unread != 0 {
				t.Fatal(err, unread)
			}
			for _, w := range all {
				out = append(out, w.ID)
			}
			return out
		}
		if d := gocmp.Diff([]string{"waits", "new", "epoch/7-8"}, ids(time.Minute)); d != "" {
			t.Error(d)
		}
		if d := gocmp.Diff([]string{"old", "waits", "new", "epoch/7-8"}, ids(2*time.Hour)); d != "" {
			t.Error(d)
		}
	})
}
