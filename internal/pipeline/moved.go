package pipeline

import (
	"fmt"
	"slices"
	"sync"

	"invalidator/sink"
	"invalidator/sink/registry"
)

// epochMoves is what moved between two ring records.
type epochMoves struct {
	all bool // every text: not all records between the two are known
	*sink.Moves
}

// moved reports whether a key, or one of its hot copies, did.
func (m *epochMoves) moved(key string, hot int) bool { return m.all || m.Moved(key, hot) }

// shards are those that were promoted.
func (m *epochMoves) shards() (ids []string) {
	for _, p := range m.Promoted() {
		ids = append(ids, p.Shard)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// epochName names the debt of what follows from the ring records after a up to b.
func epochName(a, b int64) string { return fmt.Sprintf("%d-%d", a, b) }

// movesBetween compares the records that a view has from epoch a to epoch b.
func movesBetween(v *registry.View, a, b int64) *epochMoves {
	records, whole := v.Between(a, b)
	return &epochMoves{all: !whole, Moves: sink.NewMoves(records)}
}

// movesCache keeps what moved under one topology: all partitions of a worker ask for the same.
type movesCache struct {
	mu       sync.Mutex
	topology *sink.Topology
	by       map[string]*epochMoves
}

// of gives what moved by a debt's name.
func (c *movesCache) of(v *registry.View, name string) *epochMoves {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topology != v.Topology {
		c.topology, c.by = v.Topology, map[string]*epochMoves{}
	}
	m := c.by[name]
	if m == nil {
		var a, b int64
		if n, err := fmt.Sscanf(name, "%d-%d", &a, &b); err != nil || n != 2 {
			b = a - 1 // a name that nobody gave: nothing is known
		}
		m = movesBetween(v, a, b)
		c.by[name] = m
	}
	return m
}
