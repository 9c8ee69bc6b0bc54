package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/cdc"
	"invalidator/internal/changelog"
	"invalidator/internal/gap"
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
	Include     []string // what the feeder chooses, as it is configured: patterns of schema.table

	// Keep names the columns that a record over the size limit keeps beside its key: those that mappings name. It is
	// called for every record, from the feeder's goroutine, and must be fast. nil: none.
	Keep func(cdc.TableID) []string

	// OnGapFlush: a gap is accepted by itself, and a flush of its pools asked for. Else it stands until a person accepts it.
	OnGapFlush bool

	// Pools are the pools whose keys some tables' rows give, by today's mappings: "schema.table", or "schema.*" for a whole
	// schema; none: all that the source includes. nil: none are known.
	Pools func(tables []string) []string

	// Tables lists the tables of a schema that the source includes. nil: none are known. Its error is a source that could
	// not be asked.
	Tables func(ctx context.Context, schema string) ([]cdc.TableID, error)

	Connector cdc.Connector // of records that no change of a row stands behind

	// MaxRecord bounds a record's key and value, in bytes, below what the topic itself takes. 0: only the topic does.
	MaxRecord int
}

// Options are what a Feed needs.
type Options struct {
	Kafka     changelog.Options
	Topics    changelog.Settings
	State     *changelog.StateStore
	Gaps      *gap.Book
	Group     string // the feeders of a source are candidates in the group <Group>.feed.<source>
	Self      string // this process, to people; unique among the feeders
	Sources   []Source
	SaveEvery time.Duration // default 200 ms
	Log       *slog.Logger  // nil: none
	Metrics   *Metrics      // nil: none are kept
}

// Feed runs sources.
type Feed struct {
	opts    Options
	names   changelog.Names
	sources []*source
}

// New checks the options. The service's own topics must stand before Run (changelog.EnsureTopics).
func New(o Options) (*Feed, error) {
	if o.Group == "" || o.Self == "" {
		return nil, errors.New("feeders need a group and a name: one of them is empty")
	}
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
	f := &Feed{opts: o, names: changelog.NamesFor(o.Topics.Prefix)}
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
			Source:   s,
			opts:     &f.opts,
			log:      o.Log.With("source", s.Name),
			metrics:  o.Metrics.of(s.Name),
			limits:   make(map[string]int),
			gaps:     trouble{lines: make(map[string]string)},
			findings: trouble{lines: make(map[string]string)},
		})
	}
	return f, nil
}

// Run stands for each source, each alone, and feeds those that it leads, until ctx ends; then it waits for acknowledgements,
// saves the positions, leaves the groups, and returns nil within about seven seconds. Whatever goes wrong with a source is
// reported through the log and tried again. The error is a configuration that cannot work.
func (f *Feed) Run(ctx context.Context) error {
	eg, ctx := errgroup.WithContext(ctx)
	for _, s := range f.sources {
		eg.Go(func() error {
			return changelog.Lead(ctx, changelog.LeaderOptions{
				Options: s.kafka(), Group: f.opts.Group + ".feed." + s.Name, Topic: f.names.Leader, Self: f.opts.Self, Joined: &s.joined,
			}, s.lead)
		})
	}
	return eg.Wait()
}

// Health is what is wrong with the sources that this process leads, a line each; nil: nothing that a person must act on.
func (f *Feed) Health() []string {
	var all []string
	for _, s := range f.sources {
		all = append(all, s.gaps.all()...)
	}
	return append(all, f.Findings()...)
}

// Waits says why this process does not serve, a line each: what Health says, a source that it leads and does not feed, and a group
// that it is not in. nil: it feeds all that it leads, and stands by for the rest.
func (f *Feed) Waits() (all []string) {
	for _, s := range f.sources {
		all = append(all, s.waits()...)
	}
	return all
}

// Findings are what of Health is no gap, which stands on the state topic.
func (f *Feed) Findings() (all []string) {
	for _, s := range f.sources {
		all = append(all, s.findings.all()...)
	}
	return all
}
