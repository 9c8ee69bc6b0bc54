//go:build integration

package delivery

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// step is a fault of the plan.
type step struct {
	at    time.Duration
	kind  int // of faults
	what  string
	parts []string
	node  *node
	do    func()
	ends  *step // its beginning, where it is an end
	id    int   // of a beginning in the trail
}

const (
	atOnce    = 6 // faults that stand at a time
	mostApart = 1500 * time.Millisecond

	// The ring changes in the first part of each season. After that no node is lost for a while either. For each change of the ring has what was issued
	// in the half minute before deleted again, each node that is lost what it may have missed, on every copy: what one of them left out is there at the
	// end only where nothing else has it deleted.
	season = time.Minute
	stormy = 22 * time.Second
	still  = replayWindow + time.Second
)

// mayCome says whether the season is one for a fault of so long.
func mayCome(on target, at, lasts time.Duration) bool {
	at %= season
	switch on {
	case aRing, aCarrying:
		return at+lasts <= stormy
	case aNode:
		return at+lasts <= stormy || at >= stormy+still
	}
	return true
}

// plan lays out which fault comes when, to whom, and for how long, from the seed alone, whatever the machine's timing: of those that change the ring, and
// of the others, each comes once before any comes twice. At the end of it every fault has ended.
func (c *chaos) plan(rng *rand.Rand, last time.Duration) []*step {
	targets := map[target]int{aWorker: 2, aSpare: 1, aNode: len(c.nodes), aBroker: len(c.cluster.Brokers), theBrokers: 1, aWatch: len(c.watches), anyWatch: 1, aRing: 1, aCarrying: 1}
	busy := map[string]time.Duration{} // until when
	var ends []time.Duration           // of those that stand
	var steps []*step
	var left [2][]int // of the faults, those that change the ring apart, until each has come
	for at := time.Second; at < last; at += time.Duration(rng.Int64N(int64(mostApart))) {
		which := rng.IntN(2) // most often there is one already that changes the ring
		if len(left[which]) == 0 {
			left[which] = slices.DeleteFunc(rng.Perm(len(faults)), func(kind int) bool { return faults[kind].onRing() != (which == 0) })
		}
		n := rng.IntN(len(left[which]))
		kind := left[which][n]
		f := faults[kind]
		i, d := rng.IntN(targets[f.on]), f.least+time.Duration(rng.Int64N(int64(f.most-f.least)))
		if rng.IntN(3) == 0 {
			steps = append(steps, c.hotStep(rng, at))
		}
		ends = slices.DeleteFunc(ends, func(end time.Duration) bool { return end <= at })
		free := func(p string) bool { return busy[p] <= at }
		if at+d >= last || len(ends) >= atOnce || !mayCome(f.on, at, d) || !all(c.parts(f.on, i), free) {
			continue
		}
		left[which] = slices.Delete(left[which], n, n+1)
		for _, p := range c.parts(f.on, i) {
			busy[p] = at + d + c.rest(f.on)
		}
		ends = append(ends, at+d)
		begin := &step{at: at, kind: kind, parts: c.parts(f.on, i), what: fmt.Sprintf("%s %s", c.nameOf(f.on, i), f.name), do: func() { f.begin(c, i) }}
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

// rest is how long it takes after a fault until the same part may have another.
func (c *chaos) rest(on target) time.Duration {
	const rest = 300 * time.Millisecond
	if on == aCarrying { // a client may have the record of then, and carry on by it
		return rest + ringLag + c.settle
	}
	return rest
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
	case aRing:
		return []string{"ring"}
	case aCarrying:
		return []string{"carrying"}
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
	case aRing, aCarrying:
		return "the ring"
	}
	return fmt.Sprint("worker ", i)
}

// hotStep makes a key hot, changes how hot it is, or takes it out of the registry.
func (c *chaos) hotStep(rng *rand.Rand, at time.Duration) *step {
	copies, ahead := []int{0, 3, hotMost}[rng.IntN(3)], rng.IntN(2*window)
	s := &step{at: at}
	s.do = func() {
		id := c.ahead(ahead)
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
