package replay

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/cdc"
	"invalidator/internal/changelog"
)

var at = time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// The records as they stand on the topics: docs/TOPICS.md shows the same.
var control = []struct {
	record Record
	json   string
}{
	{
		Request{ID: "r1", At: at, By: "ann@ops", Reason: "node swap", Action: Replay, Target: Target{Shard: "s00"}, Window: Issued, From: at.Add(-30 * time.Second)},
		`{"v":1,"kind":"request","id":"r1","at":"2026-11-30T10:00:00Z","by":"ann@ops","reason":"node swap","action":"replay","target":{"shard":"s00"},"window":"issued","from":"2026-11-30T09:59:30Z"}`,
	},
	{
		Request{ID: "r2", At: at, By: "ann@ops", Action: Replay, Target: Target{Range: &HashRange{-100, 100}}, Window: Committed,
			From: at.Add(-time.Hour), To: at.Add(-time.Minute), Expires: at.Add(time.Hour), DryRun: true},
		`{"v":1,"kind":"request","id":"r2","at":"2026-11-30T10:00:00Z","by":"ann@ops","action":"replay","target":{"range":{"from":-100,"to":100}},"window":"committed","from":"2026-11-30T09:00:00Z","to":"2026-11-30T09:59:00Z","expires":"2026-11-30T11:00:00Z","dry_run":true}`,
	},
	{
		Request{ID: "f1", At: at, By: "ann@ops", Action: Flush, Target: Target{Pool: "feed"},
			Options: Options{Pace: 5000, Slices: 40, Stale: true, StaleFor: 20, MaxLoad: "sum(rate(mysql_reads[1m]))<400000", Refill: 30}},
		`{"v":1,"kind":"request","id":"f1","at":"2026-11-30T10:00:00Z","by":"ann@ops","action":"flush","target":{"pool":"feed"},"pace":5000,"slices":40,"stale":true,"stale_for":20,"max_load":"sum(rate(mysql_reads[1m]))<400000","refill":30}`,
	},
	{
		Request{ID: "truncate/shop.shop.users/3/4711/1796032800000/user", At: at, By: "worker@w-1", Action: Flush, Target: Target{Pool: "user"}, Cause: &Cause{
			What: Truncate, Source: "shop", Tables: []string{"shop.users"}, Record: Range{"shop.shop.users", 3, 4711, 4712}, Committed: at.Add(-time.Second)}},
		`{"v":1,"kind":"request","id":"truncate/shop.shop.users/3/4711/1796032800000/user","at":"2026-11-30T10:00:00Z","by":"worker@w-1","action":"flush","target":{"pool":"user"},"cause":{"what":"truncate","source":"shop","tables":["shop.users"],"record":{"topic":"shop.shop.users","partition":3,"from":4711,"to":4712},"committed":"2026-11-30T09:59:59Z"}}`,
	},
	{
		Request{ID: "shop/4f2a91c0/9c0b11d2/user", At: at, By: "ann@ops", Action: Flush, Target: Target{Pool: "user"}, Cause: &Cause{What: LostLog, Source: "shop", Gap: "shop/4f2a91c0"}},
		`{"v":1,"kind":"request","id":"shop/4f2a91c0/9c0b11d2/user","at":"2026-11-30T10:00:00Z","by":"ann@ops","action":"flush","target":{"pool":"user"},"cause":{"what":"gap","source":"shop","gap":"shop/4f2a91c0"}}`,
	},
	{
		Request{ID: "promotion/8/s00/feed", At: at, By: "worker@w-1", Action: Flush, Target: Target{Shard: "s00", Pool: "feed"}, Cause: &Cause{What: Promotion, Epoch: 8}},
		`{"v":1,"kind":"request","id":"promotion/8/s00/feed","at":"2026-11-30T10:00:00Z","by":"worker@w-1","action":"flush","target":{"shard":"s00","pool":"feed"},"cause":{"what":"promotion","epoch":8}}`,
	},
	{
		Request{ID: "gained/9", At: at, By: "worker@w-1", Action: Flush, Target: Target{Gained: 9}, Cause: &Cause{What: Gained, Epoch: 9}},
		`{"v":1,"kind":"request","id":"gained/9","at":"2026-11-30T10:00:00Z","by":"worker@w-1","action":"flush","target":{"gained":9},"cause":{"what":"gained","epoch":9}}`,
	},
	{
		Request{ID: "c1", At: at, By: "ann@ops", Action: Cancel, Of: "f1"},
		`{"v":1,"kind":"request","id":"c1","at":"2026-11-30T10:00:00Z","by":"ann@ops","action":"cancel","of":"f1"}`,
	},
	{
		Plan{ID: "r1", At: at, Worker: "w1", Target: Target{Shard: "s00"}, Window: Issued, From: at.Add(-30 * time.Second), To: at,
			Ranges: []PlanRange{{"shop.shop.users", "PmDZ0xCLQ1Kxv0n7b3nT8A==", 3, 4000, 4711, nil}}},
		`{"v":1,"kind":"plan","id":"r1","at":"2026-11-30T10:00:00Z","worker":"w1","target":{"shard":"s00"},"window":"issued","from":"2026-11-30T09:59:30Z","to":"2026-11-30T10:00:00Z","ranges":[{"topic":"shop.shop.users","topic_id":"PmDZ0xCLQ1Kxv0n7b3nT8A==","partition":3,"from":4000,"to":4711}]}`,
	},
	{
		Plan{ID: "r2", At: at, Worker: "w1", Target: Target{Range: &HashRange{-100, 100}}, Window: Committed, From: at.Add(-time.Hour), To: at.Add(-time.Minute), DryRun: true,
			Ranges: []PlanRange{{"shop.shop.users", "PmDZ0xCLQ1Kxv0n7b3nT8A==", 3, 4000, 4711, ptr(int64(4200))}}},
		`{"v":1,"kind":"plan","id":"r2","at":"2026-11-30T10:00:00Z","worker":"w1","target":{"range":{"from":-100,"to":100}},"window":"committed","from":"2026-11-30T09:00:00Z","to":"2026-11-30T09:59:00Z","dry_run":true,"ranges":[{"topic":"shop.shop.users","topic_id":"PmDZ0xCLQ1Kxv0n7b3nT8A==","partition":3,"from":4000,"to":4711,"since":4200}]}`,
	},
	{
		Plan{ID: "r3", At: at, Worker: "w1", Refused: `no shard is named "s0" (did you mean "s00"?)`},
		`{"v":1,"kind":"plan","id":"r3","at":"2026-11-30T10:00:00Z","worker":"w1","refused":"no shard is named \"s0\" (did you mean \"s00\"?)"}`,
	},
	{
		Job{ID: "f1", At: at, Worker: "w1", Scope: Target{Pool: "feed"}, Answers: []string{"f1", "f2"}, Options: Options{Pace: 5000}, Epoch: 8, Limit: 400000, Parts: 2},
		`{"v":1,"kind":"job","id":"f1","at":"2026-11-30T10:00:00Z","worker":"w1","scope":{"pool":"feed"},"answers":["f1","f2"],"pace":5000,"epoch":8,"limit":400000,"parts":2}`,
	},
}

var status = []struct {
	record Record
	json   string
}{
	{
		Progress{ID: "r1", At: at, Worker: "w1", Range: Range{"shop.shop.users", 3, 4000, 4711}, Offset: 4500, Keys: 900, Copies: 1800},
		`{"v":1,"kind":"progress","id":"r1","at":"2026-11-30T10:00:00Z","worker":"w1","range":{"topic":"shop.shop.users","partition":3,"from":4000,"to":4711},"offset":4500,"keys":900,"copies":1800,"done":false}`,
	},
	{
		Progress{ID: "epoch/7-8", At: at, Worker: "w1", Range: Range{"shop.shop.users", 3, 4000, 4711}, Offset: 4711, Owed: 12, Shards: []string{"s00"}, Keys: 900, Copies: 1800, Done: true},
		`{"v":1,"kind":"progress","id":"epoch/7-8","at":"2026-11-30T10:00:00Z","worker":"w1","range":{"topic":"shop.shop.users","partition":3,"from":4000,"to":4711},"offset":4711,"owed":12,"shards":["s00"],"keys":900,"copies":1800,"done":true}`,
	},
	{
		Progress{ID: "f1", At: at, Worker: "w1", Part: &Part{1, 2}, Node: "10.0.1.5:11211", Round: 1, Epoch: 8, Kept: 3, Keys: 900, Copies: 900, Done: true},
		`{"v":1,"kind":"progress","id":"f1","at":"2026-11-30T10:00:00Z","worker":"w1","part":{"n":1,"of":2},"node":"10.0.1.5:11211","round":1,"epoch":8,"kept":3,"keys":900,"copies":900,"done":true}`,
	},
	{
		Result{ID: "r1", At: at, Worker: "w1", Clean: true, Keys: 1300, Copies: 2600},
		`{"v":1,"kind":"result","id":"r1","at":"2026-11-30T10:00:00Z","worker":"w1","clean":true,"keys":1300,"copies":2600}`,
	},
	{
		Result{ID: "r2", At: at, Worker: "w1", Error: "cancelled by ann@ops", Keys: 900, Copies: 1800},
		`{"v":1,"kind":"result","id":"r2","at":"2026-11-30T10:00:00Z","worker":"w1","error":"cancelled by ann@ops","clean":false,"keys":900,"copies":1800}`,
	},
	{
		Gap{ID: "shop/0-16B3748", At: at, Source: "shop", Why: "the slot was lost", From: cdc.Position{LSN: "0/16B3748"}, Tables: []string{"shop.users"}, Pools: []string{"user"}},
		`{"v":1,"kind":"gap","id":"shop/0-16B3748","at":"2026-11-30T10:00:00Z","source":"shop","why":"the slot was lost","from":{"lsn":"0/16B3748"},"tables":["shop.users"],"pools":["user"]}`,
	},
	{
		Event{At: at, Worker: "w1", What: "ring.epoch", About: "7", Detail: map[string]string{"previous": "6"}},
		`{"v":1,"kind":"event","at":"2026-11-30T10:00:00Z","worker":"w1","what":"ring.epoch","about":"7","detail":{"previous":"6"}}`,
	},
	{
		Owed{Node: "10.0.1.5:11211", Group: "invalidator", At: at, Worker: "w1", Partitions: 3, Records: 4711, Since: at.Add(-time.Minute), Off: true},
		`{"v":1,"kind":"owed","node":"10.0.1.5:11211","group":"invalidator","at":"2026-11-30T10:00:00Z","worker":"w1","paid":false,"partitions":3,"records":4711,"since":"2026-11-30T09:59:00Z","off":true,"rate":0}`,
	},
	{
		Owed{Node: "10.0.1.5:11211", Group: "invalidator", At: at, Worker: "w1", Partitions: 1, Records: 900, Since: at.Add(-time.Minute), Rate: 450.5, Seconds: 2},
		`{"v":1,"kind":"owed","node":"10.0.1.5:11211","group":"invalidator","at":"2026-11-30T10:00:00Z","worker":"w1","paid":false,"partitions":1,"records":900,"since":"2026-11-30T09:59:00Z","off":false,"rate":450.5,"seconds":2}`,
	},
	{
		Owed{Node: "10.0.1.5:11211", Group: "invalidator", At: at, Worker: "w1", Paid: true},
		`{"v":1,"kind":"owed","node":"10.0.1.5:11211","group":"invalidator","at":"2026-11-30T10:00:00Z","worker":"w1","paid":true,"partitions":0,"records":0,"off":false,"rate":0}`,
	},
}

func TestRecordsAsTheyStandOnTheTopics(t *testing.T) {
	check := func(record Record, want string, decode, other func([]byte) (Record, error)) {
		t.Helper()
		data, err := Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(data)); d != "" {
			t.Error(d)
		}
		got, err := decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(record, got); d != "" {
			t.Error(d)
		}
		if _, err := other(data); err == nil {
			t.Errorf("%s was read from the other topic", data)
		}
	}
	for _, c := range control {
		check(c.record, c.json, DecodeControl, DecodeStatus)
	}
	for _, c := range status {
		check(c.record, c.json, DecodeStatus, DecodeControl)
	}
}

func TestWhatIsHalfUnderstoodIsRefused(t *testing.T) {
	for name, data := range map[string]string{
		"nothing":                     ``,
		"no object":                   `[]`,
		"no kind":                     `{"v":1,"id":"a"}`,
		"an unknown kind":             `{"v":1,"kind":"wish","id":"a"}`,
		"an unknown field":            `{"v":1,"kind":"request","id":"a","action":"cancel","of":"b","colour":"red"}`,
		"something behind it":         `{"v":1,"kind":"request","id":"a","action":"cancel","of":"b"} x`,
		"no id":                       `{"v":1,"kind":"request","action":"cancel","of":"b"}`,
		"an unknown action":           `{"v":1,"kind":"request","id":"a","action":"drop"}`,
		"two targets":                 `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p","node":"n:1"}}`,
		"a flush of a mapping":        `{"v":1,"kind":"request","id":"a","action":"flush","target":{"mapping":"t/m"}}`,
		"a replay of what was gained": `{"v":1,"kind":"request","id":"a","action":"replay","target":{"gained":3},"window":"issued","from":"2026-11-30T10:00:00Z"}`,
		"a replay with a pace":        `{"v":1,"kind":"request","id":"a","action":"replay","target":{"pool":"p"},"window":"issued","from":"2026-11-30T10:00:00Z","pace":3}`,
		"a window of no kind":         `{"v":1,"kind":"request","id":"a","action":"replay","target":{"pool":"p"},"from":"2026-11-30T10:00:00Z"}`,
		"a flush with a window":       `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"window":"issued","from":"2026-11-30T10:00:00Z"}`,
		"a flush by force":            `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"force":true}`,
		"a cancel in a dry run":       `{"v":1,"kind":"request","id":"a","action":"cancel","of":"b","dry_run":true}`,
		"stale for an hour":           `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"stale":true,"stale_for":3600}`,
		"stale for, not stale":        `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"stale_for":30}`,
		"a pace below 0":              `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"pace":-1}`,
		"a promotion to nothing":      `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p","shard":"s"},"cause":{"what":"promotion"}}`,
		"a gap without a name":        `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"cause":{"what":"gap"}}`,
		"a flush of a shard":          `{"v":1,"kind":"request","id":"a","action":"flush","target":{"shard":"s00"}}`,
		"a cause of a pause":          `{"v":1,"kind":"request","id":"a","action":"pause","target":{"pool":"p"},"cause":{"what":"truncate","source":"s","tables":["a.b"],"record":{"topic":"t","partition":0,"from":1,"to":2}}}`,
		"an unknown cause":            `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"cause":{"what":"rain","source":"s","tables":["a.b"],"record":{"topic":"t","partition":0,"from":1,"to":2}}}`,
		"a cause of nothing":          `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"cause":{"what":"truncate","source":"s","tables":[],"record":{"topic":"t","partition":0,"from":1,"to":2}}}`,
		"a cause of no place":         `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"cause":{"what":"truncate","source":"s","tables":["a.b"],"record":{}}}`,
		"no window":                   `{"v":1,"kind":"request","id":"a","action":"replay","target":{"shard":"s00"},"window":"issued"}`,
		"a window backwards":          `{"v":1,"kind":"request","id":"a","action":"replay","target":{"shard":"s00"},"window":"issued","from":"2026-11-30T10:00:00Z","to":"2026-11-30T09:00:00Z"}`,
		"pause of nothing":            `{"v":1,"kind":"request","id":"a","action":"pause"}`,
		"pause of both":               `{"v":1,"kind":"request","id":"a","action":"pause","of":"b","target":{"pool":"p"}}`,
		"a plan without to":           `{"v":1,"kind":"plan","id":"a","target":{"pool":"p"},"window":"issued","from":"2026-11-30T10:00:00Z","ranges":[]}`,
		"a plan of nothing":           `{"v":1,"kind":"plan","id":"a","window":"issued","from":"2026-11-30T10:00:00Z","to":"2026-11-30T10:00:00Z","ranges":[]}`,
		"a range backwards":           `{"v":1,"kind":"plan","id":"a","target":{"pool":"p"},"window":"issued","from":"2026-11-30T10:00:00Z","to":"2026-11-30T10:00:00Z","ranges":[{"topic":"t","partition":0,"from":5,"to":4}]}`,
		"a range of no time":          `{"v":1,"kind":"plan","id":"a","target":{"pool":"p"},"window":"committed","from":"2026-11-30T10:00:00Z","to":"2026-11-30T10:00:00Z","ranges":[{"topic":"t","partition":0,"from":4,"to":5}]}`,
		"refused and planned":         `{"v":1,"kind":"plan","id":"a","refused":"no","ranges":[{"topic":"t","partition":0,"from":4,"to":5}]}`,
		"a job for nobody":            `{"v":1,"kind":"job","id":"a","scope":{"pool":"p"},"answers":[],"epoch":1,"limit":1,"parts":[{"shard":"s"}]}`,
		"a job without parts":         `{"v":1,"kind":"job","id":"a","scope":{"pool":"p"},"answers":["r"],"epoch":1,"limit":1,"parts":[]}`,
		"a part beyond":               `{"v":1,"kind":"job","id":"a","scope":{"pool":"p"},"answers":["r"],"epoch":1,"limit":1,"parts":[{"shard":"s","n":2,"of":2}]}`,
	} {
		if r, err := DecodeControl([]byte(data)); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		}
	}
	for name, data := range map[string]string{
		"an offset outside":       `{"v":1,"kind":"progress","id":"a","range":{"topic":"t","partition":0,"from":1,"to":4},"offset":5}`,
		"progress of nothing":     `{"v":1,"kind":"progress","id":"a"}`,
		"a part of no node":       `{"v":1,"kind":"progress","id":"a","part":{"shard":"s"}}`,
		"clean with an error":     `{"v":1,"kind":"result","id":"a","error":"no","clean":true}`,
		"clean with a loss":       `{"v":1,"kind":"result","id":"a","lost":3,"clean":true}`,
		"a gap of nothing":        `{"v":1,"kind":"gap","id":"a"}`,
		"an event of nothing":     `{"v":1,"kind":"event"}`,
		"a result of no request":  `{"v":1,"kind":"result"}`,
		"progress of no request":  `{"v":1,"kind":"progress"}`,
		"a request in its place":  `{"v":1,"kind":"request","id":"a","action":"cancel","of":"b"}`,
		"a gap without any limit": `{"v":1,"kind":"gap","id":"a","source":"shop","why":"x"}`,
	} {
		if r, err := DecodeStatus([]byte(data)); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		}
	}
	_, err := DecodeControl([]byte(`{"v":2,"kind":"request","id":"a","action":"cancel","of":"b"}`))
	if !errors.Is(err, changelog.ErrUnknownVersion) || !strings.Contains(err.Error(), "2") {
		t.Error(err)
	}
	if _, err := Encode(Request{ID: "a"}); err == nil {
		t.Error("a request without an action was written")
	}
}

func FuzzDecode(f *testing.F) {
	for _, c := range append(control, status...) {
		f.Add([]byte(c.json))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, decode := range []func([]byte) (Record, error){DecodeControl, DecodeStatus} {
			r, err := decode(data)
			if err != nil {
				continue
			}
			again, err := Encode(r)
			if err != nil {
				t.Fatalf("read, but not written: %v", err)
			}
			if _, err := decode(again); err != nil {
				t.Fatalf("%s: %v", again, err)
			}
		}
	})
}
