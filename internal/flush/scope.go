package flush

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"invalidator/sink"
	"invalidator/sink/registry"
)

// scope is what a job is about: all that one of its requests asks for.
type scope struct {
	pools  map[string]bool // all of their keys, wherever they are
	nodes  map[string]bool // all that is there
	shards []inShard
	gained []int64
}

// inShard are a pool's keys that a shard owns under a record of an epoch, or a later one.
type inShard struct {
	pool, shard string
	epoch       int64
}

// scopeOf puts requests together. epoch is the one of who does not say one: that under which the job began.
func scopeOf(requests []*request, epoch int64) scope {
	s := scope{pools: map[string]bool{}, nodes: map[string]bool{}}
	for _, r := range requests {
		switch t := r.Target; {
		case t.Shard != "":
			since := epoch
			if e := r.epoch(); e > 0 {
				since = e
			}
			s.shards = append(s.shards, inShard{t.Pool, t.Shard, since})
		case t.Pool != "":
			s.pools[t.Pool] = true
		case t.Node != "":
			s.nodes[t.Node] = true
		case t.Gained > 0:
			s.gained = append(s.gained, t.Gained)
		}
	}
	return s
}

// under has the scope say what it means as long as the view stands. claimed are the pools of the mapping files in force.
func (s scope) under(v *registry.View, claimed []string) *sight {
	st := &sight{view: v, scope: s, pools: maps.Clone(s.pools), meant: maps.Clone(s.nodes), prefixes: prefixes(v)}
	for _, in := range s.shards {
		st.addShard(in)
	}
	if len(s.gained) > 0 {
		st.gains = newGains()
		st.claimed = make(map[string]bool, len(claimed))
		for _, pool := range claimed {
			st.claimed[pool] = true
		}
		for _, epoch := range s.gained {
			if r := recordOf(v, epoch); r != nil {
				st.gains.add(r, v.Gained(epoch))
			}
		}
		for node := range st.gains.by {
			st.meant[node] = true
		}
	}
	if len(st.pools) > 0 || st.everywhere {
		for _, node := range v.Topology.Nodes() {
			st.meant[node] = true
		}
	}
	maps.DeleteFunc(st.meant, func(node string, _ bool) bool { return !v.Topology.Names(node) })
	return st
}

// sight is a scope under a view: which nodes it is about, and which of their keys.
type sight struct {
	scope
	view       *registry.View
	pools      map[string]bool // those of scope, and those of which no record says what a shard of theirs is
	rings      []*ring
	gains      *gains
	claimed    map[string]bool
	everywhere bool // values of its shards may have been carried to any node
	meant      map[string]bool
	prefixes   [][]byte
	only       *gains // nil: all of them; else of these copies
}

// ring is a record's ring, in force or previous, and what of it is meant.
type ring struct {
	topology *sink.Topology
	prefix   []byte
	shards   map[string]map[string]bool // by pool
}

// addShard looks for the shard in each record from its epoch on. Where none has it, what it was is not known: it is the whole pool.
func (st *sight) addShard(in inShard) {
	found := false
	records, _ := st.view.Between(in.epoch, st.view.Topology.Epoch())
	for _, r := range records {
		rings := [][]sink.Shard{r.Shards}
		if r.Previous != nil { // clients carry values from owner to owner, whatever shards these are
			rings, st.everywhere = append(rings, r.Previous.Shards), true
		}
		for i, shards := range rings {
			at := slices.IndexFunc(shards, func(s sink.Shard) bool { return s.ID == in.shard })
			if at < 0 {
				continue
			}
			found = true
			st.meant[shards[at].Primary.Addr] = true
			for _, replica := range shards[at].Replicas {
				st.meant[replica.Addr] = true
			}
			st.ring(r, i == 1).add(in)
		}
	}
	if !found {
		st.pools[in.pool] = true
	}
}

func (st *sight) ring(r *sink.Record, previous bool) *ring {
	if previous {
		p := *r
		p.Shards, p.Previous = r.Previous.Shards, nil
		r = &p
	}
	for _, known := range st.rings {
		if k := known.topology.Record(); k.Epoch == r.Epoch && (&k.Shards[0] == &r.Shards[0]) {
			return known
		}
	}
	t, err := sink.NewTopology(r)
	if err != nil {
		panic(err) // the view has the record, so it is valid
	}
	n := &ring{topology: t, prefix: []byte(r.KeyPrefix), shards: map[string]map[string]bool{}}
	st.rings = append(st.rings, n)
	return n
}

func (r *ring) add(in inShard) {
	if r.shards[in.pool] == nil {
		r.shards[in.pool] = map[string]bool{}
	}
	r.shards[in.pool][in.shard] = true
}

func (r *ring) has(wire []byte) bool {
	key, ok := bytes.CutPrefix(wire, r.prefix)
	if !ok {
		return false
	}
	shards := r.shards[string(poolOf(key))]
	if shards == nil {
		return false
	}
	_, shard := r.topology.Locate(string(key))
	return shards[shard]
}

// list are the nodes, those that are a primary today first: what readers ask first is right first.
func (st *sight) list() []string {
	nodes := slices.Sorted(maps.Keys(st.meant))
	if st.only != nil {
		nodes = slices.DeleteFunc(nodes, func(node string) bool { return !st.only.names(node) })
	}
	slices.SortStableFunc(nodes, func(a, b string) int {
		switch p, q := st.view.Topology.IsPrimary(a), st.view.Topology.IsPrimary(b); {
		case p == q:
			return 0
		case p:
			return -1
		}
		return 1
	})
	return nodes
}

// filter is a first look at the texts of a node: what it leaves out is not meant. It is asked for each key of a dump, which must not wait; where sure is false, has decides later.
func (st *sight) filter(node string) (f *filter, sure bool) {
	f = &filter{all: st.nodes[node], prefixes: st.prefixes, pools: maps.Clone(st.pools)}
	for _, r := range st.rings {
		for pool := range r.shards {
			f.pools[pool] = true
		}
	}
	gained := st.gains != nil && st.gains.names(node)
	if gained {
		maps.Copy(f.pools, st.claimed)
	}
	for _, prefix := range f.prefixes {
		for pool := range f.pools {
			f.heads = append(f.heads, append(slices.Clone(prefix), pool...))
		}
	}
	return f, st.only == nil && (f.all || !gained && len(st.rings) == 0)
}

// filter knows texts by their pools.
type filter struct {
	all      bool
	heads    [][]byte // prefix and pool of each
	prefixes [][]byte
	pools    map[string]bool
}

// fewHeads is up to how many each is looked at.
const fewHeads = 8

func (f *filter) has(wire []byte) bool {
	if f.all {
		return true
	}
	if len(f.heads) <= fewHeads {
		for _, head := range f.heads {
			if bytes.HasPrefix(wire, head) && endsPool(wire[len(head):]) {
				return true
			}
		}
		return false
	}
	for _, prefix := range f.prefixes {
		if key, ok := bytes.CutPrefix(wire, prefix); ok && f.pools[string(poolOf(key))] {
			return true
		}
	}
	return false
}

// head is what all texts begin with that pass.
func (f *filter) head() []byte {
	if f.all || len(f.heads) != 1 {
		return nil
	}
	return f.heads[0]
}

// endsPool says whether a pool's name ends where rest begins: at a colon, at the key's end, or at the #n of a hot copy of such a key.
func endsPool(rest []byte) bool {
	switch {
	case len(rest) == 0 || rest[0] == ':':
		return true
	case rest[0] != '#' || len(rest) == 1:
		return false
	}
	return len(bytes.TrimLeft(rest[1:], "0123456789")) == 0
}

// has says whether a text that a node holds is meant.
func (st *sight) has(node string, wire []byte) bool {
	if !st.inScope(node, wire) {
		return false
	}
	return st.only == nil || st.only.has(node, wire)
}

func (st *sight) inScope(node string, wire []byte) bool {
	if st.nodes[node] {
		return true
	}
	for _, prefix := range st.prefixes {
		key, ok := bytes.CutPrefix(wire, prefix)
		if !ok {
			continue
		}
		pool := poolOf(key)
		if st.pools[string(pool)] || st.claimed[string(pool)] && st.gains.has(node, wire) {
			return true
		}
	}
	return slices.ContainsFunc(st.rings, func(r *ring) bool { return r.has(wire) })
}

// share is about how much of all copies it means, for how finely it is cut: at most 1.
func (st *sight) share() float64 {
	part, of := len(st.meant), len(st.view.Topology.Nodes())
	if len(st.shards) > 0 && len(st.pools) == 0 {
		shards := map[string]bool{}
		for _, in := range st.shards {
			shards[in.shard] = true
		}
		part, of = len(shards), len(st.view.Topology.Record().Shards)
	}
	return min(1, float64(part)/float64(of))
}

// firstAsked says of a text whether its owner today has the node for its primary: of a key's copies, the one that its readers ask first. It is for any goroutine.
func (st *sight) firstAsked(node string) func(wire string) bool {
	r, shards := st.view.Topology.Record(), map[string]bool{}
	for _, s := range r.Shards {
		if s.Primary.Addr == node {
			shards[s.ID] = true
		}
	}
	return func(wire string) bool {
		key, ok := strings.CutPrefix(wire, r.KeyPrefix)
		if !ok || len(shards) == 0 {
			return false
		}
		_, id := st.view.Topology.Locate(key)
		return shards[id]
	}
}

// prefixes are the key prefixes of the records that a view knows.
func prefixes(v *registry.View) (list [][]byte) {
	seen := map[string]bool{}
	for _, s := range v.Sights {
		if p := s.Record.KeyPrefix; !seen[p] {
			seen[p] = true
			list = append(list, []byte(p))
		}
	}
	return list
}

func recordOf(v *registry.View, epoch int64) *sink.Record {
	for _, s := range v.Sights {
		if s.Record.Epoch == epoch {
			return s.Record
		}
	}
	return nil
}

// poolOf is the first segment of a key, without #n where it is the whole key of a hot copy.
func poolOf(key []byte) []byte {
	if i := bytes.IndexByte(key, ':'); i >= 0 {
		return key[:i]
	}
	if i := bytes.LastIndexByte(key, '#'); i > 0 && endsPool(key[i:]) {
		return key[:i]
	}
	return key
}

// gains are copies that nodes gained, by node.
type gains struct {
	by map[string][]gain
}

// gain is what a node gained under one record.
type gain struct {
	record *sink.Record
	ranges []sink.HashRange // as sink.Gains has them: in order, of which the first may wrap
}

func newGains() *gains { return &gains{map[string][]gain{}} }

func (g *gains) add(r *sink.Record, list []sink.Gain) {
	for _, one := range list {
		g.by[one.Node] = append(g.by[one.Node], gain{r, one.Ranges})
	}
}

// gainsSince are the copies that nodes may have under the records behind an epoch and had under none up to it.
func gainsSince(v *registry.View, epoch int64) *gains {
	g := newGains()
	before, _ := v.Between(0, epoch)
	behind, _ := v.Between(epoch+1, v.Topology.Epoch())
	for _, r := range behind {
		g.add(r, sink.Gains(r, before))
	}
	return g
}

func (g *gains) names(node string) bool { return len(g.by[node]) > 0 }

func (g *gains) has(node string, wire []byte) bool {
	return slices.ContainsFunc(g.by[node], func(one gain) bool {
		place := one.record.Place(string(wire))
		i, _ := slices.BinarySearchFunc(one.ranges, place, func(r sink.HashRange, place int64) int {
			if r.To < place {
				return -1
			}
			return 1
		})
		return i < len(one.ranges) && one.ranges[i].Has(place) || one.ranges[0].Has(place)
	})
}

// target names what requests ask for, to people: what the first does.
func target(requests []*request) string { return requests[0].Target.String() }
