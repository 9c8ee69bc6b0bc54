package changelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// HeaderReissued is on a record that was written again: why. Such a record is not written again itself.
const HeaderReissued = "invalidator.reissued"

const (
	reissueBack = time.Hour // Back's default
	// reissueMargin is how much older than the oldest record that was written again a partition must have been looked at: a
	// replica that applies in parallel may lack a transaction and have later ones.
	reissueMargin = 10 * time.Minute

	reissueRecords = 4096    // under way
	reissueBytes   = 8 << 20 // the same
)

// Verdict is what a reader says of a record of our own.
type Verdict int

const (
	Stands  Verdict = iota // it is what happened
	Undone                 // it never happened: it is written again, and older ones may be undone too
	Unclear                // it cannot be read: it is written again, for a delete too many is harmless
)

// Reissue writes records of change topics again, each to its own topic and partition, with its own key and value, so that
// workers delete its keys once more.
type Reissue struct {
	Options  Options
	Settings Settings
	Topics   *regexp.Regexp // whole names; the service's own topics are never among them
	Since    time.Time      // near the last records
	Back     time.Duration  // how far before Since the first look begins; each further one goes back twice as far. 0: an hour
	Why      string         // in the header of what is written
	Judge    func(topic string, r Record) Verdict
}

// Run reads each partition from its end backwards, window by window, until it has seen a record that stands and is older
// than the first undone one of any partition, or the log's start. It returns how many records it wrote again, all of them
// acknowledged. Its memory is bounded: a record is on its way again as soon as it is read. Done again after a crash it
// writes them again, but not those that it wrote itself.
func (r *Reissue) Run(ctx context.Context) (n int64, err error) {
	var limits map[string]int32 // set before the first record is written
	opts := ProducerOpts(func(topic string) int32 {
		if n, ok := limits[topic]; ok {
			return n
		}
		return DefaultMaxMessageBytes
	})
	cl, err := r.Options.Connect(ctx, append(opts, kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.AllowIdempotentProduceCancellation(), kgo.MaxBufferedRecords(reissueRecords), kgo.MaxBufferedBytes(reissueBytes))...)
	if err != nil {
		return 0, err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	back, err := r.partitions(ctx, adm)
	if err == nil && len(back) > 0 {
		limits, err = limitsOf(ctx, adm, back)
	}
	if err != nil {
		return 0, fmt.Errorf("asking for the change topics: %w", err)
	}
	out := &reissuing{Reissue: r, cl: cl}
	for age := cmp.Or(r.Back, reissueBack); len(back) > 0; age *= 2 {
		since := r.Since.Add(-age)
		if age > maxLog { // beyond the start of any log: a duration must not overflow
			since = time.UnixMilli(0)
		}
		if back, err = out.look(ctx, adm, back, since); err != nil {
			return out.written, err
		}
	}
	return out.written, out.flush(ctx)
}

// maxLog is more than any log keeps.
const maxLog = 100 * 365 * 24 * time.Hour

// backwards is a partition of which everything from offset at on was read.
type backwards struct {
	Partition
	start, at int64
}

func (r *Reissue) partitions(ctx context.Context, adm *kadm.Client) (all []*backwards, err error) {
	topics, err := adm.ListTopics(ctx)
	if err != nil {
		return nil, err
	}
	own := NamesFor(r.Settings.Prefix).All()
	names := slices.DeleteFunc(topics.Names(), func(n string) bool { return !r.Topics.MatchString(n) || slices.Contains(own, n) })
	if len(names) == 0 {
		return nil, nil
	}
	starts, err := adm.ListStartOffsets(ctx, names...)
	if err = cmp.Or(err, starts.Error()); err != nil {
		return nil, err
	}
	ends, err := adm.ListEndOffsets(ctx, names...)
	if err = cmp.Or(err, ends.Error()); err != nil {
		return nil, err
	}
	ends.Each(func(e kadm.ListedOffset) {
		if s, ok := starts.Lookup(e.Topic, e.Partition); ok && s.Offset < e.Offset {
			all = append(all, &backwards{Partition{e.Topic, e.Partition}, s.Offset, e.Offset})
		}
	})
	slices.SortFunc(all, func(a, b *backwards) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Number, b.Number))
	})
	return all, nil
}

// reissuing is a Run under way.
type reissuing struct {
	*Reissue
	cl      *kgo.Client
	written int64
	first   time.Time // of the oldest undone record seen; zero: none was

	mu  sync.Mutex
	err error // the first that was not written
}

// seen is the oldest record of a window.
type seen struct {
	verdict Verdict
	at      time.Time
	any     bool
}

// look reads what was appended since a time and was not read yet, and returns the partitions that must be looked at further
// back.
func (o *reissuing) look(ctx context.Context, adm *kadm.Client, back []*backwards, since time.Time) (more []*backwards, err error) {
	names := map[string]bool{}
	for _, b := range back {
		names[b.Topic] = true
	}
	from, err := adm.ListOffsetsAfterMilli(ctx, max(0, since.UnixMilli()), slices.Collect(maps.Keys(names))...)
	if err = cmp.Or(err, from.Error()); err != nil {
		return nil, fmt.Errorf("asking where the change topics stood at %s: %w", since.Format(time.RFC3339), err)
	}
	oldest := make([]seen, len(back))
	for i, b := range back {
		at, ok := from.Lookup(b.Topic, b.Number)
		if !ok {
			return nil, fmt.Errorf("partition %s: the broker does not say where it stood", b.Partition)
		}
		lo := min(max(at.Offset, b.start), b.at)
		err := readPartition(ctx, o.cl, b.Topic, b.Number, lo, b.at, func(r *kgo.Record) { o.see(ctx, r, &oldest[i]) })
		if err = cmp.Or(err, o.failed()); err != nil {
			return nil, fmt.Errorf("reading partition %s back: %w", b.Partition, err)
		}
		b.at = lo
	}
	for i, b := range back {
		s := oldest[i]
		stands := s.any && s.verdict == Stands && (o.first.IsZero() || s.at.Before(o.first.Add(-reissueMargin)))
		if b.at > b.start && !stands {
			more = append(more, b)
		}
	}
	return more, nil
}

func (o *reissuing) see(ctx context.Context, r *kgo.Record, oldest *seen) {
	if slices.ContainsFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == HeaderReissued }) {
		return
	}
	v := o.Judge(r.Topic, Record{Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Value: r.Value})
	if !oldest.any {
		*oldest = seen{v, r.Timestamp, true}
	}
	if v == Undone && (o.first.IsZero() || r.Timestamp.Before(o.first)) {
		o.first = r.Timestamp
	}
	if v == Stands || o.failed() != nil {
		return
	}
	o.written++
	again := &kgo.Record{
		Topic: r.Topic, Partition: r.Partition, Key: r.Key, Value: r.Value,
		Headers: append(slices.Clone(r.Headers), kgo.RecordHeader{Key: HeaderReissued, Value: []byte(o.Why)}),
	}
	// It blocks where too much is under way: that bounds the memory.
	o.cl.Produce(ctx, again, func(r *kgo.Record, err error) {
		if err != nil {
			o.fail(&ProduceError{Topic: r.Topic, Bytes: len(r.Key) + len(r.Value), Err: err})
		}
	})
}

func (o *reissuing) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
}

func (o *reissuing) failed() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

func (o *reissuing) flush(ctx context.Context) error {
	if err := o.cl.Flush(ctx); err != nil {
		return errors.Join(err, o.failed())
	}
	return o.failed()
}

// limitsOf are the topics' own max.message.bytes.
func limitsOf(ctx context.Context, adm *kadm.Client, back []*backwards) (map[string]int32, error) {
	var names []string
	for _, b := range back {
		names = append(names, b.Topic)
	}
	slices.Sort(names)
	have, err := topicConfigs(ctx, adm, slices.Compact(names)...)
	if err != nil {
		return nil, err
	}
	limits := map[string]int32{}
	for topic, configs := range have {
		if n, err := strconv.ParseInt(configs["max.message.bytes"], 10, 32); err == nil && n > 0 {
			limits[topic] = int32(n)
		}
	}
	return limits, nil
}
