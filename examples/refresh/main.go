package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/sink"
)

// request is a record of the refresh topic, as far as a job needs it (docs/TOPICS.md).
type request struct {
	V     int             `json:"v"`
	Key   string          `json:"key"`
	Bytes []byte          `json:"key_base64"` // of a key that JSON cannot show; it stands for Key then
	Pool  string          `json:"pool"`
	Table string          `json:"table"`
	Row   json.RawMessage `json:"row"`
	At    time.Time       `json:"at"`
}

// job rebuilds what it is asked to.
type job struct {
	ring  *sink.Topology
	pool  string // whose keys it builds; empty: all
	build func(ctx context.Context, r request) (string, error)
	lease time.Duration // must exceed the longest build
	ttl   time.Duration // of a value
	log   *slog.Logger
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "refresh:", err)
		os.Exit(1)
	}
}

func run() error {
	brokers := flag.String("brokers", "127.0.0.1:9092", "where Kafka is, separated by commas")
	topic := flag.String("topic", "invalidator.refresh", "the refresh topic")
	group := flag.String("group", "refresh-example", "the consumer group of these jobs")
	ringFile := flag.String("ring", "ring.json", "the ring record")
	pool := flag.String("pool", "", "rebuild keys of this pool only")
	flag.Parse()

	data, err := os.ReadFile(*ringFile)
	if err != nil {
		return fmt.Errorf("reading the ring: %w", err)
	}
	record, err := sink.ParseRecord(*ringFile, data)
	if err != nil {
		return err
	}
	ring, err := sink.NewTopology(record)
	if err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(*brokers, ",")...), kgo.ConsumerGroup(*group), kgo.ConsumeTopics(*topic), kgo.DisableAutoCommit())
	if err != nil {
		return fmt.Errorf("opening Kafka: %w", err)
	}
	defer cl.Close()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	j := &job{ring: ring, pool: *pool, build: build, lease: time.Minute, ttl: time.Hour, log: slog.Default()}
	return j.run(ctx, cl)
}

// build renders a key's value: the part that is yours. It reads the rows afresh; the request says only which one changed.
func build(_ context.Context, r request) (string, error) {
	return fmt.Sprintf("%s, rebuilt for a change of %s %s", r.Key, r.Table, r.Row), nil
}

// run answers requests until ctx ends. Offsets are committed after the answers: a request may be answered twice, and is never lost.
func (j *job) run(ctx context.Context, cl *kgo.Client) error {
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			j.log.Error("reading requests", "topic", topic, "partition", partition, "error", err)
		})
		for _, r := range j.latest(fetches.Records()) {
			if err := j.refresh(ctx, r); err != nil {
				j.log.Error("rebuilding; the next reader will", "key", sink.Show(r.Key), "error", err)
			}
		}
		if err := cl.CommitUncommittedOffsets(ctx); err != nil && ctx.Err() == nil {
			j.log.Error("committing", "error", err)
		}
	}
}

// latest is the last request of each key, in their order.
func (j *job) latest(records []*kgo.Record) (all []request) {
	at := map[string]int{}
	for _, rec := range records {
		var r request
		if err := json.Unmarshal(rec.Value, &r); err != nil || r.V != 1 {
			j.log.Error("a request that this job does not understand", "partition", rec.Partition, "offset", rec.Offset, "version", r.V, "error", err)
			continue
		}
		if len(r.Bytes) > 0 {
			r.Key = string(r.Bytes)
		}
		if j.pool != "" && r.Pool != j.pool {
			continue
		}
		if i, ok := at[r.Key]; ok {
			all[i] = r
			continue
		}
		at[r.Key] = len(all)
		all = append(all, r)
	}
	return all
}

// refresh takes leases, builds, and fills, in this order: what is read after the lease was taken is never older than what voids it.
func (j *job) refresh(ctx context.Context, r request) (err error) {
	var won []*lease
	for _, c := range j.ring.AppendCopies(nil, r.Key, 0) {
		l, failed := takeLease(ctx, c, j.lease)
		if failed != nil {
			err = errors.Join(err, failed)
		} else if l != nil {
			defer l.close()
			won = append(won, l)
		}
	}
	if len(won) == 0 {
		return err // readers were faster
	}
	value, failed := j.build(ctx, r)
	for _, l := range won {
		if failed != nil {
			err = errors.Join(err, l.giveBack())
		} else {
			err = errors.Join(err, l.fill(value, j.ttl))
		}
	}
	return errors.Join(failed, err)
}
