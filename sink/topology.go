package sink

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Topology answers where copies may be under one ring record. Immutable.
//
// A key's hash covers the whole wire key: key_prefix, key and #n. A client that prepends its prefix before its library sees
// the key hashes it so, and so do libraries that treat the prefix as part of the key; libmemcached's namespace is left out
// of the hash unless HASH_WITH_NAMESPACE is set, and such a client needs it set.
type Topology struct {
	record *Record
	now    placement
	before *placement // under record.Previous; nil without
	nodes  []string
}

// placement is one ring with the nodes of its shards.
type placement struct {
	ring  *Ring
	nodes [][]string // by shard: primary, then replicas
}

// NewTopology fails with a *RecordError where r is not valid; what ParseRecord returned is.
func NewTopology(r *Record) (*Topology, error) {
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("ring record of epoch %d: %w", r.Epoch, err)
	}
	distinct := make(map[string]struct{})
	t := &Topology{record: r, now: place(r.Shards, distinct)}
	if r.Previous != nil {
		before := place(r.Previous.Shards, distinct)
		t.before = &before
	}
	t.nodes = slices.Sorted(maps.Keys(distinct))
	return t, nil
}

func place(shards []Shard, distinct map[string]struct{}) placement {
	p := placement{ring: NewRing(shards), nodes: make([][]string, len(shards))}
	for i, s := range shards {
		p.nodes[i] = append(p.nodes[i], s.Primary.Addr)
		for _, r := range s.Replicas {
			p.nodes[i] = append(p.nodes[i], r.Addr)
		}
		for _, addr := range p.nodes[i] {
			distinct[addr] = struct{}{}
		}
	}
	return p
}

// Record is the record that t was made of, for its zones, times and seeding replicas. Read only.
func (t *Topology) Record() *Record { return t.record }

// Epoch is the record's.
func (t *Topology) Epoch() int64 { return t.record.Epoch }

// KeyPrefix is what clients put before every key; "" for none.
func (t *Topology) KeyPrefix() string { return t.record.KeyPrefix }

// HasPrevious says that a resize is under way: clients read new owners, then old, and may carry values between them.
func (t *Topology) HasPrevious() bool { return t.before != nil }

// Seeding says that a replica is being filled from another node.
func (t *Topology) Seeding() bool { return t.record.Seeding() }

// Nodes are the distinct addresses of the record and its previous, sorted. Read only.
func (t *Topology) Nodes() []string { return t.nodes }

// Locate is the hash of key (without key_prefix, which it adds) and the id of the shard that owns it today.
func (t *Topology) Locate(key string) (hash int64, shard string) {
	hash = Hash(t.record.KeyPrefix + key)
	return hash, t.record.Shards[t.now.ring.Owner(hash)].ID
}

// AppendCopies appends every copy of key (without key_prefix, which it adds): the primary and all replicas of its owner,
// first under the record, then under its previous, for the plain key and for key#1 … key#hot, each placed by its own hash.
// It appends no copy twice. It does not judge whether memcached can hold the key: CheckKey does.
func (t *Topology) AppendCopies(dst []Copy, key string, hot int) []Copy {
	wire := t.record.KeyPrefix + key
	dst = t.appendOwners(dst, wire)
	for n := 1; n <= hot; n++ {
		dst = t.appendOwners(dst, wire+"#"+strconv.Itoa(n))
	}
	return dst
}

func (t *Topology) appendOwners(dst []Copy, wire string) []Copy {
	hash := Hash(wire)
	first := len(dst)
	for _, node := range t.now.nodes[t.now.ring.Owner(hash)] {
		dst = append(dst, Copy{Node: node, Key: wire})
	}
	if t.before == nil {
		return dst
	}
	for _, node := range t.before.nodes[t.before.ring.Owner(hash)] {
		if c := (Copy{Node: node, Key: wire}); !slices.Contains(dst[first:], c) {
			dst = append(dst, c)
		}
	}
	return dst
}
