package flush

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/sink/registry"
)

// Options are a conductor's parts.
type Options struct {
	Worker string                                 // this process, to people
	Work   int32                                  // the work partition whose owner conducts: changelog.WorkPartition(WorkName)
	Open   func(ctx context.Context) (Log, error) // at the beginning of a term
	Holds  func(ctx context.Context) error        // nil: the group's broker says that this worker still is the owner. Asked before each dump
	Nodes  Nodes
	View   func() *registry.View
	Pools  func() []string // that mapping files in force claim

	Prometheus string        // where PromQL limits are asked for: http://host:9090; empty: nowhere
	HTTP       *http.Client  // asks for loads; nil: http.DefaultClient
	Pace       int64         // copies a second, where a request says none; 0: 10,000
	Refill     time.Duration // for which the load is below its limit before the next part, where a request says none; 0: 10 s

	Settle time.Duration // cache.settle
	MaxTTL time.Duration // cache.max_ttl; 0: 24 h
	Lag    time.Duration // cache.ring.lag
	Window time.Duration // replay.window
	Arena  int           // bytes for candidates; 0: 32 MiB

	Log        *slog.Logger
	Registerer prometheus.Registerer
}

const (
	// DefaultPace and DefaultRefill are those of the configuration.
	DefaultPace   = 10_000
	DefaultRefill = 10 * time.Second

	// claimPatience is how long a claim that is lost waits for the term's end.
	claimPatience = 2 * time.Second
	termBackoff   = time.Second // between two terms of one claim, doubled each time
	termPauseMax  = 30 * time.Second
)

// Conductor conducts the flushes of a fleet while its worker owns their work partition.
type Conductor struct {
	o       Options
	log     *slog.Logger
	metrics *metrics
	changed chan struct{} // holds one signal: the claim is another

	mu struct {
		sync.Mutex
		owned bool
		stop  context.CancelFunc // of the term that runs; nil: none does
		over  chan struct{}      // closed at its end
	}
}

// New makes a conductor that owns nothing yet. Its error is of metrics that cannot be registered.
func New(o Options) (*Conductor, error) {
	o.Pace, o.Refill = cmp.Or(o.Pace, DefaultPace), cmp.Or(o.Refill, DefaultRefill)
	o.MaxTTL, o.Arena, o.HTTP = cmp.Or(o.MaxTTL, 24*time.Hour), cmp.Or(o.Arena, arenaSize), cmp.Or(o.HTTP, http.DefaultClient)
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	return &Conductor{o: o, log: o.Log, metrics: m, changed: make(chan struct{}, 1)}, nil
}

// Claim is changelog.GroupOptions.Work: when it returns nothing is flushed by this worker any more unless owned has its work partition. What was sent to nodes may still be
// carried out.
func (c *Conductor) Claim(owned []int32) {
	over := c.claim(slices.Contains(owned, c.o.Work))
	rouse(c.changed)
	if over == nil {
		return
	}
	select {
	case <-over:
	case <-time.After(claimPatience):
		c.log.Error("a flush has not ended in time for another worker to go on with it")
	}
}

// claim notes who is the owner. over is of the term that ends for it.
func (c *Conductor) claim(owned bool) (over chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.owned = owned
	if owned || c.mu.stop == nil {
		return nil
	}
	c.mu.stop()
	return c.mu.over
}

// Run conducts while it is this worker's to do, until ctx ends.
func (c *Conductor) Run(ctx context.Context) {
	for pause := termBackoff; ctx.Err() == nil; {
		term, end, ok := c.begin(ctx)
		if !ok {
			select {
			case <-c.changed:
			case <-ctx.Done():
			}
			continue
		}
		began := time.Now()
		err := c.term(term)
		lost := term.Err() != nil
		end()
		if ctx.Err() != nil || lost {
			continue
		}
		if time.Since(began) > termPauseMax {
			pause = termBackoff
		}
		c.log.Error("flushes stand still, and are tried again", "error", err, "again_in", pause)
		select {
		case <-time.After(pause):
		case <-c.changed:
		case <-ctx.Done():
		}
		pause = min(2*pause, termPauseMax)
	}
}

// begin begins a term where the partition is ours.
func (c *Conductor) begin(ctx context.Context) (term context.Context, end func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.mu.owned {
		return nil, nil, false
	}
	term, stop := context.WithCancel(ctx)
	over := make(chan struct{})
	c.mu.stop, c.mu.over = stop, over
	return term, func() {
		stop()
		close(over)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.stop, c.mu.over = nil, nil
	}, true
}

// term conducts until it fails, or ctx ends.
func (c *Conductor) term(ctx context.Context) error {
	topics, err := c.o.Open(ctx)
	if err != nil {
		return err
	}
	defer topics.Close()
	t := &term{Conductor: c, topics: topics, book: newBook(c.o.MaxTTL + c.o.Lag), guards: map[string]*guard{}}
	t.meter = &meter{ask: c.o.Nodes.Stats, nodes: t.today, busy: t.busy.Load, wake: make(chan struct{}, 1)}
	if err := t.open(ctx); err != nil {
		return err
	}
	c.log.Info("this worker conducts flushes", "requests", len(t.book.requests), "jobs", len(t.book.jobs))
	c.metrics.conductor.Set(1)
	defer c.metrics.idle()
	inner, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { t.meter.run(inner) })
	defer running.Wait()
	defer stop()
	defer t.unwatchAll()
	defer t.letGo()
	err = t.work(ctx)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		c.log.Info("this worker conducts flushes no longer")
	}
	return err
}

// rouse leaves a signal in a channel that holds one.
func rouse(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}
