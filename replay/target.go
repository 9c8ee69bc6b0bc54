package replay

import (
	"fmt"
	"strconv"
)

// Target is whose keys are meant: one field is set. Of a flush, Pool and Shard may be set together: the pool's keys in that shard.
type Target struct {
	Shard   string     `json:"shard,omitempty"`
	Node    string     `json:"node,omitempty"` // host:port
	Range   *HashRange `json:"range,omitempty"`
	Pool    string     `json:"pool,omitempty"`
	Mapping string     `json:"mapping,omitempty"` // team/name
	// Gained is of a flush: the epoch of a ring record. Meant are, on each node, the keys that it gained under that record and had under none
	// that is known from before.
	Gained int64 `json:"gained,omitempty"`
}

// HashRange is a part of the ring: hashes h with From < h <= To, wrapping where From >= To.
type HashRange struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Has reports whether a hash lies in it.
func (r HashRange) Has(hash int64) bool {
	if r.From < r.To {
		return r.From < hash && hash <= r.To
	}
	return r.From < hash || hash <= r.To
}

func (t Target) count() int {
	n := 0
	for _, set := range []bool{t.Shard != "", t.Node != "", t.Range != nil, t.Pool != "", t.Mapping != "", t.Gained != 0} {
		if set {
			n++
		}
	}
	return n
}

func (t Target) flushable() bool {
	switch t.count() {
	case 1:
		return t.Pool != "" || t.Node != "" || t.Gained > 0
	case 2:
		return t.Pool != "" && t.Shard != ""
	}
	return false
}

// String names it to people: "shard s00", "pool feed of shard s00".
func (t Target) String() string {
	switch {
	case t.Pool != "" && t.Shard != "":
		return "pool " + t.Pool + " of shard " + t.Shard
	case t.Shard != "":
		return "shard " + t.Shard
	case t.Node != "":
		return "node " + t.Node
	case t.Range != nil:
		return fmt.Sprintf("range %d %d", t.Range.From, t.Range.To)
	case t.Pool != "":
		return "pool " + t.Pool
	case t.Mapping != "":
		return "mapping " + t.Mapping
	case t.Gained != 0:
		return "gained " + strconv.FormatInt(t.Gained, 10)
	}
	return "nothing"
}
