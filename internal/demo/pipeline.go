package demo

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/cdc"
	"invalidator/internal/app"
	"invalidator/internal/changelog"
	"invalidator/internal/config"
	"invalidator/sink"
)

const (
	workers    = 2
	partitions = 4 // a change topic

	startLimit = 30 * time.Second // for the feeder and the group to stand
	lookEvery  = 50 * time.Millisecond
)

// parts are the feeder and the workers, as their commands run them, in this process.
type parts struct {
	cfg   *config.Config
	log   *slog.Logger
	sight *sight
	admin *kadm.Client

	workers []*prometheus.Registry // their metrics

	stop func()
	fail context.CancelCauseFunc // a part that ends by itself ends the demo
	wg   sync.WaitGroup
}

// newParts returns a context that ends when a part fails, and what must be stopped.
func newParts(ctx context.Context, cfg *config.Config, log *slog.Logger) (context.Context, *parts, error) {
	// Without a least age, what the client knows of topics would be up to five seconds old.
	client, err := changelog.Options{Brokers: cfg.Kafka.Brokers, ClientID: "demo"}.Connect(ctx, kgo.MetadataMinAge(lookEvery))
	if err != nil {
		return ctx, nil, fmt.Errorf("%w%s", err, devUp)
	}
	story, fail := context.WithCancelCause(ctx)
	p := &parts{cfg: cfg, log: log, sight: newSight(), admin: kadm.NewClient(client), fail: fail}
	p.stop = func() {
		fail(context.Canceled)
		p.wg.Wait()
		client.Close()
	}
	return story, p, nil
}

// part runs until the story ends.
func (p *parts) part(ctx context.Context, what string, run func(context.Context) error) {
	p.wg.Go(func() {
		if err := run(ctx); err != nil {
			p.fail(fmt.Errorf("%s: %w", what, err))
		}
	})
}

// feed starts the feeder and waits until every source is read.
func (p *parts) feed(ctx context.Context, newFeeder func(config.Source, *slog.Logger) (cdc.Feeder, error)) error {
	started := make(chan string, len(p.cfg.Sources)) // each is told once
	f := &app.Feed{
		Config: p.cfg, Log: p.log.With("part", "feed"), Registry: prometheus.NewRegistry(),
		NewFeeder: func(s config.Source, log *slog.Logger) (cdc.Feeder, error) {
			inner, err := newFeeder(s, log)
			return &toldFeeder{Feeder: inner, tell: sync.OnceFunc(func() { started <- s.Name })}, err
		},
	}
	p.part(ctx, "the feeder", f.Run)
	timeout := time.NewTimer(startLimit)
	defer timeout.Stop()
	waiting := map[string]bool{}
	for _, s := range p.cfg.Sources {
		waiting[s.Name] = true
	}
	for len(waiting) > 0 {
		select {
		case name := <-started:
			delete(waiting, name)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeout.C:
			return fmt.Errorf("waited %v for the feeder to read %d more sources: %v", startLimit, len(waiting), waiting)
		}
	}
	return nil
}

// toldFeeder tells when it has started: rows committed before would not be seen.
type toldFeeder struct {
	cdc.Feeder
	tell func()
}

func (f *toldFeeder) Run(ctx context.Context, from cdc.Position, out cdc.Handler) error {
	return f.Feeder.Run(ctx, from, toldHandler{out, f.tell})
}

type toldHandler struct {
	cdc.Handler
	tell func()
}

func (h toldHandler) Started(ctx context.Context, p cdc.Position) error {
	err := h.Handler.Started(ctx, p)
	if err == nil {
		h.tell()
	}
	return err
}

// work starts the workers and waits until they share all partitions. wrap may be nil.
func (p *parts) work(ctx context.Context, wrap func(sink.Deleter) sink.Deleter) (shared int, err error) {
	for i := range workers {
		p.workers = append(p.workers, prometheus.NewRegistry())
		w := &app.Worker{
			Config: p.cfg, Log: p.log.With("part", fmt.Sprintf("worker %d", i+1)), Registry: p.workers[i],
			Observer: p.sight.observe, Wrap: wrap,
		}
		p.part(ctx, fmt.Sprintf("worker %d", i+1), w.Run)
	}
	state := ""
	err = p.poll(ctx, func() (done bool, err error) {
		shared, state, err = p.shared(ctx)
		return state == "", err
	}, func() string { return "the workers to share the partitions: " + state })
	return shared, err
}

// actedOn waits until the workers are done with what a change of the ring or of the hot keys makes them delete again: what is filled then stays.
func (p *parts) actedOn(ctx context.Context) error {
	left := 0.0
	return p.poll(ctx, func() (done bool, err error) {
		known := 0
		left = 0
		for _, r := range p.workers {
			families, err := r.Gather()
			if err != nil {
				return false, fmt.Errorf("reading a worker's metrics: %w", err)
			}
			for _, f := range families {
				switch f.GetName() {
				case "invalidator_worker_hot_keys", "invalidator_replay_partitions":
					known++
					for _, m := range f.GetMetric() {
						left += m.GetGauge().GetValue()
					}
				}
			}
		}
		return left == 0 && known == 2*len(p.workers), nil
	}, func() string {
		return fmt.Sprintf("the workers to act on the ring and the hot keys in %v more partitions and keys", left)
	})
}

// shared is how many partitions of change topics the group has handed out; state says why that is not all yet.
func (p *parts) shared(ctx context.Context) (n int, state string, err error) {
	topics, err := p.changeTopics(ctx)
	if err != nil {
		return 0, "", err
	}
	groups, err := p.admin.DescribeGroups(ctx, p.cfg.Kafka.Group)
	if err != nil {
		return 0, "", fmt.Errorf("asking for the group %s: %w", p.cfg.Kafka.Group, err)
	}
	g := groups[p.cfg.Kafka.Group]
	assigned := g.AssignedPartitions()
	for _, t := range topics {
		n += len(assigned[t])
	}
	if all := len(topics) * partitions; g.State != "Stable" || len(g.Members) != workers || n != all {
		return n, fmt.Sprintf("group %s, %d of %d members, %d of %d partitions", g.State, len(g.Members), workers, n, all), nil
	}
	return n, "", nil
}

// topicsMade waits until the feeder has made every table's topic, so that the workers find them at their start.
func (p *parts) topicsMade(ctx context.Context, want int) error {
	have := 0
	return p.poll(ctx, func() (bool, error) {
		topics, err := p.changeTopics(ctx)
		have = len(topics)
		return have >= want, err
	}, func() string { return fmt.Sprintf("%d change topics, the feeder has made %d", want, have) })
}

func (p *parts) changeTopics(ctx context.Context) ([]string, error) {
	topics, err := p.admin.ListTopics(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing topics: %w", err)
	}
	var out []string
	for _, t := range topics.Names() {
		for _, s := range p.cfg.Sources {
			if strings.HasPrefix(t, s.TopicPrefix+".") {
				out = append(out, t)
			}
		}
	}
	return out, nil
}

// poll asks again and again, for what only the broker knows.
func (p *parts) poll(ctx context.Context, ok func() (bool, error), awaited func() string) error {
	timeout, tick := time.NewTimer(startLimit), time.NewTicker(lookEvery)
	defer timeout.Stop()
	defer tick.Stop()
	for {
		done, err := ok()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil || done {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeout.C:
			return fmt.Errorf("waited %v for %s", startLimit, awaited())
		}
	}
}

// removeTopics removes the demo's topics, all of which begin with its id, and its groups: the workers', and the feeders' of each source.
func removeTopics(ctx context.Context, s *stage) error {
	client, err := changelog.Options{Brokers: s.brokers, ClientID: "demo"}.Connect(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	topics, err := admin.ListTopics(ctx)
	if err != nil {
		return err
	}
	var mine []string
	for _, t := range topics.Names() {
		if strings.HasPrefix(t, "demo-"+s.id) {
			mine = append(mine, t)
		}
	}
	if len(mine) > 0 {
		if deleted, err := admin.DeleteTopics(ctx, mine...); err != nil || deleted.Error() != nil {
			return fmt.Errorf("deleting topics: %w", cmp.Or(err, deleted.Error()))
		}
	}
	groups, err := admin.ListGroups(ctx)
	if err != nil {
		return err
	}
	for name := range groups {
		if name != "demo-"+s.id && !strings.HasPrefix(name, "demo-"+s.id+".") {
			continue
		}
		if _, gerr := admin.DeleteGroup(ctx, name); gerr != nil {
			err = cmp.Or(err, gerr)
		}
	}
	return err
}
