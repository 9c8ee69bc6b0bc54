package app

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/config"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink"
)

// traceLog is change topics that no worker reads, and what the state topic has of a fleet.
type traceLog struct {
	t     *testing.T
	c     *changelogtest.Cluster
	conf  *config.Config
	cl    *kgo.Client
	state *changelog.StateStore
}

func newTraceLog(t *testing.T, mappings, sources string, topics ...string) *traceLog {
	t.Helper()
	l := &traceLog{t: t, c: changelogtest.Start(t)}
	l.conf = parse(t, t.TempDir(), "kafka: {brokers: ['virtual:1'], group: fleet}\n"+sources)
	var err error
	if l.cl, err = l.c.Options.Client(kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.cl.Close)
	if len(topics) > 0 {
		if _, err := l.c.Admin(t).CreateTopics(t.Context(), 2, 1, nil, topics...); err != nil {
			t.Fatal(err)
		}
	}
	if l.state, err = changelog.OpenState(l.c.Options, l.c.Names.State); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.state.Close)
	f, problems := mapping.Parse("m.yaml", []byte(mappings))
	if f == nil {
		t.Fatal(problems)
	}
	set, _ := mapping.NewSet([]*mapping.File{f})
	if err := newArchive("fleet", time.Hour, l.state, quiet).keep(t.Context(), set, nil); err != nil {
		t.Fatal(err)
	}
	return l
}

const ourSource = "sources: [{name: shop, type: mysql, hosts: ['m:1'], user: x, include: ['shop.*']}]\n"

func (l *traceLog) ring(epoch int64, shards string) {
	l.t.Helper()
	record := fmt.Sprintf(`{"epoch":%d,"shards":%s}`, epoch, shards)
	if err := l.state.PutRing(l.t.Context(), "fleet", changelog.SavedRing{Epoch: epoch, Seen: time.Now(), By: "w", Record: json.RawMessage(record)}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *traceLog) write(rs ...*kgo.Record) {
	l.t.Helper()
	if err := l.cl.ProduceSync(l.t.Context(), rs...).FirstErr(); err != nil {
		l.t.Fatal(err)
	}
}

// row is an update of a row of a table of schema shop.
func row(topic string, partition int32, table string, id int) *kgo.Record {
	return &kgo.Record{Topic: topic, Partition: partition, Timestamp: time.Now(), Value: []byte(fmt.Sprintf(
		`{"before":{"id":%d},"after":{"id":%d},"op":"u","source":{"connector":"mysql","name":"shop","db":"shop","table":%q,"ts_ms":%d}}`, id, id, table, time.Now().UnixMilli()))}
}

func (l *traceLog) query(ctx context.Context, q TraceQuery) (*Trace, error) {
	if q.Since.IsZero() {
		q.Since = time.Now().Add(-time.Hour)
	}
	return newTracer(l.conf, l.c.Options, q, time.Now()).run(ctx)
}

func (l *traceLog) trace(key string) *Trace {
	l.t.Helper()
	tr, err := l.query(l.t.Context(), TraceQuery{Key: key})
	if err != nil {
		l.t.Fatal(err)
	}
	return tr
}

// tells wants a part among what cannot be known.
func (l *traceLog) tells(tr *Trace, part string) {
	l.t.Helper()
	if !slices.ContainsFunc(tr.Unknown, func(s string) bool { return strings.Contains(s, part) }) {
		l.t.Errorf("not known is %q, want %q in it", tr.Unknown, part)
	}
}

const ordersToo = "version: 1\nteam: profiles\npools: [user, order]\nunderivable: [feed]\nmappings:\n  - {name: user, table: shop.users, keys: ['user:{id}']}\n" +
	"  - {name: order, table: shop.orders, keys: ['order:{id}', {key: 'order:new:{id}', shadow: true}]}\n"

// Only topics that may hold rows of the pool are read: by its name a topic of ours says that it holds none.
func TestTraceReadsWhatMayHoldThePool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTraceLog(t, ordersToo, ourSource, "shop.shop.users", "shop.shop.orders", "shop.message", "other.shop.users")
		l.write(row("shop.shop.users", 0, "users", 1), row("shop.shop.users", 1, "users", 2), row("shop.shop.orders", 0, "orders", 1), row("shop.message", 0, "users", 1))
		tr := l.trace("user:1")
		if tr.Read.Topics != 3 || tr.Read.Partitions != 2+2+changelog.KeysPartitions || tr.Read.Records != 3 { // of users, messages and keys
			t.Errorf("read %+v", tr.Read)
		}
		if len(tr.Changes) != 2 {
			t.Errorf("%d changes", len(tr.Changes))
		}
		l.tells(tr, "no worker of group fleet has written a ring record")
		if tr := l.trace("order:new:1"); len(tr.Changes) != 1 || tr.Changes[0].State != TraceShadow || tr.Verdict.Word != "shadow" {
			t.Errorf("in shadow: %+v", tr.Verdict)
		}
		if tr := l.trace("feed:1"); !tr.Underivable || !strings.Contains(tr.Verdict.Text, "no row gives keys of pool feed") {
			t.Errorf("underivable: %+v", tr.Verdict)
		}
	})
}

// A partition that cannot be read, a log that retention shortens meanwhile, and a reading that is stopped are told, and the rest is shown.
func TestTraceOfALogThatCannotBeReadWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTraceLog(t, ordersToo, ourSource, "shop.shop.users")
		l.write(row("shop.shop.users", 0, "users", 1), row("shop.shop.users", 1, "users", 1), row("shop.shop.users", 1, "users", 1))
		l.c.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			l.c.KeepControl()
			req := r.(*kmsg.FetchRequest)
			if req.Topics[0].Partitions[0].Partition != 1 {
				return nil, nil, false
			}
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.ErrorCode = 1, kerr.TopicAuthorizationFailed.Code
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, len(req.Topics) == 1 && l.isUsers(req.Topics[0])
		})
		tr := l.trace("user:1")
		if len(tr.Changes) != 1 || tr.Changes[0].Partition != 0 {
			t.Errorf("%d changes", len(tr.Changes))
		}
		l.tells(tr, "what shop.shop.users/1 holds from offset 0 on: ")
	})
}

func (l *traceLog) isUsers(rt kmsg.FetchRequestTopic) bool {
	info := l.c.TopicInfo("shop.shop.users")
	return rt.Topic == "shop.shop.users" || info.TopicID == rt.TopicID
}

// Retention that overtakes the reader is told, and what is left is read.
func TestTraceThatRetentionOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTraceLog(t, ordersToo, ourSource, "shop.shop.users")
		for range 4 {
			l.write(row("shop.shop.users", 0, "users", 1))
		}
		tr := newTracer(l.conf, l.c.Options, TraceQuery{Key: "user:1", Since: time.Now().Add(-time.Hour)}, time.Now())
		cl, err := l.c.Options.Client()
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if err := tr.prepare(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
		if _, err := l.c.Admin(t).DeleteRecords(t.Context(), kadm.OffsetsFromRecords(kgo.Record{Topic: "shop.shop.users", Offset: 1})); err != nil {
			t.Fatal(err)
		}
		if err := tr.read(t.Context()); err != nil {
			t.Fatal(err)
		}
		tr.locate()
		tr.judge()
		tr.conclude()
		if len(tr.out.Changes) != 2 || tr.out.Changes[0].Offset != 2 || tr.out.Read.Records != tr.out.Read.Of {
			t.Errorf("%d changes, read %+v", len(tr.out.Changes), tr.out.Read)
		}
		l.tells(tr.out, "the log of 1 partition begins later than the window")
	})
}

// A log that has been emptied may have held something of the window, unless its topic keeps records for longer.
func TestTraceOfAnEmptyLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTraceLog(t, ordersToo, ourSource, "shop.shop.users")
		l.write(row("shop.shop.users", 0, "users", 1))
		if _, err := l.c.Admin(t).DeleteRecords(t.Context(), kadm.OffsetsFromRecords(kgo.Record{Topic: "shop.shop.users", Offset: 0})); err != nil {
			t.Fatal(err)
		}
		for since, want := range map[time.Duration]bool{time.Hour: false, 30 * 24 * time.Hour: true} { // the broker keeps 7 days
			tr, err := l.query(t.Context(), TraceQuery{Key: "user:1", Since: time.Now().Add(-since)})
			if err != nil {
				t.Fatal(err)
			}
			got := slices.ContainsFunc(tr.Unknown, func(s string) bool { return strings.Contains(s, "topic shop.shop.users before") })
			if got != want {
				t.Errorf("since %s: not known is %q", since, tr.Unknown)
			}
		}
	})
}

// Whoever stops the reading gets what was found, with progress on the way.
func TestTraceIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTraceLog(t, ordersToo, ourSource, "shop.shop.users")
		l.write(row("shop.shop.users", 0, "users", 1), row("shop.shop.users", 1, "users", 1))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var told []string
		fetches := 0
		l.c.ControlKey(kmsg.Fetch.Int16(), func(r kmsg.Request) (kmsg.Response, error, bool) {
			l.c.KeepControl()
			if l.isUsers(r.(*kmsg.FetchRequest).Topics[0]) {
				fetches++
			}
			if fetches > 1 && ctx.Err() == nil { // whichever partition asked first has its answer
				l.c.SleepControl(func() { <-ctx.Done() })
			}
			return nil, nil, false
		})
		tr, err := l.query(ctx, TraceQuery{Key: "user:1", Progress: func(read, all int64) {
			if told = append(told, fmt.Sprint(read, " of ", all)); len(told) == 2 {
				stop()
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		if !tr.Read.Stopped || len(tr.Changes) != 1 || !slices.Equal(told, []string{"1 of 2", "1 of 2"}) {
			t.Errorf("read %+v, %d changes, told %q", tr.Read, len(tr.Changes), told)
		}
		l.tells(tr, "the reading was stopped after 1 of 2 records")
	})
}

// A schema registry that does not answer is waited for once, and what it would have said is counted.
func TestTraceWithoutASchemaRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTraceLog(t, ordersToo, "sources: [{name: shop, topics: {pattern: 'shop\\..*', format: avro, registry: {url: 'http://127.0.0.1:1'}}, first_start: latest}]\n", "shop.users")
		for range 3 {
			l.write(&kgo.Record{Topic: "shop.users", Timestamp: time.Now(), Value: []byte{0, 0, 0, 0, 7, 2}})
		}
		began := time.Now()
		l.tells(l.trace("user:1"), "the key is among 3 records of topic shop.users whose schema the registry does not give; the first: shop.users/0, offset 0: ")
		if took := time.Since(began); took < traceRegistry || took > 3*traceRegistry {
			t.Errorf("it took %s", took)
		}
	})
}

// Of a key that changes all the time the newest changes are kept, and the others counted.
func TestTraceKeepsTheNewest(t *testing.T) {
	tr := newTracer(&config.Config{}, changelog.Options{}, TraceQuery{Key: "user:1"}, time.Now())
	began := time.Now()
	const all = 5*traceChanges + 7
	for i := range all {
		tr.keep(&TraceChange{Offset: int64(i), Written: began.Add(time.Duration(i) * time.Second)})
		if len(tr.seen) >= 2*traceChanges {
			t.Fatalf("%d are kept", len(tr.seen))
		}
	}
	tr.trim()
	if len(tr.seen) != traceChanges || tr.left != all-traceChanges || tr.seen[0].Offset != all-traceChanges {
		t.Errorf("%d are kept from offset %d on, %d are counted", len(tr.seen), tr.seen[0].Offset, tr.left)
	}
}

// A hot key's copies are places too, by the registry's number or a template's, and each of them can be asked for by its own name.
func TestTraceOfAHotKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTraceLog(t, strings.Replace(usersMapping, "'user:{id}'", "{key: 'user:{id}', hot: 2}", 1), ourSource, "shop.shop.users")
		l.ring(1, `[{"id":"s0","primary":{"addr":"a:1"}},{"id":"s1","primary":{"addr":"b:1"}}]`)
		l.write(row("shop.shop.users", 0, "users", 1))
		for key, hotOf := range map[string]string{"user:1": "", "user:1#2": "user:1"} {
			tr := l.trace(key)
			var keys []string
			for _, c := range tr.Copies {
				keys = append(keys, c.Key)
			}
			slices.Sort(keys)
			if len(tr.Changes) != 1 || tr.HotOf != hotOf || !slices.Equal(keys, []string{"user:1", "user:1#1", "user:1#2"}) {
				t.Errorf("%s: %d changes, a copy of %q, copies %q", key, len(tr.Changes), tr.HotOf, keys)
			}
		}
		if err := l.state.PutHot(t.Context(), "fleet", "user:1", changelog.SavedHot{Copies: 3, Revision: 5, Most: 4}); err != nil {
			t.Fatal(err)
		}
		if tr := l.trace("user:1"); len(tr.Copies) != 5 {
			t.Errorf("copies %+v", tr.Copies)
		}
	})
}

// Offsets of a topic that was removed and made again are no offsets of this one.
func TestTraceOfATopicMadeAgain(t *testing.T) {
	lines := []traceLine{{topicID: "old"}, {topicID: "new"}, {}}
	p := changelog.Partition{Topic: "t"}
	s := &traceState{lines: map[changelog.Partition][]traceLine{p: lines}}
	if got := s.of(p, "new"); len(got) != 2 || got[0].topicID != "new" {
		t.Errorf("got %+v", got)
	}
	if got := s.of(p, ""); len(got) != 3 { // the broker knows no ids
		t.Errorf("got %+v", got)
	}
}

// What the mappings in force did not give is missed until a replay has gone over it under some that do.
func TestTraceOfAMendedMapping(t *testing.T) {
	at := time.Date(2026, 11, 30, 14, 0, 0, 0, time.UTC)
	live := traceLine{from: at, JournalLine: pipeline.JournalLine{Mappings: "broken", Lanes: []pipeline.LaneSpan{{Lane: sink.Live, Lowest: 5, Highest: 5}}}}
	for _, x := range []struct {
		name   string
		pass   string // the mappings under which a pass went over it
		redone map[string]time.Time
		want   TraceState
	}{
		{"no replay", "", nil, TraceMissed},
		{"a replay that is not done", "mended", nil, TraceMissed},
		{"a replay under mappings that give it no more", "broken", map[string]time.Time{"r": at.Add(time.Hour)}, TraceMissed},
		{"a replay before the pass", "mended", map[string]time.Time{"r": at.Add(time.Minute)}, TraceMissed},
		{"a replay under the mended ones", "mended", map[string]time.Time{"r": at.Add(time.Hour)}, TraceLater},
	} {
		tr := &tracer{redone: x.redone, places: tracePlaces{texts: []string{"user:1"}}, state: &traceState{}, sets: &traceSets{by: map[string]*mapping.Set{"broken": {}}}}
		c := &TraceChange{
			Offset: 5, Committed: at, Finished: true, Replays: []string{"r"}, By: []TraceTemplate{{Team: "t", Mapping: "m", Mappings: []string{"mended"}}},
			Issued: []TraceIssue{{Lane: "live", From: at, To: at.Add(time.Second), Mappings: "broken"}},
		}
		if x.pass != "" {
			c.Issued = append(c.Issued, TraceIssue{Lane: "debts", From: at.Add(30 * time.Minute), Mappings: x.pass, Maybe: true})
		}
		c.State = tr.stateOf(c, []traceLine{live})
		if c.State != x.want {
			t.Errorf("%s: %s, want %s", x.name, c.State, x.want)
		}
		if text := tr.verdictOf(c.State, []*TraceChange{c}); x.want == TraceLater && !strings.Contains(text, "deleted by a replay that was done at 15:00:00") {
			t.Errorf("%s: %q", x.name, text)
		}
	}
}

// A replay takes in what its target means and its window has.
func TestTraceKnowsWhichReplaysConcernAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTraceLog(t, ordersToo, ourSource, "shop.shop.users")
		l.ring(1, `[{"id":"s0","primary":{"addr":"a:1"},"replicas":[{"addr":"b:1"}]}]`)
		tr := newTracer(l.conf, l.c.Options, TraceQuery{Key: "user:1", Since: time.Now().Add(-time.Hour)}, time.Now())
		cl, err := l.c.Options.Client()
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if err := tr.prepare(t.Context(), cl); err != nil {
			t.Fatal(err)
		}
		tr.locate()
		hash := tr.out.Ring.Hash
		for _, x := range []struct {
			target replay.Target
			want   bool
		}{
			{replay.Target{Pool: "user"}, true}, {replay.Target{Pool: "order"}, false}, {replay.Target{Shard: "s0"}, true}, {replay.Target{Shard: "s1"}, false},
			{replay.Target{Pool: "user", Shard: "s0"}, true}, {replay.Target{Pool: "order", Shard: "s0"}, false}, {replay.Target{Pool: "user", Shard: "s1"}, false},
			{replay.Target{Node: "b:1"}, true}, {replay.Target{Node: "c:1"}, false}, {replay.Target{Mapping: "profiles/user"}, true}, {replay.Target{Mapping: "profiles/order"}, false},
			{replay.Target{Range: &replay.HashRange{From: hash - 1, To: hash}}, true}, {replay.Target{Range: &replay.HashRange{From: hash, To: hash + 1}}, false},
			{replay.Target{Gained: 1}, true}, {replay.Target{Gained: 2}, false},
		} {
			if got := tr.meant(x.target); got != x.want {
				t.Errorf("%s: %t", x.target, got)
			}
		}

		at := time.Now()
		c := &TraceChange{Topic: "t", Partition: 1, Offset: 5, Committed: at, Issued: []TraceIssue{{From: at.Add(time.Hour), Until: at.Add(time.Hour)}}}
		plan := func(window replay.Window, from, to time.Duration, r replay.PlanRange) bool {
			tr.plans = []replay.Plan{{ID: "r", Window: window, From: at.Add(from), To: at.Add(to), Ranges: []replay.PlanRange{r}}}
			own := *c
			tr.replays(&own, "id")
			return len(own.Replays) == 1
		}
		whole := replay.PlanRange{Topic: "t", TopicID: "id", Partition: 1, To: 9}
		for name, x := range map[string]struct{ got, want bool }{
			"committed in it":         {plan(replay.Committed, -time.Minute, time.Minute, whole), true},
			"committed before it":     {plan(replay.Committed, time.Minute, 2*time.Minute, whole), false},
			"issued in it":            {plan(replay.Issued, 59*time.Minute, time.Hour, whole), true},
			"issued long after it":    {plan(replay.Issued, -time.Minute, time.Minute, whole), false},
			"a committed one, issued": {plan(replay.Committed, 59*time.Minute, time.Hour, whole), true},
			"behind its range":        {plan(replay.Committed, -time.Minute, time.Minute, replay.PlanRange{Topic: "t", Partition: 1, To: 5}), false},
			"of another log":          {plan(replay.Committed, -time.Minute, time.Minute, replay.PlanRange{Topic: "t", TopicID: "old", Partition: 1, To: 9}), false},
			"of another partition":    {plan(replay.Committed, -time.Minute, time.Minute, replay.PlanRange{Topic: "t", Partition: 2, To: 9}), false},
		} {
			if x.got != x.want {
				t.Errorf("%s: %t", name, x.got)
			}
		}
	})
}

// Lines of one second join where they go on, and say no more than they know.
func TestTraceIssues(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0).UTC() }
	line := func(s, width int, epoch int64, lane sink.Lane, low, high int64) traceLine {
		l := traceLine{from: at(s + 1 - width), to: at(s + 1)}
		l.At, l.Epoch, l.Mappings = int64(s), epoch, "fp"
		l.Lanes = append(l.Lanes, pipeline.LaneSpan{Lane: lane, Lowest: low, Highest: high})
		return l
	}
	got := issuesOf([]traceLine{
		line(99, 1, 7, sink.Live, 1, 4), line(100, 1, 7, sink.Live, 3, 6), line(101, 1, 7, sink.Live, 5, 8), line(101, 1, 8, sink.Live, 2, 9), line(102, 1, 7, sink.Live, 6, 9),
		line(130, 1, 7, sink.Debts, 0, 9), line(131, 1, 7, sink.Debts, 0, 9), line(160, 1, 7, sink.Debts, 0, 9), line(239, 60, 7, sink.Live, 0, 9),
	}, 5)
	var texts []string
	for _, x := range got {
		texts = append(texts, fmt.Sprintf("%s %d %d-%d until %d %t", x.Lane, x.Epoch, x.From.Unix(), x.To.Unix(), x.Until.Unix(), x.Maybe))
	}
	want := []string{"live 7 100-101 until 102 false", "live 8 101-102 until 102 false", "debts 7 130-131 until 132 true", "debts 7 160-161 until 161 true", "live 7 180-240 until 240 false"}
	if !slices.Equal(texts, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(texts, "\n"), strings.Join(want, "\n"))
	}
}

// A template may give a key that begins and ends as it does.
func TestTraceAsksTemplatesThatMayGiveTheKey(t *testing.T) {
	for text, want := range map[string]bool{"user:{id}": true, "user:by-name:{name}": false, "user:{id}:v3": false, "user:4{id}": true, "user:42": true, "user:{a}{b|pad(8,'0')}2": true} {
		tr := newTracer(&config.Config{}, changelog.Options{}, TraceQuery{Key: "user:42"}, time.Now())
		if got := tr.mayGive(&mapping.Template{Text: text, Pool: "user"}); got != want {
			t.Errorf("%s: %t", text, got)
		}
		if tr.mayGive(&mapping.Template{Text: text, Pool: "other"}) {
			t.Errorf("%s of another pool", text)
		}
	}
}
