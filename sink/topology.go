package sink

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// Topology answers where copies may be, under the ring record that is in force and under those that were in force so lately that what was
// placed under them may still live. Immutable.
//
// A key's hash covers the whole wire key: key_prefix, key and #n. A client that prepends its prefix before its library sees
// the key hashes it so, and so do libraries that treat the prefix as part of the key; libmemcached's namespace is left out
// of the hash unless HASH_WITH_NAMESPACE is set, and such a client needs it set.
type Topology struct {
	record *Record
	today  layout
	ring   *Ring // of record.Shards
	atlas  atlas // today's layout first
	nodes  []string

	primaries, replicas map[string]bool // of today; replicas of today or of previous
	seeding             bool            // as record says
}

// NewTopology makes the topology of the record in force and, in any order, of former ones. It fails with a *RecordError where one is not
// valid; what ParseRecord returned is.
func NewTopology(r *Record, former ...*Record) (*Topology, error) {
	t := &Topology{record: r, primaries: map[string]bool{}, replicas: map[string]bool{}, seeding: r.Seeding()}
	former = slices.SortedStableFunc(slices.Values(former), func(a, b *Record) int { return int(max(-1, min(1, b.Epoch-a.Epoch))) })
	var placements []placement
	distinct := map[string]struct{}{}
	for _, record := range append([]*Record{r}, former...) {
		if err := record.Validate(); err != nil {
			return nil, fmt.Errorf("ring record of epoch %d: %w", record.Epoch, err)
		}
		for _, shards := range record.rings() {
			placements = append(placements, placement{layoutOf(record, shards), shape(record.Kind, shards), shards})
			for i := range shards {
				shards[i].eachNode(func(addr string) { distinct[addr] = struct{}{} })
			}
		}
	}
	t.atlas = newAtlas(placements)
	t.today, t.ring = placements[0].layout, ringFor(r.Kind, r.hash(), r.Shards)
	t.nodes = slices.Sorted(maps.Keys(distinct))
	for _, s := range r.Shards {
		t.primaries[s.Primary.Addr] = true
	}
	for _, shards := range r.rings() {
		for _, s := range shards {
			for _, replica := range s.Replicas {
				t.replicas[replica.Addr] = true
			}
		}
	}
	return t, nil
}

// Record is the record in force, for its zones, times and seeding replicas. Read only.
func (t *Topology) Record() *Record { return t.record }

// Epoch is the record's.
func (t *Topology) Epoch() int64 { return t.record.Epoch }

// KeyPrefix is what clients put before every key; "" for none.
func (t *Topology) KeyPrefix() string { return t.record.KeyPrefix }

// HasPrevious says that a resize is under way: clients read new owners, then old, and may carry values between them.
func (t *Topology) HasPrevious() bool { return t.record.Previous != nil }

// Seeding says that a replica is being filled from another node.
func (t *Topology) Seeding() bool { return t.seeding }

// Nodes are the distinct addresses of all records and their previous ones, sorted. Read only.
func (t *Topology) Nodes() []string { return t.nodes }

// IsPrimary says that node is the primary of a shard today.
func (t *Topology) IsPrimary(node string) bool { return t.primaries[node] }

// IsReplica says that node is a replica of a shard, today or in previous.
func (t *Topology) IsReplica(node string) bool { return t.replicas[node] }

// Names says whether the record, or one that still counts, names the node.
func (t *Topology) Names(node string) bool {
	_, named := slices.BinarySearch(t.nodes, node)
	return named
}

// Locate is the hash of key (without key_prefix, which it adds) and the id of the shard that owns it today. Of a ring of kind modulo the
// hash is the shard's index.
func (t *Topology) Locate(key string) (hash int64, shard string) {
	hash = t.today.place(t.record.KeyPrefix + key)
	return hash, t.record.Shards[t.ring.Owner(hash)].ID
}

// AppendCopies appends every copy of key (without key_prefix, which it adds): the primary and all replicas of its owner under the record in
// force, its previous, and every former record with its previous, for the plain key and for key#1 … key#hot, each placed by its own
// hash. Today's primary of the plain key comes first. It appends no copy twice. It does not judge whether memcached can hold the key:
// CheckKey does.
func (t *Topology) AppendCopies(dst []Copy, key string, hot int) []Copy {
	dst = t.appendOwners(dst, key)
	for n := 1; n <= hot; n++ {
		dst = t.appendOwners(dst, key+"#"+strconv.Itoa(n))
	}
	return dst
}

func (t *Topology) appendOwners(dst []Copy, key string) []Copy {
	first := len(dst)
	for i, c := range t.atlas {
		wire := c.layout.prefix + key
		for _, node := range c.owners(wire) {
			if copied := (Copy{Node: node, Key: wire}); i == 0 || !slices.Contains(dst[first:], copied) {
				dst = append(dst, copied)
			}
		}
	}
	return dst
}
