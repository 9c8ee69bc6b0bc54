package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/gap"
	"invalidator/replay"
)

// shop is the source shop, whose pools are what a test says.
func shop(f cdc.Feeder, pools ...string) Source {
	return Source{Name: "shop", Feeder: f, Connector: cdc.MySQL, Pools: func(tables []string) []string { return pools }}
}

func (b *bench) book() *gap.Book {
	b.t.Helper()
	book, err := gap.OpenBook(b.Options, b.Names, "a person")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(book.Close)
	return book
}

func (b *bench) gaps() []*gap.Case {
	b.t.Helper()
	all, err := b.book().Load(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// gap is the only gap there is.
func (b *bench) gap() *gap.Case {
	b.t.Helper()
	all := b.gaps()
	if len(all) != 1 {
		b.t.Fatalf("%d gaps: %+v", len(all), all)
	}
	return all[0]
}

func (b *bench) accept(flush bool) {
	b.t.Helper()
	if err := b.book().Accept(context.Background(), b.gap(), "ann", flush); err != nil {
		b.t.Fatal(err)
	}
}

// flushes are the requests on the control topic, as "pool by id".
func (b *bench) flushes() (all []string) {
	b.t.Helper()
	for _, r := range b.Records(b.t, b.Names.Control) {
		rec, err := replay.DecodeControl(r.Value)
		if err != nil {
			b.t.Fatal(err)
		}
		q := rec.(replay.Request)
		if q.Action != replay.Flush || string(r.Key) != q.ID {
			b.t.Errorf("%+v", q)
		}
		all = append(all, q.Target.Pool+" by "+q.By+" "+q.ID)
	}
	return all
}

// told are the words on the status topic.
func (b *bench) told() (all []string) {
	b.t.Helper()
	for _, r := range b.Records(b.t, b.Names.Status) {
		rec, err := replay.DecodeStatus(r.Value)
		if err != nil {
			b.t.Fatal(err)
		}
		switch rec := rec.(type) {
		case replay.Gap:
			all = append(all, "gap "+rec.ID)
		case replay.Event:
			all = append(all, rec.What+" "+rec.About)
		}
	}
	return all
}

// writes tells the requests that write a record whose bytes hold text.
func writes(text string) func(kmsg.Request) bool {
	return func(r kmsg.Request) bool {
		for _, t := range r.(*kmsg.ProduceRequest).Topics {
			for _, p := range t.Partitions {
				if bytes.Contains(p.Records, []byte(text)) {
					return true
				}
			}
		}
		return false
	}
}

var errPurged = cdc.GapError{Err: errors.New("the log was purged")}

// lose runs a source that has fed two rows, and loses what comes while it is down.
func (b *bench) lose(f *fakeFeeder, lost cdc.GapError) {
	b.t.Helper()
	stop := b.start(shop(f))
	f.commit(insert("1"))
	f.commit(insert("2"))
	time.Sleep(time.Second)
	if err := stop(); err != nil {
		b.t.Fatal(err)
	}
	f.commit(insert("lost"))
	f.purge(lost)
}

func TestASourceStandsInItsGapUntilItIsAccepted(t *testing.T) {
	for _, flush := range []bool{true, false} {
		t.Run(fmt.Sprint(flush), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f := newBench(t), newFakeFeeder()
				b.lose(f, errPurged)
				b.start(shop(f, "user", "mail"))
				time.Sleep(5 * time.Minute)
				c := b.gap()
				if c.State() != gap.Open || !c.Stops || c.Source != "shop" || c.From.Pos != 3 || c.Why != "the log was purged" ||
					!strings.Contains(c.Hint, "longer") || !slices.Equal(c.Pools, []string{"mail", "user"}) || c.Tables != nil {
					t.Errorf("%+v", c)
				}
				if !strings.HasPrefix(c.ID, "shop/") || len(c.ID) != len("shop/4f2a91c0") {
					t.Errorf("id %s", c.ID)
				}
				if told := b.log.With("level=ERROR"); len(told) != 1 || !strings.Contains(told[0], "invalidator gap accept "+c.ID) {
					t.Errorf("%s", told)
				}
				if h := b.feed.Health(); len(h) != 1 || !strings.Contains(h[0], "invalidator gap accept "+c.ID) {
					t.Error(h)
				}
				if f.restarts != 0 || b.saved().Position.Pos != 3 || len(b.flushes()) != 0 {
					t.Fatalf("it went over the gap: %d restarts, at %d, asked for %s", f.restarts, b.saved().Position.Pos, b.flushes())
				}
				if starts, _ := f.seen(); len(starts) > 8 {
					t.Errorf("%d runs in five minutes", len(starts))
				}

				b.accept(flush)
				time.Sleep(5 * time.Second)
				f.commit(insert("3"))
				time.Sleep(time.Second)
				if p := b.saved(); p.Position.Pos != 5 || p.Generation>>20 != 2 {
					t.Errorf("%+v", p)
				}
				if n := len(b.Records(t, usersTopic)); n != 3 {
					t.Errorf("%d records", n)
				}
				c = b.gap()
				if c.State() != gap.Closed || c.Passage.To.Pos != 4 || c.Acceptance.By != "ann" || f.restarts != 1 {
					t.Errorf("%+v %+v %d restarts", c.Acceptance, c.Passage, f.restarts)
				}
				var want []string
				if flush {
					to := strings.TrimPrefix(gap.FeederID("", cdc.Position{Pos: 4}), "/")
					want = []string{"mail by ann " + c.ID + "/" + to + "/mail", "user by ann " + c.ID + "/" + to + "/user"}
				}
				if got := b.flushes(); !slices.Equal(got, want) {
					t.Errorf("asked for %q, want %q", got, want)
				}
				if got := b.told(); !slices.Equal(got, []string{"gap " + c.ID, "gap.accepted " + c.ID, "gap.closed " + c.ID}) {
					t.Error(got)
				}
				if h := b.feed.Health(); h != nil {
					t.Error(h)
				}
			})
		})
	}
}

func TestOnGapFlushAcceptsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.lose(f, cdc.GapError{Err: errors.New("purged"), Tables: []cdc.TableID{{Schema: "shop", Table: "users"}}})
		s := shop(f, "user")
		s.OnGapFlush = true
		b.start(s)
		time.Sleep(2 * time.Second)
		c := b.gap()
		if c.State() != gap.Closed || c.Acceptance.By != "on_gap: flush" || len(b.flushes()) != 1 || b.saved().Position.Pos != 4 ||
			!slices.Equal(c.Tables, []string{"shop.users"}) {
			t.Errorf("%+v, asked for %s, at %d", c, b.flushes(), b.saved().Position.Pos)
		}
	})
}

// A crash at any step of a passage: the next leader meets the gap again, goes on from a later position, and asks anew for the
// flushes, since changes that came between are in the gap too.
func TestACrashWhileAGapIsPassed(t *testing.T) {
	for _, step := range []string{"nothing", "passage", "requests"} {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f := newBench(t), newFakeFeeder()
				b.lose(f, errPurged)
				stop := b.start(shop(f, "user", "mail"))
				time.Sleep(5 * time.Second)
				var faults []*kfake.FaultHandle
				f.onRestart = func() {
					switch step {
					case "nothing":
						faults = append(faults, b.Fault(produceFault(b.Names.State, kerr.NotEnoughReplicas)))
					case "passage":
						faults = append(faults, b.Fault(produceFault(b.Names.Control, kerr.NotEnoughReplicas)))
					case "requests": // the position's write is refused
						position := produceFault(b.Names.State, kerr.NotEnoughReplicas)
						position.When = writes("position/shop")
						faults = append(faults, b.Fault(position))
					}
				}
				b.accept(true)
				time.Sleep(10 * time.Second)
				if err := stop(); err != nil {
					t.Error(err)
				}
				for _, fault := range faults {
					fault.Remove()
				}
				if p := b.saved().Position.Pos; p != 3 {
					t.Fatalf("the position is %d: there was no crash", p)
				}
				f.onRestart = nil
				f.commit(insert("lost too")) // while nobody reads
				f.purge(errPurged)
				b.start(shop(f, "user", "mail"))
				time.Sleep(10 * time.Second)
				c := b.gap()
				if c.State() != gap.Closed || c.Passage.To.Pos != 5 || b.saved().Position.Pos != 5 {
					t.Errorf("%s %+v, at %d", c.State(), c.Passage, b.saved().Position.Pos)
				}
				to := strings.TrimPrefix(gap.FeederID("", cdc.Position{Pos: 5}), "/")
				for _, pool := range []string{"mail", "user"} {
					if want := pool + " by ann " + c.ID + "/" + to + "/" + pool; !slices.Contains(b.flushes(), want) {
						t.Errorf("no %q in %q", want, b.flushes())
					}
				}
			})
		})
	}
}

// The leader died after it had saved the position and before it could say that the gap is passed.
func TestAPassedGapIsClosedByTheNextLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.lose(f, errPurged)
		stop := b.start(shop(f, "user"))
		time.Sleep(5 * time.Second)
		_ = stop()
		b.accept(true)
		to, _ := f.Restart(t.Context())
		if err := b.book().Pass(t.Context(), b.gap(), gap.Passage{To: to, Begun: time.Now()}); err != nil {
			t.Fatal(err)
		}
		store, err := changelog.OpenState(b.Options, b.Names.State)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		if err := store.PutPosition(t.Context(), "shop", b.saved().Generation+1, to); err != nil {
			t.Fatal(err)
		}
		b.start(shop(f, "user"))
		time.Sleep(5 * time.Second)
		if c := b.gap(); c.State() != gap.Closed || f.restarts != 1 {
			t.Errorf("%s, %d restarts", c.State(), f.restarts)
		}
		if h := b.feed.Health(); h != nil {
			t.Error(h)
		}
	})
}

// The server's own log came back, or the source was pointed at one that has it: nothing was lost.
func TestAGapThatIsNoneAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.lose(f, errPurged)
		b.start(shop(f, "user"))
		time.Sleep(5 * time.Second)
		f.mu.Lock()
		f.purged = 0
		f.mu.Unlock()
		time.Sleep(2 * time.Minute)
		c := b.gap()
		if c.State() != gap.Closed || c.Acceptance != nil || c.Passage.Note == "" || f.restarts != 0 {
			t.Errorf("%s %+v, %d restarts", c.State(), c.Passage, f.restarts)
		}
		if n := len(b.Records(t, usersTopic)); n != 3 {
			t.Errorf("%d records", n)
		}
		if h := b.feed.Health(); h != nil {
			t.Error(h)
		}
		// The same place once more is another gap: what was decided of the first says nothing of it.
		store, err := changelog.OpenState(b.Options, b.Names.State)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		again, err := b.book().Record(t.Context(), gap.Gap{ID: c.ID, Source: "shop", Stops: true, From: c.From, Why: "again"}, false)
		if err != nil || again.ID != c.ID+"-2" || again.State() != gap.Open {
			t.Errorf("%+v %v", again, err)
		}
	})
}

// What cannot be written again keeps the source where it stands: the position does not pass it.
func TestNoPositionPassesWhatIsNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.lose(f, cdc.GapError{Err: errors.New("lacks them"), UndoneText: "u:1", Undone: func(*cdc.RowChange) bool { return true }})
		fault := b.Fault(produceFault(usersTopic, kerr.TopicAuthorizationFailed))
		s := shop(f, "user")
		s.OnGapFlush = true
		b.start(s)
		time.Sleep(time.Minute)
		if c := b.gap(); c.State() != gap.Accepted || b.saved().Position.Pos != 3 {
			t.Errorf("%s, position %d", c.State(), b.saved().Position.Pos)
		}
		if told := b.log.With("allow this user to write"); len(told) == 0 || len(told) > 3 {
			t.Errorf("told %d times: %s", len(told), told)
		}
		fault.Remove()
		time.Sleep(2 * time.Minute)
		if c := b.gap(); c.State() != gap.Closed || c.Passage.Reissued != 2 || b.saved().Position.Pos != 4 {
			t.Errorf("%+v, position %d", c.Passage, b.saved().Position.Pos)
		}
		if n := len(b.Records(t, usersTopic)); n != 4 {
			t.Errorf("%d records", n)
		}
	})
}

// A source that cannot be made to go on is tried again, and told once.
func TestASourceThatCannotRestartIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.lose(f, errPurged)
		stuck := &stuckFeeder{fakeFeeder: f}
		stuck.err.Store(true)
		s := shop(stuck, "user")
		s.OnGapFlush = true
		b.start(s)
		time.Sleep(2 * time.Minute)
		if c := b.gap(); c.State() != gap.Accepted || b.saved().Position.Pos != 3 || len(b.flushes()) != 0 {
			t.Errorf("%s, position %d, asked for %s", c.State(), b.saved().Position.Pos, b.flushes())
		}
		if n := len(b.log.With("no rights")); n != 1 {
			t.Errorf("told %d times", n)
		}
		stuck.err.Store(false)
		time.Sleep(2 * time.Minute)
		if c := b.gap(); c.State() != gap.Closed || b.saved().Position.Pos != 4 {
			t.Errorf("%s, position %d", c.State(), b.saved().Position.Pos)
		}
	})
}

// stuckFeeder cannot restart while err is set.
type stuckFeeder struct {
	*fakeFeeder
	err atomic.Bool
}

func (f *stuckFeeder) Restart(ctx context.Context) (cdc.Position, error) {
	if f.err.Load() {
		return cdc.Position{}, &cdc.SourceError{Source: "shop", Err: errors.New("no rights"), Hint: "grant them"}
	}
	return f.fakeFeeder.Restart(ctx)
}

// After a failover without our last transactions: their records are written again before the position moves.
func TestUndoneTransactionsAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.metrics, _ = NewMetrics(nil)
		stop := b.start(shop(f))
		for i, tx := range []string{"a:1", "a:2", "a:3"} {
			row := insert(fmt.Sprint(i))
			row.Tx, row.Position = tx, cdc.Position{GTIDSet: "a:1"}
			f.commit(row)
		}
		time.Sleep(time.Second)
		_ = stop()
		time.Sleep(3 * time.Hour)
		f.commit() // so that there is something to purge
		f.purge(cdc.GapError{
			Err: errors.New("the server lacks our last transactions"), UndoneText: "a:2-3",
			Undone: func(c *cdc.RowChange) bool { return c.Tx == "a:2" || c.Tx == "a:3" },
		})
		b.start(shop(f, "user"))
		time.Sleep(5 * time.Second)
		if c := b.gap(); c.Undone != "a:2-3" {
			t.Errorf("%+v", c)
		}
		if n := len(b.Records(t, usersTopic)); n != 3 {
			t.Fatalf("%d records before anybody accepted", n)
		}
		b.accept(true)
		time.Sleep(10 * time.Second)
		partitions := map[string][]int32{}
		for _, r := range b.Records(t, usersTopic) {
			partitions[string(r.Value)] = append(partitions[string(r.Value)], r.Partition)
		}
		for value, ps := range partitions {
			want := 2
			if strings.Contains(value, `"a:1"`) {
				want = 1
			}
			if len(ps) != want || ps[0] != ps[len(ps)-1] {
				t.Errorf("in partitions %d, want %d times in one: %s", ps, want, value)
			}
		}
		if c := b.gap(); c.State() != gap.Closed || c.Passage.Reissued != 2 {
			t.Errorf("%+v", c.Passage)
		}
	})
}
