package changelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"
)

// StateMirror is Load for who asks again and again: it reads the topic once, and then only what came since. It is for one goroutine.
type StateMirror struct {
	topic   string
	wanted  func(key []byte) bool
	cl      *kgo.Client
	next    map[int32]int64 // offsets behind what was read
	entries map[string]Entry
}

// Mirror makes a mirror of the wanted keys, which it may ask from several goroutines at once; Close it.
func (s *StateStore) Mirror(wanted func(key []byte) bool) (*StateMirror, error) {
	cl, err := s.read()
	if err != nil {
		return nil, err
	}
	return &StateMirror{s.topic, wanted, cl, map[int32]int64{}, map[string]Entry{}}, nil
}

// Close lets go of the connections.
func (m *StateMirror) Close() { m.cl.Close() }

// Read returns the last value of each wanted key, as of the end that the topic has now: a snapshot that does not change. After an error the next
// call goes on. A topic that was made again is read anew.
func (m *StateMirror) Read(ctx context.Context) (*State, error) {
	err := m.read(ctx)
	if errors.Is(err, ErrMadeAgain) {
		m.next, m.entries = map[int32]int64{}, map[string]Entry{}
		err = m.read(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("reading topic %s: %w", m.topic, err)
	}
	return &State{m.topic, maps.Clone(m.entries), slices.Sorted(maps.Keys(m.entries))}, nil
}

func (m *StateMirror) read(ctx context.Context) error {
	starts, ends, err := bounds(ctx, m.cl, m.topic)
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("it does not exist (feed and run make it when they start): %w", err)
	case err != nil:
		return err
	}
	for p, next := range m.next {
		if end, ok := ends[p]; !ok || next > end.Offset {
			return ErrMadeAgain
		}
	}
	was := maps.Clone(m.next)
	var mu sync.Mutex // guards entries and next
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(readAtOnce)
	for p, end := range ends {
		from := max(was[p], starts[p].Offset)
		if from >= end.Offset {
			continue
		}
		eg.Go(func() error {
			err := readPartition(ctx, m.cl, m.topic, p, from, end.Offset, func(r *kgo.Record) {
				mu.Lock()
				defer mu.Unlock()
				m.take(r)
			})
			if err != nil {
				return fmt.Errorf("partition %d: %w", p, err)
			}
			mu.Lock()
			defer mu.Unlock()
			m.next[p] = end.Offset // the last records before it may be compacted
			return nil
		})
	}
	return eg.Wait()
}

// take is called under read's lock. A value of its own does not hold on to the whole batch that it came with.
func (m *StateMirror) take(r *kgo.Record) {
	m.next[r.Partition] = r.Offset + 1
	switch {
	case !m.wanted(r.Key):
	case r.Value == nil:
		delete(m.entries, string(r.Key))
	default:
		m.entries[string(r.Key)] = Entry{Value: bytes.Clone(r.Value), Location: Location{r.Partition, r.Offset}}
	}
}
