package changelog

import (
	"context"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// requestRoom is what a produce request holds beside its one batch.
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
		kgo.ProducerBatchCompression(kgo.Lz4Compression(), kgo.NoCompression()),
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
