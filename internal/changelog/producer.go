package changelog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// requestRoom keeps a batch on the state topic below what a broker takes by default, in bytes.
const requestRoom = 64 << 10

// produceTimeout is how long a broker may wait for its replicas before it answers "timed out" and is asked again.
const produceTimeout = 5 * time.Second

// ProducerOpts are what every producer of the service has: acks from all in-sync replicas, idempotent (the library's
// default), no retry limit (an unreachable broker is waited for, never skipped), lz4. maxBatch says the largest batch of a
// topic in bytes, which must not exceed the topic's max.message.bytes, or the broker refuses good records along with a
// large one; it is asked once a partition.
func ProducerOpts(maxBatch func(topic string) int32) []kgo.Opt {
	return []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.WithCompressor(packer{}),
		kgo.ProducerBatchMaxBytesFn(maxBatch),
		kgo.ProduceRequestTimeout(produceTimeout),
		kgo.RecordRetries(math.MaxInt32),
		kgo.ProducerLinger(0),
	}
}

// produceAll writes records and returns when every in-sync replica has them, or when ctx ends: then it is unknown whether
// they were written. The library itself looks at ctx only between its tries, which may be seconds apart.
func produceAll(ctx context.Context, cl *kgo.Client, rs ...*kgo.Record) error {
	results := make(chan error, len(rs))
	for _, r := range rs {
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) { results <- err })
	}
	for range rs {
		select {
		case err := <-results:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// produceEach is produceAll with an error for each record, nil where every in-sync replica has it.
func produceEach(ctx context.Context, cl *kgo.Client, rs ...*kgo.Record) []error {
	type result struct {
		i   int
		err error
	}
	results := make(chan result, len(rs))
	errs := make([]error, len(rs))
	for i, r := range rs {
		errs[i] = errUnanswered
		cl.Produce(ctx, r, func(_ *kgo.Record, err error) { results <- result{i, err} })
	}
	for range rs {
		select {
		case r := <-results:
			errs[r.i] = r.err
		case <-ctx.Done():
			for i := range errs {
				if errs[i] == errUnanswered {
					errs[i] = ctx.Err()
				}
			}
			return errs
		}
	}
	return errs
}

var errUnanswered = errors.New("not answered yet")

const (
	// recordOverhead is what a batch of one record holds beside key and value: 61 bytes of header, lengths, rounded up.
	recordOverhead = 512

	// newTopicAge is how often a producer may ask for metadata: a table's first record waits for it.
	newTopicAge = 250 * time.Millisecond
)

// Producer writes changes. One source has one producer, so that no source waits for another's records. Its callers bound
// what is under way; it never blocks.
type Producer struct {
	settings Settings
	cl       *kgo.Client
	adm      *kadm.Client

	mu     sync.Mutex
	limits map[string]int // topic -> the largest batch
}

// OpenProducer makes a producer; it talks to no broker yet. inFlight is the most records that the caller has under way.
func OpenProducer(o Options, s Settings, inFlight int) (*Producer, error) {
	p := &Producer{settings: s, limits: make(map[string]int)}
	var err error
	p.cl, err = o.Client(append(ProducerOpts(p.maxBatch),
		kgo.MaxBufferedRecords(inFlight), kgo.MetadataMinAge(newTopicAge))...)
	if err != nil {
		return nil, err
	}
	p.adm = kadm.NewClient(p.cl)
	return p, nil
}

// Close fails the records that are still under way.
func (p *Producer) Close() { p.cl.Close() }

func (p *Producer) maxBatch(topic string) int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.limits[topic]; ok {
		return int32(n)
	}
	return DefaultMaxMessageBytes // asked for no topic, when the client is made
}

// Topic is a change topic as a producer sees it.
type Topic struct {
	Name      string
	MaxRecord int // bytes of key and value together that the topic takes
	Findings  []Finding
}

// Ensure makes a change topic where it is missing, and asks what it takes. It comes before the first Produce to it. lower
// gives the bytes of a record that a topic really takes, by its name, where its own limit turned out to be too high.
func (p *Producer) Ensure(ctx context.Context, name string, lower map[string]int) (Topic, error) {
	name, limit, findings, err := EnsureChangeTopic(ctx, p.adm, p.settings.Change(name))
	if err != nil {
		return Topic{}, err
	}
	if n, ok := lower[name]; ok {
		limit = min(limit, n+recordOverhead)
	}
	limit = max(limit, 2*recordOverhead)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits[name] = limit
	return Topic{name, limit - recordOverhead, findings}, nil
}

// Outgoing is one record for Produce. It may be used for another once Done was called without an error.
type Outgoing struct {
	Topic      string
	Key, Value []byte    // key nil is null
	At         time.Time // the record's time

	// Done is called once a Produce, from another goroutine, when every in-sync replica has the record (nil), or when it never
	// will be known to (*ProduceError); it must not block. Until then nothing of the record must be changed.
	Done func(error)

	record  kgo.Record
	promise func(*kgo.Record, error) // its own finished, made once
}

// Produce sends one record, in the order of calls within a key. A broker that is away is waited for.
func (p *Producer) Produce(o *Outgoing) {
	if o.promise == nil {
		o.promise = o.finished
	}
	o.record = kgo.Record{Topic: o.Topic, Key: o.Key, Value: o.Value, Timestamp: o.At}
	p.cl.Produce(context.Background(), &o.record, o.promise)
}

// finished is the last that the client does with a record.
func (o *Outgoing) finished(_ *kgo.Record, err error) {
	if err != nil {
		err = &ProduceError{Topic: o.Topic, Bytes: len(o.Key) + len(o.Value), Err: err}
	}
	o.Done(err)
}

// ProduceError is a record that was not written.
type ProduceError struct {
	Topic string
	Bytes int // of its key and value
	Err   error
}

func (e *ProduceError) Error() string {
	s := fmt.Sprintf("writing a record of %d bytes to topic %s: %v", e.Bytes, e.Topic, e.Err)
	if errors.Is(e.Err, kerr.TopicAuthorizationFailed) || errors.Is(e.Err, kerr.ClusterAuthorizationFailed) {
		s += " (allow this user to write to it)"
	}
	return s
}

func (e *ProduceError) Unwrap() error { return e.Err }

// TooLarge reports whether a smaller record may be taken.
func (e *ProduceError) TooLarge() bool {
	return errors.Is(e.Err, kerr.MessageTooLarge) || errors.Is(e.Err, kerr.RecordListTooLarge)
}

// Retryable reports whether the record may be taken later, or in a smaller form, without anybody's help.
func (e *ProduceError) Retryable() bool { return e.TooLarge() || retryable(e.Err) }

// retryable reports whether a Kafka error may pass by itself: all but the broker's own plain refusals.
func retryable(err error) bool {
	var ke *kerr.Error
	return !errors.As(err, &ke) || ke.Retriable || errors.Is(err, kerr.UnknownTopicOrPartition)
}
