package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
)

// PartitionLag is how far the group is with a partition. Its JSON form is stable.
type PartitionLag struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed"`
	End       int64  `json:"end"`              // -1: not known
	Lag       int64  `json:"lag"`              // records; 0 where the end is not known
	Source    string `json:"source,omitempty"` // whose topic it is; left out where the configuration has none of that topic
	Age       int64  `json:"age,omitempty"`    // seconds since the first record was appended that is not finished, at least; left out below 10
}

// lagAges are the ages that partitions are sorted by with a question for all of them at once. Below the least of them a lag is a commit that is on its way.
var lagAges = []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour}

// agesRead is of how many partitions, those whose age is the greatest, it is read out of the log: an answer is up to 1 MiB.
const agesRead = 8

// lags asks how far the group is with each partition, and how old what it has not finished is.
func (r *FleetReader) lags(ctx context.Context) (lags []PartitionLag, err error) {
	all, err := changelog.ReadLags(ctx, r.kafka, r.group)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		x := PartitionLag{Topic: l.Topic, Partition: l.Number, Committed: l.Committed, End: l.End, Lag: max(l.End-l.Committed, 0)}
		if s := pipeline.SourceOf(r.sources, l.Topic); s != nil {
			x.Source = s.Name
		}
		lags = append(lags, x)
	}
	if err := r.ages(ctx, lags, time.Now()); err != nil {
		return nil, err
	}
	return lags, nil
}

// ages fills in how old the first unfinished record of each partition is.
func (r *FleetReader) ages(ctx context.Context, lags []PartitionLag, now time.Time) error {
	var old []*PartitionLag
	for i := range lags {
		if lags[i].Lag > 0 {
			old = append(old, &lags[i])
		}
	}
	adm := kadm.NewClient(r.cl)
	for _, age := range lagAges {
		var topics []string
		for _, l := range old {
			topics = append(topics, l.Topic)
		}
		slices.Sort(topics)
		if topics = slices.Compact(topics); len(topics) == 0 { // it would be all
			break
		}
		listed, err := adm.ListOffsetsAfterMilli(ctx, now.Add(-age).UnixMilli(), topics...)
		if some := (*kadm.ShardErrors)(nil); err != nil && !errors.As(err, &some) {
			return fmt.Errorf("asking how old the first unfinished records are: %w", err)
		}
		old = slices.DeleteFunc(old, func(l *PartitionLag) bool {
			at, ok := listed.Lookup(l.Topic, l.Partition)
			if !ok || at.Err != nil || l.Committed >= at.Offset { // what is not finished is younger
				return true
			}
			l.Age = int64(age.Seconds())
			return false
		})
	}
	return r.exactAges(ctx, lags, now)
}

// exactAges reads the first unfinished record of the oldest partitions.
func (r *FleetReader) exactAges(ctx context.Context, lags []PartitionLag, now time.Time) error {
	var old []*PartitionLag
	for i := range lags {
		if lags[i].Age > 0 {
			old = append(old, &lags[i])
		}
	}
	if len(old) == 0 {
		return nil
	}
	slices.SortStableFunc(old, func(a, b *PartitionLag) int { return cmp.Or(cmp.Compare(b.Age, a.Age), cmp.Compare(b.Lag, a.Lag)) })
	log, err := changelog.OpenLog(r.kafka)
	if err != nil {
		return err
	}
	defer log.Close()
	for _, l := range old[:min(len(old), agesRead)] {
		err := log.Read(ctx, changelog.Partition{Topic: l.Topic, Number: l.Partition}, l.Committed, l.Committed+1, func(rs []changelog.Record) error {
			if age := int64(now.Sub(rs[0].Time).Seconds()); age > l.Age {
				l.Age = age
			}
			return nil
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the age that is known is true all the same
			r.log.Debug("reading how old the first unfinished record is", "topic", l.Topic, "partition", l.Partition, "error", err)
		}
	}
	return nil
}
