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
)

// model is one run: a world of one database, some nodes and their readers, and real workers, moved by a seeded scheduler in small steps
// of virtual time. Faults are drawn a run. When they are over and everything is quiet, each copy is compared with its row; and at each
// commit it is asked whether all that it passes is acknowledged or owed. Rings do not change yet, but for replicas that are seeded.
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
	due := slices.Clone(m.later)
	m.later = slices.DeleteFunc(m.later, func(e modelEvent) bool { return !e.at.After(time.Now()) })
	for _, e := range due {
		if !e.at.After(time.Now()) && (m.faults || e.ends) {
			e.do()
		}
	}
}

// What may happen; a run draws a theme and some others. In a theme with "alone" nothing hides what comes of its one commit.
var (
	modelFaults = []string{"cut", "down", "full", "slow", "ackloss", "rebalance", "zombie", "kill", "hot", "hotlag", "oldclient", "lease", "replicaread",
		"breakscommit", "stall", "seed", "copyloss"}
	modelThemes = []string{"", "full", "cut full", "down copyloss", "down copyloss replicaread", "full rebalance", "full kill", "kill stall", "rebalance zombie full",
		"hot hotlag", "hot hotlag full", "hot hotlag kill rebalance", "seed stall", "seed full cut", "seed cut alone", "seed cut copyloss alone", "seed full cut stall", "lease full", "cut slow ackloss breakscommit"}
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
	m.focus = m.r.IntN(len(modelKeys))
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
	w := &modelWorker{id: id, link: newModelLink(id, m.world), views: &views{}}
	w.views.store(m.view())
	var err error
	w.w, err = New(Options{
		Sources:   []*Source{{Name: "shop", Pattern: changelog.ChangeTopics("shop"), Decode: envelope.Config{Format: envelope.Auto}}},
		Snapshots: NewSnapshots(w.views, modelMappings), Deleter: w.link, Parker: &fakeParker{}, Refresher: &fakeRefresher{}, Flusher: &fakeFlusher{}, Gaps: &fakeGaps{},
		Past: modelLogs{m.world}, Archive: &fakeArchive{}, Settle: modelSettle, MaxLag: modelLag, Window: modelWindow,
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
	if m.on["stall"] || m.on["seed"] { // what takes long is hidden by what comes after
		steps += 400
		commits, faults = 1+m.r.IntN(2), m.r.IntN(3)
	}
	if m.on["alone"] {
		commits, faults = 1, 0
	}
	when := func(n int) map[int]bool {
		at := map[int]bool{}
		for range n {
			at[40+m.r.IntN(steps-60)] = true
		}
		return at
	}
	commitAt, faultAt := when(commits), when(faults)
	reads := []float64{0.1, 0.4}[m.r.IntN(2)]
	m.faults = true
	for i := 0; i < steps && m.bad == ""; i++ {
		if commitAt[i] {
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

// step lets some time pass.
func (m *model) step() {
	time.Sleep(20*time.Millisecond + m.upTo(80*time.Millisecond))
	synctest.Wait()
	m.tick()
	seen := m.epoch
	for _, w := range m.workers {
		w.link.tick()
		if lag := m.faults && m.on["hotlag"]; !lag || m.r.Float64() < 0.01 {
			if v := m.view(); w.views.View() != v {
				w.views.store(v)
			}
		}
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

// fault does one of what may happen.
func (m *model) fault() {
	var may []func()
	add := func(f string, do func()) {
		if m.on[f] {
			may = append(may, do)
		}
	}
	w := m.workers[m.r.IntN(len(m.workers))]
	for len(w.owns) == 0 && m.r.IntN(5) > 0 {
		w = m.workers[m.r.IntN(len(m.workers))]
	}
	node := m.owners(modelText(m.key(), 0))[m.r.IntN(2)]
	n := m.nodes[node]
	add("cut", func() { m.cutFor(w, node, m.upTo(15*time.Second)) })
	add("down", func() { m.turnFor(n) })
	add("full", func() { w.link.full(node) })
	add("slow", func() { n.slow = !n.slow })
	add("rebalance", func() { m.move(m.parts[m.r.IntN(len(m.parts))]) })
	add("kill", func() { m.kill(m.r.IntN(len(m.workers))) })
	add("zombie", func() { m.learn() })
	add("hot", m.changeHot)
	add("seed", m.beginSeeding)
	add("stall", func() { w.stalled = time.Now().Add(m.upTo(40 * time.Second)) })
	if len(may) > 0 {
		may[m.r.IntN(len(may))]()
	}
}

// meddle has happen around a commit what makes it hard: each alone is what may happen anyhow, and would seldom meet it.
func (m *model) meddle(keys []string) {
	if len(keys) == 0 || m.r.IntN(3) == 0 && !m.on["alone"] {
		return
	}
	key := keys[m.r.IntN(len(keys))]
	owners := m.owners(modelText(key, 0))
	soon := func(from, to time.Duration) time.Duration { return from + m.upTo(to-from) }
	w := m.workers[m.r.IntN(len(m.workers))]
	for _, o := range m.workers {
		if len(o.owns) > len(w.owns) {
			w = o
		}
	}
	if m.r.IntN(2) == 0 {
		m.lateFill(modelText(key, 0))
	}
	if m.on["copyloss"] && !m.on["alone"] { // the replica that is about to get a late fill's copy goes down
		m.after(soon(4*time.Second, 8*time.Second), func() { m.turnFor(m.nodes[owners[1]]) }, false)
	}
	if m.on["stall"] && m.on["seed"] { // an old change is issued while a replica is seeded
		d := soon(modelSettle+lateBy, 25*time.Second)
		w.stalled = time.Now().Add(d)
		m.after(d-m.upTo(2*time.Second), m.beginSeeding, false)
	} else if m.on["cut"] && m.on["seed"] { // what the primary missed is carried on, to a replica that may miss the pass
		m.after(soon(2*time.Second, 6*time.Second), m.beginSeeding, false)
		if m.r.IntN(2) == 0 && !m.on["alone"] {
			m.cutFor(w, owners[0], soon(4*time.Second, 12*time.Second))
		} else { // for so long that nothing else reaches it again
			m.cutFor(w, owners[0], soon(16*time.Second, 20*time.Second))
			m.after(soon(12*time.Second, 15*time.Second), func() {
				if m.on["copyloss"] {
					m.downFor(m.nodes[owners[1]], soon(22*time.Second, 28*time.Second))
				} else {
					m.cutFor(w, owners[1], soon(22*time.Second, 28*time.Second))
				}
			}, false)
		}
	} else if m.on["cut"] && m.on["hot"] { // a node that is to forget a hot key's copies does not answer
		m.cutFor(w, m.owners(modelText(key, 1))[m.r.IntN(2)], soon(4*time.Second, 12*time.Second))
	} else if m.on["full"] { // a node fails again soon after it is back
		node := owners[m.r.IntN(2)]
		for at := m.upTo(time.Second); at < 4*time.Second; at += m.upTo(2 * time.Second) {
			m.after(at, func() { w.link.full(node) }, false)
		}
	}
	if m.on["hot"] { // readers know of a hot key before the workers do
		m.clients = [2]int{len(m.hot) - 1, len(m.hot) - 1}
		for n := range m.hot[len(m.hot)-1][modelText(key, 0)].Copies {
			m.lateFill(modelText(key, n+1))
		}
	}
}

func (m *model) cutFor(w *modelWorker, node string, d time.Duration) {
	w.link.cut[node] = true
	m.tell("w%d-%s is cut", w.id, node)
	m.after(d, func() { delete(w.link.cut, node); m.tell("w%d-%s is whole", w.id, node) }, true)
}

// turnFor stops a node that is up for some time: where something is lost with it, for so long that everybody sees it.
func (m *model) turnFor(n *modelNode) {
	d := m.upTo(15 * time.Second)
	if m.on["copyloss"] {
		d += 3 * modelLag
	}
	m.downFor(n, d)
}

func (m *model) downFor(n *modelNode, d time.Duration) {
	if n.up {
		m.turn(n)
		m.after(d, func() { m.turn(n) }, true)
	}
}

// turn stops a node, with its memory, or starts it again. What was on its way to a replica may be lost with either.
func (m *model) turn(n *modelNode) {
	n.up, n.seen = !n.up, time.Now()
	m.tell("%s is up: %v", n.name, n.up)
	if _, primary := shardOf(n.name); !primary && m.on["copyloss"] && (n.up || m.watched(n.name)) {
		m.copying[n.name] = nil
		m.tell("what was on its way to %s is lost", n.name)
	}
}

// watched reports whether all owners watch a node, so that its outage is seen.
func (m *model) watched(node string) bool {
	for _, w := range m.workers {
		w.link.mu.Lock()
		used, off := w.link.used[node], w.link.off[node]
		w.link.mu.Unlock()
		if len(w.owns) > 0 && (used.IsZero() || time.Since(used) > time.Minute-2*modelLag || !off.IsZero()) {
			return false
		}
	}
	return true
}

// move gives a partition to another worker, or the same. The old owner may not know it yet.
func (m *model) move(p *modelPartition) {
	for _, w := range m.workers {
		for _, o := range slices.Clone(w.owns) {
			if o.p != p || o.generation != p.generation || m.on["zombie"] && m.r.IntN(5) < 3 {
				continue
			}
			m.writeDown(o, w.w.Revoke([]changelog.Partition{p.id}), m.faults && m.on["breakscommit"] && m.r.IntN(3) == 0)
			w.owns = slices.DeleteFunc(w.owns, func(x *modelOwner) bool { return x == o })
		}
	}
	m.assign(p, m.workers[m.r.IntN(len(m.workers))])
}

// kill ends a process, and starts another in its place. What it had under way may still be carried out.
func (m *model) kill(i int) {
	w := m.workers[i]
	m.tell("w%d is killed", w.id)
	for _, op := range w.link.underWay() {
		if op.text != "" && !op.carried && w.link.reaches(op.node) && m.r.IntN(2) == 0 {
			m.put(m.nodes[op.node], op.text, modelDelete, "deleted by the dead")
		}
	}
	w.w.close()
	m.workers[i] = m.process(w.id)
	m.workers[i].link.cut = w.link.cut
	for _, o := range w.owns {
		if o.generation == o.p.generation {
			m.assign(o.p, m.workers[m.r.IntN(len(m.workers))])
		}
	}
}

// learn tells zombies that they lost their partitions.
func (m *model) learn() {
	for _, w := range m.workers {
		for _, o := range slices.Clone(w.owns) {
			if o.generation != o.p.generation {
				m.writeDown(o, w.w.Revoke([]changelog.Partition{o.p.id}), false)
				w.owns = slices.DeleteFunc(w.owns, func(x *modelOwner) bool { return x == o })
			}
		}
	}
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
	m.clients = [2]int{len(m.hot) - 1, len(m.hot) - 1}
}

func (m *model) quiet() bool { return m.unrest() == "" }

// unrest says what is still to come.
func (m *model) unrest() string {
	for _, n := range m.nodes {
		if !n.up {
			return n.name + " is down"
		}
	}
	for _, w := range m.workers {
		if text := w.link.unrest(); text != "" {
			return text
		}
		for _, o := range w.owns {
			s, err := parseState(o.p.states[o.p.points])
			if err != nil || o.p.offset != int64(len(m.commits[o.p.n])) || len(s.Debts) > 0 || s.Acted.HotRevision != int64(len(m.hot)-1) {
				return fmt.Sprintf("%s is at %d of %d with %s (%v)", o.p.id, o.p.offset, len(m.commits[o.p.n]), o.p.states[o.p.points], err)
			}
		}
	}
	if len(m.toLog) > 0 || len(m.seeds) > 0 || slices.ContainsFunc(m.fills, func(f *modelFill) bool { return f.token == 0 }) {
		return "readers or seeders are under way"
	}
	return ""
}

var _ sink.Deleter = (*modelLink)(nil)
