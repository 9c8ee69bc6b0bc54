package changelog

import (
	"cmp"
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// KeyFollower asks for one key of the state topic again and again, and reads only what came since it last asked. It is for
// one goroutine.
type KeyFollower struct {
	topic, key string
	cl         *kgo.Client
	partition  int32
	next       int64 // offset behind what was read; -1: nothing was
	value      []byte
	count      int64
}

// Follow makes a follower of key; Close it.
func (s *StateStore) Follow(key string) (*KeyFollower, error) {
	cl, err := s.read()
	if err != nil {
		return nil, err
	}
	return &KeyFollower{topic: s.topic, key: key, cl: cl, next: -1}, nil
}

// Close lets go of the connections.
func (f *KeyFollower) Close() { f.cl.Close() }

// Count is how many records of the key it has read so far.
func (f *KeyFollower) Count() int64 { return f.count }

// Get returns the last record of the key as of the end that the topic has now.
func (f *KeyFollower) Get(ctx context.Context) (value []byte, found bool, err error) {
	if value, err = f.get(ctx); err != nil {
		return nil, false, fmt.Errorf("reading %s from topic %s: %w", f.key, f.topic, err)
	}
	return value, value != nil, nil
}

func (f *KeyFollower) get(ctx context.Context) ([]byte, error) {
	adm := kadm.NewClient(f.cl)
	ends, err := adm.ListEndOffsets(ctx, f.topic)
	if err = cmp.Or(err, ends.Error()); err != nil {
		return nil, fmt.Errorf("asking for its end: %w", err)
	}
	starts, err := adm.ListStartOffsets(ctx, f.topic)
	if err = cmp.Or(err, starts.Error()); err != nil {
		return nil, fmt.Errorf("asking for its start: %w", err)
	}
	f.partition = partitionOf(f.key, len(ends[f.topic]))
	start, end := starts[f.topic][f.partition].Offset, ends[f.topic][f.partition].Offset
	if f.next > end { // a topic that was made again
		f.next, f.value = -1, nil
	}
	from := max(f.next, start)
	err = readPartition(ctx, f.cl, f.topic, f.partition, from, end, func(r *kgo.Record) {
		if string(r.Key) == f.key {
			f.value = r.Value
			f.count++
		}
		f.next = r.Offset + 1
	})
	return f.value, err
}

// partitionOf is the one partition to which producers send the key.
func partitionOf(key string, of int) int32 {
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(key)}, of)) // what a client has by default
}
