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

// The records as they stand on the topics: docs/TOPICS.md shows the same.
var control = []struct {
	record Record
	json   string
}{
	{
		Request{ID: "r1", At: at, By: "ann@ops", Action: Replay, Target: Target{Shard: "s00"}, From: at.Add(-30 * time.Second)},
		`{"v":1,"kind":"request","id":"r1","at":"2026-11-30T10:00:00Z","by":"ann@ops","action":"replay","target":{"shard":"s00"},"from":"2026-11-30T09:59:30Z"}`,
	},
	{
		Request{ID: "f1", At: at, By: "ann@ops", Action: Flush, Target: Target{Pool: "feed"}, DryRun: true},
		`{"v":1,"kind":"request","id":"f1","at":"2026-11-30T10:00:00Z","by":"ann@ops","action":"flush","target":{"pool":"feed"},"dry_run":true}`,
	},
	{
		Request{ID: "truncate/shop.shop.users/3/4711/1796032800000/user", At: at, By: "worker@w-1", Action: Flush, Target: Target{Pool: "user"}, Cause: &Cause{
			What: Truncate, Source: "shop", Tables: []string{"shop.users"}, Record: Range{"shop.shop.users", 3, 4711, 4712}, Committed: at.Add(-time.Second)}},
		`{"v":1,"kind":"request","id":"truncate/shop.shop.users/3/4711/1796032800000/user","at":"2026-11-30T10:00:00Z","by":"worker@w-1","action":"flush","target":{"pool":"user"},"cause":{"what":"truncate","source":"shop","tables":["shop.users"],"record":{"topic":"shop.shop.users","partition":3,"from":4711,"to":4712},"committed":"2026-11-30T09:59:59Z"}}`,
	},
	{
		Request{ID: "c1", At: at, By: "ann@ops", Action: Cancel, Of: "f1"},
		`{"v":1,"kind":"request","id":"c1","at":"2026-11-30T10:00:00Z","by":"ann@ops","action":"cancel","of":"f1"}`,
	},
	{
		Plan{ID: "r1", At: at, Ranges: []Range{{"shop.shop.users", 3, 4000, 4711}}},
		`{"v":1,"kind":"plan","id":"r1","at":"2026-11-30T10:00:00Z","ranges":[{"topic":"shop.shop.users","partition":3,"from":4000,"to":4711}]}`,
	},
}

var status = []struct {
	record Record
	json   string
}{
	{
		Progress{ID: "r1", At: at, Worker: "w1", Range: Range{"shop.shop.users", 3, 4000, 4711}, Offset: 4500, Keys: 900, Copies: 1800},
		`{"v":1,"kind":"progress","id":"r1","at":"2026-11-30T10:00:00Z","worker":"w1","range":{"topic":"shop.shop.users","partition":3,"from":4000,"to":4711},"offset":4500,"slice":0,"keys":900,"copies":1800,"done":false}`,
	},
	{
		Result{ID: "r1", At: at, Worker: "w1", Keys: 1300, Copies: 2600},
		`{"v":1,"kind":"result","id":"r1","at":"2026-11-30T10:00:00Z","worker":"w1","keys":1300,"copies":2600}`,
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
		"nothing":             ``,
		"no object":           `[]`,
		"no kind":             `{"v":1,"id":"a"}`,
		"an unknown kind":     `{"v":1,"kind":"wish","id":"a"}`,
		"an unknown field":    `{"v":1,"kind":"request","id":"a","action":"cancel","of":"b","force":true}`,
		"something behind it": `{"v":1,"kind":"request","id":"a","action":"cancel","of":"b"} x`,
		"no id":               `{"v":1,"kind":"request","action":"cancel","of":"b"}`,
		"an unknown action":   `{"v":1,"kind":"request","id":"a","action":"drop"}`,
		"two targets":         `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p","node":"n:1"}}`,
		"a flush of a shard":  `{"v":1,"kind":"request","id":"a","action":"flush","target":{"shard":"s00"}}`,
		"a cause of a pause":  `{"v":1,"kind":"request","id":"a","action":"pause","target":{"pool":"p"},"cause":{"what":"truncate","source":"s","tables":["a.b"],"record":{"topic":"t","partition":0,"from":1,"to":2}}}`,
		"an unknown cause":    `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"cause":{"what":"rain","source":"s","tables":["a.b"],"record":{"topic":"t","partition":0,"from":1,"to":2}}}`,
		"a cause of nothing":  `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"cause":{"what":"truncate","source":"s","tables":[],"record":{"topic":"t","partition":0,"from":1,"to":2}}}`,
		"a cause of no place": `{"v":1,"kind":"request","id":"a","action":"flush","target":{"pool":"p"},"cause":{"what":"truncate","source":"s","tables":["a.b"],"record":{}}}`,
		"no window":           `{"v":1,"kind":"request","id":"a","action":"replay","target":{"shard":"s00"}}`,
		"a window backwards":  `{"v":1,"kind":"request","id":"a","action":"replay","target":{"shard":"s00"},"from":"2026-11-30T10:00:00Z","to":"2026-11-30T09:00:00Z"}`,
		"pause of nothing":    `{"v":1,"kind":"request","id":"a","action":"pause"}`,
		"pause of both":       `{"v":1,"kind":"request","id":"a","action":"pause","of":"b","target":{"pool":"p"}}`,
		"a range backwards":   `{"v":1,"kind":"plan","id":"a","ranges":[{"topic":"t","partition":0,"from":5,"to":4}]}`,
	} {
		if r, err := DecodeControl([]byte(data)); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		}
	}
	for name, data := range map[string]string{
		"an offset outside":       `{"v":1,"kind":"progress","id":"a","range":{"topic":"t","partition":0,"from":1,"to":4},"offset":5}`,
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
