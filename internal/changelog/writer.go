package changelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Writer writes records for people and for other processes to the service's own topics: requests, events. It is safe for
// concurrent use.
type Writer struct{ cl *kgo.Client }

// OpenWriter makes a writer; it talks to no broker yet. The topics must exist (EnsureTopics).
func OpenWriter(o Options) (*Writer, error) {
	cl, err := o.Client(append(ProducerOpts(func(string) int32 { return DefaultMaxMessageBytes - requestRoom }),
		kgo.AllowIdempotentProduceCancellation())...)
	if err != nil {
		return nil, err
	}
	return &Writer{cl}, nil
}

// Close lets go of the connections.
func (w *Writer) Close() { w.cl.Close() }

// Write returns when every in-sync replica has the record. It waits for a broker that is away until ctx ends; then it is
// unknown whether the record was written. A topic that was removed and made again is written to like any other.
func (w *Writer) Write(ctx context.Context, topic, key string, value []byte) error {
	write := func() error { return produceAll(ctx, w.cl, &kgo.Record{Topic: topic, Key: []byte(key), Value: value}) }
	err := write()
	if errors.Is(err, kerr.UnknownTopicID) { // the library sticks to the topic that it knew
		w.cl.PurgeTopicsFromProducing(topic)
		err = write()
	}
	if err != nil {
		return fmt.Errorf("writing %s to topic %s: %w", key, topic, err)
	}
	return nil
}
