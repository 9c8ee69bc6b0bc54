package app

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"invalidator/internal/changelog"
	"invalidator/internal/pipeline"
	"invalidator/sink"
)

const (
	summaryEvery = 10 * time.Second
	// samplesASecond bounds the lines of samples; a pool gives one a second at most, so that a busy one does not hide the others.
	samplesASecond = 10
	samplesWaiting = 64 // for whoever reads stdout; what finds no room is left out
	dryQueue       = 64 << 10
)

// DrySample is a key that a dry run would have deleted. Its JSON form is stable.
type DrySample struct {
	Kind      string    `json:"kind"` // sample
	At        time.Time `json:"at"`
	Pool      string    `json:"pool"`
	Key       string    `json:"key"` // as clients name it
	Copies    []DryCopy `json:"copies"`
	Team      string    `json:"team"`
	Mapping   string    `json:"mapping"`
	Template  string    `json:"template"`
	Action    string    `json:"action"`
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
}

// DryCopy is a copy of a key.
type DryCopy struct {
	Node string `json:"node"`
	Key  string `json:"key"` // as the node has it
}

// DryTally is how much a dry run would have deleted of something.
type DryTally struct {
	Name   string `json:"name"`
	Keys   int64  `json:"keys"`
	Copies int64  `json:"copies"`
}

// DrySummary is all that a dry run has counted since it was started. Its JSON form is stable.
type DrySummary struct {
	Kind     string     `json:"kind"` // summary
	At       time.Time  `json:"at"`
	Group    string     `json:"group"`
	Since    time.Time  `json:"since"`
	Final    bool       `json:"final"`
	Changes  int64      `json:"changes"` // rows that gave keys
	Keys     int64      `json:"keys"`
	Copies   int64      `json:"copies"`
	Parked   int64      `json:"parked"`  // records that would be dead letters
	Gaps     int64      `json:"gaps"`    // ranges of the log that were gone before they were read
	Flushes  int64      `json:"flushes"` // of pools, that emptied tables would ask for
	Pools    []DryTally `json:"pools"`
	Mappings []DryTally `json:"mappings"`
	Nodes    []DryTally `json:"nodes"`
}

// dryCount counts what a dry run would do, in place of whatever would do it.
type dryCount struct {
	group   string
	prefix  func() string // the ring's key_prefix
	began   time.Time
	samples chan DrySample

	mu      sync.Mutex // guards what follows
	sum     DrySummary // its numbers
	pools   map[string]*DryTally
	byMap   map[string]*DryTally
	nodes   map[string]*DryTally
	sampled map[string]time.Time // pools
	second  time.Time            // that samples were counted in
	many    int
}

func newDryCount(group string, prefix func() string) *dryCount {
	return &dryCount{group: group, prefix: prefix, began: time.Now().UTC(), samples: make(chan DrySample, samplesWaiting),
		pools: map[string]*DryTally{}, byMap: map[string]*DryTally{}, nodes: map[string]*DryTally{}, sampled: map[string]time.Time{}}
}

func tallyOf(all map[string]*DryTally, name string) *DryTally {
	t := all[name]
	if t == nil {
		t = &DryTally{Name: name}
		all[name] = t
	}
	return t
}

// observe is pipeline.Options.Observer.
func (c *dryCount) observe(r pipeline.Round) {
	if r.Number != 1 {
		return
	}
	now, prefix := time.Now().UTC(), c.prefix()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum.Changes++
	for i := range r.Keys {
		k := &r.Keys[i]
		c.sum.Keys++
		copies := copiesOf(r.Copies, prefix+k.Text)
		for _, t := range []*DryTally{tallyOf(c.pools, k.Template.Pool), tallyOf(c.byMap, k.Template.Team+"/"+k.Template.Mapping)} {
			t.Keys++
			t.Copies += int64(len(copies))
		}
		c.sum.Copies += int64(len(copies))
		on := map[string]bool{}
		for _, cp := range copies {
			t := tallyOf(c.nodes, cp.Node)
			t.Copies++
			if !on[cp.Node] {
				on[cp.Node] = true
				t.Keys++
			}
		}
		c.sample(now, DrySample{"sample", now, k.Template.Pool, k.Text, copies, k.Template.Team, k.Template.Mapping, k.Template.Text, string(k.Template.Action),
			r.Partition.Topic, r.Partition.Number, r.Offset})
	}
}

// copiesOf are the copies of one key among those of a change: the wire's text of the key, and #n behind it.
func copiesOf(all []sink.Copy, wire string) []DryCopy {
	of := []DryCopy{}
	for _, cp := range all {
		if rest, ok := strings.CutPrefix(cp.Key, wire); ok && (rest == "" || rest[0] == '#' && strings.Trim(rest[1:], "0123456789") == "") {
			of = append(of, DryCopy(cp))
		}
	}
	return of
}

// sample hands a sample on, where its pool and all together have had few enough. The caller has the lock.
func (c *dryCount) sample(now time.Time, s DrySample) {
	if now.Sub(c.second) >= time.Second {
		c.second, c.many = now, 0
	}
	if c.many >= samplesASecond || now.Sub(c.sampled[s.Pool]) < time.Second {
		return
	}
	select {
	case c.samples <- s:
		c.sampled[s.Pool] = now
		c.many++
	default:
	}
}

// tell hands samples and sums to told until ctx ends, and then the last sums.
func (c *dryCount) tell(ctx context.Context, told func(any) error) error {
	tick := time.NewTicker(summaryEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case s := <-c.samples:
			err = told(s)
		case <-tick.C:
			err = told(c.summary(false))
		case <-ctx.Done():
			return told(c.summary(true))
		}
		if err != nil {
			return err
		}
	}
}

func (c *dryCount) summary(final bool) DrySummary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sum
	s.Kind, s.At, s.Group, s.Since, s.Final = "summary", time.Now().UTC(), c.group, c.began, final
	s.Pools, s.Mappings, s.Nodes = tallies(c.pools), tallies(c.byMap), tallies(c.nodes)
	return s
}

// tallies are the greatest first.
func tallies(all map[string]*DryTally) []DryTally {
	out := make([]DryTally, 0, len(all))
	for t := range maps.Values(all) {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b DryTally) int { return cmp.Or(cmp.Compare(b.Copies, a.Copies), cmp.Compare(a.Name, b.Name)) })
	return out
}

func (c *dryCount) add(n *int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// ParkFrom implements pipeline.Parker.
func (c *dryCount) ParkFrom(context.Context, changelog.Partition, changelog.Record, string) error {
	c.add(&c.sum.Parked)
	return nil
}

// Record implements pipeline.GapRecorder. The pipeline's log tells of the gap.
func (c *dryCount) Record(context.Context, string, changelog.Loss) error {
	c.add(&c.sum.Gaps)
	return nil
}

// Flush implements pipeline.Flusher.
func (c *dryCount) Flush(context.Context, pipeline.FlushRequest) error {
	c.add(&c.sum.Flushes)
	return nil
}

// Request implements pipeline.Refresher: nobody is asked to rebuild anything.
func (c *dryCount) Request(_ context.Context, _ changelog.RefreshRequest, done func(error)) {
	done(nil)
}

// dryDeleter acknowledges everything and sends nothing.
type dryDeleter struct {
	queue chan dryDelete
	ended chan struct{} // closed when run has returned
}

type dryDelete struct {
	sink.Copy
	to sink.Waiter
}

func newDryDeleter() dryDeleter {
	return dryDeleter{make(chan dryDelete, dryQueue), make(chan struct{})}
}

// run acknowledges from a goroutine of its own, as nodes do.
func (d dryDeleter) run(ctx context.Context) {
	defer close(d.ended)
	for {
		select {
		case x := <-d.queue:
			x.to.Acked(x.Copy, nil)
		case <-ctx.Done():
			return
		}
	}
}

// Delete implements sink.Deleter.
func (d dryDeleter) Delete(ctx context.Context, _ sink.Lane, c sink.Copy, w sink.Waiter) error {
	select {
	case d.queue <- dryDelete{c, w}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// MarkStale implements sink.Deleter.
func (d dryDeleter) MarkStale(ctx context.Context, l sink.Lane, c sink.Copy, _ time.Duration, w sink.Waiter) error {
	return d.Delete(ctx, l, c, w)
}

// Probe implements sink.Deleter. The caller may hold locks: it does not wait.
func (d dryDeleter) Probe(node string, w sink.Waiter) {
	go func() {
		select {
		case d.queue <- dryDelete{sink.Copy{Node: node}, w}:
		case <-d.ended:
		}
	}()
}
