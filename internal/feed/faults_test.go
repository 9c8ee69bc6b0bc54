package feed

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/cdc"
	"invalidator/internal/changelog"
)

// Kafka that goes away while a position is being saved is told like any other outage.
func TestAStallDuringASaveIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.start(Source{Name: "shop", Feeder: f})
		time.Sleep(time.Second)
		state := b.Fault(produceFault(b.Names.State, kerr.NotEnoughReplicas))
		f.commit(insert("1"))
		time.Sleep(time.Second) // acknowledged, and its position is on the way
		all := b.Fault(produceFault("", kerr.NotEnoughReplicas))
		f.commit(insert("2"))
		time.Sleep(time.Minute)
		if n := len(b.log.With("Kafka acknowledges nothing")); n != 1 {
			t.Errorf("told %d times", n)
		}
		state.Remove()
		all.Remove()
		time.Sleep(30 * time.Second)
		if n := len(b.log.With("Kafka acknowledges again")); n != 1 {
			t.Errorf("the end was told %d times", n)
		}
		if p := b.saved().Position.Pos; p != 3 {
			t.Errorf("position %d", p)
		}
	})
}

// feederFunc is a Feeder whose Run is a function.
type feederFunc func(ctx context.Context, from cdc.Position, out cdc.Handler) error

func (f feederFunc) Check(context.Context) ([]cdc.Finding, error) { return nil, nil }
func (f feederFunc) Confirm(cdc.Position)                         {}
func (f feederFunc) Restart(context.Context) (cdc.Position, error) {
	return cdc.Position{}, errors.New("nothing to restart")
}
func (f feederFunc) Run(ctx context.Context, from cdc.Position, out cdc.Handler) error {
	return f(ctx, from, out)
}

var errGap = &cdc.SourceError{Source: "shop", Err: cdc.ErrGap, Hint: "flush"}

// The source may have moved on because another process has fed it since our start was read. That is no gap.
// Where it cannot be asked whether that is so, nothing is accepted in anybody's name.
func TestAGapBeforeAPositionThatIsNoLongerSavedIsNone(t *testing.T) {
	for _, asked := range []bool{true, false} {
		t.Run(fmt.Sprint(asked), func(t *testing.T) { testOvertaken(t, asked) })
	}
}

func testOvertaken(t *testing.T, asked bool) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		store, err := changelog.OpenState(b.Options, b.Names.State)
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		save := func(pos uint64) {
			if err := store.PutPosition(t.Context(), "shop", 1, cdc.Position{Pos: pos}); err != nil {
				t.Error(err)
			}
		}
		save(5)
		starts := make(chan uint64, 10)
		feeder := feederFunc(func(ctx context.Context, from cdc.Position, out cdc.Handler) error {
			starts <- from.Pos
			if from.Pos == 5 {
				save(7) // by the process that ends now
				if !asked {
					b.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Err: kerr.TopicAuthorizationFailed, Count: 1})
				}
				return errGap
			}
			if err := out.Started(ctx, from); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		})
		stop := b.start(Source{Name: "shop", Feeder: feeder, OnGapFlush: true})
		time.Sleep(5 * time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(starts) != 2 || <-starts != 5 || <-starts != 7 {
			t.Error("it did not start once from 5 and once from 7")
		}
		if told := b.log.With("level=ERROR"); len(told) != 0 {
			t.Errorf("%s", told)
		}
		if all := b.gaps(); len(all) != 0 {
			t.Errorf("%+v", all)
		}
	})
}

// A change that was read, and that Kafka did not take yet when a gap was met behind it, is not given up with the gap.
func TestWhatWasReadBeforeAGapIsNotInIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		feeder := feederFunc(func(ctx context.Context, from cdc.Position, out cdc.Handler) error {
			if err := out.Started(ctx, cdc.Position{Pos: max(from.Pos, 1)}); err != nil {
				return err
			}
			if from.Pos <= 1 {
				if err := out.Change(ctx, insert("1")); err != nil {
					return err
				}
				if err := out.Committed(ctx, cdc.Position{Pos: 2}, time.Time{}); err != nil {
					return err
				}
			}
			return errGap
		})
		away := b.Fault(produceFault(usersTopic, kerr.NotEnoughReplicas))
		b.start(Source{Name: "shop", Feeder: feeder})
		time.Sleep(time.Minute)
		if all := b.gaps(); len(all) != 0 {
			t.Errorf("a gap over a change that can be read: %+v", all)
		}
		away.Remove()
		time.Sleep(30 * time.Second)
		if c := b.gap(); c.From.Pos != 2 || len(b.Records(t, usersTopic)) == 0 {
			t.Errorf("%+v", c)
		}
	})
}

func TestARealGapStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		f.set(errGap)
		b.start(Source{Name: "shop", Feeder: f})
		time.Sleep(5 * time.Second)
		if starts, _ := f.seen(); len(starts) != 1 {
			t.Errorf("%d runs", len(starts))
		}
		if told := b.log.With("level=ERROR"); len(told) != 1 {
			t.Errorf("%s", told)
		}
	})
}

// Two readers that cut each other's connection, each with some progress: they slow down.
func TestASourceThatIsCutAgainAndAgainSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var runs atomic.Int64
		feeder := feederFunc(func(ctx context.Context, from cdc.Position, out cdc.Handler) error {
			runs.Add(1)
			from.Pos++
			if err := out.Started(ctx, from); err != nil {
				return err
			}
			if err := out.Committed(ctx, cdc.Position{Pos: from.Pos + 1}, time.Time{}); err != nil {
				return err
			}
			time.Sleep(500 * time.Millisecond)
			return &cdc.SourceError{Source: "shop", Err: errors.New("another reader"), Retry: true}
		})
		b.start(Source{Name: "shop", Feeder: feeder})
		time.Sleep(2 * time.Minute)
		if n := runs.Load(); n > 20 {
			t.Errorf("%d runs in two minutes", n)
		}
	})
}

// A topic that somebody removes is made again, and what was not acknowledged comes again.
func TestATopicRemovedWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, f := newBench(t), newFakeFeeder()
		b.start(Source{Name: "shop", Feeder: f})
		f.commit(insert("1"))
		time.Sleep(time.Second)
		if err := b.DeleteTopic(usersTopic); err != nil {
			t.Fatal(err)
		}
		f.commit(insert("2"))
		time.Sleep(30 * time.Second)
		if n := len(b.Records(t, usersTopic)); n != 1 {
			t.Errorf("%d records", n)
		}
		if p := b.saved().Position.Pos; p != 3 {
			t.Errorf("position %d", p)
		}
	})
}

// Whatever the broker says about our sequence numbers, every row comes, and each row's last version last.
func TestABrokerThatForgetsTheProducer(t *testing.T) {
	for _, kafka := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch,
		kerr.CorruptMessage, kerr.NotLeaderForPartition, kerr.KafkaStorageError, kerr.UnknownServerError, kerr.InvalidRecord} {
		t.Run(kafka.Message, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f := newBench(t), newFakeFeeder()
				b.start(Source{Name: "shop", Feeder: f})
				f.commit(insert("0"))
				time.Sleep(time.Second)
				fault := produceFault(usersTopic, kafka)
				fault.Count = 2
				b.Fault(fault)
				const rows = 50
				for i := range rows {
					f.commit(insert(strconv.Itoa(i%5)), insert(strconv.Itoa(1000+i)))
					if i%10 == 0 {
						time.Sleep(10 * time.Millisecond)
					}
				}
				time.Sleep(5 * time.Minute)
				seen := map[string]bool{}
				for _, r := range b.Records(t, usersTopic) {
					seen[string(r.Key)] = true
				}
				if len(seen) != 5+rows {
					t.Errorf("%d of %d rows", len(seen), 5+rows)
				}
				if p := b.saved().Position.Pos; p != rows+2 {
					t.Errorf("position %d", p)
				}
			})
		})
	}
}
