package pipeline

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"invalidator/cdc/envelope"
	"invalidator/internal/changelog"
	"invalidator/mapping"
	"invalidator/sink"
	"invalidator/sink/registry/registrytest"
)

// model is one run: a world of one database, some nodes and their readers, and real workers, moved by a seeded scheduler in small steps
// of virtual time. Faults are drawn a run. When they are over and everything is quiet, each copy is compared with its row; and at each
// commit it is asked whether all that it passes is acknowledged or owed, where no node changes its place.
type model struct {
	*world
	t       *testing.T
	r       *rand.Rand
	seed    uint64
	on      map[string]bool // what may happen in this run
	faults  bool            // it still may
	focus   int             // the key that most of the run is about
	quick   float64         // how soon a delete goes a step on
	copies  float64         // how soon a primary copies
	parts   []*modelPartition
	workers []*modelWorker
	story   []string
	began   time.Time
	later   []modelEvent
	bad     string
}

// modelEvent is what is to happen at a time.
type modelEvent struct {
	at   time.Time
	do   func()
	ends bool // a fault, also after all are over
}

func (m *model) after(d time.Duration, do func(), ends bool) {
	m.later = append(m.later, modelEvent{time.Now().Add(d), do, ends})
}

// events does what is due.
func (m *model) events() {
	now := time.Now() // it may be later when one of them is done
	is := func(e modelEvent) bool { return !e.at.After(now) }
	var due []modelEvent
	for _, e := range m.later {
		if is(e) {
			due = append(due, e)
		}
	}
	m.later = slices.DeleteFunc(m.later, is)
	for _, e := range due {
		if m.faults || e.ends {
			e.do()
		}
	}
}

// What may happen; a run draws a theme and some others. In a theme with "alone" nothing hides what comes of its one commit.
var (
	modelFaults = []string{"cut", "down", "full", "slow", "ackloss", "rebalance", "zombie", "kill", "hot", "hotlag", "oldclient", "lease", "replicaread",
		"breakscommit", "stall", "seed", "copyloss", "promote", "replace", "resize", "skip", "ringlag", "pause"}
	modelThemes = []string{"", "full", "cut full", "down copyloss", "down copyloss replicaread", "full rebalance", "full kill", "kill stall", "rebalance zombie full",
		"hot hotlag", "hot hotlag full", "hot hotlag kill rebalance", "seed stall", "seed full cut", "seed cut alone", "seed cut copyloss alone", "seed full cut stall", "lease full", "cut slow ackloss breakscommit",
		"promote", "promote ringlag", "promote down copyloss", "promote down copyloss pause", "promote ringlag kill", "promote replace", "replace ringlag", "resize ringlag", "resize ringlag oldclient",
		"resize stall", "resize cut", "resize ringlag rebalance", "resize ringlag rebalance zombie", "resize promote replace skip ringlag", "replace skip pause", "replace pause", "promote ringlag pause", "resize ringlag pause",
		"promote hot hotlag", "promote seed"}
)

func (m *model) tell(format string, args ...any) {
	if m.story != nil {
		m.story = append(m.story, fmt.Sprintf("%9.3f ", time.Since(m.began).Seconds())+fmt.Sprintf(format, args...))
	}
}

func (m *model) fail(format string, args ...any) {
	if m.bad == "" {
		m.bad = fmt.Sprintf(format, args...)
		m.tell("FAILED: %s", m.bad)
	}
}

// upTo is a random time below d.
func (m *model) upTo(d time.Duration) time.Duration { return time.Duration(m.r.Int64N(int64(d))) }

// MODEL_SEED is the first seed, MODEL_RUNS how many follow, MODEL_THEME the theme of all; MODEL_STORY=1 tells a run step by step.
func TestModel(t *testing.T) {
	seed, runs := uint64(1), 100
	if s := os.Getenv("MODEL_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
		runs = 1
	}
	if s := os.Getenv("MODEL_RUNS"); s != "" {
		runs, _ = strconv.Atoi(s)
	}
	for i := range uint64(runs) {
		var m *model
		synctest.Test(t, func(t *testing.T) {
			m = newModel(t, seed+i)
			m.run()
		})
		if m.story != nil && m.bad == "" {
			t.Log(strings.Join(m.story, "\n"))
		}
		if m.bad != "" {
			t.Fatalf("seed %d (MODEL_SEED=%d MODEL_STORY=1 go test -run TestModel ./internal/pipeline), with %v: %s\n%s", m.seed, m.seed, m.drawn(), m.bad, strings.Join(m.story, "\n"))
		}
	}
}

func (m *model) drawn() (on []string) {
	for _, f := range modelFaults {
		if m.on[f] {
			on = append(on, f)
		}
	}
	return on
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, seed: seed, r: rand.New(rand.NewPCG(seed, 7)), on: map[string]bool{}, began: time.Now()}
	if os.Getenv("MODEL_STORY") != "" {
		m.story = []string{}
	}
	theme := modelThemes[m.r.IntN(len(modelThemes))]
	if s, set := os.LookupEnv("MODEL_THEME"); set {
		theme = s
	}
	for _, f := range strings.Fields(theme) {
		m.on[f] = true
	}
	more := []float64{0, 0.05, 0.25}[m.r.IntN(3)]
	for _, f := range modelFaults {
		m.on[f] = m.on[f] || m.r.Float64() < more
	}
	if m.focus = m.r.IntN(len(modelKeys)); m.on["resize"] && m.r.IntN(5) > 0 {
		m.focus = len(modelKeys) - 1
	}
	m.quick = []float64{0.3, 0.6, 0.9}[m.r.IntN(3)]
	m.copies = []float64{0.02, 0.3}[m.r.IntN(2)]
	m.world = newWorld(m, 1+m.r.IntN(2))
	for i := range m.logs {
		m.parts = append(m.parts, &modelPartition{id: changelog.Partition{Topic: users.Topic, Number: int32(i)}, n: i,
			states: map[string][]byte{}, journal: map[[2]string][]byte{}, acks: map[modelAck][]modelRound{}, clean: map[string]time.Time{}})
	}
	for i := range 2 {
		m.workers = append(m.workers, m.process(i))
	}
	for _, p := range m.parts {
		m.assign(p, m.workers[m.r.IntN(len(m.workers))])
	}
	return m
}

var modelFile = `version: 1
team: profiles
pools: [user]
mappings:
  - {name: user, table: shop.users, keys: ["user:{email}"]}
`

var modelMappings = func() mapping.Mapper {
	f, _ := mapping.Parse("users.yaml", []byte(modelFile))
	set, problems := mapping.NewSet([]*mapping.File{f})
	if mapping.HasErrors(problems) {
		panic(problems)
	}
	return set
}()

// modelLogs are all partitions' logs.
type modelLogs struct{ *world }

// Read implements Log.
func (l modelLogs) Read(ctx context.Context, p changelog.Partition, from, to int64, each func([]changelog.Record) error) error {
	return l.logs[p.Number].Read(ctx, p, from, to, each)
}

// process starts a worker's process.
func (m *model) process(id int) *modelWorker {
	w := &modelWorker{id: id, link: newModelLink(id, m.world), views: &registrytest.Views{}, registry: newModelRegistry()}
	m.follow(w.registry, true)
	w.registry.hot = len(m.hot) - 1
	m.world.see(w.registry, w.views)
	var err error
	w.w, err = New(Options{
		Sources:   []*Source{{Name: "shop", Pattern: changelog.ChangeTopics("shop"), Decode: envelope.Config{Format: envelope.Auto}}},
		Snapshots: NewSnapshots(w.views, modelMappings), Deleter: w.link, Parker: &fakeParker{}, Refresher: &fakeRefresher{}, Flusher: &fakeFlusher{}, Gaps: &fakeGaps{},
		Past: modelLogs{m.world}, Archive: &fakeArchive{}, RingFlusher: m.flusher, Settle: modelSettle, MaxLag: modelLag, Window: modelWindow,
		Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	w.w.group = &fakeGroup{}
	w.link.worker = w.w
	return w
}

// run moves the world until its faults are over and everything is quiet.
func (m *model) run() {
	defer func() {
		for _, w := range m.workers {
			w.w.close()
		}
	}()
	m.tell("seed %d with %v", m.seed, m.drawn())
	steps := 200 + m.r.IntN(400)
	commits, faults := 1+m.r.IntN(6), 1+m.r.IntN(8)
	if m.on["stall"] || m.on["seed"] || m.moves() { // what takes long is hidden by what comes after
		steps += 400
		commits, faults = 1+m.r.IntN(2), m.r.IntN(3)
	}
	if m.on["alone"] {
		commits, faults = 1, 0
	}
	when := func(n, last int) map[int]bool {
		at := map[int]bool{}
		for range n {
			at[40+m.r.IntN(last-60)] = true
		}
		return at
	}
	last := steps
	if m.moves() { // so that what follows it comes before the end
		last = 250
	}
	commitAt, faultAt := when(commits, last), when(faults, last)
	reads := []float64{0.1, 0.4}[m.r.IntN(2)]
	m.faults = true
	for i := 0; i < steps && m.bad == ""; i++ {
		if commitAt[i] && m.moves() && m.r.IntN(2) == 0 {
			m.changeFirst()
		} else if commitAt[i] {
			m.meddle(m.commit())
		}
		if faultAt[i] {
			m.fault()
		}
		m.events()
		if m.r.Float64() < reads {
			m.read()
		}
		m.step()
	}
	m.calm()
	for i := 0; m.bad == "" && !m.quiet(); i++ {
		if i > 4000 {
			m.fail("it does not come to rest: %s", m.unrest())
			return
		}
		m.events()
		m.step()
	}
	for _, f := range m.fills { // whoever held a lease for long comes back now
		m.fill(f)
	}
	for r, q := range m.copying {
		for range q {
			m.copyOne(r)
		}
	}
	if bad := m.stale(); len(bad) > 0 {
		m.fail("%s", strings.Join(bad, "; "))
	}
}

// sight has a worker see what is new in the registry, sooner or later.
func (m *model) sight(w *modelWorker) {
	news := m.follow(w.registry, !m.faults || time.Now().After(w.blind))
	if lag := m.faults && m.on["hotlag"]; w.registry.hot < len(m.hot)-1 && (!lag || m.r.Float64() < 0.01) {
		w.registry.hot, news = len(m.hot)-1, true
	}
	if news {
		m.world.see(w.registry, w.views)
	}
}

// moves reports whether nodes may change their places in this run.
func (m *model) moves() bool {
	return slices.ContainsFunc(modelRingFaults, func(f string) bool { return m.on[f] })
}

// step lets some time pass.
func (m *model) step() {
	time.Sleep(20*time.Millisecond + m.upTo(80*time.Millisecond))
	synctest.Wait()
	m.tick()
	seen := m.ring().epoch
	for _, w := range m.workers {
		w.link.tick()
		m.sight(w)
		seen = min(seen, w.views.View().Topology.Epoch())
		for _, o := range w.owns {
			if time.Now().After(w.stalled) && m.r.IntN(2) == 0 {
				o.fetch(1 + m.r.IntN(3))
			}
			if time.Since(o.since) > time.Second && m.r.IntN(4) == 0 {
				synctest.Wait()
				m.writeDown(o, w.w.Finished([]changelog.Partition{o.p.id}), m.faults && m.on["breakscommit"] && m.r.IntN(3) == 0)
			}
		}
	}
	m.seedSome(seen)
	synctest.Wait()
}

// calm ends all faults.
func (m *model) calm() {
	m.tell("the faults are over")
	m.faults = false
	for _, n := range m.nodes {
		n.slow = false
	}
	for _, w := range m.workers {
		w.stalled = time.Time{}
	}
	m.learn()
}

func (m *model) quiet() bool { return m.unrest() == "" }

// unrest says what is still to come.
func (m *model) unrest() string {
	dead := false // then what it owes stays, and the hot keys that it may have
	for _, n := range m.nodes {
		if !n.up && !n.dead {
			return n.name + " is down"
		}
		dead = dead || n.dead
	}
	for _, w := range m.workers {
		if text := w.link.unrest(); text != "" {
			return text
		}
		for _, o := range w.owns {
			s, err := parseState(o.p.states[o.p.points])
			acted := len(s.Acted.Epochs) > 0 && s.Acted.Epochs[len(s.Acted.Epochs)-1] == m.ring().epoch
			owing := slices.ContainsFunc(s.Debts, func(d Debt) bool { return d.Kind != KindNode || !m.nodes[d.Name].dead })
			if err != nil || o.p.offset != int64(len(m.commits[o.p.n])) || owing || s.Acted.HotRevision != int64(len(m.hot)-1) && !dead || !acted {
				return fmt.Sprintf("%s is at %d of %d with %s (%v)", o.p.id, o.p.offset, len(m.commits[o.p.n]), o.p.states[o.p.points], err)
			}
		}
	}
	for _, c := range m.clients {
		if c.ring < len(m.rings)-1 || c.hot < len(m.hot)-1 {
			return "a client has yet to see the newest records"
		}
	}
	if len(m.toLog) > 0 || len(m.seeds) > 0 || m.unflushed() || slices.ContainsFunc(m.fills, func(f *modelFill) bool { return f.token == 0 }) {
		return "readers or seeders are under way"
	}
	return ""
}

var _ sink.Deleter = (*modelLink)(nil)
