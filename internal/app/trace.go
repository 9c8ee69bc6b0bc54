package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink"
)

const (
	// traceBefore is how long before the window the log is read from: clocks differ, and where the producer stamps records they lie in
	// no strict order of time.
	traceBefore = time.Minute
	// traceAfter is how long behind the window it is read: a feeder that was behind wrote what was committed in it later.
	traceAfter = 5 * time.Minute
	// traceChanges is how many changes of a key are kept, the newest.
	traceChanges = 1000
	// traceLast is how long the last look at the state topic may take when the reading was ended early.
	traceLast = 20 * time.Second
)

// TraceQuery asks what became of a key.
type TraceQuery struct {
	Key      string                // as clients name it, without the ring's key_prefix
	Since    time.Time             // from when on changes were committed, or written to the log
	Until    time.Time             // zero: now
	Progress func(read, all int64) // records of the log, once a second while it is read, from one goroutine; nil: nobody asks
}

// TraceKey says which changes of a window produced a key, when they were issued, on which copies, and what is owed of them. It is computed
// anew from the log, the journals and the topics of the service: it needs Kafka, and the schema registries that sources name. It belongs to no
// group and writes nothing. When ctx ends while the log is read, what was found until then is told.
//
// The error is a *PoolError where no mapping file claims the key's pool and nobody sent the key, or why Kafka cannot be asked.
func TraceKey(ctx context.Context, c *config.Config, q TraceQuery, log *slog.Logger) (*Trace, error) {
	kafka, err := kafkaOptions(c.Kafka, log)
	if err != nil {
		return nil, err
	}
	return newTracer(c, kafka, q, time.Now()).run(ctx)
}

// tracer answers one TraceQuery.
type tracer struct {
	config *config.Config
	kafka  changelog.Options
	names  changelog.Names
	q      TraceQuery
	until  time.Time // the window's end
	ended  bool      // it lies in the past: what was written long after it is not read

	base   string // of a hot copy's name (key#3): the key; else the key itself
	state  *traceState
	sets   *traceSets
	pool   string
	claims bool // a mapping file claims the pool
	parts  []*tracePart
	places tracePlaces
	downs  []TraceLate          // nodes with copies that owed, as the status topic said it
	plans  []replay.Plan        // of replays by hand that take the key in
	redone map[string]time.Time // when those of them were done that did all, by id
	out    *Trace

	done atomic.Int64 // offsets that were read

	mu     sync.Mutex // guards what follows while the log is read
	seen   []*TraceChange
	left   int64                // changes that were found and are not in seen, the oldest
	unread map[string]*tally    // why records gave no key that may have been this one
	begins map[string]*logBegin // by topic
	before map[string]*tally    // by topic: partitions of which older changes were issued in the window
	most   int                  // hot copies that a template of a change asks for
	deaf   map[string]bool      // sources whose schema registry does not answer
}

func newTracer(c *config.Config, kafka changelog.Options, q TraceQuery, now time.Time) *tracer {
	t := &tracer{config: c, kafka: kafka, names: changelog.NamesFor(c.Kafka.TopicPrefix), q: q, until: q.Until, base: q.Key,
		unread: map[string]*tally{}, begins: map[string]*logBegin{}, before: map[string]*tally{}, deaf: map[string]bool{}, redone: map[string]time.Time{}}
	if t.until.IsZero() || t.until.After(now) {
		t.until = now
	}
	t.ended = t.until.Before(now)
	if i := strings.LastIndexByte(q.Key, '#'); i > 0 && i < len(q.Key)-1 && strings.Trim(q.Key[i+1:], "0123456789") == "" {
		t.base = q.Key[:i]
	}
	t.pool = mapping.PoolOf(t.base)
	t.out = &Trace{
		Key: strings.ToValidUTF8(q.Key, "\uFFFD"), KeyBase64: sink.Base64(q.Key), Pool: t.pool, Group: c.Kafka.Group,
		Asked: now.UTC(), Since: q.Since.UTC(), Until: t.until.UTC(), Copies: []TraceCopy{}, Changes: []*TraceChange{}, Touched: []TraceTouch{}, Unknown: []string{},
	}
	if t.base != q.Key {
		t.out.HotOf = strings.ToValidUTF8(t.base, "\uFFFD")
	}
	return t
}

// run reads the log first, then how far the group is, and last what it owes: a state record that is later than a commit covers all that
// lies below the commit.
func (t *tracer) run(ctx context.Context) (*Trace, error) {
	cl, err := t.kafka.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	if err := t.prepare(ctx, cl); err != nil {
		return nil, err
	}
	if err := t.read(ctx); err != nil {
		return nil, err
	}
	last := ctx
	if t.out.Read.Stopped {
		var cancel context.CancelFunc
		last, cancel = context.WithTimeout(context.WithoutCancel(ctx), traceLast)
		defer cancel()
	}
	err = t.commits(last)
	if err == nil {
		err = t.loadState(last)
	}
	if err != nil {
		t.unknown("what is finished, and what is owed: %v", err)
		for _, p := range t.parts {
			p.known = false // a commit without the state that goes with it says too much
		}
	}
	t.locate()
	t.hear(last)
	t.judge()
	if !t.claims && len(t.out.Changes) == 0 {
		return nil, t.poolError()
	}
	t.conclude()
	return t.out, nil
}

// prepare finds the mappings and the partitions, before anything long is done.
func (t *tracer) prepare(ctx context.Context, cl *kgo.Client) error {
	if err := t.loadState(ctx); err != nil {
		return err
	}
	if err := t.loadSets(); err != nil {
		return err
	}
	t.knowPool()
	return t.partitions(ctx, cl)
}

// knowPool finds who owns the key's pool.
func (t *tracer) knowPool() {
	for _, set := range t.sets.all() {
		for _, f := range set.Files() {
			underivable := slices.Contains(f.Underivable, t.pool)
			if underivable || slices.Contains(f.Pools, t.pool) {
				t.claims, t.out.Team, t.out.Contact = true, f.Team, f.Contact
				t.out.Underivable = t.out.Underivable || underivable
			}
		}
	}
}

// poolError says what may be meant by a key of a pool that nobody claims.
func (t *tracer) poolError() *PoolError {
	var claimed []string
	for _, set := range t.sets.all() {
		claimed = append(claimed, allPools(set)...)
	}
	slices.Sort(claimed)
	claimed = slices.Compact(claimed)
	what := "is claimed by no mapping file, and nobody sent such a key: nothing deletes it"
	prefix, near := t.state.prefix(), mapping.Nearest(t.pool, claimed)
	switch {
	case prefix != "" && strings.HasPrefix(t.base, prefix):
		what += fmt.Sprintf(" (leave the ring's key_prefix %q out)", prefix)
	case near != "":
		what += fmt.Sprintf(": did you mean %q?", near+strings.TrimPrefix(t.base, t.pool))
	case len(claimed) > 0:
		what += fmt.Sprintf(" (there are: %s)", strings.Join(claimed, ", "))
	}
	return &PoolError{t.pool, what}
}

// means reports whether a text that a template rendered is the key that was asked for.
func (t *tracer) means(text string) bool { return text == t.q.Key || text == t.base }

// unknown adds something that the trace cannot know.
func (t *tracer) unknown(format string, args ...any) {
	t.out.Unknown = append(t.out.Unknown, fmt.Sprintf(format, args...))
}
