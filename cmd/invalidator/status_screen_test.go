package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/internal/app"
	"invalidator/internal/gap"
	"invalidator/internal/ui"
	"invalidator/replay"
)

// What is at hand is seen at once: which logs are behind and since when, what is done again, what was found, the worst last; and nothing that a process said before it was lost.
func TestStatusScreen(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	f := app.Fleet{
		Group: "invalidator",
		Processes: []app.Process{
			{ID: "w-1", Role: "worker", At: now, Started: now.Add(-time.Hour), Version: "v1", Mappings: app.ProcessMappings{Fingerprint: "aa", Since: now},
				Off: []app.NodeOff{{Node: "a:1", Since: now.Add(-time.Minute), Why: "it is silent"}}, Paying: []app.PassNow{{Topic: "shop.users", Partition: 1, Whose: "node b:1", From: 3, To: 9}}},
			{ID: "w-2", Role: "worker", At: now, Started: now.Add(-time.Hour), Version: "v1", Mappings: app.ProcessMappings{Fingerprint: "aa", Since: now}, Lost: true,
				Off: []app.NodeOff{{Node: "c:1", Since: now}}, Paying: []app.PassNow{{Topic: "shop.users", Whose: "node c:1"}}},
		},
		Owing: []app.Owing{{Owes: "node", Name: "a:1", Partitions: 3, Records: 4711, Since: now.Add(-time.Minute)}, {Owes: "epoch", Name: "7-8", Partitions: 3}, {Owes: "replay", Name: "r1", Partitions: 3}},
		Lags: []app.PartitionLag{
			{Topic: "shop.users", Partition: 0, Lag: 90_000, End: 1, Source: "shop", Age: 12}, {Topic: "shop.users", Partition: 1, Lag: 2, End: 1, Source: "shop", Age: 3700},
			{Topic: "shop.items", Partition: 0, Lag: 500, End: 1, Source: "shop"}, {Topic: "orders", Partition: 0, Lag: 0, End: 1},
		},
		Works: []app.Work{
			{ID: "epoch/7-8", Kind: app.KindEpoch, State: app.WorkRunning, Begun: now.Add(-3 * time.Second), Done: 30, All: 40, Left: 1, Keys: 1000},
			{ID: "f1", Kind: app.KindFlush, State: app.WorkPaused, At: now.Add(-time.Hour), By: "ann@ops", Keys: 123456, Why: "the load is above its limit"},
		},
		Findings: []app.Finding{
			{Severity: string(cdc.SeverityError), Where: "worker w-2", What: "lost"},
			{Severity: string(cdc.SeverityWarning), Where: "node a:1", What: "it is off"},
			{Severity: "note", Where: "fleet", What: "a change is on its way"},
		},
	}
	var b bytes.Buffer
	if err := fleetForPeople(&b, f, now); err != nil {
		t.Fatal(err)
	}
	want := `PROCESS  ROLE    STATE  UP  RING  MAPPINGS  IN FORCE  VERSION
w-2      worker  lost   1h  -     aa        0s        v1
w-1      worker  up     1h  -     aa        0s        v1

OWES DELETES  PARTITIONS  RECORDS  SINCE  STATE          PAID IN
node a:1               3     4711     1m  is being paid  ?

TOPIC BEHIND  PARTITIONS  RECORDS  OLDEST  AT MOST  IN PARTITION  SOURCE
shop.users             2    90002      1h        2  1             shop
shop.items             1      500    <10s      500  0             shop

ID         STATE    DONE  LEFT     KEYS  ASKED  BY        WHY
epoch/7-8  running   75%    1s    1,000  3s     the ring
f1         paused      -     -  123,456  1h     ann@ops   the load is above its limit

NODE OFF  FOR WORKER  SINCE  WHY
a:1       w-1            1m  it is silent

PASS PAYS  BY WORKER  PARTITION     FROM  TO
node b:1   w-1        shop.users/1     3   9

note: fleet: a change is on its way
warning: node a:1: it is off
error: worker w-2: lost

1 thing needs a person
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
	for n := range 30 {
		f.Findings = append(f.Findings, app.Finding{Severity: string(cdc.SeverityError), Where: fmt.Sprint("gap ", n), What: "x"})
	}
	b.Reset()
	if err := fleetForPeople(&b, f, now); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\n13 more, milder ones, are left out (--json has all)\nerror: gap 10: x\n") || !strings.HasSuffix(b.String(), "\n31 things need a person\n") {
		t.Errorf("%s", b.String())
	}
}

// Replays, flushes, gaps and parked records are lines of their own.
func TestStatusAsJSON(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	f := app.Fleet{
		Lags:  []app.PartitionLag{{Topic: "t", Committed: 1, End: 3, Lag: 2, Source: "shop", Age: 90}},
		Works: []app.Work{{ID: "r1", Kind: app.KindReplay, State: app.WorkRunning, Target: replay.Target{Shard: "s00"}, At: at, By: "ann", Unit: app.UnitRecords}},
		Gaps:  []*gap.Case{{Gap: gap.Gap{V: 2, ID: "t/0/9", Source: "shop", Why: "x", Seen: at}}}, Parked: app.Parked{Records: 2, Last: at},
		Findings: []app.Finding{{Severity: "note", Where: "a", What: "b"}},
	}
	var b bytes.Buffer
	if err := fleetAsJSON(&b, f); err != nil {
		t.Fatal(err)
	}
	want := `{"topic":"t","partition":0,"committed":1,"end":3,"lag":2,"source":"shop","age":90}
{"id":"r1","kind":"replay","state":"running","target":{"shard":"s00"},"by":"ann","at":"2026-11-30T10:00:00Z","unit":"records","done":0,"all":0,"keys":0,"copies":0}
{"state":"open","v":2,"id":"t/0/9","source":"shop","stops":false,"why":"x","seen":"2026-11-30T10:00:00Z"}
{"parked":2,"last":"2026-11-30T10:00:00Z"}
{"severity":"note","where":"a","what":"b"}
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}

// What the topics tell of a replay that runs, and of one that a worker asked for and that failed, is in the status, and the exit code with it.
func TestStatusTellsOfWorks(t *testing.T) {
	b := newAskBench(t)
	b.expect(0, "is asked for", "", "replay", "shard", "s00", "--since", "30s", "--id", "r1")
	out := b.expect(0, "all is well", "", "status")
	if !strings.Contains(out, "r1  waiting     -     -     0") {
		t.Errorf("%s", out)
	}
	b.tell(b.names.Control, replay.Request{ID: "promotion/7/s00/feed", At: time.Now(), By: "worker@w-1", Action: replay.Flush, Target: replay.Target{Pool: "feed", Shard: "s00"}, Cause: &replay.Cause{What: replay.Promotion, Epoch: 7}})
	b.tell(b.names.Status, replay.Result{ID: "promotion/7/s00/feed", At: time.Now(), Error: "no node can be dumped"})
	b.expect(1, "error: flush promotion/7/s00/feed: it failed: no node can be dumped, and what it was to delete may be stale", "", "status")
	out = b.expect(1, `"id":"r1"`, "", "status", "--json")
	for line := range strings.Lines(out) {
		var x map[string]any
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	b.expect(2, "", "--watch and --json exclude each other", "status", "--watch", "--json")
}

// looks is an output that counts looks, and interrupts after two.
type looks struct {
	text      strings.Builder
	interrupt func()
}

func (l *looks) Write(p []byte) (int, error) {
	n, err := l.text.Write(p)
	if strings.Count(l.text.String(), "PROCESS ") == 2 {
		l.interrupt()
	}
	return n, err
}

// Where there is no terminal --watch writes one look below the other, until it is interrupted.
func TestStatusWatches(t *testing.T) {
	config, speak := fleetTopic(t)
	speak("w-1-AAAAAAAA", lastWord(time.Now().Add(time.Minute), "worker", "aa", time.Hour, ""))
	ctx, interrupt := context.WithCancel(t.Context())
	out, errs := &looks{interrupt: interrupt}, &bytes.Buffer{}
	if code := run(ctx, []string{"status", "--watch", "-c", config}, strings.NewReader(""), out, errs); code != exitOK || errs.Len() > 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
	text := out.text.String()
	if strings.Count(text, "  fleet fleet  all is well\n\nPROCESS") != 2 || strings.Contains(text, "\x1b") {
		t.Errorf("%s", text)
	}
}

// A look that fails leaves what was seen before, and says so.
func TestAFrameThatIsOld(t *testing.T) {
	s := screen{paint: ui.New(&bytes.Buffer{})}
	got := s.frame(app.Fleet{Group: "g", Findings: []app.Finding{{Severity: "error", Where: "a", What: "b"}}}, "kafka: no answer", time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC))
	want := "2026-11-30 10:00:00  fleet g  1 thing needs a person\nwhat is shown is old: kafka: no answer\n\nerror: a: b\n\nnothing is owed\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestFit(t *testing.T) {
	rows := [][]string{{"PROCESS", "N", "WHY"}, {"a-long-name", "123456", "a reason that is long"}}
	for width, want := range map[int]string{
		0:  "a-long-name|123456|a reason that is long",
		42: "a-long-name|123456|a reason that is long",
		41: "a-long-name|123456|a reason that is lo…",
		29: "a-long-name|123456|a reaso…",
		27: "a-lo…name|123456|a reaso…",
		5:  "a-l…name|123456|a reaso…",
	} {
		if got := strings.Join(fit(rows, width, []int{1})[1], "|"); got != want {
			t.Errorf("%d columns: %s, want %s", width, got, want)
		}
	}
	if rows[1][0] != "a-long-name" {
		t.Error("what was given is another now")
	}
}

func TestInPlace(t *testing.T) {
	text := "\x1b[31;1mone\x1b[0m two three\nfour\nfive\nsix\n"
	want := screenHome + "\x1b[31;1mone\x1b[0m two\x1b[0m" + lineRest + "four" + lineRest + "2 lines\x1b[0m" + lineRest + screenRest
	if d := cmp.Diff(want, inPlace(text, 7, 4)); d != "" {
		t.Error(d)
	}
	want = screenHome + strings.Join([]string{"\x1b[31;1mone\x1b[0m two three", "four", "five", "six"}, lineRest) + lineRest + screenRest
	if d := cmp.Diff(want, inPlace(text, 0, 0)); d != "" {
		t.Error(d)
	}
}
