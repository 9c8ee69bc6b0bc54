package memcache

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"invalidator/sink"
)

// Protocol is what the nodes speak.
type Protocol string

const (
	Meta    Protocol = "meta"    // pipelined quiet meta deletes; memcached 1.6 and later
	Classic Protocol = "classic" // one `delete` a round trip, for proxies and old servers
)

// Options says how nodes are spoken to. The zero value is good for a fleet of plain memcached nodes.
type Options struct {
	Protocol     Protocol      // default Meta
	ConnsPerNode int           // connections a node, a hard cap; default 2. Classic has one delete in flight on each
	QueueBytes   int           // bytes of deletes a node may have unanswered before Delete waits; default 8 MiB
	DialTimeout  time.Duration // name resolution, connect and TLS handshake together; default 1 s
	Timeout      time.Duration // one batch (classic: one delete), from its first byte to its last answer; default 1 s
	BackoffMin   time.Duration // pause after a first failure, doubled by each further one; default 50 ms
	BackoffMax   time.Duration // longest pause; default 2 s. Pauses are drawn from their upper half, so that a fleet does not return at once
	TLS          *tls.Config   // nil: plain TCP. An empty ServerName is the node's host name
}

// ErrClosed is returned by Delete once Run's context has ended.
var ErrClosed = errors.New("memcache client is closed")

// Client deletes copies on memcached nodes, or marks them stale. It is safe for concurrent use; nothing is sent before Run.
type Client struct {
	opts   Options
	log    *slog.Logger
	dial   dialer
	closed chan struct{} // closed when Run's context ends
	wake   chan struct{} // holds one signal: mu.fresh is not empty

	mu struct {
		sync.RWMutex
		nodes map[string]*node
		fresh []*node // made by Delete, not yet started by Run
	}
}

var _ sink.Deleter = (*Client)(nil)

// New makes a client that knows no node yet: a node is made by the first delete for its address, and kept.
func New(opts Options, log *slog.Logger) *Client {
	setDefault(&opts.Protocol, Meta)
	setDefault(&opts.ConnsPerNode, 2)
	setDefault(&opts.QueueBytes, 8<<20)
	setDefault(&opts.DialTimeout, time.Second)
	setDefault(&opts.Timeout, time.Second)
	setDefault(&opts.BackoffMin, 50*time.Millisecond)
	setDefault(&opts.BackoffMax, 2*time.Second)
	c := &Client{
		opts:   opts,
		log:    log,
		dial:   newDialer(opts),
		closed: make(chan struct{}),
		wake:   make(chan struct{}, 1),
	}
	c.mu.nodes = make(map[string]*node)
	return c
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Delete is sink.Deleter's. It returns ErrClosed, or an error that wraps ctx's.
func (c *Client) Delete(ctx context.Context, _ sink.Lane, cp sink.Copy, w sink.Waiter) error {
	return c.queue(ctx, cp, 0, w)
}

// MarkStale is sink.Deleter's. Its errors are Delete's.
func (c *Client) MarkStale(ctx context.Context, _ sink.Lane, cp sink.Copy, ttl time.Duration, w sink.Waiter) error {
	if ttl < sink.MinStale || ttl > sink.MaxStale {
		ttl = 0
	}
	return c.queue(ctx, cp, uint8(ttl/time.Second), w)
}

// Probe is sink.Deleter's.
func (c *Client) Probe(node string, w sink.Waiter) { w.Acked(sink.Copy{Node: node}, nil) }

func (c *Client) queue(ctx context.Context, cp sink.Copy, stale uint8, w sink.Waiter) error {
	select {
	case <-c.closed:
		return ErrClosed
	default:
	}
	n := c.node(cp.Node)
	for {
		full := n.push(cp.Key, stale, w)
		if full == nil {
			return nil
		}
		select {
		case <-full:
		case <-ctx.Done():
			return fmt.Errorf("waiting for room in the queue of node %s: %w", cp.Node, ctx.Err())
		case <-c.closed:
			return ErrClosed
		}
	}
}

// node returns the node of that address, making it on first use.
func (c *Client) node(addr string) *node {
	c.mu.RLock()
	n := c.mu.nodes[addr]
	c.mu.RUnlock()
	if n != nil {
		return n
	}
	n, fresh := c.addNode(addr)
	if fresh {
		signal(c.wake)
	}
	return n
}

func (c *Client) addNode(addr string) (n *node, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.mu.nodes[addr]; n != nil {
		return n, false
	}
	n = newNode(addr, c.opts.ConnsPerNode, c.opts.QueueBytes)
	c.mu.nodes[addr] = n
	c.mu.fresh = append(c.mu.fresh, n)
	return n, true
}

// Run speaks to the nodes until ctx ends, and returns nil when every goroutine of the client has. Deletes without an answer
// by then are forgotten: their waiters are not called. It is called once.
func (c *Client) Run(ctx context.Context) error {
	var senders sync.WaitGroup
	defer senders.Wait()
	defer close(c.closed)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.wake:
		}
		c.mu.Lock()
		fresh := c.mu.fresh
		c.mu.fresh = nil
		c.mu.Unlock()
		for _, n := range fresh {
			for slot := range c.opts.ConnsPerNode {
				s := c.newSender(n, slot)
				senders.Go(func() { s.run(ctx) })
			}
		}
	}
}

// NodeState is what a node owes and how it answers, for metrics and status.
type NodeState struct {
	Node        string
	Queued      int       // deletes without an answer, queued or on a socket
	QueuedBytes int       // what they hold of Options.QueueBytes
	OldestSince time.Time // when the oldest of them was queued; zero when there is none
	LastAck     time.Time // when a delete was last answered; zero before the first
	LastError   string    // why the latest attempt failed; empty once a later one has not
	Connected   bool      // at least one connection has had its latest answer in order
	Acked       uint64    // deletes answered since the start, refusals included
	Retried     uint64    // deletes that had to be sent again, counted each time
}

// Nodes returns the state of every node, by address.
func (c *Client) Nodes() []NodeState {
	c.mu.RLock()
	nodes := make([]*node, 0, len(c.mu.nodes))
	for _, n := range c.mu.nodes {
		nodes = append(nodes, n)
	}
	c.mu.RUnlock()
	states := make([]NodeState, len(nodes))
	for i, n := range nodes {
		states[i] = n.state()
	}
	slices.SortFunc(states, func(a, b NodeState) int { return strings.Compare(a.Node, b.Node) })
	return states
}

// signal leaves one signal in ch, which has room for one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
