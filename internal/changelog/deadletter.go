package changelog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Headers of a parked record, after its own.
const (
	HeaderTopic     = "invalidator.topic"
	HeaderPartition = "invalidator.partition"
	HeaderOffset    = "invalidator.offset"
	HeaderReason    = "invalidator.reason"
	HeaderTime      = "invalidator.time"    // when it was parked, RFC 3339
	HeaderLeftOut   = "invalidator.leftout" // "headers,value" or "headers,key,value": too large to park; topic, partition and offset say where it is
)

// maxReason bounds a parked record's reason, in bytes; what an error says beyond that is some row's text.
const maxReason = 2 << 10

// maxParked is what the client itself refuses, in bytes: more than any fetch brings. The topic's own limit, above that of
// the change topics, decides.
const maxParked = 64 << 20

// DeadLetter parks records that cannot be handled.
type DeadLetter struct {
	topic string
	cl    *kgo.Client
}

// OpenDeadLetter makes a parker that writes to topic (Names.DeadLetter), which must exist.
func OpenDeadLetter(o Options, topic string) (*DeadLetter, error) {
	cl, err := o.Client(append(ProducerOpts(func(string) int32 { return maxParked }),
		kgo.AllowIdempotentProduceCancellation())...)
	if err != nil {
		return nil, err
	}
	return &DeadLetter{topic, cl}, nil
}

// Close lets go of the connections.
func (d *DeadLetter) Close() { d.cl.Close() }

// Park writes rec, key, value and headers as they are, with headers that say where it came from and why, and returns when
// every in-sync replica has it. What even this topic refuses as too large is parked without its own headers and value, then without
// its key too. On an error the caller must not pass the record: it stops. Parking a record twice is harmless.
func (d *DeadLetter) Park(ctx context.Context, rec *kgo.Record, reason string) error {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	headers := append(append([]kgo.RecordHeader(nil), rec.Headers...),
		kgo.RecordHeader{Key: HeaderTopic, Value: []byte(rec.Topic)},
		kgo.RecordHeader{Key: HeaderPartition, Value: strconv.AppendInt(nil, int64(rec.Partition), 10)},
		kgo.RecordHeader{Key: HeaderOffset, Value: strconv.AppendInt(nil, rec.Offset, 10)},
		kgo.RecordHeader{Key: HeaderReason, Value: []byte(reason)},
		kgo.RecordHeader{Key: HeaderTime, Value: time.Now().UTC().AppendFormat(nil, time.RFC3339Nano)},
	)
	own := headers[len(rec.Headers):]
	leftOut := func(what string) []kgo.RecordHeader {
		return append(own[:len(own):len(own)], kgo.RecordHeader{Key: HeaderLeftOut, Value: []byte(what)})
	}
	var err error
	for _, try := range []*kgo.Record{
		{Key: rec.Key, Value: rec.Value, Headers: headers},
		{Key: rec.Key, Headers: leftOut("headers,value")},
		{Headers: leftOut("headers,key,value")},
	} {
		try.Topic = d.topic
		err = produceAll(ctx, d.cl, try)
		if !errors.Is(err, kerr.MessageTooLarge) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("parking %s, partition %d, offset %d on topic %s: %w", rec.Topic, rec.Partition, rec.Offset, d.topic, err)
	}
	return nil
}

// ParkFrom is Park for a record of a group.
func (d *DeadLetter) ParkFrom(ctx context.Context, p Partition, r Record, reason string) error {
	rec := &kgo.Record{Topic: p.Topic, Partition: p.Number, Offset: r.Offset, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers { // they may name the record's schema
		rec.Headers = append(rec.Headers, kgo.RecordHeader(h))
	}
	return d.Park(ctx, rec, reason)
}
