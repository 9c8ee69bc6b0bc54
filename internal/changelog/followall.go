package changelog

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// ErrMadeAgain says that a topic was removed and made again: what was read of it counts for nothing.
var ErrMadeAgain = errors.New("the topic was made again")

// StateFollower reads the whole state topic once, and then, each time that it is asked, what came since. It is for one goroutine.
type StateFollower struct {
	topic  string
	wanted func(key []byte) bool
	cl     *kgo.Client
	next   map[int32]int64 // offsets behind what was read
}

// FollowAll makes a follower of the wanted keys, which it may ask from several goroutines at once; Close it.
func (s *StateStore) FollowAll(wanted func(key []byte) bool) (*StateFollower, error) {
	cl, err := s.read()
	if err != nil {
		return nil, err
	}
	return &StateFollower{s.topic, wanted, cl, map[int32]int64{}}, nil
}

// Close lets go of the connections.
func (f *StateFollower) Close() { f.cl.Close() }

// Read hands over every record that came since the last call, up to the end that the topic has when it is called: those of a key in their
// order, a nil value where the key was removed. fn is not called twice at once, and must not keep the value. After an error what was handed over
// counts, and the next call goes on behind it; after ErrMadeAgain nothing counts, and the next call begins at the start.
func (f *StateFollower) Read(ctx context.Context, fn func(key string, value []byte)) error {
	if err := f.read(ctx, fn); err != nil {
		return fmt.Errorf("following topic %s: %w", f.topic, err)
	}
	return nil
}

func (f *StateFollower) read(ctx context.Context, fn func(key string, value []byte)) error {
	starts, ends, err := bounds(ctx, f.cl, f.topic)
	if err != nil {
		return err
	}
	for p, next := range f.next {
		if end, ok := ends[p]; !ok || next > end.Offset {
			f.next = map[int32]int64{}
			return ErrMadeAgain
		}
	}
	var mu sync.Mutex
	next := maps.Clone(f.next)
	defer func() { f.next = next }()
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(readAtOnce)
	for p, end := range ends {
		from := max(f.next[p], starts[p].Offset)
		if from >= end.Offset {
			continue
		}
		eg.Go(func() error {
			err := readPartition(ctx, f.cl, f.topic, p, from, end.Offset, func(r *kgo.Record) {
				mu.Lock()
				defer mu.Unlock()
				if f.wanted(r.Key) {
					fn(string(r.Key), r.Value)
				}
				next[p] = r.Offset + 1
			})
			if err != nil {
				return fmt.Errorf("partition %d: %w", p, err)
			}
			mu.Lock()
			defer mu.Unlock()
			next[p] = end.Offset // the last records before it may be compacted
			return nil
		})
	}
	return eg.Wait()
}

// Ends asks where the partitions of some topics end now. One that its leader does not tell is left out; gone are the topics that do not exist.
func (f *StateFollower) Ends(ctx context.Context, topics []string) (ends map[Partition]int64, gone []string, err error) {
	ends = map[Partition]int64{}
	if len(topics) == 0 { // it would be all
		return ends, nil, nil
	}
	var some *kadm.ShardErrors
	listed, err := kadm.NewClient(f.cl).ListEndOffsets(ctx, topics...)
	if err != nil && !errors.As(err, &some) {
		return nil, nil, fmt.Errorf("asking where logs end: %w", err)
	}
	missing := map[string]bool{}
	listed.Each(func(o kadm.ListedOffset) {
		switch {
		case o.Err == nil:
			ends[Partition{o.Topic, o.Partition}] = o.Offset
		case errors.Is(o.Err, kerr.UnknownTopicOrPartition):
			missing[o.Topic] = true
		}
	})
	return ends, slices.Sorted(maps.Keys(missing)), nil
}
