package app

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/internal/config"
	"invalidator/internal/gap"
	"invalidator/mapping"
	"invalidator/replay"
)

const gapMappings = `
version: 1
team: a
contact: "#a"
pools: [user, item]
underivable: [feed]
mappings:
  - {name: user, table: shop.users, keys: ["user:{id}"]}
  - {name: item, table: shop.items, source: shop, keys: ["item:{id}"]}
`

func gapSet(t *testing.T) *mapping.Set {
	f, problems := mapping.Parse("a.yaml", []byte(gapMappings))
	if f == nil {
		t.Fatal(problems)
	}
	s, _ := mapping.NewSet([]*mapping.File{f})
	return s
}

// What a topic's name says for certain narrows the pools; anything else means the whole source.
func TestPoolsOfATopic(t *testing.T) {
	ours := config.Source{Name: "shop", TopicPrefix: "shop", Type: "mysql", Include: []string{"shop.*"}}
	pg := config.Source{Name: "pg", TopicPrefix: "pg", Type: "postgres", Include: []string{"*.*"}}
	theirs := config.Source{Name: "dbz", Topics: &config.Topics{Pattern: "dbz.*"}}
	flat := config.Source{Name: "flat", Topics: &config.Topics{Pattern: "flat.*", Table: "shop.users"}}
	other := config.Source{Name: "shop", TopicPrefix: "shop", Type: "mysql", Include: []string{"crm.*"}}
	for _, tc := range []struct {
		source config.Source
		topic  string
		want   []string
	}{
		{ours, "shop.shop.users", []string{"user"}},
		{ours, "shop.shop.items", []string{"item"}},
		{ours, "shop.shop.orders", nil},
		{ours, "shop.shop.user_x20names", []string{"item", "user"}},
		{ours, "shop.shop.users-0123456789abcdef", []string{"item", "user"}},
		{ours, "shop.message", []string{"item", "user"}},
		{ours, "somebody.else", []string{"item", "user"}},
		{other, "shop.message", nil},
		{pg, "pg.public.users", nil},
		{pg, "pg.message", []string{"user", "feed"}}, // a message may hold any key that no row gives
		{theirs, "dbz.shop.users", []string{"user", "feed"}},
		{flat, "flat.users", []string{"user"}},
	} {
		if got := poolsOf(gapSet(t), tc.source, topicTables(tc.source, tc.topic)); !slices.Equal(got, tc.want) {
			t.Errorf("%s, topic %s: %q, want %q", tc.source.Name, tc.topic, got, tc.want)
		}
	}
}

// A worker's gap names the pools; on_gap: flush asks for them and closes it. It stops nothing either way.
func TestAWorkersGap(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	kafka := changelog.Options{Brokers: cluster.ListenAddrs()}
	cl, err := kafka.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := changelog.EnsureTopics(t.Context(), kadm.NewClient(cl), changelog.Settings{}.Own()); err != nil {
		t.Fatal(err)
	}
	book, err := gap.OpenBook(kafka, changelog.NamesFor(""), "w")
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	c := &config.Config{Sources: []config.Source{
		{Name: "shop", TopicPrefix: "shop", Type: "mysql", Include: []string{"shop.*"}, OnGap: "stop"},
		{Name: "flat", Topics: &config.Topics{Pattern: "flat.*", Table: "shop.users"}, OnGap: "flush"},
	}}
	g := gapRecorder{book, c, &mappings{state: mappingsState{set: gapSet(t)}}}
	for range 2 { // the same gap met twice is one
		if err := g.Record(t.Context(), "shop", changelog.Loss{Partition: changelog.Partition{Topic: "shop.shop.users", Number: 3}, From: 100, To: 500, Why: "away"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Record(t.Context(), "flat", changelog.Loss{Partition: changelog.Partition{Topic: "flat.users"}, From: -1, To: 7, Why: "made again"}); err != nil {
		t.Fatal(err)
	}
	all, err := book.Load(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatal(len(all), err)
	}
	if open := gap.Find(all, "shop.shop.users/3/500"); open == nil || open.State() != gap.Open || open.Stops || !slices.Equal(open.Pools, []string{"user"}) ||
		open.Range.From != 100 || !slices.Equal(open.Tables, []string{"shop.users"}) {
		t.Errorf("%+v", open)
	}
	if closed := gap.Find(all, "flat.users/0/7"); closed == nil || closed.State() != gap.Closed || closed.Acceptance.By != "on_gap: flush" ||
		!slices.Equal(closed.Passage.Requests, []string{"flat.users/0/7/user"}) {
		t.Errorf("%+v", closed)
	}
}

// A worker finishes what somebody accepted and died before it was done: its own gaps have no leader who would.
func TestWorkersFinishWhatSomebodyAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cluster := changelogtest.Start(t)
		book, err := gap.OpenBook(cluster.Options, cluster.Names, "w")
		if err != nil {
			t.Fatal(err)
		}
		defer book.Close()
		c, err := book.Record(t.Context(), gap.Gap{
			ID: gap.WorkerID("shop.shop.users", 3, 500), Source: "shop", Pools: []string{"user"}, Why: "away",
			Range: &replay.Range{Topic: "shop.shop.users", Partition: 3, From: 100, To: 500},
		}, false)
		if err == nil {
			err = book.Accept(t.Context(), c, "ann", true)
		}
		if err != nil {
			t.Fatal(err)
		}
		stop := inBackground(t.Context(), func(ctx context.Context) { settleGaps(ctx, book, slog.New(slog.DiscardHandler)) })
		time.Sleep(4 * settleEvery)
		stop()
		all, err := book.Load(t.Context())
		if err != nil || len(all) != 1 || all[0].State() != gap.Closed || !slices.Equal(all[0].Passage.Requests, []string{c.ID + "/user"}) {
			t.Errorf("%+v %v", all, err)
		}
	})
}
