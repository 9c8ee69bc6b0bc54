package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"invalidator/internal/changelog"
)

// clocksDiffer is by how much the clocks of a database, a broker and a worker may differ.
const clocksDiffer = 15 * time.Second

// surveyed is a partition of a change topic as it stands.
type surveyed struct {
	changelog.Partition
	topicID string
	start   int64     // the first offset that the log holds
	end     int64     // one past the last
	since   int64     // the first one that was appended at a time that was asked for, or later
	first   time.Time // when the record at start was appended; zero: there is none
}

// survey asks for all partitions of the topics that match, with the first offset that was appended at since or later.
func survey(ctx context.Context, adm *kadm.Client, match func(topic string) bool, since time.Time) (all []surveyed, err error) {
	m, err := adm.Metadata(uncached(ctx))
	if err != nil {
		return nil, fmt.Errorf("listing topics: %w", err)
	}
	ids, names := map[string]string{}, []string(nil)
	for _, t := range m.Topics {
		switch {
		case !match(t.Topic):
			continue
		case t.Err != nil:
			return nil, fmt.Errorf("asking for topic %s: %w", t.Topic, t.Err)
		}
		ids[t.Topic], names = idText(t.ID), append(names, t.Topic)
	}
	if len(names) == 0 { // it would be all
		return nil, nil
	}
	// The ends are asked for last, so that no offset lies beyond them.
	starts, err := adm.ListStartOffsets(ctx, names...)
	if err = cmp.Or(err, starts.Error()); err != nil {
		return nil, fmt.Errorf("asking where the change topics begin: %w", err)
	}
	firsts, err := adm.ListOffsetsAfterMilli(ctx, 0, names...)
	if err = cmp.Or(err, firsts.Error()); err != nil {
		return nil, fmt.Errorf("asking when the change topics begin: %w", err)
	}
	afters, err := adm.ListOffsetsAfterMilli(ctx, max(0, since.UnixMilli()), names...)
	if err = cmp.Or(err, afters.Error()); err != nil {
		return nil, fmt.Errorf("asking where the change topics stood at %s: %w", since.Format(time.RFC3339), err)
	}
	ends, err := adm.ListEndOffsets(ctx, names...)
	if err = cmp.Or(err, ends.Error()); err != nil {
		return nil, fmt.Errorf("asking where the change topics end: %w", err)
	}
	for _, e := range ends.Offsets().Sorted() {
		s := surveyed{Partition: changelog.Partition{Topic: e.Topic, Number: e.Partition}, topicID: ids[e.Topic], end: e.At}
		start, ok := starts.Lookup(e.Topic, e.Partition)
		after, ok2 := afters.Lookup(e.Topic, e.Partition)
		first, ok3 := firsts.Lookup(e.Topic, e.Partition)
		if !ok || !ok2 || !ok3 {
			return nil, fmt.Errorf("partition %s: the broker does not say where it begins: it was made just now", s.Partition)
		}
		s.start = start.Offset
		s.since = max(s.start, min(after.Offset, s.end))
		if first.Timestamp >= 0 {
			s.first = time.UnixMilli(first.Timestamp).UTC()
		}
		all = append(all, s)
	}
	return all, nil
}

// reach is how far back the log of the change topics goes: nothing that was committed then or later has left it.
type reach struct {
	changelog.Partition
	from time.Time // zero: to the beginning
}

// reachOf is the latest of all partitions. One that has lost records to retention reaches back to its first record; where it keeps records for a time, and
// nothing else removes them, for that time at least. An empty one of which that is not known is no reason against anything: its owner knows what it sent of what is lost.
func reachOf(ctx context.Context, adm *kadm.Client, all []surveyed, now time.Time) (latest reach, err error) {
	var names []string
	for _, s := range all {
		if s.start > 0 && !slices.Contains(names, s.Topic) {
			names = append(names, s.Topic)
		}
	}
	if len(names) == 0 {
		return reach{}, nil
	}
	kept, err := keptFor(ctx, adm, names)
	if err != nil {
		return reach{}, err
	}
	for _, s := range all {
		if s.start == 0 {
			continue
		}
		from := s.first
		if keep, known := kept[s.Topic]; known && (from.IsZero() || now.Add(-keep).Before(from)) {
			from = now.Add(-keep)
		}
		if from.IsZero() {
			continue
		}
		if from = from.Add(clocksDiffer); from.After(latest.from) {
			latest = reach{s.Partition, from}
		}
	}
	return latest, nil
}

// keptFor is for how long topics keep records, of those where nothing but time removes them.
func keptFor(ctx context.Context, adm *kadm.Client, names []string) (map[string]time.Duration, error) {
	configs, err := adm.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, fmt.Errorf("asking for how long topics keep records: %w", err)
	}
	kept := map[string]time.Duration{}
	for _, c := range configs {
		if errors.Is(c.Err, kerr.TopicAuthorizationFailed) {
			continue
		}
		if c.Err != nil {
			return nil, fmt.Errorf("asking for how long topic %s keeps records: %w", c.Name, c.Err)
		}
		ms, bytes := int64(-1), int64(0)
		for _, kv := range c.Configs {
			n, err := strconv.ParseInt(kv.MaybeValue(), 10, 64)
			switch {
			case err != nil:
			case kv.Key == "retention.ms":
				ms = n
			case kv.Key == "retention.bytes":
				bytes = n
			}
		}
		if ms > 0 && bytes == -1 {
			kept[c.Name] = time.Duration(min(ms, maxKept.Milliseconds())) * time.Millisecond
		}
	}
	return kept, nil
}

// maxKept is more than any log keeps: a duration must not overflow.
const maxKept = 100 * 365 * 24 * time.Hour
