package changelog

import (
	"context"
	"encoding/json"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// RefreshRequest asks whoever renders a key to rebuild its value: every copy of it is deleted, or marked stale, by now, and no
// more deletes follow for this change.
type RefreshRequest struct {
	V         int             `json:"v"`                    // 1
	Key       string          `json:"key"`                  // as clients name it: without the ring's key_prefix and #n
	KeyBase64 string          `json:"key_base64,omitempty"` // its bytes, where Key cannot show them: see sink.Base64
	Pool      string          `json:"pool"`                 //
	Team      string          `json:"team"`                 //
	Mapping   string          `json:"mapping"`              //
	Source    string          `json:"source"`               //
	Table     string          `json:"table"`                // schema.table
	Row       json.RawMessage `json:"row"`                  // the row's key; null where it is not known
	Reason    string          `json:"reason"`               // what was done to the row: insert, update, delete; truncate of its table
	Committed time.Time       `json:"committed,omitzero"`   // in the database; left out where it does not say
	At        time.Time       `json:"at"`                   // when this was written
}

// maxAsked bounds the requests that wait for the broker, a process: some 5 MB. What is above is refused, and asked again.
const maxAsked = 10_000

// Refresher writes requests to the refresh topic.
type Refresher struct {
	topic string
	cl    *kgo.Client
}

// OpenRefresher makes one that writes to topic (Names.Refresh), which must exist.
func OpenRefresher(o Options, topic string) (*Refresher, error) {
	cl, err := o.Client(append(ProducerOpts(func(string) int32 { return DefaultMaxMessageBytes - recordOverhead }),
		kgo.MaxBufferedRecords(maxAsked), kgo.AllowIdempotentProduceCancellation())...)
	if err != nil {
		return nil, err
	}
	return &Refresher{topic, cl}, nil
}

// Close fails the requests that are still under way.
func (f *Refresher) Close() { f.cl.Close() }

// Request writes r under its key, so that the requests of a key stay in order, and calls done once, from another goroutine, when
// every in-sync replica has it, or with an error. It does not block: where too many are under way, that is the error. A broker
// that is away is waited for, until ctx ends.
func (f *Refresher) Request(ctx context.Context, r RefreshRequest, done func(error)) {
	value, err := json.Marshal(r)
	if err != nil {
		panic(err) // texts, times, and JSON that was checked
	}
	f.cl.TryProduce(ctx, &kgo.Record{Topic: f.topic, Key: []byte(r.Key), Value: value}, func(_ *kgo.Record, err error) {
		if err != nil {
			err = &ProduceError{Topic: f.topic, Bytes: len(r.Key) + len(value), Err: err}
		}
		done(err)
	})
}
