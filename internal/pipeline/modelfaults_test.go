package pipeline

import (
	"slices"
	"time"

	"invalidator/internal/changelog"
)

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
	add("ringlag", func() { m.blindFor([]*modelWorker{w}, m.upTo(30*time.Second)) })
	add("pause", m.quietTime)
	for _, f := range modelRingFaults {
		add(f, m.changeRing)
	}
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
	if m.on["copyloss"] && !m.on["alone"] && !m.on["promote"] { // the replica that is about to get a late fill's copy goes down
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
	if m.moves() { // the ring changes around the change, and is seen late
		if m.on["ringlag"] {
			m.blindFor([]*modelWorker{w}, soon(time.Second, 20*time.Second))
		}
		if m.on["down"] && m.on["promote"] {
			m.primaryDies(modelText(key, 0))
		} else {
			m.after(m.upTo(4*time.Second), m.changeRing, false)
		}
		m.after(soon(5*time.Second, 20*time.Second), m.changeRing, false)
	}
	if m.on["hot"] { // readers know of a hot key before the workers do
		for c := range m.clients {
			m.clients[c].hot = len(m.hot) - 1
		}
		for n := range m.hot[len(m.hot)-1][modelText(key, 0)].Copies {
			m.lateFill(modelText(key, n+1))
		}
	}
}

// changeFirst has the ring change before a row does, so that readers fill the old row on the new owners, and workers that have yet to see the record issue
// the change to the old ones alone.
func (m *model) changeFirst() {
	if m.on["skip"] && m.on["pause"] && m.r.IntN(2) == 0 {
		m.skipFirst()
		return
	}
	if m.on["ringlag"] {
		d := 6*time.Second + m.upTo(14*time.Second)
		blind := m.workers
		if m.on["rebalance"] { // the one that sees hands over to one that does not
			blind = blind[m.r.IntN(2):][:1]
			m.after(time.Second+m.upTo(2*time.Second), func() {
				for _, p := range m.parts {
					m.moveTo(p, blind[0])
				}
			}, false)
		}
		m.blindFor(blind, d)
		if m.on["kill"] { // just when they have seen it
			m.after(d+m.upTo(4*time.Second), func() {
				for i := range m.workers {
					m.kill(i)
				}
			}, false)
		}
	}
	m.changeRing()
	m.after(m.upTo(2*time.Second), func() {
		m.clients[0].ring = len(m.rings) - 1
		for _, key := range modelKeys {
			m.lateFill(modelText(key, 0))
		}
	}, false)
	m.after(2*time.Second+m.upTo(3*time.Second), func() { m.carry(m.commit()) }, false)
	if m.on["pause"] && m.r.IntN(2) == 0 {
		m.after(5*time.Second+m.upTo(3*time.Second), func() { m.quietTime(); m.changeRing() }, false)
	} else if m.r.IntN(2) == 0 {
		m.after(m.upTo(15*time.Second), m.changeRing, false)
	}
}

// carry has a reader carry on, around the second round of a change, what another has filled late on an old owner.
func (m *model) carry(keys []string) {
	ring := m.ring()
	for _, key := range keys {
		text := modelText(key, 0)
		now := nodesOf(ring.now, text)
		if ring.old == nil || slices.Equal(nodesOf(ring.old, text), now) {
			continue
		}
		old := nodesOf(ring.old, text)[0]
		m.fills = append(m.fills, &modelFill{node: old, text: text, value: m.row(key), read: time.Now()})
		m.after(modelSettle-300*time.Millisecond+m.upTo(900*time.Millisecond), func() {
			m.fills = append(m.fills, &modelFill{node: now[0], text: text, from: old, value: -1})
		}, false)
	}
}

// skipFirst has a record stand for a while that no worker sees, under which a node may get values that it takes with it, and brings back later.
func (m *model) skipFirst() {
	m.blindFor(m.workers, 6*time.Second)
	m.changeRing()
	m.after(m.upTo(time.Second), func() {
		for _, key := range modelKeys {
			m.lateFill(modelText(key, 0))
		}
	}, false)
	m.after(4*time.Second+m.upTo(time.Second), m.changeRing, false)
	m.after(7*time.Second+m.upTo(2*time.Second), func() { m.commit() }, false)
	m.after(12*time.Second, func() { m.quietTime(); m.changeRing() }, false)
}

// primaryDies has a text's primary die with what it had not passed on of its last deletes, and be replaced later.
func (m *model) primaryDies(text string) {
	at, down := modelSettle+m.upTo(2500*time.Millisecond), 4*time.Second+m.upTo(36*time.Second)
	replaced := at + m.upTo(20*time.Second)
	if m.on["pause"] {
		down, replaced = 2*modelQuiet, at+modelReplica
	}
	m.after(at, func() {
		n := m.nodes[m.owners(text)[0]]
		if n.up && m.r.IntN(2) == 0 {
			m.turn(n)
			n.dead = true
		} else {
			m.downFor(n, down)
		}
	}, false)
	m.after(replaced, func() {
		if m.on["pause"] {
			m.quietTime()
		}
		m.promoteIn(m.shardOf(text))
	}, false)
}

// blindFor cuts workers off from etcd.
func (m *model) blindFor(workers []*modelWorker, d time.Duration) {
	for _, w := range workers {
		w.blind = time.Now().Add(d)
		m.tell("w%d is cut off from etcd", w.id)
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
	if n.up && !n.dead {
		m.turn(n)
		m.after(d, func() { m.turn(n) }, true)
	}
}

// turn stops a node, with its memory, or starts it again. What was on its way to a replica may be lost with either.
func (m *model) turn(n *modelNode) {
	n.up, n.seen = !n.up, time.Now()
	m.tell("%s is up: %v", n.name, n.up)
	if !m.on["copyloss"] || !n.up && !m.watched(n.name) {
		return
	}
	if to := m.ring().copiesTo(n.name); len(to) == 0 {
		delete(m.copying, n.name)
		m.tell("what was on its way to %s is lost", n.name)
	} else if !n.up { // a primary takes with it what it had not passed on
		for _, replica := range to {
			q := m.copying[replica]
			m.copying[replica] = q[:max(0, len(q)-1-m.r.IntN(3))]
		}
		m.tell("what was on its way from %s is lost", n.name)
	}
}

// quietTime is longer than any window: what is only protected by one shows then.
func (m *model) quietTime() {
	m.tell("a quiet time")
	faults := m.faults
	m.faults = false
	for end := time.Now().Add(modelQuiet); time.Now().Before(end); {
		m.step()
	}
	m.faults = faults
}

// modelQuiet is longer than the window of a change of the ring.
const modelQuiet = modelSettle + modelLag + lateBy + clocksDiffer + lineWide + 5*time.Second

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

// move gives a partition to another worker, or the same.
func (m *model) move(p *modelPartition) { m.moveTo(p, m.workers[m.r.IntN(len(m.workers))]) }

// moveTo gives a partition to a worker. The old owner may not know it yet.
func (m *model) moveTo(p *modelPartition, to *modelWorker) {
	for _, w := range m.workers {
		for _, o := range slices.Clone(w.owns) {
			if o.p != p || o.generation != p.generation || m.on["zombie"] && m.r.IntN(5) < 3 {
				continue
			}
			m.writeDown(o, w.w.Revoke([]changelog.Partition{p.id}), m.faults && m.on["breakscommit"] && m.r.IntN(3) == 0)
			w.owns = slices.DeleteFunc(w.owns, func(x *modelOwner) bool { return x == o })
		}
	}
	m.assign(p, to)
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
