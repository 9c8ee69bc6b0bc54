package changelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc/envelope"
)

// TopicRecord is a record with its partition.
type TopicRecord struct {
	Partition int32
	Record
}

// ReadTopic hands the records of a topic that were appended at or after since (zero: all) to fn, up to the end that each partition has when
// the call begins, one partition after the other. With follow it goes on with what comes, until ctx ends, which is no error
// then. It belongs to no group and commits nothing. An error of fn ends it with that error.
func ReadTopic(ctx context.Context, o Options, topic string, since time.Time, follow bool, fn func(TopicRecord) error) error {
	cl, err := o.Connect(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	from, err := adm.ListOffsetsAfterMilli(ctx, max(0, since.UnixMilli()), topic) // less than 0 are words of the protocol
	switch err = cmp.Or(err, from.Error()); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("topic %s does not exist (a change topic of ours is named <topic_prefix>.<schema>.<table>)", topic)
	case err != nil:
		return fmt.Errorf("asking where topic %s stood at %s: %w", topic, since.Format(time.RFC3339), err)
	}
	if follow {
		err = followTopic(ctx, cl, topic, from, fn)
	} else {
		err = readSince(ctx, cl, topic, from, fn)
	}
	if err != nil {
		return fmt.Errorf("reading topic %s: %w", topic, err)
	}
	return nil
}

func readSince(ctx context.Context, cl *kgo.Client, topic string, from kadm.ListedOffsets, fn func(TopicRecord) error) error {
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, topic)
	if err = cmp.Or(err, ends.Error()); err != nil {
		return fmt.Errorf("asking for its end: %w", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	for _, p := range slices.Sorted(maps.Keys(ends[topic])) {
		err := readPartition(ctx, cl, topic, p, from[topic][p].Offset, ends[topic][p].Offset, func(r *kgo.Record) {
			if ctx.Err() == nil {
				if err := fn(topicRecord(r)); err != nil {
					stop(err)
				}
			}
		})
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return nil
}

func followTopic(ctx context.Context, cl *kgo.Client, topic string, from kadm.ListedOffsets, fn func(TopicRecord) error) error {
	cl.AddConsumePartitions(from.KOffsets())
	for {
		fetches := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, r := range fetches.Records() {
			if err := fn(topicRecord(r)); err != nil {
				return err
			}
		}
	}
}

func topicRecord(r *kgo.Record) TopicRecord {
	t := TopicRecord{r.Partition, Record{Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Value: r.Value}}
	for _, h := range r.Headers { // they may name the record's schema
		t.Headers = append(t.Headers, envelope.Header(h))
	}
	return t
}
