package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"invalidator/internal/config"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
)

// sharesEvery is how often a worker asks how many partitions there are.
const sharesEvery = 30 * time.Second

// shares says over how many partitions of the log the changes of each pool are spread, so that a rate of the fleet can be shared out without anybody
// who counts: each partition takes its part, whoever owns it. And it says for how long the change topics keep records.
type shares struct {
	config  *config.Config
	sources []*pipeline.Source // of config, in its order
	set     func() *mapping.Set
	log     *slog.Logger
	kept    prometheus.Gauge
	failing bool // turn's own

	mu     sync.Mutex // guards what follows
	topics map[string]int
	under  *mapping.Set
	pools  map[string]int
	all    int
}

func newShares(c *config.Config, sources []*pipeline.Source, set func() *mapping.Set, r prometheus.Registerer, log *slog.Logger) (*shares, error) {
	s := &shares{config: c, sources: sources, set: set, log: log, kept: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "invalidator_topics_kept_seconds", Help: "For how long the change topics keep records: the least of them, or what they ought to keep where the broker does not say it.",
	})}
	s.kept.Set((c.Cache.MaxTTL + time.Hour).Seconds())
	if err := r.Register(s.kept); err != nil {
		return nil, fmt.Errorf("registering a metric of the topics: %w", err)
	}
	return s, nil
}

// of is how many partitions feed a pool: those of the topics that are named for its tables; all there are where no name says it.
func (s *shares) of(pool string) int {
	set := s.set()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under != set || s.pools == nil {
		s.under, s.pools = set, map[string]int{}
		s.all = 0
		for topic, partitions := range s.topics {
			s.all += partitions
			for _, p := range s.poolsOf(set, topic) {
				s.pools[p] += partitions
			}
		}
	}
	if n := s.pools[pool]; n > 0 {
		return n
	}
	return max(s.all, 1)
}

// poolsOf are the pools that a topic's rows may be of, by its name, which ends in schema.table for every source that is not routed.
func (s *shares) poolsOf(set *mapping.Set, topic string) []string {
	parts := strings.Split(topic, ".")
	if len(parts) < 2 {
		return nil
	}
	tables := []string{strings.Join(parts[len(parts)-2:], ".")}
	for i, c := range s.config.Sources {
		if s.sources[i].Pattern.MatchString(topic) {
			if exact := topicTables(c, topic); len(exact) > 0 {
				tables = exact
			}
			return set.Pools(c.Name, tables)
		}
	}
	return nil
}

// turn asks once, and tells of a failure that is the first.
func (s *shares) turn(ctx context.Context) {
	err := s.ask(ctx)
	if err != nil && !s.failing && ctx.Err() == nil {
		s.log.Warn("asking how many partitions there are, by which rates of the fleet are shared out; it is tried again", "error", err, "every", sharesEvery)
	}
	s.failing = err != nil
}

// run asks again and again, after a first turn, until ctx ends.
func (s *shares) run(ctx context.Context) {
	tick := time.NewTicker(sharesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.turn(ctx)
	}
}

func (s *shares) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	o, err := kafkaOptions(s.config.Kafka, s.log)
	if err != nil {
		return err
	}
	cl, err := o.Connect(ctx)
	if err != nil {
		return err
	}
	defer cl.Close()
	others, ours, err := changeTopics(ctx, s.config, cl)
	if err != nil {
		return err
	}
	names := slices.Concat(others, ours)
	if len(names) == 0 {
		return nil
	}
	listed, err := kadm.NewClient(cl).ListTopics(ctx, names...)
	if err != nil {
		return fmt.Errorf("listing topics: %w", err)
	}
	topics := map[string]int{}
	for _, t := range listed {
		topics[t.Topic] = len(t.Partitions)
	}
	s.mu.Lock()
	s.topics, s.pools = topics, nil
	s.mu.Unlock()
	if least, ok := leastKept(ctx, cl, names); ok {
		s.kept.Set(least.Seconds())
	}
	return nil
}

// leastKept is the shortest retention of some topics; false where none has any, or we may not ask.
func leastKept(ctx context.Context, cl *kgo.Client, topics []string) (least time.Duration, ok bool) {
	all, err := kadm.NewClient(cl).DescribeTopicConfigs(ctx, topics...)
	if err != nil {
		return 0, false
	}
	for _, t := range all {
		for _, c := range t.Configs {
			ms, err := strconv.ParseInt(c.MaybeValue(), 10, 64)
			if c.Key != "retention.ms" || err != nil || ms <= 0 {
				continue
			}
			if d := time.Duration(min(ms, 1<<43)) * time.Millisecond; !ok || d < least {
				least, ok = d, true
			}
		}
	}
	return least, ok
}

// fleetStorm is for pools whose file has no settings of its own.
func fleetStorm(c config.Storm) mapping.Storm {
	s := mapping.Storm{Rows: config.DefaultStormRows, Rate: c.Rate, Pace: c.Pace}
	if c.Rows != nil {
		s.Rows = *c.Rows
	}
	return s
}
