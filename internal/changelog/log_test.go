package changelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"invalidator/internal/changelog"
)

// logRig is a change topic whose ranges are read again.
type logRig struct {
	*groupRig
	log *changelog.Log
}

func newLogRig(t *testing.T) *logRig {
	g := newGroupRig(t)
	l, err := changelog.OpenLog(g.cluster.Options)
	must(t, err)
	t.Cleanup(l.Close)
	return &logRig{g, l}
}

// read reads a range as text: the first and the last offset of each run, and the error.
func (r *logRig) read(ctx context.Context, from, to int64, each func()) (string, error) {
	var runs []string
	first, last := int64(-1), int64(-2)
	err := r.log.Read(ctx, users0, from, to, func(rs []changelog.Record) error {
		for _, rec := range rs {
			if rec.Offset != last+1 {
				if first >= 0 {
					runs = append(runs, fmt.Sprintf("%d-%d", first, last))
				}
				first = rec.Offset
			}
			last = rec.Offset
		}
		if each != nil {
			each()
		}
		return nil
	})
	if first >= 0 {
		runs = append(runs, fmt.Sprintf("%d-%d", first, last))
	}
	return strings.Join(runs, " "), err
}

// large writes n records of which two do not fit into one answer.
func (r *logRig) large(n int) {
	value := make([]byte, 600<<10)
	for i := range value {
		value[i] = byte(i * i >> 3)
	}
	cl, err := r.cluster.Options.Client(kgo.ProducerBatchCompression(kgo.NoCompression()))
	must(r.t, err)
	defer cl.Close()
	for range n {
		must(r.t, cl.ProduceSync(r.t.Context(), &kgo.Record{Topic: usersTopic, Value: value}).FirstErr())
	}
}

func TestReadARangeOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLogRig(t)
		r.produce(20)
		must(t, r.cluster.DeleteRecords(usersTopic, 0, 5))
		for _, tc := range []struct {
			from, to int64
			want     string
			start    int64 // of a LogStartError
		}{
			{5, 20, "5-19", 0}, {7, 9, "7-8", 0}, {7, 7, "", 0}, {9, 7, "", 0}, {15, 1000, "15-19", 0}, {20, 30, "", 0}, {25, 30, "", 0},
			{0, 10, "", 5}, {4, 5, "", 5},
		} {
			got, err := r.read(t.Context(), tc.from, tc.to, nil)
			var behind *changelog.LogStartError
			switch {
			case errors.As(err, &behind):
				if behind.Start != tc.start || behind.Partition != users0 {
					t.Errorf("[%d,%d): %v", tc.from, tc.to, err)
				}
			case err != nil || tc.start > 0:
				t.Errorf("[%d,%d): error %v", tc.from, tc.to, err)
			}
			if got != tc.want {
				t.Errorf("[%d,%d): %q, want %q", tc.from, tc.to, got, tc.want)
			}
		}
	})
}

// A record is handed over whole: it may name its schema in a header.
func TestARecordOfTheLogIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLogRig(t)
		must(t, r.cl.ProduceSync(t.Context(), &kgo.Record{Topic: usersTopic, Key: []byte("k"), Value: []byte("v"),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}}).FirstErr())
		must(t, r.cl.ProduceSync(t.Context(), &kgo.Record{Topic: usersTopic, Key: []byte("k")}).FirstErr())
		var got []changelog.Record
		must(t, r.log.Read(t.Context(), users0, 0, 2, func(rs []changelog.Record) error { got = append(got, rs...); return nil }))
		if len(got) != 2 || string(got[0].Key) != "k" || string(got[0].Value) != "v" || len(got[0].Headers) != 1 || got[0].Time.IsZero() || got[1].Value != nil {
			t.Errorf("%+v", got)
		}
	})
}

// Answers are bounded, and what comes while one reads is not waited for.
func TestTheLogIsReadInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLogRig(t)
		r.large(6)
		pieces := 0
		got, err := r.read(t.Context(), 0, 100, func() {
			if pieces++; pieces == 1 {
				r.produce(1)
			}
		})
		if err != nil || got != "0-5" || pieces < 3 {
			t.Errorf("%q in %d pieces, %v", got, pieces, err)
		}
	})
}

// Retention overtakes the reader: it says where the log begins now.
func TestRetentionOvertakesAReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLogRig(t)
		r.large(6)
		pieces := 0
		got, err := r.read(t.Context(), 0, 6, func() {
			if pieces++; pieces == 1 {
				must(t, r.cluster.DeleteRecords(usersTopic, 0, 5))
			}
		})
		var behind *changelog.LogStartError
		if !errors.As(err, &behind) || behind.Start != 5 || !strings.HasPrefix(got, "0-") {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// Transactions leave offsets that never come, also as the last below the end; what an aborted one wrote is read.
func TestControlRecordsHoldNoReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLogRig(t)
		cl, err := r.cluster.Options.Client(kgo.TransactionalID("tx"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		must(t, err)
		defer cl.Close()
		for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
			must(t, cl.BeginTransaction())
			must(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: usersTopic, Value: []byte("x")}).FirstErr())
			must(t, cl.EndTransaction(t.Context(), end))
		}
		for to, want := range map[int64]string{4: "0-0 2-2", 3: "0-0 2-2", 2: "0-0", 100: "0-0 2-2"} {
			if got, err := r.read(t.Context(), 0, to, nil); err != nil || got != want {
				t.Errorf("to %d: %q, %v", to, got, err)
			}
		}
		if got, err := r.read(t.Context(), 3, 4, nil); err != nil || got != "" {
			t.Errorf("a control record alone: %q, %v", got, err)
		}
	})
}

// Compaction has emptied the end of the log: the broker answers, and with nothing.
func TestAnEndThatCompactionEmptied(t *testing.T) {
	for _, tc := range []struct {
		name      string
		throttled bool
		end       int64
		wantErr   bool
	}{
		{"it is empty", false, 5, false},
		{"the broker holds back", true, 5, true},                        // what is held back may be a change
		{"the leader does not know how far it reaches", false, 3, true}, // it is new
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLogRig(t)
				r.produce(5)
				r.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
					r.cluster.KeepControl()
					asked := req.(*kmsg.FetchRequest).Topics[0]
					if asked.Partitions[0].FetchOffset < 3 {
						return nil, nil, false
					}
					resp := req.ResponseKind().(*kmsg.FetchResponse)
					if tc.throttled {
						resp.ThrottleMillis = 1
					}
					topic := kmsg.NewFetchResponseTopic()
					topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
					p := kmsg.NewFetchResponseTopicPartition()
					p.HighWatermark = tc.end
					topic.Partitions = append(topic.Partitions, p)
					resp.Topics = append(resp.Topics, topic)
					return resp, nil, true
				})
				_, err := r.read(t.Context(), 3, 5, nil)
				if (err != nil) != tc.wantErr {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

// A topic that is gone, or another one under the same name, is said so, and not waited for for ever.
func TestTheTopicIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLogRig(t)
		r.large(4)
		pieces := 0
		_, err := r.read(t.Context(), 0, 4, func() {
			if pieces++; pieces == 1 {
				must(t, r.cluster.DeleteTopic(usersTopic))
				r.makeTopic(usersTopic)
				r.reopen()
				r.produce(10)
			}
		})
		if !errors.Is(err, changelog.ErrNoTopic) || pieces != 1 {
			t.Errorf("made again: %v, %d pieces", err, pieces)
		}
		must(t, r.cluster.DeleteTopic(usersTopic))
		if _, err := r.read(t.Context(), 0, 4, nil); !errors.Is(err, changelog.ErrNoTopic) {
			t.Errorf("gone: %v", err)
		}
	})
}

// A broker's passing trouble is waited out; one that refuses is believed.
func TestTroubleWhileReadingTheLog(t *testing.T) {
	for _, tc := range []struct {
		name    string
		code    int16
		times   int
		wantErr error
	}{
		{"not the leader, for a while", kerr.NotLeaderForPartition.Code, 5, nil},
		{"not the leader, for good", kerr.NotLeaderForPartition.Code, 1000, kerr.NotLeaderForPartition},
		{"not allowed", kerr.TopicAuthorizationFailed.Code, 1, kerr.TopicAuthorizationFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLogRig(t)
				r.produce(5)
				n := 0
				r.cluster.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
					r.cluster.KeepControl()
					if n++; n > tc.times {
						return nil, nil, false
					}
					asked := req.(*kmsg.FetchRequest).Topics[0]
					resp := req.ResponseKind().(*kmsg.FetchResponse)
					topic := kmsg.NewFetchResponseTopic()
					topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
					p := kmsg.NewFetchResponseTopicPartition()
					p.ErrorCode = tc.code
					topic.Partitions = append(topic.Partitions, p)
					resp.Topics = append(resp.Topics, topic)
					return resp, nil, true
				})
				got, err := r.read(t.Context(), 0, 5, nil)
				if !errors.Is(err, tc.wantErr) || (err == nil) != (got == "0-4") {
					t.Errorf("%q, %v", got, err)
				}
			})
		})
	}
}

// The context ends a read at once, whatever it waits for, and so does the receiver, whose error comes back as it is.
func TestAReadEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLogRig(t)
		r.produce(5)
		enough := errors.New("enough")
		if err := r.log.Read(t.Context(), users0, 0, 5, func([]changelog.Record) error { return enough }); !errors.Is(err, enough) {
			t.Errorf("got %v", err)
		}
		r.hang(kmsg.Fetch, time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := r.read(ctx, 0, 5, nil); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// An answer of a broker may hold thousands of batches: whoever ends does not wait until all are unpacked.
func TestAReadEndsWhileItUnpacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLogRig(t)
		r.batches(5)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		unpacked := 0
		defer changelog.OnUnpack(func() {
			if unpacked++; unpacked == 2 {
				cancel()
			}
		})()
		if got, err := r.read(ctx, 0, 5, nil); got != "" || !errors.Is(err, context.Canceled) || unpacked != 2 {
			t.Errorf("got %q and %v, and %d batches were unpacked, want 2", got, err, unpacked)
		}
	})
}

// A member that is told to end leaves, and does not wait until all that it has fetched is unpacked.
func TestAMemberEndsWhileItUnpacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLogRig(t)
		r.batches(5)
		ended := make(chan struct{})
		var unpacked atomic.Int32
		defer changelog.OnUnpack(func() {
			if unpacked.Add(1) == 2 {
				close(ended)
				synctest.Wait() // its context has ended
			}
		})()
		leave := r.join(r.c)
		<-ended
		leave()
		if n := unpacked.Load(); n != 2 {
			t.Errorf("%d batches were unpacked, want 2", n)
		}
	})
}

// batches writes n records, each compressed by itself.
func (r *logRig) batches(n int) {
	for i := range n {
		value := bytes.Repeat([]byte{byte(i)}, 1000)
		must(r.t, r.cl.ProduceSync(r.t.Context(), &kgo.Record{Topic: usersTopic, Value: value}).FirstErr())
	}
}

// No client tells the brokers of itself: at its end it would wait a second for one that hangs, and a process has many.
func TestNoClientTellsOfItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLogRig(t)
		r.cluster.ControlKey(int16(kmsg.GetTelemetrySubscriptions), func(kmsg.Request) (kmsg.Response, error, bool) {
			t.Error("a client asks what it is to tell")
			return nil, nil, false
		})
		r.produce(1)
		if _, err := r.read(t.Context(), 0, 1, nil); err != nil {
			t.Fatal(err)
		}
		r.log.Close()
	})
}

// Readers at once share their connections.
func TestReadersShareConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGroupRig(t)
		g.produce(50)
		l := &line{dial: g.cluster.Options.Dial}
		o := g.cluster.Options
		o.Dial = l.Dial
		log, err := changelog.OpenLog(o)
		must(t, err)
		defer log.Close()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				n := 0
				if err := log.Read(t.Context(), users0, 0, 50, func(rs []changelog.Record) error { n += len(rs); return nil }); err != nil || n != 50 {
					t.Errorf("%d records, %v", n, err)
				}
			})
		}
		wg.Wait()
		if n := len(l.conns); n > 4 { // the seed, and the broker's for fetches and for the rest
			t.Errorf("%d connections", n)
		}
	})
}
