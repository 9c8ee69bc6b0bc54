package memcache

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
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
	QueueBytes   int           // bytes of deletes that a node may have unanswered in sink.Live; an eighth of it in each other lane. Default 8 MiB
	TotalBytes   int           // of all nodes together; default 64 MiB
	MaxLag       time.Duration // a node whose oldest live delete is older, or that answers nothing for so long, goes off; default 2 s
	Watch        time.Duration // for how long a node that idles is asked each second whether it is there, so that its death is seen; at least a minute, the default
	DialTimeout  time.Duration // name resolution, connect and TLS handshake together; default 1 s
	Timeout      time.Duration // one batch (classic: one delete), from its first byte to its last answer; default 1 s
	BackoffMin   time.Duration // pause after a first failure, doubled by each further one; default 50 ms
	BackoffMax   time.Duration // longest pause; default 2 s. Pauses are drawn from their upper half, so that a fleet does not return at once
	TLS          *tls.Config   // nil: plain TCP. An empty ServerName is the node's host name
	User         string        // of nodes that run with -Y, told first on each connection; empty: none
	Password     func() string // asked at each connection, since it may change

	// VerifyNotFound is for Classic through a proxy that answers NOT_FOUND to a delete that it only wrote down: the answer counts when an
	// `add` of an expired item has proven it, a second round trip. Default: NOT_FOUND is success.
	VerifyNotFound bool
}

// ErrClosed is returned by Delete once Run's context has ended.
var ErrClosed = errors.New("memcache client is closed")

// Client deletes copies on memcached nodes, or marks them stale. It is safe for concurrent use; nothing is sent before Run.
type Client struct {
	opts   Options
	log    *slog.Logger
	dial   dialer
	lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	open   func(ctx context.Context, addr string) (link, error) // connects to a node and has one answer from it
	closed chan struct{}                                        // closed when Run's context ends
	wake   chan struct{}                                        // holds one signal: mu.fresh is not empty

	budget budget

	shedding sync.Mutex // held while the fullest node is looked for

	mu struct {
		sync.RWMutex
		nodes  map[string]*node
		fresh  []*node // made by Delete or Probe, not yet started by Run
		turned []func(node string, on bool)
	}
}

var _ sink.Deleter = (*Client)(nil)

// New makes a client that knows no node yet: a node is made by the first delete for its address, and kept.
func New(opts Options, log *slog.Logger) *Client {
	setDefault(&opts.Protocol, Meta)
	setDefault(&opts.ConnsPerNode, 2)
	setDefault(&opts.QueueBytes, 8<<20)
	setDefault(&opts.TotalBytes, 64<<20)
	setDefault(&opts.MaxLag, 2*time.Second)
	opts.Watch = max(opts.Watch, watchMin)
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
	c.lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	}
	c.open = c.openLink
	c.budget.limit = int64(opts.TotalBytes)
	c.mu.nodes = make(map[string]*node)
	return c
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// Delete is sink.Deleter's. It returns a *sink.OffError, ErrClosed, or an error that wraps ctx's.
func (c *Client) Delete(ctx context.Context, l sink.Lane, cp sink.Copy, w sink.Waiter) error {
	return c.queue(ctx, cp.Node, newEntry(l, cp.Key, 0, w))
}

// MarkStale is sink.Deleter's. Its errors are Delete's.
func (c *Client) MarkStale(ctx context.Context, l sink.Lane, cp sink.Copy, ttl time.Duration, w sink.Waiter) error {
	return c.queue(ctx, cp.Node, newEntry(l, cp.Key, staleSeconds(ttl), w))
}

// Probe is sink.Deleter's.
func (c *Client) Probe(node string, w sink.Waiter) { c.node(node).probe(w) }

// OnOff has f called each time that a node goes off the live path (on is false), and each time that it is back. f is called from a
// goroutine of that node, with no lock held, and must not block: of one node the calls come in order, and it is not back before
// they have returned. When f is told that it is off, so is everyone whose delete it left unanswered.
func (c *Client) OnOff(f func(node string, on bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.turned = append(c.mu.turned, f)
}

func (c *Client) tellTurned(node string, on bool) {
	c.mu.RLock()
	turned := c.mu.turned
	c.mu.RUnlock()
	for _, f := range turned {
		f(node, on)
	}
}

func (c *Client) queue(ctx context.Context, node string, e entry) error {
	select {
	case <-c.closed:
		return ErrClosed
	default:
	}
	n := c.node(node)
	for {
		room, err := n.push(&e)
		if err != nil || room == nil {
			return err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return fmt.Errorf("waiting for room in the queue of node %s: %w", node, ctx.Err())
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
	n = c.newNode(addr)
	c.mu.nodes[addr] = n
	c.mu.fresh = append(c.mu.fresh, n)
	return n, true
}

// Run speaks to the nodes until ctx ends, and returns nil when every goroutine of the client has. Deletes without an answer
// by then are forgotten: their waiters are not called. It is called once.
func (c *Client) Run(ctx context.Context) error {
	var keepers sync.WaitGroup
	defer keepers.Wait()
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
			keepers.Go(func() { n.run(ctx) })
		}
	}
}

// all returns every node.
func (c *Client) all() []*node {
	c.mu.RLock()
	defer c.mu.RUnlock()
	nodes := make([]*node, 0, len(c.mu.nodes))
	for _, n := range c.mu.nodes {
		nodes = append(nodes, n)
	}
	return nodes
}

// signal leaves one signal in ch, which has room for one.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
