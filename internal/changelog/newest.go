package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ReadNewest hands the newest records of every topic that match chooses to fn: the last n offsets of each partition, one
// partition after the other. It returns the topics' names, sorted, also those that hold no record. It belongs to no group and
// commits nothing. An error of fn ends it with that error; a topic that goes away meanwhile is as one that was never there, and one
// that our user may not read is listed in denied.
func ReadNewest(ctx context.Context, o Options, match func(topic string) bool, n int64, fn func(topic string, r TopicRecord) error) (topics, denied []string, err error) {
	cl, err := o.Connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer cl.Close()
	all, err := kadm.NewClient(cl).ListTopics(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("listing topics: %w", err)
	}
	for _, topic := range slices.Sorted(slices.Values(all.Names())) {
		if !match(topic) {
			continue
		}
		switch err := readNewest(ctx, cl, topic, n, fn); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			continue
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			denied = append(denied, topic)
			continue
		case err != nil:
			return topics, denied, fmt.Errorf("reading topic %s: %w", topic, err)
		}
		topics = append(topics, topic)
	}
	return topics, denied, nil
}

func readNewest(ctx context.Context, cl *kgo.Client, topic string, n int64, fn func(topic string, r TopicRecord) error) error {
	starts, ends, err := bounds(ctx, cl, topic)
	if err != nil {
		return err
	}
	for p, from := range starts {
		from.Offset = max(from.Offset, ends[p].Offset-n)
		starts[p] = from
	}
	return readSince(ctx, cl, topic, kadm.ListedOffsets{topic: starts}, func(r TopicRecord) error { return fn(topic, r) })
}
