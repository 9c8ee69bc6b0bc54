package sink

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The kinds of ring: how a client finds a key's server. docs/DESIGN.md has what each needs of a record.
const (
	KindPoints160      = "points160"       // NewRing's
	KindKetama         = "ketama"          // libmemcached: MEMCACHED_BEHAVIOR_KETAMA
	KindKetamaWeighted = "ketama_weighted" // libmemcached: MEMCACHED_BEHAVIOR_KETAMA_WEIGHTED
	KindTwemproxy      = "twemproxy"       // nutcracker with distribution: ketama
	KindModulo         = "modulo"          // gomemcache: crc32 modulo the number of servers
)

// What puts copies where no ring says. A record names it in elsewhere so that it is known; deletes do not reach such copies.
const (
	ElsewhereEject    = "auto_eject_hosts" // twemproxy takes a server out of its ring while that fails
	ElsewhereGutter   = "gutter"           // a pool that stands in for servers that fail
	ElsewhereFailover = "failover"         // mcrouter or a client goes to another server
)

// Record is the ring record that the cluster manager publishes, as ParseRecord reads it. Immutable.
type Record struct {
	Epoch     int64     `json:"epoch"` // from 1 on, rises with every record
	At        time.Time `json:"at,omitzero"`
	Kind      string    `json:"kind"` // left out: KindPoints160
	KeyPrefix string    `json:"key_prefix"`
	Hash      string    `json:"hash,omitempty"`      // of keys: twemproxy's, left out there: fnv1a_64; ketama's, left out there: one_at_a_time
	HashTag   string    `json:"hash_tag,omitempty"`  // twemproxy's hash_tag: two characters, between which the hashed part of a key stands
	Elsewhere []string  `json:"elsewhere,omitempty"` // what else puts copies somewhere: the Elsewhere names
	Shards    []Shard   `json:"shards"`              // modulo: in the clients' order
	Previous  *Previous `json:"previous,omitempty"`  // stands while new shards warm up
}

// Previous is the ring that clients still read after a miss, and that therefore still holds copies.
type Previous struct {
	Epoch  int64   `json:"epoch"`
	Shards []Shard `json:"shards"`
}

// Shard owns a part of the ring.
type Shard struct {
	ID       string    `json:"id"`
	Server   string    `json:"server,omitempty"` // ketama, ketama_weighted, twemproxy: host:port as the clients write it; left out: the primary's
	Name     string    `json:"name,omitempty"`   // twemproxy: the server's name, where its configuration gives one
	Weight   int       `json:"weight"`           // left out: 1
	Primary  Node      `json:"primary"`
	Replicas []Replica `json:"replicas"`
}

// Node is one memcached server.
type Node struct {
	Addr string `json:"addr"` // host:port
	Zone string `json:"zone,omitempty"`
}

// Replica is a node that holds a copy of what a shard's primary holds.
type Replica struct {
	Addr    string `json:"addr"`
	Zone    string `json:"zone,omitempty"`
	Seeding bool   `json:"seeding"` // being filled from another node: values travel from copy to copy
}

// Seeding says that a replica of the record is being filled from another node.
func (r *Record) Seeding() bool {
	return slices.ContainsFunc(r.Shards, func(s Shard) bool {
		return slices.ContainsFunc(s.Replicas, func(r Replica) bool { return r.Seeding })
	})
}

// rings are the shards of the record and, where it stands, of its previous.
func (r *Record) rings() [][]Shard {
	if r.Previous == nil {
		return [][]Shard{r.Shards}
	}
	return [][]Shard{r.Shards, r.Previous.Shards}
}

// eachNode calls f with the primary's address, then with the replicas'.
func (s *Shard) eachNode(f func(addr string)) {
	f(s.Primary.Addr)
	for _, r := range s.Replicas {
		f(r.Addr)
	}
}

// UnmarshalJSONFrom tells a weight left out (1) from a weight of 0 (an error).
func (s *Shard) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	type plain Shard
	p := plain{Weight: 1}
	if err := json.UnmarshalDecode(dec, &p); err != nil {
		return err
	}
	*s = Shard(p)
	return nil
}

// ParseRecord reads a ring record. source names it for a person: a file, an etcd key. It is strict, since a field that is
// misread deletes at the wrong nodes: an unknown or doubled field, trailing text and everything that Validate refuses are
// errors. The error is a *RecordError.
func ParseRecord(source string, data []byte) (*Record, error) {
	var r Record
	if err := decodeStrict(data, &r); err != nil {
		return nil, jsonError(source, data, err)
	}
	if r.Kind == "" {
		r.Kind = KindPoints160
	}
	if e := r.validate(); e != nil {
		e.Source = source
		e.Line = lineOf(data, e.pointer)
		return nil, e
	}
	return &r, nil
}
