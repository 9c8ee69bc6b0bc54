package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"invalidator/internal/app"
)

func TestDryRunBeginsWhereItIsTold(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		cmd        runCmd
		want, fail string
	}{
		{runCmd{}, "", ""},
		{runCmd{DryRun: true}, "", ""},
		{runCmd{DryRun: true, From: "Latest"}, "latest", ""},
		{runCmd{DryRun: true, From: "earliest"}, "earliest", ""},
		{runCmd{DryRun: true, From: "2h"}, "2026-11-30T08:00:00Z", ""},
		{runCmd{DryRun: true, From: "2026-11-30T09:00:00+02:00"}, "2026-11-30T07:00:00Z", ""},
		{runCmd{DryRun: true, From: "-2h"}, "", "is not latest"},
		{runCmd{DryRun: true, From: "yesterday"}, "", "is not latest"},
		{runCmd{From: "latest"}, "", "are for --dry-run"},
		{runCmd{JSON: true}, "", "are for --dry-run"},
	} {
		got, err := tc.cmd.from(now)
		if got != tc.want || (err == nil) != (tc.fail == "") || err != nil && !strings.Contains(err.Error(), tc.fail) {
			t.Errorf("%+v begins at %q, %v; want %q, %s", tc.cmd, got, err, tc.want, tc.fail)
		}
	}
	if code, _, stderr := invalidator(t, "", "run", "--from", "latest"); code != exitMisuse || !strings.Contains(stderr, "are for --dry-run") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

func TestDryRunForPeople(t *testing.T) {
	at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	for _, x := range []any{
		app.DrySample{At: at, Pool: "user", Key: "user:1", Copies: []app.DryCopy{{Node: "a:1", Key: "user:1"}, {Node: "b:1", Key: "user:1#2"}}, Team: "profiles", Mapping: "user",
			Action: "delete", Topic: "shop.shop.users", Partition: 3, Offset: 17},
		app.DrySample{Pool: "feed", Key: "feed:\x1b[2J", Copies: []app.DryCopy{}, Template: "a logical message", Action: "stale", Topic: "shop.message"},
		app.DrySummary{At: at.Add(70 * time.Second), Since: at, Changes: 1, Keys: 1200, Copies: 1, Parked: 2,
			Pools: []app.DryTally{{Name: "user", Keys: 1000, Copies: 2000}, {Name: "feed", Keys: 200, Copies: 1}}, Nodes: []app.DryTally{{Name: "a:1", Keys: 5, Copies: 7}}},
		app.DrySummary{At: at, Since: at, Final: true},
	} {
		if err := dryForPeople(&b, x); err != nil {
			t.Fatal(err)
		}
	}
	want := `would delete user:1  on a:1, b:1=user:1#2, by profiles/user, for shop.shop.users/3 at 17
would stale "feed:\x1b[2J"  on , by a logical message, for shop.message/0 at 0

so far, after 1m: 1 change, 1200 keys, 1 copy; no node was touched
POOL  KEYS  COPIES
user  1000    2000
feed   200       1
NODE  KEYS  COPIES
a:1      5       7
record that would be a dead letter (the log says why): 2

at the end, after 0s: 0 changes, 0 keys, 0 copies; no node was touched
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Error(d)
	}
}
