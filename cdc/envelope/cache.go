package envelope

import (
	"maps"
	"sync"
	"sync/atomic"
)

// maxCached bounds each of a Decoder's caches, in entries; a full one starts anew. A fleet has hundreds of tables and
// topics; only records that lie about their table reach the bound.
const maxCached = 4096

// cache is a map that is read without a lock and copied when it grows.
type cache[V any] struct {
	m atomic.Pointer[map[string]V]

	mu sync.Mutex // writers, one at a time
}

func (c *cache[V]) get(key []byte) (v V, ok bool) {
	if m := c.m.Load(); m != nil {
		v, ok = (*m)[string(key)]
	}
	return v, ok
}

// put adds v unless the key is there, and returns what is.
func (c *cache[V]) put(key []byte, v V) V {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.get(key); ok {
		return old
	}
	next := map[string]V{}
	if m := c.m.Load(); m != nil && len(*m) < maxCached {
		next = maps.Clone(*m)
	}
	next[string(key)] = v
	c.m.Store(&next)
	return v
}
