package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/sink"
)

// Each copy is counted once, under its key's pool, mapping and node; second rounds are not. Samples are few, and of every pool.
func TestDryCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newDryCount("g.dry-run", func() string { return "p:" })
		user := &mapping.Template{Text: "user:{id}", Pool: "user", Team: "profiles", Mapping: "user", Action: mapping.ActionDelete}
		feed := &mapping.Template{Text: "feed:{id}", Pool: "feed", Team: "feeds", Mapping: "feed", Action: mapping.ActionStale}
		round := pipeline.Round{
			Partition: changelog.Partition{Topic: "t", Number: 3}, Offset: 17, Number: 1, Of: 2,
			Keys: []mapping.Key{{Text: "user:1", Template: user}, {Text: "user:12", Template: user}, {Text: "feed:1", Template: feed}},
			Copies: []sink.Copy{{Node: "a:1", Key: "p:user:1"}, {Node: "b:1", Key: "p:user:1"}, {Node: "a:1", Key: "p:user:12"}, {Node: "a:1", Key: "p:feed:1"},
				{Node: "a:1", Key: "p:feed:1#1"}, {Node: "b:1", Key: "p:feed:1#2"}},
		}
		var told []any
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.tell(ctx, func(x any) error { told = append(told, x); return nil }) }()
		for range 100 {
			c.observe(round)
			again := round
			again.Number = 2
			c.observe(again)
		}
		synctest.Wait()
		if len(told) != 2 || told[0].(DrySample).Key != "user:1" || told[1].(DrySample).Key != "feed:1" || len(told[1].(DrySample).Copies) != 3 {
			t.Fatalf("samples are %+v", told)
		}
		time.Sleep(time.Second)
		c.observe(round)
		synctest.Wait()
		if len(told) != 4 {
			t.Errorf("%d samples after another second, want 4", len(told))
		}
		for _, err := range []error{c.ParkFrom(ctx, round.Partition, changelog.Record{}, ""), c.Record(ctx, "", changelog.Loss{}), c.Flush(ctx, pipeline.FlushRequest{})} {
			if err != nil {
				t.Error(err)
			}
		}
		asked := errors.New("not called")
		c.Request(ctx, changelog.RefreshRequest{}, func(err error) { asked = err })
		if asked != nil {
			t.Error(asked)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		s := told[len(told)-1].(DrySummary)
		s.At, s.Since = time.Time{}, time.Time{}
		want := DrySummary{Kind: "summary", Group: "g.dry-run", Final: true, Changes: 101, Keys: 303, Copies: 606, Parked: 1, Gaps: 1, Flushes: 1,
			Pools:    []DryTally{{"feed", 101, 303}, {"user", 202, 303}},
			Mappings: []DryTally{{"feeds/feed", 101, 303}, {"profiles/user", 202, 303}},
			Nodes:    []DryTally{{"a:1", 303, 404}, {"b:1", 202, 202}}}
		if d := gocmp.Diff(want, s); d != "" {
			t.Error(d)
		}
	})
}

// Who reads the samples has gone: that ends the run, with the reason.
func TestDryRunIsNotHeard(t *testing.T) {
	c := newDryCount("g", func() string { return "" })
	c.samples <- DrySample{}
	gone := errors.New("broken pipe")
	if err := c.tell(t.Context(), func(any) error { return gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
}
