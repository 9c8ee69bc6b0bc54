package changelog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc/envelope"
)

// HeaderRetried stands in a record that was written again from the dead-letter topic: the parked record's id.
const HeaderRetried = "invalidator.retried"

// Parked is a record on the dead-letter topic.
type Parked struct {
	Location // on the dead-letter topic
	From     Partition
	Offset   int64 // in From
	Reason   string
	At       time.Time // when it was parked
	Key      []byte
	Value    []byte
	Headers  []envelope.Header // its own
	LeftOut  string            // what was too large to park: "headers,value", "headers,key,value"; empty: nothing
	Decision *Decision         // nil: nobody has decided
}

// ID names it to people: "<partition>/<offset>" on the dead-letter topic.
func (p *Parked) ID() string {
	return strconv.Itoa(int(p.Partition)) + "/" + strconv.FormatInt(p.Location.Offset, 10)
}

// Outcome is what was decided about a parked record.
type Outcome string

const (
	Retried   Outcome = "retried"   // written again to where it came from
	Discarded Outcome = "discarded" // it stays undone
)

// Decision is the value under deadletter/<partition>/<offset>.
type Decision struct {
	V       int       `json:"v"` // 1
	Outcome Outcome   `json:"outcome"`
	By      string    `json:"by"`
	At      time.Time `json:"at"`
	Parked  time.Time `json:"parked"` // the record's time: on a topic that is made again the same place is another record's
}

const decisionVersion = 1

// DeadLetters is the reading side of the dead-letter topic, for a person.
type DeadLetters struct {
	o     Options
	names Names
	state *StateStore
	cl    *kgo.Client
}

// OpenDeadLetters talks to no broker yet.
func OpenDeadLetters(o Options, names Names) (*DeadLetters, error) {
	state, err := OpenState(o, names.State)
	if err != nil {
		return nil, err
	}
	cl, err := o.Client(append(ProducerOpts(func(string) int32 { return maxParked }), kgo.AllowIdempotentProduceCancellation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		state.Close()
		return nil, err
	}
	return &DeadLetters{o, names, state, cl}, nil
}

// Close lets go of the connections.
func (d *DeadLetters) Close() {
	d.state.Close()
	d.cl.Close()
}

// List returns the parked records that want keeps, with what was decided about them, by when they were parked. A record that nobody of ours
// wrote is left out. want may leave what it does not need: nil keeps all.
func (d *DeadLetters) List(ctx context.Context, since time.Time, want func(*Parked) bool) ([]*Parked, error) {
	st, err := d.state.LoadOnly(ctx, KeysUnder("deadletter"))
	if err != nil {
		return nil, err
	}
	var all []*Parked
	err = ReadTopic(ctx, d.o, d.names.DeadLetter, since, false, func(r TopicRecord) error {
		p, ok := parked(r)
		if !ok {
			return nil
		}
		if e, found := st.Get(decisionKey(p)); found {
			var dec Decision
			if err := DecodeStrict(e.Value, decisionVersion, &dec); err != nil {
				return st.BadRecord(decisionKey(p), e, fmt.Errorf("decoding a decision about a parked record: %w", err))
			}
			if dec.Parked.Equal(p.At) {
				p.Decision = &dec
			}
		}
		if want == nil || want(p) {
			all = append(all, p)
		}
		return nil
	})
	slices.SortStableFunc(all, func(a, b *Parked) int { return a.At.Compare(b.At) })
	return all, err
}

// parked reads a record of the dead-letter topic. Its own headers come before ours.
func parked(r TopicRecord) (*Parked, bool) {
	p := &Parked{Location: Location{r.Partition, r.Record.Offset}, Key: r.Key, Value: r.Value, At: r.Time}
	ours := -1
	for i, h := range r.Headers {
		if h.Key == HeaderTopic {
			ours = i
		}
	}
	if ours < 0 {
		return nil, false
	}
	p.Headers = r.Headers[:ours]
	for _, h := range r.Headers[ours:] {
		switch text := string(h.Value); h.Key {
		case HeaderTopic:
			p.From.Topic = text
		case HeaderPartition:
			n, err := strconv.ParseInt(text, 10, 32)
			if err != nil {
				return nil, false
			}
			p.From.Number = int32(n)
		case HeaderOffset:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, false
			}
			p.Offset = n
		case HeaderReason:
			p.Reason = text
		case HeaderTime:
			if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
				p.At = at
			}
		case HeaderLeftOut:
			p.LeftOut = text
		}
	}
	return p, true
}

// ErrLeftOut is a parked record whose bytes are not there: it was too large to park.
var ErrLeftOut = errors.New("its bytes were too large to park, so that it cannot be written again (read it where it came from, and flush what it concerns)")

// Retry writes a parked record again, as it came, to the partition where it came from, with a header that says so, and then the decision: workers
// take it as a change like others. After an error it may have been written: doing it again is harmless.
func (d *DeadLetters) Retry(ctx context.Context, p *Parked, by string) error {
	if p.LeftOut != "" {
		return fmt.Errorf("parked record %s: %w", p.ID(), ErrLeftOut)
	}
	r := &kgo.Record{Topic: p.From.Topic, Partition: p.From.Number, Key: p.Key, Value: p.Value}
	for _, h := range p.Headers {
		if h.Key != HeaderRetried {
			r.Headers = append(r.Headers, kgo.RecordHeader(h))
		}
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderRetried, Value: []byte(p.ID())})
	if err := produceAll(ctx, d.cl, r); err != nil {
		return fmt.Errorf("writing parked record %s again: %w", p.ID(), &ProduceError{Topic: r.Topic, Bytes: len(r.Key) + len(r.Value), Err: err})
	}
	return d.decide(ctx, p, Retried, by)
}

// Discard decides that a parked record stays undone.
func (d *DeadLetters) Discard(ctx context.Context, p *Parked, by string) error {
	return d.decide(ctx, p, Discarded, by)
}

func (d *DeadLetters) decide(ctx context.Context, p *Parked, v Outcome, by string) error {
	dec := Decision{V: decisionVersion, Outcome: v, By: by, At: time.Now().UTC(), Parked: p.At}
	if err := d.state.putJSON(ctx, decisionKey(p), dec); err != nil {
		return err
	}
	p.Decision = &dec
	return nil
}

func decisionKey(p *Parked) string {
	return StateKey("deadletter", strconv.Itoa(int(p.Partition)), strconv.FormatInt(p.Location.Offset, 10))
}
