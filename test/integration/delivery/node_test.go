//go:build integration

package delivery

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/Shopify/toxiproxy/v2"

	"invalidator/sink"
	"invalidator/test/integration/harness"
)

// node is a memcached. Workers come through its proxy, whose address the ring names; readers come to itself.
type node struct {
	*harness.Node
	name  string
	zone  string
	proxy *toxiproxy.Proxy
	pool  chan *harness.Conn // that nobody uses
	lost  atomic.Bool        // workers do not reach it as they should, and readers do
	away  time.Time          // since when it answers nobody; zero: it does. Of the goroutine that makes the faults
}

// take is a connection of the caller's own, until it is given back.
func (n *node) take() (*harness.Conn, error) {
	select {
	case c := <-n.pool:
		return c, nil
	default:
		return harness.Dial(n.Addr)
	}
}

func (n *node) give(c *harness.Conn, err error) {
	if err == nil {
		select {
		case n.pool <- c:
			return
		default:
		}
	}
	c.Close()
}

func (n *node) close() {
	for {
		select {
		case c := <-n.pool:
			c.Close()
		default:
			return
		}
	}
}

// addr is where workers find it, and what the ring calls it.
func (n *node) addr() string { return n.proxy.Listen }

// zones are those of the nodes, by turns.
var zones = [2]string{"a", "b"}

func (n *node) asPrimary() sink.Node { return sink.Node{Addr: n.addr(), Zone: n.zone} }

func (n *node) asReplica() sink.Replica { return sink.Replica{Addr: n.addr(), Zone: n.zone} }

// shardOn is a shard of the weight 1.
func shardOn(id string, primary *node, replicas ...*node) sink.Shard {
	s := sink.Shard{ID: id, Weight: 1, Primary: primary.asPrimary()}
	for _, r := range replicas {
		s.Replicas = append(s.Replicas, r.asReplica())
	}
	return s
}

func shardID(i int) string { return fmt.Sprintf("s%02d", i) }
