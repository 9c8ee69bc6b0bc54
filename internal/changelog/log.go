package changelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// emptyAnswers is how many empty answers in a row, of a broker whose log goes on and that holds nothing back, mean that compaction has
// left nothing below its end. Each comes after readMaxWait.
const emptyAnswers = 5

// Log reads ranges of change topics again, beside the group and without it. Its readers share one client: a connection a
// broker for what they fetch. It is safe for concurrent use.
type Log struct {
	cl  *kgo.Client
	adm *kadm.Client
}

// OpenLog talks to no broker yet.
func OpenLog(o Options) (*Log, error) {
	cl, err := o.Client()
	if err != nil {
		return nil, err
	}
	return &Log{cl, kadm.NewClient(cl)}, nil
}

// Close lets go of the connections. Reads that are under way fail.
func (l *Log) Close() { l.cl.Close() }

// LogStartError is a log that begins behind the offset from which it was to be read: what lies below Start is lost.
type LogStartError struct {
	Partition
	Start int64
}

func (e *LogStartError) Error() string {
	return fmt.Sprintf("the log of %s begins at offset %d: what was before has left it", e.Partition, e.Start)
}

// ErrNoTopic is a topic that is not there, or was removed and made again while it was read.
var ErrNoTopic = errors.New("the topic does not exist, or is another one now")

// Read hands the records with from <= offset < to over in order, those of one answer of a broker at a time (1 MiB, as they lie on the
// broker's disk, or one larger batch); they may be kept. It ends at the end that the log has when it begins, where that is lower, and waits for nothing beyond.
// Offsets without a record (compaction, control records of transactions) are passed over; records of aborted transactions are not.
//
// A broker that is away is asked again for some seconds. The errors that say more are ctx's, each's, *LogStartError, also where
// retention overtakes the reader, and ErrNoTopic. What was handed over before an error counts.
func (l *Log) Read(ctx context.Context, p Partition, from, to int64, each func([]Record) error) error {
	if from >= to {
		return nil
	}
	r := &logRead{Log: l, p: p, next: from, to: to, each: each}
	if err := r.run(ctx); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("reading %s from offset %d to %d: %w", p, from, to, err)
	}
	return nil
}

// logRead is one Read.
type logRead struct {
	*Log
	p        Partition
	next, to int64
	each     func([]Record) error

	bounded bool // to lies in the log
	id      kadm.TopicID
	empty   int // answers in a row with nothing in them
}

func (r *logRead) run(ctx context.Context) error {
	var last error
	for tries := 0; r.next < r.to; {
		at := r.next
		ask := ctx
		if tries > 0 { // the leader may have changed
			ask = uncached(ctx)
		}
		err := r.step(ask)
		var said *eachError
		var behind *LogStartError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && r.next > at:
			tries = 0
			continue
		case err == nil:
		case errors.As(err, &said):
			return said.err
		case errors.As(err, &behind):
			return err
		case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID), errors.Is(err, kerr.InconsistentTopicID):
			err = fmt.Errorf("%w (%w)", ErrNoTopic, err) // or no broker has heard of it yet
		case errors.Is(err, ErrNoTopic):
			return err
		case !kerr.IsRetriable(err) && !kgo.IsRetryableBrokerErr(err) && !isNetwork(err):
			return err
		}
		last = cmp.Or(err, last)
		if tries++; tries > readRetries {
			return fmt.Errorf("no progress at offset %d: %w", r.next, last)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(retryBackoff):
		}
	}
	return nil
}

// eachError is what the receiver of records said.
type eachError struct{ err error }

func (e *eachError) Error() string { return e.err.Error() }

// step goes on by one answer.
func (r *logRead) step(ctx context.Context) error {
	if !r.bounded {
		if err := r.bound(ctx); err != nil || r.next >= r.to {
			return err
		}
	}
	got, err := fetchOnce(ctx, r.cl, r.p, r.next)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		r.bounded = false // the start has passed us, or the end went back
		return r.bound(ctx)
	}
	if err != nil {
		return err
	}
	if r.id == (kadm.TopicID{}) {
		r.id = got.topicID
	} else if r.id != got.topicID {
		return ErrNoTopic
	}
	if got.next == r.next {
		return r.nothing(got)
	}
	r.empty = 0
	out := make([]Record, 0, len(got.records))
	for _, rec := range got.records {
		if rec.Offset >= r.next && rec.Offset < r.to {
			out = append(out, topicRecord(rec).Record)
		}
	}
	if len(out) > 0 {
		if err := r.each(out); err != nil {
			return &eachError{err}
		}
	}
	r.next = got.next
	return nil
}

// nothing judges an answer without anything: a leader that is new may not know yet how far its log reaches.
func (r *logRead) nothing(got fetched) error {
	if got.end < r.to || got.throttled {
		return nil
	}
	if r.empty++; r.empty == emptyAnswers {
		r.next = r.to
	}
	return nil
}

// bound asks where the log begins and ends.
func (r *logRead) bound(ctx context.Context) error {
	starts, err := r.adm.ListStartOffsets(ctx, r.p.Topic)
	if err != nil {
		return err
	}
	ends, err := r.adm.ListEndOffsets(ctx, r.p.Topic)
	if err != nil {
		return err
	}
	start, ok1 := starts.Lookup(r.p.Topic, r.p.Number)
	end, ok2 := ends.Lookup(r.p.Topic, r.p.Number)
	if !ok1 || !ok2 {
		return kerr.UnknownTopicOrPartition
	}
	if err := cmp.Or(start.Err, end.Err); err != nil {
		return err
	}
	if start.Offset > r.next {
		return &LogStartError{r.p, start.Offset}
	}
	r.to, r.bounded = min(r.to, end.Offset), true
	return nil
}
