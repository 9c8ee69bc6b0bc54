package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/internal/app"
	"invalidator/replay"
)

// A flush is asked for, with how it is to go, paused, resumed and cancelled.
func TestFlushCommands(t *testing.T) {
	b := newAskBench(t)
	out := b.expect(0, "", "", "flush", "pool", "feed", "--shard", "s00", "--pace", "5000", "--slices", "64", "--max-load", "sum(rate(mysql_reads[1m]))<400000", "--refill", "20s", "--stale", "--stale-for", "45s",
		"--yes", "--id", "f1", "--by", "ann@ops", "--reason", "a bad deploy")
	if d := cmp.Diff("f1 is asked for: flush of pool feed of shard s00\n  how far it is:  invalidator flush status f1\n  to end it:      invalidator flush cancel f1\n", out); d != "" {
		t.Error(d)
	}
	b.expect(0, "f1 was asked for already", "", "flush", "pool", "feed", "--shard", "s00", "--pace", "5000", "--slices", "64", "--max-load", "sum(rate(mysql_reads[1m]))<400000", "--refill", "20s", "--stale",
		"--stale-for", "45s", "--yes", "--id", "f1")
	b.expect(2, "", "the id f1 is taken: ann@ops asked with it for another way of doing it", "flush", "pool", "feed", "--shard", "s00", "--yes", "--id", "f1")
	got := b.controls()
	options := replay.Options{Pace: 5000, Slices: 64, Stale: true, StaleFor: 45, MaxLoad: "sum(rate(mysql_reads[1m]))<400000", Refill: 20}
	if q := got[0].(replay.Request); len(got) != 1 || q.Options != options || q.Target != (replay.Target{Pool: "feed", Shard: "s00"}) || q.By != "ann@ops" || q.Reason != "a bad deploy" {
		t.Errorf("written: %+v", got)
	}

	now := time.Now().UTC()
	b.tell(b.names.Control, replay.Job{ID: "f1", At: now, Worker: "w-1", Scope: replay.Target{Pool: "feed", Shard: "s00"}, Answers: []string{"f1"}, Options: options, Epoch: 7, Limit: 400000, Parts: 64})
	part := func(n int, node, waits string, done bool) {
		b.tell(b.names.Status, replay.Progress{ID: "f1", At: now, Worker: "w-1", Part: &replay.Part{N: n, Of: 64}, Node: node, Round: 1, Epoch: 7, Keys: 1500, Copies: 1500, Kept: 2, Waits: waits, Done: done})
	}
	part(0, "10.0.1.5:11211", "", true)
	part(0, "10.0.2.9:11211", "", true)
	part(1, "10.0.1.5:11211", "the load of 512000 is above 400000", false)
	out = b.expect(0, "", "", "flush", "status", "f1")
	want := `id        f1
what      flush of pool feed of shard s00
state     running
why       the load of 512000 is above 400000
asked     TIME (NOW), by ann@ops: a bad deploy
options   pace 5,000/s, slices 64, stale for 45s, max load sum(rate(mysql_reads[1m]))<400000, refill 20s
begun     TIME (NOW)
done      2 of 128 parts, 1%
deleted   4,500 keys, 4,500 copies, 6 kept

NODE            PART   KEYS  COPIES  KEPT  STATE                               TOLD  BY
10.0.1.5:11211  2/64  3,000   3,000     4  the load of 512000 is above 400000  Ns    w-1
10.0.2.9:11211  1/64  1,500   1,500     2  running                             Ns    w-1
`
	if d := cmp.Diff(want, timeless(out)); d != "" {
		t.Error(d)
	}
	b.expect(0, "f1 is paused: it begins no further part until: invalidator flush resume f1", "", "flush", "pause", "f1", "--by", "bob@ops")
	b.expect(2, "", "f1 is paused already", "flush", "pause", "f1")
	b.expect(0, "paused    by bob@ops", "", "flush", "status", "f1")
	out = b.expect(0, `"state":"running"`, "", "flush", "resume", "f1", "--json")
	var w app.Work
	if err := json.Unmarshal([]byte(out), &w); err != nil || w.ID != "f1" || w.Done != 2 || w.All != 128 || w.Unit != app.UnitParts {
		t.Errorf("%v %s", err, out)
	}
	b.expect(2, "", "f1 is not paused", "flush", "resume", "f1")
	b.expect(0, "f1 is cancelled", "", "flush", "cancel", "f1")
	b.expect(1, "state     cancelled", "", "flush", "status", "f1")
	b.expect(0, "f1  cancelled    1%", "", "flush", "list")
}

// What a worker asked for is cancelled by force alone.
func TestAWorkersFlushIsCancelledByForce(t *testing.T) {
	b := newAskBench(t)
	b.tell(b.names.Control, replay.Request{ID: "promotion/7/s00/feed", At: time.Now(), By: "worker@w-1", Action: replay.Flush, Target: replay.Target{Pool: "feed", Shard: "s00"}, Cause: &replay.Cause{What: replay.Promotion, Epoch: 7}})
	b.expect(2, "", "was asked for by a worker, since keys may be stale that nothing else deletes (promotion): --force cancels it", "flush", "cancel", "promotion/7/s00/feed")
	b.expect(0, "because   promotion at epoch 7", "", "flush", "status", "promotion/7/s00/feed")
	b.expect(0, "promotion/7/s00/feed is cancelled", "", "flush", "cancel", "promotion/7/s00/feed", "--force")
	if q := b.controls()[1].(replay.Request); !q.Force || q.Action != replay.Cancel || q.Of != "promotion/7/s00/feed" {
		t.Errorf("written: %+v", q)
	}
}

// A flush always wants --yes; what cannot be meant is refused. Nothing is written.
func TestFlushMisuse(t *testing.T) {
	b := newAskBench(t)
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"Delete all keys of pool feed? Each is read from the database again. Say --yes, or look first: --dry-run", []string{"pool", "feed"}},
		{"Mark stale all keys of node 10.0.1.6:11211? Each is read from the database again. Say --yes", []string{"node", "10.0.1.6:11211", "--stale"}},
		{`there is no pool feeds (did you mean "feed"?)`, []string{"pool", "feeds", "--yes"}},
		{"there is no node cache-6:11211 (there are: 10.0.1.5:11211, 10.0.1.6:11211, 10.0.2.9:11211)", []string{"node", "cache-6:11211", "--yes"}},
		{`there is no shard s9 (there are: s00, s01)`, []string{"pool", "feed", "--shard", "s9", "--yes"}},
		{`--max-load: the limit "lots" does not end in a number above 0 (write LIMIT, EXPR<LIMIT or URL<LIMIT)`, []string{"pool", "feed", "--max-load", "lots", "--yes"}},
		{`--max-load: the limit "up<0" does not end in a number above 0`, []string{"pool", "feed", "--max-load", "up<0", "--yes"}},
		{"--pace -1 is not a number of copies a second", []string{"pool", "feed", "--pace=-1", "--yes"}},
		{"--slices -1 is not a number of parts", []string{"pool", "feed", "--slices=-1", "--yes"}},
		{"70000 slices are more than 65536", []string{"pool", "feed", "--slices=70000", "--yes"}},
		{"--refill 1.5s is not a number of seconds, such as 10s", []string{"pool", "feed", "--refill", "1.5s", "--yes"}},
		{"--stale-for is of --stale", []string{"pool", "feed", "--stale-for", "5s", "--yes"}},
		{"1 to 60 seconds, of what is marked stale", []string{"pool", "feed", "--stale", "--stale-for", "5m", "--yes"}},
	} {
		code, out, errs := b.invoke(append([]string{"flush"}, tc.args...)...)
		if code != exitMisuse || out != "" || !strings.Contains(errs, tc.want) {
			t.Errorf("%s: exit %d, want %s\n%s%s", strings.Join(tc.args, " "), code, tc.want, out, errs)
		}
	}
	if got := b.controls(); len(got) != 0 {
		t.Errorf("written: %v", got)
	}
}

// A dry run says how many keys there are, each of which would be a miss, and how long it would take.
func TestFlushDryRun(t *testing.T) {
	b := newAskBench(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.await("f1")
		b.tell(b.names.Control, replay.Job{ID: "f1", At: time.Now(), Scope: replay.Target{Pool: "feed"}, Answers: []string{"f1"}, DryRun: true, Epoch: 7, Limit: 1000, Parts: 32})
		b.tell(b.names.Status, replay.Result{ID: "f1", At: time.Now(), Clean: true, Keys: 1_000_000, Copies: 1_000_000, Seconds: 500})
	}()
	b.expect(0, "f1 is done; 1,000,000 keys, 1,000,000 copies would be deleted; as many misses, and it takes 8m at least", "", "flush", "pool", "feed", "--dry-run", "--wait", "--id", "f1")
	<-done
}
