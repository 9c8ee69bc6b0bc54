package main

import (
	"bytes"
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/app"
	"invalidator/internal/changelog"
	"invalidator/replay"
)

// askBench is a fake Kafka with what a fleet has written down: a mapping file, a ring record, a worker that runs, and a change topic with some records.
type askBench struct {
	*gapBench
	state *changelog.StateStore
	cl    *kgo.Client
}

const askUsers = "shop.shop.users"

func newAskBench(t *testing.T) *askBench {
	t.Helper()
	b := &askBench{gapBench: newGapBench(t)}
	var err error
	if b.state, err = changelog.OpenState(b.kafka, b.names.State); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.state.Close)
	if b.cl, err = b.kafka.Client(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.cl.Close)
	text := "version: 1\nteam: profiles\npools: [user]\nunderivable: [feed]\nreaders: meta\nmappings:\n  - {name: user, table: shop.users, keys: ['user:{id}']}\n"
	err = b.state.PutMapping(t.Context(), "invalidator", changelog.MappingFile{Name: "t.yaml", Team: "profiles", Text: text, Since: time.Now()}, changelog.SavedMapping{})
	if err != nil {
		t.Fatal(err)
	}
	ring := `{"epoch":7,"shards":[{"id":"s00","primary":{"addr":"10.0.1.5:11211"},"replicas":[{"addr":"10.0.2.9:11211"}]},{"id":"s01","primary":{"addr":"10.0.1.6:11211"}}]}`
	if err := b.state.PutRing(t.Context(), "invalidator", changelog.SavedRing{Epoch: 7, Seen: time.Now(), Record: json.RawMessage(ring)}); err != nil {
		t.Fatal(err)
	}
	word := strings.Replace(lastWord(time.Now(), "worker", "aa", time.Hour, ""), `"group":"fleet"`, `"group":"invalidator"`, 1)
	if err := b.state.Put(t.Context(), "process/w-1", []byte(word)); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(b.cl)
	if _, err := changelog.EnsureTopics(t.Context(), adm, []changelog.TopicSpec{changelog.Settings{Partitions: 1}.Change(askUsers)}); err != nil {
		t.Fatal(err)
	}
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: askUsers, At: 0, LeaderEpoch: -1})
	if err := adm.CommitAllOffsets(t.Context(), "invalidator", offsets); err != nil {
		t.Fatal(err)
	}
	b.change(20)
	return b
}

// change appends so many records.
func (b *askBench) change(n int) {
	b.t.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: askUsers, Value: []byte("{}")}
	}
	if err := b.cl.ProduceSync(b.t.Context(), rs...).FirstErr(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *askBench) tell(topic string, record replay.Record) {
	b.t.Helper()
	value, err := replay.Encode(record)
	if err == nil {
		err = b.cl.ProduceSync(b.t.Context(), &kgo.Record{Topic: topic, Value: value}).FirstErr()
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// invoke runs a command with the bench's configuration.
func (b *askBench) invoke(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	return invalidator(b.t, "", append(args, "--config", b.config)...)
}

// expect is invoke, which must end so, with parts of what it says.
func (b *askBench) expect(code int, stdout, stderr string, args ...string) string {
	b.t.Helper()
	c, out, errs := b.invoke(args...)
	if c != code || !strings.Contains(out, stdout) || !strings.Contains(errs, stderr) {
		b.t.Errorf("%s: exit %d, want %d with %q and %q\n%s%s", strings.Join(args, " "), c, code, stdout, stderr, out, errs)
	}
	return out
}

// controls are the records of the control topic.
func (b *askBench) controls() (all []replay.Record) {
	b.t.Helper()
	err := changelog.ReadTopic(b.t.Context(), b.kafka, b.names.Control, time.Time{}, false, func(r changelog.TopicRecord) error {
		x, err := replay.DecodeControl(r.Value)
		all = append(all, x)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// await waits for a request, and returns it.
func (b *askBench) await(id string) replay.Request {
	for b.t.Context().Err() == nil {
		for _, x := range b.controls() {
			if q, ok := x.(replay.Request); ok && q.ID == id {
				return q
			}
		}
	}
	return replay.Request{}
}

// times stand in golden texts for what differs from run to run.
var times = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`\(\d+s ago\)`), "(NOW)"},
	{regexp.MustCompile(`\b\d(s {4,})`), "N$1"}, // in a table: for how long
}

func timeless(text string) string {
	for _, x := range times {
		text = x.what.ReplaceAllString(text, x.by)
	}
	return text
}

// A replay is asked for, listed, shown and cancelled.
func TestReplayCommands(t *testing.T) {
	b := newAskBench(t)
	out := b.expect(0, "", "", "replay", "shard", "s00", "--since", "30s", "--id", "r1", "--by", "ann@ops", "--reason", "the primary died")
	want := `r1 is asked for: replay of shard s00, what was deleted since TIME; 20 records lie in the window
  how far it is:  invalidator replay status r1
  to end it:      invalidator replay cancel r1
`
	if d := cmp.Diff(want, timeless(out)); d != "" {
		t.Error(d)
	}
	b.expect(0, "r1 was asked for already: replay of shard s00", "no row gives the keys of feed: after a promotion also flush", "replay", "shard", "s00", "--since", "30s", "--id", "r1")
	b.expect(2, "", "the id r1 is taken: ann@ops asked with it for another target (shard s00)", "replay", "shard", "s01", "--since", "30s", "--id", "r1")
	out = b.expect(0, "", "", "replay", "mapping", "user", "--from", "2h", "--to", "1m", "--expires", "1h", "--dry-run", "--json")
	var w app.Work
	if err := json.Unmarshal([]byte(out), &w); err != nil || !strings.HasPrefix(w.ID, "replay-mapping-user-") || w.State != app.WorkWaiting ||
		!w.DryRun || w.Target.Mapping != "profiles/user" || w.Window != replay.Committed || w.To.Sub(w.From) != 119*time.Minute || w.Expires.IsZero() || w.By == "" {
		t.Errorf("%v: %s", err, out)
	}
	got := b.controls()
	if len(got) != 2 || got[0].(replay.Request).Window != replay.Issued || got[0].(replay.Request).Reason != "the primary died" {
		t.Fatalf("written: %+v", got)
	}

	now := time.Now().UTC()
	first := got[0].(replay.Request)
	b.tell(b.names.Control, replay.Plan{ID: "r1", At: now, Worker: "w-1", Target: first.Target, Window: first.Window, From: first.From, To: now})
	b.tell(b.names.Status, replay.Progress{ID: "r1", At: now, Worker: "w-1", Range: replay.Range{Topic: askUsers, To: 20}, Offset: 0})
	b.tell(b.names.Status, replay.Progress{ID: "r1", At: now.Add(2 * time.Second), Worker: "w-1", Range: replay.Range{Topic: askUsers, To: 20}, Offset: 5, Keys: 1200, Copies: 2400, Owed: 3})
	b.tell(b.names.Status, replay.Progress{ID: "epoch/6-7", At: now, Worker: "w-1", Range: replay.Range{Topic: askUsers, To: 8}, Offset: 8, Keys: 2, Shards: []string{"s00"}, Done: true})
	out = b.expect(0, "", "", "replay", "status", "r1")
	want = `id        r1
what      replay of shard s00
window    what was deleted since TIME and until TIME
state     running
asked     TIME (NOW), by ann@ops: the primary died
begun     TIME (NOW)
done      5 of 20 records, 25%, about 6s left
deleted   1,200 keys, 2,400 copies, 3 left to a pool's debt

PARTITION          FROM  AT  TO   KEYS  STATE    TOLD  BY
shop.shop.users/0     0   5  20  1,200  running  Ns    w-1
`
	if d := cmp.Diff(want, timeless(out)); d != "" {
		t.Error(d)
	}
	out = b.expect(0, "", "", "replay", "list")
	want = `ID                          STATE          DONE  LEFT   KEYS  ASKED  BY
r1                          running         25%    6s  1,200  Ns     ann@ops
replay-mapping-user-xxxxxx  waiting (dry)     -     -      0  Ns     me@here
epoch/6-7                   done           100%     -      2  Ns     the ring
`
	if d := cmp.Diff(want, strings.ReplaceAll(strings.ReplaceAll(timeless(out), w.ID, "replay-mapping-user-xxxxxx"), w.By, "me@here")); d != "" {
		t.Error(d)
	}
	if out := b.expect(0, `{"id":"r1","kind":"replay","state":"running"`, "", "replay", "list", "--json"); strings.Count(out, "\n") != 3 {
		t.Errorf("%s", out)
	}
	if out := b.expect(0, "", "", "flush", "list"); out != "" {
		t.Errorf("no flush, and it lists %s", out)
	}
	b.expect(0, "what      what the change of the ring's epoch makes deleted again; promoted: s00", "", "replay", "status", "epoch/6-7")
	b.expect(2, "", `nothing has the id "r2": did you mean "r1"?`, "replay", "status", "r2")

	b.expect(0, "r1 is cancelled: what is deleted stays so", "", "replay", "cancel", "r1", "--by", "bob@ops")
	b.expect(2, "", "r1 is over: cancelled", "replay", "cancel", "r1")
	b.expect(1, "cancelled by bob@ops", "", "replay", "status", "r1")
	b.expect(2, "", "r1 is a replay (invalidator replay cancel r1)", "flush", "cancel", "r1")
}

// What cannot be meant ends with exit code 2 and says what mends it. Nothing is written.
func TestReplayMisuse(t *testing.T) {
	b := newAskBench(t)
	for _, tc := range []struct {
		want string
		args []string
	}{
		{`there is no shard s0 (did you mean "s00"?)`, []string{"shard", "s0", "--since", "30s"}},
		{`there is no pool usr (did you mean "user"?)`, []string{"pool", "usr", "--since", "30s"}},
		{`there is no mapping usr (did you mean "profiles/user"?)`, []string{"mapping", "usr", "--since", "30s"}},
		{`there is no node 10.0.1.9:11211 (did you mean "10.0.1.5:11211"?)`, []string{"node", "10.0.1.9:11211", "--since", "30s"}},
		{`"x" is no hash: a whole number from -9223372036854775808`, []string{"range", "x", "5", "--since", "30s"}},
		{"the range from -5 to -5 is all of the ring", []string{"range", "-5", "-5", "--since", "30s"}},
		{"which window? --since 30s, or --from T --to T", []string{"shard", "s00"}},
		{"which window?", []string{"shard", "s00", "--to", "1m"}},
		{"--since and --from exclude each other", []string{"shard", "s00", "--since", "30s", "--from", "1h"}},
		{`--since "half an hour" is not so long ago as 30s or 2h`, []string{"shard", "s00", "--since", "half an hour"}},
		{`--since "-30s" is not`, []string{"shard", "s00", "--since=-30s"}},
		{`--from "yesterday" is not a time like 2026-11-30T10:00:00Z, so long ago as 2h, or a place in a log`, []string{"shard", "s00", "--from", "yesterday"}},
		{"the window begins in the future: at 2099-01-01T00:00:00Z", []string{"shard", "s00", "--from", "2099-01-01T00:00:00Z"}},
		{"the window ends in the future: at 2099-01-01T00:00:00Z", []string{"shard", "s00", "--from", "1h", "--to", "2099-01-01T00:00:00Z"}},
		{"the window is the wrong way round", []string{"shard", "s00", "--from", "1h", "--to", "2h"}},
		{"it would have expired already", []string{"shard", "s00", "--since", "30s", "--expires=-1s"}},
		{`the id "a b" is none`, []string{"shard", "s00", "--since", "30s", "--id", "a b"}},
	} {
		code, out, errs := b.invoke(append([]string{"replay"}, tc.args...)...)
		if code != exitMisuse || out != "" || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit %d, want %s\n%s%s", strings.Join(tc.args, " "), code, tc.want, out, errs)
		}
	}
	if got := b.controls(); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
	b.expect(0, "replay of range -9000 5", "", "replay", "range", "-9000", "5", "--since", "30s")
	if got := b.controls(); len(got) != 1 || *got[0].(replay.Request).Target.Range != (replay.HashRange{From: -9000, To: 5}) {
		t.Errorf("written: %+v", got)
	}
}

// What deletes much wants --yes where nobody can be asked; a dry run deletes nothing.
func TestAReplayOfMuchWantsYes(t *testing.T) {
	b := newAskBench(t)
	b.change(2*askReplayAbove + 2)
	b.expect(0, "20,022 records lie in the window", "", "replay", "pool", "user", "--since", "1h", "--dry-run")
	b.expect(2, "", "Replay about 20,022 keys? Each is read from the database again. Say --yes, or look first: --dry-run",
		"replay", "pool", "user", "--since", "1h")
	b.expect(2, "", "Replay about 10,011 keys?", "replay", "shard", "s00", "--since", "1h")
	b.expect(0, "is asked for", "", "replay", "shard", "s00", "--since", "1h", "--yes")
	if got := b.controls(); len(got) != 2 {
		t.Errorf("written: %v", got)
	}
}

// --wait shows how far it is in lines, and ends as the work does.
func TestReplayWaits(t *testing.T) {
	b := newAskBench(t)
	work := func(id string, result replay.Result) (stop func()) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			q := b.await(id)
			now := time.Now().UTC()
			b.tell(b.names.Control, replay.Plan{ID: id, At: now, Target: q.Target, Window: q.Window, From: q.From, To: now, DryRun: q.DryRun})
			b.tell(b.names.Status, replay.Progress{ID: id, At: now, Worker: "w-1", Range: replay.Range{Topic: askUsers, To: 20}, Offset: 20, Keys: 1300, Copies: 2600, Done: true})
			result.ID, result.At = id, now
			b.tell(b.names.Status, result)
		}()
		return func() { <-done }
	}
	stop := work("r1", replay.Result{Clean: true, Keys: 1300, Copies: 2600, Owed: 4})
	out := b.expect(0, "", "100% done, 20 of 20 records, 1.3k keys, 2.6k copies\n", "replay", "shard", "s00", "--since", "30s", "--id", "r1", "--wait")
	stop()
	if want := "r1 is done; 1,300 keys, 2,600 copies deleted; 4 keys left to a paused pool or a storm, which owes them"; !strings.Contains(out, want) {
		t.Errorf("%s", out)
	}
	stop = work("r2", replay.Result{Error: "no ring", Keys: 1})
	b.expect(1, "r2 is failed: no ring; 1 key, 0 copies deleted", "", "replay", "shard", "s00", "--since", "30s", "--id", "r2", "--wait")
	stop()
	stop = work("r3", replay.Result{Lost: 12})
	b.expect(1, "r3 is incomplete; 0 keys, 0 copies deleted; the log no longer held 12 records", "", "replay", "shard", "s00", "--since", "30s", "--id", "r3", "--wait")
	stop()
	stop = work("r4", replay.Result{Clean: true, Keys: 7, Copies: 14})
	out = b.expect(0, `"state":"done"`, "", "replay", "shard", "s00", "--since", "30s", "--id", "r4", "--dry-run", "--wait", "--json")
	stop()
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last app.Work
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.State != app.WorkDone || last.Keys != 7 || !last.DryRun || last.Parts != nil {
		t.Errorf("%v %s", err, out)
	}
}

// An interrupt leaves the request running, and says how to end it.
func TestAnInterruptLeavesItRunning(t *testing.T) {
	b := newAskBench(t)
	ctx, interrupt := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.await("r1")
		interrupt()
	}()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"replay", "shard", "s00", "--since", "30s", "--id", "r1", "--wait", "--config", b.config}, strings.NewReader(""), &out, &errs)
	<-done
	if code != exitFailed || !strings.Contains(errs.String(), "r1 goes on without this terminal\n  how far it is:  invalidator replay status r1\n  to end it:      invalidator replay cancel r1\n") {
		t.Errorf("exit %d\n%s%s", code, out.String(), errs.String())
	}
	for _, x := range b.controls() {
		if q := x.(replay.Request); q.Action == replay.Cancel {
			t.Errorf("it was cancelled: %+v", q)
		}
	}
}

// Without a worker it is asked for all the same, and that is said; without a broker nothing is.
func TestAReplayWithoutAFleet(t *testing.T) {
	b := newAskBench(t)
	if err := b.state.Remove(t.Context(), "process/w-1"); err != nil {
		t.Fatal(err)
	}
	b.expect(0, "is asked for", "no worker runs: it begins when one does", "replay", "shard", "s00", "--since", "30s")
	config := file(t, t.TempDir(), "invalidator.yaml", "kafka: {brokers: ['127.0.0.1:1']}\n")
	for _, args := range [][]string{{"replay", "shard", "s00", "--since", "30s"}, {"replay", "list"}, {"replay", "status", "x"}, {"replay", "cancel", "x"}, {"flush", "pool", "p", "--yes"}, {"flush", "list"}, {"flush", "pause", "x"}} {
		code, out, errs := invalidator(t, "", append(args, "-c", config)...)
		if code != exitFailed || out != "" || !strings.Contains(errs, "kafka.brokers") {
			t.Errorf("%s: exit %d\n%s%s", args, code, out, errs)
		}
	}
}

func TestNumbersBelowZero(t *testing.T) {
	for _, tc := range [][2]string{
		{"replay range -5 10 --since 30s", "replay range \u22125 10 --since 30s"},
		{"--log-level debug replay range 5 -10 -c x", "--log-level debug replay range 5 \u221210 -c x"},
		{"flush pool -5", "flush pool -5"},
		{"range -5", "range -5"},
	} {
		if got := strings.Join(numbersBelowZero(strings.Fields(tc[0])), " "); got != tc[1] {
			t.Errorf("%s is %s", tc[0], got)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := grouped(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1.0k", 99_949: "99.9k", 123_456: "123k", 4_200_000: "4.2M", 123_456_789: "123M"} {
		if got := short(n); got != want {
			t.Errorf("%d is %s", n, got)
		}
	}
	if one, more := number(1, "key", "keys"), number(2000, "key", "keys"); one != "1 key" || more != "2,000 keys" {
		t.Error(one, more)
	}
}
