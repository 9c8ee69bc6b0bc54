package stories

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/internal/control"
	"invalidator/internal/flush"
	"invalidator/internal/pipeline"
	"invalidator/mapping"
	"invalidator/replay"
	"invalidator/sink"
	"invalidator/sink/registry"
	"invalidator/sink/registry/registrytest"
)

// worker is one process of the fleet, with all its parts but those that speak to databases, files and operators.
type worker struct {
	s     *stage
	name  string
	link  *link
	kafka *line
	gate  *gate
	still bool // it reads nothing
	views *registrytest.Views
	pipe  *pipeline.Worker
	group *changelog.Group
	parts []func(context.Context)
	close []func()

	leave, die context.CancelFunc
	done       chan struct{} // closed when nothing of it runs any more

	// What it sees of the registry; the story's goroutine's own.
	board     *registry.Etcd
	blind     bool
	sights    int // of the stage's
	hot       int // revision
	confirmed time.Time
}

// start begins a worker's process. It knows what stands on the state topic of the ring, and, if it is not blind, what the registry holds.
func (s *stage) start(name string, blind bool) error {
	if s.workers[name] != nil {
		return fmt.Errorf("%s runs already", name)
	}
	w := &worker{s: s, name: name, link: newLink(s, name), kafka: newLine(s.cluster.Options.Dial), gate: newGate(), views: &registrytest.Views{}, done: make(chan struct{}), blind: blind}
	log := slog.New(slog.NewTextHandler(&s.log, &slog.HandlerOptions{Level: slog.LevelInfo})).With("worker", name)
	w.board = registry.NewEtcd(registry.EtcdConfig{}, registry.Options{MaxTTL: 24 * time.Hour, Lag: ringLag}, slog.New(slog.DiscardHandler))
	w.feed()
	w.look()
	if w.views.View() == nil {
		return errors.New("it has no ring record, and nobody has left one")
	}
	if err := w.make(log); err != nil {
		return err
	}
	s.workers[name] = w
	ctx, leave := context.WithCancel(context.Background())
	around, die := context.WithCancel(context.Background())
	w.leave, w.die = leave, func() { leave(); die() }
	go w.run(ctx, around)
	return nil
}

// make makes a worker's parts, as internal/app does.
func (w *worker) make(log *slog.Logger) error {
	kafka, names := w.s.cluster.Options, w.s.cluster.Names
	kafka.Dial, kafka.ClientID = w.kafka.dial, w.name
	store, err := changelog.OpenState(kafka, names.State)
	if err != nil {
		return err
	}
	out, err := changelog.OpenWriter(kafka)
	if err != nil {
		return err
	}
	past, err := changelog.OpenLog(kafka)
	if err != nil {
		return err
	}
	w.close = []func(){store.Close, out.Close, past.Close}
	metrics, orders, told := prometheus.NewRegistry(), control.NewState(), &teller{worker: w.name, say: out.Write, topic: names.Status}
	topics := &flushTopics{names: names, out: out, past: past, state: orders}
	ring := flush.NewRing(w.name, func() []mapping.Underived { return mappings.Underived() }, topics.ask)
	sources := []*pipeline.Source{{Name: "shop", Pattern: changelog.ChangeTopics("shop"), Decode: envelope.Config{Format: envelope.Auto}}}
	w.pipe, err = pipeline.New(pipeline.Options{
		Sources: sources, Snapshots: pipeline.NewSnapshots(w.views, mappings), Deleter: w.link, Parker: w.s, Refresher: nobody{}, Flusher: nobody{}, Gaps: w.s,
		Past: past, Archive: nobody{}, Settle: settle, MaxLag: maxLag, Window: window, RingFlusher: ring, Orders: orders, Progress: told.add, Log: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	w.link.told = w.pipe.NodeTurned
	follower, err := control.NewFollower(control.FollowerOptions{Kafka: kafka, Topic: names.Control, State: orders, Log: log, Registerer: metrics})
	if err != nil {
		return err
	}
	clerk := control.NewClerk(control.ClerkOptions{
		Group: fleet, Worker: w.name, Kafka: kafka, Names: names, State: orders, Store: store, Say: out.Write, Log: log,
		Match: func(topic string) bool { return topic == users }, Known: func() control.Known { return control.KnownOf(w.views.View(), mappings) },
	})
	work := changelog.WorkPartition(flush.WorkName)
	conductor, err := flush.New(flush.Options{
		Worker: w.name, Work: work, Open: topics.open, Nodes: w.link, View: w.views.View, Pools: func() []string { return []string{"user", "feed"} },
		Holds: func(ctx context.Context) error { return w.group.HoldsWork(ctx, work) }, Refill: time.Second, Arena: 64 << 10,
		Settle: settle, MaxTTL: 24 * time.Hour, Lag: ringLag, Window: window, Log: log, Registerer: metrics,
	})
	if err != nil {
		return err
	}
	o := changelog.GroupOptions{
		Options: kafka, Group: fleet, Starts: []changelog.Start{{Pattern: changelog.ChangeTopics("shop"), At: "earliest"}}, State: store, Names: names,
		Readable: pipeline.Readable,
		Room:     func(ctx context.Context) { w.gate.pass(ctx); w.pipe.AwaitRoom(ctx) },
	}
	if w.s.asks {
		o.Work = func(owned []int32) { clerk.Claim(owned); conductor.Claim(owned) }
		w.parts = []func(context.Context){w.must(follower.Run), w.must(clerk.Run), conductor.Run, told.run}
	}
	o.Log = log
	w.group = changelog.NewGroup(o)
	return nil
}

// must has a part's error be the story's.
func (w *worker) must(run func(context.Context) error) func(context.Context) {
	return func(ctx context.Context) {
		if err := run(ctx); err != nil {
			w.s.t.Errorf("%s: %v", w.name, err)
		}
	}
}

// run works until ctx ends, and then drains; around is of all that a drain leans on.
func (w *worker) run(ctx, around context.Context) {
	defer close(w.done)
	around, stop := context.WithCancel(around)
	var parts sync.WaitGroup
	for _, part := range w.parts {
		parts.Go(func() { part(around) })
	}
	if err := w.pipe.Run(ctx, w.group); err != nil {
		w.s.t.Errorf("%s: %v", w.name, err)
	}
	stop()
	parts.Wait()
	for _, f := range w.close {
		f()
	}
}

// reads has the worker's poll loop stand still, or go on.
func (w *worker) reads(is bool) {
	if w.still == !is {
		return
	}
	w.still = !is
	w.gate.open(is)
	for n := range w.s.partitions { // a poll that is under way has passed the gate
		p := changelog.Partition{Topic: users, Number: int32(n)}
		if is {
			w.group.Resume(p)
		} else {
			w.group.Pause(p)
		}
	}
}

// kill ends a worker's process at once. The broker is not told.
func (w *worker) kill() error {
	w.kafka.cut(true)
	w.link.die()
	w.die()
	w.end()
	return nil
}

// end has a worker be one of the past.
func (w *worker) end() {
	w.gate.open(true)
	delete(w.s.workers, w.name)
	w.s.gone = append(w.s.gone, w)
}

// runs reports whether anything of it does yet.
func (w *worker) runs() bool {
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// feed has the worker know what stands on the state topic of the ring: what others have seen, or itself before.
func (w *worker) feed() {
	if w.sights < len(w.s.sights) {
		w.board.Feed(registry.Saved{Sights: w.s.sights[w.sights:]})
		w.sights = len(w.s.sights)
	}
	w.hot = max(w.hot, w.s.hotSeen)
}

// look has a worker that is not blind see what the registry holds, and write it down.
func (w *worker) look() {
	was, hot := w.board.View(), w.hot
	if !w.blind {
		w.feed()
		r := w.s.ring()
		if v := w.board.View(); v == nil || v.Topology.Epoch() < r.epoch {
			w.s.sights = append(w.s.sights, registry.Sight{Record: r.record, Seen: time.Now()})
			w.feed()
			w.s.tell("%s sees record %d", w.name, r.epoch)
		}
		w.hot = len(w.s.hot) - 1
		w.s.hotSeen = w.hot
	}
	confirms := !w.blind && time.Since(w.confirmed) >= time.Second
	if confirms {
		w.confirmed = time.Now()
	}
	now := w.board.View()
	if now == nil || !confirms && now == was && w.hot == hot && w.views.View() != nil {
		return
	}
	v := *now
	v.Confirmed, v.Hot = w.confirmed, sink.NewHotKeysOf(int64(w.hot), int64(w.hot), w.s.hot[w.hot])
	w.views.Store(&v)
}

// gate is where a worker stands that reads nothing.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // closed: it is open
}

func newGate() *gate {
	g := &gate{opened: make(chan struct{})}
	close(g.opened)
	return g
}

func (g *gate) open(is bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.opened:
		if !is {
			g.opened = make(chan struct{})
		}
	default:
		if is {
			close(g.opened)
		}
	}
}

func (g *gate) pass(ctx context.Context) {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	select {
	case <-opened:
	case <-ctx.Done():
	}
}

// line is a worker's network to Kafka.
type line struct {
	next func(ctx context.Context, network, host string) (net.Conn, error)

	mu    sync.Mutex
	isCut bool
	conns []net.Conn
}

func newLine(next func(context.Context, string, string) (net.Conn, error)) *line {
	return &line{next: next}
}

func (l *line) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := l.next(ctx, network, host)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut {
		conn.Close()
		return nil, errors.New("the story has cut the line")
	}
	l.conns = append(l.conns, conn)
	return conn, nil
}

func (l *line) cut(is bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isCut = is; is {
		for _, c := range l.conns {
			c.Close()
		}
		l.conns = nil
	}
}

// nobody refreshes, flushes after a truncate, or has other mappings than those in force: no story needs it.
type nobody struct{}

func (nobody) Request(_ context.Context, _ changelog.RefreshRequest, done func(error)) { done(nil) }

func (nobody) Flush(context.Context, pipeline.FlushRequest) error {
	return errors.New("no story truncates a table")
}

// Mapper implements pipeline.Archive: the mappings are always the same.
func (nobody) Mapper(context.Context, string) (mapping.Mapper, error) { return mappings, nil }

// ParkFrom implements pipeline.Parker.
func (s *stage) ParkFrom(_ context.Context, _ changelog.Partition, r changelog.Record, reason string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked = append(s.parked, string(r.Key))
	s.tell("%s is parked: %s", r.Key, reason)
	return nil
}

// Record implements pipeline.GapRecorder.
func (s *stage) Record(_ context.Context, _ string, l changelog.Loss) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps = append(s.gaps, fmt.Sprintf("%s from %d to %d: %s", l.Partition, l.From, l.To, l.Why))
	return nil
}

// teller writes how far replays have come to the status topic. Of an id and partition the last report waits.
type teller struct {
	worker, topic string
	say           func(ctx context.Context, topic, key string, value []byte) error

	mu    sync.Mutex
	waits []replay.Progress
}

func (t *teller) add(p pipeline.ProgressReport) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := replay.Progress{
		ID: p.ID, At: time.Now(), Worker: t.worker, Shards: p.Shards, Range: replay.Range{Topic: p.Partition.Topic, Partition: p.Partition.Number, From: p.From, To: p.To},
		Offset: min(max(p.Offset, p.From), p.To), Keys: p.Keys, Copies: p.Copies, Owed: p.Owed, Lost: p.Lost, Done: p.Done,
	}
	t.waits = slices.DeleteFunc(t.waits, func(o replay.Progress) bool { return o.ID == r.ID && o.Range.Partition == r.Range.Partition })
	t.waits = append(t.waits, r)
}

// run writes each half second what waits.
func (t *teller) run(ctx context.Context) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		t.mu.Lock()
		waits := t.waits
		t.waits = nil
		t.mu.Unlock()
		for _, p := range waits {
			if value, err := replay.Encode(p); err == nil {
				t.say(ctx, t.topic, p.ID, value) //nolint:errcheck // it is for people, and the next one says more
			}
		}
	}
}
