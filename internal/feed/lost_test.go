package feed

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/cdc"
	"invalidator/internal/gap"
)

var (
	orders  = cdc.TableID{Schema: "shop", Table: "orders"}
	lossIn3 = map[uint64]cdc.Loss{3: {
		Tables: []cdc.TableID{{Schema: "shop", Table: "users"}, {Schema: "old"}}, At: cdc.Position{Pos: 2}, Tx: "a:7",
		Time: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC), Why: "UPDATE logged as a statement", Hint: "SET GLOBAL binlog_format = ROW",
	}}
)

// lossy is a source whose schema old has the table orders.
func lossy(f cdc.Feeder) Source {
	s := shop(f, "user")
	s.Tables = func(_ context.Context, schema string) ([]cdc.TableID, error) {
		if schema != "old" {
			return nil, errors.New("not asked for " + schema)
		}
		return []cdc.TableID{{Schema: "old", Table: "orders"}}, nil
	}
	return s
}

func TestALossIsWrittenDownAndEveryRowCountsAsChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		f.losses = lossIn3
		b.start(lossy(f))
		f.commit(insert("1"))
		f.commit()
		f.commit(insert("2"))
		time.Sleep(2 * time.Second)
		c := b.gap()
		if c.Stops || c.State() != gap.Open || c.From.Pos != 2 || c.Tx != "a:7" || !slices.Equal(c.Tables, []string{"old.*", "shop.users"}) ||
			!slices.Equal(c.Pools, []string{"user"}) || c.Why != "UPDATE logged as a statement" || !strings.Contains(c.Hint, "ROW") {
			t.Errorf("%+v", c)
		}
		if p := b.saved().Position.Pos; p != 4 {
			t.Errorf("position %d: it stops nothing", p)
		}
		for _, topic := range []string{usersTopic, "shop.old.orders"} {
			if vs := b.values(topic); !slices.ContainsFunc(vs, func(v string) bool { return strings.Contains(v, `"op":"t"`) && strings.Contains(v, `"a:7"`) }) {
				t.Errorf("no truncate in %s: %s", topic, vs)
			}
		}
		if h := b.feed.Health(); len(h) != 1 || !strings.Contains(h[0], c.ID) {
			t.Error(h)
		}
		if told := b.log.With("level=ERROR"); len(told) != 1 || !strings.Contains(told[0], c.ID) {
			t.Errorf("%s", told)
		}
		// A person answers it, from anywhere.
		if err := b.book().Settle(t.Context(), c, "ann", true); err != nil {
			t.Fatal(err)
		}
		if got := b.flushes(); !slices.Equal(got, []string{"user by ann " + c.ID + "/user"}) {
			t.Error(got)
		}
		time.Sleep(time.Minute)
		if h := b.feed.Health(); h != nil {
			t.Errorf("health after it was answered: %s", h)
		}
	})
}

// Who accepted a gap may die before the flush is asked for. It is promised, so that the feeder asks.
func TestAFlushThatWasPromisedIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		f.losses = lossIn3
		b.start(lossy(f))
		f.commit(insert("1"))
		f.commit()
		time.Sleep(2 * time.Second)
		c := b.gap()
		if err := b.book().Accept(t.Context(), c, "ann", true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(45 * time.Second)
		if h := b.feed.Health(); len(h) != 1 {
			t.Errorf("health while its flush is not asked for: %s", h)
		}
		time.Sleep(2 * time.Minute)
		if got := b.flushes(); !slices.Equal(got, []string{"user by ann " + c.ID + "/user"}) {
			t.Error(got)
		}
		if s := b.gap().State(); s != gap.Closed {
			t.Error(s)
		}
		if h := b.feed.Health(); h != nil {
			t.Errorf("health after it was closed: %s", h)
		}
	})
}

// Under on_gap: flush, losses without end are one gap, of which a flush is asked for now and then, and once more when they are over.
func TestLossesWithoutEndAreOneGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		f.losses = map[uint64]cdc.Loss{}
		for at := uint64(2); at < 100; at++ {
			f.losses[at] = cdc.Loss{Tables: []cdc.TableID{orders}, At: cdc.Position{Pos: at}, Why: "UPDATE logged as a statement"}
		}
		s := lossy(f)
		s.OnGapFlush = true
		b.start(s)
		for range 98 {
			f.commit()
			time.Sleep(time.Second)
		}
		c := b.gap()
		if c.Times != 98 || c.State() != gap.Accepted {
			t.Errorf("%d times, %s", c.Times, c.State())
		}
		if h := b.feed.Health(); h != nil {
			t.Errorf("nobody has to act: %s", h)
		}
		if told := b.log.With("changes are lost"); len(told) > 7 {
			t.Errorf("told %d times", len(told))
		}
		time.Sleep(2 * time.Minute)
		if c := b.gap(); c.State() != gap.Closed {
			t.Errorf("%+v", c)
		}
		if n := len(b.flushes()); n < 2 || n > 4 {
			t.Errorf("%d requests", n)
		}
	})
}

// What was lost is durable before the position passes it, whatever fails on the way; met again it is the same gap, and its
// flush is asked for once.
func TestNoPositionPassesALossThatIsNotWrittenDown(t *testing.T) {
	for what, topic := range map[string]func(*bench) string{
		"the record":   func(b *bench) string { return b.Names.State },
		"the event":    func(b *bench) string { return b.Names.Status },
		"the request":  func(b *bench) string { return b.Names.Control },
		"the truncate": func(*bench) string { return "shop.old.orders" },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f := newBench(t), newFakeFeeder()
				s := lossy(f)
				s.OnGapFlush = true
				stop := b.start(s)
				f.commit(insert("1"))
				time.Sleep(time.Second)
				fault := b.Fault(produceFault(topic(b), kerr.NotEnoughReplicas))
				f.mu.Lock()
				f.losses = lossIn3
				f.mu.Unlock()
				f.commit(insert("2"))
				time.Sleep(20 * time.Second)
				if err := stop(); err != nil { // a crash, too
					t.Error(err)
				}
				if p := b.saved().Position.Pos; p != 2 {
					t.Fatalf("position %d", p)
				}
				fault.Remove()
				b.start(s)
				time.Sleep(10 * time.Second)
				if p := b.saved().Position.Pos; p != 3 {
					t.Errorf("position %d", p)
				}
				c := b.gap()
				if c.State() != gap.Closed || c.Acceptance.By != "on_gap: flush" {
					t.Errorf("%+v", c)
				}
				for _, got := range b.flushes() { // the first of an id wins
					if got != "user by on_gap: flush "+c.ID+"/user" {
						t.Error(got)
					}
				}
				if len(b.flushes()) == 0 || len(b.values("shop.old.orders")) == 0 {
					t.Error("no flush, or no truncate")
				}
			})
		})
	}
}

func TestALossInASourceThatCannotBeAskedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		f.losses = lossIn3
		s := lossy(f)
		ask := s.Tables
		away := true
		s.Tables = func(ctx context.Context, schema string) ([]cdc.TableID, error) {
			if away {
				return nil, errors.New("connection refused")
			}
			return ask(ctx, schema)
		}
		stop := b.start(s)
		f.commit()
		f.commit()
		time.Sleep(5 * time.Second)
		if p := b.saved().Position.Pos; p != 2 || len(b.gaps()) != 0 {
			t.Errorf("position %d, %d gaps", p, len(b.gaps()))
		}
		_ = stop()
		away = false
		b.start(s)
		time.Sleep(5 * time.Second)
		if p := b.saved().Position.Pos; p != 3 || b.gap().State() != gap.Open {
			t.Errorf("position %d", p)
		}
	})
}

func TestWhereATableIsFedFromIsWrittenDown(t *testing.T) {
	for _, pools := range [][]string{{"order"}, nil} {
		synctest.Test(t, func(t *testing.T) {
			b, f := newBench(t), newFakeFeeder()
			f.joins = map[uint64][]cdc.TableID{3: {orders}}
			b.start(shop(f, pools...))
			time.Sleep(time.Second)
			f.commit()
			f.commit()
			f.commit()
			time.Sleep(2 * time.Second)
			state := b.state()
			for table, want := range map[string]uint64{"shop.users": 1, "shop.orders": 3} {
				fed, found, err := state.LoadFed("shop", table)
				if err != nil || !found || fed.From.Pos != want {
					t.Errorf("%s is fed from %+v, %t, %v", table, fed.From, found, err)
				}
			}
			if _, found, _ := state.LoadFed("other", "shop.users"); found {
				t.Error("a source that is not fed is")
			}
			if p := b.saved().Position.Pos; p != 4 {
				t.Errorf("position %d", p)
			}
			if pools == nil { // nobody's copies are concerned
				if n := len(b.gaps()); n != 0 {
					t.Errorf("%d gaps", n)
				}
				return
			}
			if c := b.gap(); c.Stops || c.Until.Pos != 3 || !slices.Equal(c.Pools, pools) || !slices.Equal(c.Tables, []string{"shop.orders"}) {
				t.Errorf("%+v", c)
			}
		})
	}
}

// Findings are told once, and again when they are over.
func TestChecksBesideTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		warning := cdc.Finding{Severity: cdc.SeverityWarning, Source: "shop", What: "keeps its log for an hour", Hint: "longer"}
		dropped := cdc.Finding{Severity: cdc.SeverityError, Source: "shop", Table: "shop.orders", What: "is not in the publication", Hint: "ALTER PUBLICATION"}
		c := &checked{fakeFeeder: f}
		c.set([]cdc.Finding{warning})
		b.start(shop(c))
		f.commit(insert("1"))
		time.Sleep(10 * time.Minute)
		if n := len(b.log.With("an hour")); n != 1 {
			t.Errorf("told %d times", n)
		}
		if h := b.feed.Health(); h != nil {
			t.Error(h)
		}
		c.set([]cdc.Finding{warning, dropped})
		time.Sleep(61 * time.Second)
		if told := b.log.With("ALTER PUBLICATION"); len(told) != 1 || !strings.Contains(told[0], "level=ERROR") {
			t.Errorf("%s", told)
		}
		if h := b.feed.Health(); len(h) != 1 || !strings.Contains(h[0], "ALTER PUBLICATION") {
			t.Error(h)
		}
		f.commit(insert("2")) // the rest goes on
		c.set([]cdc.Finding{warning})
		time.Sleep(61 * time.Second)
		if n := len(b.log.With("is over")); n != 1 || b.feed.Health() != nil {
			t.Errorf("told %d times, health %s", n, b.feed.Health())
		}
		if p := b.saved().Position.Pos; p != 3 {
			t.Errorf("position %d", p)
		}
	})
}

// checked is a feeder with findings.
type checked struct {
	*fakeFeeder
	findings []cdc.Finding
}

func (c *checked) set(fs []cdc.Finding) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.findings = fs
}

func (c *checked) Check(context.Context) ([]cdc.Finding, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.findings, nil
}

// What is wrong with a source as a whole meets the run too, and is told once; health shows it until the source feeds.
func TestASourceThatStandsIsToldOnceAndRed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		c := &checked{fakeFeeder: f}
		c.set([]cdc.Finding{{Severity: cdc.SeverityError, Source: "shop", What: "wal_level is replica"}})
		f.set(&cdc.SourceError{Source: "shop", Err: errors.New("wal_level is replica"), Hint: "ALTER SYSTEM"})
		b.start(shop(c))
		time.Sleep(5 * time.Minute)
		if told := b.log.With("wal_level is replica"); len(told) != 1 {
			t.Errorf("told %d times: %s", len(told), told)
		}
		if h := b.feed.Health(); len(h) != 2 || !strings.Contains(h[0]+h[1], "ALTER SYSTEM") {
			t.Errorf("%q", h)
		}
		c.set(nil)
		f.set(nil)
		f.commit(insert("1"))
		time.Sleep(3 * time.Minute)
		if h := b.feed.Health(); h != nil {
			t.Errorf("%q", h)
		}
	})
}
