package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"invalidator/cdc"
	"invalidator/cdc/mysql"
	"invalidator/cdc/postgres"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/feed"
	"invalidator/internal/gap"
	"invalidator/internal/obs"
	"invalidator/mapping"
)

// Feed is a feeder process.
type Feed struct {
	Config   *config.Config
	Log      *slog.Logger
	Registry Metrics
	Only     []string               // source names; empty: every source that is fed by us
	Hup      <-chan os.Signal       // each reads the mappings folder again; nil: only its own changes do
	Page     func(Live) []obs.Route // more of the admin listener; nil: nothing

	// NewFeeder makes a source's feeder; nil: by the source's type.
	NewFeeder func(config.Source, *slog.Logger) (cdc.Feeder, error)
}

// Run feeds until ctx ends and returns nil; its error is a configuration that cannot work.
func (f *Feed) Run(ctx context.Context) error {
	mappings, err := newMappings(f.Config, f.Registry, f.Log)
	if err != nil {
		return err
	}
	var keep atomic.Pointer[kept]
	sources, err := f.sources(&keep, mappings)
	if err != nil {
		return err
	}
	kafka, err := kafkaOptions(f.Config.Kafka, f.Log)
	if err != nil {
		return err
	}
	kafka.Metrics = changelog.NewMetrics(f.Registry)
	metrics, err := feed.NewMetrics(f.Registry)
	if err != nil {
		return err
	}
	under, stopUnder := context.WithCancel(context.WithoutCancel(ctx))
	defer stopUnder()
	eg, under := errgroup.WithContext(under)
	var ready obs.Readiness
	ready.Waits(waitsForTopics)
	var page []obs.Route
	if f.Page != nil {
		page = f.Page(Live{Mappings: func() *mapping.Set { return mappings.today().set }})
	}
	eg.Go(func() error { return serveAdmin(under, f.Config.Admin, f.Registry, &ready, f.Log, page...) })
	eg.Go(func() error {
		defer stopUnder()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(under, cancel)()
		if err := ensureOwnTopics(ctx, f.Config, kafka, f.Log); err != nil || ctx.Err() != nil {
			return err
		}
		names := changelog.NamesFor(f.Config.Kafka.TopicPrefix)
		state, err := changelog.OpenState(kafka, names.State)
		if err != nil {
			return err
		}
		defer state.Close()
		ready.Waits(waitsForMappings)
		if err := mappings.open(ctx, state); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		keep.Store(&kept{set: mappings.today().set})
		defer mappings.start(ctx, f.Hup, func(s *mapping.Set) { keep.Store(&kept{set: s}) })()
		self := &process{name: processName(), state: state, role: roleFeeder, group: f.Config.Kafka.Group, mappings: mappings, log: f.Log}
		book, err := openBook(ctx, kafka, names, self)
		if err != nil {
			return err
		}
		defer book.Close()
		run, err := feed.New(feed.Options{
			Kafka: kafka, Topics: topicSettings(f.Config), State: state, Gaps: book, Group: f.Config.Kafka.Group, Self: self.name,
			Sources: sources, Log: f.Log, Metrics: metrics,
		})
		if err != nil {
			return err
		}
		ready.Ask(run.Waits)
		defer context.AfterFunc(ctx, func() { ready.Waits(ends) })()
		self.wrong = run.Findings
		defer self.start(ctx)()
		return run.Run(ctx)
	})
	return eg.Wait()
}

func (f *Feed) sources(keep *atomic.Pointer[kept], m *mappings) ([]feed.Source, error) {
	for _, name := range f.Only {
		if !slices.ContainsFunc(f.Config.Sources, func(s config.Source) bool { return s.Name == name && s.Topics == nil }) {
			return nil, fmt.Errorf("no source that is fed by us is called %q (there are: %s)", name, strings.Join(fedNames(f.Config), ", "))
		}
	}
	newFeeder := f.NewFeeder
	if newFeeder == nil {
		newFeeder = NewFeeder
	}
	var out []feed.Source
	for _, s := range f.Config.Sources {
		if s.Topics != nil || len(f.Only) > 0 && !slices.Contains(f.Only, s.Name) {
			continue
		}
		feeder, err := newFeeder(s, f.Log)
		if err != nil {
			return nil, err
		}
		connector := cdc.MySQL
		if s.Type == "postgres" {
			connector = cdc.Postgres
		}
		out = append(out, feed.Source{
			Name: s.Name, TopicPrefix: s.TopicPrefix, Feeder: feeder, Include: s.Include, MaxRecord: int(s.MaxRecord), Connector: connector,
			Keep:       func(t cdc.TableID) []string { return keep.Load().columns(s.Name, t) },
			OnGapFlush: s.OnGap == onGapFlush,
			Pools:      func(tables []string) []string { return poolsOf(m.today().set, s, tables) },
			Tables: func(ctx context.Context, schema string) ([]cdc.TableID, error) {
				return schemaTables(ctx, s, m.today().set, feeder, schema)
			},
		})
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no source is fed by us: nothing to do (add one with a type under sources)")
	}
	return out, nil
}

func fedNames(c *config.Config) []string {
	var out []string
	for _, s := range c.Sources {
		if s.Topics == nil {
			out = append(out, s.Name)
		}
	}
	return out
}

// openBook opens the book of gaps, and removes what has been closed for long.
func openBook(ctx context.Context, kafka changelog.Options, names changelog.Names, self *process) (*gap.Book, error) {
	book, err := gap.OpenBook(kafka, names, self.name)
	if err != nil {
		return nil, err
	}
	limit, cancel := context.WithTimeout(ctx, gapsTimeout)
	defer cancel()
	if err := book.Forget(limit); err != nil && ctx.Err() == nil {
		self.log.Warn("removing gaps that were closed long ago", "error", err)
	}
	return book, nil
}

// kept says which columns a slim record keeps: those that mappings name.
type kept struct {
	set   *mapping.Set
	names sync.Map // *cdc.Columns -> []string
}

func (k *kept) columns(source string, t cdc.TableID) []string {
	cols := k.set.Columns(source, t)
	if cols == nil {
		return nil
	}
	if n, ok := k.names.Load(cols); ok {
		return n.([]string)
	}
	n := make([]string, len(cols.List))
	for i, c := range cols.List {
		n[i] = c.Name
	}
	k.names.Store(cols, n)
	return n
}

// NewFeeder makes the feeder of a configured source, by its type. It talks to nobody yet.
func NewFeeder(s config.Source, log *slog.Logger) (cdc.Feeder, error) {
	include, err := cdc.NewInclude(s.Include)
	if err != nil {
		return nil, fmt.Errorf("source %s: %w", s.Name, err)
	}
	t, err := tlsConfig("source "+s.Name+": tls", s.TLS)
	if err != nil {
		return nil, err
	}
	if s.Type == "postgres" {
		return postgres.New(postgres.Config{
			Name: s.Name, Hosts: s.Hosts, Database: s.Database, User: s.User, Password: s.Password.Reveal, TLS: t,
			Publication: s.Publication, Slot: s.Slot, Include: include,
			Standby: s.Standby, Heartbeat: s.Heartbeat, AllowPartial: s.AllowPartial, MaxTTL: s.MaxTTL, Settle: s.Settle,
		}, log)
	}
	return mysql.New(mysql.Config{
		Name: s.Name, Hosts: s.Hosts, User: s.User, Password: s.Password.Reveal, TLS: t,
		ServerID: s.ServerID, Include: include, MaxTTL: s.MaxTTL, Settle: s.Settle,
	}, log)
}
