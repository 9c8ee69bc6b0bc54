package changelog

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// StateStore is the compacted state topic: the last value of each key. Keys are text in parts, and the key of whatever two
// writers may both believe to own ends in the writer's generation, so that a paused old writer cannot replace what a newer
// one wrote (StateKey, PositionKey). It is safe for concurrent use; the writes of one store reach the topic in the order
// of their Put calls.
type StateStore struct {
	topic string
	cl    *kgo.Client
	read  func() (*kgo.Client, error)
}

// OpenState makes the store; it talks to no broker yet. topic is Names.State, which must exist (EnsureTopics).
func OpenState(o Options, topic string) (*StateStore, error) {
	cl, err := o.Client(append(ProducerOpts(func(string) int32 { return DefaultMaxMessageBytes - requestRoom }),
		// Each record is a batch of its own, of a few hundred bytes. Who takes a source over reads them all, and to unpack them takes
		// longer than to read them.
		kgo.WithCompressor(nil), kgo.ProducerBatchCompression(kgo.NoCompression()),
		// A caller who stops waiting learns that the outcome is unknown. Writing the same state twice is harmless.
		kgo.AllowIdempotentProduceCancellation())...)
	if err != nil {
		return nil, err
	}
	return &StateStore{topic: topic, cl: cl, read: func() (*kgo.Client, error) { return o.Client() }}, nil
}

// Close lets go of the connections. Puts that are under way fail.
func (s *StateStore) Close() { s.cl.Close() }

// Put writes value under key and returns when every in-sync replica has it. It waits for a broker that is away until ctx
// ends; then it is unknown whether the record was written.
func (s *StateStore) Put(ctx context.Context, key string, value []byte) error {
	r := &kgo.Record{Topic: s.topic, Key: []byte(key), Value: value}
	if err := produceAll(ctx, s.cl, r); err != nil {
		return fmt.Errorf("writing %s to topic %s: %w", key, s.topic, err)
	}
	return nil
}

// putJSON is Put of a value as JSON.
func (s *StateStore) putJSON(ctx context.Context, key string, value any) error {
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", key, err)
	}
	return s.Put(ctx, key, b)
}

// Write is a record of PutAll.
type Write struct {
	Key   string
	Value []byte
}

// PutAll is Put for several records at once. It returns where each of them lies.
func (s *StateStore) PutAll(ctx context.Context, writes []Write) ([]Location, error) {
	rs := make([]*kgo.Record, len(writes))
	for i, w := range writes {
		rs[i] = &kgo.Record{Topic: s.topic, Key: []byte(w.Key), Value: w.Value}
	}
	if err := produceAll(ctx, s.cl, rs...); err != nil {
		return nil, fmt.Errorf("writing %d records to topic %s: %w", len(writes), s.topic, err)
	}
	places := make([]Location, len(rs))
	for i, r := range rs {
		places[i] = Location{r.Partition, r.Offset}
	}
	return places, nil
}

// putEach is PutAll where one record's failure is not the others': an error a record, nil where every in-sync replica has it.
func (s *StateStore) putEach(ctx context.Context, writes []Write) ([]Location, []error) {
	rs := make([]*kgo.Record, len(writes))
	for i, w := range writes {
		rs[i] = &kgo.Record{Topic: s.topic, Key: []byte(w.Key), Value: w.Value}
	}
	errs := produceEach(ctx, s.cl, rs...)
	places := make([]Location, len(rs))
	for i, r := range rs {
		if errs[i] != nil {
			errs[i] = fmt.Errorf("writing %s to topic %s: %w", writes[i].Key, s.topic, errs[i])
			continue // r is the client's still, where ctx has ended
		}
		places[i] = Location{r.Partition, r.Offset}
	}
	return places, errs
}

// Remove takes keys out of the topic.
func (s *StateStore) Remove(ctx context.Context, keys ...string) error {
	rs := make([]*kgo.Record, len(keys))
	for i, k := range keys {
		rs[i] = &kgo.Record{Topic: s.topic, Key: []byte(k)}
	}
	if err := produceAll(ctx, s.cl, rs...); err != nil {
		return fmt.Errorf("removing %s from topic %s: %w", strings.Join(keys, ", "), s.topic, err)
	}
	return nil
}

// Load reads the topic from start to the end it has now, committed or not, and returns the last value of each key.
func (s *StateStore) Load(ctx context.Context) (*State, error) {
	return s.LoadOnly(ctx, func([]byte) bool { return true })
}

// LoadOnly is Load that keeps no more than the keys that are wanted, which may be asked from several goroutines at once.
func (s *StateStore) LoadOnly(ctx context.Context, wanted func(key []byte) bool) (*State, error) {
	cl, err := s.read()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	st := &State{Topic: s.topic, entries: make(map[string]Entry)}
	var mu sync.Mutex
	err = readAll(ctx, cl, s.topic, func(r *kgo.Record) {
		if !wanted(r.Key) {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if r.Value == nil {
			delete(st.entries, string(r.Key))
			return
		}
		st.entries[string(r.Key)] = Entry{Value: r.Value, Location: Location{r.Partition, r.Offset}}
	})
	if err != nil {
		return nil, fmt.Errorf("reading topic %s: %w", s.topic, err)
	}
	for k, e := range st.entries { // a value holds on to the whole batch that it came with
		e.Value = bytes.Clone(e.Value)
		st.entries[k] = e
	}
	st.keys = slices.Sorted(maps.Keys(st.entries))
	return st, nil
}

// Get is Load for one key: it reads only the partition where the key lives.
func (s *StateStore) Get(ctx context.Context, key string) (value []byte, found bool, err error) {
	cl, err := s.read()
	if err != nil {
		return nil, false, err
	}
	defer cl.Close()
	err = readKey(ctx, cl, s.topic, key, func(r *kgo.Record) {
		if string(r.Key) == key {
			value, found = r.Value, r.Value != nil
		}
	})
	if err != nil {
		return nil, false, fmt.Errorf("reading %s from topic %s: %w", key, s.topic, err)
	}
	return value, found, nil
}

// Location is where a record lies on the state topic.
type Location struct {
	Partition int32
	Offset    int64
}

// State is what Load found: a snapshot that does not change.
type State struct {
	Topic   string
	entries map[string]Entry
	keys    []string // in order
}

// Entry is the last record of a key.
type Entry struct {
	Value []byte
	Location
}

// Get returns the last record of key.
func (s *State) Get(key string) (Entry, bool) {
	e, ok := s.entries[key]
	return e, ok
}

// Under yields the keys that begin with the given parts and have more, in order.
func (s *State) Under(parts ...string) iter.Seq2[string, Entry] {
	prefix := StateKey(parts...) + "/"
	return func(yield func(string, Entry) bool) {
		at, _ := slices.BinarySearch(s.keys, prefix)
		for _, k := range s.keys[at:] {
			if !strings.HasPrefix(k, prefix) || !yield(k, s.entries[k]) {
				return
			}
		}
	}
}

// KeysUnder chooses the keys that begin with the given parts and have more, as State.Under does.
func KeysUnder(parts ...string) func(key []byte) bool {
	prefix := []byte(StateKey(parts...) + "/")
	return func(key []byte) bool { return bytes.HasPrefix(key, prefix) }
}

// RecordError is a state record that cannot be read. It is never taken for a missing one: that would be a fresh start.
type RecordError struct {
	Topic string
	Key   string
	Location
	Err error
}

func (e *RecordError) Error() string {
	return fmt.Sprintf("topic %s, partition %d, offset %d, key %s: %v (written by a newer version, or by something else? upgrade, or remove the record)",
		e.Topic, e.Partition, e.Offset, e.Key, e.Err)
}

func (e *RecordError) Unwrap() error { return e.Err }

// Retryable is false: the record stays as it is until a person acts.
func (e *RecordError) Retryable() bool { return false }

// BadRecord makes a *RecordError of err.
func (s *State) BadRecord(key string, e Entry, err error) error {
	return &RecordError{s.Topic, key, e.Location, err}
}

// StateKey joins parts with '/'; a part's own '/' is percent-encoded. "process/<id>", "ring/<fleet>/<epoch>",
// "partition/<topic>/<partition>/<generation>".
func StateKey(parts ...string) string {
	escaped := make([]string, len(parts))
	for i, p := range parts {
		escaped[i] = url.PathEscape(p)
	}
	return strings.Join(escaped, "/")
}

// SplitStateKey is StateKey's inverse.
func SplitStateKey(key string) ([]string, error) {
	parts := strings.Split(key, "/")
	for i, p := range parts {
		u, err := url.PathUnescape(p)
		if err != nil {
			return nil, fmt.Errorf("state key %q: %w", key, err)
		}
		parts[i] = u
	}
	return parts, nil
}

// ErrUnknownVersion marks a record of a format that this program does not know.
var ErrUnknownVersion = errors.New("unknown format version")
