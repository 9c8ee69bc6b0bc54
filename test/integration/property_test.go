//go:build integration

package integration

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"invalidator/test/integration/harness"
)

var (
	seedFlag = flag.Int64("seed", 0, "of TestProperty's choices; 0: by the clock")
	loadFlag = flag.Duration("load", 18*time.Second, "for how long TestProperty writes, at least")
)

// TestProperty: whatever is committed while readers fill the cache, and whatever is killed, no copy differs from its row at
// the end.
func TestProperty(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = time.Now().UnixNano()
	}
	t.Logf("seed %d (the choices come again with -seed %d; the machine's timing does not)", seed, seed)
	p := &play{t: t, seed: uint64(seed), world: newWorld(t, time.Second, 6, 4, harness.Kinds...)}
	p.feeder = p.pipeline.Feed()
	for i := range p.workers {
		p.workers[i] = p.pipeline.Work()
	}
	p.pipeline.AwaitFeeding(p.dbs...)

	began := time.Now()
	p.load()
	wrote := time.Now()
	p.calm.Store(true)
	p.pipeline.AwaitFed(p.dbs...)
	fed := time.Now()
	p.pipeline.AwaitDelivered()
	delivered := time.Now()
	// Nothing deletes any more, so every further fill is a copy that stands.
	before := p.stats.plain.Load() + p.stats.leased.Load()
	harness.Await(t, "readers to fill what there is to be checked", func() (bool, string) {
		n := p.stats.plain.Load() + p.stats.leased.Load() - before
		return n >= 600, fmt.Sprint(n, " fills")
	})
	p.stopReaders()
	t.Logf("wrote for %.1f s, fed %.1f s later, delivered %.1f s later", wrote.Sub(began).Seconds(), fed.Sub(wrote).Seconds(), delivered.Sub(fed).Seconds())
	checked, present, found := p.check()
	excused := 0
	for i := 0; i < len(found); i++ {
		if p.trail.excused(found[i]) {
			found = append(found[:i], found[i+1:]...)
			excused, i = excused+1, i-1
		}
	}
	p.report(found)
	p.account(checked, present, excused)
	for _, w := range p.workers {
		w.Terminate()
	}
	p.feeder.Terminate()
}

// play is one run of the property test.
type play struct {
	*world
	t       *testing.T
	seed    uint64
	streams uint64 // of random numbers, handed out
	workers [2]*harness.Process
	feeder  *harness.Process
	kills   int

	stopReaders func()
}

func (p *play) rng() *rand.Rand {
	p.streams++
	return rand.New(rand.NewPCG(p.seed, p.streams))
}

const (
	writersEach = 2  // a database
	readers     = 48 // in all; most of their time they stall
)

// enough is how much work must be done before the load ends, however slow the machine.
var enough = struct{ transactions, plain, leased float64 }{900, 1500, 1000}

// load lets readers and writers loose and follows the script. When it returns, nothing writes any more; readers go on.
func (p *play) load() {
	began := time.Now()
	p.progress = func() float64 {
		committed := int64(0)
		for _, s := range p.shops {
			committed += s.committed.Load()
		}
		return min(1, time.Since(began).Seconds()/loadFlag.Seconds(), float64(committed)/enough.transactions,
			float64(p.stats.plain.Load())/enough.plain, float64(p.stats.leased.Load())/enough.leased)
	}
	reading, stopReading := context.WithCancel(p.t.Context())
	var rs errgroup.Group
	for i := range readers {
		r := &reader{w: p.world, name: fmt.Sprint("reader ", i), rng: p.rng()}
		rs.Go(func() error { return r.run(reading) })
	}
	var stopped atomic.Bool
	p.stopReaders = func() {
		if stopped.Swap(true) {
			return
		}
		stopReading()
		if err := rs.Wait(); err != nil {
			p.t.Error(err)
		}
	}
	p.t.Cleanup(p.stopReaders)

	writing, stopWriting := context.WithCancel(p.t.Context())
	defer stopWriting()
	var ws errgroup.Group
	for _, s := range p.shops {
		for range writersEach {
			x := &writer{w: p.world, s: s, rng: p.rng()}
			ws.Go(func() error { return x.run(writing) })
		}
	}
	p.script()
	stopWriting()
	if err := ws.Wait(); err != nil {
		p.t.Fatal(err)
	}
	// The latest changes have had their first round, and no later change heals what a second round is missing from.
	p.killWorker(0)
	p.killWorker(1)
	if err := p.racers.Wait(); err != nil {
		p.t.Fatal(err)
	}
}

// script kills and changes what the load stands on, and returns when the load has done its work.
func (p *play) script() {
	rng := p.rng()
	for _, step := range []struct {
		at float64
		do func()
	}{
		{0.12, func() { p.killWorker(rng.IntN(2)) }},
		{0.22, p.killFeeder},
		{0.30, p.alter},
		{0.38, p.killFeeder},
		{0.50, p.beginResize},
		{0.58, func() { p.killWorker(rng.IntN(2)) }},
		{0.70, p.killFeeder},
		{0.78, p.killFeeder},
		{1.00, func() {}},
	} {
		harness.Await(p.t, "the load to go on", func() (bool, string) { return p.progress() >= step.at, fmt.Sprint("at ", p.progress()) })
		step.do()
	}
}

func (p *play) killWorker(i int) {
	p.workers[i].Kill()
	p.workers[i] = p.pipeline.Work()
	p.kills++
}

func (p *play) killFeeder() {
	p.feeder.Kill()
	p.feeder = p.pipeline.Feed()
	p.kills++
}

func (p *play) alter() {
	for _, s := range p.shops {
		if err := s.alter(p.t.Context()); err != nil {
			p.t.Error(err)
		}
	}
}

// beginResize adds a shard. Clients take the new ring up once all workers have, and carry values from old owners once the rounds
// that were begun before are over: what was issued under the old ring alone is not replayed.
func (p *play) beginResize() {
	all := make([]*harness.Node, 0, len(p.nodes))
	for _, s := range p.ring.Load().record.Shards {
		all = append(all, p.nodes[s.Primary.Addr], p.nodes[s.Replicas[0].Addr])
	}
	for _, n := range p.nodes {
		if !contains(all, n) {
			all = append(all, n)
		}
	}
	next := p.resize(all)
	for _, w := range p.workers {
		harness.Await(p.t, "a worker to take the new ring up", func() (bool, string) {
			return strings.Contains(w.Log(), "a ring record is in use\" epoch=2"), w.Log()
		})
	}
	p.ring.Store(next)
	pause(p.t.Context(), p.settle*3/2)
	carrying := *next
	carrying.carry = true
	p.ring.Store(&carrying)
}

func contains(nodes []*harness.Node, n *harness.Node) bool {
	for _, m := range nodes {
		if m == n {
			return true
		}
	}
	return false
}

// account says what was done, and fails where it was too little to prove anything.
func (p *play) account(checked, present, excused int) {
	s := &p.stats
	committed := int64(0)
	for _, s := range p.shops {
		committed += s.committed.Load()
		p.t.Logf("%d transactions committed on %s", s.committed.Load(), s.Kind)
	}
	p.t.Logf("%d rolled back, %d refused by a database", s.rolledBack.Load(), s.refusedByDB.Load())
	p.t.Logf("%d reads found a value; fills: %d plain, %d under a lease, %d leases were void, %d carried from an old owner, %d in a race with a change, %d took too long and were taken back",
		s.hits.Load(), s.plain.Load(), s.leased.Load(), s.refused.Load(), s.carried.Load(), s.raced.Load(), s.late.Load())
	p.t.Logf("%d kills; %d copies checked, %d of them there, %d stale ones were readers' own doing", p.kills, checked, present, excused)
	for what, n := range map[string]struct{ have, want int64 }{
		"transactions":      {committed, 900},
		"rollbacks":         {s.rolledBack.Load(), 20},
		"plain fills":       {s.plain.Load(), 1500},
		"leased fills":      {s.leased.Load(), 1000},
		"void leases":       {s.refused.Load(), 20},
		"carried values":    {s.carried.Load(), 20},
		"races":             {s.raced.Load(), 200},
		"kills":             {int64(p.kills), 7},
		"copies checked":    {int64(checked), 5000},
		"copies that stood": {int64(present), 500},
	} {
		if n.have < n.want {
			p.t.Errorf("only %d %s: that proves little (want at least %d)", n.have, what, n.want)
		}
	}
	if excused > present/100 {
		p.t.Errorf("%d stale copies were excused: too many to be chance", excused)
	}
}
