package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
)

// DefaultSaveEvery is the most often that a source's position is saved. A position is a Kafka record that waits for the
// replicas; what lies between two is sent again after a crash.
const DefaultSaveEvery = 200 * time.Millisecond

// Back-off of a source between two runs: it doubles from the first to the second, and begins again after a run that lasted
// and moved the source's position.
const (
	retryFirst, retryMost = 200 * time.Millisecond, 10 * time.Second // it may pass by itself
	standFirst, standMost = 30 * time.Second, time.Minute            // a person must act: an error a minute shows that it still stands
)

const (
	// drainTime is how long a source that ends waits for the acknowledgement of what it has sent, and graceTime how long
	// until its position is saved, after SIGTERM: together well within the 10 s that a process has.
	drainTime = 4 * time.Second
	graceTime = 6 * time.Second
)

// Source is one database to be fed to Kafka.
type Source struct {
	Name        string // unique; in every record, the state topic and the metrics
	TopicPrefix string // of its change topics; default its name
	Feeder      cdc.Feeder

	// Keep names the columns that a record over the size limit keeps beside its key: those that mappings name. It is
	// called for every record, from the feeder's goroutine, and must be fast. nil: none.
	Keep func(cdc.TableID) []string

	// MaxRecord bounds a record's key and value, in bytes, below what the topic itself takes. 0: only the topic does.
	MaxRecord int
}

// Options are what a Feed needs.
type Options struct {
	Kafka     changelog.Options
	Topics    changelog.Settings
	State     *changelog.StateStore
	Sources   []Source
	SaveEvery time.Duration // default 200 ms
	Log       *slog.Logger  // nil: none
	Metrics   *Metrics      // nil: none are kept
}

// Feed runs sources.
type Feed struct {
	opts    Options
	sources []*source
}

// New checks the options. The service's own topics must stand before Run (changelog.EnsureTopics).
func New(o Options) (*Feed, error) {
	if o.SaveEvery == 0 {
		o.SaveEvery = DefaultSaveEvery
	}
	if o.Metrics == nil {
		var err error
		if o.Metrics, err = NewMetrics(nil); err != nil {
			return nil, err
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Feed{opts: o}
	seen := make(map[string]bool)
	for _, s := range o.Sources {
		if s.Name == "" || seen[s.Name] {
			return nil, fmt.Errorf("source %q: the name is empty or used twice", s.Name)
		}
		seen[s.Name] = true
		if s.TopicPrefix == "" {
			s.TopicPrefix = s.Name
		}
		f.sources = append(f.sources, &source{
			Source:  s,
			opts:    &f.opts,
			log:     o.Log.With("source", s.Name),
			metrics: o.Metrics.of(s.Name),
			limits:  make(map[string]int),
		})
	}
	return f, nil
}

// Run feeds all sources, each alone, until ctx ends; then it waits for acknowledgements, saves the positions, and returns
// nil within about six seconds. Whatever goes wrong with a source is reported through the log and tried again.
func (f *Feed) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, s := range f.sources {
		wg.Go(func() { s.supervise(ctx) })
	}
	wg.Wait()
	return nil
}

// source is a Source with what outlives a run of it. Only its own goroutine touches it.
type source struct {
	Source
	opts    *Options
	log     *slog.Logger
	metrics sourceMetrics
	limits  map[string]int // topic -> most bytes of a record, where the topic's own limit turned out to be too high

	reported string // the error that was last told; empty when the source has fed since
}

func (s *source) supervise(ctx context.Context) {
	var wait time.Duration
	for {
		s.metrics.state.Set(stateStarting)
		begin := time.Now()
		progress, err := s.run(ctx)
		if ctx.Err() != nil {
			if err != nil {
				s.log.Warn("stopping the source: what is not saved is sent again by the next start", "error", err)
			}
			return
		}
		s.metrics.failures.Inc()
		s.learnLimit(err)
		if progress && time.Since(begin) > steadyAfter { // two readers that cut each other both get on a little
			wait = 0
		}
		wait = s.report(err, wait)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// report tells an error when it is new, and returns how long to wait after it.
func (s *source) report(err error, last time.Duration) time.Duration {
	first, most, state, level := retryFirst, retryMost, float64(stateWaiting), slog.LevelWarn
	if standing(err) {
		first, most, state, level = standFirst, standMost, stateStanding, slog.LevelError
	}
	s.metrics.state.Set(state)
	wait := min(max(first, 2*last), most)
	if text := err.Error(); text != s.reported {
		s.reported = text
		s.log.Log(context.Background(), level, "the source stands still and is tried again", "error", err, "in", wait)
	}
	return wait
}

// standing reports whether a person must act before a source can go on.
func standing(err error) bool {
	var known interface{ Retryable() bool }
	if errors.As(err, &known) {
		return !known.Retryable()
	}
	var enc *envelope.EncodeError
	return errors.As(err, &enc)
}

// recovered ends the trouble that was told.
func (s *source) recovered() {
	if s.reported != "" {
		s.reported = ""
		s.log.Info("the source feeds again")
	}
}

// leastLimit ends the halving: a topic that refuses even this has another trouble.
const leastLimit = 1 << 10

// learnLimit halves what a topic is sent, once it has refused a record although its settings allow it: some brokers do not
// show their limit, and settings change. The next run writes larger rows slim, from the saved position, so that nothing is
// skipped and no row's records change their order.
func (s *source) learnLimit(err error) {
	var refused *refusedError
	if !errors.As(err, &refused) || refused.limit/2 < leastLimit {
		return
	}
	s.limits[refused.Topic] = refused.limit / 2
	s.log.Warn("the topic refuses records that its max.message.bytes allows: larger ones are written with their key and mapped columns alone",
		"topic", refused.Topic, "bytes", refused.Bytes, "limit", refused.limit, "new_limit", refused.limit/2)
}

// refusedError is a record too large for its topic, and the limit under which it was written.
type refusedError struct {
	*changelog.ProduceError
	limit int
}

// Retryable reports whether a lower limit is left to be tried.
func (e *refusedError) Retryable() bool { return e.limit/2 >= leastLimit }

func (e *refusedError) Unwrap() error { return e.ProduceError }
