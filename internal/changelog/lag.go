package changelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Lag is how far a group is with a partition.
type Lag struct {
	Partition
	Committed int64
	End       int64 // of the log; -1: it is not known, or the topic is gone
}

// ReadLags asks for the commits of a group and the ends of their partitions, by topic and number. A group that never was has none.
func ReadLags(ctx context.Context, o Options, group string) ([]Lag, error) {
	cl, err := o.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	committed, err := adm.FetchOffsets(ctx, group)
	if err = cmp.Or(err, committed.Error()); errors.Is(err, kerr.GroupIDNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("fetching the commits of group %s: %w", group, err)
	}
	var topics []string
	for topic := range committed {
		topics = append(topics, topic)
	}
	if len(topics) == 0 { // it would be all
		return nil, nil
	}
	var some *kadm.ShardErrors
	ends, err := adm.ListEndOffsets(ctx, topics...)
	if err != nil && !errors.As(err, &some) {
		return nil, fmt.Errorf("asking where logs end: %w", err)
	}
	var lags []Lag
	for _, c := range committed.Sorted() {
		l := Lag{Partition{c.Topic, c.Partition}, c.At, -1}
		if e, ok := ends.Lookup(c.Topic, c.Partition); ok && e.Err == nil {
			l.End = e.Offset
		}
		lags = append(lags, l)
	}
	return lags, nil
}
