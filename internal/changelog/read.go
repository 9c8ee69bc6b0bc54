package changelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"golang.org/x/sync/errgroup"
)

const (
	readMaxBytes = 1 << 20                // of one fetch; a broker exceeds it for a single larger batch
	readAtOnce   = 4                      // partitions, each with a fetch in memory
	readMaxWait  = 500 * time.Millisecond // a broker answers at once here, since below the end there is always something
	readRetries  = 20                     // without progress, a retryBackoff apart: longer than an election takes
	retryBackoff = 250 * time.Millisecond
)

// readAll hands every record of a topic, from the start of each partition to the end it has when the call begins, to fn,
// in offset order within a partition, and from several goroutines at once.
//
// It fetches by itself rather than through a consumer, since only the raw batches tell how far one has read: compaction
// may have emptied the last ones before the end, and a consumer that waits for a record there waits for ever.
func readAll(ctx context.Context, cl *kgo.Client, topic string, fn func(*kgo.Record)) error {
	return readSome(ctx, cl, topic, func(int32, int) bool { return true }, fn)
}

// readKey is readAll for the one partition to which producers send the key.
func readKey(ctx context.Context, cl *kgo.Client, topic, key string, fn func(*kgo.Record)) error {
	return readSome(ctx, cl, topic, func(p int32, of int) bool { return p == partitionOf(key, of) }, fn)
}

func readSome(ctx context.Context, cl *kgo.Client, topic string, wanted func(p int32, of int) bool, fn func(*kgo.Record)) error {
	starts, ends, err := bounds(ctx, cl, topic)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("it does not exist (feed and run make it when they start): %w", err)
	case err != nil:
		return err
	}
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(readAtOnce)
	for p, end := range ends {
		if !wanted(p, len(ends)) {
			continue
		}
		eg.Go(func() error {
			if err := readPartition(ctx, cl, topic, p, starts[p].Offset, end.Offset, fn); err != nil {
				return fmt.Errorf("partition %d: %w", p, err)
			}
			return nil
		})
	}
	return eg.Wait()
}

// bounds asks where a topic's partitions start and end. The ends are asked for first: a record that they show lies behind the starts, or has left
// the log.
func bounds(ctx context.Context, cl *kgo.Client, topic string) (starts, ends map[int32]kadm.ListedOffset, err error) {
	adm := kadm.NewClient(cl)
	e, err := adm.ListEndOffsets(ctx, topic)
	if err = cmp.Or(err, e.Error()); err != nil {
		return nil, nil, fmt.Errorf("asking for its end: %w", err)
	}
	s, err := adm.ListStartOffsets(ctx, topic)
	if err = cmp.Or(err, s.Error()); err != nil {
		return nil, nil, fmt.Errorf("asking for its start: %w", err)
	}
	return s[topic], e[topic], nil
}

func readPartition(ctx context.Context, cl *kgo.Client, topic string, p int32, from, to int64, fn func(*kgo.Record)) error {
	var last error
	for tries := 0; from < to; {
		ask := ctx
		if tries > 0 { // the leader may have changed
			ask = uncached(ctx)
		}
		got, err := fetchOnce(ask, cl, Partition{topic, p}, from)
		for _, r := range got.records {
			if r.Offset < to {
				fn(r)
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && got.next > from:
			from, tries = got.next, 0
			continue
		case err != nil && !kerr.IsRetriable(err) && !kgo.IsRetryableBrokerErr(err):
			return fmt.Errorf("offset %d: %w", from, err)
		case err != nil:
			last = err
		}
		if tries++; tries > readRetries {
			return fmt.Errorf("no progress at offset %d of %d: %w", from, to, last)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryBackoff):
		}
	}
	return nil
}

// fetched is one answer of a partition's leader.
type fetched struct {
	records   []*kgo.Record // that one may hand on: no control records
	next      int64         // the offset to go on from; the one that was asked for, where nothing came
	end       int64         // of the log
	topicID   kadm.TopicID  // zero: the broker knows no ids
	throttled bool          // the broker held something back
}

// fetchOnce asks the partition's leader for one answer.
func fetchOnce(ctx context.Context, cl *kgo.Client, p Partition, from int64) (fetched, error) {
	none := fetched{next: from}
	m, err := kadm.NewClient(cl).Metadata(ctx, p.Topic)
	if err != nil {
		return none, err
	}
	t := m.Topics[p.Topic]
	part, ok := t.Partitions[p.Number]
	if t.Err != nil {
		return none, t.Err
	}
	if part.Err != nil || !ok || part.Leader < 0 {
		return none, kerr.LeaderNotAvailable
	}

	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes = -1, int32(readMaxWait.Milliseconds()), 1, readMaxBytes
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = p.Topic, t.ID
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = p.Number, from, readMaxBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)

	resp, err := req.RequestWith(ctx, cl.Broker(int(part.Leader)))
	if err != nil {
		return none, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return none, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return none, errors.New("the broker answered without the partition")
	}
	got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: from, Topic: p.Topic, Partition: p.Number, IsolationLevel: kgo.ReadUncommitted(),
	}, &resp.Topics[0].Partitions[0], unpacker{ctx}, nil)
	if ctx.Err() != nil { // what could be unpacked is not all of it
		return none, ctx.Err()
	}
	if got.Err != nil {
		return none, got.Err
	}
	return fetched{got.Records, next, got.HighWatermark, t.ID, resp.ThrottleMillis > 0}, nil
}
