package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/config"
	"invalidator/replay"
)

// deskRig is a fleet that has written down two mapping files and a ring record, with a change topic that its group has committed in, and that keeps two hours.
type deskRig struct {
	*Desk
	t     *testing.T
	c     *changelogtest.Cluster
	state *changelog.StateStore
	cl    *kgo.Client
	adm   *kadm.Client
}

const deskUsers = "shop.shop.users"

const deskProfiles = `version: 1
team: profiles
pools: [user, profile]
underivable: [feed]
readers: meta
mappings:
  - {name: user, table: shop.users, keys: ['user:{id}']}
  - {name: profile, table: shop.users, keys: ['profile:{id}']}
`

const deskItems = `version: 1
team: items
pools: [item]
mappings:
  - {name: item, table: shop.items, keys: ['item:{id}']}
  - {name: profile, table: shop.items, keys: ['item:{id}:p']}
`

const deskRing = `{"epoch":7,"shards":[
	{"id":"s00","primary":{"addr":"10.0.1.5:11211"},"replicas":[{"addr":"10.0.2.9:11211"}]},
	{"id":"s01","primary":{"addr":"10.0.1.6:11211"}},
	{"id":"s02","weight":2,"primary":{"addr":"10.0.1.7:11211"}}]}`

func newDeskRig(t *testing.T) *deskRig {
	t.Helper()
	r := &deskRig{t: t, c: changelogtest.Start(t)}
	cfg := &config.Config{Kafka: config.Kafka{Group: "fleet"}, Cache: config.Cache{MaxTTL: 24 * time.Hour}}
	cfg.Sources = []config.Source{{Name: "shop", Type: "mysql", TopicPrefix: "shop"}}
	var err error
	if r.Desk, err = openDesk(t.Context(), r.c.Options, cfg, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Desk.Close)
	if r.state, err = changelog.OpenState(r.c.Options, r.c.Names.State); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.state.Close)
	if r.cl, err = r.c.Options.Client(kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.cl.Close)
	r.adm = r.c.Admin(t)
	for name, text := range map[string]string{"profiles.yaml": deskProfiles, "items.yaml": deskItems} {
		err := r.state.PutMapping(t.Context(), "fleet", changelog.MappingFile{Name: name, Text: text, Since: time.Now()}, changelog.SavedMapping{})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.state.PutRing(t.Context(), "fleet", changelog.SavedRing{Epoch: 7, Seen: time.Now(), Record: json.RawMessage(deskRing)}); err != nil {
		t.Fatal(err)
	}
	if _, err := changelog.EnsureTopics(t.Context(), r.adm, []changelog.TopicSpec{changelog.Settings{Partitions: 2, MaxTTL: time.Hour}.Change(deskUsers)}); err != nil {
		t.Fatal(err)
	}
	r.commit(0, 0)
	r.commit(1, 0)
	return r
}

// speak has a worker say that it runs.
func (r *deskRig) speak() {
	r.t.Helper()
	b, err := json.Marshal(member{role: roleWorker, group: "fleet", fingerprint: "aa"}.record(time.Now()))
	if err == nil {
		err = r.state.Put(r.t.Context(), "process/w-1", b)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *deskRig) commit(partition int32, at int64) {
	r.t.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: deskUsers, Partition: partition, At: at, LeaderEpoch: -1})
	if err := r.adm.CommitAllOffsets(r.t.Context(), "fleet", offsets); err != nil {
		r.t.Fatal(err)
	}
}

// change appends so many records.
func (r *deskRig) change(partition int32, n int) {
	r.t.Helper()
	for range n {
		r.put(partition, []byte("{}"))
	}
}

func (r *deskRig) put(partition int32, value []byte) { r.putTo(deskUsers, partition, value) }

func (r *deskRig) putTo(topic string, partition int32, value []byte) {
	r.t.Helper()
	err := r.cl.ProduceSync(r.t.Context(), &kgo.Record{Topic: topic, Partition: partition, Value: value}).FirstErr()
	if err != nil {
		r.t.Fatal(err)
	}
}

// expire takes the records below an offset out of the log.
func (r *deskRig) expire(partition int32, below int64) {
	r.t.Helper()
	if _, err := r.adm.DeleteRecords(r.t.Context(), kadm.Offsets{deskUsers: {partition: {Topic: deskUsers, Partition: partition, At: below}}}); err != nil {
		r.t.Fatal(err)
	}
}

// tell writes a record to the control or the status topic.
func (r *deskRig) tell(topic string, record replay.Record) {
	r.t.Helper()
	value, err := replay.Encode(record)
	if err == nil {
		err = r.out.Write(r.t.Context(), topic, "k", value)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *deskRig) controls() (records []replay.Record) {
	r.t.Helper()
	for _, rec := range r.c.Records(r.t, r.c.Names.Control) {
		x, err := replay.DecodeControl(rec.Value)
		if err != nil {
			r.t.Fatal(err)
		}
		records = append(records, x)
	}
	return records
}

// replayOf is a replay of what was issued in the last half minute.
func replayOf(target replay.Target, now time.Time) replay.Request {
	return replay.Request{ID: "r1", At: now, By: "ann@ops", Action: replay.Replay, Target: target, Window: replay.Issued, From: now.Add(-30 * time.Second)}
}

func flushOf(target replay.Target, o replay.Options) replay.Request {
	return replay.Request{ID: "f1", At: time.Now(), By: "ann@ops", Action: replay.Flush, Target: target, Options: o}
}

// What cannot be meant is refused, with the nearest name or what mends it, and nothing is written.
func TestABadRequestIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(48 * time.Hour) // there is a yesterday
		r := newDeskRig(t)
		now := time.Now()
		with := func(change func(*replay.Request)) replay.Request {
			q := replayOf(replay.Target{Pool: "user"}, now)
			change(&q)
			return q
		}
		for _, tc := range []struct {
			name    string
			request replay.Request
			want    string
		}{
			{"an unknown shard", replayOf(replay.Target{Shard: "s0"}, now), `there is no shard s0 (did you mean "s00"?)`},
			{"a shard like none", replayOf(replay.Target{Shard: "primary"}, now), "there is no shard primary (there are: s00, s01, s02)"},
			{"an unknown node", replayOf(replay.Target{Node: "10.0.1.5:11212"}, now), `there is no node 10.0.1.5:11212 (did you mean "10.0.1.5:11211"?)`},
			{"an unknown pool", replayOf(replay.Target{Pool: "usr"}, now), `there is no pool usr (did you mean "user"?)`},
			{"an unknown mapping of a team", replayOf(replay.Target{Mapping: "profiles/usr"}, now), `there is no mapping profiles/usr (did you mean "profiles/user"?)`},
			{"an unknown mapping", replayOf(replay.Target{Mapping: "usr"}, now), `there is no mapping usr (did you mean "profiles/user"?)`},
			{"a mapping of two teams", replayOf(replay.Target{Mapping: "profile"}, now), `the mapping "profile" is of several teams: items/profile, profiles/profile`},
			{"all of the ring", replayOf(replay.Target{Range: &replay.HashRange{From: 5, To: 5}}, now), "the range from 5 to 5 is all of the ring"},
			{"an unknown pool to flush", flushOf(replay.Target{Pool: "feeds"}, replay.Options{}), `there is no pool feeds (did you mean "feed"?)`},
			{"an unknown shard of a pool", flushOf(replay.Target{Pool: "feed", Shard: "s03"}, replay.Options{}), `there is no shard s03 (did you mean "s00"?)`},
			{"a limit that cannot be read", flushOf(replay.Target{Pool: "feed"}, replay.Options{MaxLoad: "sum(rate(reads[1m]))<lots"}), `--max-load: the limit "sum(rate(reads[1m]))<lots" does not end in a number above 0`},
			{"a limit of nothing", flushOf(replay.Target{Pool: "feed"}, replay.Options{MaxLoad: "<5"}), `--max-load: the limit "<5" says nothing before the <`},
			{"stale for classic readers", flushOf(replay.Target{Pool: "item"}, replay.Options{Stale: true}), "--stale: the readers of pool item do not speak meta"},
			{"stale on a node of classic readers too", flushOf(replay.Target{Node: "10.0.1.5:11211"}, replay.Options{Stale: true}), "--stale: the readers of pool item do not speak meta"},
			{"a window that begins in the future", with(func(q *replay.Request) { q.From = now.Add(time.Second) }), "the window begins in the future"},
			{"a window that ends in the future", with(func(q *replay.Request) { q.Window, q.To = replay.Committed, now.Add(time.Minute) }), "the window ends in the future: at 2000-01-03T00:01:00Z, and now is 2000-01-03T00:00:00Z (leave --to out"},
			{"a window the wrong way round", with(func(q *replay.Request) { q.Window, q.To = replay.Committed, q.From.Add(-time.Second) }), "the window is the wrong way round: it begins at 2000-01-02T23:59:30Z and ends at 2000-01-02T23:59:29Z"},
			{"no window", with(func(q *replay.Request) { q.From = time.Time{} }), "a replay needs a window"},
			{"expired already", with(func(q *replay.Request) { q.Expires = now.Add(-time.Second) }), "it would have expired already"},
			{"a bad id", with(func(q *replay.Request) { q.ID = "promotion/8/s00" }), `the id "promotion/8/s00" is none`},
		} {
			_, err := r.Draft(t.Context(), tc.request, now)
			if refused := (*RefusedRequest)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %s", tc.name, err, tc.want)
			}
		}
		if got := r.controls(); len(got) != 0 {
			t.Errorf("written: %v", got)
		}
	})
}

// Before any worker ran nothing is known, and that is said.
func TestNothingIsKnownYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := changelogtest.Start(t)
		d, err := openDesk(t.Context(), c.Options, &config.Config{Kafka: config.Kafka{Group: "fleet"}}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		now := time.Now()
		for _, target := range []replay.Target{{Shard: "s00"}, {Node: "a:1"}, {Pool: "user"}, {Mapping: "user"}, {Mapping: "t/user"}} {
			_, err := d.Draft(t.Context(), replayOf(target, now), now)
			if err == nil || !strings.HasSuffix(err.Error(), "(none is known): no worker has written down a ring record, or a mapping file (start one; is kafka.group right?)") {
				t.Errorf("%s: %v", target, err)
			}
		}
		if _, err := d.Draft(t.Context(), replayOf(replay.Target{Range: &replay.HashRange{To: 5}}, now), now); err != nil {
			t.Errorf("a range is one of every ring: %v", err)
		}
	})
}

// A draft says about how many records lie in the window and give a key that is meant: by the target's part of the ring, and with what was behind when the window began.
func TestDraft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		r.change(0, 6) // old, and finished but for two
		r.commit(0, 4)
		time.Sleep(time.Minute)
		r.change(0, 10)
		r.change(1, 20)
		time.Sleep(time.Second)
		now := time.Now()
		committed := func(target replay.Target) replay.Request {
			q := replayOf(target, now)
			q.Window, q.To = replay.Committed, now
			return q
		}
		for _, tc := range []struct {
			request       replay.Request
			records, keys int64
		}{
			{replayOf(replay.Target{Pool: "user"}, now), 32, 32},
			{replayOf(replay.Target{Shard: "s00"}, now), 32, 8},
			{replayOf(replay.Target{Shard: "s02"}, now), 32, 16},
			{replayOf(replay.Target{Node: "10.0.2.9:11211"}, now), 32, 8},
			{replayOf(replay.Target{Range: &replay.HashRange{From: 1 << 62, To: -1 << 62}}, now), 32, 16},
			{committed(replay.Target{Mapping: "user"}), 30, 30},
		} {
			got, err := r.Draft(t.Context(), tc.request, now)
			if err != nil || got.Records != tc.records || got.Keys != tc.keys || got.Workers != 0 {
				t.Errorf("%s: %+v, %v", tc.request.Target, got, err)
			}
		}
		r.speak()
		got, err := r.Draft(t.Context(), replayOf(replay.Target{Mapping: "user"}, now), now)
		if err != nil || got.Request.Target.Mapping != "profiles/user" || got.Workers != 1 || got.Hint != "" {
			t.Errorf("%+v, %v", got, err)
		}
		got, err = r.Draft(t.Context(), replayOf(replay.Target{Shard: "s00"}, now), now)
		if err != nil || got.Hint != "no row gives the keys of feed: after a promotion also flush what the shard has of them (invalidator flush pool feed --shard s00)" {
			t.Errorf("%+v, %v", got, err)
		}
		if got, err := r.Draft(t.Context(), flushOf(replay.Target{Pool: "feed", Shard: "s01"}, replay.Options{Stale: true, MaxLoad: "400000"}), now); err != nil || got.Records != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// A window that the log has lost a part of is refused, with what there is and what to flush. What only looks lost is not.
func TestAWindowThatTheLogHasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(48 * time.Hour)
		r := newDeskRig(t)
		r.change(0, 5)
		draft := func(back time.Duration, committed bool, target replay.Target) error {
			q := replayOf(target, time.Now())
			q.From = q.At.Add(-back)
			if committed {
				q.Window = replay.Committed
			}
			_, err := r.Draft(t.Context(), q, q.At)
			return err
		}
		pool := replay.Target{Pool: "user"}
		if err := draft(40*time.Hour, false, pool); err != nil {
			t.Errorf("nothing is lost yet: %v", err)
		}
		time.Sleep(3 * time.Hour)
		r.expire(0, 5)
		r.change(0, 5)
		time.Sleep(10 * time.Minute) // it is 2000-01-03T03:10
		// The first record is ten minutes old, and the topic keeps two hours: what is gone is older than that.
		if err := draft(time.Hour, false, pool); err != nil {
			t.Errorf("what retention took is older: %v", err)
		}
		for _, tc := range []struct {
			committed bool
			target    replay.Target
			want      string
		}{
			{false, pool, "the log has lost a part of this window, which begins at 2000-01-03T00:40:00Z: shop.shop.users reaches back to 2000-01-03T01:10:15Z; " +
				"all of them reach --since 1h59m44s. For the rest: invalidator flush pool user"},
			{true, pool, "all of them reach --from 2000-01-03T01:10:16Z. For the rest: invalidator flush pool user"},
			{false, replay.Target{Mapping: "items/profile"}, "For the rest: invalidator flush pool item"},
			{false, replay.Target{Node: "10.0.1.6:11211"}, "For the rest: invalidator flush node 10.0.1.6:11211"},
			{false, replay.Target{Shard: "s00"}, "For the rest: invalidator flush node 10.0.1.5:11211; invalidator flush node 10.0.2.9:11211"},
			{false, replay.Target{Range: &replay.HashRange{To: 9}}, "For the rest: invalidator flush pool feed; invalidator flush pool item; invalidator flush pool profile; invalidator flush pool user"},
		} {
			if err := draft(150*time.Minute, tc.committed, tc.target); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %s", tc.target, err, tc.want)
			}
		}
		q := replayOf(pool, time.Now())
		q.Window, q.From, q.To = replay.Committed, q.At.Add(-4*time.Hour), q.At.Add(-150*time.Minute)
		if _, err := r.Draft(t.Context(), q, q.At); err == nil || !strings.Contains(err.Error(), "nothing of it can be replayed") {
			t.Errorf("a window that is gone whole: %v", err)
		}
	})
}

func TestWholeSince(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	at := func(ago time.Duration) int64 { return now.Add(-ago).UnixMilli() }
	for _, tc := range []struct {
		name   string
		start  int64
		oldest int64
		keep   time.Duration
		want   time.Duration // ago; 0: always
	}{
		{"nothing is lost", 0, at(time.Hour), time.Minute, 0},
		{"nothing was ever there", 0, -1, time.Minute, 0},
		{"up to its first record", 5, at(time.Hour), 0, time.Hour},
		{"retention took what is older than it keeps", 5, at(time.Hour), 3 * time.Hour, 3 * time.Hour},
		{"a segment is kept for longer", 5, at(5 * time.Hour), 3 * time.Hour, 5 * time.Hour},
		{"empty", 5, -1, 3 * time.Hour, 3 * time.Hour},
		{"empty, and nobody knows why", 5, -1, 0, 0},
	} {
		got := wholeSince(tc.start, tc.oldest, tc.keep, now)
		if tc.want == 0 != got.IsZero() || tc.want != 0 && !got.Equal(now.Add(-tc.want).Add(clocksDiffer)) {
			t.Errorf("%s: %s", tc.name, got)
		}
	}
}

// The same request again is one; another with its id is refused.
func TestARequestIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		ctx := context.Background()
		now := time.Now()
		q := replayOf(replay.Target{Shard: "s00"}, now)
		if again, err := r.Ask(ctx, q); again || err != nil {
			t.Fatal(again, err)
		}
		time.Sleep(time.Minute)
		later := replayOf(replay.Target{Shard: "s00"}, time.Now()) // the same --since
		later.Reason, later.By = "once more", "bob@ops"
		if again, err := r.Ask(ctx, later); !again || err != nil {
			t.Errorf("the same again: %t, %v", again, err)
		}
		for name, change := range map[string]func(*replay.Request){
			"another target (shard s00)":                                      func(q *replay.Request) { q.Target = replay.Target{Shard: "s01"} },
			"another window (from " + q.From.UTC().Format(time.RFC3339) + ")": func(q *replay.Request) { q.From = q.From.Add(-time.Hour) },
			"another way of doing it":                                         func(q *replay.Request) { q.DryRun = true },
			"another thing (replay)":                                          func(q *replay.Request) { *q = flushOf(replay.Target{Pool: "feed"}, replay.Options{}); q.ID = "r1" },
		} {
			other := later
			change(&other)
			_, err := r.Ask(ctx, other)
			if refused := (*RefusedRequest)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), "the id r1 is taken: ann@ops asked with it for "+name) {
				t.Errorf("%s: %v", name, err)
			}
		}
		got := r.controls()
		if len(got) != 1 {
			t.Fatalf("written: %v", got)
		}
		q.At, q.From = q.At.UTC(), q.From.UTC()
		if d := gocmp.Diff(replay.Record(q), got[0]); d != "" {
			t.Error(d)
		}
	})
}

// A cancel, a pause and a resume are written where they make sense, and refused where they do not.
func TestWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newDeskRig(t)
		control, status := r.c.Names.Control, r.c.Names.Status
		now := time.Now().UTC()
		ask := func(q replay.Request, id string) {
			q.ID = id
			r.tell(control, q)
		}
		ask(replayOf(replay.Target{Shard: "s00"}, now), "replay-1")
		ask(flushOf(replay.Target{Pool: "feed"}, replay.Options{}), "flush-1")
		caused := flushOf(replay.Target{Pool: "feed"}, replay.Options{})
		caused.Cause = &replay.Cause{What: replay.Promotion, Epoch: 8}
		ask(caused, "promotion/8/s00/feed")
		ask(replayOf(replay.Target{Shard: "s01"}, now), "over")
		r.tell(status, replay.Result{ID: "over", At: now, Clean: true})
		r.tell(status, replay.Progress{ID: "epoch/7-8", At: now, Worker: "w", Range: replay.Range{Topic: deskUsers, To: 9}})
		say := func(action replay.Action, of, kind string, force bool) (Work, error) {
			return r.Say(context.Background(), Word{Action: action, Of: of, By: "bob@ops", Reason: "enough", Force: force}, kind, time.Now())
		}
		for _, tc := range []struct {
			action   replay.Action
			of, kind string
			want     string
		}{
			{replay.Cancel, "replay-2", KindReplay, `nothing has the id "replay-2": did you mean "replay-1"?`},
			{replay.Cancel, "re", KindReplay, `nothing has the id "re": did you mean replay-1?`},
			{replay.Cancel, "something else", KindReplay, `nothing has the id "something else" (invalidator replay list, invalidator flush list)`},
			{replay.Cancel, "flush-1", KindReplay, "flush-1 is a flush (invalidator flush cancel flush-1)"},
			{replay.Cancel, "over", KindReplay, "over is over: done"},
			{replay.Cancel, "epoch/7-8", KindReplay, "epoch/7-8 is what a ring record makes done again"},
			{replay.Cancel, "promotion/8/s00/feed", KindFlush, "was asked for by a worker"},
			{replay.Resume, "flush-1", KindFlush, "flush-1 is not paused"},
		} {
			_, err := say(tc.action, tc.of, tc.kind, false)
			if refused := (*RefusedRequest)(nil); !errors.As(err, &refused) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s %s: %v, want %s", tc.action, tc.of, err, tc.want)
			}
		}
		before := len(r.controls())
		for _, tc := range []struct {
			action replay.Action
			of     string
			force  bool
			want   WorkState
		}{
			{replay.Pause, "flush-1", false, WorkPaused},
			{replay.Resume, "flush-1", false, WorkWaiting},
			{replay.Cancel, "flush-1", false, WorkCancelled},
			{replay.Cancel, "promotion/8/s00/feed", true, WorkCancelled},
		} {
			if w, err := say(tc.action, tc.of, KindFlush, tc.force); err != nil || w.State != tc.want {
				t.Errorf("%s %s: %s, %v", tc.action, tc.of, w.State, err)
			}
		}
		if _, err := say(replay.Pause, "flush-1", KindFlush, false); err == nil || !strings.Contains(err.Error(), "is over: cancelled") {
			t.Errorf("a pause of what is cancelled: %v", err)
		}
		if w, err := say(replay.Cancel, "replay-1", KindReplay, false); err != nil || w.State != WorkCancelled || w.CancelledBy != "bob@ops" {
			t.Errorf("%+v, %v", w, err)
		}
		for _, x := range r.controls()[before:] {
			q := x.(replay.Request)
			if !strings.HasPrefix(q.ID, string(q.Action)+"-") || q.By != "bob@ops" || q.Reason != "enough" || q.Of == "" {
				t.Errorf("written: %+v", q)
			}
		}
	})
}

func TestNewRequestID(t *testing.T) {
	for target, want := range map[string]string{"shard s00": "replay-shard-s00-", "node 10.0.1.5:11211": "replay-node-10.0.1.5-11211-", "pool ü/x": "replay-pool---x-", strings.Repeat("x", 200): "replay-xxxx"} {
		a, b := NewRequestID("replay", target), NewRequestID("replay", target)
		if !strings.HasPrefix(a, want) || a == b || checkRequestID(a) != nil {
			t.Errorf("%s: %s and %s", target, a, b)
		}
	}
}

// A broker that is away is an error that says so, and no refusal.
func TestADeskWithoutABroker(t *testing.T) {
	cfg := &config.Config{Kafka: config.Kafka{Brokers: []string{"127.0.0.1:1"}, Group: "fleet"}}
	_, err := OpenDesk(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if refused := (*RefusedRequest)(nil); err == nil || errors.As(err, &refused) || !strings.Contains(err.Error(), "kafka.brokers") {
		t.Error(err)
	}
	if _, err := OpenDesk(t.Context(), &config.Config{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(fmt.Sprint(err), "no broker is named") {
		t.Error(err)
	}
}
