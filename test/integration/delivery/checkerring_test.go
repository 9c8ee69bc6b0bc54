//go:build integration

package delivery

import (
	"slices"
	"sync"
	"time"

	"invalidator/sink"
)

// issuedLive says when deletes of each name were last sent on the live path, and when a ring record was written.
type issuedLive struct {
	mu      sync.Mutex // guards what follows
	last    map[string]time.Time
	written time.Time
}

// record notes that a record is written at a time.
func (i *issuedLive) record(at time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.written = at
	if i.last == nil {
		i.last = map[string]time.Time{}
	}
}

// beforeRecord picks what is deleted again for a record and was issued before that was written.
func (c *catch) beforeRecord(l sink.Lane, cp sink.Copy, _ int) bool {
	i := &c.issued
	i.mu.Lock()
	defer i.mu.Unlock()
	switch l {
	case sink.Live, sink.Backlog:
		i.last[cp.Key] = time.Now()
	case sink.Urgent:
		return i.last[cp.Key].Before(i.written)
	}
	return false
}

// turnedShard is the one that turn promotes.
const turnedShard = "s00"

// turn changes the ring where the worker does not see it. Rows are changed, and all of their copies deleted. Then the primary of a shard goes; its
// replica, which has lagged, has some of these values again, and takes its place; another shard gets one more replica. Readers fill that, and
// more rows are changed, whose deletes pass it by, since the worker's way to etcd is cut. When it sees the record, it has to delete both again.
func (c *catch) turn() {
	ids, stop := c.open(c.first.Shards, nil)
	half := len(ids) / 2
	for ids[half]%inGroup > 0 { // no key is of rows of both
		half++
	}
	before, after := ids[:half], ids[half:]
	for _, k := range c.keysOf(ids) {
		c.fillAll(k)
	}
	c.change(before)
	c.p.AwaitFed(c.db)
	c.p.AwaitDelivered()

	heir := c.nodes[1]
	c.joined = c.fresh()
	cut(c.t, c.watch)
	for _, s := range slices.Clone(c.filled) {
		if s.node == heir && c.first.shardOf(s.name) == turnedShard && slices.Contains(c.keysOf(before), s.key) {
			c.again[s.name] = true
			c.put(fill{reader: "the lagging replica", key: s.key, name: s.name, node: heir, from: time.Now(), value: s.has})
		}
	}
	shards := cloned(c.first.Shards)
	turn(&shards[0], c.nodes[0], heir, false)
	shards[1].Replicas = append(shards[1].Replicas, c.joined.asReplica())
	c.issued.record(time.Now())
	c.publishNext(shards, nil)

	for _, k := range c.keysOf(after) {
		for _, name := range k.names(0) {
			if slices.Contains(c.owners(name), c.joined) {
				c.fillOne(k, name, c.joined)
			}
		}
	}
	c.change(after)
	c.p.AwaitFed(c.db)
	c.p.AwaitDelivered()
	for _, s := range c.filled {
		if s.node != c.joined {
			continue
		}
		if hit, err := s.node.Get(s.name); err != nil || !hit.Found {
			c.t.Fatalf("the worker has seen the record, though its way to etcd is cut (%v)", err)
		}
	}
	mend(c.t, c.watch)
	c.ready()
	stop()
}

// fresh is a node that no record has named: deletes go also to those that one of the past has.
func (c *catch) fresh() *node {
	for _, n := range c.nodes {
		if !slices.ContainsFunc(c.rings.all(), func(r *ring) bool { return c.has(&r.Record, n) }) {
			return n
		}
	}
	c.t.Fatal("every node was in a ring record")
	return nil
}

// carry has the ring resized when a primary of before is lost. Rows are changed, and their copies deleted on the new owner and wherever else a node
// answers. Then a reader finds nothing at the new owner, and the old value at the one that is lost to the worker, and carries it over. When that one
// is back, what it missed has to be deleted on both.
func (c *catch) carry() {
	c.joined = c.nodes[len(c.nodes)-1]
	ids, stop := c.open(append(cloned(c.first.Shards), shardOn("s09", c.joined)), &sink.Previous{Epoch: c.first.Epoch, Shards: c.first.Shards})
	for _, k := range c.keysOf(ids) {
		c.fillAll(k)
	}
	cut(c.t, c.lost.proxy)
	c.change(ids)
	c.owedToLost()
	for _, s := range slices.Clone(c.filled) {
		if s.node != c.lost || !slices.Contains(c.owners(s.name), c.joined) {
			continue
		}
		hit, err := c.lost.Get(s.name)
		if err != nil || hit.Value != s.has {
			c.t.Fatalf("the node that is lost has %q of %s (%v), want %q", hit.Value, s.name, err, s.has)
		}
		c.again[s.name] = true
		c.put(fill{reader: "a reader", key: s.key, name: s.name, node: c.joined, source: c.lost, from: time.Now(), value: hit.Value})
	}
	mend(c.t, c.lost.proxy)
	c.p.AwaitPaid()
	stop()
}
