package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/internal/flush"
	"invalidator/internal/obs"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/sink"
	"invalidator/sink/memcache"
	"invalidator/sink/registry"
)

// Worker is a worker process.
type Worker struct {
	Config   *config.Config
	Log      *slog.Logger
	Registry Metrics
	Observer func(pipeline.Round)   // nil: none
	Page     func(Live) []obs.Route // more of the admin listener; nil: nothing
	Started  func()                 // called when the worker joins its group; nil: nobody asks
	Hup      <-chan os.Signal       // each reads the mappings folder again; nil: only its own changes do

	// Wrap stands between the pipeline and the nodes, WrapMapper between it and the mappings, for tests that leave something
	// out; nil: nothing does.
	Wrap       func(sink.Deleter) sink.Deleter
	WrapMapper func(mapping.Mapper) mapping.Mapper

	off   func() []NodeOff // the nodes that are off now
	nodes flush.Nodes      // for what is flushed there
	ready obs.Readiness
}

// Live is what a running process knows by itself.
type Live struct {
	Mappings func() *mapping.Set   // gives nil: none are in force yet
	View     func() *registry.View // gives nil: there is no ring yet. Nil of a feeder, which has none
}

// Run works until ctx ends, drains, commits and returns nil; its error is a configuration that cannot work.
func (w *Worker) Run(ctx context.Context) error {
	mappings, err := newMappings(w.Config, w.Registry, w.Log)
	if err != nil {
		return err
	}
	kafka, err := kafkaOptions(w.Config.Kafka, w.Log)
	if err != nil {
		return err
	}
	kafka.Metrics = changelog.NewMetrics(w.Registry)
	rings := newLastRings(w.Config.Kafka.Group, w.Log)
	watcher, err := newWatcher(w.Config.Cache.Ring, rings.options(w.Config.Cache), w.Log)
	if err != nil {
		return err
	}
	if f, is := watcher.(*registry.File); is {
		if err := f.Check(); err != nil {
			w.Log.Error("the ring's files cannot be used; the state topic is asked for what was last good", "error", err)
		}
	}
	nodes, err := memcacheOptions(w.Config)
	if err != nil {
		return err
	}
	sources, starts, err := readsOf(w.Config)
	if err != nil {
		return err
	}

	if err := countSchemas(sources, w.Registry); err != nil {
		return err
	}

	// What the worker leans on outlives it: it drains into the nodes after ctx has ended.
	posts, letGo, err := w.posts(kafka, mappings, watcher.View)
	if err != nil {
		return err
	}
	defer letGo()
	if w.Page != nil {
		posts = append(posts, w.Page(Live{Mappings: func() *mapping.Set { return mappings.today().set }, View: watcher.View})...)
	}
	under, stopUnder := context.WithCancel(context.WithoutCancel(ctx))
	defer stopUnder()
	client := memcache.New(nodes, w.Log)
	w.off, w.nodes = func() []NodeOff { return nodesOff(client) }, client
	if err := w.Registry.Register(nodeCollector{client}); err != nil {
		return fmt.Errorf("registering metrics of nodes: %w", err)
	}
	eg, under := errgroup.WithContext(under)
	eg.Go(func() error { return rings.watch(under, watcher) })
	eg.Go(func() error { return client.Run(under) })
	eg.Go(func() error { retain(under, client, watcher); return nil })
	w.ready.Waits(waitsForTopics)
	eg.Go(func() error { return serveAdmin(under, w.Config.Admin, w.Registry, &w.ready, w.Log, posts...) })
	eg.Go(func() error {
		defer stopUnder()
		// A part under the worker that fails ends it.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(under, cancel)()
		var deleter sink.Deleter = client
		if w.Wrap != nil {
			deleter = w.Wrap(client)
		}
		return w.work(ctx, kafka, watchedRing{watcher, rings}, mappings, pipeline.Options{
			Sources: sources, Deleter: deleter,
			Classic: memcache.Protocol(w.Config.Cache.Protocol) == memcache.Classic,
			Settle:  w.Config.Cache.Settle, MaxLag: w.Config.Cache.Node.MaxLag, MaxTTL: w.Config.Cache.MaxTTL, Window: w.Config.Replay.Window,
			Storm:    fleetStorm(w.Config.Storm),
			Observer: w.Observer, Log: w.Log, Registerer: w.Registry,
		}, client.OnOff, starts)
	})
	return eg.Wait()
}

// mapper is what comes into force, and tells what the nodes' protocol makes of it.
func (w *Worker) mapper(s *mapping.Set) mapping.Mapper {
	for _, p := range protocolProblems(w.Config, s) {
		w.Log.Error("a mapping file asks for what the nodes' protocol cannot say", "problem", p.String())
	}
	if w.WrapMapper != nil {
		return w.WrapMapper(s)
	}
	return s
}

// watchedRing is what a worker knows of the ring and the hot keys.
type watchedRing struct {
	registry.Watcher
	rings *lastRings
}

// open waits for the first ring: the registry's, or what workers have seen of it before.
func (r watchedRing) open(ctx context.Context, state *changelog.StateStore) error {
	if err := r.rings.open(ctx, state, r.Watcher); err != nil {
		return err
	}
	select {
	case <-r.Ready():
		r.rings.first(ctx)
		return nil
	case <-ctx.Done():
		r.rings.follower.Close()
		return ctx.Err()
	}
}

// openSaved puts in force what the fleet's state topic has of mappings, ring and hot keys. It returns nil where ctx ended first.
func openSaved(ctx context.Context, c *config.Config, state *changelog.StateStore, mappings *mappings, ring watchedRing, log *slog.Logger) error {
	mappings.archive = newArchive(c.Kafka.Group, c.Cache.MaxTTL, state, log)
	for _, open := range []func(context.Context, *changelog.StateStore) error{mappings.open, ring.open} {
		if err := open(ctx, state); err != nil || ctx.Err() != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	return nil
}

// work is Run once its parts are made. onOff has a function told of nodes that leave the live path, and of those that are back.
func (w *Worker) work(ctx context.Context, kafka changelog.Options, ring watchedRing, mappings *mappings, opts pipeline.Options, onOff func(func(string, bool)), starts []changelog.Start) error {
	if err := ensureOwnTopics(ctx, w.Config, kafka, w.Log); err != nil || ctx.Err() != nil {
		return err
	}
	names := changelog.NamesFor(w.Config.Kafka.TopicPrefix)
	state, err := changelog.OpenState(kafka, names.State)
	if err != nil {
		return err
	}
	defer state.Close()
	w.ready.Ask(func() []string {
		if mappings.today().set == nil {
			return []string{waitsForMappings}
		}
		return []string{waitsForRing}
	})
	if err := openSaved(ctx, w.Config, state, mappings, ring, w.Log); err != nil || ctx.Err() != nil {
		return err
	}
	defer ring.rings.start(ctx)()
	opts.Archive = issuedMappings{mappings.archive}
	opts.Snapshots = pipeline.NewSnapshots(ring, w.mapper(mappings.today().set))
	defer mappings.start(ctx, w.Hup, func(s *mapping.Set) { opts.Snapshots.SetMapper(w.mapper(s)) })()
	dead, err := changelog.OpenDeadLetter(kafka, names.DeadLetter)
	if err != nil {
		return err
	}
	defer dead.Close()
	refresher, err := changelog.OpenRefresher(kafka, names.Refresh)
	if err != nil {
		return err
	}
	defer refresher.Close()
	requests, err := changelog.OpenWriter(kafka)
	if err != nil {
		return err
	}
	defer requests.Close()
	self := &process{
		name: processName(), role: roleWorker, group: w.Config.Kafka.Group, state: state, mappings: mappings, view: ring.View, log: w.Log,
	}
	book, err := openBook(ctx, kafka, names, self)
	if err != nil {
		return err
	}
	defer book.Close()
	past, err := changelog.OpenLog(kafka)
	if err != nil {
		return err
	}
	defer past.Close()
	opts.Past = past
	gaps := gapRecorder{book, w.Config, mappings}
	opts.Parker = &parker{dead: dead, gaps: gaps, sources: opts.Sources, raised: map[string]time.Time{}}
	opts.Refresher, opts.Gaps, opts.Flusher = refresher, gaps, newFlusher(requests, names.Control)
	events := newEvents(requests, names.Status, self.name, w.Log)
	shares, err := newShares(w.Config, opts.Sources, func() *mapping.Set { return mappings.today().set }, w.Registry, w.Log)
	if err != nil {
		return err
	}
	shares.turn(ctx)
	opts.Event, opts.Shares = events.add, shares.of
	asked, err := w.newRequested(self.name, kafka, names, state, requests, ring, func() *mapping.Set { return mappings.today().set }, opts.Sources)
	if err != nil {
		return err
	}
	opts.Orders, opts.Progress = asked.state, asked.told.add
	var group *changelog.Group
	flushes, err := w.newFlushes(self.name, flushTopics{kafka, names, requests, asked.state}, w.nodes, ring, func() *mapping.Set { return mappings.today().set },
		func(ctx context.Context, work int32) error { return group.HoldsWork(ctx, work) })
	if err != nil {
		return err
	}
	opts.RingFlusher = flushes.ring
	worker, err := pipeline.New(opts)
	if err != nil {
		return err
	}
	pauses := &pauses{fleet: w.Config.Kafka.Group, store: state, hold: worker.Hold, log: w.Log}
	if err := pauses.open(ctx); err != nil {
		return nil
	}
	for _, run := range []func(context.Context){events.run, shares.run, pauses.run} {
		defer inBackground(context.WithoutCancel(ctx), run)() // they go on while the process drains
	}
	defer asked.run(context.WithoutCancel(ctx), w.Log)()
	onOff(worker.NodeTurned)
	self.off, self.paying = w.off, func() []PassNow { return passesOf(worker) }
	sums, stopSums, err := w.tellOwed(ctx, self.name, state, requests, names.Status, ring)
	if err != nil {
		return err
	}
	defer stopSums()
	group = changelog.NewGroup(changelog.GroupOptions{
		Options: kafka, Group: w.Config.Kafka.Group, Starts: starts, State: state, Names: names,
		Readable: pipeline.Readable, Room: worker.AwaitRoom, InstanceID: w.Config.Kafka.InstanceID, Work: claims(sums.Claim, asked.clerk.Claim, flushes.Claim),
	})
	defer inBackground(ctx, flushes.Run)()
	defer self.start(ctx)()
	defer inBackground(ctx, func(ctx context.Context) {
		watchTopics(ctx, w.Config, func() *mapping.Set { return mappings.today().set }, w.Log, topicsEvery)
	})()
	defer inBackground(ctx, func(ctx context.Context) { settleGaps(ctx, book, w.Log) })()
	if w.Started != nil {
		w.Started()
	}
	w.ready.Ask(group.Waits)
	defer context.AfterFunc(ctx, func() { w.ready.Waits(ends) })()
	w.Log.Info("worker started", "group", w.Config.Kafka.Group, "snapshot", opts.Snapshots.Current().Fingerprint())
	err = worker.Run(ctx, group)
	w.Log.Info("worker stopped")
	return err
}

// topicsOf lists what the workers read: the topics of every source, fed by us or by somebody else. Its error is a source that would
// take our own topics for changes: what cannot be read is parked, and would be read again from the dead letters.
func topicsOf(c *config.Config) ([]*pipeline.Source, []changelog.Start, error) {
	var sources []*pipeline.Source
	var starts []changelog.Start
	for _, s := range c.Sources {
		decode, pattern := envelope.Config{Format: envelope.Auto, Source: s.Name}, changelog.ChangeTopics(s.TopicPrefix)
		if s.Topics != nil {
			pattern = changelog.WholeName(regexp.MustCompile(s.Topics.Pattern)) // it was checked
			var err error
			if decode, err = decoding(s.Name, s.Topics, pattern); err != nil {
				return nil, nil, err
			}
		}
		for _, own := range changelog.NamesFor(c.Kafka.TopicPrefix).All() {
			if pattern.MatchString(own) {
				return nil, nil, fmt.Errorf("source %s: its topics (%s) take in our own topic %s (narrow topics.pattern, or choose another topic_prefix)", s.Name, pattern, own)
			}
		}
		sources = append(sources, &pipeline.Source{Name: s.Name, Pattern: pattern, Decode: decode})
		starts = append(starts, changelog.Start{Pattern: pattern, At: s.FirstStart})
	}
	if len(sources) == 0 {
		return nil, nil, errors.New("no source is configured: nothing would be deleted (add one under sources)")
	}
	return sources, starts, nil
}

// watchBeyond is how much longer than replay.window an idle node is watched: one that dies in that time may take with it what it acknowledged last, and is to be missed.
const watchBeyond = 30 * time.Second

// protocolProblems are what of the mappings cannot work in the protocol that nodes are spoken to.
func protocolProblems(c *config.Config, s *mapping.Set) []mapping.Problem {
	if memcache.Protocol(c.Cache.Protocol) == memcache.Classic {
		return s.CheckClassic()
	}
	return nil
}

func memcacheOptions(all *config.Config) (memcache.Options, error) {
	c := &all.Cache
	t, err := tlsConfig("cache.node.tls", c.Node.TLS)
	return memcache.Options{
		Protocol:     memcache.Protocol(c.Protocol),
		ConnsPerNode: c.Node.Connections,
		QueueBytes:   int(c.Node.Queue),
		Timeout:      c.Node.Timeout,
		MaxLag:       c.Node.MaxLag,
		Watch:        all.Replay.Window + watchBeyond,
		TLS:          t,
		User:         c.Node.User,
		Password:     c.Node.Password.Reveal,

		VerifyNotFound: c.Node.NotFound == "verify",
	}, err
}

var _ sink.Deleter = (*memcache.Client)(nil)

func newWatcher(r config.Ring, opts registry.Options, log *slog.Logger) (registry.Watcher, error) {
	switch {
	case r.Etcd != nil:
		c, err := etcdConfig(r.Etcd)
		if err != nil {
			return nil, err
		}
		return registry.NewEtcd(c, opts, log), nil
	case r.File != "":
		return registry.NewFile(r.File, r.HotFile, opts, log), nil
	}
	return nil, errors.New("no ring is configured (set cache.ring.file or cache.ring.etcd)")
}
