package pipeline

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc"
	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
)

// Source is whose topics a worker reads, and how.
type Source struct {
	Name    string
	Pattern *regexp.Regexp  // of whole topic names: changelog.WholeName, changelog.ChangeTopics
	Decode  envelope.Config // how its records are read; Select is the mappings'
}

func (s *Source) newDecoder(m mapping.Mapper) (*envelope.Decoder, error) {
	c := s.Decode
	c.Select = m.Columns
	return envelope.NewDecoder(c)
}

func (s *Source) decoder(m mapping.Mapper) *envelope.Decoder {
	d, err := s.newDecoder(m)
	if err != nil {
		panic(err) // New tried the same
	}
	return d
}

// Parker puts a record on the dead-letter topic. A nil error: it is there, acknowledged by the broker.
type Parker interface {
	ParkFrom(ctx context.Context, p changelog.Partition, r changelog.Record, reason string) error
}

// GapRecorder makes a loss durable, so that it is answered by a flush and never passed over. Recording one twice is harmless.
type GapRecorder interface {
	Record(ctx context.Context, source string, l changelog.Loss) error
}

// Round is one finished round of one change, for whoever watches (the demo, explain's live twin).
type Round struct {
	Partition changelog.Partition
	Offset    int64
	Row       *cdc.RowChange
	Keys      []mapping.Key
	Copies    []sink.Copy
	Number    int       // from 1
	Of        int       // how many this change gets
	Acked     time.Time // when the last copy was
}

// Options are a worker's parts.
type Options struct {
	Sources   []*Source
	Snapshots *Snapshots
	Deleter   sink.Deleter
	Classic   bool // the Deleter speaks the classic protocol: a key that needs base64 is parked with its record
	Parker    Parker
	Refresher Refresher
	Flusher   Flusher
	Gaps      GapRecorder
	Past      Log           // read again for what is owed
	Archive   Archive       // of mappings that were in force
	Settle    time.Duration // from a round's last acknowledgement to the next round
	MaxLag    time.Duration // how old a record may be when it is taken and its deletes still go first; 0: 2 s
	MaxTTL    time.Duration // how long a copy may live, and so the journal; 0: 24 h
	Window    time.Duration // how long before a replica was lost deletes may have been overtaken on their way to it; 0: 30 s
	Storm     mapping.Storm // of pools that have no settings of their own; without a pace, 5000
	Observer  func(Round)   // nil: none. Called from partitions' goroutines; must not block

	// Shares says over how many partitions of the log the changes of a pool are spread. Any goroutine may ask, for every change. Nil: one.
	Shares func(pool string) int
	// RingFlusher has flushed what a change of the ring makes stale and no row gives. Nil: nobody does.
	RingFlusher RingFlusher
	// Orders are the replays by hand. Nil: there are none.
	Orders Orders
	// Progress is told how far what is done again has come, when that begins, each 2 s while it moves, and when it is done. From partitions' goroutines; must
	// not block. Nil: nobody is told.
	Progress func(ProgressReport)
	// Event keeps a word for operators: what (Event...), about which pool or mapping. From partitions' goroutines; must not block. Nil: nobody does.
	Event func(what, about string, detail map[string]string)

	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// Orders are the plans and cancels of replays by hand, as the control topic has them.
type Orders interface {
	// After gives the plans behind mark that name p, in the order of the control topic; behind a mark of another topic, all. It is called from partitions'
	// goroutines, and does not block.
	After(p changelog.Partition, mark ControlMark) []Order
	// Cancelled reports whether the replay of that id was cancelled.
	Cancelled(id string) bool
	// Changed is closed when there are more of either. It is to be taken before they are asked for.
	Changed() <-chan struct{}
}

// pauser is what a partition asks of the group.
type pauser interface {
	Pause(changelog.Partition)
	Resume(changelog.Partition)
}

// Worker is one member of the fleet. It implements changelog.Consumer.
type Worker struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	reports *reporter
	group   pauser
	room    room    // of records that wait
	flight  *budget // changes on live paths
	passing *budget // changes of passes
	slots   *slots  // passes that read
	weather weather
	held    atomic.Pointer[held]
	owned   atomic.Int64 // partitions

	stormSlots  *slots       // of passes of storms that read
	epochSlots  *slots       // of those that a change of the ring made necessary
	replaySlots *slots       // of replays by hand
	moving      *budget      // changes of passes that a change of the ring made necessary
	placed      atomic.Int64 // bytes of the partitions' places
	moves       movesCache
	confirmed   heldEpochs
	ears        ears

	standing *standing
	running  running
	hot      *hotWork

	mu struct {
		sync.Mutex
		partitions map[changelog.Partition]*partition
		off        map[string]time.Time // nodes that are off the live path, since when
	}
}

// What is taken for an option that is 0.
const (
	defaultMaxLag = 2 * time.Second
	defaultMaxTTL = 24 * time.Hour
	defaultWindow = 30 * time.Second
)

// New makes a worker; Run starts it. Its error names the source whose format is not known.
func New(opts Options) (*Worker, error) {
	for _, s := range opts.Sources {
		if _, err := s.newDecoder(opts.Snapshots.Current().Mapper); err != nil {
			return nil, fmt.Errorf("source %s: %w", s.Name, err)
		}
	}
	m, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, fmt.Errorf("registering a worker's metrics: %w", err)
	}
	for _, s := range opts.Sources {
		if s.Decode.Schemas != nil {
			m.waiting.WithLabelValues(s.Name) // 0, not missing
		}
	}
	opts.MaxLag = cmp.Or(opts.MaxLag, defaultMaxLag)
	opts.MaxTTL = cmp.Or(opts.MaxTTL, defaultMaxTTL)
	opts.Window = cmp.Or(opts.Window, defaultWindow)
	w := &Worker{opts: opts, log: opts.Log, metrics: m, reports: newReporter(opts.Log),
		room: room{limit: roomBytes}, flight: newBudget(maxWorkerFlight), passing: newBudget(maxPassesFlight), slots: newSlots(maxReading), stormSlots: newSlots(maxStormReading),
		epochSlots: newSlots(maxEpochReading), replaySlots: newSlots(maxReplayReading), moving: newBudget(maxMovesFlight), confirmed: heldEpochs{keep: opts.MaxTTL, at: map[int64]time.Time{}}, ears: newEars()}
	w.standing = &standing{w: w, by: map[debtID]map[*partition]struct{}{}}
	w.held.Store(&held{})
	w.hot = newHotWork(w)
	w.mu.partitions, w.mu.off = map[changelog.Partition]*partition{}, map[string]time.Time{}
	if opts.Registerer != nil { // last: it may be collected at once
		for _, c := range []prometheus.Collector{newOwedCollector(w), newAgainCollector(w), newLagCollector(w)} {
			if err := opts.Registerer.Register(c); err != nil {
				return nil, fmt.Errorf("registering a worker's metrics: %w", err)
			}
		}
	}
	return w, nil
}

// Run works as a member of g until ctx ends, then drains what was begun, commits and leaves.
func (w *Worker) Run(ctx context.Context, g *changelog.Group) error {
	w.group = g
	defer w.close()
	return g.Run(ctx, w)
}

// close ends all that runs.
func (w *Worker) close() {
	w.stop(w.all()...)
	w.hot.close()
}

// Assign implements changelog.Consumer.
func (w *Worker) Assign(id changelog.Partition, start int64, was changelog.Restored) {
	s := SourceOf(w.opts.Sources, id.Topic)
	if s == nil {
		w.log.Error("assigned a topic that no source names", "topic", id.Topic)
		return
	}
	// The partition's context is not the caller's: it ends with the revoke, or with the drain.
	if old := w.partition(id); old != nil {
		w.stop(old) // assigned anew without a revoke: the group could not finish the assignment before
	}
	p, err := newPartition(w, s, id, start, was)
	if err != nil {
		w.forget(id)
		w.log.Error("a partition stands still: what its last owner left cannot be read, and with it what is still owed (is a newer version of the service running?)",
			"topic", id.Topic, "partition", id.Number, "error", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	w.mu.Lock()
	w.mu.partitions[id] = p
	w.owned.Store(int64(len(w.mu.partitions)))
	off := maps.Clone(w.mu.off)
	w.mu.Unlock()
	for node, since := range off {
		p.turned(node, false, since)
	}
	go p.run(ctx) // waited for by stop
	w.log.Debug("partition assigned", "topic", id.Topic, "partition", id.Number, "start", start)
}

// SourceOf is the source whose topic it is; nil: none's.
func SourceOf(sources []*Source, topic string) *Source {
	for _, s := range sources {
		if s.Pattern.MatchString(topic) {
			return s
		}
	}
	return nil
}

// Records implements changelog.Consumer.
func (w *Worker) Records(id changelog.Partition, rs []changelog.Record) {
	if p := w.partition(id); p != nil {
		p.add(rs)
	}
}

// Lost implements changelog.Consumer. A worker's gap never stops a partition: it is named, loud and durable.
func (w *Worker) Lost(ctx context.Context, l changelog.Loss) error {
	name := ""
	if s := SourceOf(w.opts.Sources, l.Topic); s != nil {
		name = s.Name
	}
	return w.record(ctx, name, l)
}

func (w *Worker) record(ctx context.Context, source string, l changelog.Loss) error {
	if err := w.opts.Gaps.Record(ctx, source, l); err != nil {
		return fmt.Errorf("recording a gap of topic %s, partition %d, from %d to %d (%s): %w", l.Topic, l.Number, l.From, l.To, l.Why, err)
	}
	w.metrics.gaps.Inc()
	w.log.Error("a gap: records of the log were lost before they were read; flush the pools that this topic feeds",
		"source", source, "topic", l.Topic, "partition", l.Number, "from", l.From, "to", l.To, "why", l.Why)
	return nil
}

// gap makes a loss that a pass meets durable. It tries until it is, or ctx ends.
func (p *partition) gap(ctx context.Context, l changelog.Loss) error {
	return p.insist(ctx, l.From, "recording a gap", func() error { return p.w.record(ctx, p.source.Name, l) })
}

// Revoke implements changelog.Consumer.
func (w *Worker) Revoke(ids []changelog.Partition) []changelog.Progress {
	ps := make([]*partition, 0, len(ids))
	for _, id := range ids {
		if p := w.partition(id); p != nil {
			ps = append(ps, p)
		}
	}
	w.stop(ps...)
	out := w.Finished(ids)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range ids {
		delete(w.mu.partitions, id)
	}
	w.owned.Store(int64(len(w.mu.partitions)))
	return out
}

func (w *Worker) forget(id changelog.Partition) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.partitions, id)
	w.owned.Store(int64(len(w.mu.partitions)))
}

// stop ends the partitions' goroutines and waits for them. What is above their watermark is issued again by the next owner.
func (w *Worker) stop(ps ...*partition) {
	for _, p := range ps {
		p.cancel()
	}
	for _, p := range ps {
		<-p.done
	}
}

// Finished implements changelog.Consumer.
func (w *Worker) Finished(ids []changelog.Partition) []changelog.Progress {
	now := time.Now()
	out := make([]changelog.Progress, 0, len(ids))
	for _, id := range ids {
		if p := w.partition(id); p != nil {
			out = append(out, p.progress(now))
		}
	}
	return out
}

// Drain implements changelog.Consumer: no record is taken any more, and what was begun gets all its rounds.
func (w *Worker) Drain(ctx context.Context) {
	ps := w.all()
	for _, p := range ps {
		p.draining.Store(true)
		rouse(p.wake)
	}
	for _, p := range ps {
		select {
		case <-p.done:
		case <-ctx.Done():
			w.log.Warn("draining took too long: a node does not answer; the next owner repeats what is left", "partition", p.id.String())
			w.stop(ps...)
			return
		}
	}
}

func (w *Worker) partition(id changelog.Partition) *partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.partitions[id]
}

func (w *Worker) all() []*partition {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([]*partition, 0, len(w.mu.partitions))
	for _, p := range w.mu.partitions {
		out = append(out, p)
	}
	return out
}

func (w *Worker) observe(c *change, at time.Time) {
	if w.opts.Observer == nil {
		return
	}
	w.opts.Observer(Round{
		Partition: c.t.p.id, Offset: c.offset, Row: c.row, Keys: c.keys, Copies: c.copies,
		Number: c.round, Of: c.rounds, Acked: at,
	})
}

var _ changelog.Consumer = (*Worker)(nil)
