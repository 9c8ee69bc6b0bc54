package pipeline

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"invalidator/internal/changelog"
	"invalidator/sink"
	"invalidator/sink/registry/registrytest"
)

// modelPartition is what Kafka knows of a partition: who owns it, and what its owners left.
type modelPartition struct {
	id         changelog.Partition
	n          int
	generation int
	offset     int64  // committed
	points     string // the state that the commit names; empty: none
	states     map[string][]byte
	journal    map[[2]string][]byte // by name and owner
	acks       map[modelAck][]modelRound
	clean      map[string]time.Time // by offset and key: since when no copy of it is in a debt
}

// modelAck is which delete of which record.
type modelAck struct {
	offset int64
	copied sink.Copy
}

// modelRound is one acknowledged delete.
type modelRound struct {
	issued, acked time.Time
	late          bool // its change may get one round alone
}

// modelOwner is a worker's ownership of a partition, until it learns that it lost it.
type modelOwner struct {
	p          *modelPartition
	w          *modelWorker
	generation int
	name       string
	next       int64 // offset fetched next
	version    uint64
	offset     int64
	committed  bool
	since      time.Time // of its last commit
}

// modelWorker is one process.
type modelWorker struct {
	id       int
	w        *Worker
	link     *modelLink
	views    *registrytest.Views
	registry *modelRegistry
	blind    time.Time // it does not reach etcd before
	stalled  time.Time // it fetches nothing before
	owns     []*modelOwner
}

// assign gives a partition to a worker, with what the commit points to.
func (m *model) assign(p *modelPartition, w *modelWorker) {
	p.generation++
	o := &modelOwner{p: p, w: w, generation: p.generation, name: fmt.Sprintf("%d/w%d", p.generation, w.id), next: p.offset, since: time.Now()}
	w.owns = slices.DeleteFunc(w.owns, func(o *modelOwner) bool { return o.p == p })
	w.owns = append(w.owns, o)
	var was changelog.Restored
	if p.points != "" {
		was.State = p.states[p.points] // the newest under that key
	}
	keys := slices.SortedFunc(maps.Keys(p.journal), func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	for _, k := range keys {
		was.Journal = append(was.Journal, changelog.JournalRecord{Name: k[0], Value: p.journal[k]})
	}
	if err := Readable(was); err != nil {
		m.t.Fatal(err)
	}
	m.tell("%s goes to w%d at %d, state %s", p.id, w.id, p.offset, was.State)
	w.w.Assign(p.id, p.offset, was)
}

// fetch hands some records over.
func (o *modelOwner) fetch(n int) {
	log := o.p.log(o.w.link.world)
	log.mu.Lock()
	var rs []changelog.Record
	for _, r := range log.records {
		if r.Offset >= o.next && len(rs) < n {
			rs = append(rs, r)
		}
	}
	log.mu.Unlock()
	if len(rs) > 0 {
		o.next = rs[len(rs)-1].Offset + 1
		o.w.w.Records(o.p.id, rs)
	}
}

func (p *modelPartition) log(w *world) *fakeLog { return w.logs[p.n] }

// writeDown commits as the group does: the journal, the state, the offset. A broker that fails does so between two of them.
func (m *model) writeDown(o *modelOwner, progress []changelog.Progress, breaks bool) {
	if len(progress) == 0 {
		return
	}
	pr, p := progress[0], o.p
	if o.committed && pr.Offset == o.offset && pr.Version == o.version {
		return
	}
	kept := pr.Keep()
	for _, r := range kept.Journal {
		p.journal[[2]string{r.Name, o.name}] = r.Value
	}
	p.states[o.name] = kept.State
	if breaks {
		return
	}
	if o.generation != p.generation { // the broker fences
		m.tell("w%d may not commit %d of %s", o.w.id, pr.Offset, p.id)
		return
	}
	o.offset, o.version, o.committed, o.since = pr.Offset, pr.Version, true, time.Now()
	p.offset, p.points = pr.Offset, o.name
	for _, name := range kept.Drop {
		maps.DeleteFunc(p.journal, func(k [2]string, _ []byte) bool {
			return k[0] == name && !(k[1] == o.name && slices.ContainsFunc(kept.Journal, func(r changelog.JournalRecord) bool { return r.Name == name }))
		})
	}
	maps.DeleteFunc(p.states, func(name string, _ []byte) bool { return name != o.name })
	m.tell("w%d commits %d of %s: %s", o.w.id, pr.Offset, p.id, kept.State)
	if !m.moves() {
		m.check(p)
	}
}

// check looks for what must never be: an offset is committed, and below it a copy has neither acknowledged its rounds nor is in a debt of the
// state that the commit points to. And a copy that is older than a change, long after all copies of that are done and in no debt.
func (m *model) check(p *modelPartition) {
	s, err := parseState(p.states[p.points])
	if err != nil {
		m.fail("the state of %s: %v", p.id, err)
		return
	}
	for offset, r := range m.commits[p.n][:p.offset] {
		for _, key := range r.keys {
			id, owed := fmt.Sprintf("%d %s", offset, key), false
			for _, node := range m.owners(modelText(key, 0)) {
				covered := slices.ContainsFunc(s.Debts, func(d Debt) bool {
					return d.Kind == KindNode && d.Name == node && d.From <= int64(offset) && (d.To == nil || int64(offset) < *d.To)
				})
				owed = owed || covered
				a := modelAck{int64(offset), sink.Copy{Node: node, Key: modelText(key, 0)}}
				if !covered && !p.done(a) {
					m.fail("%d of %s is committed; %s of offset %d has had %v and is in no debt of %s", p.offset, p.id, a.copied, offset, p.acks[a], p.states[p.points])
					return
				}
			}
			if _, was := p.clean[id]; owed {
				delete(p.clean, id)
			} else if !was {
				p.clean[id] = time.Now()
			} else {
				m.old(key, r.made[key], time.Since(p.clean[id]))
			}
		}
	}
}

// modelRest is how long after a change is done on all copies an older value may still be about: what a primary has on its way to a replica,
// or a seeder.
const modelRest = modelReplica + modelStall + modelLag + time.Second

// old looks for copies of a key that are older than a version, of which all copies have been done for some time.
func (m *model) old(key string, version int, done time.Duration) {
	if done < modelRest {
		return
	}
	for _, node := range m.owners(modelText(key, 0)) {
		n := m.nodes[node]
		if v, has := n.store[modelText(key, 0)]; has && v < version && n.up && time.Since(n.seen) > modelRest {
			m.fail("%s has held %s at version %d, and that of version %d is done since %s", node, key, v, version, done)
		}
	}
}

// done reports whether a copy has acknowledged all rounds of a record.
func (p *modelPartition) done(a modelAck) bool {
	rounds := p.acks[a]
	for _, first := range rounds {
		if first.late {
			return true // what comes of that, the copies tell at the end
		}
		for _, second := range rounds {
			if !second.issued.Before(first.acked.Add(modelSettle)) {
				return true
			}
		}
	}
	return false
}

// acked notes that a change's delete is acknowledged.
func (w *world) acked(op *modelOp) {
	for _, p := range w.parts {
		if p.id == op.c.t.p.id {
			a := modelAck{op.c.offset, sink.Copy{Node: op.node, Key: op.text}}
			p.acks[a] = append(p.acks[a], modelRound{op.issued, time.Now(), op.c.late && op.round == 1})
		}
	}
}
