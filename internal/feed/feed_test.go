package feed

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"invalidator/cdc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func produceFault(topic string, err *kerr.Error) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: err, Count: -1}
}

func TestARowReachesItsTopic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		stop := b.start(Source{Name: "shop", Feeder: f})
		f.commit(insert("18446744073709551615"))
		time.Sleep(time.Second)
		rs := b.Records(t, usersTopic)
		if len(rs) != 1 || string(rs[0].Key) != `{"id":18446744073709551615}` || !strings.Contains(string(rs[0].Value), `"op":"c"`) {
			t.Fatalf("%v", b.values(usersTopic))
		}
		if n := len(b.PartitionInfos(usersTopic)); n != 8 {
			t.Errorf("%d partitions", n)
		}
		if _, confirmed := f.seen(); !slices.Equal(confirmed, []uint64{2}) {
			t.Errorf("confirmed %d", confirmed)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAChangedKeyReachesBothPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.start(Source{Name: "shop", Feeder: f})
		f.commit(change(cdc.Update, user("42", "a", ""), user("43", "a", "")))
		time.Sleep(time.Second)
		got := map[string]string{}
		for _, r := range b.Records(t, usersTopic) {
			got[string(r.Key)] = string(r.Value)
		}
		if len(got) != 2 || !strings.Contains(got[`{"id":42}`], `"op":"d"`) || !strings.Contains(got[`{"id":43}`], `"op":"c"`) {
			t.Error(got)
		}
	})
}

func TestANewSourcesPositionIsSavedBeforeItReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		var atStart atomic.Uint64
		f.onStarted = func() { atStart.Store(b.saved().Position.Pos) }
		b.start(Source{Name: "shop", Feeder: f})
		time.Sleep(time.Second)
		if atStart.Load() != 1 {
			t.Error("not saved when Started returned")
		}
	})
}

// Whatever order the acknowledgements come in, and however long one is missing: no position is saved over it.
func TestThePositionWaitsForEveryAcknowledgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.start(Source{Name: "shop", Feeder: f})
		f.commit(insert("1"))
		time.Sleep(time.Second)

		fault := b.Fault(produceFault("shop.shop.orders", kerr.NotEnoughReplicas))
		orders := insert("2")
		orders.TableID.Table = "orders"
		f.commit(orders)
		for i := range 20 {
			f.commit(insert(strconv.Itoa(100 + i)))
		}
		time.Sleep(5 * time.Second)
		if n := len(b.Records(t, usersTopic)); n != 21 {
			t.Errorf("%d users written, the other table should not hold them up", n)
		}
		if p := b.saved().Position.Pos; p != 2 {
			t.Errorf("position %d was saved while record 2 is not acknowledged", p)
		}
		_, confirmed := f.seen()
		if slices.Max(confirmed) != 2 {
			t.Errorf("confirmed %d", confirmed)
		}

		fault.Remove()
		time.Sleep(5 * time.Second)
		if p := b.saved().Position.Pos; p != 23 {
			t.Errorf("position %d", p)
		}
		if n := len(b.Records(t, "shop.shop.orders")); n != 1 {
			t.Errorf("%d orders", n)
		}
	})
}

func TestARestartResumesWhereItWasAndNothingComesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		stop := b.start(Source{Name: "shop", Feeder: f})
		f.commit(insert("1"))
		f.commit(insert("2"))
		time.Sleep(50 * time.Millisecond) // less than SaveEvery: SIGTERM saves the rest
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if p := b.saved(); p.Position.Pos != 3 || p.Generation>>20 != 1 {
			t.Fatalf("%+v", p)
		}
		f.commit(insert("3"))
		b.start(Source{Name: "shop", Feeder: f})
		time.Sleep(time.Second)
		if starts, _ := f.seen(); !slices.Equal(starts, []uint64{0, 3}) {
			t.Errorf("started from %d", starts)
		}
		if n := len(b.Records(t, usersTopic)); n != 3 {
			t.Errorf("%d records", n)
		}
		// The successor's own position stands; its predecessor's is gone.
		if p := b.saved(); p.Position.Pos != 4 || p.Generation>>20 != 2 || len(p.Stale) != 0 {
			t.Errorf("%+v", p)
		}
	})
}

// A crash after the broker took the records and before the position was saved: the same records come again.
func TestACrashBetweenAcknowledgementAndSaveSendsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		stop := b.start(Source{Name: "shop", Feeder: f})
		time.Sleep(time.Second)
		fault := b.Fault(produceFault(b.Names.State, kerr.NotEnoughReplicas))
		f.commit(insert("1"), insert("2"))
		time.Sleep(time.Second)
		begin := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > 7*time.Second {
			t.Errorf("stopping took %s", d)
		}
		fault.Remove()
		if _, confirmed := f.seen(); len(confirmed) != 0 {
			t.Errorf("confirmed %d, which was never saved", confirmed)
		}
		b.start(Source{Name: "shop", Feeder: f})
		time.Sleep(5 * time.Second)
		if n := len(b.Records(t, usersTopic)); n != 4 {
			t.Errorf("%d records: the two should have come twice", n)
		}
		if p := b.saved().Position.Pos; p != 2 {
			t.Errorf("position %d", p)
		}
	})
}

func TestSIGTERMWithADeadBrokerEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		stop := b.start(Source{Name: "shop", Feeder: f})
		time.Sleep(time.Second)
		b.Fault(produceFault("", kerr.NotEnoughReplicas))
		f.commit(insert("1"))
		time.Sleep(time.Second)
		begin := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > 7*time.Second {
			t.Errorf("stopping took %s", d)
		}
		if len(b.log.With("sent again by the next start")) != 1 {
			t.Error("what was left behind was not told")
		}
	})
}

func TestALargeRowIsWrittenSlim(t *testing.T) {
	keep := func(cdc.TableID) []string { return []string{"email"} }
	large := change(cdc.Update, user("1", "a@x.test", ""), user("1", "b@x.test", strings.Repeat("x", 700<<10)))
	slim := func(t *testing.T, b *bench) {
		t.Helper()
		vs := b.values(usersTopic)
		if len(vs) != 1 || strings.Contains(vs[0], "xxx") || !strings.Contains(vs[0], `"slim":true`) ||
			!strings.Contains(vs[0], "a@x.test") || !strings.Contains(vs[0], "b@x.test") {
			t.Errorf("%d records: %.300s", len(vs), vs)
		}
		if p := b.saved().Position.Pos; p != 2 {
			t.Errorf("position %d", p)
		}
	}
	t.Run("where the topic's limit is lower", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, f := newBench(t), newFakeFeeder()
			if err := b.CreateTopic(usersTopic, 8, map[string]string{"max.message.bytes": "5000", "cleanup.policy": "delete"}); err != nil {
				t.Fatal(err)
			}
			f.commit(large)
			b.start(Source{Name: "shop", Feeder: f, Keep: keep})
			time.Sleep(time.Second)
			slim(t, b)
		})
	})
	t.Run("where the broker refuses what the topic's limit allows", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, f := newBench(t), newFakeFeeder()
			fault := produceFault(usersTopic, kerr.MessageTooLarge)
			fault.Count = 1
			b.Fault(fault)
			f.commit(large)
			b.start(Source{Name: "shop", Feeder: f, Keep: keep})
			time.Sleep(5 * time.Second)
			slim(t, b)
			if n := len(b.log.With("refuses records")); n != 1 {
				t.Errorf("told %d times", n)
			}
		})
	})
	t.Run("never dropped, whatever the broker says", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b, f := newBench(t), newFakeFeeder()
			fault := b.Fault(produceFault(usersTopic, kerr.MessageTooLarge))
			f.commit(large)
			b.start(Source{Name: "shop", Feeder: f, Keep: keep})
			time.Sleep(5 * time.Minute)
			if p := b.saved().Position.Pos; p != 1 {
				t.Errorf("position %d passed a record that is not written", p)
			}
			fault.Remove()
			time.Sleep(2 * time.Minute)
			if n := len(b.values(usersTopic)); n != 1 {
				t.Errorf("%d records", n)
			}
		})
	})
}

func TestARefusedRecordStopsItsSourceAndIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f, g := newBench(t), newFakeFeeder(), newFakeFeeder()
		fault := b.Fault(produceFault(usersTopic, kerr.TopicAuthorizationFailed))
		f.commit(insert("1"))
		g.commit(insert("1"))
		b.start(Source{Name: "shop", Feeder: f}, Source{Name: "other", Feeder: g})
		time.Sleep(3 * time.Minute)
		if n := len(b.Records(t, "other.shop.users")); n != 1 {
			t.Error("one source's trouble held up another")
		}
		if told := b.log.With("level=ERROR"); len(told) != 1 || !strings.Contains(told[0], "allow this user to write") {
			t.Errorf("told %d times: %s", len(told), told)
		}
		fault.Remove()
		time.Sleep(2 * time.Minute)
		if n := len(b.Records(t, usersTopic)); n != 1 {
			t.Errorf("%d records", n)
		}
		if len(b.log.With("feeds again")) == 0 {
			t.Error("its recovery was not told")
		}
	})
}

func TestKafkaAwayAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		var away atomic.Bool
		dial := b.Options.Dial
		b.Options.Dial = func(ctx context.Context, network, host string) (net.Conn, error) {
			if away.Load() {
				return nil, errors.New("connection refused")
			}
			return dial(ctx, network, host)
		}
		away.Store(true) // already when the process starts
		b.start(Source{Name: "shop", Feeder: f})
		f.commit(insert("1"))
		time.Sleep(2 * time.Minute)
		if n := len(b.log.With("feeders fails")); n == 0 || n > 3 {
			t.Errorf("told %d times", n)
		}
		away.Store(false)
		time.Sleep(30 * time.Second)
		if n := len(b.Records(t, usersTopic)); n != 1 {
			t.Fatalf("%d records", n)
		}

		fault := b.Fault(produceFault("", kerr.NotEnoughReplicas)) // while it feeds
		f.commit(insert("2"))
		time.Sleep(time.Minute)
		if n := len(b.log.With("Kafka acknowledges nothing")); n != 1 {
			t.Errorf("told %d times", n)
		}
		fault.Remove()
		time.Sleep(30 * time.Second)
		if n := len(b.Records(t, usersTopic)); n != 2 {
			t.Errorf("%d records", n)
		}
		if n := len(b.log.With("Kafka acknowledges again")); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}

func TestASourceInErrorIsToldOnceAndTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		err         error
		least, most int // runs in three minutes
	}{
		"a cut connection":  {&cdc.SourceError{Source: "shop", Err: errors.New("no"), Hint: "check the network", Retry: true}, 18, 26},
		"a person must act": {&cdc.SourceError{Source: "shop", Err: errors.New("no"), Hint: "check the network"}, 4, 5},
		"a plain error":     {errors.New("check the network"), 18, 26},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f := newBench(t), newFakeFeeder()
				f.set(test.err)
				b.start(Source{Name: "shop", Feeder: f})
				time.Sleep(3 * time.Minute)
				if told := b.log.With("stands still"); len(told) != 1 || !strings.Contains(told[0], "check the network") {
					t.Errorf("told %d times: %s", len(told), told)
				}
				if starts, _ := f.seen(); len(starts) < test.least || len(starts) > test.most {
					t.Errorf("%d runs", len(starts))
				}
				f.set(errors.New("another"))
				time.Sleep(2 * time.Minute)
				if told := b.log.With("stands still"); len(told) != 2 {
					t.Errorf("told %d times", len(told))
				}
				f.set(nil)
				f.commit(insert("1"))
				time.Sleep(2 * time.Minute)
				if n := len(b.Records(t, usersTopic)); n != 1 {
					t.Errorf("%d records", n)
				}
			})
		})
	}
}

func TestALogicalMessageHasATopicOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.start(Source{Name: "shop", Feeder: f})
		f.commit(&cdc.RowChange{Source: "shop", Connector: cdc.Postgres, Op: cdc.Message, Prefix: "cache", Content: []byte("feed:42")})
		time.Sleep(time.Second)
		if vs := b.values("shop.message"); len(vs) != 1 || !strings.Contains(vs[0], `"op":"m"`) {
			t.Error(vs)
		}
	})
}

func TestSourcesNeedNamesOfTheirOwn(t *testing.T) {
	for _, names := range [][]string{{""}, {"a", "a"}} {
		var ss []Source
		for _, n := range names {
			ss = append(ss, Source{Name: n})
		}
		if _, err := New(Options{Sources: ss}); err == nil {
			t.Errorf("%q was taken", names)
		}
	}
}
