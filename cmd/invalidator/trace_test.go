package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/app"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/replay"
)

// traceDay is the day of the stories.
const traceDay = "2026-11-29T"

// traceAt is a time of that day.
func traceAt(t testing.TB, clock string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, traceDay+clock+"Z")
	if err != nil {
		t.Fatal(err)
	}
	return at
}

const traceTopic = "shop.shop.users"

const traceMappings = `version: 1
team: profiles
contact: "#profiles"
pools: [user]
mappings:
  - name: user
    table: shop.users
    keys:
      - user:{id}
      - key: user:name:{name}
        when: changed(name)
`

// traceBench is a fake Kafka in which a fleet has left its traces, at times that the test says.
type traceBench struct {
	t      *testing.T
	kafka  changelog.Options
	names  changelog.Names
	cl     *kgo.Client
	adm    *kadm.Client
	state  *changelog.StateStore
	config string
	set    string // the fingerprint of the mappings in force
	next   int64  // offset of the change topic
}

func newTraceBench(t *testing.T) *traceBench {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	b := &traceBench{t: t, kafka: changelog.Options{Brokers: cluster.ListenAddrs()}, names: changelog.NamesFor("")}
	if b.cl, err = b.kafka.Client(kgo.RecordPartitioner(kgo.ManualPartitioner())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.cl.Close)
	b.adm = kadm.NewClient(b.cl)
	if _, err := changelog.EnsureTopics(t.Context(), b.adm, changelog.Settings{}.Own()); err != nil {
		t.Fatal(err)
	}
	keep := "-1"
	if _, err := b.adm.CreateTopics(t.Context(), 1, 1, map[string]*string{"retention.ms": &keep}, traceTopic); err != nil {
		t.Fatal(err)
	}
	if b.state, err = changelog.OpenState(b.kafka, b.names.State); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.state.Close)
	dir := t.TempDir()
	b.config = file(t, dir, "invalidator.yaml", fmt.Sprintf("kafka: {brokers: [%q]}\nsources: [{name: shop, type: mysql, hosts: ['127.0.0.1:1'], user: x, include: ['shop.*']}]\n", b.kafka.Brokers[0]))
	b.set = b.mappings(traceMappings)
	b.worker(b.set)
	b.ring(7, "13:00:00", `[{"id":"s03","primary":{"addr":"10.0.1.5:11211"},"replicas":[{"addr":"10.0.2.9:11211"}]}]`)
	b.change("13:59:10", "13:59:10", 42)
	return b
}

// mappings has a set of one file on the state topic, and returns its fingerprint.
func (b *traceBench) mappings(text string) string {
	b.t.Helper()
	f, problems := mapping.Parse("profiles.yaml", []byte(text))
	if f == nil {
		b.t.Fatal(problems)
	}
	set, _ := mapping.NewSet([]*mapping.File{f})
	st, err := b.state.Load(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	saved := changelog.MappingSet{Fingerprint: set.Fingerprint(), Files: []changelog.MappingSetFile{{Name: "profiles.yaml", Text: text}}, Used: time.Now()}
	if err := b.state.PutMappingSet(b.t.Context(), "invalidator", saved, st); err != nil {
		b.t.Fatal(err)
	}
	return set.Fingerprint()
}

// worker is the record of one that has a set in force.
func (b *traceBench) worker(fingerprint string) {
	b.put("process/w-1", fmt.Sprintf(`{"v":1,"role":"worker","host":"w-1","group":"invalidator","at":%q,"mappings":{"fingerprint":%q}}`, time.Now().Format(time.RFC3339), fingerprint))
}

func (b *traceBench) put(key, value string) {
	b.t.Helper()
	if err := b.state.Put(b.t.Context(), key, []byte(value)); err != nil {
		b.t.Fatal(err)
	}
}

func (b *traceBench) ring(epoch int64, seen, shards string) {
	b.t.Helper()
	record := fmt.Sprintf(`{"epoch":%d,"shards":%s}`, epoch, shards)
	if err := b.state.PutRing(b.t.Context(), "invalidator", changelog.SavedRing{Epoch: epoch, Seen: traceAt(b.t, seen), By: "w-1", Record: json.RawMessage(record)}); err != nil {
		b.t.Fatal(err)
	}
}

// change writes an update of a user's email.
func (b *traceBench) change(committed, written string, id int) {
	b.t.Helper()
	b.record(traceTopic, written, fmt.Sprintf(`{"before":{"id":%d,"name":"a","email":"a@x.test"},"after":{"id":%d,"name":"a","email":"b@x.test"},"op":"u","ts_ms":0,`+
		`"source":{"connector":"mysql","name":"shop","db":"shop","table":"users","ts_ms":%d,"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:%d"}}`,
		id, id, traceAt(b.t, committed).UnixMilli(), 40+b.next))
	b.next++
}

func (b *traceBench) record(topic, written, value string, headers ...kgo.RecordHeader) {
	b.t.Helper()
	r := &kgo.Record{Topic: topic, Timestamp: traceAt(b.t, written), Value: []byte(value), Headers: headers}
	if err := b.cl.ProduceSync(b.t.Context(), r).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

// said writes records of the control or the status topic.
func (b *traceBench) said(topic string, records ...replay.Record) {
	b.t.Helper()
	for _, r := range records {
		value, err := replay.Encode(r)
		if err != nil {
			b.t.Fatal(err)
		}
		b.record(topic, "14:29:00", string(value))
	}
}

// line is one of a journal.
func (b *traceBench) line(clock string, epoch int64, set, lanes string) string {
	return fmt.Sprintf(`[%d,%d,51,%d,%q,%s]`, traceAt(b.t, clock).Unix(), epoch, traceAt(b.t, clock).Unix(), set, lanes)
}

// journal writes a minute or an hour of the change topic's partition.
func (b *traceBench) journal(name string, lines ...string) {
	b.t.Helper()
	listed, err := b.adm.ListTopics(b.t.Context(), traceTopic)
	if err != nil {
		b.t.Fatal(err)
	}
	b.put(changelog.StateKey("journal", "invalidator", traceTopic, "0", listed[traceTopic].ID.String(), "x", traceDay+name), `{"v":1,"lines":[`+strings.Join(lines, ",")+`]}`)
}

// owes commits an offset, below which everything is deleted but for some debts.
func (b *traceBench) owes(offset int64, debts ...string) {
	b.t.Helper()
	b.put("partition/invalidator/"+traceTopic+"/0/3/x", fmt.Sprintf(`{"v":2,"offset":%d,"debts":[%s],"journal":[]}`, offset, strings.Join(debts, ",")))
	if err := b.adm.CommitAllOffsets(b.t.Context(), "invalidator", kadm.OffsetsFromRecords(kgo.Record{Topic: traceTopic, Offset: offset - 1})); err != nil {
		b.t.Fatal(err)
	}
}

// trace runs the command from 14:00 on.
func (b *traceBench) trace(key string, more ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	args := append([]string{"trace", key, "--since", traceDay + "14:00:00Z", "--until", traceDay + "14:30:00Z", "--config", b.config}, more...)
	return invalidator(b.t, "", args...)
}

// wants compares what people see with a file, whose fingerprints are words: set is today's.
func (b *traceBench) wants(name, key string, words ...string) {
	b.t.Helper()
	code, stdout, stderr := b.trace(key)
	if code != 0 || stderr != "" {
		b.t.Errorf("exit %d: %s", code, stderr)
	}
	golden(b.t, "testdata/trace/"+name+".golden", strings.NewReplacer(append(words, b.set, "<set>")...).Replace(stdout))
}

// A change, while the replica is off; the node is paid when it is back, and somebody replays the pool by hand.
func TestTraceOfAChangeThatCameLateToANode(t *testing.T) {
	b := newTraceBench(t)
	b.change("14:01:50.1", "14:01:50.4", 7)
	b.change("14:01:57.2", "14:01:57.9", 42)
	b.change("14:02:01", "14:02:01.3", 8)
	b.journal("14:01", b.line("14:01:51", 7, b.set, `["live",1,1]`), b.line("14:01:58", 7, b.set, `["live",2,2]`), b.line("14:01:59", 7, b.set, `["live",2,2]`))
	b.journal("14:02", b.line("14:02:02", 7, b.set, `["live",3,3]`))
	b.journal("14:09", b.line("14:09:12", 7, b.set, `["debts",1,3]`), b.line("14:09:13", 7, b.set, `["debts",1,3]`))
	b.journal("14:20", b.line("14:20:03", 7, b.set, `["replay",1,3]`))
	b.owes(4)
	owed := func(at string, off bool, paid bool) replay.Owed {
		o := replay.Owed{Node: "10.0.2.9:11211", Group: "invalidator", At: traceAt(t, at), Worker: "w-1", Off: off, Paid: paid}
		if !paid {
			o.Partitions, o.Records, o.Since = 1, 3, traceAt(t, "14:01:30.5")
		}
		return o
	}
	b.said(b.names.Status, owed("14:01:31", true, false), owed("14:05:00", true, false), owed("14:09:10.1", false, false), owed("14:09:14.2", false, true))
	b.said(b.names.Control,
		replay.Request{ID: "r1", At: traceAt(t, "14:20:00"), By: "ann@ops", Reason: "to be sure", Action: replay.Replay, Target: replay.Target{Pool: "user"},
			Window: replay.Committed, From: traceAt(t, "14:00:00"), To: traceAt(t, "14:10:00")},
		replay.Request{ID: "r2", At: traceAt(t, "14:21:00"), By: "ann@ops", Action: replay.Replay, Target: replay.Target{Pool: "order"},
			Window: replay.Committed, From: traceAt(t, "14:00:00"), To: traceAt(t, "14:10:00")},
		replay.Plan{ID: "r1", At: traceAt(t, "14:20:01"), Worker: "w-1", Target: replay.Target{Pool: "user"}, Window: replay.Committed, From: traceAt(t, "14:00:00"),
			To: traceAt(t, "14:10:00"), Ranges: []replay.PlanRange{{Topic: traceTopic, Partition: 0, From: 0, To: 4, Since: new(int64)}}})
	b.said(b.names.Status, replay.Result{ID: "r1", At: traceAt(t, "14:20:06"), Worker: "w-1", Clean: true, Keys: 3, Copies: 6})
	b.wants("late", "user:42")

	code, stdout, _ := b.trace("user:42", "--json")
	var got app.Trace
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != 0 {
		t.Fatalf("exit %d, %v: %s", code, err, stdout)
	}
	if len(got.Changes) != 1 || got.Changes[0].Offset != 2 || got.Verdict.Word != "late" || len(got.Copies) != 2 || got.Changes[0].Late[0].Paid != traceAt(t, "14:09:14.2") {
		t.Errorf("got %s", stdout)
	}
}

// A node is off, and the workers are behind: what is stale now is told first.
func TestTraceOfChangesThatAreOwedOrWait(t *testing.T) {
	b := newTraceBench(t)
	b.change("14:01:57.2", "14:01:57.9", 42)
	b.journal("14:01", b.line("14:01:58", 7, b.set, `["live",1,1]`))
	b.owes(2, `{"kind":"node","name":"10.0.2.9:11211","from":0,"to":null,"since":"`+traceDay+`14:01:30Z","epoch":7,"hot_revision":51}`,
		`{"kind":"node","name":"10.0.7.7:11211","from":0,"to":null,"since":"`+traceDay+`14:01:30Z","epoch":7,"hot_revision":51}`,
		`{"kind":"storm","name":"other","from":0,"to":9,"since":"`+traceDay+`14:01:30Z","epoch":7,"hot_revision":51}`)
	b.wants("owed", "user:42")
	b.change("14:25:00", "14:25:00.1", 9)
	b.change("14:25:01", "14:25:01.1", 42)
	b.wants("waiting", "user:42")
}

// The mappings of the time had another template: today's would have deleted the key.
func TestTraceOfAChangeThatTheMappingsMissed(t *testing.T) {
	b := newTraceBench(t)
	old := b.mappings(strings.Replace(traceMappings, "user:{id}", "user:{name}", 1))
	b.change("14:01:57.2", "14:01:57.9", 42)
	b.journal("14", b.line("14:01:59", 7, old, `["live",1,1]`), b.line("14:02:59", 7, "0123456789abcdef", `["live",1,2]`))
	b.owes(2)
	b.wants("missed", "user:42", old, "<old set>")
}

// A promotion in the window: the ring record that moved the key, and what is still owed of it.
func TestTraceOverAPromotion(t *testing.T) {
	b := newTraceBench(t)
	b.change("14:01:57.2", "14:01:57.9", 42)
	b.journal("14:01", b.line("14:01:58", 7, b.set, `["live",1,1]`))
	b.ring(8, "14:02:10.5", `[{"id":"s03","primary":{"addr":"10.0.2.9:11211"},"replicas":[{"addr":"10.0.3.1:11211","seeding":true}]}]`)
	b.owes(2, `{"kind":"epoch","name":"7-8","from":0,"to":2,"since":"`+traceDay+`14:02:10Z","epoch":8,"hot_revision":51,"spans":[[1,2]]}`)
	b.wants("promotion", "user:42")
}

// Everything else that concerns a key has its place in the timeline: what people asked for and what came of it, what the service did by itself.
func TestTraceTellsWhatElseTouchedAKey(t *testing.T) {
	b := newTraceBench(t)
	b.change("14:01:57.2", "14:01:57.9", 42)
	b.owes(2, `{"kind":"pool","name":"user","from":1,"to":null,"since":"`+traceDay+`14:01:00Z","epoch":7,"hot_revision":51}`,
		`{"kind":"replay","name":"r3","from":1,"to":2,"since":"`+traceDay+`14:20:01Z","epoch":7,"hot_revision":51,"spans":[[1,2]],"order":{"id":"r3","target":{"shard":"s03"},"from":"`+
			traceDay+`14:00:00Z","to":"`+traceDay+`14:10:00Z","mark":{"topic":"","offset":3}}}`)
	at := func(clock string) time.Time { return traceAt(t, clock) }
	b.put("pause/invalidator/user", `{"v":1,"pool":"user","paused":true,"by":"ann@ops","at":"`+traceDay+`14:01:00Z","reason":"a bad template"}`)
	b.said(b.names.Control,
		replay.Request{ID: "f0", At: at("12:00:00"), By: "bob@ops", Action: replay.Flush, Target: replay.Target{Pool: "user"}}, // before the window, done in it
		replay.Job{ID: "f0", At: at("13:58:00"), Worker: "w-1", Scope: replay.Target{Pool: "user"}, Answers: []string{"f0"}, Epoch: 7, Limit: 1000, Parts: 1},
		replay.Request{ID: "f1", At: at("14:03:00"), By: "ann@ops", Reason: "a wrong price", Action: replay.Flush, Target: replay.Target{Pool: "user", Shard: "s03"}},
		replay.Request{ID: "f2", At: at("14:03:01"), By: "ann@ops", Action: replay.Flush, Target: replay.Target{Pool: "order"}},
		replay.Request{ID: "p1", At: at("14:03:30"), By: "bob@ops", Action: replay.Pause, Of: "f1"},
		replay.Request{ID: "c1", At: at("14:04:00"), By: "bob@ops", Reason: "too early", Action: replay.Cancel, Of: "f1"},
		replay.Request{ID: "c2", At: at("14:04:01"), By: "bob@ops", Action: replay.Cancel, Of: "f2"},
		replay.Request{ID: "r2", At: at("14:05:00"), By: "ann@ops", Action: replay.Replay, Target: replay.Target{Node: "10.0.1.5:11211"}, Window: replay.Issued, From: at("01:00:00"), To: at("02:00:00")},
		replay.Plan{ID: "r2", At: at("14:05:01"), Worker: "w-1", Refused: "the log begins at 13:00"},
		replay.Request{ID: "r4", At: at("14:06:00"), By: "ann@ops", Action: replay.Replay, Target: replay.Target{Mapping: "profiles/user"}, Window: replay.Issued, From: at("14:00:00"), DryRun: true},
	)
	users := func(to int64) replay.Range { return replay.Range{Topic: traceTopic, Partition: 0, From: 0, To: to} }
	b.said(b.names.Status,
		replay.Progress{ID: "f0", At: at("14:00:30"), Worker: "w-1", Part: &replay.Part{N: 0, Of: 1}, Node: "10.0.1.5:11211", Round: 1, Keys: 7, Copies: 7, Done: true},
		replay.Progress{ID: "f0", At: at("14:00:40"), Worker: "w-1", Part: &replay.Part{N: 0, Of: 1}, Node: "10.0.9.9:11211", Round: 1, Keys: 8, Copies: 8, Done: true},
		replay.Progress{ID: "f0", At: at("14:00:45"), Worker: "w-1", Part: &replay.Part{N: 0, Of: 1}, Node: "10.0.2.9:11211", Round: 1, Keys: 7, Copies: 7, Done: true},
		replay.Event{At: at("14:01:00"), Worker: "ann@ops", What: "pool.pause", About: "user", Detail: map[string]string{"by": "ann@ops", "reason": "a bad template"}},
		replay.Event{At: at("14:01:01"), Worker: "w-1", What: "storm.began", About: "order"},
		replay.Event{At: at("14:01:02"), Worker: "w-1", What: "storm.began", About: "user"},
		replay.Event{At: at("14:01:03"), Worker: "w-1", What: "mapping.stopped", About: "profiles/user"},
		replay.Gap{ID: "g1", At: at("14:08:00"), Source: "shop", Why: "the slot was lost", Range: &replay.Range{Topic: traceTopic, From: 1, To: 2}, Pools: []string{"user"}},
		replay.Gap{ID: "g2", At: at("14:08:01"), Source: "shop", Why: "the slot was lost", Range: &replay.Range{Topic: traceTopic, From: 1, To: 2}, Pools: []string{"order"}},
		replay.Progress{ID: "epoch/6-7", At: at("14:09:00"), Worker: "w-1", Range: users(1), Keys: 5, Copies: 10}, // without a change of the key
		replay.Progress{ID: "epoch/5-7", At: at("14:09:02"), Worker: "w-1", Range: users(2), Keys: 5, Copies: 10},
		replay.Result{ID: "r4", At: at("14:06:10"), Worker: "w-1", Clean: true, Keys: 3, Copies: 6},
		replay.Result{ID: "f1", At: at("14:04:02"), Worker: "w-1", Error: "cancelled"},
	)
	dead, err := changelog.OpenDeadLetter(b.kafka, b.names.DeadLetter)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	from := changelog.Partition{Topic: traceTopic}
	for _, r := range []changelog.Record{{Offset: 1, Key: []byte("a"), Value: []byte("{}")}, {Offset: 0, Key: []byte("user:42")}, {Offset: 0, Key: []byte("user:43")}} {
		if err := dead.ParkFrom(t.Context(), from, r, "a node does not take it"); err != nil {
			t.Fatal(err)
		}
	}
	code, stdout, stderr := b.trace("user:42")
	if code != 0 || stderr != "" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	// When a record is parked is the clock's.
	lines := slices.DeleteFunc(strings.SplitAfter(stdout, "\n"), func(line string) bool { return strings.Contains(line, "parked ") || strings.HasPrefix(line, "20") })
	golden(t, "testdata/trace/touched.golden", strings.ReplaceAll(strings.Join(lines, ""), b.set, "<set>"))
	if n := strings.Count(stdout, "a node refuses the key: a node does not take it"); n != 1 {
		t.Errorf("told %d times that a node refuses it", n)
	}
}

// Keys that somebody sent, also of a pool that nobody claims; a key of such a pool that nobody sent is a slip.
func TestTraceOfKeysThatWereSent(t *testing.T) {
	b := newTraceBench(t)
	b.owes(1)
	w, err := changelog.OpenKeyWriter(b.kafka, b.names.Keys)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Write(t.Context(), changelog.SentKeys{Keys: []string{"user:42", "feed:1"}, By: "ann@ops", Reason: "a wrong price"}, nil); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"user:42", "feed:1"} {
		code, stdout, stderr := invalidator(t, "", "trace", key, "--since", "1h", "--config", b.config)
		if code != 0 || !strings.Contains(stdout, "the key was sent, by ann@ops: a wrong price") || !strings.Contains(stdout, "verdict: waiting: ") {
			t.Errorf("%s: exit %d\n%s%s", key, code, stdout, stderr)
		}
	}
	code, stdout, stderr := b.trace("usr:42")
	if code != exitMisuse || stdout != "" || !strings.Contains(stderr, `pool "usr" is claimed by no mapping file, and nobody sent such a key: nothing deletes it: did you mean "user:42"?`) {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
}

// What cannot be known is said: a log that begins later, records that cannot be read, dead letters, templates that gave no key, records of a newer version.
func TestTraceSaysWhatItCannotKnow(t *testing.T) {
	b := newTraceBench(t)
	b.record(traceTopic, "14:05:00", `{broken`)
	b.record(traceTopic, "14:05:01", `{broken too`)
	b.change("14:06:00", "14:06:00", 7)
	b.record(traceTopic, "14:07:00", `{"before":null,"after":{"name":"a"},"op":"c","source":{"connector":"mysql","name":"shop","db":"shop","table":"users"}}`)
	dead, err := changelog.OpenDeadLetter(b.kafka, b.names.DeadLetter)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	if err := dead.ParkFrom(t.Context(), changelog.Partition{Topic: traceTopic}, changelog.Record{Offset: 1, Value: []byte("{broken")}, "decoding a record: it is broken"); err != nil {
		t.Fatal(err)
	}
	b.record(b.names.Control, "14:29:00", `{"v":9,"kind":"request"}`)
	b.put("partition/invalidator/"+traceTopic+"/0/4/y", `{"v":99}`)
	if _, err := b.adm.DeleteRecords(t.Context(), kadm.OffsetsFromRecords(kgo.Record{Topic: traceTopic, Offset: 0})); err != nil {
		t.Fatal(err)
	}
	b.wants("unknown", "user:42")
}

// What the command line asks for and there is not.
func TestTraceRefuses(t *testing.T) {
	config := file(t, t.TempDir(), "invalidator.yaml", "kafka: {brokers: ['127.0.0.1:1']}\n")
	for want, args := range map[string][]string{
		`--since "soon" is neither so long ago as 10m nor a time`: {"a:1", "--since", "soon"},
		`--until "-5m" is neither`:                                {"a:1", "--until=-5m"},
		"is in the future":                                        {"a:1", "--since", "2999-01-01T00:00:00Z"},
		"--until 1h is not after --since 10m":                     {"a:1", "--until", "1h"},
		"is not in base64":                                        {"a b", "--base64"},
	} {
		code, stdout, stderr := invalidator(t, "", append([]string{"trace", "-c", config}, args...)...)
		if code != exitMisuse || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d, %s%s, want %s", args, code, stdout, stderr, want)
		}
	}
	if code, _, stderr := invalidator(t, "", "trace", "a:1", "-c", config); code != exitFailed || !strings.Contains(stderr, "kafka.brokers") {
		t.Errorf("without a broker: exit %d, %s", code, stderr)
	}
}
