//go:build integration

package delivery

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"invalidator/sink"
)

// manager is a cluster manager. It publishes ring records, as a person or a monitor tells it to, from the goroutine that makes the faults.
//
// What it keeps to: while previous stands, or clients may still have a record under which it did, it begins no other resize and has no replica
// seeded, nor the other way round (the plan sees to that). Under every record it changes what stands under previous as well, where a node of it is
// another now.
type manager struct {
	c      *chaos
	rng    *rand.Rand
	record sink.Record // that was published last
	base   int         // shards that are always there
	skip   bool        // the next record leaves an epoch out

	demoted []place // former primaries that are to come back as replicas
	left    []place // what a node that left had
	seeder  *seeder // nil: no replica is being seeded

	records, promoted, most int // that were published; shards in all; shards in one step
}

// place is a node's in a shard.
type place struct {
	shard string
	node  *node
}

func newManager(c *chaos) *manager {
	first := c.rings.newest()
	return &manager{c: c, rng: c.rand(), record: first.Record, base: len(first.Shards)}
}

// resizeStep is how many shards come, or go, at once.
const resizeStep = 8

// publish writes the next record. change changes what is a copy of the last one, and says why, or that there is nothing to be done.
func (m *manager) publish(change func(r *sink.Record) (why string, any bool)) {
	r := m.record
	r.Shards = cloned(r.Shards)
	if r.Previous != nil {
		r.Previous = &sink.Previous{Epoch: r.Previous.Epoch, Shards: cloned(r.Previous.Shards)}
	}
	r.Epoch++
	if m.skip {
		r.Epoch++
	}
	why, any := change(&r)
	if !any {
		return
	}
	const skew = 10 * time.Second // of the manager's clock
	r.Kind, r.At = sink.KindPoints160, time.Now().Add(time.Duration(m.rng.Int64N(int64(2*skew)))-skew)
	m.c.publish(r, why)
	m.record, m.skip = r, false
	m.records++
}

func cloned(shards []sink.Shard) []sink.Shard {
	out := slices.Clone(shards)
	for i := range out {
		out[i].Replicas = slices.Clone(out[i].Replicas)
	}
	return out
}

// --- who may take whose place ---

// free are the nodes of no shard, that answer.
func (m *manager) free() []*node {
	free := slices.DeleteFunc(slices.Clone(m.c.nodes), func(n *node) bool { return m.has(n) || !n.away.IsZero() })
	m.rng.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	return free
}

// has says whether a node is in any shard.
func (m *manager) has(n *node) bool { return m.c.has(&m.record, n) }

// heir is the replica of a shard that may be its primary next; nil: none.
func (m *manager) heir(s *sink.Shard) *node {
	for i, r := range s.Replicas {
		if n := m.c.nodesOf(s)[i+1]; !r.Seeding && n.away.IsZero() {
			return n
		}
	}
	return nil
}

// choose takes one at random, mostly of those that something is wrong with.
func choose[T any](m *manager, all []T, wrong func(T) bool) (one T, ok bool) {
	if len(all) == 0 {
		return one, false
	}
	if bad := slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !wrong(v) }); len(bad) > 0 && m.rng.IntN(4) > 0 {
		all = bad
	}
	return all[m.rng.IntN(len(all))], true
}

func wrong(n *node) bool { return !n.away.IsZero() || n.lost.Load() }

// heirs are the shards that can be promoted.
func (m *manager) heirs() []*sink.Shard {
	var out []*sink.Shard
	for i := range m.record.Shards {
		if s := &m.record.Shards[i]; m.heir(s) != nil {
			out = append(out, s)
		}
	}
	return out
}

func (m *manager) primaryWrong(s *sink.Shard) bool { return wrong(m.c.byAddr[s.Primary.Addr]) }

// --- what it does to a record ---

// promote has the heirs of shards take their primaries' places. keep says that these stay as replicas.
func (m *manager) promote(r *sink.Record, ids []string, keep bool) {
	lagged := map[[2]*node][]string{}
	for _, id := range ids {
		i := slices.IndexFunc(r.Shards, func(s sink.Shard) bool { return s.ID == id })
		former, heir := m.c.byAddr[r.Shards[i].Primary.Addr], m.heir(&r.Shards[i])
		lagged[[2]*node{former, heir}] = append(lagged[[2]*node{former, heir}], id)
		for _, shards := range lists(r) {
			for i := range shards {
				if s := &shards[i]; s.ID == id && s.Primary.Addr == former.addr() {
					turn(s, former, heir, keep)
				}
			}
		}
		if !keep {
			m.demoted = append(m.demoted, place{id, former})
		}
	}
	for pair, ids := range lagged {
		m.c.lagBehind(pair[0], pair[1], ids, m.rng)
	}
	m.promoted, m.most = m.promoted+len(ids), max(m.most, len(ids))
}

// turn makes a node the primary of a shard, whose former primary stays as a replica or goes.
func turn(s *sink.Shard, former, heir *node, keep bool) {
	s.Primary = heir.asPrimary()
	drop(s, heir)
	if keep {
		s.Replicas = append(s.Replicas, former.asReplica())
	}
}

// drop takes a node out of a shard's replicas.
func drop(s *sink.Shard, n *node) {
	s.Replicas = slices.DeleteFunc(s.Replicas, func(r sink.Replica) bool { return r.Addr == n.addr() })
}

// join makes nodes replicas of shards that have room for them.
func (m *manager) join(back []place, why string) {
	const mostReplicas = 2
	m.publish(func(r *sink.Record) (_ string, any bool) {
		for _, p := range back {
			for i := range r.Shards {
				s := &r.Shards[i]
				if s.ID == p.shard && len(s.Replicas) < mostReplicas && !slices.Contains(m.c.nodesOf(s), p.node) {
					s.Replicas, any = append(s.Replicas, p.node.asReplica()), true
				}
			}
		}
		return why, any
	})
}

// --- the faults of a plan that are its doing ---

// promoteOne has a shard's replica take the place of its primary, which goes. backAsReplica has that come back with its memory.
func (m *manager) promoteOne() {
	m.publish(func(r *sink.Record) (string, bool) {
		s, ok := choose(m, m.heirs(), m.primaryWrong)
		if ok {
			m.promote(r, []string{s.ID}, false)
		}
		return "a promotion", ok
	})
}

func (m *manager) backAsReplica() {
	m.join(m.demoted, "a former primary comes back")
	m.demoted = nil
}

// promoteZone has the replicas in the other zone take the places of all primaries of one.
func (m *manager) promoteZone() {
	by := map[string][]string{}
	for _, s := range m.heirs() {
		by[s.Primary.Zone] = append(by[s.Primary.Zone], s.ID)
	}
	ids := by[zones[0]]
	if len(by[zones[1]]) > len(ids) {
		ids = by[zones[1]]
	}
	m.publish(func(r *sink.Record) (string, bool) {
		m.promote(r, ids, true)
		return "a zone is lost", len(ids) > 0
	})
}

// promoteTwice promotes a shard's replica, and at once the former primary again.
func (m *manager) promoteTwice() {
	both := slices.DeleteFunc(m.heirs(), func(s *sink.Shard) bool { return !m.c.byAddr[s.Primary.Addr].away.IsZero() })
	s, ok := choose(m, both, m.primaryWrong)
	if !ok {
		return
	}
	id := s.ID
	for range 2 {
		m.publish(func(r *sink.Record) (string, bool) {
			m.promote(r, []string{id}, true)
			return "one of two promotions", true
		})
	}
}

// replace has a node that is in no shard take all places of one that is.
func (m *manager) replace() {
	free := m.free()
	used := slices.DeleteFunc(slices.Clone(m.c.nodes), func(n *node) bool { return !m.has(n) })
	gone, ok := choose(m, used, wrong)
	if !ok || len(free) == 0 {
		return
	}
	m.publish(func(r *sink.Record) (string, bool) {
		for _, shards := range lists(r) {
			for i := range shards {
				s := &shards[i]
				if s.Primary.Addr == gone.addr() {
					s.Primary = free[0].asPrimary()
				}
				for j := range s.Replicas {
					if s.Replicas[j].Addr == gone.addr() {
						s.Replicas[j].Addr, s.Replicas[j].Zone = free[0].addr(), free[0].zone
					}
				}
			}
		}
		return fmt.Sprintf("%s in place of %s", free[0].name, gone.name), true
	})
}

// leave takes a node out of all shards: what it was the primary of, its replicas are. comeBack has it back as a replica, with its memory.
func (m *manager) leave() {
	var may []*node
	for _, n := range m.c.nodes {
		orphan := slices.ContainsFunc(lists(&m.record), func(shards []sink.Shard) bool {
			return slices.ContainsFunc(shards, func(s sink.Shard) bool { return s.Primary.Addr == n.addr() && m.heir(&s) == nil })
		})
		if m.has(n) && !orphan {
			may = append(may, n)
		}
	}
	gone, ok := choose(m, may, wrong)
	if !ok {
		return
	}
	m.publish(func(r *sink.Record) (string, bool) {
		var orphans []string
		for i := range r.Shards {
			if s := &r.Shards[i]; slices.Contains(m.c.nodesOf(s), gone) {
				m.left = append(m.left, place{s.ID, gone})
				if s.Primary.Addr == gone.addr() {
					orphans = append(orphans, s.ID)
				}
			}
		}
		m.promote(r, orphans, false)
		m.demoted = slices.DeleteFunc(m.demoted, func(p place) bool { return p.node == gone })
		for _, shards := range lists(r) {
			for i := range shards {
				s := &shards[i]
				if s.Primary.Addr == gone.addr() { // under previous alone
					turn(s, gone, m.heir(s), false)
				}
				drop(s, gone)
			}
		}
		return gone.name + " goes", true
	})
}

func (m *manager) comeBack() {
	m.join(m.left, "a node is back")
	m.left = nil
}

// resize begins to have eight shards more, or eight fewer. resized ends it.
func (m *manager) resize() {
	m.publish(func(r *sink.Record) (string, bool) {
		r.Previous = &sink.Previous{Epoch: m.record.Epoch, Shards: cloned(r.Shards)}
		if len(r.Shards) > m.base {
			r.Shards = r.Shards[:m.base]
			return "eight shards go", true
		}
		nodes := m.free()
		nodes = nodes[:min(2, len(nodes))]
		for _, i := range m.rng.Perm(len(m.c.nodes)) { // a node may have more than one shard
			if n := m.c.nodes[i]; len(nodes) < 2 && n.away.IsZero() && !slices.Contains(nodes, n) {
				nodes = append(nodes, n)
			}
		}
		if len(nodes) < 2 {
			return "", false
		}
		for i := range resizeStep {
			r.Shards = append(r.Shards, shardOn(shardID(m.base+i), nodes[i%2], nodes[1-i%2]))
		}
		return "eight shards come", true
	})
}

func (m *manager) resized() {
	m.publish(func(r *sink.Record) (string, bool) {
		r.Previous = nil
		return "a resize ends", m.record.Previous != nil
	})
}

// seed has a shard get another replica, which somebody fills from the primary. seeded ends it.
func (m *manager) seed() {
	s := m.record.Shards[m.rng.IntN(len(m.record.Shards))]
	nodes := m.free()
	for _, i := range m.rng.Perm(len(m.c.nodes)) {
		if n := m.c.nodes[i]; n.away.IsZero() && !slices.Contains(m.c.nodesOf(&s), n) {
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return
	}
	m.publish(func(r *sink.Record) (string, bool) {
		of := &r.Shards[slices.IndexFunc(r.Shards, func(x sink.Shard) bool { return x.ID == s.ID })]
		if len(of.Replicas) > 1 {
			of.Replicas = of.Replicas[1:]
		}
		replica := nodes[0].asReplica()
		replica.Seeding = true
		of.Replicas = append(of.Replicas, replica)
		return nodes[0].name + " is seeded", true
	})
	var rngs [seeders]*rand.Rand
	for i := range rngs {
		rngs[i] = m.c.rand()
	}
	m.seeder = m.c.beginSeeding(m.c.t.Context(), s.ID, rngs)
	m.c.t.Cleanup(m.seeder.stop)
}

func (m *manager) seeded() {
	if m.seeder == nil {
		return
	}
	for i := range m.record.Shards {
		if s := &m.record.Shards[i]; s.ID == m.seeder.id {
			for _, n := range m.c.nodesOf(s) {
				n.Thaw() // who copies waits for it, and the plan, which would thaw it, for who copies
			}
		}
	}
	m.seeder.stop()
	m.seeder = nil
	m.publish(func(r *sink.Record) (why string, any bool) {
		for i := range r.Shards {
			for j := range r.Shards[i].Replicas {
				any = any || r.Shards[i].Replicas[j].Seeding
				r.Shards[i].Replicas[j].Seeding = false
			}
		}
		return "a replica has been seeded", any
	})
}

// skipEpoch leaves an epoch out. The record that it had was seen by no worker, and by clients, which have filled a node under it that was in no
// shard: when a later record has that node, it has old values.
func (m *manager) skipEpoch() {
	const filled = 60
	if free := m.free(); len(free) > 0 {
		for range filled {
			k := m.c.keys[itemKey(m.c.ahead(m.rng.IntN(2*window)))]
			f := fill{reader: "a client with the record that nobody saw", key: k, name: k.text, node: free[0], from: time.Now()}
			var err error
			if f.value, err = m.c.render(context.Background(), k); err != nil {
				m.c.t.Error(err)
			}
			if m.c.fill(f) {
				m.c.stats.unseen.Add(1)
			}
		}
	}
	m.skip = true
	m.publish(func(*sink.Record) (string, bool) { return "an epoch is left out", true })
}
