package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/obs/obstest"
	"invalidator/internal/pipeline"
	"invalidator/replay"
)

// Of each replay and partition the last that is known is told, also what came while the broker was away, and what came just before the end.
func TestProgressIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := changelogtest.Start(t)
		out, err := changelog.OpenWriter(c.Options)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		var log obstest.Log
		teller := newProgressTeller(out, c.Names.Status, "w1", slog.New(slog.NewTextHandler(&log, nil)))
		stop := inBackground(t.Context(), func(ctx context.Context) {
			if err := teller.run(ctx); err != nil {
				t.Error(err)
			}
		})
		report := func(id string, partition int32, offset int64, done bool) {
			teller.add(pipeline.ProgressReport{ID: id, Partition: changelog.Partition{Topic: "t", Number: partition}, To: 10, Offset: offset, Keys: 3, Lost: 1, Done: done})
		}
		told := func(want ...string) {
			t.Helper()
			time.Sleep(2 * progressEvery)
			synctest.Wait()
			var got []string
			for _, r := range c.Records(t, c.Names.Status) {
				d, err := replay.DecodeStatus(r.Value)
				if err != nil {
					t.Fatal(err)
				}
				p := d.(replay.Progress)
				if p.Keys != 3 || p.Lost != 1 || p.Worker != "w1" || p.At.IsZero() || string(r.Key) != p.ID {
					t.Errorf("told %+v", p)
				}
				got = append(got, fmt.Sprintf("%s/%d at %d %v", p.ID, p.Range.Partition, p.Offset, p.Done))
			}
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Fatalf("told\n%q, want\n%q", got, want)
			}
		}
		report("a", 0, 1, false)
		report("a", 0, 2, false)
		report("a", 1, 3, false)
		report("epoch/7-8", 0, 4, false)
		one := []string{"a/0 at 2 false", "a/1 at 3 false", "epoch/7-8/0 at 4 false"}
		told(one...)

		var away atomic.Bool
		away.Store(true)
		c.ControlKey(kmsg.Produce.Int16(), func(kmsg.Request) (kmsg.Response, error, bool) {
			c.KeepControl()
			if away.Load() {
				return nil, errors.New("the line is cut"), true
			}
			return nil, nil, false
		})
		report("a", 0, 5, false)
		report("b", 0, 5, false)
		time.Sleep(15 * time.Second)
		report("a", 0, 6, false) // while the one before could not be written
		time.Sleep(15 * time.Second)
		if n := log.Count("tried again"); n != 1 {
			t.Errorf("told of it %d times: %s", n, log.String())
		}
		away.Store(false)
		time.Sleep(time.Minute)
		two := append([]string{"a/0 at 6 false", "b/0 at 5 false"}, one...)
		slices.Sort(two)
		told(two...)

		report("a", 0, 10, true)
		stop()
		three := append([]string{"a/0 at 10 true"}, two...)
		slices.Sort(three)
		told(three...)
	})
}

// Who has work partitions is told to each, in turn.
func TestClaimsAreToldToAll(t *testing.T) {
	var got []string
	claim := func(name string) func([]int32) {
		return func(owned []int32) { got = append(got, fmt.Sprint(name, owned)) }
	}
	claims(claim("a"), claim("b"))([]int32{3, 4})
	if !slices.Equal(got, []string{"a[3 4]", "b[3 4]"}) {
		t.Errorf("told %q", got)
	}
}
