package memcachetest

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// item is what a key holds. An item is replaced or marked under the store's lock; its value is never written to.
type item struct {
	value   []byte
	flags   uint32
	cas     uint64
	expires time.Time // zero: never
	won     bool      // somebody was told to refill it (W); others are told to wait (Z)
	stale   bool      // marked by md … I (X)
	base64  bool      // its key was sent in base64: mg … k shows it so
	fetched bool      // somebody asked for it since it was written
	touched time.Time // when it was written
}

// ttl is what `t` shows: whole seconds left, -1 for never.
func (it *item) ttl() int {
	if it.expires.IsZero() {
		return -1
	}
	return int(time.Until(it.expires).Round(time.Second) / time.Second)
}

type store struct {
	mu    sync.Mutex
	items map[string]*item
	cas   uint64 // the last one given
	noCAS bool   // every item's is 0
}

func newStore(cas bool) *store { return &store{items: make(map[string]*item), noCAS: !cas} }

// verdict is how a change of the store ended.
type verdict int

const (
	done     verdict = iota
	notFound         // NF, NOT_FOUND
	exists           // EX, EXISTS: another CAS
	refused          // NS, NOT_STORED
)

// live returns the item unless it has expired. Called under the lock.
func (st *store) live(key string) *item {
	it := st.items[key]
	if it != nil && !it.expires.IsZero() && !time.Now().Before(it.expires) {
		delete(st.items, key)
		return nil
	}
	return it
}

func (st *store) nextCAS() uint64 {
	if st.noCAS {
		return 0
	}
	st.cas++
	return st.cas
}

// get returns a copy of the item, for a client.
func (st *store) get(key string) (item, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	it := st.live(key)
	if it == nil {
		return item{}, false
	}
	it.fetched = true
	return *it, true
}

// peek is get without a trace.
func (st *store) peek(key string) (item, bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	it := st.live(key)
	if it == nil {
		return item{}, false
	}
	return *it, true
}

// keys returns all of them.
func (st *store) keys() []string {
	st.mu.Lock()
	defer st.mu.Unlock()
	return slices.Collect(maps.Keys(st.items))
}

// lease is mg: on a miss with vivify an empty placeholder takes the key. won is true for the one client that shall refill the
// item; for others the copy itself says that somebody does (won) or should (stale).
func (st *store) lease(key string, vivify bool, expires time.Time) (_ item, won, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	it := st.live(key)
	switch {
	case it == nil && !vivify:
		return item{}, false, false
	case it == nil:
		it = &item{cas: st.nextCAS(), expires: expires, touched: time.Now()}
		st.items[key] = it
		won = true
	case it.stale && !it.won:
		won = true
	}
	seen := *it
	it.won = it.won || won
	it.fetched = true
	return seen, won, true
}

// update is a set of any kind.
type update struct {
	value   []byte
	flags   uint32
	expires time.Time
	add     bool    // only where there is none
	replace bool    // only where there is one
	cas     *uint64 // only over this one
	base64  bool    // the key was sent so
	late    bool    // an older cas is taken too, but leaves the item as stale as it is (ms … I)
}

func (st *store) set(key string, u update) (cas uint64, v verdict) {
	st.mu.Lock()
	defer st.mu.Unlock()
	old := st.live(key)
	fresh := &item{value: u.value, flags: u.flags, expires: u.expires, base64: u.base64, touched: time.Now()}
	switch {
	case old == nil && u.cas != nil:
		return 0, notFound
	case old == nil && u.replace, old != nil && u.add:
		return 0, refused
	case u.cas == nil || *u.cas == old.cas && !st.noCAS:
	case u.late && *u.cas < old.cas:
		fresh.stale, fresh.won, fresh.expires = true, old.won, old.expires
	default:
		return 0, exists
	}
	fresh.cas = st.nextCAS()
	st.items[key] = fresh
	return fresh.cas, done
}

// removal is a delete, or with mark the making stale, of an item.
type removal struct {
	cas     *uint64 // only this one
	mark    bool
	expires *time.Time // with mark: the item's new expiry
}

func (st *store) remove(key string, r removal) verdict {
	st.mu.Lock()
	defer st.mu.Unlock()
	it := st.live(key)
	switch {
	case it == nil:
		return notFound
	case r.cas != nil && *r.cas != it.cas:
		return exists
	case !r.mark:
		delete(st.items, key)
		return done
	}
	it.stale, it.won, it.cas = true, false, st.nextCAS()
	if r.expires != nil {
		it.expires = *r.expires
	}
	return done
}

func (st *store) flush() {
	st.mu.Lock()
	defer st.mu.Unlock()
	clear(st.items)
}

func (st *store) len() int {
	st.mu.Lock()
	defer st.mu.Unlock()
	n := 0
	for key := range st.items {
		if st.live(key) != nil {
			n++
		}
	}
	return n
}

// Get returns what a key holds, for tests and the demo to look without a connection.
func (s *Server) Get(key string) (value string, ok bool) {
	it, ok := s.store.peek(key)
	return string(it.value), ok
}

// Set stores a value that never expires.
func (s *Server) Set(key, value string) { s.store.set(key, update{value: []byte(value)}) }

// Len returns how many items there are.
func (s *Server) Len() int { return s.store.len() }
