package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/obs"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/sink/memcache"
)

// dryGroup ends the name of a dry run's consumer group.
const dryGroup = ".dry-run"

// DryRun is a worker that deletes nothing: it reads what the fleet's workers read, as a member of a group of its own, <kafka.group>.dry-run, and counts and
// samples what it would delete. It connects to no node. Of the service's own topics it writes the state topic alone, and there what is of its own group.
type DryRun struct {
	Config *config.Config
	Log    *slog.Logger
	From   string           // latest, earliest or an RFC 3339 time: the group begins anew there. Empty: where it stopped; the first time, latest
	Hup    <-chan os.Signal // as a Worker's
	Told   func(any) error  // DrySample and DrySummary, from one goroutine; an error ends it
}

// config is the dry run's own: another group, which no static member is in.
func (d *DryRun) config() *config.Config {
	c := *d.Config
	c.Kafka.Group += dryGroup
	c.Kafka.InstanceID = ""
	return &c
}

// Run counts until ctx ends, and then tells the last sums. Its error is a configuration that cannot work.
func (d *DryRun) Run(ctx context.Context) error {
	own := *d
	own.Log = d.Log.With("dry_run", true) // what the log says of dead letters and gaps is what would be
	return own.run(ctx)
}

func (d *DryRun) run(ctx context.Context) error {
	c, metrics := d.config(), obs.NewRegistry()
	mappings, err := newMappings(c, metrics, d.Log)
	if err != nil {
		return err
	}
	kafka, err := kafkaOptions(c.Kafka, d.Log)
	if err != nil {
		return err
	}
	rings := newLastRings(c.Kafka.Group, d.Log)
	watcher, err := newWatcher(c.Cache.Ring, rings.options(c.Cache), d.Log)
	if err != nil {
		return err
	}
	sources, starts, err := readsOf(c)
	if err != nil {
		return err
	}
	for i := range starts {
		starts[i].At = "latest"
		if d.From != "" {
			starts[i].At = d.From
		}
	}
	if err := countSchemas(sources, metrics); err != nil {
		return err
	}
	under, stopUnder := context.WithCancel(context.WithoutCancel(ctx))
	defer stopUnder()
	deleter, count := newDryDeleter(), newDryCount(c.Kafka.Group, func() string { return watcher.View().Topology.KeyPrefix() })
	eg, under := errgroup.WithContext(under)
	eg.Go(func() error { return watcher.Run(under) })
	eg.Go(func() error { deleter.run(under); return nil })
	eg.Go(func() error {
		defer stopUnder()
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(under, cancel)()
		telling := make(chan error, 1)
		tell, stopTelling := context.WithCancel(under)
		go func() {
			defer cancel()
			telling <- count.tell(tell, d.Told)
		}()
		err := d.work(ctx, c, kafka, watchedRing{watcher, rings}, mappings, pipeline.Options{
			Sources: sources, Deleter: deleter, Observer: count.observe,
			Parker: count, Refresher: count, Flusher: count, Gaps: count,
			Classic: memcache.Protocol(c.Cache.Protocol) == memcache.Classic,
			Settle:  drySettle, MaxLag: c.Cache.Node.MaxLag, MaxTTL: c.Cache.MaxTTL, Window: c.Replay.Window,
			Log: d.Log, Registerer: metrics,
		}, starts)
		stopTelling()
		return errors.Join(err, <-telling)
	})
	return eg.Wait()
}

// drySettle is between two rounds, of which only the first is counted.
const drySettle = time.Millisecond

// work is Run once its parts are made.
func (d *DryRun) work(ctx context.Context, c *config.Config, kafka changelog.Options, ring watchedRing, mappings *mappings, opts pipeline.Options, starts []changelog.Start) error {
	names := changelog.NamesFor(c.Kafka.TopicPrefix)
	needs := slices.DeleteFunc(topicSettings(c).Own(), func(t changelog.TopicSpec) bool { return t.Name != names.State })
	if err := ensureTopics(ctx, needs, kafka, d.Log); err != nil || ctx.Err() != nil {
		return err
	}
	state, err := changelog.OpenState(kafka, names.State)
	if err != nil {
		return err
	}
	defer state.Close()
	if d.From != "" {
		if err := d.beginAnew(ctx, kafka, state, c.Kafka.Group); err != nil {
			return err
		}
	}
	if err := openSaved(ctx, c, state, mappings, ring, d.Log); err != nil || ctx.Err() != nil {
		return err
	}
	defer ring.rings.start(ctx)()
	past, err := changelog.OpenLog(kafka)
	if err != nil {
		return err
	}
	defer past.Close()
	opts.Past, opts.Archive = past, issuedMappings{mappings.archive}
	opts.Snapshots = pipeline.NewSnapshots(ring, mappings.today().set)
	defer mappings.start(ctx, d.Hup, func(s *mapping.Set) { opts.Snapshots.SetMapper(s) })()
	worker, err := pipeline.New(opts)
	if err != nil {
		return err
	}
	self := &process{name: processName(), role: roleWorker, group: c.Kafka.Group, state: state, mappings: mappings, view: ring.View, log: d.Log}
	defer self.start(ctx)()
	d.Log.Info("dry run: nothing is deleted", "group", c.Kafka.Group, "snapshot", opts.Snapshots.Current().Fingerprint())
	return worker.Run(ctx, changelog.NewGroup(changelog.GroupOptions{
		Options: kafka, Group: c.Kafka.Group, Starts: starts, State: state, Names: names, Readable: pipeline.Readable,
	}))
}

// beginAnew has the group begin at From, where it has no members.
func (d *DryRun) beginAnew(ctx context.Context, kafka changelog.Options, state *changelog.StateStore, group string) error {
	err := changelog.ForgetGroup(ctx, kafka, state, group)
	if errors.Is(err, changelog.ErrGroupRuns) {
		d.Log.Warn("the dry run's group has members: this one joins them, wherever they are", "group", group, "from", d.From)
		return nil
	}
	if err != nil {
		return fmt.Errorf("beginning the dry run at %s: %w", d.From, err)
	}
	return nil
}
