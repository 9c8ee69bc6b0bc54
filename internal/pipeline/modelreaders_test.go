package pipeline

import (
	"slices"
	"time"
)

// modelClient is a process that reads: which records it has.
type modelClient struct {
	ring int // of world.rings
	hot  int // revision
}

// learn has a client see what is new: a ring record within modelLagOfClients, hot keys at once; an old client hot keys when it may.
func (c *modelClient) learn(w *world) {
	old := w.on["oldclient"] && w.faults
	if !old || w.r.Float64() < 0.02 {
		c.hot, c.ring = len(w.hot)-1, len(w.rings)-1
	}
	for c.ring < len(w.rings)-1 && time.Since(w.rings[c.ring+1].at) > modelLagOfClients-200*time.Millisecond {
		c.ring++
	}
}

// modelFill is a reader between its miss and its set, or a seeder between its read and its write. One that carries looks at an old owner before it
// reads the row.
type modelFill struct {
	node, text string
	from       string // the old owner, or whom a seeder reads; empty: none
	token      int    // 0: without a lease
	value      int    // -1: not read yet
	read       time.Time
}

// lateFill is a reader that has read a row just before a commit shows.
func (w *world) lateFill(text string) {
	w.fills = append(w.fills, &modelFill{node: w.owners(text)[0], text: text, value: w.row(modelKeyOf(text)), read: time.Now()})
}

// read has a client read a key: a miss begins a fill.
func (w *world) read() {
	c := &w.clients[w.r.IntN(len(w.clients))]
	key := w.key()
	text := modelText(key, w.r.IntN(w.hot[c.hot][modelText(key, 0)].Copies+1))
	ring := w.rings[c.ring]
	nodes := nodesOf(ring.now, text)
	node := nodes[0]
	if w.on["replicaread"] && w.r.Float64() < 0.4 {
		node = nodes[len(nodes)-1]
	}
	n := w.nodes[node]
	if _, has := n.store[text]; has || !n.up {
		return
	}
	f := &modelFill{node: node, text: text, value: -1}
	if ring.old != nil {
		if old := nodesOf(ring.old, text); !slices.Equal(old, nodes) {
			f.from = old[0]
			if w.on["replicaread"] {
				f.from = old[w.r.IntN(len(old))]
			}
		}
	}
	if w.on["lease"] && w.r.IntN(2) == 0 {
		if n.lease[text] != 0 {
			return
		}
		w.tokens++
		f.token, n.lease[text] = w.tokens, w.tokens
	}
	w.fills = append(w.fills, f)
}

// fill goes a step on, and reports whether it is over.
func (w *world) fill(f *modelFill) bool {
	if f.value < 0 {
		f.read = time.Now()
		if from := w.nodes[f.from]; from != nil && from.up {
			if v, has := from.store[f.text]; has {
				w.tell("a reader carries %s = %d from %s to %s", f.text, v, f.from, f.node)
				f.value = v
				return false
			}
		}
		f.value = w.row(modelKeyOf(f.text))
		return false
	}
	if n := w.nodes[f.node]; n.up && (f.token == 0 || n.lease[f.text] == f.token) {
		w.put(n, f.text, f.value, "fill")
	}
	return true
}

// modelSeed is a replica that is filled from its primary.
type modelSeed struct {
	from, to string
	epoch    int64 // from which on it may copy: all workers have seen that it will
	texts    []string
	until    time.Time // it is over no sooner
}

// seedSome has the copiers that fill replicas read one value more. seen is the least epoch that a worker has in sight.
func (w *world) seedSome(seen int64) {
	for i := range w.seeds {
		s := &w.seeds[i]
		if s.epoch > seen || len(s.texts) == 0 || w.r.IntN(8) > 0 {
			continue
		}
		text := s.texts[0]
		s.texts = s.texts[1:]
		from := w.nodes[s.from]
		if v, has := from.store[text]; has && from.up {
			w.tell("a seeder reads %s = %d from %s", text, v, from.name)
			w.fills = append(w.fills, &modelFill{node: s.to, text: text, value: v, read: time.Now()})
		}
	}
	for i, s := range w.seeds {
		if len(s.texts) == 0 && time.Now().After(s.until) {
			w.seeds = slices.Delete(w.seeds, i, i+1)
			w.publish(w.ring().shards, w.ring().previous, "", s.to+" is seeded")
			return
		}
	}
}

// beginSeeding has a replica begin empty, and filled.
func (w *world) beginSeeding() {
	ring := w.ring()
	nodes := ring.shards[w.shardOf(modelText(w.key(), 0))]
	if ring.seeding != "" || ring.previous != nil || len(w.seeds) > 0 || len(nodes) < 2 {
		return
	}
	from, replica := nodes[0], w.nodes[nodes[1]] // a fresh one
	clear(replica.store)
	clear(replica.lease)
	delete(w.copying, replica.name)
	w.publish(ring.shards, nil, replica.name, replica.name+" is to be seeded")
	s := modelSeed{from: from, to: replica.name, epoch: w.ring().epoch, until: time.Now().Add(2*time.Second + w.upTo(8*time.Second))}
	for _, k := range modelKeys {
		for n := range modelHot + 1 {
			if text := modelText(k, n); slices.Contains(nodesOf(ring.now, text), replica.name) {
				s.texts = append(s.texts, text)
			}
		}
	}
	w.r.Shuffle(len(s.texts), func(i, j int) { s.texts[i], s.texts[j] = s.texts[j], s.texts[i] })
	w.seeds = append(w.seeds, s)
}
