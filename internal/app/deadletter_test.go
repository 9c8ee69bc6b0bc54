package app

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/gap"
	"invalidator/internal/pipeline"
)

// Parked records of a table are one possible gap of it, which stops nothing and asks for no flush by itself; another one, when more are
// parked after it was closed.
func TestParkedRecordsAreAGap(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	kafka, names := changelog.Options{Brokers: cluster.ListenAddrs()}, changelog.NamesFor("")
	cl, err := kafka.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if _, err := changelog.EnsureTopics(t.Context(), kadm.NewClient(cl), changelog.Settings{}.Own()); err != nil {
		t.Fatal(err)
	}
	book, err := gap.OpenBook(kafka, names, "w")
	if err != nil {
		t.Fatal(err)
	}
	defer book.Close()
	dead, err := changelog.OpenDeadLetter(kafka, names.DeadLetter)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	c := &config.Config{Sources: []config.Source{{Name: "shop", TopicPrefix: "shop", Type: "mysql", Include: []string{"shop.*"}, OnGap: "flush"}}}
	newParker := func() *parker {
		return &parker{
			dead: dead, gaps: gapRecorder{book, c, &mappings{state: mappingsState{set: gapSet(t)}}}, raised: map[string]time.Time{},
			sources: []*pipeline.Source{{Name: "shop", Pattern: regexp.MustCompile(`^shop\..*$`)}},
		}
	}
	park := func(p *parker, topic string, offset int64) {
		t.Helper()
		if err := p.ParkFrom(t.Context(), changelog.Partition{Topic: topic, Number: 1}, changelog.Record{Offset: offset, Value: []byte("x")}, "why"); err != nil {
			t.Fatal(err)
		}
	}
	load := func() []*gap.Case {
		t.Helper()
		all, err := book.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	first := newParker()
	park(first, "shop.shop.users", 1)
	park(first, "shop.shop.users", 2)
	park(newParker(), "shop.shop.users", 3) // another worker
	park(first, "shop.shop.items", 1)
	all := load()
	if len(all) != 2 {
		t.Fatalf("%d gaps", len(all))
	}
	g := gap.Find(all, "shop.shop.users/parked")
	if g == nil || g.State() != gap.Open || g.Stops || g.Source != "shop" || !slices.Equal(g.Tables, []string{"shop.users"}) || !slices.Equal(g.Pools, []string{"user"}) {
		t.Fatalf("%+v", g)
	}
	if closed, err := CloseParkedGap(t.Context(), book, all, "shop.shop.users", "ann"); err != nil || !slices.Equal(closed, []string{"shop.shop.users/parked"}) {
		t.Errorf("closed %q, %v", closed, err)
	}
	park(newParker(), "shop.shop.users", 4)
	all = load()
	if again := gap.Find(all, "shop.shop.users/parked-2"); len(all) != 3 || again == nil || again.State() != gap.Open {
		t.Errorf("%d gaps, %+v", len(all), again)
	}
	if closed := gap.Find(all, "shop.shop.users/parked"); closed.State() != gap.Closed || len(closed.Passage.Requests) > 0 || closed.Acceptance.By != "ann" {
		t.Errorf("%+v", closed)
	}

	// What cannot be raised is not passed.
	book.Close()
	if err := newParker().ParkFrom(t.Context(), changelog.Partition{Topic: "shop.shop.orders"}, changelog.Record{}, "why"); err == nil {
		t.Error("parked, and nobody was told")
	}
}
