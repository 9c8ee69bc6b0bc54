package gap

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/changelog/changelogtest"
	"invalidator/replay"
)

func loss(at uint64) Gap {
	p := cdc.Position{Pos: at}
	return Gap{ID: FeederID("shop", p), Source: "shop", From: p, Tables: []string{"shop.users"}, Pools: []string{"user"}, Why: "a statement"}
}

// asked are the ids of the requests, each once.
func asked(t *testing.T, c *changelogtest.Cluster) (ids []string) {
	t.Helper()
	for _, r := range c.Records(t, c.Names.Control) {
		rec, err := replay.DecodeControl(r.Value)
		must(t, err)
		if id := rec.(replay.Request).ID; !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// A session that logs statements all day, under on_gap: flush: one record, and a request a minute, the last of them behind the last loss.
func TestLossesWithoutEndAreOneRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := open(t)
		begin := time.Now()
		const losses = 300
		for at := range uint64(losses) {
			g, err := b.Flush(t.Context(), loss(at+1))
			must(t, err)
			if g.State() == Open {
				t.Fatalf("%+v", g)
			}
			if at%30 == 0 {
				_, err = b.SettleLate(t.Context())
				must(t, err)
			}
			time.Sleep(time.Second)
		}
		all := b.list(t)
		if len(all) != 1 || all[0].Times != losses || all[0].From.Pos != 1 || all[0].Until.Pos != losses || all[0].Last.Sub(all[0].Seen) < (losses-2)*time.Second {
			t.Fatalf("%d gaps: %+v", len(all), all[0])
		}
		if all[0].State() != Accepted {
			t.Errorf("%s: the last losses are not covered by a flush", all[0].State())
		}
		time.Sleep(2 * Patience)
		done, err := b.SettleLate(t.Context())
		must(t, err)
		if len(done) != 1 || b.list(t)[0].State() != Closed {
			t.Errorf("%d were finished: %+v", len(done), b.list(t)[0])
		}
		if n, minutes := len(asked(t, c)), int(time.Since(begin)/time.Minute); n < minutes/2 || n > minutes+1 {
			t.Errorf("%d requests in %d minutes", n, minutes)
		}
		if n := len(c.Records(t, c.Names.Status)); n > 15 {
			t.Errorf("told %d times", n)
		}
	})
}

// After a flush that covers what was lost, the next loss needs another one, whatever a crash repeats.
func TestALossAfterItsFlushNeedsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := open(t)
		lose := func(at uint64) *Case {
			g, err := b.Flush(t.Context(), loss(at))
			must(t, err)
			time.Sleep(2 * Patience)
			_, err = b.SettleLate(t.Context())
			must(t, err)
			return g
		}
		lose(1)
		if n := len(asked(t, c)); n != 1 {
			t.Fatalf("%d requests", n)
		}
		lose(1) // met again on the way
		if n := len(asked(t, c)); n != 1 {
			t.Errorf("%d requests for one loss", n)
		}
		lose(2)
		if n := len(asked(t, c)); n != 2 {
			t.Errorf("%d requests for two losses", n)
		}
		if all := b.list(t); len(all) != 1 || all[0].State() != Closed {
			t.Errorf("%+v", all)
		}
	})
}

// Each process has a record of its own: one that was stopped, and writes late what it knew, takes nothing back.
func TestALateWriterOfLossesTakesNothingBack(t *testing.T) {
	c, b := open(t)
	other, err := OpenBook(c.Options, c.Names, "another")
	must(t, err)
	defer other.Close()
	_, err = b.Flush(t.Context(), loss(1))
	must(t, err)
	old := *b.list(t)[0]
	for at := uint64(2); at < 5; at++ {
		_, err = other.Flush(t.Context(), loss(at))
		must(t, err)
	}
	must(t, b.lengthen(t.Context(), &old, loss(2)))
	all := b.list(t)
	if len(all) != 2 {
		t.Fatalf("%d gaps", len(all))
	}
	for _, g := range all {
		want := map[string]int64{"test": 2, "another": 3}[g.Writer]
		if g.Times != want || g.State() != Accepted {
			t.Errorf("%s: %d times, %s", g.Writer, g.Times, g.State())
		}
	}
}

// What one process has accepted, a worker's gap too, another finishes when the first dies before it has asked for the flush.
func TestWhatAnAccepterLeftIsFinished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, b := open(t)
		worker := Gap{
			ID: WorkerID("shop.shop.users", 3, 500), Source: "shop", Pools: []string{"user"}, Why: "away",
			Range: &replay.Range{Topic: "shop.shop.users", Partition: 3, From: 100, To: 500},
		}
		stops := Gap{ID: "shop/1", Source: "shop", Stops: true, From: cdc.Position{Pos: 1}, Pools: []string{"user"}, Why: "purged"}
		nobody := Gap{ID: WorkerID("shop.shop.users", 4, 500), Source: "shop", Pools: []string{"user"}, Why: "away", Range: worker.Range}
		for _, g := range []Gap{worker, stops} {
			known, err := b.Record(t.Context(), g, false)
			must(t, err)
			must(t, b.Accept(t.Context(), known, "ann", true))
		}
		_, err := b.Record(t.Context(), nobody, false)
		must(t, err)
		store, err := changelog.OpenState(c.Options, c.Names.State)
		must(t, err)
		defer store.Close()
		must(t, store.Put(t.Context(), "gap/shop/9", []byte(`{"v":9}`))) // one that cannot be read holds up no other

		done, err := b.SettleLate(t.Context())
		must(t, err)
		if len(done) != 0 {
			t.Error("it was finished while its accepter may be at it")
		}
		time.Sleep(Patience + time.Second)
		for range 2 { // another process may do the same
			if _, err = b.SettleLate(t.Context()); err != nil {
				t.Error(err)
			}
		}
		all, _ := b.Load(t.Context())
		for id, want := range map[string]State{worker.ID: Closed, stops.ID: Accepted, nobody.ID: Open} {
			if s := Find(all, id).State(); s != want {
				t.Errorf("%s is %s, want %s", id, s, want)
			}
		}
		if ids := asked(t, c); !slices.Equal(ids, []string{worker.ID + "/user"}) {
			t.Error(ids)
		}
	})
}
