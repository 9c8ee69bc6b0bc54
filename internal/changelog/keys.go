package changelog

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	keysVersion = 1
	// maxSentKeys and maxSentBytes bound a record of keys, so that a worker that takes one holds no more than for some rows.
	maxSentKeys  = 500
	maxSentBytes = 256 << 10
	// keyBytesUnderWay bounds the records that are written and not yet acknowledged.
	keyBytesUnderWay = 16 << 20
)

// SentKeys are cache keys that are to be deleted on every copy.
type SentKeys struct {
	Keys       []string // as clients name them
	By, Reason string   // who asks and why, for people
}

// sentRecord is the value of a record on the topic of keys: docs/TOPICS.md. cdc/envelope reads it.
type sentRecord struct {
	V       int      `json:"v"`
	Keys    []string `json:"keys,omitempty"`
	Base64  []string `json:"keys_base64,omitempty"` // bytes that are no UTF-8
	Ordinal int64    `json:"ordinal,omitempty"`     // place of the first key among all that are sent at once, from 0
	By      string   `json:"by,omitempty"`
	Reason  string   `json:"reason,omitempty"`
}

// Span is a part of a partition of the log: offsets o with From <= o < To.
type Span struct {
	Partition
	From, To int64
}

// KeysWritten says where keys were written.
type KeysWritten struct {
	Keys, Records int
	Spans         []Span // a partition each, in order; records of others may lie between
}

// KeyWriter writes keys to the topic of keys, where the workers take them as changes. It is safe for concurrent use.
type KeyWriter struct {
	topic string
	cl    *kgo.Client
	adm   *kadm.Client
}

// OpenKeyWriter makes a writer; it talks to no broker yet. topic is Names.Keys, which must exist (EnsureTopics).
func OpenKeyWriter(o Options, topic string) (*KeyWriter, error) {
	cl, err := o.Client(append(ProducerOpts(func(string) int32 { return DefaultMaxMessageBytes - requestRoom }),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MaxBufferedBytes(keyBytesUnderWay), kgo.AllowIdempotentProduceCancellation())...)
	if err != nil {
		return nil, err
	}
	return &KeyWriter{topic, cl, kadm.NewClient(cl)}, nil
}

// Close lets go of the connections.
func (w *KeyWriter) Close() { w.cl.Close() }

// Write returns when every in-sync replica has all of the keys. A key's partition follows from the key, so that what is written of one key stays in order. told
// is called by the same goroutine with how many keys are there; nil: nobody asks. It waits for a broker that is away until ctx ends. After an error some may
// have been written, as far as is known those of the result: all of them again is harmless.
func (w *KeyWriter) Write(ctx context.Context, s SentKeys, told func(keys int)) (KeysWritten, error) {
	partitions, err := w.partitions(ctx)
	if err != nil {
		return KeysWritten{}, err
	}
	records := recordsOf(s, partitions)
	type result struct {
		record *kgo.Record
		keys   int
		err    error
	}
	results := make(chan result, len(records))
	var writing sync.WaitGroup
	defer writing.Wait()
	ctx, cancel := context.WithCancel(ctx) // after a failure nothing more is begun
	defer cancel()
	writing.Go(func() {
		for _, r := range records {
			value, err := json.Marshal(r.value)
			if err != nil {
				panic(err) // texts and numbers
			}
			// It blocks where too much is under way, which bounds the memory.
			w.cl.Produce(ctx, &kgo.Record{Topic: w.topic, Partition: r.partition, Value: value}, func(record *kgo.Record, err error) {
				results <- result{record, r.keys(), err}
			})
		}
	})
	done := KeysWritten{}
	spans := map[int32]Span{}
	for range records {
		var r result
		select {
		case r = <-results:
		case <-ctx.Done():
			r.err = ctx.Err()
		}
		if r.err != nil {
			return done.at(spans), fmt.Errorf("writing keys to topic %s: %w", w.topic, r.err)
		}
		done.Keys, done.Records = done.Keys+r.keys, done.Records+1
		span, ok := spans[r.record.Partition]
		if !ok {
			span = Span{Partition{w.topic, r.record.Partition}, r.record.Offset, 0}
		}
		span.From, span.To = min(span.From, r.record.Offset), max(span.To, r.record.Offset+1)
		spans[r.record.Partition] = span
		if told != nil {
			told(done.Keys)
		}
	}
	return done.at(spans), nil
}

func (k KeysWritten) at(spans map[int32]Span) KeysWritten {
	for _, s := range spans {
		k.Spans = append(k.Spans, s)
	}
	slices.SortFunc(k.Spans, func(a, b Span) int { return int(a.Number) - int(b.Number) })
	return k
}

// partitions is how many the topic has.
func (w *KeyWriter) partitions(ctx context.Context) (int, error) {
	topics, err := w.adm.ListTopics(ctx, w.topic)
	if err == nil {
		err = topics[w.topic].Err
	}
	switch n := len(topics[w.topic].Partitions); {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return 0, fmt.Errorf("topic %s does not exist (run makes it when it starts; is kafka.topic_prefix right?)", w.topic)
	case err != nil:
		return 0, fmt.Errorf("asking for topic %s: %w", w.topic, err)
	case n == 0:
		return 0, fmt.Errorf("topic %s has no partition yet: %w", w.topic, kerr.LeaderNotAvailable)
	default:
		return n, nil
	}
}

// outgoingKeys is a record that is to be written.
type outgoingKeys struct {
	partition int32
	value     sentRecord
	bytes     int // about, and at most: of its keys in JSON
}

func (o *outgoingKeys) keys() int { return len(o.value.Keys) + len(o.value.Base64) }

// recordsOf puts keys into records, in their order within a partition.
func recordsOf(s SentKeys, partitions int) (records []*outgoingKeys) {
	open := map[int32]*outgoingKeys{}
	for _, key := range s.Keys {
		p, size := partitionOf(key, partitions), sizeInJSON(key)
		r := open[p]
		if r == nil || r.keys() == maxSentKeys || r.bytes+size > maxSentBytes {
			r = &outgoingKeys{partition: p, value: sentRecord{V: keysVersion, By: s.By, Reason: s.Reason}}
			open[p], records = r, append(records, r)
		}
		r.bytes += size
		if utf8.ValidString(key) {
			r.value.Keys = append(r.value.Keys, key)
		} else {
			r.value.Base64 = append(r.value.Base64, base64.StdEncoding.EncodeToString([]byte(key)))
		}
	}
	ordinal := int64(0)
	for _, r := range records {
		r.value.Ordinal = ordinal
		ordinal += int64(r.keys())
	}
	return records
}

// sizeInJSON is the most bytes that a key takes in a list, whatever of it is escaped.
func sizeInJSON(key string) int {
	if !utf8.ValidString(key) {
		return base64.StdEncoding.EncodedLen(len(key)) + 3
	}
	n := len(key) + 3
	for i := range len(key) {
		if c := key[i]; c < 0x20 || c >= 0x7f || strings.IndexByte(`"\<>&`, c) >= 0 {
			n += 5
		}
	}
	return n
}

// awaitEvery is how often a group is asked how far it is.
const awaitEvery = 250 * time.Millisecond

// AwaitCommits returns when a group's commits have passed some spans: everything in them has had its rounds, or is owed, as the states say. told is called after
// each look with how many of their offsets are passed, and with the error of a look that failed, which is made again. It ends with ctx, whose error it
// returns then.
func AwaitCommits(ctx context.Context, o Options, group string, spans []Span, told func(passed, all int64, err error)) error {
	cl, err := o.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	tick := time.NewTicker(awaitEvery)
	defer tick.Stop()
	for {
		var passed, all int64
		committed, err := adm.FetchOffsets(ctx, group)
		if err == nil {
			err = committed.Error()
		}
		if errors.Is(err, kerr.GroupIDNotFound) { // no worker ever ran
			err = nil
		}
		for _, s := range spans {
			all += s.To - s.From
			if at, ok := committed.Lookup(s.Topic, s.Number); ok {
				passed += min(max(at.At, s.From), s.To) - s.From
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		told(passed, all, err)
		if err == nil && passed == all {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
