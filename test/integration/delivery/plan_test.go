//go:build integration

package delivery

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"

	"invalidator/test/integration/harness"
)

// target is a kind of what a fault comes to.
type target int

const (
	aWorker target = iota
	aSpare         // a worker that is not there at other times
	aNode
	aBroker
	theBrokers // all of them, or the way to them
	aWatch     // one worker's way to etcd
	anyWatch   // every worker's
)

// fault is something that happens to a target and ends after a while. begin and end must not wait for long: faults cross.
type fault struct {
	name        string
	on          target
	least, most time.Duration
	begin, end  func(c *chaos, i int)
}

// The times are chosen around those that the service goes by: 2 s until a node is off, 6 s until a worker's partitions move.
var faults = []fault{
	{"is killed", aWorker, 100 * time.Millisecond, 9 * time.Second, (*chaos).killWorker, (*chaos).startWorker},
	{"is frozen", aWorker, 500 * time.Millisecond, 5 * time.Second, (*chaos).freezeWorker, (*chaos).thawWorker},
	{"is frozen for long", aWorker, 6 * time.Second, 14 * time.Second, (*chaos).freezeWorker, (*chaos).thawWorker},
	{"leaves", aWorker, 5 * time.Second, 9 * time.Second, (*chaos).askWorker, (*chaos).replaceWorker},
	{"joins", aSpare, 6 * time.Second, 15 * time.Second, (*chaos).startSpare, (*chaos).askSpare},
	{"is killed and comes empty", aNode, 100 * time.Millisecond, 8 * time.Second, (*chaos).killNode, (*chaos).startNode},
	{"is stopped and comes with its memory", aNode, 3 * time.Second, 10 * time.Second, (*chaos).keepNode, (*chaos).startNode},
	{"is frozen", aNode, 300 * time.Millisecond, 2500 * time.Millisecond, (*chaos).freezeNode, (*chaos).thawNode},
	{"is frozen for long", aNode, 2500 * time.Millisecond, 12 * time.Second, (*chaos).freezeNode, (*chaos).thawNode},
	{"is cut off", aNode, 300 * time.Millisecond, 2500 * time.Millisecond, ofNode(cut), ofNode(mend)},
	{"is cut off for long", aNode, 2500 * time.Millisecond, 15 * time.Second, ofNode(cut), ofNode(mend)},
	{"is cut off from some", aNode, time.Second, 10 * time.Second, ofNode(cutSome), ofNode(mend)},
	{"is not heard", aNode, time.Second, 10 * time.Second, ofNode(deafen), ofNode(mend)},
	{"is slow", aNode, time.Second, 10 * time.Second, ofNode(slow), ofNode(mend)},
	{"has its connections reset", aNode, 200 * time.Millisecond, 4 * time.Second, ofNode(reset), ofNode(mend)},
	{"is killed", aBroker, 500 * time.Millisecond, 8 * time.Second, (*chaos).killBroker, (*chaos).startBroker},
	{"is frozen", aBroker, time.Second, 9 * time.Second, (*chaos).freezeBroker, (*chaos).thawBroker},
	{"are restarted", theBrokers, 100 * time.Millisecond, 2 * time.Second, (*chaos).killBrokers, (*chaos).startBrokers},
	{"are cut off from the workers", theBrokers, time.Second, 12 * time.Second, doors(cut), doors(mend)},
	{"are slow for the workers", theBrokers, time.Second, 8 * time.Second, doors(slow), doors(mend)},
	{"have the workers' connections reset", theBrokers, 200 * time.Millisecond, 3 * time.Second, doors(reset), doors(mend)},
	{"is cut off from one worker", aWatch, time.Second, 15 * time.Second, watch(cut), watch(mend)},
	{"is away", anyWatch, time.Second, 15 * time.Second, watches(cut), watches(mend)},
}

// step is a fault of the plan.
type step struct {
	at   time.Duration
	what string
	node *node
	do   func()
	ends *step // its beginning, where it is an end
	id   int   // of a beginning in the trail
}

const (
	atOnce    = 4 // faults that stand at a time
	mostApart = 1500 * time.Millisecond
)

// plan lays out which fault comes when, to whom, and for how long, from the seed alone, whatever the machine's timing: each comes once before any
// comes twice. At the end of it every fault has ended.
func (c *chaos) plan(rng *rand.Rand, last time.Duration) []*step {
	targets := map[target]int{aWorker: 2, aSpare: 1, aNode: len(c.nodes), aBroker: len(c.cluster.Brokers), theBrokers: 1, aWatch: len(c.watches), anyWatch: 1}
	busy := map[string]time.Duration{} // until when
	var ends []time.Duration           // of those that stand
	var steps []*step
	var left []int // of the faults, until each has come
	for at := time.Second; ; at += time.Duration(rng.Int64N(int64(mostApart))) {
		if len(left) == 0 {
			left = rng.Perm(len(faults))
		}
		n := rng.IntN(len(left))
		f := faults[left[n]]
		i, d := rng.IntN(targets[f.on]), f.least+time.Duration(rng.Int64N(int64(f.most-f.least)))
		if at+d >= last {
			break
		}
		if rng.IntN(3) == 0 {
			steps = append(steps, c.hotStep(rng, at))
		}
		ends = slices.DeleteFunc(ends, func(end time.Duration) bool { return end <= at })
		free := func(p string) bool { return busy[p] <= at }
		if len(ends) >= atOnce || !all(c.parts(f.on, i), free) {
			continue
		}
		left = slices.Delete(left, n, n+1)
		const rest = 300 * time.Millisecond // before the same part has another
		for _, p := range c.parts(f.on, i) {
			busy[p] = at + d + rest
		}
		ends = append(ends, at+d)
		begin := &step{at: at, what: fmt.Sprintf("%s %s", c.nameOf(f.on, i), f.name), do: func() { f.begin(c, i) }}
		if f.on == aNode {
			begin.node = c.nodes[i]
		}
		steps = append(steps, begin, &step{at: at + d, ends: begin, do: func() { f.end(c, i) }})
	}
	slices.SortStableFunc(steps, func(a, b *step) int { return int(a.at - b.at) })
	return steps
}

func all[T any](s []T, ok func(T) bool) bool {
	return !slices.ContainsFunc(s, func(v T) bool { return !ok(v) })
}

// parts are what no two faults may have at a time.
func (c *chaos) parts(on target, i int) []string {
	switch on {
	case aNode:
		return []string{c.nodes[i].name}
	case aBroker, theBrokers:
		return []string{"brokers"} // two of three are needed
	case anyWatch:
		var out []string
		for i := range c.watches {
			out = append(out, fmt.Sprint("watch ", i))
		}
		return out
	case aWatch:
		return []string{fmt.Sprint("watch ", i)}
	case aSpare:
		return []string{"spare"}
	}
	return []string{fmt.Sprint("worker ", i)}
}

func (c *chaos) nameOf(on target, i int) string {
	switch on {
	case aNode:
		return c.nodes[i].name
	case aBroker:
		return fmt.Sprint("broker ", i)
	case theBrokers:
		return "the brokers"
	case aWatch:
		return fmt.Sprintf("etcd (for worker %d)", i)
	case anyWatch:
		return "etcd"
	case aSpare:
		return fmt.Sprint("worker ", c.spare())
	}
	return fmt.Sprint("worker ", i)
}

// hotStep makes a key hot, changes how hot it is, or takes it out of the registry.
func (c *chaos) hotStep(rng *rand.Rand, at time.Duration) *step {
	copies := []int{0, 3, hotMost}[rng.IntN(3)]
	ahead := rng.IntN(2 * window) // in the window, or before it comes
	s := &step{at: at}
	s.do = func() {
		id := min(c.rows, 1+int(c.progress()*float64(c.rows-window))+ahead)
		k := itemKey(max(hotStep, id-id%hotStep))
		c.hot.set(k, copies)
		if copies == 0 {
			c.p.Cool(k)
		} else {
			c.p.Hot(k, copies)
		}
		c.trail.add(event{from: time.Now(), to: time.Now(), what: fmt.Sprintf("hot: %d copies", copies)}, k)
	}
	return s
}

// --- what is done to whom ---

func (c *chaos) spare() int { return len(c.workers) - 1 }

func (c *chaos) startWorker(i int) {
	c.workers[i] = harness.Start(c.t, fmt.Sprint("worker-", i), "run", "--config", c.files[i])
}

// startSpare first waits for the end of the one that was asked to leave before.
func (c *chaos) startSpare(int) {
	if c.workers[c.spare()] != nil {
		c.left(c.spare())
	}
	c.startWorker(c.spare())
}
func (c *chaos) askSpare(int) { c.askWorker(c.spare()) }

func (c *chaos) killWorker(i int) {
	if !c.workers[i].Alive() {
		c.t.Errorf("worker %d has ended by itself", i)
	}
	c.workers[i].Kill()
}
func (c *chaos) freezeWorker(i int) { c.workers[i].Pause() }
func (c *chaos) thawWorker(i int)   { c.workers[i].Continue() }
func (c *chaos) askWorker(i int)    { c.workers[i].Leave() }
func (c *chaos) replaceWorker(i int) {
	c.left(i)
	c.startWorker(i)
}

// left waits for the end of a worker that was asked to leave, which takes 10 s at most on a machine that is not busy.
func (c *chaos) left(i int) {
	const long = 20 * time.Second
	asked := time.Now()
	c.workers[i].Left()
	if took := time.Since(asked); took > long {
		c.t.Errorf("worker %d took %s more to end than its fault lasts; its log:\n%s", i, took, c.workers[i].Log())
	}
}

func (c *chaos) killNode(i int)   { c.nodes[i].Kill() }
func (c *chaos) freezeNode(i int) { c.nodes[i].Freeze() }
func (c *chaos) thawNode(i int)   { c.nodes[i].Thaw() }
func (c *chaos) startNode(i int) {
	c.nodes[i].Start()
	if hit, err := c.nodes[i].Get(probe); err == nil && hit.Found {
		c.stats.warmed.Add(1)
	}
}

// probe is a key that no reader fills: a node that has it has kept its memory.
const probe = "probe"

func (c *chaos) keepNode(i int) {
	if err := c.nodes[i].Set(probe, "here"); err != nil {
		c.t.Errorf("%s: %v", c.nodes[i].name, err)
	}
	c.nodes[i].StopWarm()
}

func (c *chaos) killBroker(i int)   { c.cluster.Brokers[i].Stop() }
func (c *chaos) startBroker(i int)  { c.cluster.Brokers[i].Launch() }
func (c *chaos) freezeBroker(i int) { c.cluster.Brokers[i].Freeze() }
func (c *chaos) thawBroker(i int)   { c.cluster.Brokers[i].Thaw() }
func (c *chaos) killBrokers(int) {
	for i := range c.cluster.Brokers {
		c.killBroker(i)
	}
}

func (c *chaos) startBrokers(int) {
	for i := range c.cluster.Brokers {
		c.startBroker(i)
	}
}

func ofNode(f func(testing.TB, *toxiproxy.Proxy)) func(*chaos, int) {
	return func(c *chaos, i int) {
		f(c.t, c.nodes[i].proxy)
		c.nodes[i].lost.Store(len(c.nodes[i].proxy.Toxics.GetToxicArray()) > 0)
	}
}

func watch(f func(testing.TB, *toxiproxy.Proxy)) func(*chaos, int) {
	return func(c *chaos, i int) { f(c.t, c.watches[i]) }
}

func doors(f func(testing.TB, *toxiproxy.Proxy)) func(*chaos, int) {
	return func(c *chaos, _ int) {
		for _, p := range c.doors {
			f(c.t, p)
		}
	}
}

func watches(f func(testing.TB, *toxiproxy.Proxy)) func(*chaos, int) {
	return func(c *chaos, _ int) {
		for _, p := range c.watches {
			f(c.t, p)
		}
	}
}
