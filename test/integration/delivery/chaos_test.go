//go:build integration

package delivery

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"golang.org/x/sync/errgroup"

	"invalidator/test/integration/harness"
	"invalidator/test/integration/services"
)

var (
	seedFlag    = flag.Uint64("seed", 0, "of TestChaos's plan and choices; 0: by the clock")
	minutesFlag = flag.Float64("minutes", 5, "for how long TestChaos makes faults")
	brokersFlag = flag.Int("brokers", 3, "of TestChaos: 1 or 3")
)

const (
	pairs    = 4
	spare    = 4   // nodes of no shard at first
	rowsAMin = 900 // rows that the window passes in a minute
	readers  = 24
	writers  = 2
)

// TestChaos: whatever is killed, frozen, cut, slowed, restarted and emptied while rows change and readers fill the cache, once the faults
// have ended and the debts are paid no copy differs from its row. It is parallel to nothing.
func TestChaos(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: the plan of the faults comes again with -seed %d -minutes %g -brokers %d, the machine's timing does not", seed, seed, *minutesFlag, *brokersFlag)
	last := time.Duration(*minutesFlag * float64(time.Minute))
	c := newChaos(t, seed, *brokersFlag, window+int(*minutesFlag*rowsAMin))
	stop := c.load(last)
	c.blow(c.plan(c.rand(), last))
	stopReading := stop()

	c.calm()
	began := time.Now()
	c.p.AwaitFed(c.db)
	fed := time.Now()
	c.p.AwaitDelivered()
	delivered := time.Now()
	c.p.AwaitActed(c.manager.record.Epoch)
	c.p.AwaitPaid()
	paid := time.Now()
	c.awaitFlushed()
	t.Logf("fed %.1f s after the last fault, delivered %.1f s later, paid %.1f s after that, and flushed another %.1f s later",
		fed.Sub(began).Seconds(), delivered.Sub(fed).Seconds(), paid.Sub(delivered).Seconds(), time.Since(paid).Seconds())
	stopReading()
	for rng := c.rand(); c.letOneGo(rng); {
	}
	c.see()
	checked, present, found := c.check()
	excused := c.excuse(&found)
	c.report(found)
	c.trace(found)
	c.account(checked, present, excused)
	c.accountRing()
	for i := range c.workers[:c.spare()] {
		c.workers[i].Terminate()
	}
	c.feeder.Terminate()
}

// chaos is a world with a fleet that faults come to.
type chaos struct {
	*world
	seed, streams uint64 // streams of random numbers, handed out
	manager       *manager
	cluster       *harness.Cluster
	doors         []*toxiproxy.Proxy // before the brokers, for workers alone
	watches       []*toxiproxy.Proxy // before etcd, one a worker
	files         []string           // workers' configurations
	workers       []*harness.Process // the last is the spare one
	feeder        *harness.Process
	blown         map[int]int // how often each of the faults came
	flushes       int         // that were asked for
	flushed       int64       // copies
}

func newChaos(t *testing.T, seed uint64, brokers, rows int) *chaos {
	c := &chaos{seed: seed, blown: map[int]int{}}
	proxies := newProxies()
	c.cluster = harness.NewCluster(t, brokers, func(door string) string {
		p := proxies.add(t, door)
		c.doors = append(c.doors, p)
		return p.Listen
	})
	c.world = newWorld(t, options{pairs: pairs, shards: 2, spare: spare, rows: rows, settle: time.Second, kafka: c.cluster.Brokers[0].Addr})
	c.manager = newManager(c)
	for i := range 3 {
		c.watches = append(c.watches, proxies.add(t, services.Addr("ETCD")))
		c.files = append(c.files, c.workerFile(fmt.Sprint("worker-", i), c.watches[i].Listen, c.cluster.Doors...))
	}
	c.workers = make([]*harness.Process, len(c.files))
	c.feeder = c.p.Feed()
	for i := range c.workers[:c.spare()] {
		c.startWorker(i)
	}
	c.p.AwaitFeeding(c.db)
	for i, w := range c.workers[:c.spare()] {
		harness.Await(t, fmt.Sprint("worker ", i, " to start"), func() (bool, string) { return strings.Contains(w.Log(), "worker started"), w.Log() })
	}
	return c
}

func (c *chaos) rand() *rand.Rand {
	c.streams++
	return rand.New(rand.NewPCG(c.seed, c.streams))
}

// load lets readers and writers loose. stop ends the writers, and then the readers.
func (c *chaos) load(last time.Duration) (stop func() (stopReading func())) {
	began := time.Now()
	c.progress = func() float64 { return min(1, time.Since(began).Seconds()/last.Seconds()) }
	reading, stopReading := context.WithCancel(c.t.Context())
	writing, stopWriting := context.WithCancel(c.t.Context())
	var rs, ws errgroup.Group
	for i := range readers {
		r := &reader{w: c.world, name: fmt.Sprint("reader ", i), rng: c.rand()}
		rs.Go(func() error { return r.run(reading) })
	}
	rng := c.rand()
	rs.Go(func() error { c.letGo(reading, rng); return nil })
	for range writers {
		x := &writer{w: c.world, rng: c.rand()}
		ws.Go(func() error { return x.run(writing) })
	}
	end := func(cancel context.CancelFunc, g *errgroup.Group) {
		cancel()
		if err := g.Wait(); err != nil {
			c.t.Error(err)
		}
	}
	c.t.Cleanup(func() { end(stopWriting, &ws); end(stopReading, &rs) })
	return func() func() {
		end(stopWriting, &ws)
		return func() { end(stopReading, &rs) }
	}
}

// blow follows the plan.
func (c *chaos) blow(steps []*step) {
	began := time.Now()
	for _, s := range steps {
		pause(c.t.Context(), time.Until(began.Add(s.at)))
		switch {
		case s.ends != nil:
			s.do()
			c.trail.ended(s.ends.id)
		case s.what != "":
			s.id = c.trail.fault(s.what, s.node)
			c.blown[s.kind]++
			s.do()
		default:
			s.do()
		}
		if late := time.Since(began) - s.at; late > 20*time.Second {
			c.t.Fatalf("%q came %s late: something before it hangs, or the machine is too busy. The faults:\n%s", s.what, late, c.trail.story(stale{key: &key{}}))
		}
	}
}

// calm waits until everything is there again. The plan has ended every fault.
func (c *chaos) calm() {
	c.cluster.AwaitAll()
	if w := c.workers[c.spare()]; w != nil {
		w.Left()
	}
	for _, n := range c.nodes {
		harness.Await(c.t, n.name+" to answer", func() (bool, string) {
			_, err := n.Get(probe)
			return err == nil, fmt.Sprint(err)
		})
	}
}

// awaitFlushed waits until what was asked for of the nodes themselves is done: what they gained while an epoch was left out, or not seen.
func (c *chaos) awaitFlushed() {
	c.t.Helper()
	results := c.p.AwaitFlushed()
	for id, r := range results {
		if !r.Clean {
			c.t.Errorf("the flush %s: %s", id, r.Error)
		}
		c.flushed += r.Copies
	}
	c.flushes = len(results)
}

// see asks which ring records workers have seen. Those that they have not are left out of the check: the next one that gives a node what it had under
// such a record has it flushed there.
func (c *chaos) see() {
	c.t.Helper()
	var epochs []int64
	for _, r := range c.p.RingsSeen() {
		c.seen, epochs = append(c.seen, newRing(*r, r.At)), append(epochs, r.Epoch)
	}
	if !slices.Contains(epochs, c.manager.record.Epoch) {
		c.t.Fatalf("no worker has seen the last ring record, of epoch %d, but %d", c.manager.record.Epoch, epochs)
	}
}

// trace has the service itself say what it did to the first keys that are stale.
func (c *chaos) trace(found []stale) {
	const traced = 2
	for _, s := range found[:min(traced, len(found))] {
		p := harness.Start(c.t, "trace", "trace", "--config", c.files[0], s.key.text, "--since", "30m")
		p.Wait()
		c.t.Logf("trace of %s:\n%s", s.key.text, p.Log())
	}
}

// excuse takes out what is readers' own doing, and says how many those were.
func (w *world) excuse(found *[]stale) (excused int) {
	all := *found
	*found = nil
	for _, s := range all {
		if !w.trail.excused(s) {
			*found = append(*found, s)
		}
	}
	return len(all) - len(*found)
}

// account says what was done, and fails where it was too little to prove anything.
func (c *chaos) account(checked, present, excused int) {
	s := &c.stats
	blown := 0
	for i, f := range faults {
		blown += c.blown[i]
		if c.blown[i] == 0 && *minutesFlag >= 5 {
			c.t.Errorf("%q never came", f.name)
		}
	}
	c.t.Logf("%d faults; %d transactions committed, %d refused by the database", blown, s.committed.Load(), s.refusedByDB.Load())
	c.t.Logf("%d reads found a value, %d met another's lease, %d a node that was away; fills: %d plain, %d under a lease; %d leases were void, %d fills too late, %d without an answer",
		s.hits.Load(), s.behind.Load(), s.away.Load(), s.plain.Load(), s.leased.Load(), s.void.Load(), s.late.Load(), s.unknown.Load())
	c.t.Logf("of those that stalled for long %d filled and %d were refused; %d times a node kept its memory", s.heldFills.Load(), s.heldVoid.Load(), s.warmed.Load())
	c.t.Logf("%d copies checked, %d of them there, %d stale ones were readers' own doing", checked, present, excused)
	if s.warmed.Load() == 0 {
		c.t.Error("no node kept its memory: that proves little")
	}
	c.atLeast(map[string][2]int64{
		"faults":            {int64(blown), 20},
		"transactions":      {s.committed.Load(), 400},
		"plain fills":       {s.plain.Load(), 600},
		"leased fills":      {s.leased.Load(), 400},
		"void leases":       {s.void.Load(), 20},
		"long stalls void":  {s.heldVoid.Load(), 1},
		"copies that stood": {int64(present), 50},
	})
	if excused > present/50 {
		c.t.Errorf("%d stale copies were excused: too many to be chance", excused)
	}
}

// accountRing is account for what changed the ring.
func (c *chaos) accountRing() {
	m, s := c.manager, &c.stats
	c.t.Logf("%d ring records, of which workers saw %d; %d shards promoted, %d at once at most; fills with what another node had: %d by readers, %d by a copier; %d old values on replicas that lagged when they were promoted; %d fills under records that nobody saw; %d flushes of %d copies",
		m.records+1, len(c.seen), m.promoted, m.most, s.carried.Load(), s.seeded.Load(), s.lagging.Load(), s.unseen.Load(), c.flushes, c.flushed)
	c.atLeast(map[string][2]int64{
		"ring records":   {int64(len(c.seen)), 1}, // of those that the manager wrote: a worker that is slow, down or cut off sees the newest alone
		"promotions":     {int64(m.promoted), 4},
		"carried values": {s.carried.Load(), 10},
		"seeded values":  {s.seeded.Load(), 2},
		"lagging values": {s.lagging.Load(), 2},
	})
}

// atLeast fails where there was less of something than so much a minute.
func (c *chaos) atLeast(counts map[string][2]int64) {
	c.t.Helper()
	for what, n := range counts {
		if want := int64(float64(n[1]) * *minutesFlag); n[0] < want {
			c.t.Errorf("only %d %s: that proves little (want at least %d)", n[0], what, want)
		}
	}
}
