package control

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"

	"invalidator/internal/changelog"
	"invalidator/replay"
)

const (
	every = time.Second // between two looks at the control topic, at most
	// lookTimeout bounds one look, so that a broker that hangs is told of.
	lookTimeout = 30 * time.Second
	// idsEvery is how often the ids of the topics that plans name are asked for, besides when a plan comes.
	idsEvery = 30 * time.Second
)

// FollowerOptions are a follower's parts.
type FollowerOptions struct {
	Kafka      changelog.Options
	Topic      string // Names.Control
	State      *State
	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Follower keeps a State up to date.
type Follower struct {
	opts    FollowerOptions
	unknown *prometheus.CounterVec
	tail    *tail
	asked   time.Time       // when topics were last asked for their ids
	told    map[string]bool // kinds of which a record that cannot be read was told
	failing bool
}

// Kinds of records, as the metric of those that cannot be read has them.
var kinds = []string{"request", "plan", "job", "other"}

// NewFollower registers its metrics; Run starts it.
func NewFollower(o FollowerOptions) (*Follower, error) {
	f := &Follower{opts: o, told: map[string]bool{}, unknown: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "invalidator_control_unknown_total",
		Help: "Records of the control topic that this version cannot read, by kind. Behind such a plan nothing is acted on.",
	}, []string{"kind"})}
	for _, k := range kinds {
		f.unknown.WithLabelValues(k) // 0, not missing
	}
	began := time.Now()
	age := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "invalidator_control_age_seconds", Help: "How long ago the control topic was last read to its end: what was asked for since is not known here.",
	}, func() float64 {
		if at := o.State.AsOf(); !at.IsZero() {
			return time.Since(at).Seconds()
		}
		return time.Since(began).Seconds()
	})
	for _, c := range []prometheus.Collector{f.unknown, age} {
		if err := o.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("registering metrics of the control topic: %w", err)
		}
	}
	return f, nil
}

// Run follows the topic until ctx ends. Its error is of options with which no client can be made.
func (f *Follower) Run(ctx context.Context) error {
	cl, err := f.opts.Kafka.Client()
	if err != nil {
		return err
	}
	defer cl.Close()
	past, err := changelog.OpenLog(f.opts.Kafka)
	if err != nil {
		return err
	}
	defer past.Close()
	f.tail = &tail{topic: f.opts.Topic, log: past, adm: kadm.NewClient(cl)}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		f.tell(ctx, f.look(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-f.opts.State.soon:
		}
	}
}

// tell says once that the topic cannot be read, and once that it can again.
func (f *Follower) tell(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err != nil && !f.failing:
		f.failing = true
		f.opts.Log.Error("following requests: what was last read stands, and it is tried again each second", "error", err)
	case err == nil && f.failing:
		f.failing = false
		f.opts.Log.Info("requests are followed again")
	}
}

// look takes in what came.
func (f *Follower) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	began, anew := time.Now(), false
	var came []changelog.Record
	err := f.tail.look(ctx, func() { anew = true }, func(rs []changelog.Record) error {
		came = append(came, rs...)
		return nil
	})
	if err != nil {
		return err
	}
	if f.opts.State.take(f.read(came), f.tail, began, anew) {
		f.asked = time.Time{}
	}
	if time.Since(f.asked) < idsEvery {
		return nil
	}
	ids, err := topicIDs(ctx, f.tail.adm, f.opts.State.topics()...)
	if err != nil {
		return err
	}
	f.asked = time.Now()
	f.opts.State.setIDs(ids)
	return nil
}

// entry is a record of the topic, read; a plan that cannot be is in err.
type entry struct {
	record replay.Record
	raw    changelog.Record
	err    error
}

// read decodes records, and leaves out what is neither known nor a plan.
func (f *Follower) read(came []changelog.Record) (entries []entry) {
	for _, r := range came {
		record, err := replay.DecodeControl(r.Value)
		if err != nil && !f.isPlan(r, err) {
			continue
		}
		entries = append(entries, entry{record, r, err})
	}
	return entries
}

// isPlan counts a record that cannot be read, tells of the first of its kind, and reports whether it is a plan.
func (f *Follower) isPlan(r changelog.Record, err error) bool {
	kind := replay.KindOf(r.Value)
	if !slices.Contains(kinds, kind) {
		kind = "other"
	}
	f.unknown.WithLabelValues(kind).Inc()
	if f.told[kind] {
		return kind == "plan"
	}
	f.told[kind] = true
	args := []any{"topic", f.opts.Topic, "offset", r.Offset, "key", string(r.Key), "kind", kind, "error", err}
	if kind == "plan" {
		f.opts.Log.Error("a plan cannot be read: this worker acts on no replay from there on (is a newer version of the service running? upgrade, or cancel the replay)", args...)
		return true
	}
	f.opts.Log.Warn("a record of the control topic cannot be read, and is passed over (is a newer version of the service running?)", args...)
	return false
}

// take takes records in. It reports whether there are plans among them.
func (s *State) take(entries []entry, t *tail, began time.Time, anew bool) (plans bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if anew {
		s.mu.content = newContent()
	}
	if t.id != s.mu.topic {
		clear(s.mu.ahead)
	}
	for _, e := range entries {
		if e.err != nil {
			s.mu.unread = append(s.mu.unread, unread{string(e.raw.Key), e.raw.Offset, e.err})
			continue
		}
		s.mu.add(e.record, e.raw.Offset, e.raw.Time)
		_, is := e.record.(replay.Plan)
		plans = plans || is
	}
	s.mu.forget(t.start)
	s.mu.topic, s.mu.next, s.mu.asOf = t.id, t.next, began
	if anew || len(entries) > 0 || undecided(s.mu.ahead) {
		s.changed()
	}
	return plans
}

// undecided reports whether there is a mark of which it is not known whether the topic has lost it.
func undecided(marks map[changelog.Partition]ahead) bool {
	for _, a := range marks {
		if !a.lost {
			return true
		}
	}
	return false
}

// changed is called under the lock.
func (s *State) changed() {
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
}

// topics are those that plans name.
func (s *State) topics() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := map[string]bool{}
	for _, p := range s.mu.plans {
		for _, r := range p.Ranges {
			names[r.Topic] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// setIDs says which ids topics have now. One that is missing does not exist.
func (s *State) setIDs(ids map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !maps.Equal(ids, s.mu.today) {
		s.mu.today = ids
		s.changed()
	}
}
