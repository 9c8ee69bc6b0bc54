package changelog

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// KeyFollower asks again and again for the record that counts of one key, and reads only what came since it last asked. It is for
// one goroutine.
type KeyFollower struct {
	topic, key string
	first      bool // not the last record counts, but the first since the key was last removed
	cl         *kgo.Client
	partition  int32
	next       int64 // offset behind what was read; -1: nothing was
	value      []byte
	count      int64
}

// Follow makes a follower of the last record of key; Close it.
func (s *StateStore) Follow(key string) (*KeyFollower, error) { return s.follow(key, false) }

// FollowFirst makes a follower of the first record that the log has of key since it was last removed; Close it. Of two who write a key of
// which only the first writer counts, it is the same one for every reader.
func (s *StateStore) FollowFirst(key string) (*KeyFollower, error) { return s.follow(key, true) }

func (s *StateStore) follow(key string, first bool) (*KeyFollower, error) {
	cl, err := s.read()
	if err != nil {
		return nil, err
	}
	return &KeyFollower{topic: s.topic, key: key, first: first, cl: cl, next: -1}, nil
}

// Close lets go of the connections.
func (f *KeyFollower) Close() { f.cl.Close() }

// First is one question of a KeyFollower.
func (s *StateStore) First(ctx context.Context, key string) (value []byte, found bool, err error) {
	f, err := s.FollowFirst(key)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	return f.Get(ctx)
}

// Count is how many records of the key it has read so far.
func (f *KeyFollower) Count() int64 { return f.count }

// Get returns what it follows, as of the end that the topic has now.
func (f *KeyFollower) Get(ctx context.Context) (value []byte, found bool, err error) {
	if value, err = f.get(ctx); err != nil {
		return nil, false, fmt.Errorf("reading %s from topic %s: %w", f.key, f.topic, err)
	}
	return value, value != nil, nil
}

func (f *KeyFollower) get(ctx context.Context) ([]byte, error) {
	starts, ends, err := bounds(ctx, f.cl, f.topic)
	if err != nil {
		return nil, err
	}
	f.partition = partitionOf(f.key, len(ends))
	start, end := starts[f.partition].Offset, ends[f.partition].Offset
	if f.next > end { // a topic that was made again
		f.next, f.value = -1, nil
	}
	from := max(f.next, start)
	err = readPartition(ctx, f.cl, f.topic, f.partition, from, end, func(r *kgo.Record) {
		if string(r.Key) == f.key {
			f.count++
			if !f.first || f.value == nil || r.Value == nil {
				f.value = r.Value
			}
		}
		f.next = r.Offset + 1
	})
	return f.value, err
}

// partitionOf is the one partition to which producers send the key.
func partitionOf(key string, of int) int32 {
	return int32(kgo.StickyKeyPartitioner(nil).ForTopic("").Partition(&kgo.Record{Key: []byte(key)}, of)) // what a client has by default
}
