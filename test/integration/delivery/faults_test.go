//go:build integration

package delivery

import (
	"fmt"
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
	aRing      // the ring record, as the cluster manager changes it
	aCarrying  // the same, where clients or a copier carry values from copy to copy meanwhile
)

// fault is something that happens to a target and ends after a while. begin and end must not wait for long: faults cross.
type fault struct {
	name        string
	on          target
	least, most time.Duration
	begin, end  func(c *chaos, i int)
}

// onRing says whether it changes the ring.
func (f fault) onRing() bool { return f.on == aRing || f.on == aCarrying }

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
	{"has a shard promoted", aRing, time.Second, 10 * time.Second, ofRing((*manager).promoteOne), ofRing((*manager).backAsReplica)},
	{"has a zone promoted", aRing, time.Second, 5 * time.Second, ofRing((*manager).promoteZone), ofRing((*manager).promoteOne)},
	{"has a shard promoted twice", aRing, time.Second, 5 * time.Second, ofRing((*manager).promoteTwice), ofRing(nothing)},
	{"has a node replaced", aRing, time.Second, 5 * time.Second, ofRing((*manager).replace), ofRing(nothing)},
	{"has a node leave", aRing, 2 * time.Second, 12 * time.Second, ofRing((*manager).leave), ofRing((*manager).comeBack)},
	{"leaves an epoch out", aRing, time.Second, 3 * time.Second, ofRing((*manager).skipEpoch), ofRing((*manager).replace)},
	{"is resized", aCarrying, 4 * time.Second, 14 * time.Second, ofRing((*manager).resize), ofRing((*manager).resized)},
	{"has a replica seeded", aCarrying, 3 * time.Second, 10 * time.Second, ofRing((*manager).seed), ofRing((*manager).seeded)},
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

func (c *chaos) killNode(i int) {
	c.nodes[i].away = time.Now()
	c.nodes[i].Kill()
}

func (c *chaos) freezeNode(i int) {
	c.nodes[i].away = time.Now()
	c.nodes[i].Freeze()
}

func (c *chaos) thawNode(i int) {
	c.nodes[i].Thaw()
	c.nodes[i].away = time.Time{}
}

func (c *chaos) startNode(i int) {
	c.nodes[i].Start()
	c.nodes[i].away = time.Time{}
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
	c.nodes[i].away = time.Now()
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

func ofRing(f func(*manager)) func(*chaos, int) { return func(c *chaos, _ int) { f(c.manager) } }

func nothing(*manager) {}
