package sink

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// KindPoints160 is the only kind of ring so far: NewRing's.
const KindPoints160 = "points160"

// Record is the ring record that the cluster manager publishes, as ParseRecord reads it. Immutable.
type Record struct {
	Epoch     int64     `json:"epoch"` // from 1 on, rises with every record
	At        time.Time `json:"at,omitzero"`
	Kind      string    `json:"kind"` // left out: KindPoints160
	KeyPrefix string    `json:"key_prefix"`
	Shards    []Shard   `json:"shards"`
	Previous  *Previous `json:"previous,omitempty"` // stands while new shards warm up
}

// Previous is the ring that clients still read after a miss, and that therefore still holds copies.
type Previous struct {
	Epoch  int64   `json:"epoch"`
	Shards []Shard `json:"shards"`
}

// Shard owns a part of the ring.
type Shard struct {
	ID       string    `json:"id"`
	Weight   int       `json:"weight"` // left out: 1
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
